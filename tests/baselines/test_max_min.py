"""Max-min by hand, and against the lexicographically best division found by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from baselines.max_min import MaxMin, grant, relative_to_fair_share
from tests.baselines.elastic_views import answer, goodput_table, make_view


def decide(free, jobs, rates, several=None):
    return answer(MaxMin(), make_view(free, jobs, goodput=goodput_table(rates, several)))


def divide(relative, free, most):
    gpus = np.zeros(len(relative), np.int64)
    grant(np.asarray(relative, float), np.asarray(most), free, gpus)
    return gpus.tolist()


def test_relative_to_the_fair_share_or_the_most_below_it():
    goodput = np.array([[0, 1, 3, 4], [0, 2, 0, 0], [0, 0, 0, 5], [0, 0, 0, 0]], float)
    relative = relative_to_fair_share(goodput, 2)
    np.testing.assert_allclose(relative, [[0, 1 / 3, 1, 4 / 3], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])


def test_hand_worked():
    # 6 GPUs, fair share 3. Relative goodput 1/3, 2/3, 1, 4/3 and 5/8, 7/8, 1, 9/8: the second job is better off with
    # one GPU. Further GPUs: first (1/3), second (5/8), first (2/3), second (7/8).
    rates = [[1, 2, 3, 4], [5, 7, 8, 9]]
    assert decide([6], [{}, {}], rates) == [3, 3]
    # 4 GPUs, fair share 2: 1/2, 1, 3/2 and 5/7, 1: first, second.
    assert decide([4], [{}, {}], rates) == [2, 2]
    # 5 GPUs, fair share 3: first, second, first.
    assert decide([5], [{}, {}], rates) == [3, 2]


def test_the_first_of_equals_and_one_gpu_each_in_order_of_arrival():
    assert decide([3], [{}, {}], [[1, 2], [1, 2]]) == [2, 1]
    assert decide([2], [{}] * 3, [[9, 10], [1, 2], [1, 2]]) == [1, 1, 0]


def test_who_gains_nothing_or_has_the_most_is_passed_over():
    # The first job is worst off, but two GPUs are no faster; the second may hold two.
    assert decide([6], [{}, {"max_gpus": 2}, {}], [[1, 1, 5], [1, 2, 3], [1, 2, 3]]) == [1, 2, 3]
    assert decide([8], [{}, {"max_gpus": 2}], [[1, 1, 5], [1, 2, 3]]) == [1, 2], "the others stay idle"


def test_goodput_on_as_few_nodes_as_possible():
    one, several = [[1, 2, 3, 4, 5, 6]], [[1, 1, 1, 1, 4.5, 4.4]]
    assert decide([4, 4], [{}], one, several) == [5]


def test_rigid_and_pinned_jobs_come_first_and_what_was_observed_may_be_doubled():
    jobs = [{"elastic": False, "num_gpus": 2}, {}, {"gpus": 1, "preemptible": False}, {"profiled": 0}]
    assert decide([4, 2], jobs, [[], [1, 2, 3, 4], [1, 2, 3], []]) == [2, 3, 1, 1]
    assert decide([8], [{"profiled": 2}], [[1, 2, 3, 4, 5, 6]]) == [4]


def test_no_jobs():
    assert decide([4], [], []) == []


@pytest.mark.parametrize("seed", range(60))
def test_no_division_is_lexicographically_better(seed):
    """Sorted from the worst off, among the divisions that give every job a GPU where there are enough."""
    rng = np.random.default_rng(seed)
    jobs, width = int(rng.integers(1, 5)), 6
    relative = np.concatenate([np.zeros((jobs, 1)), rng.random((jobs, width)).cumsum(axis=1)], axis=1)
    most, free = rng.integers(1, width + 1, jobs), int(rng.integers(jobs, 14))

    def levels(counts):
        return sorted(relative[i, k] for i, k in enumerate(counts))

    counts = itertools.product(*(range(1, m + 1) for m in most))
    best = max(levels(c) for c in counts if sum(c) <= free)
    gpus = divide(relative, free, most)
    assert sum(gpus) <= free
    assert levels(gpus) == best
