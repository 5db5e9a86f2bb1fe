"""The compiled core against the slow reference, job by job, on random cases of inference beside training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from envs.order import ListOrder
from envs.reference import OUTPUT, simulate_reference
from envs.simulate import simulate
from tests.envs.core_support import Listed
from tests.envs.random_inference import InferenceCase, chosen_case, listed_case, rigid_case
from tests.envs.test_core_elastic import follow

NUMBERS = ["warm", *(name for name in OUTPUT.split() if name != "status")]


def compare(case: InferenceCase, seed: int) -> pd.DataFrame:
    """Assert that core and reference agree on a case; the core's table of jobs and tasks."""
    rule = case.scheduler
    scheduler = Listed(rule) if isinstance(rule, ListOrder) else follow(rule)
    got = simulate(case.trace, case.cluster, scheduler, case.config, seed=seed, profiles=case.profiles).jobs
    want = pd.DataFrame(
        simulate_reference(case.trace, case.cluster, rule, case.config, seed, case.profiles, case.tuned)
    )
    same = got["status"] == want["status"]
    for name in NUMBERS:
        same &= np.isclose(got[name], want[name], rtol=1e-6, atol=1e-6, equal_nan=True)
    if not same.all():
        # The first to be treated differently, not the first in the trace.
        first = pd.concat([got["finish_s"], want["finish_s"]], axis=1).min(axis=1).where(~same).idxmin()
        table = pd.DataFrame({"core": got[["status", *NUMBERS]].loc[first], "reference": want.loc[first]}).to_string()
        kind, arrival = case.trace.jobs["kind"].loc[first], case.trace.jobs["arrival_s"].loc[first]
        pytest.fail(
            f"seed {seed}, {kind} row {first} of {len(want)}, arrived at {arrival} s "
            f"(rows that differ: {np.flatnonzero(~same).tolist()})\n"
            f"{rule}\n{case.config}\ntuned {case.tuned}, cluster {case.cluster}\n{table}"
        )
    return got


def count_features(seen: Counter[Any], case: InferenceCase, rows: pd.DataFrame) -> None:
    """Add up what a case exercises."""
    config, task = case.config, case.trace.jobs["kind"] == "inference"
    elastic = ~task & case.trace.jobs["duration_s"].isna()
    rigid = ~task & ~elastic
    for name in ("placement", "reclaim", "aiss", "protect_times", "event_driven", "rescale_cost"):
        seen[name, getattr(config, name)] += 1
    for name in ("num_preemptions", "num_rescales"):
        seen[name, "elastic", config.reclaim] += int((rows[name][elastic] > 0).sum())
        seen[name, "rigid", config.reclaim] += int((rows[name][rigid] > 0).sum())
    seen["warm"] += int(rows["warm"].sum())
    seen["cold"] += int((rows["warm"][task] == 0).sum())
    seen["waited", config.reclaim] += int((rows["queueing_delay_s"][task] > 0).sum())
    seen["rejected", config.reclaim] += int((rows["status"] == "rejected").sum())
    seen["services", case.trace.jobs["service"][task].nunique()] += 1


def wanted(elastic: bool) -> list[Any]:
    """Features that some cases or rows should exercise."""
    kind, rules = "elastic" if elastic else "rigid", ("ats", "lyra", "static")
    values: dict[str, tuple[Any, ...]] = {
        "placement": ("consolidated", "emptiest", "spread", "random", "count"),
        "reclaim": rules,
        "aiss": (True, False),
        "event_driven": (True, False),
        "protect_times": (0.0, 0.25, 0.5, 1.0, 2.0),
        "waited": rules,
        "rejected": ("ats", "static"),
        "services": (1, 2, 3, 4),
    }
    changes = [("num_preemptions", kind, rule) for rule in rules]
    changes += [("num_rescales", kind, rule) for rule in ("ats", "lyra") if elastic]
    return ["warm", "cold", *changes, *((name, value) for name, options in values.items() for value in options)]


@pytest.mark.parametrize(
    ("make", "first", "count"),
    [
        (rigid_case, 0, 120),
        (listed_case, 0, 90),
        (chosen_case, 0, 90),
        pytest.param(rigid_case, 120, 280, marks=pytest.mark.slow),
        pytest.param(listed_case, 90, 210, marks=pytest.mark.slow),
        pytest.param(chosen_case, 90, 210, marks=pytest.mark.slow),
    ],
)
def test_core_equals_reference(make: Callable[[int], InferenceCase], first: int, count: int) -> None:
    """Of 1,000 cases the first 300 here, the others where there is time."""
    seen: Counter[Any] = Counter()
    for seed in range(first, first + count):
        case = make(seed)
        count_features(seen, case, compare(case, seed))
    assert [feature for feature in wanted(make is not rigid_case) if seen[feature] < count // 90] == []
