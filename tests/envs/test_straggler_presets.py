"""The process of stragglers against the facts it is fitted to: shared/design/stragglers.md, section 3.7."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from envs.list_run import run_list
from envs.order import Key, ListOrder, set_order
from envs.simulate import Run, simulate
from envs.spec import ClusterSpec, SimConfig
from envs.straggler_load import hazard_share
from envs.straggler_presets import CPU, GPU, IO, NET
from tests.envs.core_support import Listed
from tests.envs.random_stragglers import straggler_case
from traces.trace import make_trace

FIFO = ListOrder(Key.ARRIVAL)
CHUNK = 1 << 20


def probe_trace(gpus: int, minutes: float) -> Any:
    """One job, alone; 0.4 of an iteration is communication, as in the fit."""
    columns = {"job_id": ["probe"], "arrival_s": [0.0], "num_gpus": [gpus], "duration_s": [60.0 * minutes]}
    return make_trace("probe", {**columns, "comm_share": [0.4]})


def probe(nodes: int, node_gpus: int, minutes: float, preset: str, count: int) -> pd.DataFrame:
    """(count,) rows of the probe on a cluster of just its size, by seed."""
    config = SimConfig(interval_s=0.0, on_event=True, rescale_s=0.0, stragglers=preset, gpu_variability=False)
    cluster, trace = ClusterSpec.parse(f"{nodes}x{node_gpus}"), probe_trace(nodes * node_gpus, minutes)
    rows = [simulate(trace, cluster, Listed(FIFO), config, seed=seed).jobs for seed in range(count)]
    return pd.concat(rows, ignore_index=True)


def hits(jobs: pd.DataFrame) -> pd.Series:
    """Which probes were slower by more than 10 % at some time."""
    return jobs["slowed_s"] > 0


def started(trace: Any, cluster: str, config: SimConfig, seed: int = 0) -> Run:
    run = Run(trace, ClusterSpec.parse(cluster), config, seed)
    set_order(run.states, FIFO)
    run.start()
    return run


def go(run: Run, until: float) -> Any:
    """Play a run up to a time; its record."""
    run_list(run.states[0], run.tables, run.results, run.log, until, CHUNK)
    return run.states[0]


def test_a_node_of_the_shared_preset_is_hit_as_often_as_greyhounds_probes() -> None:
    """4 GPUs of one node, 80 minutes: 1.5 % of 392 were hit. 3,000 probes: a standard deviation of 0.22 points."""
    assert 0.010 <= hits(probe(1, 4, 80, "shared", 3000)).mean() <= 0.022


def test_four_nodes_of_the_shared_preset_are_hit_as_often_as_greyhounds_probes() -> None:
    """8 GPUs on 4 nodes, 300 minutes: 40 % of 107 were hit. 1,500 probes: a standard deviation of 1.3 points."""
    jobs = probe(4, 2, 300, "shared", 1500)
    hit = hits(jobs)
    assert 0.33 <= hit.mean() <= 0.42
    longer = jobs["jct_s"][hit].mean() / (300 * 60.0) - 1
    assert 0.10 <= longer <= 0.20  # Greyhound: 15.5 %


def episodes(seed: int) -> int:
    """How often a probe of 8 GPUs on 4 nodes begins to be slower by more than 10 %, looked at each minute."""
    config = SimConfig(interval_s=0.0, on_event=True, rescale_s=0.0, stragglers="shared", gpu_variability=False)
    run, found, slow = started(probe_trace(8, 300), "4x2", config, seed), 0, False
    for minute in range(1, 300):
        before, slow = slow, bool(go(run, 60.0 * minute).pace[0] < 1 / 1.1)
        found += slow and not before
    return found


def test_who_is_hit_is_hit_several_times() -> None:
    """200 probes, of which about 80 are hit."""
    found = np.array([episodes(seed) for seed in range(200)])
    assert found[found > 0].mean() >= 3


@pytest.mark.parametrize("times", ["lognormal", "exponential"])
def test_a_component_of_constant_hazard_is_slow_for_its_stationary_share(times: str) -> None:
    """nu / (nu + 1 / m) within 5 %; some 10,000 episodes of CPUs and links each: a standard deviation of 1 %."""
    config = SimConfig(interval_s=0.0, on_event=True, stragglers="shared", straggler_load=False, straggler_times=times)
    run = started(probe_trace(1, 1e7), "1x1", config, seed=1)
    s = run.states[0]
    s.hot_share[:] = 1.1  # always hot
    share, slow = np.zeros(2), np.zeros(2)
    time = 0.0
    for _ in range(30_000):
        following = float(s.next_straggle)
        slow += (following - time) * (s.severity[[CPU, NET]] > 1)
        time = following
        go(run, time)
    for kind in (CPU, NET):
        nu = float(s.comp_rate[kind] * hazard_share(s, 0, kind))
        share[kind] = nu / (nu + 1 / float(s.episode_s[kind]))
    assert slow / time == pytest.approx(share, rel=0.05)


def test_without_any_cause_nothing_changes() -> None:
    """Acceptance test (iii): rate 0 and equal GPUs are the simulator without stragglers, bit for bit."""
    for seed in range(30):
        case = straggler_case(seed)
        plain = replace(case.config, stragglers="none", sync="synchronous")
        off = replace(plain, stragglers=case.config.stragglers, straggler_rate=0.0, gpu_variability=False)
        both = [
            simulate(case.trace, case.cluster, Listed(FIFO), c, seed=seed, profiles=case.profiles) for c in (plain, off)
        ]
        columns = [name for name in both[0].jobs if both[0].jobs[name].dtype != object]
        pd.testing.assert_frame_equal(both[0].jobs[columns], both[1].jobs[columns], check_exact=True)


def test_what_straggles_does_not_depend_on_the_scheduler_where_load_does_not_count() -> None:
    rng = np.random.default_rng(0)
    columns = {
        "job_id": [str(i) for i in range(30)],
        "arrival_s": np.sort(rng.uniform(0, 20_000, 30)),
        "num_gpus": rng.choice([1, 2, 4, 8], 30),
        "duration_s": [*rng.uniform(2_000, 20_000, 29), 50_000.0],  # so that neither run ends before
    }
    trace = make_trace("jobs", columns)
    config = SimConfig(
        interval_s=0.0, on_event=True, stragglers="contention", straggler_load=False, straggler_rate=40.0
    )
    seen = []
    for order in (FIFO, ListOrder(Key.REMAINING, preemptive=True, backfill=True)):
        run = Run(trace, ClusterSpec.parse("4x4"), config, 7)
        set_order(run.states, order)
        run.start()
        recorded = []
        for minute in range(1, 600):
            s = go(run, 60.0 * minute)
            used = s.num_nodes * GPU + s.num_gpus
            recorded.append(np.concatenate([s.severity[:used], s.onset[:used]]))
        seen.append((np.array(recorded), float(s.num_completed)))
    assert (seen[0][0] == seen[1][0]).all()
    severities = seen[0][0][:, : 4 * GPU].reshape(-1, 4, GPU)  # of the four nodes' components
    assert (severities[..., IO] == 1).all()
    assert (severities[..., [CPU, NET]] > 1).any()
