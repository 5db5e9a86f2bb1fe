"""Schedules of a few jobs for docs/validation.md: made cases of two simulators, and single jobs of a third."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from baselines.tiresias import Tiresias
from docs.validation_runs import SHARED
from envs.order import Key, ListOrder
from envs.simulate import simulate
from envs.spec import ClusterSpec, SimConfig
from traces.measured import read_profiles
from traces.profiles import ModelProfile
from traces.trace import make_trace


@dataclass(frozen=True)
class Ordered:
    """A list scheduler of any order."""

    rule: ListOrder
    name: ClassVar[str] = "ordered"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"

    def order(self) -> ListOrder:
        return self.rule


@dataclass(frozen=True)
class Tiny:
    """A case of a few jobs under one schedule: the largest difference of any start or end [s], and why there is one."""

    case: str
    schedule: str
    jobs: int
    apart_s: float
    preemptions_equal: bool
    cause: str


LIMITS = (3250.0, 7200.0)


def _las(promote: float = 0.0) -> ListOrder:
    return ListOrder(Key.LEVEL, preemptive=True, limits=LIMITS, promote=promote)


FIFO, SRTF = ListOrder(Key.ARRIVAL), ListOrder(Key.REMAINING, preemptive=True)
TIRESIAS: Mapping[str, ListOrder] = {
    "fifo": FIFO,
    "fjf": ListOrder(Key.ARRIVAL, backfill=True),
    "sjf": ListOrder(Key.NUM_GPUS, preemptive=True),
    "shortest": SRTF,
    "shortest-gpu": ListOrder(Key.REMAINING_GPU_TIME, preemptive=True),
    "dlas": _las(),
    "dlas-gpu": _las(),
    "dlas-gpu-05": _las(0.5),
    "dlas-gpu-1": _las(1.0),
    "dlas-gpu-2": _las(2.0),
    "dlas-gpu-1000": _las(1000.0),
}
HELIOS = {"fifo": FIFO, "sjf": ListOrder(Key.DURATION), "qssf": ListOrder(Key.GPU_TIME), "srtf": SRTF}


def tiny_tiresias() -> list[Tiny]:
    """The Tiresias simulator on a few jobs; its gittins, which is inverted, is left out."""
    found = []
    for case in _cases("tiny_cases.json"):
        shape = case["cluster"]
        cluster = f"{shape['num_switch'] * shape['nodes_per_switch']}x{shape['gpus_per_node']}"
        wide = any(job["num_gpu"] > 1 for job in case["jobs"])
        for schedule, expected in case["expected"].items():
            name, scheme = schedule.split("/")
            if name not in TIRESIAS:
                continue
            # yarn takes the first node that fits, we the fullest: the same node in these cases.
            sim = SimConfig(interval_s=0.0, on_event=True, rescale_s=0.0)
            sim = SimConfig(compat="tiresias") if scheme == "count" else sim
            cause = "the original counts seconds, we GPU-seconds" if name == "dlas" and wide else ""
            cause = (
                "the original finds out late that a wide job crossed the limit"
                if name == "dlas-gpu" and wide
                else cause
            )
            found.append(_tiny(case, schedule, cluster, TIRESIAS[name], sim, expected["jobs"], cause))
    return found


def tiny_helios() -> list[Tiny]:
    """The simulator of the Helios paper on a few jobs."""
    return [
        _tiny(
            case,
            schedule,
            f"{case['nodes']}x{case['gpus_per_node']}",
            HELIOS[schedule],
            SimConfig(compat="helios"),
            expected,
            _late(case["name"]) if schedule == "srtf" else "",
        )
        for case in _cases("tiny_cases_helios.json")
        for schedule, expected in case["expected"].items()
    ]


def _late(case: str) -> str:
    tick = "the original ends every run a tick of 1 s late, which adds up"
    return f"{tick}; here it also decides a tie between a newcomer and a job in progress" if "wide" in case else tick


def _cases(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((SHARED / "reference/tiresias" / name).read_text())
    return cases


def _tiny(
    case: dict[str, Any],
    schedule: str,
    cluster: str,
    rule: ListOrder,
    sim: SimConfig,
    expected: dict[str, dict[str, Any]],
    cause: str,
) -> Tiny:
    columns = {"arrival_s": "submit_time", "num_gpus": "num_gpu", "duration_s": "duration"}
    trace = make_trace(case["name"], {ours: [job[theirs] for job in case["jobs"]] for ours, theirs in columns.items()})
    jobs = simulate(trace, ClusterSpec.parse(cluster), Ordered(rule), sim).jobs
    wanted = np.array([(job["start"], job["end"], job["preempt"]) for job in expected.values()], np.float64)
    apart = np.abs(jobs[["first_start_s", "finish_s"]].to_numpy() - wanted[:, :2]).max()
    same = bool((jobs["num_preemptions"].to_numpy() == wanted[:, 2]).all())
    return Tiny(case["name"], schedule, len(jobs), float(apart), same, cause if apart > 0 else "")


def single_jobs() -> list[tuple[str, float, float, int]]:
    """One job alone on 16x4 in DeepBoot's simulator under tiresias: name, our completion, theirs [s], epochs."""
    profiles = read_profiles(SHARED / "data/profiles/deepboot")
    sim = SimConfig(interval_s=60.0, rescale_cost="restart", placement="emptiest")
    return [
        (case["job"], _alone(case["job"], sim, profiles), case["completion"], _epochs(case["job"], profiles))
        for case in json.loads((SHARED / "reference/deepboot/golden_single_job_tiresias.json").read_text())
    ]


def _epochs(job: str, profiles: Mapping[str, ModelProfile]) -> int:
    return len(profiles[job.split("_")[0]].progress)


def _alone(job: str, sim: SimConfig, profiles: Mapping[str, ModelProfile]) -> float:
    model, gpus, batch = job.split("_")
    trace = make_trace(job, {"arrival_s": [1.0], "num_gpus": [int(gpus)], "model": [model], "batch_size": [int(batch)]})
    jobs = simulate(trace, ClusterSpec.parse("16x4"), Tiresias(), sim, profiles=profiles).jobs
    return float(jobs["finish_s"].iloc[0])
