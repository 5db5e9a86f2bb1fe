"""The reference simulator against schedules worked by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from envs.order import Key, ListOrder
from envs.reference import Run, simulate_reference
from envs.reference_devices import Devices, Job
from envs.rng import Purpose, helios_estimate, uniform
from envs.spec import ClusterSpec, SimConfig
from tests.envs.random_traces import near_real_case, random_case
from traces.trace import make_trace

Rigid = tuple[int, float, float]  # num_gpus, arrival, duration
Result = dict[str, list[Any]]

LIMITS = (3250.0, 7200.0)
FIFO = ListOrder(Key.ARRIVAL)
BACKFILL = ListOrder(Key.ARRIVAL, backfill=True)
SHORTEST = ListOrder(Key.DURATION, preemptive=True)
SRTF = ListOrder(Key.REMAINING, preemptive=True)
LAS_2D = ListOrder(Key.LEVEL, preemptive=True, limits=LIMITS)
EVENTS = SimConfig(interval_s=0.0, on_event=True)
FREE = SimConfig(interval_s=0.0, on_event=True, rescale_s=0.0)


def run(
    jobs: Sequence[Rigid], cluster: str, order: ListOrder, config: SimConfig, seed: int = 0, **columns: list[Any]
) -> Result:
    """Simulate a few jobs; columns by name, one entry a job."""
    table = {"num_gpus": [j[0] for j in jobs], "arrival_s": [j[1] for j in jobs], "duration_s": [j[2] for j in jobs]}
    return simulate_reference(make_trace("hand", {**table, **columns}), ClusterSpec.parse(cluster), order, config, seed)


def spans(result: Result) -> list[tuple[float, float]]:
    return list(zip(result["first_start_s"], result["finish_s"], strict=True))


# Pauses, lost work, migration


def test_each_preemption_costs_one_pause() -> None:
    # Job 0 runs 0-10, pauses 30-60, runs 60-70, pauses 80-110, runs 110-190: 10 + 10 + 80 = 100 s of work.
    result = run([(1, 0, 100), (1, 10, 20), (1, 70, 10)], "1x1", SRTF, EVENTS)
    assert spans(result) == [(0, 190), (10, 30), (70, 80)]
    assert result["num_preemptions"] == [2, 0, 0]
    assert result["paused_gpu_s"] == [60, 0, 0]
    assert result["queueing_delay_s"] == [30, 0, 0]
    assert result["service_gpu_s"] == [160, 20, 10]
    # Without a preemption there is no pause: JCT = work.
    assert spans(run([(1, 0, 100)], "1x1", SRTF, EVENTS)) == [(0, 100)]


def test_preemption_during_a_pause_restarts_it() -> None:
    # Job 0 runs 0-10, pauses 30-50 of 60, pauses 60-90, runs 90-180.
    result = run([(1, 0, 100), (1, 10, 20), (1, 50, 10)], "1x1", SRTF, EVENTS)
    assert spans(result) == [(0, 180), (10, 30), (50, 60)]
    assert result["paused_gpu_s"] == [50, 0, 0]


def test_work_since_the_last_checkpoint_is_lost() -> None:
    # Preempted at 50 with checkpoints every 15 s: 45 s are kept, 55 s remain after the pause 70-100.
    config = SimConfig(interval_s=0.0, checkpoint_s=15.0)
    result = run([(1, 0, 100), (1, 50, 20)], "1x1", SRTF, config)
    assert spans(result) == [(0, 155), (50, 70)]


@pytest.mark.parametrize(("num_gpus", "extra"), [(1, 7), (2, 30), (8, 30), (9, 60)])
def test_helios_charges_work_for_a_preemption(num_gpus: int, extra: float) -> None:
    config = SimConfig(interval_s=0.0, rescale_cost="helios")
    result = run([(num_gpus, 0, 100), (num_gpus, 10, 20)], f"1x{num_gpus}", SRTF, config)
    assert spans(result) == [(0, 120 + extra), (10, 30)]
    assert result["paused_gpu_s"] == [0, 0]


def test_evicted_job_moves_to_another_node() -> None:
    # Jobs 0 and 1 fill node 0, job 2 runs on node 1. Job 0 ends at 50 and leaves one GPU free on each node.
    # At 60 job 3 needs two on one node: job 2 (last in order) gives way and moves to node 0.
    # It has done 60 s of 400 and pauses 60-90: 90 + 340 = 430.
    jobs = [(1, 0, 50), (1, 0, 300), (1, 0, 400), (2, 60, 100)]
    result = run(jobs, "2x2", SHORTEST, EVENTS)
    assert spans(result) == [(0, 50), (0, 300), (0, 430), (60, 160)]
    assert result["num_rescales"] == [0, 0, 1, 0]
    assert result["num_preemptions"] == [0, 0, 0, 0]
    assert result["paused_gpu_s"] == [0, 0, 30, 0]
    assert result["queueing_delay_s"] == [0, 0, 0, 0]
    # Helios charges preemptions only.
    result = run(jobs, "2x2", SHORTEST, SimConfig(interval_s=0.0, rescale_cost="helios"))
    assert spans(result)[2] == (0, 400)


def test_only_jobs_on_the_chosen_node_are_evicted() -> None:
    # At 10: node 0 job 0; node 1 job 1 (not preemptible) and a free GPU that job 2 left at 7; node 2 job 3
    # (not preemptible) and job 4. Job 5 needs two GPUs on one node. Job 4, the last in order, would free one,
    # so the search goes on to job 0; job 4 stays where it is although it could move to node 1.
    jobs = [(2, 0, 200), (1, 1, 400), (1, 2, 5), (1, 3, 500), (1, 4, 300), (2, 10, 100)]
    result = run(jobs, "3x2", SHORTEST, EVENTS, preemptible=[True, False, True, False, True, True])
    # Job 0 resumes at 110 and pauses until 140: 140 + 190.
    assert spans(result) == [(0, 330), (1, 401), (2, 7), (3, 503), (4, 304), (10, 110)]
    assert result["num_preemptions"] == [1, 0, 0, 0, 0, 0]
    assert result["num_rescales"] == [0] * 6


def test_jobs_are_evicted_from_the_last_in_order() -> None:
    # At 10: node 0 job 0 (not preemptible) and a free GPU, node 1 jobs 2 (3 GPUs) and 3 (1 GPU). Job 4 needs 3.
    # Job 3 alone does not free enough, job 2 would, but job 3 is asked first: it finds 1 GPU free on either
    # node and moves to node 0: done 7 of 300, 40 + 293. Job 2 resumes at 110: done 8 of 200, 140 + 192.
    jobs = [(3, 0, 1000), (1, 1, 4), (3, 2, 200), (1, 3, 300), (3, 10, 100)]
    result = run(jobs, "2x4", SHORTEST, EVENTS, preemptible=[False, True, True, True, True])
    assert spans(result) == [(0, 1000), (1, 5), (2, 332), (3, 333), (10, 110)]
    assert result["num_preemptions"] == [0, 0, 1, 0, 0]
    assert result["num_rescales"] == [0, 0, 0, 1, 0]


def test_job_that_returns_to_its_node_within_a_pass_is_left_alone() -> None:
    # At 10 job 2 needs 3 GPUs. The last in order, job 1, frees one, which is not enough: both are evicted,
    # and one GPU is left on the same node for job 1. Job 0 is preempted, resumes at 110: 140 + 190 = 330.
    result = run([(3, 0, 200), (1, 0, 300), (3, 10, 100)], "1x4", SHORTEST, EVENTS)
    assert spans(result) == [(0, 330), (0, 300), (10, 110)]
    assert result["num_rescales"] == [0, 0, 0]
    assert result["num_preemptions"] == [1, 0, 0]
    assert result["paused_gpu_s"] == [90, 0, 0]


def test_job_that_may_not_be_preempted_keeps_its_gpus() -> None:
    for placement in ("consolidated", "count"):
        config = SimConfig(interval_s=0.0, rescale_s=0.0, placement=placement)
        jobs = [(2, 0, 100), (2, 0, 90), (4, 10, 20), (2, 20, 10)]
        result = run(jobs, "1x4", SRTF, config, preemptible=[False, True, True, True])
        # Job 2 has to wait for job 0; job 3 takes the place of job 1 from 20 to 30; 30 + 90 - 20 = 100.
        assert spans(result) == [(0, 100), (0, 100), (100, 120), (20, 30)]


# Passes


def test_passes_at_intervals_only() -> None:
    jobs = [(1, 0, 10), (1, 10, 30), (1, 20, 10)]
    assert spans(run(jobs, "1x1", FIFO, SimConfig(interval_s=60.0))) == [(0, 10), (60, 90), (120, 130)]
    assert spans(run(jobs, "1x1", FIFO, SimConfig(interval_s=60.0, on_event=True))) == [(0, 10), (10, 40), (40, 50)]


def test_job_ends_inside_an_interval() -> None:
    # 10 s of work are left at the pass at 360; the freed GPU is given away at the next pass.
    result = run([(1, 0, 370), (1, 0, 370)], "1x1", FIFO, SimConfig(interval_s=360.0))
    assert spans(result) == [(0, 370), (720, 1090)]
    for interval in (0.0, 1.0, 7.0, 60.0, 360.0, 5000.0):
        assert spans(run([(1, 0, 370)], "1x1", FIFO, SimConfig(interval_s=interval))) == [(0, 370)]


def test_late_first_arrival_and_idle_gaps() -> None:
    jobs = [(1, 100, 10), (1, 1000, 10)]
    assert spans(run(jobs, "1x1", FIFO, EVENTS)) == [(100, 110), (1000, 1010)]
    assert spans(run(jobs, "1x1", FIFO, SimConfig(interval_s=60.0))) == [(120, 130), (1020, 1030)]


def test_jobs_without_work_end_when_they_start() -> None:
    result = run([(1, 5, 0), (1, 5, 10), (1, 5, 0), (1, 6, 0)], "1x1", FIFO, EVENTS)
    assert spans(result) == [(5, 5), (5, 15), (15, 15), (15, 15)]
    assert result["service_gpu_s"] == [0, 10, 0, 0]
    # The GPU of job 0 is free again at 60, but the pass at 60 is over.
    assert spans(run([(1, 5, 0), (1, 5, 10)], "1x1", FIFO, SimConfig(interval_s=60.0))) == [(60, 60), (120, 130)]


def test_jobs_that_never_fit_are_rejected() -> None:
    for config in (EVENTS, SimConfig(interval_s=60.0)):
        result = run([(8, 0, 10), (2, 60, 10)], "1x4", FIFO, config)
        assert result["status"] == ["rejected", "completed"]
        assert spans(result)[1] == (60, 70)
        assert math.isnan(result["first_start_s"][0])
        assert math.isnan(result["finish_s"][0])
        assert run([(8, 0, 10), (5, 3, 1)], "1x4", FIFO, config)["status"] == ["rejected", "rejected"]


# Fractions, wide jobs, GPU types


def test_fraction_needs_one_device_with_enough_left() -> None:
    # 0-50: jobs 0 and 1 share GPU 0, job 2 has half of GPU 1. Then half of each is free: 1.0 in all, but
    # job 3 (0.8) waits until 100.
    jobs = [(1, 0, 100), (1, 0, 50), (1, 0, 100), (1, 60, 10)]
    result = run(jobs, "1x2", BACKFILL, EVENTS, share_milli=[500, 500, 500, 800])
    assert spans(result) == [(0, 100), (0, 50), (0, 100), (100, 110)]
    assert result["service_gpu_s"] == [50, 25, 50, 8]
    # Five times 0.18 fit one device (0.90), six do not; a whole job needs the device for itself.
    result = run([(1, 0, 10)] * 6 + [(1, 0, 5)], "1x1", BACKFILL, EVENTS, share_milli=[180] * 6 + [1000])
    assert result["first_start_s"] == [0, 0, 0, 0, 0, 10, 20]


def test_fractions_do_not_evict_but_are_evicted() -> None:
    # Job 1 is shorter than the whole job 0 and waits for it all the same; at 50 jobs 1 and 2 start on devices
    # of their own (0.5 + 0.6 > 1). Job 3 takes both from 60 to 70: 50 + 45 + 10 and 50 + 100 + 10.
    jobs = [(2, 0, 50), (1, 10, 45), (1, 10, 100), (2, 60, 10)]
    result = run(jobs, "1x2", SHORTEST, FREE, share_milli=[1000, 500, 600, 1000])
    assert spans(result) == [(0, 50), (50, 105), (50, 160), (60, 70)]


def test_quota_counts_shares() -> None:
    # 2 GPUs, least work first: 0.5 + 0.75 + 0.75 = 2 are kept, the fourth (0.5) exceeds the quota.
    config = SimConfig(interval_s=0.0, placement="count")
    jobs = [(1, 0, 40), (1, 0, 10), (1, 0, 20), (1, 0, 30)]
    result = run(jobs, "1x2", SHORTEST, config, share_milli=[500, 500, 750, 750])
    # Of the kept ones job 3 (0.75) finds 0.5 and 0.25 free and waits until job 1 ends; at 10 the quota
    # holds job 0 too, but 0.25 and 0.25 are free until job 2 ends.
    assert result["first_start_s"] == [20, 0, 0, 10]


@pytest.mark.parametrize(
    ("cluster", "held", "num_gpus", "placement", "expected"),
    [
        ("1x8+2x4", {0: 6, 1: 1}, 2, "consolidated", {0: 2}),  # 2, 3 and 4 free: the fullest
        ("1x8+2x4", {0: 6}, 4, "consolidated", {1: 4}),  # ties: the first node
        ("2x4", {0: 2, 1: 3}, 3, "consolidated", None),  # 2 + 1 free
        ("2x4", {0: 2, 1: 3}, 3, "count", {0: 2, 1: 1}),
        ("1x8+2x4", {}, 12, "consolidated", {0: 8, 1: 4}),
        ("2x4+1x8", {}, 12, "consolidated", {2: 8, 0: 4}),  # the largest first
        ("1x8+1x7+1x4", {}, 14, "consolidated", {0: 8, 1: 6}),  # 6 more: not 4 + 2
        ("1x8+1x7+1x4", {1: 1}, 14, "consolidated", {0: 8, 2: 4, 1: 2}),  # idle nodes first
        ("1x8+2x4", {0: 1}, 12, "consolidated", {1: 4, 2: 4, 0: 4}),
        ("1x8+2x4", {0: 5}, 12, "consolidated", None),  # 4 + 4 and 3 free for the other 4
        ("2x8", {1: 1}, 10, "consolidated", {0: 8, 1: 2}),
        ("1x2+1x4", {}, 3, "spread", {1: 2, 0: 1}),  # free: 2 and 4, 2 and 3, 2 and 2 (the first)
        ("3x4", {0: 2}, 4, "spread", {1: 2, 2: 2}),
        ("1x4:A+2x4:B", {}, 3, "spread", {1: 2, 2: 1}),  # B has more free
        ("1x4:A+2x4:B", {}, 3, "count", {0: 3}),  # A is the first with enough
        ("1x4:A+1x4:B", {}, 4, "count", {0: 4}),
        ("1x4:A+1x4:B", {0: 1}, 4, "count", {1: 4}),
        ("1x4:A+1x4:B", {}, 5, "count", None),  # one type at a time
        ("2x4:A+1x8:B", {2: 5}, 6, "consolidated", None),  # never two nodes of A while B could hold it on one
        ("2x4:A+1x8:B", {}, 6, "consolidated", {2: 6}),
        ("2x4:A+4x4:B", {0: 1}, 8, "consolidated", {2: 4, 3: 4}),
    ],
)
def test_placement(cluster: str, held: dict[int, int], num_gpus: int, placement: Any, expected: Any) -> None:
    devices = Devices(ClusterSpec.parse(cluster))
    for node, count in held.items():
        devices.give(a_job(90 + node, count), devices.free_on(node)[:count])
    found = devices.find(a_job(0, num_gpus), SimConfig(placement=placement), seed=0)
    assert (None if found is None else nodes_of(devices, found)) == expected


def a_job(job_id: int, num_gpus: int, share_milli: int = 1000) -> Job:
    return Job(job_id, 0.0, num_gpus, share_milli, 1.0, "", True, 1.0, 1.0)


def nodes_of(devices: Devices, found: list[int]) -> dict[int, int]:
    nodes = [devices.node_of[d] for d in found]
    return {node: nodes.count(node) for node in nodes}


def test_fraction_goes_to_the_fullest_device_that_fits() -> None:
    devices = Devices(ClusterSpec.parse("1x2+1x1"))
    devices.give(a_job(90, 1, share_milli=500), [0])
    devices.give(a_job(91, 1, share_milli=600), [1])
    for share, device in [(300, 1), (400, 1), (450, 0), (501, 2)]:
        assert devices.find(a_job(0, 1, share_milli=share), SimConfig(), seed=0) == [device]


def test_random_placement_fills_nodes_in_a_drawn_order() -> None:
    devices = Devices(ClusterSpec.parse("4x2"))
    job = a_job(3, 5)
    for job.num_starts in range(5):
        drawn = sorted(range(4), key=lambda n: uniform(1, Purpose.PLACEMENT, 3 * 65536 + n, job.num_starts))
        found = devices.find(job, SimConfig(placement="random"), seed=1)
        assert found is not None
        assert nodes_of(devices, found) == {drawn[0]: 2, drawn[1]: 2, drawn[2]: 1}


def test_two_gpu_types() -> None:
    # 4 V100 and 8 T4. Job 0 takes the V100s. Job 1 (any) and job 2 (8, any) share no node: job 2 waits.
    # Job 3 waits for a V100; jobs 4-6 never fit: 6 V100, 10 of one type, an unknown type.
    jobs = [(4, 0, 100), (4, 0, 50), (8, 1, 10), (2, 2, 10), (6, 3, 1), (10, 4, 1), (1, 5, 1)]
    types = ["V100", "", "", "V100", "V100", "", "A100"]
    result = run(jobs, "1x4:V100+1x8:T4", BACKFILL, EVENTS, gpu_type=types)
    assert spans(result)[:4] == [(0, 100), (0, 50), (50, 60), (100, 110)]
    assert result["status"] == ["completed"] * 4 + ["rejected"] * 3


def test_running_job_counts_against_its_own_type() -> None:
    # Job 0 runs on the A node, so that job 1 finds all of B within its quota.
    config = SimConfig(interval_s=0.0, placement="count")
    assert spans(run([(2, 0, 100), (4, 10, 200)], "1x2:A+1x4:B", SHORTEST, config)) == [(0, 100), (10, 210)]


def test_chosen_job_starts_on_the_type_it_was_charged_to() -> None:
    # Job 0 (any type) is charged to A, the first type with a GPU, and starts there; one A is left, so job 1 (two A)
    # waits and job 2 (one A) starts. A job charged to B but placed on A would leave a device of both idle.
    config = SimConfig(interval_s=0.0, placement="count")
    jobs = [(1, 0, 100), (2, 0, 100), (1, 0, 100)]
    result = run(jobs, "1x2:A+1x4:B", SRTF, config, gpu_type=["", "A", "A"])
    assert spans(result) == [(0, 100), (100, 200), (0, 100)]


# Orders


def test_orders_by_what_is_known_of_the_duration() -> None:
    jobs = [(1, 0, 30), (1, 0, 10), (1, 0, 20)]
    for config, starts in [
        (SimConfig(interval_s=0.0, durations="oracle"), [30, 0, 10]),
        (SimConfig(interval_s=0.0, durations="estimate"), [0, 50, 30]),
        (SimConfig(interval_s=0.0, durations="unknown"), [0, 30, 40]),
    ]:
        result = run(jobs, "1x1", ListOrder(Key.DURATION), config, estimate_s=[5.0, 99.0, 50.0])
        assert result["first_start_s"] == starts


def test_missing_estimates_are_drawn() -> None:
    drawn = [helios_estimate(3, j, 10.0) for j in range(8)]
    config = SimConfig(interval_s=0.0, durations="estimate")
    result = run([(1, 0, 10)] * 8, "1x1", ListOrder(Key.DURATION), config, seed=3)
    assert sorted(range(8), key=lambda j: result["first_start_s"][j]) == sorted(range(8), key=lambda j: drawn[j])


def test_random_order_is_the_drawn_one() -> None:
    result = run([(1, 0, 10)] * 6, "1x1", ListOrder(Key.RANDOM), EVENTS, seed=5)
    drawn = sorted(range(6), key=lambda j: uniform(5, Purpose.ORDER, j, 0))
    assert sorted(range(6), key=lambda j: result["first_start_s"][j]) == drawn


def test_least_attained_service_takes_turns() -> None:
    # Service of (0, 1) at each pass: 5 (5, 0) to 1; 10 (5, 5) tie to 0; 20 (15, 5) to 1; 30 (15, 15) to 0;
    # 40 (25, 15) to 1, which has 5 s left; 45 to 0, which has 5 s left.
    order = ListOrder(Key.SERVICE, preemptive=True, quantum_s=10.0)
    result = run([(1, 0, 30), (1, 5, 20)], "1x1", order, FREE)
    assert spans(result) == [(0, 50), (5, 45)]
    assert result["num_preemptions"] == [3, 2]


@pytest.mark.parametrize(("values", "expected"), [((5.0, 1.0), [(0, 40), (10, 20)]), ((1.0, 5.0), [(0, 30), (30, 40)])])
def test_gittins_prefers_the_higher_value(values: tuple[float, ...], expected: list[Any]) -> None:
    # Job 0 reaches level 1 at 10.
    order = ListOrder(Key.GITTINS, preemptive=True, limits=(10.0,), values=values)
    assert spans(run([(1, 0, 30), (1, 5, 10)], "1x1", order, FREE)) == expected


def test_within_a_level_the_first_start_decides() -> None:
    # Job 2 starts at 2 and reaches 10 GPU-s at 12; job 1, which arrived before it, then starts and reaches
    # 10 GPU-s at 17. Both are on level 1: job 2 (start 2) takes its GPU back from job 1 (start 12).
    order = ListOrder(Key.LEVEL, preemptive=True, limits=(10.0,))
    result = run([(1, 0, 5), (2, 1, 30), (1, 2, 30)], "1x2", order, FREE)
    assert spans(result) == [(0, 5), (12, 62), (2, 37)]


def test_waiting_time_for_promotion_is_kept_over_resumes() -> None:
    # Job 0 reaches level 1 at 40, waits 40-50 and from 60 on with 50 GPU-s: it is promoted when it has
    # waited 50 s in all, at 100. So it precedes job 4, which arrives at 105, when job 3 ends at 125.
    # From 125 it has level 0 for 40 s, then job 4 runs 165-175, then the last 10 s of job 0.
    order = ListOrder(Key.LEVEL, preemptive=True, limits=(40.0,), promote=1.0)
    result = run([(1, 0, 100), (1, 40, 10), (1, 60, 35), (1, 90, 30), (1, 105, 10)], "1x1", order, FREE)
    assert spans(result) == [(0, 185), (40, 50), (60, 95), (95, 125), (165, 175)]


# Random cases


class WatchedRun(Run):
    """Checks after every pass that the devices are held as the jobs say and within their capacity."""

    def schedule(self) -> None:
        super().schedule()
        for holders in self.devices.holders:
            assert sum(holders.values()) <= 1000
        for job in self.running():
            assert len(set(job.devices)) == job.num_gpus
            assert all(self.devices.holders[d][job.job_id] == job.share_milli for d in job.devices)
            (gpu_type,) = {self.devices.type_of[n] for n in self.nodes_of(job)}
            assert job.gpu_type in ("", gpu_type)
        assert sum(map(len, self.devices.holders)) == sum(job.num_gpus for job in self.running())


@pytest.mark.parametrize("case", [random_case, near_real_case])
def test_conservation_on_random_cases(case: Any) -> None:
    seen = {"completed": 0, "rejected": 0}
    for seed in range(100):
        trace, cluster, order, config = case(seed)
        simulation = WatchedRun(trace, cluster, order, config, seed)
        simulation.play()
        for job in simulation.jobs:
            seen[job.status] += 1
            if job.status == "rejected":
                continue
            held = job.finish_s - job.arrival_s - job.queueing_delay_s
            assert job.service_gpu_s == pytest.approx(job.request * held, abs=1e-6)
            assert job.done + (job.finish_s - job.anchor) == pytest.approx(job.work, abs=1e-6)
            lost_or_paused = held - job.work
            if simulation.config.checkpoint_s == 0 and simulation.config.rescale_cost == "constant":
                assert job.paused_gpu_s == pytest.approx(job.request * lost_or_paused, abs=1e-6)
            assert job.preemptible or job.num_preemptions == job.num_rescales == 0
            assert order.preemptive or job.num_preemptions == job.num_rescales == 0
    assert min(seen.values()) > 100
