"""Stragglers in the compiled core against the slow reference, on random cases."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

from envs.layout import SYNC_MODES
from envs.reference import STRAGGLER_OUTPUT
from envs.reference_decisions import Chooser, Seen
from envs.scheduler import Decision
from envs.view import ClusterView
from tests.envs.core_support import External
from tests.envs.random_stragglers import StragglerCase, SyncChooser, straggler_case
from tests.envs.test_core_elastic import NUMBERS, compare, follow


def follow_modes(chooser: Chooser) -> External:
    """The core's scheduler that a chooser of the reference makes which also says how workers wait."""
    modes: dict[int, int] = {}

    def without_modes(now: float, index: int, jobs: list[Seen], nodes: list[int]) -> dict[int, Any]:
        answer: dict[int, Any] = chooser(now, index, jobs, nodes)
        modes.clear()
        modes.update({i: SYNC_MODES.index(own[3]) for i, own in answer.items() if own[3:]})
        return {i: own[:2] if own[2:3] == (None,) else own[:3] for i, own in answer.items()}

    inner = follow(without_modes)

    def decide(view: ClusterView) -> Decision:
        decision = inner.decide(view)
        sync = np.full(view.num_slots, -1)
        for j in view.slots:
            sync[j] = modes.get(int(view.job_id[j]), -1)
        return replace(decision, sync=sync)

    return External(decide)


def agree(seed: int) -> tuple[StragglerCase, pd.DataFrame]:
    """A random case and the core's job table, which equals the reference's."""
    case = straggler_case(seed)
    with (
        patch("envs.workload.load_profiles", lambda: case.profiles),
        patch("tests.envs.test_core_elastic.follow", follow_modes),
    ):
        return case, compare(case, seed, [*NUMBERS, *STRAGGLER_OUTPUT])


SETTINGS: dict[str, tuple[Any, ...]] = {
    "stragglers": ("shared", "contention", "dedicated"),
    "straggler_rate": (0.0, 1.0, 30.0, 300.0, 1000.0),
    "straggler_load": (False, True),
    "straggler_times": ("lognormal", "exponential"),
    "straggler_severity": (0.5, 1.0, 3.0),
    "straggler_io": (False, True),
    "gpu_variability": (False, True),
    "sync": SYNC_MODES,
    "resync_s": (0.0, 5.0),
    "rescale_cost": ("constant", "restart", "afe", "helios"),
    "placement": ("consolidated", "emptiest", "spread", "random", "count"),
    "interval_s": (0.0, 10.0, 32.5, 60.0),
}
FLAGS = ("checkpoint_s", "interference", "node_mtbf_s")
COUNTS = ("num_preemptions", "num_rescales", "paused_gpu_s", "straggling_gpu_s")
WANTED = [
    *((name, value) for name, values in SETTINGS.items() for value in values),
    *FLAGS,
    *(("tuned", value) for value in (False, True)),
    *((kind, flag) for kind in ("listed", "modes") for flag in ("slowed", "faster")),
    *((of, name) for of in ("elastic", "rigid") for name in (*COUNTS, "slowed")),
    *(("sensitivity", name) for name in ("", "vision", "speech", "language", "recommendation")),
    ("fraction", "slowed"),
    ("backup", "slowed"),
    "rejected",
]


def count_features(seen: Counter[Any], case: StragglerCase, jobs: pd.DataFrame) -> None:
    """Add up what a case exercises."""
    for name in SETTINGS:
        seen[name, getattr(case.config, name)] += 1
    for name in FLAGS:
        seen[name] += getattr(case.config, name) > 0
    seen["tuned", case.tuned] += 1
    slowed, elastic = jobs["slowed_s"] > 0, jobs["duration_s"].isna()
    chooses = isinstance(case.scheduler, SyncChooser)
    if not chooses or case.scheduler.shake > 0:
        kind = "modes" if chooses else "listed"
        seen[kind, "slowed"] += int(slowed.sum())
        seen[kind, "faster"] += int((jobs["lost_gpu_s"] < 0).sum())
    for of, which in (("elastic", elastic), ("rigid", ~elastic)):
        seen[of, "slowed"] += int((slowed & which).sum())
        for name in COUNTS:
            seen[of, name] += int(((jobs[name] > 0) & slowed & which).sum())
    for name in jobs["sensitivity"][slowed]:
        seen["sensitivity", name] += 1
    seen["fraction", "slowed"] += int((slowed & (jobs["share_milli"] < 1000)).sum())
    if case.config.sync == "backup":
        seen["backup", "slowed"] += int((slowed & ~elastic & (jobs["num_gpus"] >= 8)).sum())
    seen["rejected"] += int((jobs["status"] == "rejected").sum())


def compare_many(seeds: range, least: int) -> None:
    seen: Counter[Any] = Counter()
    for seed in seeds:
        count_features(seen, *agree(seed))
    assert [feature for feature in WANTED if seen[feature] < least] == []


def test_core_equals_reference() -> None:
    compare_many(range(60), least=1)


@pytest.mark.slow
def test_core_equals_reference_in_many_cases() -> None:
    compare_many(range(1000), least=10)
