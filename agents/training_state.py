"""Everything a training run needs to go on as if it had not stopped, as JSON values and tensors.

It is taken where a rollout begins: the last update is done and no decision of the next rollout has
been made, so weights, optimiser moments, the random generators, the environments and the number of
decisions so far are the whole state. The learning-rate schedule is a function of that number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from torch import Tensor

from agents.checkpoint import CheckpointError, optimiser_from_plain, optimiser_to_plain
from agents.sb3_vec_env import ClusterSB3VecEnv

Plain = dict[str, Any]
Tensors = dict[str, Tensor]


def capture(model: OnPolicyAlgorithm) -> tuple[Plain, Tensors]:
    """Copies of the training state of ``model`` but for its weights."""
    groups, tensors = optimiser_to_plain(model.policy.optimizer)
    tensors = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    tensors.update(_environments(model).snapshot())
    assert isinstance(model._last_obs, np.ndarray)
    assert model._last_episode_starts is not None
    tensors["last_obs"] = torch.from_numpy(model._last_obs.copy())
    tensors["last_episode_starts"] = torch.from_numpy(model._last_episode_starts.copy())
    tensors.update(_generators())
    return {
        "num_timesteps": model.num_timesteps,
        "n_updates": model._n_updates,
        "optimiser_groups": groups,
        "environments": _environments(model).fingerprint(),
    }, tensors


def restore(model: OnPolicyAlgorithm, plain: Mapping[str, Any], tensors: Tensors) -> None:
    """Undo :func:`capture`; the weights are loaded by the caller.

    Raises :class:`CheckpointError` if the environments that were saved are not of this version.
    """
    if plain["environments"] != _environments(model).fingerprint():
        raise CheckpointError(
            "the run was interrupted under another version of the simulator and cannot go on under this one"
        )
    optimiser_from_plain(model.policy.optimizer, plain["optimiser_groups"], tensors)
    model.num_timesteps = int(plain["num_timesteps"])
    model._n_updates = int(plain["n_updates"])
    model._last_obs = tensors["last_obs"].numpy().copy()
    model._last_episode_starts = tensors["last_episode_starts"].numpy().copy()
    _environments(model).restore(tensors)
    _set_generators(tensors)


def _environments(model: OnPolicyAlgorithm) -> ClusterSB3VecEnv:
    assert isinstance(model.env, ClusterSB3VecEnv)
    return model.env


def _generators() -> Tensors:
    """States of the global generators: torch's samples actions, numpy's shuffles minibatches."""
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    found = {
        "rng/torch": torch.get_rng_state(),
        "rng/numpy_keys": torch.from_numpy(np.asarray(keys).astype(np.int64)),
        "rng/numpy_rest": torch.tensor([float(position), float(has_gauss), cached], dtype=torch.float64),
    }
    if torch.cuda.is_available():
        found["rng/cuda"] = torch.cuda.get_rng_state()
    return found


def _set_generators(tensors: Tensors) -> None:
    torch.set_rng_state(tensors["rng/torch"])
    position, has_gauss, cached = tensors["rng/numpy_rest"].tolist()
    keys = tensors["rng/numpy_keys"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", keys, int(position), int(has_gauss), cached))
    if torch.cuda.is_available() and "rng/cuda" in tensors:
        torch.cuda.set_rng_state(tensors["rng/cuda"])
