"""Which runs are drawn, and how far."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from envs.plots import busiest_runs, draw_gantt, draw_timelines, mostly_done
from envs.results import Outcome, Policy
from envs.spec import ClusterSpec

CLUSTER = ClusterSpec.parse("1x2")


def outcome(policy, window, delay, finishes=(), seed=0):
    jobs = pd.DataFrame({"finish_s": np.array(finishes, np.float64)})
    gantt = pd.DataFrame({"node": [0], "gpu": [0], "job": [0], "start_s": [0.0], "end_s": [100.0]})
    return Outcome(Policy(policy, "fixed", (), True), window, seed, {"mean_queueing_delay_s": delay}, jobs, jobs, gantt)


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


@pytest.mark.parametrize(("until", "end"), [(40.0, 40.0), (np.inf, 100.0)])
def test_pictures_end_there(until, end):
    axes = draw_gantt(outcome("a", 0, 0.0), CLUSTER, until).axes[0]
    assert axes.get_xlim() == (0.0, end)
    timeline = pd.DataFrame({"time_s": [0.0, 100.0], "busy_gpus": [1.0, 0.0], "running": 0.0, "queued": [3.0, 0.0]})
    left, right = draw_timelines({"a": timeline}, 2, {"a": "#332288"}, until).axes
    assert left.get_xlim() == right.get_xlim() == (0.0, end)
