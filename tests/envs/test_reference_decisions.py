"""Who gets which GPUs in the reference simulator, worked by hand: decisions, lists, compat pollux."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from envs.order import Key, ListOrder
from envs.reference import Run
from envs.reference_decisions import Chooser, Seen
from envs.reference_devices import Devices
from envs.reference_jobs import Job
from envs.reference_training import Training
from envs.spec import ClusterSpec, SimConfig
from tests.envs.elastic_support import EVENTS, FREE, NAN, counts, jobs, model, play
from tests.envs.random_elastic import chosen_case, listed_case
from traces.trace import Trace

# Decisions


def test_counts_place_rigid_jobs_first_then_the_narrow_ones() -> None:
    # Nodes of 4, 2 and 2 GPUs. Rigid job 0 (2): node 1; then job 2 (1): the fullest node that has it, node 2; then
    # job 1 (4): node 0.
    trace = jobs(("", 2, 0), ("m", 1, 0), ("m", 1, 0), duration_s=[100.0, NAN, NAN])
    held = watch_nodes(trace, "1x4+2x2", counts(t0={0: 2, 1: 4, 2: 1}), FREE)
    assert held[0] == [(0, 2, 0), (4, 0, 0), (0, 0, 1)]
    # After job 1 there are 2 and 3 free: all of node 1, and one more.
    held = watch_nodes(jobs(("m", 2, 0), ("m", 1, 0)), "2x3", counts(t0={0: 4, 1: 1}), FREE)
    assert held[0] == [(1, 3), (1, 0)]


def test_counts_leave_unchanged_jobs_in_place() -> None:
    trace = jobs(("m", 1, 0), ("m", 1, 0), ("m", 1, 10))
    held = watch_nodes(trace, "2x2", counts(t0={0: 2, 1: 1}, t10={0: 1, 1: 1, 2: 1}), FREE)
    # At 0 job 1 takes one GPU of node 0, job 0 node 1. At 10 job 0 lets it go and joins job 1; job 2 finds node 1.
    assert held[0] == [(0, 2), (1, 0), (0, 0)]
    assert held[1] == [(1, 0), (1, 0), (0, 1)]


def watch_nodes(trace: Trace, cluster: str, chooser: Chooser, config: SimConfig) -> list[list[tuple[int, ...]]]:
    """GPUs per node of the jobs after each of the first two passes."""
    held: list[list[tuple[int, ...]]] = []

    def watch(now: float, index: int, seen: list[Seen], nodes: list[int]) -> Any:
        held.append([job.placement for job in seen])
        return chooser(now, index, seen, nodes)

    profile = model(1000, max_batch=100)
    result = play(trace, cluster, watch, config, profile)
    assert set(result["status"]) == {"completed"}
    return held[1:]


@pytest.mark.parametrize(
    ("cluster", "held", "gpus", "placement", "expected"),
    [
        ("1x8+2x4", {0: 6, 1: 1}, 2, "consolidated", {0: 2}),
        ("1x8+2x4", {0: 1}, 4, "consolidated", {1: 4}),
        ("2x4", {0: 2, 1: 3}, 3, "consolidated", {0: 2, 1: 1}),  # most free first
        ("3x4", {0: 2, 1: 1}, 8, "consolidated", {2: 4, 1: 3, 0: 1}),
        ("3x4", {0: 2, 1: 1}, 6, "consolidated", {2: 4, 0: 2}),  # the rest has a node of just 2
        ("1x2:aws+2x4:rtx", {1: 1}, 3, "consolidated", {1: 3}),  # type by type
        ("1x2:aws+2x4:rtx", {1: 1}, 2, "consolidated", {0: 2}),
        ("1x2:aws+2x4:rtx", {0: 1}, 2, "consolidated", {1: 2}),
        ("3x4", {0: 2, 1: 1}, 2, "emptiest", {2: 2}),
        ("3x4", {0: 2, 1: 1}, 8, "emptiest", {2: 4, 1: 3, 0: 1}),
        ("3x4", {0: 2, 1: 1}, 6, "emptiest", {2: 4, 1: 2}),
        ("3x4", {2: 1}, 4, "emptiest", {0: 4}),
        ("1x2+1x4", {}, 3, "spread", {1: 2, 0: 1}),
        ("3x4", {0: 2}, 5, "count", {0: 2, 1: 3}),
        ("2x4", {0: 2, 1: 3}, 4, "consolidated", None),
        ("1x2:aws+1x4:rtx", {}, 5, "emptiest", None),
    ],
)
def test_placement_by_decision(cluster: str, held: dict[int, int], gpus: int, placement: Any, expected: Any) -> None:
    devices = Devices(ClusterSpec.parse(cluster))
    for node, count in held.items():
        devices.give(Job(90 + node, 0.0, count, 1000, 1.0, "", True, 1.0, 1.0), devices.free_on(node)[:count])
    profile = model(1, types="aws rtx")
    nodes = {t: 8 for t in devices.types}
    job = Job(0, 0.0, 1, 1000, NAN, "", True, 1.0, 1.0, training=Training(profile, profile, 1, 8, False, nodes))
    found = devices.find_nodes(job, SimConfig(placement=placement), 0, elastic_gpus=gpus)
    assert (found and {n: count for n, count in found.items() if count}) == expected
    if expected and placement != "spread":
        assert [n for n, count in found.items() if count] == list(expected)  # in the order taken


def test_jobs_use_the_types_of_their_model() -> None:
    # Only rtx has a profile; a V100 is azure, and no cluster here has any dgx.
    profiles = {"m": model(10, types="rtx"), "v": model(10, types="azure"), "d": model(10, types="dgx")}
    trace = jobs(("m", 1, 0), ("v", 1, 0), ("d", 1, 0), ("m", 2, 0), gpu_type=["", "V100", "", ""])
    rule = ListOrder(Key.ARRIVAL, backfill=True)
    result = play(trace, "1x4:aws+1x1:V100+1x1:rtx", rule, EVENTS, model(1), profiles=profiles)
    assert result["status"] == ["completed", "completed", "rejected", "rejected"]
    assert result["finish_s"][:2] == [10, 10]


# Lists


def test_elastic_and_rigid_jobs_in_order_of_estimated_time() -> None:
    # Estimates: 30 (elastic), 20 (rigid), 10 (elastic).
    profiles = {"long": model(30), "short": model(10)}
    trace = jobs(("long", 1, 0), ("", 1, 0), ("short", 1, 0), duration_s=[NAN, 20.0, NAN])
    result = play(trace, "1x1", ListOrder(Key.DURATION), EVENTS, model(1), profiles=profiles)
    assert result["finish_s"] == [60, 30, 10]
    # At 15 the short one, of 10 s, precedes the long one (15 left); at 25 a rigid job of 14 does too.
    trace = jobs(("long", 1, 0), ("short", 1, 15), ("", 1, 25), duration_s=[NAN, NAN, 14.0])
    rule = ListOrder(Key.REMAINING, preemptive=True)
    result = play(trace, "1x1", rule, EVENTS, model(1), profiles=profiles)
    assert result["finish_s"] == [54, 25, 39]


def test_gangs_keep_to_one_node_if_their_request_fits_one() -> None:
    # 1 + 1 GPUs are free: as in 001, the request of 2 waits for job 0.
    trace = jobs(("", 1, 0), ("", 1, 0), ("m", 2, 1), duration_s=[50.0, 60.0, NAN])
    config = replace(EVENTS, placement="consolidated")
    moves = ListOrder(Key.ARRIVAL)
    assert play(trace, "2x2", moves, config, model(10))["first_start_s"] == [0, 0, 1]
    trace = jobs(("", 3, 0), ("", 3, 0), ("m", 2, 1), duration_s=[50.0, 60.0, NAN])
    assert play(trace, "2x4", moves, config, model(10))["first_start_s"] == [0, 0, 50]
    assert play(trace, "2x4", moves, replace(config, placement="emptiest"), model(10))["first_start_s"] == [0, 0, 1]


def test_queues_are_first_in_first_out_by_the_pass_that_moved_a_job() -> None:
    # One GPU a job, limit 25 GPU-s, passes every 10 s. Jobs 0 and 1 run from 0 and cross at 25; the pass at 30 moves
    # both down in their old order, so that jobs 2 and 3 (arrived 5 and 6) run from 30 until they cross at 55, seen at
    # 60. Then 0 and 1 (entered 30) precede 2 and 3 (entered 60) and end at 60 + 70.
    rule = ListOrder(Key.QUEUE, preemptive=True, limits=(25.0,))
    trace = jobs(("m", 1, 0), ("m", 1, 0), ("m", 1, 5), ("m", 1, 6))
    result = play(trace, "1x2", rule, replace(FREE, placement="emptiest"), model(100))
    assert result["finish_s"] == [130, 130, 200, 200]
    assert result["num_preemptions"] == [1, 1, 1, 1]
    # With passes at events a crossing is seen at once.
    trace = jobs(("m", 1, 0), ("m", 1, 0))
    result = play(trace, "1x1", rule, replace(EVENTS, placement="emptiest"), model(40))
    assert result["finish_s"] == [65, 80]  # 0-25, 25-50, 50-65, 65-80


# Compat pollux


POLLUX = SimConfig(interval_s=60.0, rescale_s=0.0, compat="pollux")


@pytest.mark.parametrize(
    ("work", "finish"),
    [
        (30.4, 30),
        (29.6, 30),
        (30.5, 30),  # half to even
        (31.5, 32),
        (59.7, 60),
        (60.0, 60),
        (60.3, 60.000001),  # after the pass at 60, since it lies behind it
        (61.2, 61),
    ],
)
def test_pollux_rounds_to_seconds(work: float, finish: float) -> None:
    result = play(jobs(("m", 1, 0)), "1x1", ListOrder(Key.ARRIVAL), POLLUX, model(work))
    assert result["finish_s"] == [finish]


def test_pollux_rounds_epochs_too_but_no_rigid_jobs() -> None:
    # The first epoch ends at 20, not 20.4, and the second takes 20 s.
    trace = jobs(("m", 1, 0), ("", 1, 0), duration_s=[NAN, 30.4])
    result = play(trace, "1x2", ListOrder(Key.ARRIVAL), POLLUX, model(20.4, 40.4))
    assert result["finish_s"] == [40, 30.4]


def test_pollux_passes_only_at_intervals() -> None:
    trace = jobs(("m", 1, 0), ("m", 1, 10))
    config = replace(POLLUX, on_event=True)
    assert play(trace, "1x1", ListOrder(Key.ARRIVAL), config, model(30))["first_start_s"] == [0, 60]


@dataclass
class Measured:
    """Measured times that note which placements were asked for: 2 s a step, 1 s of it synchronisation."""

    asked: list[tuple[int, ...]] = field(default_factory=list)

    def times(self, placement: tuple[int, ...], local: float) -> tuple[float, float]:
        self.asked.append(placement)
        return 2.0, 1.0


def test_measured_times_and_the_order_of_nodes() -> None:
    for config, placement in [(POLLUX, (3, 2, 1)), (replace(FREE, placement="emptiest"), (1, 2, 3))]:
        measured = Measured()
        profile = model(10)
        profile.types["aws"] = replace(profile.types["aws"], measured=measured)  # type: ignore[arg-type]
        run = Run(
            jobs(("m", 6, 0), batch_size=[100]),
            ClusterSpec.parse("1x1+1x2+1x3"),
            counts(t0={0: 6}),
            config,
            0,
            {"m": profile},
        )
        measured.asked.clear()
        run.play()
        assert set(measured.asked) == {placement}
        # 17 samples a GPU fit a step; 16 in all 96 of at most 100. Gain 12 in 2 s.
        assert run.jobs[0].finish_s == pytest.approx(round(10 / 6) if config is POLLUX else 10 / 6)
    # Three steps of 32 and a fourth: T = step + s (step - sync) = 2 + 3.
    assert Training(profile, profile, 1, 100, False, {"aws": 4}).rate("aws", (1,), 0) == pytest.approx(100 / 8 / 5)


def test_pollux_runs_ncf_on_one_gpu() -> None:
    profile = model(1e6, model="ncf", max_batch=32768, types="aws")
    trace = jobs(("ncf", 2, 0), ("m", 2, 0))
    run = Run(trace, ClusterSpec.parse("1x4"), counts(), POLLUX, 0, {"ncf": profile, "m": model(1)}, tuned=True)
    assert [job.max_gpus for job in run.jobs] == [1, 50]
    assert run.jobs[0].training is not None
    assert run.jobs[0].training.choose_batch("aws", 1, False, 0) == (32, 1023)


# Random cases


@pytest.mark.parametrize("make", [listed_case, chosen_case])
def test_conservation_on_random_cases(make: Any) -> None:
    seen = {"completed": 0, "rejected": 0}
    for seed in range(60):
        case = make(seed)
        run = Run(case.trace, case.cluster, case.scheduler, case.config, seed, case.profiles, case.tuned)
        run.play()
        for job in run.jobs:
            seen[job.status] += 1
            if job.status == "rejected":
                continue
            held = job.finish_s - job.arrival_s - job.queueing_delay_s
            if job.training is None:
                assert job.service_gpu_s == pytest.approx(job.request * held, abs=1e-6)
                continue
            assert held - 1e-6 <= job.service_gpu_s <= job.max_gpus * held + 1e-6
            assert job.paused_gpu_s <= job.service_gpu_s + 1e-6
            assert job.epoch == len(job.training.truth.progress) - 1
            if run.config.compat == "none":  # not rounded
                assert job.done + job.rate * (job.finish_s - job.anchor) == pytest.approx(job.work)
    assert seen["completed"] > 300
    assert seen["rejected"] > 0
