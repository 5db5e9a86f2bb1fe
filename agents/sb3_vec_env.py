"""The compiled batch of clusters as a vector environment of Stable-Baselines3, in this process.

SB3 expects same-step resets: the observation returned for a finished row is the first of its next
episode, and ``infos[i]["terminal_observation"]`` holds the last one. That is what the batch does, so
nothing is stepped or reset here. Rows that did not finish share prepared empty infos: no dictionary
is made for them. Masks of all rows are one array.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices

from envs.batch import Batch
from envs.env import episode_metrics


class ClusterSB3VecEnv(VecEnv):
    """``batch.num_envs`` clusters with flat observations ``(B, R) float32`` and actions ``(B,) int64``.

    ``infos[i]`` of a finished row: ``terminal_observation (R,)``, ``TimeLimit.truncated``,
    ``episode`` = {r: return, l: decisions, t: seconds since construction} and ``episode_metrics``.
    ``env_method("action_masks")`` gives the rows of one ``(B, A) bool`` array.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.seconds = 0.0  # spent in the batch so far
        super().__init__(batch.num_envs, batch.layout.flat_space(), spaces.Discrete(batch.mask.shape[1]))
        self._finished: list[dict[str, float]] = []
        self._blank: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._born = time.perf_counter()
        self._actions: npt.NDArray[np.int64] = np.zeros(self.num_envs, np.int64)

    def reset(self) -> npt.NDArray[np.float32]:
        """First observations ``(B, R)``; the seeds given to ``seed()`` are used once."""
        known = [seed for seed in self._seeds if seed is not None]
        self.batch.reset(np.array(known, np.int64) if known else None)
        self._reset_seeds()
        self._returns[:] = 0.0
        self._lengths[:] = 0
        return self.batch.obs.copy()

    def step_async(self, actions: npt.NDArray[np.int64]) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.bool_], list[Any]]:
        """Observations ``(B, R)``, rewards ``(B,)``, done ``(B,)`` and infos, none of which later steps change."""
        batch, began = self.batch, time.perf_counter()
        batch.step(self._actions)
        self.seconds += time.perf_counter() - began
        self._returns += batch.reward
        self._lengths += 1
        done = batch.terminated | batch.truncated
        infos = self._blank.copy()
        for row in np.flatnonzero(done):
            infos[row] = self._describe(int(row))
            self._finished.append(infos[row]["episode_metrics"])
        self._returns[done] = 0.0
        self._lengths[done] = 0
        return batch.obs.copy(), batch.reward.astype(np.float32), done, infos

    def _describe(self, row: int) -> dict[str, Any]:
        """The info of a finished row."""
        batch = self.batch
        age = time.perf_counter() - self._born
        return {
            "terminal_observation": batch.final_obs[row].copy(),
            "TimeLimit.truncated": bool(batch.truncated[row] and not batch.terminated[row]),
            "episode": {"r": float(self._returns[row]), "l": int(self._lengths[row]), "t": round(age, 6)},
            "episode_metrics": episode_metrics(batch, row),
        }

    def take_finished(self) -> list[dict[str, float]]:
        """``episode_metrics`` of the episodes that finished since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Row i of a run with one seed shares its random numbers with no row of a run with another."""
        if seed is not None:
            seed *= 1 << 20  # more rows than any batch has
        return super().seed(seed)

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """``(B, A) bool`` of the state that the last observations show; row i belongs to cluster i."""
        return self.batch.mask

    def snapshot(self) -> dict[str, torch.Tensor]:
        """Everything that later steps depend on, by name."""
        parts = {**self.batch.snapshot(), "returns": self._returns, "lengths": self._lengths}
        return {f"env/{name}": torch.from_numpy(_to_bytes(part)) for name, part in parts.items()}

    def fingerprint(self) -> str:
        """Digest of the names, types and shapes in a snapshot; another version of the simulator has another."""
        fields = [(name, part.dtype.descr, part.shape) for name, part in self.batch.snapshot().items()]
        return hashlib.sha256(repr(fields).encode()).hexdigest()

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Go on from a snapshot; tensors of other names are not looked at."""
        own = {"returns": self._returns, "lengths": self._lengths}
        parts = {}
        for name, like in {**self.batch.snapshot(), **own}.items():
            parts[name] = tensors[f"env/{name}"].numpy().view(like.dtype).reshape(like.shape)
        for name, array in own.items():
            array[:] = parts.pop(name)
        self.batch.restore(parts)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> Any:
        """Only ``action_masks``: its ``(B, A) bool`` array, which is a sequence of one mask for each row."""
        if method_name != "action_masks":
            raise AttributeError(f"clusters of a batch have no method {method_name}")
        return self.batch.mask if indices is None else self.batch.mask[self._rows(indices)]

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """An attribute of the batch, which its clusters share."""
        value = {"render_mode": None, "action_masks": self.action_masks}.get(attr_name)
        if value is None and attr_name != "render_mode":
            value = getattr(self.batch, attr_name)
        return [value for _ in self._rows(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        raise AttributeError(f"clusters of a batch share their settings, so {attr_name} cannot be set")

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        return [False for _ in self._rows(indices)]

    def close(self) -> None:
        """Nothing is open."""

    def _rows(self, indices: VecEnvIndices) -> Sequence[int]:
        if indices is None:
            return range(self.num_envs)
        return list(indices) if isinstance(indices, Iterable) else [indices]


def _to_bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).view(np.ndarray).reshape(-1).view(np.uint8).copy()
