"""Masked random play, recorded once and then replayed with nothing but the environment on the clock.

Environments are deterministic, so actions that were drawn from masks in a first run are valid again after the same
seeds. What is timed is therefore the environment alone: no draw, no mask is looked at. With probability
``commit_share`` an environment commits, else it takes a valid edit, each equally likely; it also commits when no edit
is valid, so the share of commits is ``commit_share`` wherever there is a choice. Where actions are log-weights, every
step is a whole pass, and the weights are drawn from a standard normal distribution.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from envs.actions import COMMIT
from envs.env import ClusterEnv
from envs.vector_env import ClusterVectorEnv

SEED = 0


@dataclass(frozen=True)
class Recording:
    """Actions of T steps, (T, B) int64 edits or (T, B, J) log-weights, and what they led to."""

    actions: npt.NDArray[Any]
    events: int
    episodes: int

    @property
    def num_steps(self) -> int:
        return int(self.actions.shape[0] * self.actions.shape[1])

    @property
    def commits(self) -> float:
        """Share of the actions that were commits, forced ones included."""
        return float((self.actions == COMMIT).mean()) if self.actions.ndim == 2 else 1.0


class Player:
    """An environment of B rows to record, begun: ``states`` (B,) records, ``mask`` (B, A) bool, and one step."""

    def __init__(self, env: ClusterEnv | ClusterVectorEnv) -> None:
        self.env = env
        self.states: Any = env.batch.states
        self.mask = env.batch.mask
        env.reset(seed=SEED)

    def draw(self, commit_share: float, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Actions for all rows."""
        if self.env.settings.action == "weights":
            return rng.standard_normal((len(self.mask), self.env.settings.num_slots))
        return draw(self.mask, commit_share, rng)

    def step(self, actions: npt.NDArray[Any]) -> int:
        """Step all rows; how many episodes ended."""
        env = self.env
        _, _, terminated, truncated, _ = (
            env.step(actions) if isinstance(env, ClusterVectorEnv) else env.step(actions[0])
        )
        return int(np.sum(terminated | truncated))

    def renew(self, ended: int) -> None:
        """Begin anew after an end; a vector environment does so by itself, in the next step."""
        if ended and isinstance(self.env, ClusterEnv):
            self.env.reset()


def draw(mask: npt.NDArray[np.bool_], commit_share: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Actions (B,) for masks (B, A)."""
    rows, width = mask.shape
    valid = np.flatnonzero(mask)  # row by row, the commit first in each
    first = np.searchsorted(valid, np.arange(rows + 1) * width)
    edits = np.diff(first) - 1
    pick = first[:-1] + 1 + (rng.random(rows) * edits).astype(np.int64)
    commits = (edits == 0) | (rng.random(rows) < commit_share)
    return np.where(commits, COMMIT, valid[np.minimum(pick, len(valid) - 1)] % width)


def record(env: ClusterEnv | ClusterVectorEnv, commit_share: float, seconds: float, steps: int = 1) -> Recording:
    """Play for about ``seconds`` CPU seconds of stepping, and at least ``steps`` steps; 0: one step, which compiles."""
    player, rng = Player(env), np.random.default_rng(SEED)
    actions: list[npt.NDArray[Any]] = []
    events, episodes, spent = 0, 0, 0.0
    before = player.states["num_events"].copy()
    while spent < seconds or len(actions) < steps:
        actions.append(player.draw(commit_share, rng))
        began = time.process_time()
        ended = player.step(actions[-1])
        spent += time.process_time() - began
        now = player.states["num_events"].copy()
        events += int(np.where(now < before, now, now - before).sum())  # the count restarts with each episode
        before = now
        episodes += ended
        player.renew(ended)
    return Recording(np.array(actions), events, episodes)


def replay_vector(env: Any, recording: Recording) -> Callable[[], None]:
    """The recorded steps of a vector environment as a function to time; its reset is not among them."""

    def replay() -> None:
        for actions in recording.actions:
            env.step(actions)

    return replay


def replay_single(env: Any, recording: Recording) -> Callable[[], None]:
    """The recorded steps of a single environment, and the resets between them."""
    actions = list(recording.actions[:, 0])

    def replay() -> None:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return replay
