"""Everything together in the compiled core against the slow reference, on random cases."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

from envs.layout import SYNC_MODES
from envs.order import ListOrder
from envs.reference import LAYER_OUTPUT, STRAGGLER_OUTPUT
from tests.envs.noticing_reference import noticing
from tests.envs.random_full import FullCase, full_case
from tests.envs.test_core_elastic import NUMBERS, compare
from tests.envs.test_stragglers_core import follow_modes

COLUMNS = ["warm", *NUMBERS, *LAYER_OUTPUT, *STRAGGLER_OUTPUT]
SETTINGS: dict[str, tuple[Any, ...]] = {
    "reclaim": ("ats", "lyra", "static"),
    "aiss": (False, True),
    "ddp": ("rebuilt", "plain"),
    "activation_cache": (False, True),
    "freeze_s": (0.0, 3.0),
    "resync_s": (0.0, 5.0),
    "most_residual": (1.0, 0.05),
    "stragglers": ("shared", "contention", "dedicated"),
    "straggler_load": (False, True),
    "straggler_io": (False, True),
    "gpu_variability": (False, True),
    "sync": SYNC_MODES,
    "knowledge": ("profile", "oracle"),
    "rescale_cost": ("constant", "restart", "afe", "helios"),
}
KINDS, WHAT = ("training", "inference"), ("some", "all")
WANTED = [
    *((name, value) for name, values in SETTINGS.items() for value in values),
    *(("scheduler", kind) for kind in ("listed", "chosen")),
    *(("tuned", value) for value in (False, True)),
    # pairs that matter to each other
    *(("frozen", what) for what in ("slowed by a link", "faster", "num_rescales", "num_preemptions", "residual")),
    *(("frozen", "slowed", mode) for mode in ("synchronous", "drop", "asynchronous", "grouped", "lb-bsp")),
    *(("task", kind, speed) for kind in ("cold", "warm") for speed in ("slower", "as usual")),
    *(("pods made slow", kind, "by load") for kind in ("cpu", "gpu")),
    ("pods made slow", "cpu", "as a tenant"),
    *(("lost to inference", what, rule) for what in WHAT for rule in ("ats", "lyra")),
    *(("lost while slowed", *pair) for pair in (("elastic", "some"), ("elastic", "all"), ("rigid", "all"))),
    *(("lost while frozen", what) for what in WHAT),
    ("lost to inference", "another pace"),
    ("lost to inference", "the slow link too"),
    ("who yields", "by pace"),
    ("depth and mode", "alone"),
    ("depth and mode", "with devices"),
]
RARE = [
    ("who yields", "by depth"),
    ("depth changed the load of", "net"),
    *(("pods made slow", "io", how) for how in ("by load", "as a tenant")),
]


def agree(seed: int, seen: Counter[Any]) -> None:
    """Assert that core and reference agree on a random case, and count what it exercises."""
    case = full_case(seed)
    with (
        patch("envs.workload.load_profiles", lambda: case.known),
        patch("tests.envs.test_core_elastic.follow", follow_modes),
        noticing(seen),
    ):
        count_features(seen, case, compare(case, seed, COLUMNS))


def count_features(seen: Counter[Any], case: FullCase, rows: pd.DataFrame) -> None:
    for name in SETTINGS:
        seen[name, getattr(case.config, name)] += 1
    seen["scheduler", "listed" if isinstance(case.scheduler, ListOrder) else "chosen"] += 1
    seen["tuned", case.tuned] += 1
    frozen = rows["depth_changes"] > 0
    for name in ("num_rescales", "num_preemptions", "residual"):
        seen["frozen", name] += int(((rows[name] > 0) & frozen & (rows["slowed_s"] > 0)).sum())
    task = rows["kind"] == "inference"
    assert (rows["lost_gpu_s"][task] == 0).all()
    assert np.isfinite(rows["finish_s"][task]).all()


def compare_many(seeds: range, wanted: list[Any]) -> None:
    seen: Counter[Any] = Counter()
    for seed in seeds:
        agree(seed, seen)
    print({feature: seen[feature] for feature in wanted})
    assert [feature for feature in wanted if seen[feature] == 0] == []


def test_core_equals_reference() -> None:
    compare_many(range(60), WANTED)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_core_equals_reference_in_many_cases() -> None:
    compare_many(range(1000), WANTED + RARE)
