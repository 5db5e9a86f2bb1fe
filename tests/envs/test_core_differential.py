"""The compiled core against the slow reference, job by job, on random cases."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest

from envs.reference import OUTPUT, simulate_reference
from envs.simulate import simulate
from tests.envs.core_support import Listed
from tests.envs.random_traces import KEYS, Case, near_real_case, random_case

NUMBERS = [name for name in OUTPUT.split() if name != "status"]


def compare(case: Case, seed: int) -> pd.DataFrame:
    """Assert that core and reference agree on a case; the core's job table."""
    trace, cluster, order, config = case
    got = simulate(trace, cluster, Listed(order), config, seed=seed).jobs
    want = pd.DataFrame(simulate_reference(trace, cluster, order, config, seed))
    same = got["status"] == want["status"]
    for name in NUMBERS:
        # Differences of times up to 1e4 s are good to 1e-11 s.
        same &= np.isclose(got[name], want[name], rtol=1e-9, atol=1e-9, equal_nan=True)
    if not same.all():
        row = int(np.flatnonzero(~same)[0])
        columns = ["status", *NUMBERS]
        table = pd.DataFrame({"core": got[columns].loc[row], "reference": want[columns].loc[row]}).to_string()
        pytest.fail(f"seed {seed}, job {row} of {len(trace)}\n{order}\n{config}\ncluster {cluster}\n{table}")
    return got


def count_features(seen: Counter[Any], case: Case, jobs: pd.DataFrame) -> None:
    """Add up what a case exercises."""
    _, cluster, order, config = case
    config = config.resolve()
    seen[order.key, order.preemptive] += 1
    seen[config.placement, order.preemptive] += 1
    seen["compat", case[3].compat] += 1
    seen["types", len(cluster.types)] += 1
    seen["promotions"] += order.promote > 0
    seen["checkpoints"] += config.checkpoint_s > 0 and bool(jobs["num_preemptions"].any())
    seen["fractions"] += bool((jobs["share_milli"] < 1000).any())
    for name in ("num_preemptions", "num_rescales", "paused_gpu_s"):
        seen[name] += int((jobs[name] > 0).sum())
    seen["rejected"] += int((jobs["status"] == "rejected").sum())


@pytest.mark.parametrize(("make", "count"), [(random_case, 1000), (near_real_case, 300)])
def test_core_equals_reference(make: Any, count: int) -> None:
    seen: Counter[Any] = Counter()
    for seed in range(count):
        case = make(seed)
        count_features(seen, case, compare(case, seed))
    wanted: list[Any] = [(key, preemptive) for key in KEYS for preemptive in (False, True)]
    wanted += [(rule, kind) for rule in ("consolidated", "spread", "random", "count") for kind in (False, True)]
    wanted += [("compat", "tiresias"), ("compat", "helios"), ("types", 2), "promotions", "checkpoints", "fractions"]
    wanted += ["num_preemptions", "num_rescales", "paused_gpu_s", "rejected"]
    assert [feature for feature in wanted if seen[feature] < 3] == []
