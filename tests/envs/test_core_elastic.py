"""The compiled core against the slow reference, job by job, on random cases with elastic jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from envs.order import ListOrder
from envs.reference import OUTPUT, simulate_reference
from envs.reference_decisions import Chooser, Seen
from envs.scheduler import Decision
from envs.simulate import simulate
from envs.view import ClusterView
from tests.envs.core_support import External, Listed
from tests.envs.random_elastic import KEYS, ElasticCase, chosen_case, listed_case

NUMBERS = [name for name in OUTPUT.split() if name != "status"]


def follow(chooser: Chooser) -> External:
    """The core's scheduler that a chooser of the reference makes."""
    passes = 0

    def decide(view: ClusterView) -> Decision:
        nonlocal passes
        gpus = np.zeros(view.num_slots, np.int64)
        if len(view.slots) == 0:
            return Decision(gpus)
        held = view.placement().astype(np.int64)
        has_layers = bool(view._s.layered)
        jobs = [
            Seen(
                int(view.job_id[j]),
                int(view.num_gpus[j]),
                int(view.max_gpus[j]),
                int(view.gpus[j]),
                bool(view.elastic[j]),
                tuple(held[j].tolist()),
                int(view.max_depth[j]) if has_layers else 0,
            )
            for j in view.slots
        ]
        answer = chooser(view.now, passes, jobs, (held[view.slots].sum(axis=0) + view.node_free).tolist())
        passes += 1
        placement, depth = np.zeros_like(held), np.full(view.num_slots, -1)
        for j in view.slots:
            gpus[j], row, *other = answer.get(int(view.job_id[j]), (0, None))
            placement[j] = row or 0
            depth[j] = other[0] if other else -1
        placed = any(row is not None for _, row, *_ in answer.values())
        return Decision(gpus, placement if placed else None, depth=depth if has_layers else None)

    return External(decide)


def compare(case: Any, seed: int, numbers: Sequence[str] = NUMBERS) -> pd.DataFrame:
    """Assert that core and reference agree on a random case in these columns; the core's job table."""
    rule = case.scheduler
    scheduler = Listed(rule) if isinstance(rule, ListOrder) else follow(rule)
    got = simulate(case.trace, case.cluster, scheduler, case.config, seed=seed, profiles=case.profiles).jobs
    want = pd.DataFrame(
        simulate_reference(
            case.trace, case.cluster, rule, case.config, seed, case.profiles, case.tuned, getattr(case, "known", None)
        )
    )
    same = got["status"] == want["status"]
    for name in numbers:
        same &= np.isclose(got[name], want[name], rtol=1e-6, atol=1e-6, equal_nan=True)
    if not same.all():
        # The first job to be treated differently, not the first in the trace.
        first = pd.concat([got["finish_s"], want["finish_s"]], axis=1).min(axis=1).where(~same).idxmin()
        table = pd.DataFrame({"core": got[["status", *numbers]].loc[first], "reference": want.loc[first]}).to_string()
        pytest.fail(
            f"seed {seed}, job {first} of {len(want)} (rows that differ: {np.flatnonzero(~same).tolist()})\n"
            f"{rule}\n{case.config}\ntuned {case.tuned}, cluster {case.cluster}\n{table}"
        )
    return got


def count_features(seen: Counter[Any], case: ElasticCase, jobs: pd.DataFrame) -> None:
    """Add up what a case exercises."""
    config = case.config.resolve()
    elastic = jobs["duration_s"].isna()
    kind = "listed" if isinstance(case.scheduler, ListOrder) else "chosen"
    if isinstance(case.scheduler, ListOrder):
        seen[case.scheduler.key, case.scheduler.preemptive] += 1
    for name in ("placement", "rescale_cost", "compat", "interval_s", "knowledge"):
        seen[kind, name, getattr(config, name)] += 1
    seen[kind, "tuned", case.tuned] += 1
    seen[kind, "types", len(case.cluster.types)] += 1
    for name in ("checkpoint_s", "interference", "node_mtbf_s"):
        seen[kind, name] += getattr(config, name) > 0
    for name in ("num_preemptions", "num_rescales", "paused_gpu_s"):
        for which in (True, False):
            seen[kind, name, which] += int((jobs[name][elastic == which] > 0).sum())
    seen[kind, "rejected"] += int((jobs["status"] == "rejected").sum())
    seen[kind, "both kinds"] += elastic.any() and not elastic.all()


def wanted(kind: str) -> list[Any]:
    """Features that at least five cases should exercise."""
    values: list[tuple[str, tuple[Any, ...]]] = [
        ("placement", ("consolidated", "emptiest", "spread", "random", "count")),
        ("rescale_cost", ("constant", "restart", "afe", "helios")),
        ("compat", ("none", "pollux")),
        ("interval_s", (0.0, 10.0, 32.5, 60.0)),
        ("knowledge", ("profile", "oracle")),
        ("tuned", (True, False)),
        ("types", (1, 2)),
        ("num_preemptions", (True, False)),
        ("num_rescales", (True, False)),
        ("paused_gpu_s", (True, False)),
    ]
    flags = ("checkpoint_s", "interference", "node_mtbf_s", "rejected", "both kinds")
    return [*((kind, name, value) for name, options in values for value in options), *((kind, flag) for flag in flags)]


@pytest.mark.parametrize(("make", "kind"), [(listed_case, "listed"), (chosen_case, "chosen")])
def test_core_equals_reference(make: Callable[[int], ElasticCase], kind: str) -> None:
    seen: Counter[Any] = Counter()
    for seed in range(500):
        case = make(seed)
        count_features(seen, case, compare(case, seed))
    features = wanted(kind)
    if kind == "listed":
        features += [(key, preemptive) for key in KEYS for preemptive in (False, True)]
    assert [feature for feature in features if seen[feature] < 5] == []
