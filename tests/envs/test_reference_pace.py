"""How fast jobs run whose workers are slow, and what that costs, in the reference: worked by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from envs.order import Key, ListOrder
from envs.reference_pace import Workers
from envs.straggler_presets import CPU, GPU, IO, NET
from tests.envs.elastic_support import jobs, model, training
from tests.envs.straggler_support import CALM, accounts, begin, facts, moves, placed, play, rigid

TIMES = [1.0, 1.0, 2.0, 4.0]  # at a communication share of 1/2: 1, 1, 3/2, 5/2

# The pace of each way to wait


def pace(mode: str, compute: list[float], share: float = 0.5, **others: Any) -> float:
    return Workers(compute, others.pop("link", [1.0] * len(compute)), share, **others).pace(mode)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("synchronous", 1 / 2.5),
        ("backup", 1 / 2.5),  # without backup workers
        ("drop", 3 / 4 / 1.5),
        ("asynchronous", 0.7 * (1 + 1 + 2 / 3 + 2 / 5) / 4),
        ("grouped", 0.85 * (2 / 4 + 1 / 4 / 1.5 + 1 / 4 / 2.5)),
        # 128 samples by speed 1, 1, 1/2, 1/4: 46.5, 46.5, 23.3, 11.6, rounded up; 24 take 48 / 32.
        ("lb-bsp", 1 / (1 + 0.5 * 0.5)),
    ],
)
def test_pace_of_four_workers(mode: str, expected: float) -> None:
    assert pace(mode, TIMES) == pytest.approx(expected, rel=1e-12)
    assert pace(mode, TIMES[::-1]) == pytest.approx(expected, rel=1e-12)
    assert pace(mode, [1.0] * 7) == {"asynchronous": 0.7, "drop": 6 / 7}.get(mode, 1.0)


def test_one_worker_has_none_to_drop() -> None:
    assert pace("drop", [3.0]) == pace("synchronous", [3.0]) == 1 / 2


def test_backup_workers_are_not_waited_for() -> None:
    assert pace("backup", TIMES, backup=1) == 1 / 1.5
    assert pace("backup", TIMES, backup=2) == 1


def test_a_synchronous_job_waits_for_the_slowest_worker_and_the_slowest_link() -> None:
    link = [3.0, 1.0, 1.0, 1.0]
    assert pace("synchronous", TIMES, 0.25, link=link) == 1 / (1 + 0.75 * 3 + 0.25 * 2)
    assert pace("lb-bsp", TIMES, 0.25, link=link) == 1 / (1 + 0.75 * 0.5 + 0.25 * 2)
    # Backup workers and groups go by the time of each: 1 + .25 x 2, 1, 1 + .75, 1 + .75 x 3.
    assert pace("backup", TIMES, 0.25, link=link, backup=1) == 1 / 1.75
    assert pace("grouped", TIMES, 0.25, link=link) == 0.85 * (1 / 4 + 2 / 4 / 1.75 + 1 / 4 / 3.25)


def test_groups_reach_to_1_2_times_their_first() -> None:
    assert pace("grouped", [1.0, 1.2, 1.3], 0.0) == pytest.approx(0.85 * (2 / 3 / 1.2 + 1 / 3 / 1.3), rel=1e-12)
    assert pace("grouped", [2.0, 2.2, 2.4], 0.0) == pytest.approx(1 / 2.4, rel=1e-12)


@pytest.mark.parametrize(("ratio", "worth"), [(math.inf, 3 / 4), (1.0, 3 / 4 * 2 / 1.75), (0.0, 1.0)])
def test_a_dropped_worker_costs_by_the_noise(ratio: float, worth: float) -> None:
    assert pace("drop", TIMES, noise_ratio=ratio) == pytest.approx(worth / 1.5, rel=1e-12)


@pytest.mark.parametrize(
    ("compute", "longest"),
    [
        ([2.0, 2.0, 2.0], 2.0),
        ([1.0, 3.0], 1.5),  # 48 and 16 samples
        ([1.0, 8.0, 8.0], 4.0),  # 76.8 is cut to 64; 16 for each of the others
        # 92, 61 and 3 x 2.3; of the 96 that are left 86 would be for the second: 64 too; 11 (10.7) for each of the rest
        ([1.0, 1.5, 40.0, 40.0, 40.0], 11 * 40 / 32),
    ],
)
def test_samples_go_to_those_that_are_fast(compute: list[float], longest: float) -> None:
    assert pace("lb-bsp", compute, 0.0) == pytest.approx(1 / longest, rel=1e-12)


def test_workers_straggle_that_take_1_2_times_as_long_as_the_fastest() -> None:
    assert Workers([2.0, 2.4, 2.5, 5.0], [1.0] * 4, 0.0).straggling == 2
    assert Workers([2.0], [1.0], 0.0).straggling == 0


# What slows which worker, and the accounts


def test_slow_cpus_slow_all_workers_of_the_node() -> None:
    # From 10 to 20 compute takes 3 times as long, an iteration twice.
    run = play(rigid((2, 0, 100)), "1x2", {(CPU, 0): [(10, 3), (20, 1)]})
    assert accounts(run) == (105, 10 * 2 / 2, 0, 10)


def test_a_slow_gpu_slows_its_worker() -> None:
    run = play(rigid((2, 0, 100)), "1x2", {(GPU, 1): [(10, 2), (20, 1)]})
    assert accounts(run) == pytest.approx((100 + 10 / 3, 10 * 2 / 3, 10, 10), rel=1e-12)
    run = play(rigid((1, 0, 100)), "1x2", {(GPU, 1): [(10, 2), (20, 1)]})
    assert accounts(run) == (100, 0, 0, 0)


def test_slow_links_slow_jobs_on_several_nodes() -> None:
    # Of two workers one takes twice as long. The job on one node feels nothing.
    slow = {(NET, 1): [(10, 3), (20, 1)]}
    run = play(rigid((2, 0, 100), (1, 0, 100)), "2x2", slow, placed((1, 1), (0, 1)))
    assert accounts(run) == (105, 10, 10, 10)
    assert accounts(run, job=1) == (100, 0, 0, 0)


@pytest.mark.parametrize(
    ("sensitivity", "cpu", "io"), [("", 1.0, 1.0), ("vision", 1.0, 1.0), ("speech", 0.8, 0.2), ("language", 0.2, 0.2)]
)
def test_jobs_feel_it_by_their_sensitivity(sensitivity: str, cpu: float, io: float) -> None:
    trace = rigid((1, 0, 100), comm_share=0.0, sensitivity=[sensitivity])
    config = replace(CALM, straggler_io=True)
    run = play(trace, "1x2", {(CPU, 0): [(0, 2)], (IO, 0): [(0, 3)], (GPU, 0): [(0, 4)]}, config=config)
    slow = 4 * (1 + cpu) * (1 + 2 * io)
    assert accounts(run) == pytest.approx((100 * slow, 100 * slow - 100, 0, 100 * slow), rel=1e-12)


def test_sensitivities_of_jobs_without_one() -> None:
    table = jobs(("bert", 1, 0), ("m", 1, 0), ("bert", 1, 0), duration_s=[math.nan, math.nan, 9.0])
    run = begin(table, "1x4", profiles={"m": model(9), "bert": model(9, model="bert")})
    assert [(job.feels.cpu, job.feels.speed_class, job.comm_share) for job in run.jobs] == [
        (0.2, 1, 0.3),  # language
        (1.0, 0, 0.2),
        (1.0, 0, 0.2),  # a rigid job's model says nothing
    ]


def test_a_slowdown_of_less_than_a_tenth_is_none() -> None:
    run = play(rigid((1, 0, 100)), "1x1", {(GPU, 0): [(0, 1.1)]})
    assert accounts(run) == pytest.approx((105, 5, 0, 0), rel=1e-12)


def test_fractions_of_a_device_count_with_their_share() -> None:
    run = play(rigid((1, 0, 100), share_milli=[250]), "1x1", {(GPU, 0): [(0, 3)]})
    assert accounts(run) == (200, 0.25 * 100, 0, 200)


# Pauses, checkpoints, moves


def test_a_pause_goes_on_when_a_component_changes() -> None:
    """30 s of pause; half as fast from 10 to 50, of which 20 s count."""
    trace = jobs(("m", 1, 0))
    config = replace(CALM, rescale_s=30.0)
    run = play(trace, "1x1", {(GPU, 0): [(10, 2), (50, 1)]}, config=config)
    assert accounts(run) == (140, 10, 0, 20)
    assert facts(run, "paused_gpu_s", "num_rescales") == (30, 0)


def test_what_was_saved_at_the_old_pace_stays_saved() -> None:
    """Saved every 12 s: at 12, 24, 36; half as fast from 15 on: 15 + 21 / 2 at 36. Resumed at full speed."""
    config = replace(CALM, checkpoint_s=12.0)
    scheduler = moves(t0={0: (1, None)}, t40={0: (0, None)}, t100={0: (1, None)})
    run = play(jobs(("m", 1, 0)), "1x1", {(GPU, 0): [(15, 2), (90, 1)]}, scheduler, config)
    assert accounts(run) == (100 + 100 - 25.5, 25 / 2, 0, 25)


def test_a_rigid_job_saves_by_work() -> None:
    """Half as fast: 25 s of work in 50 s, 20 of them saved."""
    config = replace(CALM, checkpoint_s=10.0)
    scheduler = moves(t0={0: (1, None)}, t50={0: (0, None)}, t100={0: (1, None)})
    run = play(rigid((1, 0, 100)), "1x1", {(GPU, 0): [(0, 3), (90, 1)]}, scheduler, config)
    assert accounts(run) == (180, 25, 0, 50)


def test_a_job_that_comes_back_to_other_devices_of_its_node_has_their_pace() -> None:
    """Two jobs are evicted; the one of GPU 0 gets GPU 3 at once, which is no preemption and no migration."""
    trace = rigid((1, 0, 200), (3, 1, 100), (3, 2, 10), comm_share=0.0)
    config = replace(CALM, interval_s=0.0)
    run = play(trace, "1x4", {(GPU, 3): [(0, 2)]}, ListOrder(Key.DURATION, preemptive=True), config)
    assert accounts(run) == (2 + 198 * 2, 198, 0, 198 * 2)
    assert facts(run, "num_preemptions", "num_rescales", "paused_gpu_s") == (0, 0, 0)
    assert facts(run, "num_preemptions", "finish_s", job=1) == (1, 12 + 100 - 1 / 2)


def test_what_happens_at_the_end_of_a_job_happens_before() -> None:
    """An onset at the instant of the end leaves nothing to slow down; the job behind starts slow."""
    run = play(rigid((1, 0, 100), (1, 0, 100)), "1x1", {(GPU, 0): [(100, 3)]}, config=replace(CALM, interval_s=0.0))
    assert accounts(run) == (100, 0, 0, 0)
    assert accounts(run, job=1) == (300, 100, 0, 200)


# Backup workers


@pytest.mark.parametrize(("asked", "held"), [(7, 7), (8, 9), (20, 21), (21, 23), (40, 42), (41, 44)])
def test_backup_workers_are_one_in_twenty(asked: int, held: int) -> None:
    job = begin(rigid((asked, 0, 9)), "1x64", config=replace(CALM, sync="backup")).jobs[0]
    assert (job.num_gpus, job.max_gpus, job.request, job.backup) == (held, held, held, held - asked)


def test_backup_workers_are_held_and_not_waited_for() -> None:
    trace, config = rigid((8, 0, 100), comm_share=0.0), replace(CALM, sync="backup")
    run = play(trace, "1x9", {(GPU, 4): [(10, 5)]}, config=config)
    assert accounts(run) == (100, 100, 90, 0)  # the ninth GPU is lost
    assert facts(run, "service_gpu_s") == (900,)
    run = play(trace, "1x9", {(GPU, 4): [(10, 5)], (GPU, 5): [(20, 2)]}, config=config)
    assert accounts(run) == (20 + 80 * 2, 20 + 160 * (9 - 8 / 2), 10 + 2 * 160, 160)
    assert play(trace, "1x8", {}, config=config).jobs[0].status == "rejected"


# Other ways to wait


def test_a_change_of_mode_pauses() -> None:
    """A quarter as fast up to 20; after 5 s of pause half as fast. Wishes for what a job has change nothing."""
    scheduler = moves(t0={0: (2, None)}, t20={0: (2, None, None, "drop")}, t50={0: (2, None, None, "drop")})
    run = play(rigid((2, 0, 100), comm_share=0.0), "1x2", {(GPU, 1): [(0, 4)]}, scheduler)
    assert accounts(run) == (25 + 95 * 2, 20 * 2 * 0.75 + 190 * 2 * 0.5, 20 + 190, 210)
    assert facts(run, "paused_gpu_s", "num_rescales", "num_preemptions") == (10, 0, 0)


def test_a_change_of_mode_only_lengthens_a_pause() -> None:
    scheduler = moves(t0={0: (2, None)}, t10={0: (2, None, None, "drop")}, t20={0: (2, None, None, "grouped")})
    config = replace(CALM, rescale_s=23.0, resync_s=5.0)
    run = play(jobs(("m", 2, 0)), "1x2", {}, scheduler, config)
    assert facts(run, "paused_gpu_s", "finish_s", "sync") == (50, 125, "grouped")


def test_a_mode_that_comes_with_devices_costs_nothing() -> None:
    scheduler = moves(t0={0: (0, None, None, "grouped")}, t10={0: (2, None, None, "drop")}, t50={0: (0, None)})
    run = play(rigid((2, 0, 100), comm_share=0.0), "1x2", {(GPU, 1): [(0, 4)]}, scheduler_with_return(scheduler))
    # 20 s of work in 40 s, 80 more in 160: it comes back with its mode.
    assert accounts(run) == (60 + 160, 200, 200, 200)
    assert facts(run, "paused_gpu_s", "sync", "num_preemptions") == (0, "drop", 1)


def scheduler_with_return(chooser: Any) -> Any:
    """Another chooser's answers, and at 60 s two GPUs for job 0."""
    return lambda now, *others: chooser(now, *others) | ({0: (2, None)} if now == 60 else {})


def test_a_wish_without_devices_is_forgotten() -> None:
    scheduler = moves(t0={0: (0, None, None, "asynchronous")}, t10={0: (1, None)})
    run = play(rigid((1, 0, 100)), "1x1", {}, scheduler)
    assert facts(run, "finish_s", "sync") == (110, "synchronous")


def test_a_change_of_mode_saves() -> None:
    """As a change of depth: stopped 5 s after the pause, the job goes back to where it was before it."""
    scheduler = moves(t0={0: (1, None)}, t20={0: (1, None, None, "grouped")}, t30={0: (0, None)}, t100={0: (1, None)})
    run = play(jobs(("m", 1, 0)), "1x1", {}, scheduler, replace(CALM, checkpoint_s=50.0))
    assert facts(run, "finish_s", "paused_gpu_s") == (180, 5)


# Elastic jobs


@pytest.mark.parametrize(
    ("batch", "placement", "share"),
    [
        (16, (2,), 0.5 / 1.5),
        (16, (1, 1), 1.5 / 2.5),
        (16, (1,), 0.0),  # two steps
        (80, (2,), 0.5 / 5.5),  # two steps of 20 samples, one synchronisation
    ],
)
def test_share_of_communication(batch: int, placement: tuple[int, ...], share: float) -> None:
    assert training(model(100), batch).communication("aws", placement, 0)[0] == pytest.approx(share, rel=1e-12)


def test_noise_over_batch_is_what_a_dropped_worker_costs() -> None:
    profile = model(100, grad_sqr=np.array([[1.0]]), grad_var=np.array([[2.0]]))
    _, ratio = training(profile, 16).communication("aws", (4,), 0)
    assert ratio == 1  # 2 x 8 / 16
    expected = float(profile.gain(0, 12) / profile.gain(0, 16))
    assert pace("drop", [1.0] * 4, noise_ratio=ratio) == pytest.approx(expected, rel=1e-12)
    assert training(model(100), 16).communication("aws", (4,), 0)[1] == math.inf
    assert training(model(100, worth=False), 16).communication("aws", (4,), 0)[1] == 0


def test_the_pace_changes_with_the_epoch() -> None:
    """A worker that is dropped is half the first epoch's progress, and none of the second's."""
    profile = model(10, 30, worth=(True, False))
    config = replace(CALM, sync="drop", interval_s=0.0)
    run = play(jobs(("m", 2, 0)), "1x2", {(GPU, 1): [(0, 3)]}, config=config, profiles={"m": profile})
    assert accounts(run) == pytest.approx((40, 20, 40, 20), rel=1e-12)


def test_stragglers_and_interference_multiply() -> None:
    """Rate 1/2 on two nodes, half of it left by interference, a link 3 times slower: 1 + .75 x 2."""
    trace, config = jobs(("m", 2, 0), ("m", 2, 0)), replace(CALM, interference=0.5)
    run = play(trace, "2x2", {(NET, 0): [(0, 3)]}, placed((1, 1), (1, 1)), config)
    assert accounts(run) == pytest.approx((100 * 2 * 2 * 2.5, 1000 * 2 * (1 - 0.4), 1000, 1000), rel=1e-12)
