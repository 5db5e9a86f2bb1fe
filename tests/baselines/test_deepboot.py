"""ATS-T: worth of GPUs worked by hand, and its choices against all that there are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from baselines import deepboot
from baselines.deepboot import DeepBoot
from tests.baselines.elastic_views import MOST, answer, goodput_table, make_view

LINEAR = [float(k) for k in range(1, 9)]
DEFAULTS = {"service": 0.0, "age": 1e12, "num_restarts": 0}  # so old that a change costs nothing


def view_of(free, jobs, rates, several=None, node_gpus=(4, 4)):
    """As ``make_view``, with the columns of age and service; a rigid job may hold its request."""
    jobs = [dict(job) for job in jobs]
    for job in jobs:
        if not job.get("elastic", True):
            job.setdefault("max_gpus", job["num_gpus"])
    view = make_view(free, jobs, goodput=goodput_table(rates, several), node_gpus=node_gpus)
    for name, default in DEFAULTS.items():
        setattr(view, name, np.array([default, *[job.get(name, default) for job in jobs][::-1]]))
    return view


def decide(free, jobs, rates, several=None, node_gpus=(4, 4)):
    return answer(DeepBoot(), view_of(free, jobs, rates, several, node_gpus))


def plain_values(job, rates, several, fair, one_node):
    """Worth of 0, 1, ... GPUs, as deepboot.md section 6 says it."""
    age, held = job.get("age", DEFAULTS["age"]), job.get("gpus", 0)
    factor = max(age - 10 * job.get("num_restarts", 0), 0) / (age + 10)
    if not job.get("elastic", True):
        worth = {0: 0.0, job["num_gpus"]: 1.0}
    else:
        most = min(job["max_gpus"], max(2 * job["profiled"], 1))
        known = [0.0] + [(rates if w <= one_node else several)[w - 1] for w in range(1, most + 1)]
        base = rates[min(fair, job["max_gpus"]) - 1]
        worth = {w: known[w] / base if job["profiled"] else w / fair for w in range(1, most + 1)} | {0: 0.0}
    return {w: value * (1.0 if w == held else factor) for w, value in worth.items()}


def best_choices(jobs, rates, several, free, one_node):
    """Every choice of counts whose total worth is the largest, and that total."""
    fair = max(1, -(-free // len(jobs)))
    values = [plain_values(*each, fair, one_node) for each in zip(jobs, rates, several, strict=True)]
    totals = {
        counts: sum(value[w] for value, w in zip(values, counts, strict=True))
        for counts in product(*values)
        if sum(counts) <= free
    }
    best = max(totals.values())
    return [list(counts) for counts, total in totals.items() if total == pytest.approx(best, abs=1e-9)]


def random_job(rng):
    job = {"age": float(rng.integers(0, 200)), "num_restarts": int(rng.integers(0, 8)), "service": float(rng.random())}
    if rng.random() < 0.25:
        size = int(rng.integers(1, 5))
        return job | {"elastic": False, "num_gpus": size, "gpus": size * int(rng.integers(0, 2))}
    job["max_gpus"] = int(rng.integers(1, 9))
    job["profiled"] = int(rng.integers(0, job["max_gpus"] + 1))
    return job | {"gpus": int(rng.integers(0, 3))}


@pytest.mark.parametrize("seed", range(60))
def test_no_choice_is_worth_more(seed):
    rng = np.random.default_rng(seed)
    jobs = [random_job(rng) for _ in range(int(rng.integers(1, 5)))]
    for job in jobs:
        job["gpus"] = min(job["gpus"], job.get("max_gpus", MOST))
    held = sum(job["gpus"] for job in jobs)
    free = int(rng.integers(0, 8))
    rates = np.cumsum(rng.random((len(jobs), 16)) + 0.05, axis=1)
    several = rates * 0.7
    rates[[job.get("profiled") == 0 for job in jobs]] = 0.0
    several[rates == 0] = 0.0
    found = decide([free], jobs, rates.tolist(), several.tolist())
    assert found in best_choices(jobs, rates.tolist(), several.tolist(), free + held, 4)


def test_hand_worked():
    # Fair share ceil(4 / 2) = 2. Worth: first 1/1.5, 1, 1.4/1.5, ...; second 1/2, 1, 1.5, 2. So 1 and 3: 0.67 + 1.5
    # beats 2 + 2 (2), 0 + 4 (2) and 3 + 1.
    assert decide([4], [{}, {}], [[1, 1.5, 1.4, 1.4], [1, 2, 3, 4]]) == [1, 3]


def test_gpus_beyond_a_node_are_worth_what_several_nodes_make_of_them():
    """Fair share 4. 6 GPUs on two nodes are worth 0.9 x 6 / 4 to the second job, or 0.5 x 6 / 4, less than 4 on one."""
    jobs, rates = [{"max_gpus": 2}, {}], [LINEAR, LINEAR]
    assert decide([4, 4], jobs, rates, [LINEAR, [0.9 * k for k in LINEAR]]) == [2, 6]
    assert decide([4, 4], jobs, rates, [LINEAR, [0.5 * k for k in LINEAR]]) == [2, 4]
    assert decide([8], jobs, rates, [LINEAR, [0.5 * k for k in LINEAR]], node_gpus=(8,)) == [2, 6]


def test_the_fair_share_is_on_one_node_even_beyond_its_size():
    view = view_of([4, 4], [{}], [LINEAR], [[0.5 * k for k in LINEAR]])
    values, most = deepboot.weigh(view, view.slots, fair=8)
    assert values[0, [1, 4, 5, 8]] == pytest.approx([1 / 8, 4 / 8, 2.5 / 8, 4 / 8])
    assert most.tolist() == [MOST]


def test_at_most_twice_what_a_job_has_been_observed_on():
    jobs = [{"profiled": 3}, {"profiled": 0}]
    assert decide([4, 4], jobs, [LINEAR, [0] * 8]) == [6, 1]
    assert decide([4, 4], [{"profiled": 3, "max_gpus": 5}, {"profiled": 0}], [LINEAR, [0] * 8]) == [5, 1]
    assert decide([4, 4], [{"max_gpus": 3}, {"profiled": 1}], [LINEAR, LINEAR]) == [3, 2]


def test_a_change_is_worth_less_the_younger_and_the_more_often_restarted():
    # Worth of the held 2 of 4 GPUs is 2 / 4, of all 4 then 1 x (60 - 10 r) / 70: 50/70 with one restart, 0.43 with 3.
    job = {"gpus": 2, "age": 60.0}
    assert decide([2], [job | {"num_restarts": 1}], [LINEAR]) == [4]
    assert decide([2], [job | {"num_restarts": 3}], [LINEAR]) == [2]
    assert decide([2], [job | {"num_restarts": 9}], [LINEAR]) == [2], "the factor is never negative"


def test_a_job_that_has_just_come_gets_a_gpu_only_if_nobody_wants_it():
    jobs = [{"gpus": 2, "max_gpus": 2}, {"age": 0.0}]
    assert decide([1], jobs, [[1, 2], LINEAR]) == [2, 1]
    assert decide([0], jobs, [[1, 2], LINEAR]) == [2, 0]


@pytest.mark.parametrize(("service", "expected"), [((5.0, 1.0), [1, 3]), ((1.0, 5.0), [3, 1]), ((1.0, 1.0), [3, 1])])
def test_of_equal_sums_the_job_with_most_service_has_the_fewest_gpus_but_some(service, expected):
    """All divisions of 4 GPUs are worth the same; the last in order takes the first of 1, 2, ..., 0."""
    jobs = [{"service": amount} for amount in service]
    assert decide([4], jobs, [LINEAR, LINEAR]) == expected


def test_rigid_jobs_are_worth_1_and_may_be_preempted():
    rigid = {"elastic": False, "num_gpus": 3, "gpus": 3}
    # Fair share 2: 4 GPUs are worth 4.5 / 2 to the elastic job, more than 1 + 1 / 2, or 1.7 / 1.5, less than 1 + 2 / 3.
    assert decide([1], [rigid, {}], [[], [1, 2, 3, 4.5]]) == [0, 4]
    assert decide([1], [rigid, {}], [[], [1, 1.5, 1.6, 1.7]]) == [3, 1]
    assert decide([1], [rigid | {"preemptible": False}, {}], [[], [1, 2, 3, 4.5]]) == [3, 1]
    assert decide([0], [{"gpus": 2, "preemptible": False}, {"gpus": 1}], [LINEAR, LINEAR]) == [2, 1]


def test_wide_rigid_jobs_keep_their_gpus_and_start_where_others_leave_room():
    wide = {"elastic": False, "num_gpus": 70}
    elastic = {"max_gpus": 8, "gpus": 2}
    assert decide([70], [wide, elastic], [[], LINEAR], node_gpus=(80,)) == [0, 8]
    assert decide([70, 6], [wide, elastic], [[], LINEAR], node_gpus=(80,)) == [70, 8]
    assert decide([4], [wide | {"gpus": 70}, elastic], [[], LINEAR], node_gpus=(80,)) == [70, 6]


def test_no_jobs():
    assert decide([4], [], []) == []
