"""The state of the cluster over time, derived from who held which GPU when.

A run's ``intervals`` (node, gpu, job, start_s, end_s) are exact and may be millions of rows; what is
written and drawn is a step function of at most ``max_points`` rows, and a clip of the intervals.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TIMELINE_COLUMNS = ("time_s", "busy_gpus", "running", "queued")


def make_timeline(jobs: pd.DataFrame, intervals: pd.DataFrame, max_points: int = 1000) -> pd.DataFrame:
    """Busy GPUs, running jobs and queued jobs over time; each row holds until the next one's time.

    ``jobs`` has the columns of JOB_COLUMNS, ``intervals`` names its rows in ``job``. Long runs are
    averaged over ``max_points`` equal spans, which keeps every integral (GPU-seconds, waiting time).
    """
    busy = _busy_steps(jobs, intervals)
    running = _running_steps(intervals)
    accepted = jobs[jobs["status"] != "rejected"]
    arrival = accepted["arrival_s"].to_numpy(np.float64)
    finish = accepted["finish_s"].dropna().to_numpy(np.float64)
    in_system = (np.concatenate([arrival, finish]), np.repeat([1, -1], [len(arrival), len(finish)]))
    times, steps = _merge([busy, running, in_system])
    values = np.cumsum(steps, axis=0).astype(np.float64)
    values[:, 0] /= 1000  # shares are counted in thousandths, so that they sum exactly
    values[:, 2] -= values[:, 1]
    if len(times) > max_points:
        times, values = _average(times, values, max_points)
    return pd.DataFrame(np.column_stack([times, values]), columns=list(TIMELINE_COLUMNS))


def clip_intervals(intervals: pd.DataFrame, start: float, end: float) -> pd.DataFrame:
    """The parts of the intervals inside [start, end]."""
    inside = intervals[(intervals["end_s"] > start) & (intervals["start_s"] < end)]
    return inside.assign(start_s=inside["start_s"].clip(lower=start), end_s=inside["end_s"].clip(upper=end))


def _busy_steps(jobs: pd.DataFrame, intervals: pd.DataFrame) -> tuple[Floats, Ints]:
    """Times and changes [1/1000 GPU] of the allocated share."""
    share = jobs["share_milli"].to_numpy(np.int64)[intervals["job"].to_numpy(np.int64)]
    times = intervals[["start_s", "end_s"]].to_numpy(np.float64)
    return times.T.ravel(), np.concatenate([share, -share])


def _running_steps(intervals: pd.DataFrame) -> tuple[Floats, Ints]:
    """Times and changes of the number of jobs that hold at least one GPU."""
    job = np.tile(intervals["job"].to_numpy(np.int64), 2)
    times = intervals[["start_s", "end_s"]].to_numpy(np.float64).T.ravel()
    step = np.repeat([1, -1], len(intervals))
    order = np.lexsort((times, job))
    job, times, step = job[order], times[order], step[order]
    held = np.cumsum(step)  # every job's steps sum to 0, so this is the count of the job at hand
    last = np.ones(len(job), dtype=bool)  # last change of a job at an instant
    last[:-1] = (job[1:] != job[:-1]) | (times[1:] != times[:-1])
    on = (held[last] > 0).astype(np.int64)
    return times[last], np.diff(on, prepend=0)


def _merge(parts: list[tuple[Floats, Ints]]) -> tuple[Floats, Ints]:
    """Sorted distinct times (T,) and the changes (T, len(parts)) of each part at them."""
    times = np.unique(np.concatenate([time for time, _ in parts]))
    steps = np.zeros((len(times), len(parts)), dtype=np.int64)
    for column, (time, step) in enumerate(parts):
        np.add.at(steps[:, column], np.searchsorted(times, time), step)
    return times, steps


def _average(times: Floats, values: Floats, count: int) -> tuple[Floats, Floats]:
    """Means of a step function over ``count - 1`` equal spans, and its last value."""
    edges = np.linspace(times[0], times[-1], count)
    area = np.vstack([np.zeros(values.shape[1]), np.cumsum(values[:-1] * np.diff(times)[:, None], axis=0)])
    at_edges = np.column_stack([np.interp(edges, times, column) for column in area.T])
    means = np.diff(at_edges, axis=0) / np.diff(edges)[:, None]
    means = np.clip(means, values.min(axis=0), values.max(axis=0))  # rounding must not exceed the cluster
    return edges, np.vstack([means, values[-1:]])
