"""Rollout buffers that count time in scheduling passes.

Generalised advantage estimation (Schulman et al., ICLR 2016) weights what happens k decisions later by
lambda^k. Here a pass has as many decisions as it has edits, and edits take no time, so lambda is
applied at commits only: the credit of an edit reaches as many passes ahead however many edits follow.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer
from stable_baselines3.common.buffers import RolloutBuffer

from envs.actions import COMMIT


class PassRolloutBuffer(RolloutBuffer):
    """For PPO and A2C."""

    def compute_returns_and_advantage(self, last_values: torch.Tensor, dones: npt.NDArray[np.bool_]) -> None:
        """Fill ``advantages`` and ``returns`` (T, B); ``last_values (B, 1)``, ``dones (B,)``: after the last step."""
        next_values = last_values.cpu().numpy().flatten()
        alive = 1.0 - dones.astype(np.float32)
        advantage = np.zeros(self.n_envs, np.float32)
        trust = np.where(self.actions[:, :, 0] == COMMIT, self.gae_lambda, 1.0).astype(np.float32)
        for t in reversed(range(self.buffer_size)):
            surprise = self.rewards[t] + self.gamma * next_values * alive - self.values[t]
            advantage = surprise + self.gamma * trust[t] * alive * advantage
            self.advantages[t] = advantage
            next_values, alive = self.values[t], 1.0 - self.episode_starts[t]
        self.returns = self.advantages + self.values


class MaskablePassRolloutBuffer(MaskableRolloutBuffer):
    """For MaskablePPO."""

    compute_returns_and_advantage = PassRolloutBuffer.compute_returns_and_advantage
