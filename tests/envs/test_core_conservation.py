"""No device is given out twice, lost or forgotten, whatever is decided."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.applying import SimulatorError, apply_decision
from envs.dynamics import PASS_DUE
from envs.layout import HOLDER_NONE
from envs.list_run import list_pass, run_list
from envs.order import Key, ListOrder
from envs.scheduler import Decision
from envs.simulate import Run, RunResult, simulate
from envs.spec import ClusterSpec, SimConfig
from envs.view import ClusterView
from tests.envs.core_support import WHOLE, Listed, begin, check_record, finish, hand, next_pass
from tests.envs.random_traces import near_real_case, random_case

EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True, database=None)
SEEDS = st.integers(0, 1 << 20)


def random_placement(rng: Random, view: ClusterView, gpus: Any) -> Any:
    """(J, N) a random place for every job that gets GPUs and may move; nodes may be overfull."""
    placement = view.placement().astype(np.int64)
    for j in np.flatnonzero(gpus):
        if view.share_milli[j] < WHOLE or (placement[j].any() and rng.random() < 0.5):
            continue
        placement[j] = 0
        nodes = np.flatnonzero(view.node_type == rng.randrange(int(view.node_type.max()) + 1))
        for _ in range(gpus[j]):
            placement[j, rng.choice(nodes)] += 1
    return placement


def random_decision(rng: Random, view: ClusterView) -> Decision:
    """Any answer of a scheduler: a packed order, a set of jobs, or a set of jobs with their places."""
    slots = rng.sample(view.slots.tolist(), len(view.slots))
    kind = rng.random()
    if kind < 0.4:
        return view.pack(slots, preempt=rng.random() < 0.5, backfill=rng.random() < 0.5)
    gpus = np.array(view.gpus)
    for j in slots:
        if rng.random() < 0.5:
            gpus[j] = 0 if gpus[j] > 0 and view.preemptible[j] else view.num_gpus[j]
    return Decision(gpus, random_placement(rng, view, gpus) if kind < 0.7 else None)


@EXAMPLES
@given(seed=SEEDS, rng=st.randoms(use_true_random=False))
def test_record_is_consistent_after_any_decision(seed: int, rng: Random) -> None:
    """A refused decision changes no byte of the record; an accepted one leaves it consistent."""
    trace, cluster, _, config = random_case(seed)
    run = begin(trace, cluster, ListOrder(Key.ARRIVAL), config, seed)
    view = ClusterView(run.states, run.cluster, run.config, run.workload)
    passes = 0
    while passes < 50 and next_pass(run, view):
        passes += 1
        before = run.states.tobytes()
        decision = random_decision(rng, view)
        assert run.states.tobytes() == before
        try:
            apply_decision(run, decision, "any")
        except SimulatorError:
            assert run.states.tobytes() == before
            apply_decision(run, Decision(view.gpus), "any")
        check_record(run.states[0])


@EXAMPLES
@given(seed=SEEDS)
def test_record_is_consistent_after_every_list_pass(seed: int) -> None:
    run = begin(*random_case(seed), seed=seed)
    while run_list(run.states[0], run.tables, run.results, run.log, np.inf, 1) == PASS_DUE:
        check_record(run.states[0])
    s = run.states[0]
    assert s.num_completed + s.num_rejected == len(run.trace)
    check_empty(run)
    finished = run.results["status"] == 1
    jct = (run.results["finish"] - run.workload.jobs["arrival"])[finished]
    assert s.jct_integral == pytest.approx(jct.sum(), rel=1e-9, abs=1e-6)


def check_empty(run: Run) -> None:
    """Assert that nobody holds anything."""
    s = run.states[0]
    assert (s.gpu_holder[: s.num_gpus] == HOLDER_NONE).all()
    assert (s.gpu_free_milli[: s.num_gpus] == WHOLE).all()
    np.testing.assert_array_equal(s.node_free, s.node_gpus)
    np.testing.assert_array_equal(s.type_free, s.type_gpus)
    assert not s.gpus.any()


def test_ten_thousand_preemptions_of_everybody() -> None:
    """Tiresias issue 1 (A4): after preempt-all every counter equals the capacity, however often."""
    jobs = [(4, 0, 1e9), (2, 0, 1e9), (1, 0, 1e9), (1, 0, 1e9), (1, 0, 1e9), (3, 0, 1e9)]
    trace = hand(jobs, share_milli=[1000, 1000, 300, 700, 500, 1000], gpu_type=["A", "", "", "", "B", "B"])
    config = SimConfig(interval_s=1.0, rescale_s=0.25)
    run = begin(trace, ClusterSpec.parse("1x4:A+1x8:B"), ListOrder(Key.ARRIVAL), config)
    run.states["skip_idle"] = 0
    view = ClusterView(run.states, run.cluster, run.config, run.workload)
    for cycle in range(20_000):
        assert next_pass(run, view)
        gpus = np.where(view.waiting, view.num_gpus, 0)  # all wait, or none does
        apply_decision(run, Decision(gpus), "cycle")
        if cycle % 2:
            check_empty(run)
    s = run.states[0]
    assert s.now == 20_000 - 1
    demand = np.array([4, 2, 0.3, 0.7, 0.5, 3])
    assert s.num_preemptions[:6].tolist() == [10_000] * 6
    np.testing.assert_allclose(s.service[:6], 10_000 * demand)
    np.testing.assert_allclose(s.paused_gpu_s[:6], 0.25 * 9_999 * demand)  # the first start has no pause
    np.testing.assert_allclose(s.done[:6], 10_000 - 0.25 * 9_999)


def check_intervals(result: RunResult) -> None:
    """Assert that the recorded intervals are those of the job table and never overbook a device."""
    jobs, rows = result.jobs, result.intervals
    share = jobs["share_milli"].to_numpy()[rows["job"]]
    assert (rows["start_s"] < rows["end_s"]).all()
    owner = np.repeat(np.arange(result.cluster.num_nodes), result.cluster.node_gpus)
    np.testing.assert_array_equal(rows["node"], owner[rows["gpu"]])
    # Sweep each device through time; at one instant ends come before starts.
    gpu, when = np.tile(rows["gpu"], 2), np.concatenate([rows["start_s"], rows["end_s"]])
    change = np.concatenate([share, -share])
    used = np.cumsum(change[np.lexsort((change, when, gpu))])
    assert used.max(initial=0) <= WHOLE
    assert used.min(initial=0) == 0
    length = (rows["end_s"] - rows["start_s"]) * share / WHOLE
    service = length.groupby(rows["job"]).sum().reindex(range(len(jobs)), fill_value=0.0)
    np.testing.assert_allclose(service, jobs["service_gpu_s"], rtol=1e-9, atol=1e-6)
    done = jobs[jobs["status"] == "completed"]
    held = done["num_gpus"] * done["share_milli"] / WHOLE * (done["jct_s"] - done["queueing_delay_s"])
    np.testing.assert_allclose(done["service_gpu_s"], held, rtol=1e-9, atol=1e-6)
    ends: pd.Series[float] = rows.groupby("job")["end_s"].max()
    assert (ends == done["finish_s"].reindex(ends.index)).all()


@pytest.mark.parametrize("make", [random_case, near_real_case])
def test_recorded_intervals(make: Any) -> None:
    for seed in range(100):
        trace, cluster, order, config = make(seed)
        check_intervals(simulate(trace, cluster, Listed(order), config, seed=seed, record=True))


@EXAMPLES
@given(seed=SEEDS, rng=st.randoms(use_true_random=False))
def test_recorded_intervals_of_a_capricious_scheduler(seed: int, rng: Random) -> None:
    """Thirty random decisions, then the list scheduler ends the run."""
    trace, cluster, _, config = near_real_case(seed)
    run = begin(trace, cluster, ListOrder(Key.ARRIVAL, backfill=True), config, seed, record=True)
    view = ClusterView(run.states, run.cluster, run.config, run.workload)
    passes = 0
    while passes < 30 and next_pass(run, view):
        passes += 1
        try:
            apply_decision(run, random_decision(rng, view), "any")
        except SimulatorError:
            apply_decision(run, Decision(view.gpus), "any")
        if run.states[0].num_running == 0:
            break
    list_pass(run.states[0], run.tables, run.log)
    finish(run)
    check_intervals(run.result("any", np.zeros(0), 0.0))
