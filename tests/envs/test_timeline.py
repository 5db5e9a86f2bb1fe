"""The step function of busy GPUs, running and queued jobs, on hand-worked intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from envs.timeline import clip_intervals, make_timeline


def intervals(*rows):
    return pd.DataFrame(rows, columns=["node", "gpu", "job", "start_s", "end_s"])


def jobs(*rows):
    return pd.DataFrame(rows, columns=["arrival_s", "finish_s", "status", "share_milli"])


# Job 0 holds two GPUs 0-100; job 1 waits 10-100, runs 100-130 on one and at 120 moves to another; job 2 is rejected.
JOBS = jobs((0.0, 100.0, "completed", 1000), (10.0, 130.0, "completed", 1000), (20.0, np.nan, "rejected", 1000))
HELD = intervals((0, 0, 0, 0, 100), (0, 1, 0, 0, 100), (0, 0, 1, 100, 120), (0, 1, 1, 120, 130))


def test_hand_worked_steps():
    line = make_timeline(JOBS, HELD)
    assert line.to_numpy().tolist() == [
        [0, 2, 1, 0],
        [10, 2, 1, 1],
        [100, 1, 1, 0],
        [120, 1, 1, 0],
        [130, 0, 0, 0],
    ]


def test_shares_of_one_gpu_add_up():
    halves = jobs((0.0, 10.0, "completed", 300), (0.0, 20.0, "completed", 600))
    line = make_timeline(halves, intervals((0, 0, 0, 0, 10), (0, 0, 1, 0, 20)))
    assert line["busy_gpus"].tolist() == pytest.approx([0.9, 0.6, 0.0], abs=0)


def test_unfinished_jobs_stay_queued():
    line = make_timeline(jobs((0.0, np.nan, "unfinished", 1000)), intervals((0, 0, 0, 5, 8)))
    assert line["queued"].tolist() == [1, 0, 1]


def test_averages_keep_every_integral():
    generator = np.random.default_rng(0)
    start = np.sort(generator.uniform(0, 1000, 300))
    end = start + generator.uniform(0, 50, 300)
    many = jobs(*((a - 5, b, "completed", 1000) for a, b in zip(start, end, strict=True)))
    held = intervals(*((0, i, i, a, b) for i, (a, b) in enumerate(zip(start, end, strict=True))))
    exact, short = make_timeline(many, held, max_points=10_000), make_timeline(many, held, max_points=50)
    assert len(short) == 50
    for column in ("busy_gpus", "running", "queued"):
        areas = [(line[column][:-1] * np.diff(line["time_s"])).sum() for line in (exact, short)]
        assert areas[0] == pytest.approx(areas[1])
    assert short.iloc[-1].tolist()[1:] == [0, 0, 0]


def test_clip():
    clipped = clip_intervals(HELD, 90, 125)
    assert clipped[["start_s", "end_s"]].to_numpy().tolist() == [[90, 100], [90, 100], [100, 120], [120, 125]]
