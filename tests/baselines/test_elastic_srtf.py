"""Elastic SRTF: values and their division worked by hand, and the best division found by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from baselines.elastic_srtf import ElasticSrtf, grant, values
from tests.baselines.elastic_views import answer, goodput_table, make_view


def decide(free, jobs, rates, left, several=None, rescale_s=0.0, **parameters):
    view = make_view(free, jobs, goodput=goodput_table(rates, several), left=left, rescale_s=rescale_s)
    return answer(ElasticSrtf(**parameters), view)


def divide(value, free, most=None):
    value = np.asarray(value, float)
    jobs = len(value)
    gpus = np.zeros(jobs, np.int64)
    limits = np.full(jobs, 64) if most is None else np.asarray(most)
    grant(value, limits, free, np.empty(jobs), np.empty(jobs, np.int64), gpus)
    return gpus.tolist()


def test_values_hand_worked():
    # Goodput per GPU is at best 2 and 1, so 3 and 4 s are left: the second is larger and has weight 1, the first 2^p.
    goodput = np.array([[0, 2, 3], [0, 1, 2]], float)
    value = values(goodput, np.array([6.0, 4.0]), np.array([1, 0]), exponent=0.5, keep=0.9)
    root = 2**0.5
    assert value == pytest.approx(np.array([[0, root, 0.9 * 1.5 * root], [0, 0.9, 1.8]]))


def test_the_earlier_of_equals_counts_as_the_shorter():
    value = values(np.array([[0, 1.0]] * 3), np.full(3, 5.0), np.zeros(3, np.int64), exponent=1.0, keep=1.0)
    assert value[:, 1].tolist() == [3, 2, 1]


@pytest.mark.parametrize("seed", range(40))
def test_concave_values_are_divided_best(seed):
    rng = np.random.default_rng(seed)
    steps = -np.sort(-rng.random((3, 5)), axis=1)
    value = np.concatenate([np.zeros((3, 1)), steps.cumsum(axis=1)], axis=1)
    free = int(rng.integers(0, 13))
    gpus = divide(value, free)
    assert sum(gpus) <= free
    best = max(
        sum(value[i, k] for i, k in enumerate(counts))
        for counts in itertools.product(range(6), repeat=3)
        if sum(counts) <= free
    )
    assert sum(value[i, k] for i, k in enumerate(gpus)) == pytest.approx(best)


def test_a_dip_is_jumped_over():
    """5 GPUs are on two nodes and no faster than 4; 8 are worth (7 - 4) / 4 a GPU, if 4 are free."""
    value = [[0, 1, 2, 3, 4, 3.5, 4.2, 5, 7]]
    assert divide(value, 8) == [8]
    assert divide(value, 7) == [7]
    assert divide(value, 6) == [6]
    assert divide(value, 5) == [4]
    assert divide(value, 8, most=[7]) == [7]


def test_a_jump_that_no_longer_fits_gives_way_to_a_smaller_one():
    # The first job needs 3 at once for 2 a GPU, the second takes one for 3: of 3 GPUs, 2 are left, worth 0.5 a GPU.
    assert divide([[0, 0, 1, 6], [0, 3, 3, 3]], 3) == [2, 1]
    assert divide([[0, 0, 1, 6], [0, 3, 3, 3]], 4) == [3, 1]


def test_gpus_stay_idle_when_nobody_gains():
    assert decide([4, 4], [{}, {}], [[1, 1.5, 1.2], [1, 0.9]], [1, 1]) == [2, 1]


def test_linear_speedup_is_srtf_and_short_jobs_wait_for_nobody():
    linear = [[1, 2, 3, 4]] * 3
    assert decide([4], [{}] * 3, linear, [30, 10, 20]) == [0, 4, 0]
    assert decide([4], [{}] * 3, linear, [30, 10, 20], exponent=0.0) == [4, 0, 0]


def test_work_is_compared_in_time_not_in_iterations():
    assert decide([1], [{}, {}], [[10], [1]], [50, 10]) == [1, 0]


def test_concave_speedup_shares():
    # Weights 2^0.75 = 1.68 and 1; steps 1, 0.6, 0.3. 1.68 x (1, 0.6, 0.3) = 1.68, 1.01, 0.50: second, second, first.
    rates = [[1, 1.6, 1.9]] * 2
    assert decide([2], [{}, {}], rates, [9, 3]) == [0, 2]
    assert decide([3], [{}, {}], rates, [9, 3]) == [1, 2]
    assert decide([4], [{}, {}], rates, [9, 3]) == [2, 2]


def test_changes_must_pay_for_the_pause():
    """Three GPUs are 10 % faster than two; with a pause of 30 s and a horizon of 300 s a change keeps 91 %."""
    rates = [[1, 2, 2.19]]
    held = [{"gpus": 2}]
    assert decide([2], held, rates, [5]) == [3]
    assert decide([2], held, rates, [5], rescale_s=30.0) == [2]
    assert decide([2], held, [[1, 2, 2.21]], [5], rescale_s=30.0) == [3]
    assert decide([2], held, rates, [5], rescale_s=30.0, horizon_s=3000.0) == [3]
    assert decide([4], [{}], rates, [5], rescale_s=30.0) == [3], "a job that waits pays for its pause whatever it gets"


def test_beyond_a_node_the_rates_of_several_nodes_count():
    one, several = [[1, 2, 3, 4, 5, 6]], [[1, 1.1, 1.2, 1.3, 1.4, 1.5]]
    assert decide([4, 4], [{}], one, [5], several) == [4]
    assert decide([4, 4], [{}], one, [5], [[0, 0, 0, 0, 4.5, 5]]) == [6]


def test_what_was_observed_may_be_doubled():
    linear = [[1, 2, 3, 4, 5, 6, 7, 8]]
    for profiled, most in ((0, 1), (1, 2), (2, 4), (3, 6)):
        assert decide([4, 4], [{"profiled": profiled}], linear, [5]) == [most]
    assert decide([4, 4], [{"profiled": 3, "max_gpus": 5}], linear, [5]) == [5]


def test_a_job_of_unknown_goodput_is_tried_on_one_gpu_before_all_others():
    assert decide([1], [{}, {}], [[1], []], [0.001, 1000]) == [0, 1]
    assert decide([4], [{}, {}], [[1, 2, 3, 4], []], [1, 1000]) == [3, 1]


def test_rigid_and_pinned_jobs_come_first():
    jobs = [{"elastic": False, "num_gpus": 2}, {}, {"gpus": 1, "preemptible": False}]
    assert decide([3, 1], jobs, [[], [1, 2, 3, 4], [1, 2, 3]], [0, 5, 5]) == [2, 2, 1]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"exponent": -0.1}, "exponent"), ({"exponent": float("nan")}, "exponent"), ({"horizon_s": 0.0}, "horizon_s")],
)
def test_parameters_out_of_range_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        ElasticSrtf(**parameters)
