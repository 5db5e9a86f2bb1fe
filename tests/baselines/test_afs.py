"""AFS-L's tournaments worked by hand, and against the rule written as plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.afs import Afs
from tests.baselines.elastic_views import answer, iteration_table, make_view, random_instance


def decide(free, jobs, times, left, **parameters):
    view = make_view(free, jobs, iteration_s=iteration_table(times), left=left)
    return answer(Afs(**parameters), view)


def plain_loops(times, left, most, free, hand_out_all):
    """With throughputs, and with the exchange of the pair that DeepBoot's description has (deepboot.md, section 7)."""
    gpus = [0] * len(times)

    def worth(i):
        now = 1 / times[i][gpus[i] - 1] if gpus[i] else 0.0
        more = 1 / times[i][gpus[i]]
        return (more - now) / more

    def winner(x, y):
        if gpus[x] == gpus[y] == 0:
            return y if left[y] * times[y][0] < left[x] * times[x][0] else x
        a, b = (y, x) if gpus[x] >= gpus[y] else (x, y)
        return b if worth(b) > worth(a) else a

    for _ in range(free):
        able = [i for i in range(len(times)) if gpus[i] < min(most[i], len(times[i]))]
        able = [i for i in able if hand_out_all or worth(i) > 0]
        if not able:
            break
        best = able[0]
        for other in able[1:]:
            best = winner(best, other)
        gpus[best] += 1
    return gpus


def test_hand_worked():
    # First GPU: 10 x 4 < 30 x 3, so the first job's. Then the second has worth 1 and gets one. Worth of two GPUs:
    # 1 - 3/4 = 0.25 against 1 - 1.5/3 = 0.5, of three: 0.25 against 1 - 1.2/1.5 = 0.2, and 1 - 2/3 = 0.33 against 0.2.
    times = [[4, 3, 2], [3, 1.5, 1.2]]
    expected = {1: [1, 0], 2: [1, 1], 3: [1, 2], 4: [2, 2], 5: [3, 2], 6: [3, 3]}
    for free, gpus in expected.items():
        assert decide([free], [{}, {}], times, [10, 30]) == gpus


@pytest.mark.parametrize("hand_out_all", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_random_instances_match_plain_loops(seed, hand_out_all):
    rng = np.random.default_rng(seed)
    times, left, most = random_instance(rng, concave=seed % 2 == 0)
    free = int(rng.integers(0, 20))
    jobs = [{"max_gpus": m} for m in most]
    found = decide([free], jobs, times, left, hand_out_all=hand_out_all)
    # 1 - t'/t and (1/t' - 1/t) t' may differ in the last bit, which matters for nothing but exact ties.
    assert found == plain_loops(times, left, most, free, hand_out_all)


def test_the_shortest_gets_the_only_gpu():
    assert decide([1], [{}] * 3, [[2], [1], [1]], [4, 7, 7]) == [0, 1, 0]


def test_equal_worth_goes_to_the_later_of_equal_jobs():
    assert decide([3], [{}, {}], [[4, 2], [4, 2]], [5, 5]) == [1, 2]


def test_gpus_that_slow_a_job_down_are_handed_out_unless_told_otherwise():
    slower = [[2, 3, 4]]
    assert decide([3], [{}], slower, [5]) == [3]
    assert decide([3], [{}], slower, [5], hand_out_all=False) == [1]


def test_nobody_gets_more_than_the_most_gpus():
    assert decide([9], [{"max_gpus": 2}, {"max_gpus": 3}], [[4, 2, 1]] * 2, [5, 5]) == [2, 3]


def test_capacity_is_what_is_free_and_held():
    jobs = [{"gpus": 2}, {"elastic": False, "num_gpus": 4, "gpus": 4}]
    assert decide([1, 0], jobs, [[4, 3, 2, 1], []], [5, 0]) == [3, 4]
