"""The slow reference simulator: plain Python, one job and one device at a time.

Written from docs/design/001-core.md alone (its sections are named below) and never from the compiled
core, so that the two are independent statements of the same rules: the shortest one, not the fastest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from envs.order import Key, ListOrder
from envs.reference_devices import WHOLE, Devices, Job
from envs.rng import Purpose, helios_estimate, uniform
from envs.spec import ClusterSpec, SimConfig
from traces.trace import Trace

INPUT = "arrival_s num_gpus share_milli duration_s gpu_type preemptible"
OUTPUT = "first_start_s finish_s queueing_delay_s service_gpu_s paused_gpu_s num_rescales num_preemptions status"


class Run:
    """One simulation: the state at ``now``, the rounds of events (section 1) and the passes (section 4)."""

    def __init__(self, trace: Trace, cluster: ClusterSpec, order: ListOrder, config: SimConfig, seed: int) -> None:
        self.order, self.config, self.seed = order, config.resolve(), seed
        self.jobs = [
            _read_job(i, row, self.config, seed, trace.first_row) for i, row in enumerate(trace.jobs.to_dict("records"))
        ]
        self.devices, self.empty = Devices(cluster), Devices(cluster)
        self.limits = (*(order.limits if order.key in (Key.LEVEL, Key.GITTINS) else ()), math.inf)
        self.now = -math.inf

    def running(self) -> list[Job]:
        return [job for job in self.jobs if job.devices]

    def waiting(self) -> list[Job]:
        return [job for job in self.jobs if job.status == "active" and not job.devices]

    # Section 1: events
    def play(self) -> None:
        rounds = 0
        while any(job.status in ("unarrived", "active") for job in self.jobs):
            last, self.now = self.now, max(self.now, min(self.next_events(), default=math.inf))
            rounds = rounds + 1 if self.now == last else 1
            if self.now == math.inf or rounds > 64 + 8 * len(self.jobs):
                raise RuntimeError(f"the reference simulator is stalled at {last} s")
            happened = [self.complete(), self.cross_levels(), self.admit(), self.promote()]
            ticks = rounds == 1 and any(_multiple_from(self.now, step) == self.now for step in self.tick_steps())
            if ticks or (self.config.event_driven and any(happened)):
                self.schedule()

    def next_events(self) -> Iterator[float]:
        """Times of what can happen next; those that lie in the past happen now."""
        running, waiting = self.running(), self.waiting()
        yield from (job.finish_s for job in running)
        yield from (job.arrival_s for job in self.jobs if job.status == "unarrived")
        if waiting and self.config.event_driven:
            yield from (job.crossing for job in running)
        yield from (self.promotion(job) for job in waiting)
        yield from (_multiple_from(math.nextafter(self.now, math.inf), step) for step in self.tick_steps())

    def tick_steps(self) -> Iterator[float]:
        """Steps of the clocks whose multiples ask for a pass: the interval and the quantum of section 6."""
        if self.config.interval_s > 0 and (self.running() or self.waiting()):
            yield self.config.interval_s
        if self.order.key == Key.SERVICE and self.config.event_driven and self.waiting():
            yield self.order.quantum_s

    def complete(self) -> bool:
        ended = [job for job in self.running() if job.finish_s <= self.now]
        for job in ended:
            job.service_gpu_s = job.service_at(job.finish_s)
            self.settle_pause(job, job.finish_s)
            self.devices.take_back(job)
            job.status = "completed"
        return bool(ended)

    def cross_levels(self) -> bool:
        crossed = [job for job in self.running() if job.crossing <= self.now]
        for job in crossed:
            while job.crossing <= self.now:
                job.level_service, job.level_since = self.limits[job.level], job.crossing
                job.level += 1
                job.crossing = self.next_crossing(job)
        return bool(crossed)

    def admit(self) -> bool:
        arrived = [job for job in self.jobs if job.status == "unarrived" and job.arrival_s <= self.now]
        for job in arrived:
            fits = self.empty.find(job, self.config, self.seed) is not None
            job.status = "active" if fits else "rejected"
            job.wait_start = job.entry = job.arrival_s
        return bool(arrived)

    def promote(self) -> bool:
        promoted = [job for job in self.waiting() if self.promotion(job) <= self.now]
        for job in promoted:
            job.level, job.level_service, job.level_wait, job.started, job.entry = 0, 0.0, 0.0, False, self.now
        return bool(promoted)

    # Section 6: levels
    def next_crossing(self, job: Job) -> float:
        return job.level_since + (self.limits[job.level] - job.level_service) / job.request

    def promotion(self, job: Job) -> float:
        """When a waiting job enters level 0 again."""
        if self.order.promote == 0 or job.level == 0:
            return math.inf
        return job.wait_start + (self.order.promote * job.level_service / job.request - job.level_wait)

    # Section 2: what a change of GPUs does to a job
    def start(self, job: Job) -> None:
        job.queueing_delay_s += self.now - job.wait_start
        job.level_wait += self.now - job.wait_start if job.level > 0 else 0.0
        job.hold_start = job.level_since = self.now
        job.first_start_s = self.now if job.num_starts == 0 else job.first_start_s
        self.set_anchor(job, paused=job.num_starts > 0)
        job.num_starts += 1
        job.crossing = self.next_crossing(job)
        if not job.started:
            job.started, job.entry = True, self.now

    def set_anchor(self, job: Job, paused: bool) -> None:
        pause = self.config.rescale_s if paused and self.config.rescale_cost == "constant" else 0.0
        job.pause_start = self.now
        job.anchor = self.now + pause
        job.finish_s = job.anchor + (job.work - job.done)

    def preempt(self, job: Job, done: float) -> None:
        """``done`` is the work done at this instant."""
        step = self.config.checkpoint_s
        job.done = math.floor(done / step) * step if step > 0 else done
        if self.config.rescale_cost == "helios":
            job.work += 7.0 if job.num_gpus == 1 else 30.0 if job.num_gpus <= 8 else 60.0
        job.service_gpu_s += job.request * (self.now - job.hold_start)
        job.level_service += job.request * (self.now - job.level_since)
        self.settle_pause(job, self.now)
        job.wait_start = self.now
        job.num_preemptions += 1

    def migrate(self, job: Job, done: float) -> None:
        job.done = done
        self.settle_pause(job, self.now)
        self.set_anchor(job, paused=True)
        job.num_rescales += 1

    def settle_pause(self, job: Job, now: float) -> None:
        job.paused_gpu_s += job.request * max(0.0, min(job.anchor, now) - job.pause_start)

    # Section 4: passes. They only move devices; what it means for each job is settled at the end.
    def schedule(self) -> None:
        before = [(self.nodes_of(job), job.done_at(self.now)) for job in self.jobs]
        if not self.order.preemptive:
            for job in self.candidates():
                if not job.devices and not self.try_place(job) and not self.order.backfill:
                    break
        elif self.config.select_by_count:
            self.pass_by_count()
        else:
            self.pass_with_eviction()
        for job, (nodes, done) in zip(self.jobs, before, strict=True):
            if nodes and not job.devices:
                self.preempt(job, done)
            elif job.devices and not nodes:
                self.start(job)
            elif nodes != self.nodes_of(job):
                self.migrate(job, done)

    def nodes_of(self, job: Job) -> Counter[int]:
        return Counter(self.devices.node_of[d] for d in job.devices)

    def try_place(self, job: Job, *types: str) -> bool:
        devices = self.devices.find(job, self.config, self.seed, *types)
        self.devices.give(job, devices or [])
        return devices is not None

    def candidates(self) -> list[Job]:
        """Waiting jobs and running jobs that may be preempted, in order."""
        return sorted(self.waiting() + [job for job in self.running() if job.preemptible], key=self.rank)

    def pass_by_count(self) -> None:
        devices, kept = self.devices, list[tuple[Job, str]]()
        quota = dict.fromkeys(devices.types, 0)  # in thousandths of a device
        for node, gpus in enumerate(devices.sizes):
            quota[devices.type_of[node]] += gpus * WHOLE
        for job in [job for job in self.running() if not job.preemptible] + self.candidates():
            held = {devices.type_of[node] for node in self.nodes_of(job)}
            demand = job.num_gpus * job.share_milli
            enough = [t for t in held or devices.allowed(job) if quota[t] >= demand]
            if enough:
                gpu_type = max(enough, key=quota.__getitem__) if self.config.placement == "spread" else enough[0]
                quota[gpu_type] -= demand
                kept.append((job, gpu_type))
            elif held:
                devices.take_back(job)
        for job, gpu_type in kept:
            if not job.devices:
                self.try_place(job, gpu_type)

    def pass_with_eviction(self) -> None:
        order = self.candidates()
        for position, job in enumerate(order):
            if not job.devices and not self.try_place(job) and job.share_milli == WHOLE:
                self.evict_for(job, [later for later in order[position + 1 :] if later.devices])

    def evict_for(self, job: Job, later: list[Job]) -> None:
        """Place a job on GPUs of the running jobs behind it, if the last few of them hold enough."""
        suffixes = (later[first:] for first in reversed(range(len(later))))
        found = ((self.devices.without(s).find_nodes(job, self.config, self.seed), s) for s in suffixes)
        targets, suffix = next(((nodes, s) for nodes, s in found if nodes is not None), ({}, []))
        for victim in reversed(suffix):
            lacking = {n for n, count in targets.items() if len(self.devices.free_on(n)) < count}
            if lacking & set(self.nodes_of(victim)):
                self.devices.take_back(victim)
        self.devices.give(job, self.devices.lowest(targets))

    # Section 5: keys
    def rank(self, job: Job) -> tuple[float, float, int]:
        remaining = max(0.0, job.estimate + (job.work - job.duration_s) - job.done_at(self.now))
        key1 = {
            Key.ARRIVAL: 0.0,
            Key.NUM_GPUS: job.num_gpus,
            Key.DURATION: job.estimate,
            Key.REMAINING: remaining,
            Key.REMAINING_GPU_TIME: remaining * job.request,
            Key.GPU_TIME: job.estimate * job.request,
            Key.SERVICE: job.service_at(self.now),
            Key.LEVEL: 2 * job.level + (0 if job.started else 1),
            Key.GITTINS: -self.order.values[job.level] if self.order.values else 0.0,
            Key.RANDOM: uniform(self.seed, Purpose.ORDER, job.job_id, 0),
        }
        return key1[self.order.key], job.entry if self.order.key == Key.LEVEL else 0.0, job.job_id


def _read_job(job_id: int, row: dict[Any, Any], config: SimConfig, seed: int, first_row: int) -> Job:
    duration = float(row["duration_s"])
    estimate = {"oracle": duration, "unknown": 0.0}.get(config.durations, float(row["estimate_s"]))
    if math.isnan(estimate):
        estimate = helios_estimate(seed, first_row + job_id, duration)
    return Job(job_id=job_id, estimate=estimate, work=duration, **{name: row[name] for name in INPUT.split()})


def _multiple_from(time: float, step: float) -> float:
    """The least multiple of ``step`` that is not before ``time``."""
    k = math.floor(time / step) - 1
    while k * step < time:
        k += 1
    return k * step


def simulate_reference(
    trace: Trace, cluster: ClusterSpec, order: ListOrder, config: SimConfig, seed: int = 0
) -> dict[str, list[Any]]:
    """Run a trace to its end; columns by name, one entry a job in trace order.

    ``first_start_s``, ``finish_s`` [s, nan for a rejected job], ``queueing_delay_s`` [s],
    ``service_gpu_s``, ``paused_gpu_s`` [GPU-s], ``num_rescales``, ``num_preemptions``, ``status``
    ("completed" or "rejected"). Raises RuntimeError for a run that stops advancing.
    """
    run = Run(trace, cluster, order, config, seed)
    run.play()
    return {name: [getattr(job, name) for job in run.jobs] for name in OUTPUT.split()}
