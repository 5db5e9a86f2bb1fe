"""Elastic jobs in the reference simulator against schedules worked by hand: rates, pauses, losses."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from envs.order import Key, ListOrder
from envs.reference_training import Training, pack
from envs.rng import Purpose, uniform
from envs.spec import SimConfig
from tests.envs.elastic_support import EVENTS, FREE, NAN, SPEED, counts, jobs, model, play, script, training
from traces.profiles import Throughput

# Rates and batches


def test_rate_changes_at_epoch_ends() -> None:
    # Batch 16 on one GPU: two micro-batches of 8, 2 s an iteration. It gains 2, then 1: 10 / 1 + 20 / 0.5 s.
    profile = model(10, 30, worth=(True, False))
    result = play(jobs(("m", 1, 3), batch_size=[16]), "1x1", ListOrder(Key.ARRIVAL), EVENTS, profile)
    assert result["finish_s"] == [53]
    assert result["first_start_s"] == [3]


@pytest.mark.parametrize(
    ("batch", "placement", "rate"),
    [
        (8, (1,), 1.0),  # 8 / 8
        (8, (2,), 1.0),  # 4 / 8 + 1/2
        (8, (1, 1), 0.5),  # 4 / 8 + 3/2
        (16, (2,), 2 / 1.5),  # 8 / 8 + 1/2, gain 2
        (32, (4,), 4 / 1.5),
        (32, (2, 2), 4 / 2.5),
        (48, (1,), 1.0),  # 6 s for a gain of 6: two steps of 3 s
        (80, (2,), 10 / 5.5),  # two steps of 20 samples: 2.5 + 3
    ],
)
def test_rate_of_a_placement(batch: int, placement: tuple[int, ...], rate: float) -> None:
    assert training(model(100), batch).rate("aws", placement, 0) == pytest.approx(rate, rel=1e-12)


def test_overlap_hides_the_shorter_part() -> None:
    # grad 3, net 4: (9 + 16)^(1/2) = 5.
    speed = Throughput(alpha_c=2.5, beta_c=0.125, alpha_n=3.0, beta_n=0.5, alpha_r=0.0, beta_r=0.0, gamma=2.0)
    assert training(model(1, speed=speed), 16).rate("aws", (2, 2), 0) == pytest.approx(2 / 5)


@pytest.mark.parametrize(
    ("batch", "gpus", "choice"),
    [
        (8, 1, (8, 0)),
        (9, 1, (5, 1)),  # more than M0 on one GPU: two gradients at least
        (9, 2, (5, 0)),
        (100, 1, (25, 3)),  # 100 / 32: 4 steps
        (100, 3, (16, 1)),  # 34 a GPU, 2 steps of 17: 102 is more than M_max, so 100 // 6 = 16
        (96, 3, (32, 0)),
        (97, 3, (16, 1)),  # 33 a GPU
    ],
)
def test_batch_of_a_request(batch: int, gpus: int, choice: tuple[int, int]) -> None:
    assert training(model(100), batch).choose_batch("aws", gpus, False, 0) == choice


def test_default_batch_and_most_gpus() -> None:
    assert training(model(1), num_gpus=3).batch == 8  # M0
    assert training(model(1), num_gpus=5).batch == 10  # 2 a GPU
    assert training(model(1), num_gpus=60).batch == 100  # M_max
    assert training(model(1), 30).most_gpus(0) == 15
    assert training(model(1), 30).most_gpus(7) == 7
    assert training(model(1), 30, tuned=True).most_gpus(0) == 50
    assert training(model(1, max_batch=1000), 30, tuned=True).most_gpus(0) == 64


def test_tuned_batch_is_best_by_what_is_known() -> None:
    start = replace(SPEED, alpha_c=0.5)
    small, large = model(9, worth=False, speed=start, max_batch=64), model(9, speed=start, max_batch=64)
    # Worthless large batches: M0. Else the largest: 64 on 2 GPUs is one step of 32 on each; on one GPU two.
    assert training(small, tuned=True).choose_batch("aws", 1, False, 0) == (8, 0)
    assert training(small, tuned=True).choose_batch("aws", 2, False, 0) == (4, 0)
    assert training(large, tuned=True).choose_batch("aws", 2, False, 0) == (32, 0)
    assert training(large, tuned=True).choose_batch("aws", 1, False, 0) == (32, 1)
    # 4 GPUs: 8 samples need 2 a GPU, 9 GPUs: 18 in all.
    assert training(small, tuned=True).choose_batch("aws", 9, False, 0) == (2, 0)
    # The truth decides how fast that is: 64 samples gain 1 in 0.5 + 4 + 0.5 s.
    assert training(small, tuned=True, known=large).rate("aws", (2,), 0) == pytest.approx(1 / 5)
    assert training(large, tuned=True, known=small).rate("aws", (2,), 0) == pytest.approx(1 / 1.5)


def test_tuned_batch_is_chosen_again_each_epoch() -> None:
    # Epoch 1: batch 64, 4 steps of 16 or fewer ... in any case gain 8 in 0.5 k + 8 s; epoch 0: batch 8 in 1.5 s.
    profile = model(10, 90, worth=(False, True), speed=replace(SPEED, alpha_c=0.5), max_batch=64)
    result = play(jobs(("m", 1, 0)), "1x1", ListOrder(Key.ARRIVAL), EVENTS, profile, tuned=True)
    assert result["finish_s"] == pytest.approx([10 * 1.5 + 80 / 8 * (2 * 0.5 + 8)])


def test_estimate_is_the_run_time_at_the_request() -> None:
    profile = model(10, 30, worth=(True, False))
    # Batch 16 on 2 GPUs of a node: 1.5 s, on 2 nodes 2.5 s; gain 2, then 1.
    assert training(profile, 16).estimate(2, {"aws": 8}) == pytest.approx(10 * 1.5 / 2 + 20 * 1.5)
    one_a_node = Training(profile, profile, 2, 16, False, {"aws": 1})
    assert one_a_node.estimate(2, {"aws": 8}) == pytest.approx(10 * 2.5 / 2 + 20 * 2.5)


def test_packed_placements() -> None:
    assert [pack(n, n > 4, 4) for n in (1, 4, 5, 8, 9)] == [(1,), (4,), (1, 4), (4, 4), (1, 4, 4)]
    assert pack(3, True, 4) == (1, 2)


# Changes of allocation


@pytest.mark.parametrize(
    ("cost", "pauses"),
    [
        ("constant", (12, 12, 12, 12, 12)),
        ("helios", (12, 12, 12, 12, 12)),
        ("restart", (30, 30, 30, 30, 30)),
        ("afe", (30, 6 + 24 / 2, 6, 30, 30)),
    ],
)
def test_pauses(cost: Any, pauses: tuple[float, ...]) -> None:
    # Start, growth from 1 to 2 GPUs, shrinking, a move, and a resume; the rate is always 1.
    moves = script(t0={0: (1, 0)}, t100={0: (2, 0)}, t200={0: (1, 0)}, t300={0: (0, 1)}, t400={0: 0}, t500={0: (0, 1)})
    config = SimConfig(interval_s=100.0, rescale_s=12.0, rescale_cost=cost)
    result = play(jobs(("m", 1, 0)), "2x2", moves, config, model(1000))
    finish = 1000 + 100 + sum(pauses)
    assert result["finish_s"] == [finish]
    assert result["paused_gpu_s"] == [sum(pauses) + pauses[1]]
    assert result["service_gpu_s"] == [100 + 2 * 100 + 100 + 100 + (finish - 500)]
    assert (result["num_rescales"], result["num_preemptions"], result["queueing_delay_s"]) == ([3], [1], [100])


def test_growth_costs_by_the_share_of_new_gpus() -> None:
    # 1 to 4: 6 + 24 * 3 / 4 = 24 s; at batch 8 four GPUs of a node take 2 / 8 + 1/2 s.
    config = SimConfig(interval_s=100.0, rescale_cost="afe")
    result = play(jobs(("m", 1, 0)), "1x4", counts(t0={0: 1}, t100={0: 4}), config, model(1000))
    assert result["finish_s"] == pytest.approx([124 + 930 * 0.75])


def test_a_pause_under_way_is_replaced() -> None:
    # 1 GPU from 0 (until 30), 2 from 10: a pause until 28.
    config = SimConfig(interval_s=10.0, rescale_cost="afe")
    result = play(jobs(("m", 1, 0)), "1x2", counts(t0={0: 1}, t10={0: 2}), config, model(50))
    assert (result["finish_s"], result["paused_gpu_s"]) == ([78], [1 * 10 + 2 * 18])


@pytest.mark.parametrize("cost", ["restart", "afe", "constant"])
def test_rigid_jobs_pause_when_they_resume_or_move(cost: Any) -> None:
    moves = script(t0={0: (1, 0)}, t10={0: (0, 1)}, t100={0: 0}, t200={0: (1, 0)})
    config = SimConfig(interval_s=10.0, rescale_cost=cost, rescale_s=20.0)
    result = play(jobs(("", 1, 0), duration_s=[500.0]), "2x1", moves, config, model(1))
    assert (result["finish_s"], result["paused_gpu_s"]) == ([500 + 20 + 100 + 20], [40])


@pytest.mark.parametrize(
    ("moves", "ends", "finish"),
    [
        # Progress from 30 on, saved every 20 s.
        ({"t100": {0: 0}, "t200": {0: 1}}, (1000,), 230 + 1000 - 60),
        ({"t90": {0: 0}, "t200": {0: 1}}, (1000,), 230 + 1000 - 60),
        # The epoch's end at 80 is saved, then 100, 120, ...
        ({"t90": {0: 0}, "t200": {0: 1}}, (50, 1000), 230 + 1000 - 50),
        ({"t110": {0: 0}, "t200": {0: 1}}, (50, 1000), 230 + 1000 - 70),
        # Growing loses nothing, and what was done before a pause is saved.
        ({"t40": {0: 2}, "t60": {0: 0}, "t200": {0: 1}}, (1000,), 230 + 1000 - 10),
        ({"t40": {0: 2}, "t80": {0: 0}, "t200": {0: 1}}, (1000,), 230 + 1000 - 10),
        ({"t40": {0: 2}, "t90": {0: 0}, "t200": {0: 1}}, (1000,), 230 + 1000 - 30),
    ],
)
def test_preemption_loses_what_was_not_saved(moves: Any, ends: tuple[float, ...], finish: float) -> None:
    config = SimConfig(interval_s=10.0, checkpoint_s=20.0)
    result = play(jobs(("m", 1, 0)), "1x2", counts(t0={0: 1}, **moves), config, model(*ends))
    assert result["finish_s"] == [finish]


# Interference and failures


def test_interference_of_jobs_on_several_nodes() -> None:
    # Both at 1/2 x 1/2 until job 0 has done 30, at 120; then 70 more at 1/2.
    both = script(t0={0: (1, 1), 1: (1, 1)})
    config = replace(FREE, interference=0.5)
    profiles = {"short": model(30), "long": model(100)}
    trace = jobs(("short", 2, 0), ("long", 2, 0))
    result = play(trace, "2x2", both, config, model(1), profiles=profiles)
    assert result["finish_s"] == [120, 260]
    # Nodes in common with a job on one node, or with none, cost nothing.
    result = play(trace, "3x2", script(t0={0: (1, 1, 0), 1: (0, 0, 2)}), config, model(1), profiles=profiles)
    assert result["finish_s"] == [60, 100]
    result = play(trace, "2x3", script(t0={0: (1, 1), 1: (0, 2)}), config, model(1), profiles=profiles)
    assert result["finish_s"] == [60, 100]


def test_rigid_jobs_disturb_and_are_not_disturbed() -> None:
    # The rigid job ends at 40: 10 done, 20 more at 1/2.
    config = replace(FREE, interference=0.5)
    result = play(
        jobs(("m", 2, 0), ("", 2, 0), duration_s=[NAN, 40.0]),
        "2x2",
        script(t0={0: (1, 1), 1: (1, 1)}),
        config,
        model(30),
    )
    assert result["finish_s"] == [80, 40]


def test_pause_goes_on_when_a_disturber_leaves() -> None:
    # Job 0 starts at 10 and pauses until 40; the rigid job ends at 15: 40 + 30 / (1/2).
    config = SimConfig(interval_s=10.0, interference=0.5)
    moves = script(t0={1: (1, 1)}, t10={0: (1, 1)})
    result = play(jobs(("m", 2, 0), ("", 2, 0), duration_s=[NAN, 15.0]), "2x2", moves, config, model(30))
    assert (result["finish_s"], result["paused_gpu_s"]) == ([100, 15], [60, 0])


def test_saves_are_booked_when_the_rate_changes() -> None:
    # Rate 1/4 until 120: saved at 50 and 100 (25 done). Then 1/2: at 150 there are 30 + 15 = 45.
    config = replace(FREE, interference=0.5, checkpoint_s=50.0)
    moves = script(t0={0: (1, 1), 1: (1, 1)}, t190={0: 0}, t300={0: (1, 0)})
    trace = jobs(("m", 2, 0), ("", 2, 0), duration_s=[NAN, 120.0])
    assert play(trace, "2x2", moves, config, model(100))["finish_s"] == [300 + 55, 120]
    # Stopped at 140, before that: 25.
    moves = script(t0={0: (1, 1), 1: (1, 1)}, t140={0: 0}, t300={0: (1, 0)})
    assert play(trace, "2x2", moves, config, model(100))["finish_s"] == [300 + 75, 120]


def node_events(seed: int, node: int, count: int, mtbf: float, mttr: float) -> list[float]:
    """Times at which a node fails, is up again, fails ..."""
    times, now = [], 0.0
    for i in range(count):
        now -= (mttr if i % 2 else mtbf) * math.log(1 - uniform(seed, Purpose.FAILURE, node, i))
        times.append(now)
    return times


def test_failure_preempts_and_repair_brings_back() -> None:
    config = replace(EVENTS, node_mtbf_s=100.0, node_mttr_s=50.0)
    fails, up, again = node_events(1, 0, 3, 100.0, 50.0)
    work = fails + 0.5 * (again - up)
    pinned = jobs(("", 1, 0), duration_s=[work], preemptible=[False])
    result = play(pinned, "1x1", ListOrder(Key.ARRIVAL), config, model(1), seed=1)
    assert result["finish_s"] == pytest.approx([up + work - fails])
    assert result["queueing_delay_s"] == pytest.approx([up - fails])
    assert result["num_preemptions"] == [1]
    # An elastic job loses what it has not saved.
    config = replace(config, checkpoint_s=7.0)
    lost = fails - math.floor(fails / 7) * 7
    result = play(jobs(("m", 1, 0)), "1x1", ListOrder(Key.ARRIVAL), config, model(work - lost), seed=1)
    assert result["finish_s"] == pytest.approx([up + work - fails])


@pytest.mark.parametrize("placement", ["consolidated", "emptiest", "spread", "count", "random"])
@pytest.mark.parametrize("preemptive", [False, True])
def test_nothing_starts_on_a_failed_node(placement: Any, preemptive: bool) -> None:
    # With seed 5 node 0 fails first and stays down. Of 2 + 2 GPUs two are left: job 1 follows job 0, and the third
    # of jobs of 3/4 of a GPU follows the first two.
    fails, other = (node_events(5, n, 1, 1000.0, 1e9)[0] for n in (0, 1))
    assert fails + 30 < other
    late = math.ceil(fails)
    config = replace(EVENTS, placement=placement, node_mtbf_s=1000.0, node_mttr_s=1e9)
    rows = [("", 2, late), ("m", 2, late + 1), *[("", 1, late + 20)] * 3]
    trace = jobs(*rows, duration_s=[5.0, NAN, 4.0, 4.0, 4.0], share_milli=[1000, 1000, 750, 750, 750])
    rule = ListOrder(Key.ARRIVAL, preemptive)
    result = play(trace, "2x2", rule, config, model(10), seed=5)
    assert result["first_start_s"] == [late, late + 5, late + 20, late + 20, late + 24]


def test_a_job_too_wide_for_the_nodes_that_are_up_waits() -> None:
    config = replace(EVENTS, node_mtbf_s=1000.0, node_mttr_s=50.0)
    fails, up = node_events(5, 0, 2, 1000.0, 50.0)
    assert up < node_events(5, 1, 1, 1000.0, 50.0)[0]
    result = play(jobs(("m", 4, fails + 0.5 * (up - fails))), "2x2", ListOrder(Key.ARRIVAL), config, model(1), seed=5)
    assert result["first_start_s"] == pytest.approx([up])
