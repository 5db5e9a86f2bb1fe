"""Schedulers in Python: what they see, how they are asked, and that their passes equal the compiled ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from envs.applying import SimulatorError
from envs.order import Key, ListOrder
from envs.scheduler import Decision, Scheduler
from envs.simulate import RunResult, simulate
from envs.spec import ClusterSpec, SimConfig
from envs.view import ClusterView
from tests.envs.core_support import EVENTS, FREE_PAUSE, External, Listed, hand, spans
from tests.envs.random_traces import Case, near_real_case, random_case

ONE = ClusterSpec.parse("1x1")
HOURLY = SimConfig(interval_s=3600.0)


def fifo(view: ClusterView) -> Decision:
    return view.pack(view.slots)


def fifo_counts(view: ClusterView) -> Decision:
    """The same with GPU counts only."""
    return Decision(view.pack(view.slots).gpus)


def srtf(view: ClusterView) -> Decision:
    left = view.remaining[view.slots]
    return view.pack(view.slots[np.lexsort((view.job_id[view.slots], left))], preempt=True)


def case_of(seed: int, fractions: bool) -> Case:
    trace, cluster, order, config = (near_real_case if seed % 2 else random_case)(seed)
    if not fractions:
        trace.jobs["share_milli"] = 1000
    return trace, cluster, order, config


def assert_same(case: Case, decide: Callable[[ClusterView], Decision], order: ListOrder, seed: int) -> RunResult:
    trace, cluster, _, config = case
    got = simulate(trace, cluster, External(decide), config, seed=seed, record=True)
    want = simulate(trace, cluster, Listed(order), config, seed=seed, record=True)
    assert got.jobs.equals(want.jobs), (seed, config, str(cluster))
    assert held_on_nodes(got) == held_on_nodes(want)
    return got


def held_on_nodes(result: RunResult) -> dict[Any, float]:
    """GPU-seconds of each job on each node."""
    rows = result.intervals
    return dict((rows["end_s"] - rows["start_s"]).groupby([rows["job"], rows["node"]]).sum().round(6))


def test_packing_in_arrival_order_is_fifo_with_backfill() -> None:
    for seed in range(120):
        assert_same(case_of(seed, fractions=False), fifo, ListOrder(Key.ARRIVAL, backfill=True), seed)


def test_packing_without_backfill_is_fifo() -> None:
    for seed in range(60):
        decide = External(lambda view: view.pack(view.slots, backfill=False)).decide
        assert_same(case_of(seed, fractions=False), decide, ListOrder(Key.ARRIVAL), seed)


def test_packing_with_preemption_by_remaining_time_is_srtf() -> None:
    preemptions = 0
    for seed in range(120):
        trace, cluster, order, config = case_of(seed, fractions=False)
        config = replace(config, placement="consolidated", compat="none")
        rule = ListOrder(Key.REMAINING, preemptive=True)
        preemptions += assert_same((trace, cluster, order, config), srtf, rule, seed).jobs["num_preemptions"].sum()
    assert preemptions > 100


def test_packed_fraction_leaves_the_whole_device_to_its_job() -> None:
    # Packed: job 1 on node 0, the half GPU of job 0 on node 1. Applied: job 0 first, on node 0.
    trace = hand([(1, 0, 10), (1, 0, 10)], share_milli=[500, 1000])
    result = simulate(trace, ClusterSpec.parse("2x1"), External(lambda view: view.pack(view.slots[::-1])), EVENTS)
    assert spans(result) == [(0, 10), (0, 10)]


def test_packing_fractions_is_fifo_with_backfill() -> None:
    for seed in range(120):
        assert_same(case_of(seed, fractions=True), fifo, ListOrder(Key.ARRIVAL, backfill=True), seed)


def test_counts_without_placement_are_placed_by_the_simulator() -> None:
    """Jobs of one GPU always find a place, so that counts alone give the same schedule."""
    for seed in range(60):
        trace, cluster, _, config = case_of(seed, fractions=False)
        trace.jobs["num_gpus"] = 1
        got = simulate(trace, cluster, External(fifo_counts), config, seed=seed)
        want = simulate(trace, cluster, Listed(ListOrder(Key.ARRIVAL, backfill=True)), config, seed=seed)
        assert got.jobs.equals(want.jobs), seed


def test_view_shows_the_state_and_cannot_be_written() -> None:
    seen = []

    def look(view: ClusterView) -> Decision:
        names = [n for n, v in vars(type(view)).items() if isinstance(v, property) and n != "stragglers"]
        state = view._states.tobytes()
        for name in names:
            column = getattr(view, name)
            if isinstance(column, np.ndarray):
                assert column.shape[0] in (view.num_slots, len(view.node_gpus), len(view.slots), view.cluster.num_gpus)
                if column.flags.writeable:
                    column[...] = 0
                else:
                    with pytest.raises(ValueError, match="read-only"):
                        column[...] = 0
        view.placement()[...] = 9
        assert view._states.tobytes() == state, "a column is a view of the record"
        seen.append((view.now, view.arrivals, view.exits, view.gpus.tolist(), view.node_free.tolist()))
        return fifo(view)

    # Job 2 is rejected; job 3 has no work.
    trace = hand([(1, 0, 10), (2, 0, 20), (9, 5, 1), (1, 10, 0)])
    scheduler = External(look)
    simulate(trace, ClusterSpec.parse("1x2"), scheduler, EVENTS)
    assert scheduler.resets == 1
    assert seen == [
        (0.0, (0, 1), (), [0, 0, 0, 0], [2]),
        (5.0, (), (), [1, 0, 0, 0], [1]),  # an arrival that is rejected is an event, but no job
        (10.0, (3,), (0,), [0, 0, 0, 0], [2]),
        (30.0, (), (1,), [0, 0, 0, 0], [2]),
        (30.0, (), (3,), [0, 0, 0, 0], [2]),
    ]


def test_view_counts_service_delay_and_remaining_work() -> None:
    rows = []

    def look(view: ClusterView) -> Decision:
        columns = (view.service, view.queueing_delay, view.remaining, view.oracle_remaining, view.first_start)
        rows.append([view.now, *([float(c[j]) for j in view.slots] for c in columns)])
        return srtf(view)

    # Job 0 runs 0-10 and from 15; job 1 10-15. The pause of 2 s ends at 17.
    config = SimConfig(interval_s=0.0, rescale_s=2.0, durations="estimate")
    trace = hand([(2, 0, 30), (2, 10, 5), (2, 20, 40)], estimate_s=[28.0, 6.0, 50.0])
    simulate(trace, ClusterSpec.parse("1x2"), External(look), config)
    np.testing.assert_equal(
        rows[:4],
        [
            [0, [0], [0], [28], [30], [np.nan]],
            [10, [20, 0], [0, 0], [18, 6], [20, 5], [0, np.nan]],
            [15, [20], [5], [18], [20], [0]],
            [20, [30, 0], [5, 0], [15, 50], [17, 40], [0, np.nan]],
        ],
    )


@pytest.mark.parametrize("first_slots", [1, 2])
def test_slots_grow_under_a_python_scheduler(monkeypatch: pytest.MonkeyPatch, first_slots: int) -> None:
    """A scheduler keeps what it knows by job; slots may change their number between passes."""
    want = [simulate(*case_of(s, False)[:2], External(srtf), FREE_PAUSE, seed=s).jobs for s in range(20)]
    monkeypatch.setattr("envs.simulate.FIRST_SLOTS", first_slots)
    for seed in range(20):
        trace, cluster, _, _ = case_of(seed, fractions=False)
        known: set[int] = set()

        def decide(view: ClusterView, known: set[int] = known) -> Decision:
            known.difference_update(view.exits)
            known.update(view.arrivals)
            assert known == set(view.job_id[view.slots])
            return srtf(view)

        result = simulate(trace, cluster, External(decide), FREE_PAUSE, seed=seed)
        assert result.jobs.equals(want[seed])


def idle(view: ClusterView) -> Decision:
    return Decision(np.zeros(view.num_slots, np.int64))


def test_a_scheduler_that_never_allocates_stalls() -> None:
    with pytest.raises(SimulatorError, match=r"stalled at 3 s under mine: 2 jobs wait \(first: job 0\), 0 run"):
        simulate(hand([(1, 0, 10), (1, 3, 10)]), ONE, External(idle), EVENTS)


def test_a_scheduler_that_never_allocates_stalls_at_intervals() -> None:
    passes = 0

    def decide(view: ClusterView) -> Decision:
        nonlocal passes
        passes += 1
        if passes > 5_000:  # half a year of idling, hour by hour
            pytest.fail(f"still running at {view.now} s")
        return idle(view)

    with pytest.raises(SimulatorError, match="stalled"):
        simulate(hand([(1, 0, 10), (1, 3, 10)]), ONE, External(decide), HOURLY)


def test_a_scheduler_may_wait_for_a_while() -> None:
    """Idling with a next pass to come is no stall."""
    decide = External(lambda view: fifo(view) if view.now >= 36_000 else idle(view)).decide
    assert spans(simulate(hand([(1, 0, 10)]), ONE, External(decide), HOURLY)) == [(36_000, 36_010)]


def test_errors_of_the_scheduler_are_its_own() -> None:
    def decide(view: ClusterView) -> Decision:
        raise ZeroDivisionError("in my scheduler")

    with pytest.raises(ZeroDivisionError, match="in my scheduler"):
        simulate(hand([(1, 0, 10)]), ONE, External(decide), EVENTS)


def test_every_decision_is_timed_and_progress_is_told() -> None:
    told = []
    scheduler: Scheduler = External(fifo)
    trace = hand([(1, float(i), 1) for i in range(64)])
    result = simulate(trace, ONE, scheduler, EVENTS, progress=lambda done, total: told.append((done, total)))
    assert len(result.decision_s) == result.num_passes == 65
    assert told
    assert all(0 <= done <= total == 64 for done, total in told)
