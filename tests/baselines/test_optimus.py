"""Optimus against gains worked by hand and against the same greedy method written as plain loops."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from baselines.optimus import Optimus
from tests.baselines.elastic_views import answer, iteration_table, make_view, random_instance


def decide(free, jobs, times, left, compat="none", queued=0):
    view = make_view(free, jobs, iteration_s=iteration_table(times), left=left)
    view.config, view.num_queued = SimpleNamespace(compat=compat), queued
    return answer(Optimus(), view)


def plain_loops(times, left, most, free):
    gpus = [0] * len(times)
    for i in range(min(free, len(times))):
        gpus[i] = 1
    spare = free - sum(gpus)

    def gain(i):
        k = gpus[i]
        if k == 0 or k >= min(most[i], len(times[i])):
            return 0.0
        return (times[i][k - 1] - times[i][k]) * left[i]

    while spare > 0 and max(map(gain, range(len(times)))) > 0:
        best = max(range(len(times)), key=gain)
        gpus[best] += 1
        spare -= 1
    return gpus


def test_hand_worked():
    # Gains of a further GPU: first job (8-4) 10 = 40, (4-3) 10 = 10, then 0; second (10-7) 20 = 60, (7-6) 20 = 20.
    times = [[8, 4, 3, 3], [10, 7, 6, 6.5]]
    expected = {2: [1, 1], 3: [1, 2], 4: [2, 2], 5: [2, 3], 6: [3, 3], 7: [3, 3]}
    for free, gpus in expected.items():
        assert decide([free], [{}, {}], times, [10, 20]) == gpus


@pytest.mark.parametrize("seed", range(60))
def test_random_instances_match_plain_loops(seed):
    rng = np.random.default_rng(seed)
    times, left, most = random_instance(rng, concave=seed % 2 == 0)
    free = int(rng.integers(0, 20))
    jobs = [{"max_gpus": m} for m in most]
    assert decide([free], jobs, times, left) == plain_loops(times, left, most, free)


def test_every_job_gets_one_gpu_before_any_gets_two_in_order_of_arrival():
    times = [[1.0], [100.0, 1.0], [100.0, 1.0]]
    assert decide([2], [{}] * 3, times, [1, 1000, 1000]) == [1, 1, 0]


def test_the_earlier_of_equals_is_first():
    assert decide([3], [{}, {}], [[4, 2], [4, 2]], [5, 5]) == [2, 1]


def test_no_gain_beyond_the_most_gpus_or_the_table():
    halving = [[64 / k for k in range(1, 65)]]
    assert decide([70], [{"max_gpus": 3}], halving, [10]) == [3]
    assert decide([70], [{"max_gpus": 64}], halving, [10]) == [64]


def test_held_gpus_are_divided_anew_and_lost_nodes_are_not():
    # 3 held + 1 free; the second node is down. The first job's further GPUs are worth nothing.
    jobs = [{"gpus": 3}, {}]
    assert decide([1, 0], jobs, [[5, 5, 5], [8, 4, 2]], [1, 1]) == [1, 3]


def test_rigid_jobs_come_first():
    """The running one keeps 2, the first waiting one fits the other 6 no more after the second has 4."""
    jobs = [
        {"elastic": False, "num_gpus": 2, "gpus": 2},
        {"elastic": False, "num_gpus": 4},
        {"gpus": 2},
        {"elastic": False, "num_gpus": 3},
        {},
    ]
    times = [[], [], [4, 2], [], [4, 2]]
    assert decide([2, 2], jobs, times, [0, 0, 1, 0, 1]) == [2, 4, 1, 0, 1]


def test_pinned_jobs_keep_what_they_hold():
    jobs = [{"gpus": 3, "preemptible": False}, {"preemptible": False}]
    assert decide([2], jobs, [[9, 9, 9], [6, 3, 2]], [1, 1]) == [3, 2]


def test_first_gpu_that_cannot_be_used_alone_does_not_end_the_search():
    assert decide([4], [{}], [[math.inf, 3, 2]], [10]) == [3]


def test_waiting_inference_tasks_come_first_as_in_deepboots_simulator():
    """Else they take their devices themselves, at the same instant."""
    jobs, times, left = [{"gpus": 2}, {}], [[8, 4, 3], [8, 4, 3]], [1, 2]
    assert decide([3], jobs, times, left, queued=2) == [2, 3]
    assert decide([3], jobs, times, left, queued=2, compat="deepboot") == [1, 2]
    assert decide([3], jobs, times, left, queued=4, compat="deepboot") == [1, 0]
    assert decide([3], jobs, times, left, queued=9, compat="deepboot") == [0, 0]
