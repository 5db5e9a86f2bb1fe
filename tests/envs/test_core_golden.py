"""The compiled core against published simulators: tiny cases job by job, traces by their averages."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from baselines.fifo import Fifo, FifoBackfill
from baselines.smallest import Smallest
from baselines.srtf import Srtf, SrtfGpu
from baselines.tiresias import Tiresias
from envs.simulate import simulate
from envs.spec import ClusterSpec, SimConfig
from envs.view import ListScheduler
from tests.envs.core_support import Listed, spans
from tests.envs.test_reference import AS_HELIOS, AS_TIRESIAS, FREE, HELIOS, TIRESIAS, jobs_of, tiny_cases

SIXTY, SYNTH = "data/traces/tiresias/60_job.csv", "reference/tiresias/480_synth_trace.csv"
# Their rules as the issue names them: count placement, no pauses.
COUNT = SimConfig(interval_s=0.0, on_event=True, rescale_s=0.0, placement="count")


@pytest.fixture(autouse=True)
def few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start with 64 slots, so that 480 jobs need no wider record than the other tests do."""
    monkeypatch.setattr("envs.simulate.FIRST_SLOTS", 64)


def test_tiresias_tiny_cases(shared: Path) -> None:
    compared = 0
    for case, schedule, expected in tiny_cases(shared, "tiny_cases.json"):
        name, scheme = schedule.split("/")
        one_gpu = all(job["num_gpu"] == 1 for job in case["jobs"])
        # The exceptions are those of tests/envs/test_reference.py, and explained there.
        if "gittins" in name or (name == "dlas" and not one_gpu) or "quirk" in case["name"]:
            continue
        shape = case["cluster"]
        cluster = ClusterSpec.parse(f"{shape['num_switch'] * shape['nodes_per_switch']}x{shape['gpus_per_node']}")
        config = AS_TIRESIAS if scheme == "count" else FREE
        result = simulate(jobs_of(pd.DataFrame(case["jobs"])), cluster, Listed(TIRESIAS[name]), config)
        wanted = expected["jobs"].values()
        assert spans(result) == [(job["start"], job["end"]) for job in wanted], (case["name"], schedule)
        assert result.jobs["num_preemptions"].tolist() == [job["preempt"] for job in wanted], (case["name"], schedule)
        compared += 1
    assert compared == 22


def test_helios_tiny_cases(shared: Path) -> None:
    compared = 0
    for case, schedule, expected in tiny_cases(shared, "tiny_cases_helios.json"):
        tie = schedule == "srtf" and case["name"].startswith("wide")
        case = copy.deepcopy(case)
        if tie:  # see tests/envs/test_reference.py
            case["jobs"][3]["duration"] -= 1
        cluster = ClusterSpec.parse(f"{case['nodes']}x{case['gpus_per_node']}")
        result = simulate(jobs_of(pd.DataFrame(case["jobs"])), cluster, Listed(HELIOS[schedule]), AS_HELIOS)
        wanted = list(expected.values())
        preemptions = [job["preempt"] for job in wanted]
        assert result.jobs["num_preemptions"].tolist() == preemptions, (case["name"], schedule)
        # The original ends each run of its SRTF a tick late.
        late = len(wanted) + sum(preemptions) + tie if schedule == "srtf" else 0
        for got, job in zip(spans(result), wanted, strict=True):
            assert 0 <= job["start"] - got[0] <= late, (case["name"], schedule)
            assert 0 <= job["end"] - got[1] <= late, (case["name"], schedule)
        compared += 1
    assert compared == 16


@pytest.mark.parametrize(
    ("path", "cluster", "scheduler", "mean_jct"),
    [
        (SIXTY, "2x4", Fifo(), 1556.483),
        (SIXTY, "2x4", FifoBackfill(), 715.267),
        (SIXTY, "2x4", Smallest(), 725.700),
        (SIXTY, "2x4", Srtf(), 519.867),
        (SIXTY, "2x4", SrtfGpu(), 563.383),
        (SYNTH, "15x4", Fifo(), 605.808),
        (SYNTH, "15x4", FifoBackfill(), 559.183),
        (SYNTH, "15x4", Srtf(), 539.760),
        (SYNTH, "15x4", SrtfGpu(), 536.765),
    ],
    ids=lambda value: getattr(value, "name", None) or Path(str(value)).stem,
)
@pytest.mark.parametrize("config", [COUNT, SimConfig(compat="tiresias")], ids=["count", "compat"])
def test_averages(
    shared: Path, path: str, cluster: str, scheduler: ListScheduler, mean_jct: float, config: SimConfig
) -> None:
    trace = jobs_of(pd.read_csv(shared / path))
    result = simulate(trace, ClusterSpec.parse(cluster), scheduler, config)
    assert result.metrics()["mean_jct_s"] == pytest.approx(mean_jct, abs=0.01)
    assert result.metrics()["num_completed"] == len(trace)


def test_tiresias_is_near_the_original(shared: Path) -> None:
    trace = jobs_of(pd.read_csv(shared / SYNTH))
    result = simulate(trace, ClusterSpec.parse("15x4"), Tiresias(), COUNT)
    assert result.metrics()["mean_jct_s"] == pytest.approx(564.060, rel=0.01)
    assert sum(result.jobs["num_preemptions"]) > 0


def test_every_scheduler_finishes_on_the_large_cluster(shared: Path) -> None:
    """60 jobs on 32 nodes of 4 GPUs, where the original's preemptive rules end with "not large enough"."""
    trace: Any = jobs_of(pd.read_csv(shared / SIXTY))
    for scheduler in (Fifo(), Smallest(), Srtf(), SrtfGpu(), Tiresias()):
        result = simulate(trace, ClusterSpec.parse("16x4"), scheduler, SimConfig(interval_s=0.0))
        assert (result.jobs["status"] == "completed").all()
