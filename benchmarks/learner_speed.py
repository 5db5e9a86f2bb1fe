"""How much of a learner's speed the environment costs: training on clusters against training on nothing.

Both learners are the trainer's own MaskablePPO with the same settings. The one on nothing gets, in place of an
environment, the observations and masks of the other's last rollout, handed out again one after another: shapes and
occupancy are the same, so the network, which computes occupied slots only, has the same work. The two take turns, one
rollout and update each, so that a noisy machine disturbs both alike.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from agents.config import PPOConfig, TrainConfig
from agents.sb3_vec_env import ClusterSB3VecEnv
from agents.trainer import make_model
from benchmarks.measure import Timing
from envs.batch import Batch
from envs.settings import EnvSettings


class Nothing(ClusterSB3VecEnv):
    """The vector environment of the trainer, without clusters: what was seen before, no reward and no end."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self.seen: list[npt.NDArray[np.float32]] = [np.zeros_like(batch.obs)]
        self.masks: list[npt.NDArray[np.bool_]] = [np.ones_like(batch.mask)]
        self._step = 0
        self._reward, self._done = np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, np.bool_)

    def show(self, model: OnPolicyAlgorithm) -> None:
        """Show from now on what ``model`` saw in its last rollout."""
        buffer: Any = model.rollout_buffer
        rollout = (buffer.buffer_size, buffer.n_envs)
        # Training flattens the buffer environment by environment.
        self.seen = _by_step(buffer.observations, rollout)
        self.masks = [masks > 0 for masks in _by_step(buffer.action_masks, rollout)]
        self._step = 0

    def reset(self) -> npt.NDArray[np.float32]:
        return self.seen[0]

    def step_wait(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.bool_], list[Any]]:
        self._step = (self._step + 1) % len(self.seen)
        return self.seen[self._step], self._reward, self._done, self._blank

    def action_masks(self) -> npt.NDArray[np.bool_]:
        return self.masks[self._step]

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        return self.masks[self._step]


@dataclass(frozen=True)
class LearnerSpeed:
    """CPU seconds of each rollout and update, and how many decisions each had."""

    decisions: int
    clusters: Timing
    nothing: Timing

    @property
    def share(self) -> float:
        """Speed on clusters over speed on nothing; 1: the environment costs nothing."""
        return self.nothing.median / self.clusters.median


def measure_learner(settings: EnvSettings, num_envs: int, rollout_steps: int, repeats: int) -> LearnerSpeed:
    """Train on clusters and on nothing in turn; the first turn of each is not counted."""
    config = TrainConfig(num_envs=num_envs, ppo=PPOConfig(rollout_steps=rollout_steps), device="cpu")
    models = [make_model(config, settings) for _ in range(2)]
    clusters, nothing = models
    idle = Nothing(clusters.get_env().batch)  # type: ignore[union-attr]
    nothing.env = idle
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats + 1):
        for model, spent in zip(models, seconds, strict=True):
            began = time.process_time()
            train_once(model, num_envs * rollout_steps)
            spent.append(time.process_time() - began)
            if model is clusters:
                idle.show(clusters)
    return LearnerSpeed(num_envs * rollout_steps, Timing(tuple(seconds[0][1:])), Timing(tuple(seconds[1][1:])))


def train_once(model: OnPolicyAlgorithm, decisions: int) -> None:
    """One rollout and one update."""
    model.set_logger(Logger(folder=None, output_formats=[]))
    model.learn(decisions, reset_num_timesteps=False)


def _by_step(rows: npt.NDArray[Any], rollout: tuple[int, int]) -> list[npt.NDArray[Any]]:
    """Rows (B * T, ...) of a flattened rollout of T steps as T arrays (B, ...)."""
    steps, envs = rollout
    return list(np.ascontiguousarray(rows.reshape(envs, steps, -1).swapaxes(0, 1)))
