"""Shared by the tests of stragglers in the reference: runs in which components are slow when a test says so."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from envs.order import Key, ListOrder
from envs.reference import Run
from envs.reference_decisions import Chooser, Seen
from envs.spec import ClusterSpec, SimConfig
from tests.envs.elastic_support import model
from traces.profiles import ModelProfile
from traces.trace import Trace, make_trace

FIFO = ListOrder(Key.ARRIVAL)
CALM = SimConfig(interval_s=10.0, rescale_s=0.0, stragglers="shared", gpu_variability=False, straggler_rate=0.0)
Changes = Mapping[tuple[int, int], Sequence[tuple[float, float]]]  # by kind and index: times, and severities from then


class Scripted:
    """A component that is as slow as a test says."""

    def __init__(self, kind: int, node: int, index: int, changes: Sequence[tuple[float, float]]) -> None:
        self.kind, self.node, self.index, self.changes = kind, node, index, list(changes)
        self.severity = 1.0

    @property
    def next_at(self) -> float:
        return self.changes[0][0] if self.changes else math.inf

    def settle(self, chance: float) -> bool:
        self.severity = self.changes.pop(0)[1]
        return True


def rigid(*rows: tuple[int, float, float], comm_share: float = 0.5, **columns: Any) -> Trace:
    """Jobs (num_gpus, arrival_s, duration_s)."""
    gpus, arrivals, durations = zip(*rows, strict=True)
    table = {"num_gpus": gpus, "arrival_s": arrivals, "duration_s": durations, "comm_share": [comm_share] * len(rows)}
    return make_trace("hand", {**table, **columns})


def begin(trace: Trace, cluster: str, scheduler: Any = FIFO, config: SimConfig = CALM, **others: Any) -> Run:
    profiles: dict[str, ModelProfile] = others.pop("profiles", {"m": model(100)})
    return Run(trace, ClusterSpec.parse(cluster), scheduler, config, others.pop("seed", 0), profiles, **others)


def play(trace: Trace, cluster: str, changes: Changes, *args: Any, **others: Any) -> Run:
    """A whole run with these components, all others being normal."""
    run = begin(trace, cluster, *args, **others)
    assert run.stragglers is not None
    for (kind, index), own in changes.items():
        node = run.stragglers.components[kind, index].node
        run.stragglers.components[kind, index] = Scripted(kind, node, index, own)  # type: ignore[assignment]
    run.stragglers.chance = lambda component, now: 0.0  # type: ignore[method-assign]
    run.play()
    return run


def facts(run: Run, *names: str, job: int = 0) -> tuple[Any, ...]:
    return tuple(getattr(run.jobs[job], name) for name in names)


def accounts(run: Run, job: int = 0) -> tuple[float, float, float, float]:
    """Finish, lost and straggling GPU-seconds, seconds slowed down."""
    return facts(run, "finish_s", "lost_gpu_s", "straggling_gpu_s", "slowed_s", job=job)  # type: ignore[return-value]


def moves(**answers: dict[int, Any]) -> Chooser:
    """Follow {time: {job: its answer}}, times written t10; between them everybody stays."""

    def choose(now: float, index: int, seen: list[Seen], nodes: list[int]) -> dict[int, Any]:
        wanted: dict[int, Any] = {job.job_id: (job.gpus, None) for job in seen}
        return {**wanted, **answers.get(f"t{now:g}", {})}

    return choose


def placed(*rows: tuple[int, ...]) -> Chooser:
    """Each job on these numbers of GPUs of each node."""

    def choose(now: float, index: int, seen: list[Seen], nodes: list[int]) -> dict[int, Any]:
        return {job.job_id: (sum(rows[job.job_id]), rows[job.job_id]) for job in seen}

    return choose
