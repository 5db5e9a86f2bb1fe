"""What happens at the seams of training: validation, checkpoints, and what TensorBoard is told.

SB3 calls ``on_rollout_start`` when an update is done and nothing of the next rollout exists yet. There,
and only there, the whole training state can be written down, so a copy of it is kept in memory: if
training is interrupted at any later instant, that copy becomes the checkpoint.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from agents.checkpoint import Checkpoint, is_checkpoint, save_checkpoint
from agents.config import TrainConfig
from agents.network import ClusterNetwork
from agents.policy import BEST, CHECKPOINTS, KINDS, LearnedPolicy, kinds_of
from agents.sb3_vec_env import ClusterSB3VecEnv
from agents.tensorboard import RunLog
from agents.training_state import capture
from agents.validation import Validation, Validator

OnProgress = Callable[[int, float | None], None]  # decisions so far, lowest measure of a validation [s] so far


class TrainingCallback(BaseCallback):
    """Keeps the run folder ``out`` up to date; ``progress`` is what :meth:`progress_state` returned before a resume."""

    def __init__(
        self,
        config: TrainConfig,
        out: Path,
        log: RunLog,
        validator: Validator,
        policy_config: dict[str, Any],
        references: Mapping[str, float],
        on_progress: OnProgress,
        progress: Mapping[str, Any] | None,
    ) -> None:
        super().__init__()
        self.config, self.out, self.log, self.validator = config, out, log, validator
        self.policy_config, self.references, self.on_progress = policy_config, references, on_progress
        before = progress or {"validated": None, "checkpointed": 0, "best": None}
        self.validated: int | None = before["validated"]
        self.checkpointed: int = before["checkpointed"]
        self.best: float | None = before["best"]
        self.boundary: Checkpoint | None = None
        self._seam = time.perf_counter()  # when the part of training that is running began
        self._env_before = 0.0
        self._spent = {"env": 0.0, "policy": 0.0, "learner": 0.0}
        self._decisions = 0

    @property
    def network(self) -> ClusterNetwork:
        network: ClusterNetwork = self.model.policy.network  # type: ignore[assignment]
        return network

    @property
    def vec_env(self) -> ClusterSB3VecEnv:
        assert isinstance(self.model.env, ClusterSB3VecEnv)
        return self.model.env

    def _on_training_start(self) -> None:
        self._seam = time.perf_counter()

    def _on_rollout_start(self) -> None:
        self._spent["learner"] += time.perf_counter() - self._seam
        self._log_times()
        self._at_boundary(last=False)
        self._seam, self._env_before = time.perf_counter(), self.vec_env.seconds

    def _on_step(self) -> bool:
        self.on_progress(self.num_timesteps, self.best)
        return True

    def _on_rollout_end(self) -> None:
        now, env = time.perf_counter(), self.vec_env.seconds - self._env_before
        self._spent["env"] += env
        self._spent["policy"] += now - self._seam - env
        self._decisions += self.config.num_envs * self.config.learner.rollout_steps
        self._seam = now
        self._log_rollout()

    def _on_training_end(self) -> None:
        self._spent["learner"] += time.perf_counter() - self._seam
        self._at_boundary(last=True)

    def _at_boundary(self, last: bool) -> None:
        step = self.num_timesteps
        if (
            self.validated is None
            or step - self.validated >= self.config.validate_every
            or (last and step > self.validated)
        ):
            self._validate(step)
        due = step - self.checkpointed >= self.config.checkpoint_every or (last and step > self.checkpointed)
        if due:
            self.checkpointed = step
        self.boundary = self._capture()
        if due:
            self.save_boundary()

    def _capture(self) -> Checkpoint:
        assert isinstance(self.model, OnPolicyAlgorithm)
        weights = {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()}
        plain, tensors = capture(self.model)
        progress = {"validated": self.validated, "checkpointed": self.checkpointed, "best": self.best}
        return Checkpoint(self._config_at(self.num_timesteps), weights, {**plain, "progress": progress}, tensors)

    def _config_at(self, step: int) -> dict[str, Any]:
        return {**self.policy_config, "trained_on": {**self.policy_config["trained_on"], "decisions": step}}

    def save_boundary(self) -> None:
        """Write the state at the last seam to ``checkpoints/`` and delete older ones."""
        if self.boundary is None:
            return
        folder = self.out / CHECKPOINTS / f"step-{self.boundary.state['num_timesteps']:012d}"
        save_checkpoint(folder, self.boundary)
        found = sorted(path for path in folder.parent.glob("step-*") if path <= folder)
        whole = [path for path in found if is_checkpoint(path)][-self.config.keep_checkpoints :]
        for path in found:
            if path not in whole:
                shutil.rmtree(path)

    def _validate(self, step: int) -> None:
        result = self.validator(self.network, step)
        self.validated = step
        self._log_validation(result, step)
        measure = self.validator.measure
        value = result.greedy[measure]
        if not math.isnan(value) and (self.best is None or value < self.best):
            self.best = value
            config = {**self._config_at(step), "validation": {measure: value}}
            save_checkpoint(self.out / BEST, Checkpoint(config, self.network.state_dict()))
        self.on_progress(step, self.best)

    # --- what TensorBoard is told ---

    def _log_validation(self, result: Validation, step: int) -> None:
        self.log.scalars({f"validation/{name}": value for name, value in result.greedy.items()}, step)
        measure = self.validator.measure
        others = {**self.references, "agent_sampled": result.sampled[measure]}
        self.log.scalars({f"validation/{measure}/{name}": value for name, value in others.items()}, step)
        self.log.scalars({"validation/unfinished_windows": float(result.unfinished)}, step)
        if result.unfinished == 0:
            policy = LearnedPolicy("agent", self.network, self._config_at(step), self.model.device)
            self.log.image("validation/gantt", self.validator.draw(policy), step)

    def _log_rollout(self) -> None:
        assert isinstance(self.model, OnPolicyAlgorithm)
        actions = self.model.rollout_buffer.actions.reshape(-1).astype(np.int64)
        kinds = kinds_of(actions, self.vec_env.batch.layout.num_slots)
        shares = np.bincount(kinds, minlength=len(KINDS)) / len(kinds)
        step = self.num_timesteps
        self.log.scalars(
            {f"actions/{name}": share for name, share in zip(KINDS, shares, strict=True) if share > 0}, step
        )
        self.log.histogram("actions/kinds", kinds, len(KINDS), step)
        episodes = self.vec_env.take_finished()
        if episodes:
            means = {name: float(np.mean([e[name] for e in episodes])) for name in episodes[0]}
            self.log.scalars({f"rollout/{name}": value for name, value in means.items()}, step)

    def _log_times(self) -> None:
        """Decisions per second and shares of time since the last call; validation and checkpoints are not counted."""
        total = sum(self._spent.values())
        if self._decisions:
            rates = {f"time/share_{name}": spent / total for name, spent in self._spent.items()}
            self.log.scalars({"time/decisions_per_s": self._decisions / total, **rates}, self.num_timesteps)
        self._spent, self._decisions = dict.fromkeys(self._spent, 0.0), 0
