"""Windows and splits of traces with inference tasks: they count training jobs, tasks belong to the jobs before them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.actions import COMMIT
from envs.batch import MANUAL, Batch
from envs.env import ClusterEnv
from envs.settings import EnvSettings
from envs.spec import SpecError
from tests.envs.colocated_support import TRIALS, colocated, hand_env
from traces.trace import SPLIT_BOUNDS, Trace, TraceError, make_trace

KINDS = st.lists(st.tuples(st.booleans(), st.integers(0, 2)), min_size=1, max_size=30)
ONE_KIND = st.lists(st.tuples(st.just(False), st.integers(0, 2)), min_size=1, max_size=30)


def trace_of(rows: list[tuple[bool, int]]) -> Trace:
    """A trace of (is a task, gap before it [s]) rows, so that arrivals tie."""
    task = np.array([row[0] for row in rows])
    columns = {
        "arrival_s": 5.0 + np.cumsum([row[1] for row in rows]),
        "num_gpus": np.ones(len(rows), int),
        "duration_s": np.full(len(rows), 3.0),
        "kind": np.where(task, "inference", "training"),
        "service": np.where(task, "s", ""),
        "start_up_s": np.where(task, 1.0, np.nan),
    }
    return make_trace("mixed", columns)


# --- slow definitions ---


def counted(trace: Trace) -> list[int]:
    """Rows that windows count, in order."""
    training = [row for row, kind in enumerate(trace.jobs["kind"]) if kind == "training"]
    return training or list(range(len(trace)))


def stop_of(trace: Trace, start: int, length: int) -> int:
    """Walk from ``start`` until one job too many: that one begins the next window."""
    found = 0
    for row in range(start, len(trace)):
        found += row in counted(trace)
        if found > length:
            return row
    return len(trace)


def split_of(trace: Trace, split: str) -> tuple[int, int]:
    """From the split's first job up to the next split's; what precedes the first job of all is the first split's."""
    rows = counted(trace)
    first, last = (round(share * len(rows)) for share in SPLIT_BOUNDS[split])
    ends = [0, *rows[1:], len(trace)]
    return ends[first], ends[last]


def starts_of(trace: Trace, length: int, split: str) -> list[int]:
    """Jobs of a split with which a whole window inside it may begin."""
    low, high = split_of(trace, split)
    inside = [row for row in counted(trace) if low <= row < high]
    return [row for at, row in enumerate(inside) if len(inside) - at >= length]


# --- the trace ---


@given(rows=KINDS, length=st.integers(1, 8))
@settings(max_examples=150, **TRIALS)
def test_windows_are_those_of_the_slow_definition(rows: list[tuple[bool, int]], length: int):
    """Guards job_rows, count_jobs, window_stop and window, on ties and on tasks at either end."""
    trace = trace_of(rows)
    assert trace.job_rows.tolist() == counted(trace)
    for start in range(len(trace)):
        stop = stop_of(trace, start, length)
        assert trace.window_stop(start, length) == stop
        window = trace.window(start, length)
        assert window.jobs["job_id"].tolist() == trace.jobs["job_id"][start:stop].tolist()
        origin = trace.jobs["arrival_s"][start]
        assert (window.jobs["arrival_s"] == trace.jobs["arrival_s"][start:stop].to_numpy() - origin).all()
        assert window.first_row == start
        for end in range(start, len(trace) + 1):
            assert trace.count_jobs(start, end) == sum(start <= row < end for row in counted(trace))
    for start in (-1, len(trace)):
        with pytest.raises(TraceError, match="lies outside"):
            trace.window(start, length)


@given(rows=KINDS, length=st.integers(1, 8), split=st.sampled_from(sorted(SPLIT_BOUNDS)), count=st.integers(1, 5))
@settings(max_examples=150, **TRIALS)
def test_splits_and_starts_are_those_of_the_slow_definition(rows: Any, length: int, split: Any, count: int):
    """Guards split_range, possible_starts and window_starts: windows keep to their split, tasks included."""
    trace, want = trace_of(rows), starts_of(trace_of(rows), length, split)
    assert trace.split_range(split) == split_of(trace, split)
    if not want:
        with pytest.raises(TraceError, match=f"the {split} split of trace mixed has .* fewer than one window"):
            trace.possible_starts(length, split)
        return
    assert trace.possible_starts(length, split).tolist() == want
    low, high = split_of(trace, split)
    assert all(low <= start and stop_of(trace, start, length) <= high for start in want)
    jobs = counted(trace)
    first = jobs.index(want[0])
    spread = [jobs[round(x)] for x in np.linspace(first, first + len(want) - 1, count)]  # by number of the job
    assert trace.window_starts(count, length, split) == spread


@given(rows=KINDS)
@settings(max_examples=100, **TRIALS)
def test_splits_cover_every_row_once(rows: list[tuple[bool, int]]):
    trace = trace_of(rows)
    ends = [trace.split_range(split) for split in ("train", "validation", "test")]
    assert (ends[0][0], ends[-1][1]) == trace.split_range("all") == (0, len(trace))
    assert [low for low, _ in ends[1:]] == [high for _, high in ends[:-1]]


@given(rows=ONE_KIND, length=st.integers(1, 8), tasks=st.booleans())
@settings(max_examples=60, **TRIALS)
def test_rows_of_one_kind_are_windowed_as_ever(rows: list[tuple[bool, int]], length: int, tasks: bool):
    """Training jobs alone, or tasks alone: windows and splits are ranges of rows, as before there were tasks."""
    trace = trace_of([(tasks, gap) for _, gap in rows])
    count = len(trace)
    for start in range(count):
        assert trace.window_stop(start, length) == min(start + length, count)
    for split, (low, high) in SPLIT_BOUNDS.items():
        first, last = round(low * count), round(high * count)
        assert trace.split_range(split) == (first, last)
        if last - first >= length:
            assert trace.window_starts(3, length, split) == [round(x) for x in np.linspace(first, last - length, 3)]


# --- the environment ---


@given(rows=KINDS, length=st.integers(1, 8))
@settings(max_examples=40, **TRIALS)
def test_the_compiled_window_is_the_traces(rows: list[tuple[bool, int]], length: int):
    """Guards find_stop() and most_rows: no window is longer than its table of results, and one is as long."""
    trace = trace_of(rows)
    chosen = EnvSettings(trace=trace, cluster="1x4", num_slots=4, window_jobs=length, split="all")
    assert chosen.length == min(length, len(counted(trace)))
    batch = Batch(chosen, len(trace), MANUAL)
    batch.reset(np.arange(len(trace)), starts=np.arange(len(trace)))
    stops = [stop_of(trace, start, chosen.length) for start in range(len(trace))]
    assert batch.states["job_hi"].tolist() == stops
    assert [len(batch.episode_results(b)[1]) for b in range(len(trace))] == [
        stop - start for start, stop in enumerate(stops)
    ]
    assert chosen.most_rows == max(stop - start for start, stop in enumerate(stops))
    assert chosen.windows.tolist() == ([0] if len(counted(trace)) <= length else starts_of(trace, length, "all"))


def test_windows_are_drawn_from_the_jobs_of_the_split():
    """A window never begins with a task, nor ends in another split."""
    trace = trace_of([(row % 3 != 1, 1) for row in range(60)])  # 20 jobs: the first 12 are for training
    env = ClusterEnv(trace=trace, cluster="1x4", num_slots=4, window_jobs=3)
    drawn = set()
    env.reset(seed=0)
    for _ in range(200):
        env.reset()
        drawn.add((int(env.batch.states[0].window), int(env.batch.states[0].job_hi)))
    assert sorted(drawn) == [(1 + 3 * job, 1 + 3 * (job + 3)) for job in range(10)]


def test_a_window_may_begin_with_a_task():
    """Chosen by row: the row counts, whatever it is, and a window behind the last job has tasks alone."""
    env = hand_env([(1, 20, 30), (1, 40, 30)], [("s", 10, 2), ("s", 30, 2), ("s", 50, 2)], window_jobs=1)
    ends = []
    for row in range(5):
        _, info = env.reset(options={"window": row})
        assert info["action_mask"][COMMIT]
        ends.append(int(env.batch.states[0].job_hi))
    assert ends == [3, 3, 5, 5, 5]
    _, _, terminated, _, info = env.step(np.int64(COMMIT))
    assert terminated
    assert env.batch.episode_jobs(0)["finish_s"].tolist() == [6]
    assert info["episode_metrics"]["num_completed"] == info["episode_metrics"]["num_unfinished"] == 0
    assert info["episode_metrics"]["mean_latency_s"] == 6
    with pytest.raises(SpecError, match="window 5 lies outside the trace of 5 jobs"):
        env.reset(options={"window": 5})


def test_tasks_alone_ask_no_agent():
    """No training job, so no pass: the first commit ends the episode, and its return is that of late tasks."""
    trace = colocated([], [("s", 0, 3), ("s", 1, 3), ("t", 2, 3)])
    env = ClusterEnv(
        trace=trace, cluster="1x1", num_slots=2, window_jobs=2, split="all", scenario="colocated", reward_scale=1.0
    )
    _, info = env.reset(seed=0, options={"window": 0})
    assert np.flatnonzero(info["action_mask"][: 1 + 9 * 2]).tolist() == [COMMIT]
    _, reward, terminated, _, _ = env.step(np.int64(COMMIT))
    assert terminated
    table = env.batch.episode_jobs(0)
    # The second waits for the first, which starts up for 4 s and is served until 7.
    assert table["first_start_s"].tolist() == [0, 7]
    assert table["warm"].tolist() == [False, True]
    assert reward == -env.settings.slo_penalty_s
