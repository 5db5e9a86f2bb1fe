"""The slow reference simulator: plain Python, one job and one device at a time.

Written from docs/design/001-core.md alone (its sections are named below) and never from the compiled
core, so that the two are independent statements of the same rules: the shortest one, not the fastest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from envs.order import Key, ListOrder
from envs.rng import Purpose, helios_estimate, uniform
from envs.spec import ClusterSpec, SimConfig
from traces.trace import Trace

WHOLE = 1000  # a device, in thousandths
INPUT = "arrival_s num_gpus share_milli duration_s gpu_type preemptible"
OUTPUT = "first_start_s finish_s queueing_delay_s service_gpu_s paused_gpu_s num_rescales num_preemptions status"


@dataclass
class Job:
    """A rigid job and all that happens to it; times in seconds, ``devices`` empty while it waits."""

    job_id: int
    arrival_s: float
    num_gpus: int
    share_milli: int  # of each device
    duration_s: float
    gpu_type: str
    preemptible: bool
    estimate: float
    work: float
    status: str = "unarrived"  # then active, completed or rejected
    devices: list[int] = field(default_factory=list)
    done: float = 0.0
    anchor: float = math.nan
    finish_s: float = math.nan
    first_start_s: float = math.nan
    hold_start: float = math.nan  # when it last got GPUs
    pause_start: float = math.nan  # when it last got GPUs or moved
    wait_start: float = math.nan
    queueing_delay_s: float = 0.0
    service_gpu_s: float = 0.0  # of finished holds
    paused_gpu_s: float = 0.0
    num_starts: int = 0
    num_rescales: int = 0
    num_preemptions: int = 0
    level: int = 0
    level_service: float = 0.0  # at level_since
    level_since: float = math.nan
    crossing: float = math.inf
    level_wait: float = 0.0  # waiting time since level 0 was last entered, of finished waits
    started: bool = False  # since level 0 was last entered
    entry: float = math.nan  # when that start, or the entry into the waiting set, happened

    @property
    def request(self) -> float:
        return self.num_gpus * self.share_milli / 1000

    def done_at(self, now: float) -> float:
        return self.done + max(0.0, now - self.anchor) if self.devices else self.done

    def service_at(self, now: float) -> float:
        return self.service_gpu_s + (self.request * (now - self.hold_start) if self.devices else 0.0)


class Devices:
    """Who holds what share of each device of a cluster, and which devices a job would get (section 3)."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self.types = cluster.types
        self.sizes = [int(gpus) for gpus in cluster.node_gpus]
        self.type_of: list[str] = [cluster.types[t] for t in cluster.node_type]
        self.node_of = [node for node, gpus in enumerate(self.sizes) for _ in range(gpus)]
        self.on_node = [[d for d, n in enumerate(self.node_of) if n == node] for node in range(len(self.sizes))]
        self.holders: list[dict[int, int]] = [{} for _ in self.node_of]  # job_id -> share

    def give(self, job: Job, devices: list[int]) -> None:
        job.devices = devices
        for device in devices:
            self.holders[device][job.job_id] = job.share_milli

    def without(self, jobs: list[Job]) -> Devices:
        """The same devices if these jobs held none."""
        ids = {job.job_id for job in jobs}
        other = copy(self)
        other.holders = [{i: h[i] for i in h if i not in ids} for h in self.holders]
        return other

    def take_back(self, job: Job) -> None:
        self.holders = self.without([job]).holders
        job.devices = []

    def free_on(self, node: int) -> list[int]:
        """The wholly free devices of a node."""
        return [d for d in self.on_node[node] if not self.holders[d]]

    def find(self, job: Job, config: SimConfig, seed: int) -> list[int] | None:
        """Devices for a job, or None where it has to wait."""
        if job.share_milli == WHOLE:
            counts = self.find_nodes(job, config, seed)
            return None if counts is None else self.lowest(counts)
        allowed = (job.gpu_type,) if job.gpu_type else self.types
        left = {d: WHOLE - sum(h.values()) for d, h in enumerate(self.holders)}
        fitting = [d for d in left if left[d] >= job.share_milli and self.type_of[self.node_of[d]] in allowed]
        return [min(fitting, key=lambda d: (left[d], d))] if fitting else None

    def lowest(self, counts: dict[int, int]) -> list[int]:
        return [d for node, count in counts.items() for d in self.free_on(node)[:count]]

    def find_nodes(self, job: Job, config: SimConfig, seed: int) -> dict[int, int] | None:
        """GPUs to take from each node for a job of whole GPUs, or None."""
        free = {n: len(self.free_on(n)) for n, t in enumerate(self.type_of) if job.gpu_type in ("", t)}
        if config.placement == "consolidated":
            return self._consolidated(free, job.num_gpus)
        total = {t: sum(free[n] for n in free if self.type_of[n] == t) for t in self.types}
        enough = [t for t in self.types if total[t] >= job.num_gpus]
        if not enough:
            return None
        # max and min return the first of equals.
        chosen = max(enough, key=lambda t: total[t]) if config.placement == "spread" else enough[0]
        nodes = [n for n in free if self.type_of[n] == chosen]
        if config.placement == "random":
            nodes.sort(key=lambda n: uniform(seed, Purpose.PLACEMENT, job.job_id * 65536 + n, job.num_starts))
        taken = dict.fromkeys(nodes, 0)
        for _ in range(job.num_gpus):
            left = {n: free[n] - taken[n] for n in nodes if free[n] > taken[n]}
            taken[max(left, key=lambda n: left[n]) if config.placement == "spread" else next(iter(left))] += 1
        return taken

    def _consolidated(self, free: dict[int, int], count: int) -> dict[int, int] | None:
        if count <= max((self.sizes[n] for n in free), default=0):
            return _best_fit(free, count)
        for gpu_type in self.types:
            same = {n: free[n] for n in free if self.type_of[n] == gpu_type}
            idle = sorted((n for n in same if same[n] == self.sizes[n]), key=lambda n: (-self.sizes[n], n))
            taken: dict[int, int] = {}
            rest = count
            while idle and self.sizes[idle[0]] <= rest:
                node = idle.pop(0)
                taken[node] = self.sizes[node]
                rest -= self.sizes[node]
            last = _best_fit({n: same[n] for n in same if n not in taken}, rest) if rest else {}
            if last is not None:
                return taken | last
        return None


def _best_fit(free: dict[int, int], count: int) -> dict[int, int] | None:
    fitting = [n for n in free if free[n] >= count]
    return {min(fitting, key=lambda n: (free[n], n)): count} if fitting else None


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

    def try_place(self, job: Job) -> bool:
        devices = self.devices.find(job, self.config, self.seed)
        self.devices.give(job, devices or [])
        return devices is not None

    def candidates(self) -> list[Job]:
        """Waiting jobs and running jobs that may be preempted, in order."""
        return sorted(self.waiting() + [job for job in self.running() if job.preemptible], key=self.rank)

    def pass_by_count(self) -> None:
        devices, kept = self.devices, []
        quota = dict.fromkeys(devices.types, 0)  # in thousandths of a device
        for node, gpus in enumerate(devices.sizes):
            quota[devices.type_of[node]] += gpus * WHOLE
        for job in [job for job in self.running() if not job.preemptible] + self.candidates():
            held = {devices.type_of[node] for node in self.nodes_of(job)}
            allowed = held or {t for t in quota if job.gpu_type in ("", t)}
            gpu_type = max((t for t in quota if t in allowed), key=lambda t: quota[t])
            if quota[gpu_type] >= job.num_gpus * job.share_milli:
                quota[gpu_type] -= job.num_gpus * job.share_milli
                kept.append(job)
            elif held:
                devices.take_back(job)
        for job in kept:
            if not job.devices:
                self.try_place(job)

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
