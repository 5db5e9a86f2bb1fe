"""Lyra's two steps worked by hand, its knapsack against every choice, and DeepBoot's version of it."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from baselines.lyra import Lyra
from tests.baselines.elastic_views import answer, iteration_table, make_view

HALVING = [12 / k for k in range(1, 13)]


def decide(free, jobs, times, left, compat="none"):
    """``remaining`` of a rigid job is in its dict, [s]."""
    view = make_view(free, jobs, iteration_s=iteration_table(times), left=left)
    view.config = SimpleNamespace(compat=compat)
    view.remaining = np.array([0.0, *[job.get("remaining", 0.0) for job in jobs][::-1]])
    return answer(Lyra(), view)


def rigid(num_gpus, remaining, **others):
    return {"elastic": False, "num_gpus": num_gpus, "remaining": remaining, **others}


def test_base_demands_shortest_first_and_who_does_not_fit_is_passed_over():
    # Times left at the request: 2 x 30 = 60, 3 x 10 = 30, 40 and 50 s. Of 6 GPUs the second takes 4, the third does not
    # fit, the fourth takes 1, and the first does not fit.
    jobs = [{"num_gpus": 2, "max_gpus": 2}, {"num_gpus": 4, "max_gpus": 4}, rigid(3, 40.0), rigid(1, 50.0)]
    times, left = [[4, 2], [9, 6, 4, 3], [], []], [30, 10, 0, 0]
    assert decide([6], jobs, times, left) == [0, 4, 0, 1]
    assert decide([7], jobs, times, left) == [0, 4, 3, 0]
    assert decide([10], jobs, times, left) == [2, 4, 3, 1]


def test_ties_go_to_the_first_to_arrive():
    assert decide([3], [rigid(2, 5.0), rigid(2, 5.0)], [[], []], [0, 0]) == [2, 0]


def test_running_jobs_keep_their_requests_and_lend_the_rest_to_base_demands():
    # The first holds 6 and needs 2: the newcomer's 5 fit into the 4 it lends and the free one, though it takes longer.
    jobs = [{"num_gpus": 2, "gpus": 6, "max_gpus": 8}, {"num_gpus": 5, "max_gpus": 5}]
    assert decide([1], jobs, [HALVING, HALVING], [10, 1000]) == [2, 5]
    assert decide([0], jobs, [HALVING, HALVING], [10, 1000]) == [6, 0]
    assert decide([1], [rigid(3, 9.0, gpus=3), {"num_gpus": 2, "max_gpus": 2}], [[], [2, 1]], [0, 1]) == [3, 0]


def test_what_inference_took_is_given_back_in_order_of_running_time():
    """Both were left with 1 of 3 GPUs; 2 are free."""
    jobs = [{"num_gpus": 3, "gpus": 1, "max_gpus": 3}, {"num_gpus": 3, "gpus": 1, "max_gpus": 3}]
    assert decide([2], jobs, [HALVING, HALVING], [20, 10]) == [1, 3]
    assert decide([2], jobs, [HALVING, HALVING], [10, 20]) == [3, 1]
    # A shorter third one comes first. Then nobody gets its request back: one GPU saves the first 120 s, the other 60.
    assert decide([2], [*jobs, {"max_gpus": 1}], [HALVING, HALVING, HALVING], [20, 10, 1]) == [2, 1, 1]


def test_flexible_demand_goes_where_it_saves_most_time():
    # Beyond one GPU each: the first saves 30, 40, 45 s with 1, 2, 3 GPUs more, the second 5, 10, 60.
    times, left = [[10, 7, 6, 5.5], [10, 9.5, 9, 4]], [10, 10]
    expected = {2: [1, 1], 3: [2, 1], 4: [3, 1], 5: [1, 4], 6: [2, 4], 7: [3, 4], 8: [4, 4], 9: [4, 4]}
    for free, gpus in expected.items():
        assert decide([free], [{}, {}], times, left) == gpus


def test_gpus_that_save_nothing_stay_idle():
    assert decide([8], [{}, {"num_gpus": 2}], [[5, 4, 4, 4.5], [5, 3, 3]], [10, 10]) == [2, 2]


def test_pinned_jobs_keep_what_they_hold():
    jobs = [{"gpus": 3, "preemptible": False}, {"preemptible": False}]
    assert decide([2], jobs, [HALVING, HALVING], [10, 10]) == [3, 2]


@pytest.mark.parametrize("seed", range(40))
def test_no_choice_of_flexible_demand_saves_more(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 5))
    jobs = [{"num_gpus": int(rng.integers(1, 3)), "max_gpus": int(rng.integers(2, 7))} for _ in range(count)]
    times = (rng.random((count, 6)) + 0.1).tolist()
    left = rng.integers(1, 100, count).astype(float)
    base = [job["num_gpus"] for job in jobs]
    free = sum(base) + int(rng.integers(0, 8))
    choices = product(*(range(job["num_gpus"], job["max_gpus"] + 1) for job in jobs))

    def total(counts):
        return sum(times[i][k - 1] * left[i] for i, k in enumerate(counts))

    found = decide([free], jobs, times, left)
    assert sum(found) <= free
    assert all(k >= least for k, least in zip(found, base, strict=True))
    assert total(found) == pytest.approx(min(total(counts) for counts in choices if sum(counts) <= free))


def test_no_jobs():
    assert decide([4], [], np.zeros((0, 1)), None) == []


class TestDeepBoot:
    """Aryl as DeepBoot's simulator has it: a sum of T w / (w + 1), T the time left on one GPU."""

    def test_short_jobs_starve(self):
        # T = 1200, 1200 and 12 s: a fourth GPU saves the long ones 1200 (4/5 - 3/4) = 60, the short one gets nothing.
        jobs = [{"num_gpus": 4}, {"num_gpus": 4}, {"num_gpus": 4}]
        times, left = [HALVING] * 3, [100, 100, 1]
        assert decide([8], jobs, times, left, "deepboot") == [4, 4, 0]
        assert decide([9], jobs, times, left, "deepboot") == [4, 4, 1]
        assert decide([3], jobs, times, left) == [0, 0, 0], "Lyra itself starts nothing below the request"
        assert decide([8], jobs, times, left)[2] == 4

    def test_a_job_of_one_gpu_is_worth_its_whole_time(self):
        # Of 4 GPUs: T 3/4 + T = 1.75 T with 3 + 1, T 4/5 without it.
        jobs = [{"num_gpus": 4}, {"num_gpus": 1}]
        assert decide([4], jobs, [HALVING, HALVING], [10, 10], "deepboot") == [3, 1]
        # T = 120 and 11 s. 120 (4/5 - 3/4) = 6 is less than 11, but more than the 5.5 of a job of two.
        assert decide([4], jobs, [HALVING, [11]], [10, 1], "deepboot") == [3, 1]
        assert decide([4], [jobs[0], {"num_gpus": 2}], [HALVING, [11]], [10, 1], "deepboot") == [4, 0]

    def test_equal_sums_leave_the_longest_job_fewer_gpus(self):
        """T (1/2 + 2/3) both ways; the table is read from the last job, of equals the last to arrive."""
        jobs = [{"num_gpus": 4}, {"num_gpus": 4}]
        assert decide([3], jobs, [HALVING, HALVING], [10, 10], "deepboot") == [2, 1]

    @pytest.mark.parametrize("seed", range(20))
    def test_no_choice_is_worth_more(self, seed):
        rng = np.random.default_rng(seed)
        jobs = [{"num_gpus": int(rng.integers(1, 6))} for _ in range(int(rng.integers(1, 5)))]
        left = rng.integers(1, 100, len(jobs)).astype(float)
        free = int(rng.integers(0, 12))

        def total(counts):
            alone = [12 * amount for amount in left]
            worth = [
                t * (w / (w + 1) if job["num_gpus"] > 1 else w) for t, w, job in zip(alone, counts, jobs, strict=True)
            ]
            return sum(worth)

        found = decide([free], jobs, [HALVING] * len(jobs), left, "deepboot")
        choices = product(*(range(job["num_gpus"] + 1) for job in jobs))
        assert sum(found) <= free
        assert total(found) == pytest.approx(max(total(counts) for counts in choices if sum(counts) <= free))
