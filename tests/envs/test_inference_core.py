"""The compiled core against the slow reference, job by job, on random cases of inference beside training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from tests.envs.random_inference import InferenceCase, chosen_case, listed_case, rigid_case
from tests.envs.test_core_elastic import NUMBERS, compare


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
        count_features(seen, case, compare(case, seed, ["warm", *NUMBERS]))
    assert [feature for feature in wanted(make is not rigid_case) if seen[feature] < count // 90] == []
