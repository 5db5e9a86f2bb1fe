"""Shared by the tests of the environment with layers: random and small ones, and its columns by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

from envs.actions import COMMIT, NUM_EDITS, Edit
from envs.batch import Batch
from envs.env import ClusterEnv
from envs.features import FEATURES, ObservationLayout
from envs.layout import FREE
from envs.spec import SimConfig
from tests.envs.elastic_core_support import jobs, linear
from tests.envs.random_layers import LayeredCase, layered_case
from traces.trace import Trace

FREEZE, UNFREEZE = Edit.FREEZE, Edit.UNFREEZE
COLUMNS = [f.name for f in FEATURES if f.block == "layers"]
PROFILES = {"cifar10": linear(100, name="cifar10")}  # one iteration a second on one GPU, 10 modules
EXACT_FRONT = SimConfig(interval_s=10.0, rescale_s=0.0, batch="fixed", front="exact")
SCENARIO: dict[str, Any] = {
    "scenario": "layer-elastic",
    "trace": "synthetic-layers?jobs=30",
    "cluster": "4x4",
    "num_slots": 8,
    "window_jobs": 10,
    "split": "all",
}


def one_layered_job(*others: tuple[float, float], preset: str = "conservative", **columns: Any) -> Trace:
    """An elastic job of 10 modules, and rigid ones on one GPU (arrival, duration), whose arrivals cause passes."""
    rows = [(1, 0.0, None), *((1, arrival, duration) for arrival, duration in others)]
    presets = [preset, *("" for _ in others)]
    return jobs(*rows, **{"model": ["cifar10", *("" for _ in others)], "freezing": presets, **columns})


def small_env(trace: Trace, sim: SimConfig = EXACT_FRONT, seed: int = 0, **given: Any) -> ClusterEnv:
    """A reset environment whose slots are the jobs of a trace."""
    base = {"scenario": "layer-elastic", "cluster": "1x8", "num_slots": 6, "profiles": PROFILES, "horizon_s": 1e6}
    env = ClusterEnv(**{**base, "trace": trace, "sim": sim, **given})
    env.reset(seed=seed)
    return env


@contextmanager
def layer_env(seed: int, **given: Any) -> Iterator[tuple[ClusterEnv, LayeredCase]]:
    """A reset environment on a random small workload, most of whose jobs have layers, and the case it is made of."""
    case = layered_case(seed)
    world: dict[str, Any] = {"trace": case.trace, "cluster": case.cluster, "sim": case.config}
    world |= {"profiles": case.profiles, "num_slots": Random(seed).choice((3, 12, 40)), "window_jobs": 40}
    with patch("envs.workload.load_profiles", lambda: case.known):
        env = ClusterEnv(**{"scenario": "layer-elastic", **world, **given})
        env.reset(seed=seed)
        yield env, case


def seen(env: ClusterEnv, slot: int = 0) -> dict[str, float]:
    """What the agent sees of a slot's layers."""
    return dict(zip(COLUMNS, env.layout.split(env.batch.obs[0])["layers"][slot].tolist(), strict=True))


def choose_any(batch: Batch, rng: Random) -> int:
    """Any valid action, changes of depth more often than others; every fifth time commit."""
    valid = np.flatnonzero(batch.mask[0])
    depths = valid[np.isin((valid - 1) % NUM_EDITS, (FREEZE, UNFREEZE)) & (valid > 0)]
    if rng.random() < 0.2:
        return COMMIT
    return int(rng.choice(depths if len(depths) and rng.random() < 0.4 else valid))


def valid_depths(env: ClusterEnv) -> set[int]:
    """Every change of depth that should be valid."""
    s, found = env.batch.states[0], set()
    for j in np.flatnonzero((s.phase[: s.num_slots] != FREE) & (s.gpus[: s.num_slots] > 0)):
        if s.layered and s.modules[j]:
            found |= {1 + NUM_EDITS * int(j) + FREEZE} if s.next_depth[j] < s.max_depth[j] else set()
            found |= {1 + NUM_EDITS * int(j) + UNFREEZE} if s.next_depth[j] > 0 else set()
    return found


class RandomPolicy:
    """Any valid action, a third of them commits; it freezes if the rollout lets it."""

    def __init__(self, freezes: bool = True, seed: int = 0) -> None:
        self.name, self.num_slots, self.edit_budget, self.freezes = "random", 32, 16, freezes
        self.rng = np.random.default_rng(seed)
        self.layered: set[bool] = set()
        self.batch, self.stochastic, self.oracle = "tuned", False, ()

    def act(self, obs: np.ndarray, mask: np.ndarray, layout: ObservationLayout) -> np.ndarray:
        self.layered.add(layout.layered)
        assert obs.shape[1] == layout.size
        scores = np.where(mask, self.rng.random(mask.shape), -1.0)
        scores[:, COMMIT] = np.where(self.rng.random(len(mask)) < 0.3, 2.0, -0.5)
        return scores.argmax(axis=1)
