"""The reference simulator, counting how often the rules of docs/design/006-full.md make a difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from unittest.mock import patch

from envs.reference import Run
from envs.reference_inference import Inference
from envs.reference_jobs import Job
from envs.reference_stragglers import Component, Stragglers
from envs.straggler_presets import GPU, KINDS, NET

SLOWER = 1 - 1e-9


class NoticingStragglers(Stragglers):
    """Counts onsets that would not have been ones without pods, or with no layer frozen."""

    seen: ClassVar[Counter[Any]]

    def chance(self, component: Component, now: float) -> float:
        chance = super().chance(component, now)
        if component.severity > 1:
            return chance
        u, kind = component.u(3 + 8 * component.candidate), KINDS[component.kind]
        pods, self.devices.pods = self.devices.pods, {}
        if super().chance(component, now) <= u < chance:
            alone = component.kind != GPU and self.tenants(component.kind, component.node, now) < 2
            self.seen["pods made slow", kind, "as a tenant" if alone else "by load"] += 1
        self.devices.pods = pods
        if component.kind == NET:
            with unfrozen(list(self.jobs.values())):
                other = super().chance(component, now)
            self.seen["depth changed the load of", kind] += other != chance
        return chance

    def workers(self, job: Job) -> Any:
        workers = super().workers(job)
        if job.layers is not None and job.layers.depth > 0:
            self.seen["frozen", "slowed by a link"] += max(workers.link) > 1 and workers.comm_share > 0
            self.seen["frozen", "slowed", job.sync] += workers.pace(job.sync) < SLOWER
            self.seen["frozen", "faster"] += workers.pace(job.sync) > 1
        return workers


class NoticingInference(Inference):
    """Counts who yields because of its pace or its depth, and what tasks run on."""

    seen: ClassVar[Counter[Any]]

    def ats(self, now: float, order: list[int]) -> int | None:
        self.asked: list[tuple[Job, int, float, float]] = []
        services = {i: job.service_at(now) for i, job in self.jobs.items() if job.devices}
        device = super().ats(now, order)
        if self.asked:
            ranks = [(services[job.job_id], job.job_id, node) for job, node, _, _ in self.asked]
            losses = [loss for _, _, loss, _ in self.asked]
            first = min(zip(losses, ranks, strict=True))[1]
            paces = [loss / job.pace for job, _, loss, _ in self.asked]
            self.seen["who yields", "by pace"] += min(zip(paces, ranks, strict=True))[1] != first
            whole = [loss for _, _, _, loss in self.asked]
            self.seen["who yields", "by depth"] += min(zip(whole, ranks, strict=True))[1] != first
        return device

    def loss(self, job: Job, node: int) -> float:
        loss = super().loss(job, node)
        with unfrozen([job]):
            self.asked.append((job, node, loss, super().loss(job, node)))
        return loss

    def run_task(self, device: int, job_id: int, now: float) -> None:
        super().run_task(device, job_id, now)
        temperature = "warm" if self.tasks[job_id].warm else "cold"
        self.seen["task", temperature, "slower" if self.slowness(device) > 1.1 else "as usual"] += 1


class NoticingRun(Run):
    """Counts jobs that lose devices to inference while they straggle or are frozen, and wishes that come together."""

    seen: ClassVar[Counter[Any]]

    def serve(self) -> bool:
        before = {job.job_id: (set(self.nodes_of(job)), len(job.devices), job.pace) for job in self.running()}
        depths = {job.job_id: job.layers.depth for job in self.running() if job.layers is not None}
        happened = super().serve()
        for i, (nodes, gpus, pace) in before.items():
            job = self.inference.jobs[i]
            if len(job.devices) == gpus:
                continue
            what = "some" if job.devices else "all"
            kind = "rigid" if job.training is None else "elastic"
            self.seen["lost to inference", what, self.config.reclaim] += 1
            if pace < SLOWER:
                self.seen["lost while slowed", kind, what] += 1
            if depths.get(i, 0) > 0:
                self.seen["lost while frozen", what] += 1
            if job.devices and pace != job.pace:
                self.seen["lost to inference", "another pace"] += 1
            links = [self.stragglers.severity(NET, node) for node in nodes] if self.stragglers else [1.0]
            if len(nodes) > 1 and len(self.nodes_of(job)) == 1 and max(links) > 1:
                self.seen["lost to inference", "the slow link too"] += 1
        return happened

    def book(self, before: Any) -> bool:
        for job, nodes, _ in before:
            deeper = job.layers is not None and job.layers.wanted not in (None, job.layers.depth)
            waits = job.wanted_sync not in (None, job.sync)
            if job.devices and deeper and waits:
                self.seen["depth and mode", "alone" if self.nodes_of(job) == nodes else "with devices"] += 1
        return super().book(before)


@contextmanager
def unfrozen(jobs: list[Job]) -> Iterator[None]:
    """These jobs as if no layer of theirs were frozen."""
    depths = [(job.layers, job.layers.depth) for job in jobs if job.layers is not None]
    for layers, _ in depths:
        layers.depth = 0
    yield
    for layers, depth in depths:
        layers.depth = depth


@contextmanager
def noticing(seen: Counter[Any]) -> Iterator[None]:
    """Let the reference simulator count into ``seen``."""
    for form in (NoticingStragglers, NoticingInference, NoticingRun):
        form.seen = seen
    with (
        patch("envs.reference.Stragglers", NoticingStragglers),
        patch("envs.reference.Inference", NoticingInference),
        patch("envs.reference.Run", NoticingRun),
    ):
        yield
