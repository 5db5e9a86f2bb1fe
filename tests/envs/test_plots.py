"""Which runs are drawn, and how far."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from envs.plots import (
    GANTT_GPUS,
    JOB_COLOURS,
    TASK_COLOUR,
    busiest_runs,
    clip_for_gantt,
    draw_gantt,
    draw_timelines,
    mostly_done,
)
from envs.results import Outcome, Policy
from envs.spec import ClusterSpec
from tests.envs.core_support import hand
from traces.trace import make_trace

CLUSTER = ClusterSpec.parse("1x2")


def outcome(policy, window, delay, finishes=(), seed=0):
    jobs = pd.DataFrame({"finish_s": np.array(finishes, np.float64), "kind": "training"})
    gantt = pd.DataFrame({"node": [0], "gpu": [0], "job": [0], "start_s": [0.0], "end_s": [100.0]})
    gantt = clip_for_gantt(hand([(1, 0, 100)]), gantt)
    return Outcome(Policy(policy, "fixed", (), True), window, seed, {"mean_queueing_delay_s": delay}, jobs, jobs, gantt)


def intervals(*rows):
    return pd.DataFrame(rows, columns=["node", "gpu", "job", "start_s", "end_s"])


def test_the_window_with_the_longest_queues_is_drawn():
    # Window 1: 5 + 7 = 12 s; window 0: 9 + 1 = 10 s; window 2 has no completed job. The first seed is taken.
    runs = [outcome("a", 0, 9.0), outcome("a", 1, 5.0), outcome("a", 2, np.nan)]
    runs += [outcome("b", 0, 1.0), outcome("b", 1, 7.0), outcome("b", 2, np.nan)]
    shown = busiest_runs(runs, ["b", "a"])
    assert [(o.policy.name, o.window) for o in shown] == [("b", 1), ("a", 1)]
    seeds = [outcome("a", 0, 1.0, seed=0), outcome("a", 0, 1.0, seed=1)]
    assert busiest_runs(seeds, ["a"])[0].seed == 0


def test_a_tail_is_cut_where_the_slowest_policy_has_nine_of_ten_jobs_done():
    # 0.9 quantile of 10, 20, ..., 100 and 1000 (11 values): the tenth, 100; the slower policy has 200.
    early = outcome("a", 0, 0.0, [*range(10, 101, 10), 1000])
    late = outcome("b", 0, 0.0, [*range(20, 201, 20), 1000, np.nan])
    assert mostly_done([early]) == 100
    assert mostly_done([early, late, outcome("c", 0, 0.0)]) == 200
    assert mostly_done([outcome("c", 0, 0.0, [np.nan])]) == np.inf
    tasks = replace(early, jobs=pd.concat([early.jobs, pd.DataFrame({"finish_s": [5e3] * 20, "kind": "inference"})]))
    assert mostly_done([tasks]) == 100


@pytest.mark.parametrize(("until", "end"), [(40.0, 40.0), (np.inf, 100.0)])
def test_pictures_end_there(until, end):
    axes = draw_gantt(outcome("a", 0, 0.0), CLUSTER, until).axes[0]
    assert axes.get_xlim() == (0.0, end)
    timeline = pd.DataFrame({"time_s": [0.0, 100.0], "busy_gpus": [1.0, 0.0], "running": 0.0, "queued": [3.0, 0.0]})
    left, right = draw_timelines({"a": timeline}, 2, {"a": "#332288"}, until).axes
    assert left.get_xlim() == right.get_xlim() == (0.0, end)


def test_neighbouring_gpus_of_a_job_are_one_block():
    """An elastic job on GPUs 0, 1 and 3, from 50 s on 0 and 1 alone; another on GPU 2, and then on 2 and 3."""
    held = [(0, 3, 7, 0.0, 50.0), (0, 0, 7, 0.0, 50.0), (0, 1, 7, 0.0, 50.0), (0, 0, 7, 50.0, 90.0)]
    held += [(0, 1, 7, 50.0, 90.0), (0, 2, 8, 0.0, 60.0), (0, 3, 8, 60.0, 80.0), (0, 2, 8, 60.0, 80.0)]
    blocks = clip_for_gantt(hand([(1, 0, 1)]), intervals(*held))
    found = blocks[["job", "gpu", "rows", "held", "start_s", "end_s"]].to_numpy().tolist()
    assert found == [
        [7, 0, 2, 3, 0, 50], [8, 2, 1, 1, 0, 60], [7, 3, 1, 3, 0, 50], [7, 0, 2, 2, 50, 90], [8, 2, 2, 2, 60, 80],
    ]  # fmt: skip


def test_gpus_outside_the_chart_count_as_held():
    held = [(0, gpu, 0, 0.0, 50.0) for gpu in range(GANTT_GPUS - 2, GANTT_GPUS + 5)]
    blocks = clip_for_gantt(hand([(1, 0, 1)]), intervals(*held))
    assert blocks[["gpu", "rows", "held"]].to_numpy().tolist() == [[GANTT_GPUS - 2, 2, 7]]


def test_a_run_without_intervals_is_an_empty_chart():
    blocks = clip_for_gantt(hand([(1, 0, 1)]), intervals())
    axes = draw_gantt(replace(outcome("a", 0, 0.0), gantt=blocks), CLUSTER).axes[0]
    assert len(axes.texts) == 0


def test_a_label_says_how_many_gpus_a_job_holds_and_fits_its_block():
    """Job 7 holds 8 GPUs, then 2 of them; job 8 runs too short a time for a label on one row."""
    held = [(0, gpu, 7, 0.0, 50.0) for gpu in range(8)]
    held += [(0, 0, 7, 50.0, 100.0), (0, 5, 7, 50.0, 100.0), (0, 2, 8, 50.0, 51.0)]
    run = replace(outcome("a", 0, 0.0), gantt=clip_for_gantt(hand([(1, 0, 1)]), intervals(*held)))
    figure = draw_gantt(run, ClusterSpec.parse("1x8"))
    figure.canvas.draw()
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["7 ×8", "7 ×2"]
    wide = axes.texts[0].get_window_extent()
    (left, _), (right, _) = axes.transData.transform([(0, 0), (50, 0)])
    assert left < wide.x0 < wide.x1 < right


def test_a_busy_gpu_looks_busy_however_often_its_job_changes():
    """White edges of blocks narrower than 0.4 % of the chart would hide them."""
    held = [(0, 0, job, float(job), job + 1.0) for job in range(1000)] + [(0, 1, 0, 0.0, 1000.0)]
    run = replace(outcome("a", 0, 0.0), gantt=clip_for_gantt(hand([(1, 0, 1)]), intervals(*held)))
    (blocks,) = draw_gantt(run, CLUSTER).axes[0].collections
    white = (blocks.get_edgecolors() == 1).all(axis=1)
    assert white.sum() == 1
    assert (blocks.get_edgecolors()[~white] == blocks.get_facecolors()[~white]).all()


def test_inference_tasks_are_grey_and_nameless():
    trace = make_trace(
        "t",
        {
            "arrival_s": [0.0, 0.0],
            "num_gpus": [1, 1],
            "duration_s": [50.0, 50.0],
            "kind": ["training", "inference"],
            "service": ["", "a"],
            "start_up_s": [np.nan, 1.0],
        },
    )
    blocks = clip_for_gantt(trace, intervals((0, 0, 0, 0.0, 50.0), (0, 1, 1, 0.0, 50.0)))
    axes = draw_gantt(replace(outcome("a", 0, 0.0), gantt=blocks), CLUSTER).axes[0]
    assert [text.get_text() for text in axes.texts] == ["0 ×1"]
    faces = axes.collections[0].get_facecolors()
    assert [to_hex(face) for face in faces] == [JOB_COLOURS[0], TASK_COLOUR]
    assert "grey: inference" in axes.get_title(loc="left")


def test_long_runs_with_tasks_are_cut_by_jobs_and_by_rows():
    """400 jobs, one in 100 s, and 20 tasks after each: 300 jobs would be 6300 rows, so 3000 rows are shown."""
    rows = [("training", "", np.nan)] + [("inference", "a", 1.0)] * 20
    kinds, services, starts = zip(*(rows * 400), strict=True)
    arrivals = np.repeat(np.arange(400) * 100.0, 21) + np.tile(np.arange(21.0), 400)
    columns = {"arrival_s": arrivals, "num_gpus": 1, "duration_s": 1.0}
    trace = make_trace("t", pd.DataFrame({**columns, "kind": kinds, "service": services, "start_up_s": starts}))
    held = [(0, 0, row, float(t), float(t) + 1.0) for row, t in enumerate(arrivals)]
    shown = clip_for_gantt(trace, intervals(*held))
    assert 2999 <= len(shown) <= 3001
