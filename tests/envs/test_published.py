"""Both simulators against published ones: tiny cases job by job, traces by their averages."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from baselines.fifo import Fifo, FifoBackfill
from baselines.smallest import Smallest
from baselines.srtf import Srtf, SrtfGpu
from baselines.tiresias import Tiresias
from envs.order import Key, ListOrder
from envs.reference import simulate_reference
from envs.scheduler import ListScheduler
from envs.simulate import simulate
from envs.spec import ClusterSpec, SimConfig
from tests.envs.core_support import Listed
from traces.trace import Trace, make_trace

SIXTY, SYNTH = "data/traces/tiresias/60_job.csv", "reference/tiresias/480_synth_trace.csv"
LIMITS = (3250.0, 7200.0)
FIFO = ListOrder(Key.ARRIVAL)
SRTF = ListOrder(Key.REMAINING, preemptive=True)
LAS_2D = ListOrder(Key.LEVEL, preemptive=True, limits=LIMITS)
TIRESIAS = {
    "fifo": FIFO,
    "fjf": ListOrder(Key.ARRIVAL, backfill=True),
    "sjf": ListOrder(Key.NUM_GPUS, preemptive=True),
    "shortest": SRTF,
    "shortest-gpu": ListOrder(Key.REMAINING_GPU_TIME, preemptive=True),
    "dlas": LAS_2D,
    "dlas-gpu": LAS_2D,
    "dlas-gpu-05": ListOrder(Key.LEVEL, preemptive=True, limits=LIMITS, promote=0.5),
    "dlas-gpu-1": ListOrder(Key.LEVEL, preemptive=True, limits=LIMITS, promote=1.0),
    "dlas-gpu-2": ListOrder(Key.LEVEL, preemptive=True, limits=LIMITS, promote=2.0),
    "dlas-gpu-1000": ListOrder(Key.LEVEL, preemptive=True, limits=LIMITS, promote=1000.0),
}
HELIOS = {"fifo": FIFO, "sjf": ListOrder(Key.DURATION), "qssf": ListOrder(Key.GPU_TIME), "srtf": SRTF}
FREE = SimConfig(interval_s=0.0, on_event=True, rescale_s=0.0)
# Their rules as the issue names them: count placement, no pauses.
COUNT = SimConfig(interval_s=0.0, on_event=True, rescale_s=0.0, placement="count")
AS_TIRESIAS = SimConfig(compat="tiresias")
AS_HELIOS = SimConfig(compat="helios")

# First start, finish and preemptions of each job.
Outcome = tuple[list[tuple[float, float]], list[int]]
Play = Callable[[Trace, str, ListOrder, SimConfig], Outcome]


@pytest.fixture(autouse=True)
def few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start with 64 slots, so that 480 jobs need no wider record than the other tests do."""
    monkeypatch.setattr("envs.simulate.FIRST_SLOTS", 64)


def play_reference(trace: Trace, cluster: str, order: ListOrder, config: SimConfig) -> Outcome:
    result = simulate_reference(trace, ClusterSpec.parse(cluster), order, config)
    return list(zip(result["first_start_s"], result["finish_s"], strict=True)), result["num_preemptions"]


def play_core(trace: Trace, cluster: str, order: ListOrder, config: SimConfig) -> Outcome:
    jobs = simulate(trace, ClusterSpec.parse(cluster), Listed(order), config).jobs
    return list(zip(jobs["first_start_s"], jobs["finish_s"], strict=True)), jobs["num_preemptions"].tolist()


both = pytest.mark.parametrize("play", [play_reference, play_core], ids=["reference", "core"])


def jobs_of(table: pd.DataFrame) -> Trace:
    return make_trace(
        "published",
        {"arrival_s": table["submit_time"], "num_gpus": table["num_gpu"], "duration_s": table["duration"]},
    )


def mean_jct(trace: Trace, spans: list[tuple[float, float]]) -> float:
    return float((pd.Series([finish for _, finish in spans]) - trace.jobs["arrival_s"]).mean())


def tiny_cases(shared: Path, name: str) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    for case in json.loads((shared / "reference" / "tiresias" / name).read_text()):
        for schedule, expected in case["expected"].items():
            yield case, schedule, expected


@both
def test_tiresias_tiny_cases(play: Play, shared: Path) -> None:
    compared = 0
    for case, schedule, expected in tiny_cases(shared, "tiny_cases.json"):
        name, scheme = schedule.split("/")
        one_gpu = all(job["num_gpu"] == 1 for job in case["jobs"])
        # gittins is inverted in the original; dlas counts seconds; the quirk case has a test of its own.
        if "gittins" in name or (name == "dlas" and not one_gpu) or "quirk" in case["name"]:
            continue
        shape = case["cluster"]
        cluster = f"{shape['num_switch'] * shape['nodes_per_switch']}x{shape['gpus_per_node']}"
        # yarn takes the first node that fits, we the fullest: the same node in the one yarn case.
        config = AS_TIRESIAS if scheme == "count" else FREE
        spans, preemptions = play(jobs_of(pd.DataFrame(case["jobs"])), cluster, TIRESIAS[name], config)
        wanted = expected["jobs"].values()
        assert spans == [(job["start"], job["end"]) for job in wanted], (case["name"], schedule)
        assert preemptions == [job["preempt"] for job in wanted], (case["name"], schedule)
        compared += 1
    assert compared == 22


@both
def test_wide_job_is_demoted_when_its_gpu_time_reaches_the_limit(play: Play) -> None:
    # 4 GPUs x 812.5 s = 3250 GPU-s; the original finds out at 1375 (tiresias_gavel_helios.md 1.3).
    jobs = {"num_gpu": [4, 4, 1], "submit_time": [0, 700, 750], "duration": [2000, 500, 100]}
    # Job 1 runs 812.5-1312.5, then job 2 100 s, then what is left of job 0: 1412.5 + 2000 - 812.5.
    spans, _ = play(jobs_of(pd.DataFrame(jobs)), "1x4", LAS_2D, AS_TIRESIAS)
    assert spans == [(0, 2600), (812.5, 1312.5), (1312.5, 1412.5)]


@both
def test_helios_tiny_cases(play: Play, shared: Path) -> None:
    compared = 0
    for case, schedule, expected in tiny_cases(shared, "tiny_cases_helios.json"):
        tie = schedule == "srtf" and case["name"].startswith("wide")
        case = copy.deepcopy(case)
        if tie:
            # At 30 s jobs 1 and 3 both have 30 s left. The original takes the newcomer, since it ends
            # every run a tick late and so counts 31 s for job 1; a second less makes that our order too.
            case["jobs"][3]["duration"] -= 1
        cluster = f"{case['nodes']}x{case['gpus_per_node']}"
        spans, preemptions = play(jobs_of(pd.DataFrame(case["jobs"])), cluster, HELIOS[schedule], AS_HELIOS)
        wanted = list(expected.values())
        assert preemptions == [job["preempt"] for job in wanted], (case["name"], schedule)
        # Late ticks add up along a chain of runs, of which there are one a job and one a preemption.
        late = len(wanted) + sum(job["preempt"] for job in wanted) + tie if schedule == "srtf" else 0
        for got, job in zip(spans, wanted, strict=True):
            assert 0 <= job["start"] - got[0] <= late, (case["name"], schedule)
            assert 0 <= job["end"] - got[1] <= late, (case["name"], schedule)
        compared += 1
    assert compared == 16


@both
@pytest.mark.parametrize(
    ("path", "cluster", "schedule", "mean", "preempted"),
    [
        (SIXTY, "2x4", "fifo", 1556.483, 0),
        (SIXTY, "2x4", "fjf", 715.267, 0),
        (SIXTY, "2x4", "sjf", 725.700, 8),
        (SIXTY, "2x4", "shortest", 519.867, 7),
        (SIXTY, "2x4", "shortest-gpu", 563.383, 13),
        (SIXTY, "2x4", "dlas-gpu", 715.267, 0),
        (SYNTH, "15x4", "fifo", 605.808, 0),
        (SYNTH, "15x4", "fjf", 559.183, 0),
        (SYNTH, "15x4", "sjf", 575.025, 38),
        (SYNTH, "15x4", "shortest", 539.760, 190),
        (SYNTH, "15x4", "shortest-gpu", 536.765, 98),
    ],
)
def test_tiresias_traces(
    play: Play, shared: Path, path: str, cluster: str, schedule: str, mean: float, preempted: int
) -> None:
    trace = jobs_of(pd.read_csv(shared / path))
    spans, preemptions = play(trace, cluster, TIRESIAS[schedule], AS_TIRESIAS)
    assert round(mean_jct(trace, spans), 3) == mean
    assert sum(preemptions) == preempted


@both
def test_tiresias_2d_las_is_near_the_original(play: Play, shared: Path) -> None:
    # 567.304 s here. The original (564.060 s) demotes wide jobs late; its other rules with exact
    # crossings give 567.953 s, and on attained seconds the contract's order equals it to the job.
    trace = jobs_of(pd.read_csv(shared / SYNTH))
    spans, _ = play(trace, "15x4", LAS_2D, AS_TIRESIAS)
    assert mean_jct(trace, spans) == pytest.approx(564.060, rel=0.01)


@pytest.mark.parametrize(
    ("path", "cluster", "scheduler", "mean", "tolerance"),
    [
        (SIXTY, "2x4", Fifo(), 1556.483, 0.01),
        (SIXTY, "2x4", FifoBackfill(), 715.267, 0.01),
        (SIXTY, "2x4", Smallest(), 725.700, 0.01),
        (SIXTY, "2x4", Srtf(), 519.867, 0.01),
        (SIXTY, "2x4", SrtfGpu(), 563.383, 0.01),
        (SYNTH, "15x4", Fifo(), 605.808, 0.01),
        (SYNTH, "15x4", FifoBackfill(), 559.183, 0.01),
        (SYNTH, "15x4", Srtf(), 539.760, 0.01),
        (SYNTH, "15x4", SrtfGpu(), 536.765, 0.01),
        (SYNTH, "15x4", Tiresias(), 564.060, 5.64),
    ],
    ids=lambda value: getattr(value, "name", None) or Path(str(value)).stem,
)
def test_the_shipped_schedulers(
    shared: Path, path: str, cluster: str, scheduler: ListScheduler, mean: float, tolerance: float
) -> None:
    trace = jobs_of(pd.read_csv(shared / path))
    metrics = simulate(trace, ClusterSpec.parse(cluster), scheduler, COUNT).metrics()
    assert metrics["mean_jct_s"] == pytest.approx(mean, abs=tolerance)
    assert metrics["num_completed"] == len(trace)


@pytest.mark.parametrize("scheduler", [Fifo(), Smallest(), Srtf(), SrtfGpu(), Tiresias()], ids=lambda s: s.name)
def test_the_large_cluster_is_large_enough(shared: Path, scheduler: ListScheduler) -> None:
    """60 jobs on 32 nodes of 4 GPUs, where the original's preemptive rules give up half way (public report A4)."""
    trace = jobs_of(pd.read_csv(shared / SIXTY))
    result = simulate(trace, ClusterSpec.parse("32x4"), scheduler, SimConfig(interval_s=0.0))
    assert (result.jobs["status"] == "completed").all()
