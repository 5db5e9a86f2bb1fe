"""Results do not depend on how the clock is moved, on capacities, on recording, or on what else is in the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envs.layout import LOG_DTYPE, LOG_FULL, UNFINISHED, make_state
from envs.metrics import JOB_COLUMNS
from envs.order import Key, ListOrder
from envs.simulate import Run, RunResult, simulate, simulate_windows
from envs.spec import ClusterSpec, SimConfig
from tests.envs.core_support import EVENTS, Listed, begin, finish, finish_list, hand
from tests.envs.random_traces import Case, near_real_case, random_case
from traces.load import load_trace

LAS = ListOrder(Key.LEVEL, preemptive=True, limits=(3250.0, 7200.0), promote=1.0)
SRTF = ListOrder(Key.REMAINING, preemptive=True)


def case_of(seed: int) -> Case:
    return (near_real_case if seed % 2 else random_case)(seed)


def bytes_of(run: Run) -> tuple[bytes, bytes]:
    return run.states.tobytes(), run.results.tobytes()


def assert_same(got: RunResult, want: RunResult) -> None:
    names = [column.name for column in JOB_COLUMNS]
    assert got.jobs[names].equals(want.jobs[names])
    assert got.num_passes == want.num_passes


def test_ten_short_advances_equal_a_long_one() -> None:
    for seed in range(150):
        long, short, whole = (begin(*case_of(seed), seed=seed) for _ in range(3))
        finish_list(long, until=600.0)
        for k in range(1, 11):
            finish_list(short, until=60.0 * k)
        assert bytes_of(short) == bytes_of(long), seed
        assert short.states[0].now == 600.0 or short.states[0].num_unfinished == 0
        for run in (long, whole):
            finish(run)
        assert bytes_of(long) == bytes_of(whole), seed


@pytest.mark.parametrize("first_slots", [1, 5, 256])
def test_slots_make_no_difference(monkeypatch: pytest.MonkeyPatch, first_slots: int) -> None:
    """1 and 5 slots grow on the way; 256 make a wider record."""
    for seed in range(60):
        trace, cluster, order, config = case_of(seed)
        want = simulate(trace, cluster, Listed(order), config, seed=seed)
        with monkeypatch.context() as patch:
            if first_slots > 64:
                patch.setattr("envs.simulate.make_state", wider(first_slots))
            else:
                patch.setattr("envs.simulate.FIRST_SLOTS", first_slots)
            assert_same(simulate(trace, cluster, Listed(order), config, seed=seed), want)


def wider(slots: int) -> Any:
    """make_state() with more slots than asked for."""
    return lambda batch, _, *given: make_state(batch, slots, *given)


def test_slots_run_out_between_a_completion_and_arrivals_of_one_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    # At 10 job 0 ends and jobs 2-4 arrive, of whom two find a slot before growth; job 3 is the shortest.
    trace = hand([(1, 0, 10), (1, 1, 30), (1, 10, 20), (1, 10, 5), (1, 10, 10)])
    monkeypatch.setattr("envs.simulate.FIRST_SLOTS", 2)
    result = simulate(trace, ClusterSpec.parse("1x1"), Listed(ListOrder(Key.DURATION)), EVENTS)
    assert result.jobs["first_start_s"].tolist() == [0, 45, 25, 10, 15]


def test_recording_makes_no_difference() -> None:
    for seed in range(100):
        trace, cluster, order, config = case_of(seed)
        plain, recorded = (simulate(trace, cluster, Listed(order), config, seed=seed, record=r) for r in (False, True))
        assert_same(recorded, plain)
        assert plain.intervals.empty
        assert recorded.intervals.empty == (recorded.jobs["service_gpu_s"].sum() == 0)


def test_a_small_log_is_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    class SmallLog(Run):
        drained = 0

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.log = np.zeros(2, LOG_DTYPE).view(np.recarray)

        def resolve_stop(self, scheduler: str) -> None:
            SmallLog.drained += self.states[0].status == LOG_FULL
            super().resolve_stop(scheduler)

    for seed in range(60):
        trace, cluster, order, config = case_of(seed)
        want = simulate(trace, cluster, Listed(order), config, seed=seed, record=True)
        with monkeypatch.context() as patch:
            patch.setattr("envs.simulate.Run", SmallLog)
            got = simulate(trace, cluster, Listed(order), config, seed=seed, record=True)
        assert_same(got, want)
        assert got.intervals.equals(want.intervals), seed
    assert SmallLog.drained > 60


def assert_windows_equal_own_runs(order: ListOrder, durations: Any) -> None:
    """Windows of a trace of which some jobs share GPUs: a window by itself may have none of those."""
    trace, cluster = load_trace("synthetic-philly?jobs=300,seed=3"), ClusterSpec.parse("3x4")
    single = (trace.jobs["num_gpus"] == 1) & (np.arange(300) < 100)
    trace.jobs.loc[single, "share_milli"] = 500
    config = SimConfig(interval_s=60.0, on_event=True, durations=durations)
    starts = [0, 60, 130, 270]
    rows = simulate_windows(trace, cluster, order, config, starts, 40, seed=7)
    for start, got in zip(starts, rows, strict=True):
        jobs = simulate(trace.window(start, 40), cluster, Listed(order), config, seed=7).jobs
        for column, name in (("first_start_s", "first_start"), ("finish_s", "finish"), ("service_gpu_s", "service")):
            np.testing.assert_array_equal(got[name][: len(jobs)], jobs[column])
        assert got["status"][len(jobs) :].tolist() == [UNFINISHED] * (40 - len(jobs))


@pytest.mark.parametrize("order", [SRTF, LAS, ListOrder(Key.RANDOM, backfill=True)], ids=lambda o: o.key.name)
@pytest.mark.parametrize("durations", ["oracle", "unknown"])
def test_windows_equal_runs_of_their_own(order: ListOrder, durations: str) -> None:
    assert_windows_equal_own_runs(order, durations)


def test_windows_keep_their_estimates() -> None:
    assert_windows_equal_own_runs(SRTF, "estimate")
