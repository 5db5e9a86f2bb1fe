"""The slow reference simulator: plain Python, one job and one device at a time.

Written from docs/design/001-core.md alone, section numbers below, and never from the compiled core,
so that the two are independent statements of the same rules. It favours the shortest statement of
a rule over speed: every pass sorts all jobs, and every event is found by looking at all jobs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from envs.order import Key, ListOrder
from envs.rng import Purpose, helios_estimate, uniform
from envs.spec import ClusterSpec, SimConfig
from traces.trace import Trace

WHOLE = 1000  # a device, in thousandths
TIMES = ("first_start_s", "finish_s", "queueing_delay_s", "service_gpu_s", "paused_gpu_s")
OUTPUT = (*TIMES, "num_rescales", "num_preemptions", "status")


@dataclass
class Job:
    """A rigid job and all that happens to it; times in seconds, ``devices`` empty while it waits."""

    job_id: int
    arrival: float
    num_gpus: int
    share: int  # of each device, in thousandths
    duration: float
    estimate: float
    gpu_type: str
    preemptible: bool
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
        return self.num_gpus * self.share / 1000

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
        ends = list(accumulate(self.sizes))
        self.on_node = [range(end - gpus, end) for end, gpus in zip(ends, self.sizes, strict=True)]
        self.holders: list[dict[int, int]] = [{} for _ in self.node_of]  # job_id -> share

    def copy(self) -> Devices:
        other = object.__new__(Devices)
        other.__dict__.update(self.__dict__)
        other.holders = [dict(holders) for holders in self.holders]
        return other

    def take(self, job: Job, devices: list[int]) -> None:
        for device in devices:
            self.holders[device][job.job_id] = job.share

    def release(self, job: Job) -> None:
        for device in job.devices:
            del self.holders[device][job.job_id]

    def free_on(self, node: int) -> list[int]:
        """The wholly free devices of a node."""
        return [d for d in self.on_node[node] if not self.holders[d]]

    def nodes(self, job: Job) -> list[int]:
        """Nodes that a job may use."""
        return [n for n, gpu_type in enumerate(self.type_of) if job.gpu_type in ("", gpu_type)]

    def find(self, job: Job, config: SimConfig, seed: int) -> list[int] | None:
        """Devices for a job, or None where it has to wait."""
        if job.share < WHOLE:
            return self._fraction(job)
        counts = self.find_nodes(job, config, seed)
        return None if counts is None else self.lowest(counts)

    def lowest(self, counts: dict[int, int]) -> list[int]:
        return [d for node, count in counts.items() for d in self.free_on(node)[:count]]

    def _fraction(self, job: Job) -> list[int] | None:
        allowed = set(self.nodes(job))
        left = {d: WHOLE - sum(h.values()) for d, h in enumerate(self.holders) if self.node_of[d] in allowed}
        fitting = [d for d in left if left[d] >= job.share]
        return [min(fitting, key=lambda d: (left[d], d))] if fitting else None

    def find_nodes(self, job: Job, config: SimConfig, seed: int) -> dict[int, int] | None:
        """GPUs to take from each node for a job of whole GPUs, or None."""
        free = {n: len(self.free_on(n)) for n in self.nodes(job)}
        if config.placement == "consolidated":
            return self._consolidated(free, job.num_gpus)
        by_type = {t: [n for n in free if self.type_of[n] == t] for t in self.types}
        total = {t: sum(free[n] for n in nodes) for t, nodes in by_type.items()}
        enough = [t for t in self.types if total[t] >= job.num_gpus]
        if not enough:
            return None
        if config.placement == "spread":
            most = max(enough, key=lambda t: total[t])  # max and min return the first of equals
            return _spread({n: free[n] for n in by_type[most]}, job.num_gpus)
        nodes = by_type[enough[0]]
        if config.placement == "random":
            place = int(Purpose.PLACEMENT)
            nodes = sorted(nodes, key=lambda n: uniform(seed, place, job.job_id * 65536 + n, job.num_starts))
        return _fill(free, nodes, job.num_gpus)

    def _consolidated(self, free: dict[int, int], count: int) -> dict[int, int] | None:
        if count <= max((self.sizes[n] for n in free), default=0):
            return _best_fit(free, count)
        for gpu_type in self.types:
            same = {n: free[n] for n in free if self.type_of[n] == gpu_type}
            idle = sorted((n for n in same if same[n] == self.sizes[n]), key=lambda n: (-self.sizes[n], n))
            taken: dict[int, int] = {}
            for node in idle:
                if self.sizes[node] > count - sum(taken.values()):
                    break
                taken[node] = self.sizes[node]
            rest = count - sum(taken.values())
            last = _best_fit({n: same[n] for n in same if n not in taken}, rest) if rest else {}
            if last is not None:
                return taken | last
        return None


def _best_fit(free: dict[int, int], count: int) -> dict[int, int] | None:
    fitting = [n for n in free if free[n] >= count]
    return {min(fitting, key=lambda n: (free[n], n)): count} if fitting else None


def _spread(free: dict[int, int], count: int) -> dict[int, int]:
    taken = Counter[int]()
    for _ in range(count):
        taken[max(free, key=lambda n: free[n] - taken[n])] += 1
    return dict(taken)


def _fill(free: dict[int, int], nodes: list[int], count: int) -> dict[int, int]:
    taken = dict.fromkeys(nodes, 0)
    for node in nodes:
        taken[node] = min(free[node], count - sum(taken.values()))
    return taken


class Run:
    """One simulation: the state at ``now``, the rounds of events (section 1) and the passes (section 4)."""

    def __init__(self, trace: Trace, cluster: ClusterSpec, order: ListOrder, config: SimConfig, seed: int) -> None:
        self.order, self.config, self.seed = order, config.resolve(), seed
        self.jobs = [_read_job(i, row, self.config, seed) for i, row in enumerate(trace.jobs.to_dict("records"))]
        self.devices = Devices(cluster)
        self.empty = self.devices.copy()
        self.limits = order.limits if order.key in (Key.LEVEL, Key.GITTINS) else ()
        self.now = -math.inf
        self.last_tick = -math.inf

    def running(self) -> list[Job]:
        return [job for job in self.jobs if job.devices]

    def waiting(self) -> list[Job]:
        return [job for job in self.jobs if job.status == "active" and not job.devices]

    # Section 1: events

    def play(self) -> None:
        rounds = 0
        while any(job.status in ("unarrived", "active") for job in self.jobs):
            time = max(self.now, min(self.next_events(), default=math.inf))
            rounds = rounds + 1 if time == self.now else 1
            if time == math.inf or rounds > 64 + 8 * len(self.jobs):
                raise RuntimeError(f"the reference simulator is stalled at {self.now} s")
            self.now = time
            happened = [self.complete(), self.cross_levels(), self.admit(), self.promote()]
            quantum = self.has_quantum() and _is_multiple(time, self.order.quantum_s)
            if self.interval_is_due() or (self.config.event_driven and (any(happened) or quantum)):
                self.schedule()

    def next_events(self) -> Iterator[float]:
        """Times of what can happen next; those that lie in the past happen now."""
        running, waiting = self.running(), self.waiting()
        yield from (job.finish_s for job in running)
        yield from (job.arrival for job in self.jobs if job.status == "unarrived")
        if waiting and self.config.event_driven:
            yield from (job.crossing for job in running)
        yield from (self.promotion(job) for job in waiting)
        if self.config.interval_s > 0 and (running or waiting):
            yield _next_multiple(self.now, self.config.interval_s)
        if self.has_quantum():
            yield _next_multiple(self.now, self.order.quantum_s)

    def has_quantum(self) -> bool:
        return self.order.key == Key.SERVICE and self.config.event_driven and bool(self.waiting())

    def interval_is_due(self) -> bool:
        """Whether a multiple of the interval is reached; once for each multiple."""
        interval = self.config.interval_s
        if interval == 0 or self.now == self.last_tick or not _is_multiple(self.now, interval):
            return False
        self.last_tick = self.now
        return True

    def complete(self) -> bool:
        ended = [job for job in self.running() if job.finish_s <= self.now]
        for job in ended:
            job.service_gpu_s = job.service_at(job.finish_s)
            self.settle_pause(job, job.finish_s)
            self.drop(job)
            job.status = "completed"
        return bool(ended)

    def cross_levels(self) -> bool:
        crossed = False
        for job in self.running():
            while job.crossing <= self.now:
                job.level_service, job.level_since = self.limits[job.level], job.crossing
                job.level += 1
                job.crossing = self.next_crossing(job)
                crossed = True
        return crossed

    def admit(self) -> bool:
        arrived = [job for job in self.jobs if job.status == "unarrived" and job.arrival <= self.now]
        for job in arrived:
            fits = self.empty.find(job, self.config, self.seed) is not None
            job.status = "active" if fits else "rejected"
            job.wait_start = job.entry = job.arrival
        return bool(arrived)

    def promote(self) -> bool:
        promoted = [job for job in self.waiting() if self.promotion(job) <= self.now]
        for job in promoted:
            job.level, job.level_service, job.level_wait = 0, 0.0, 0.0
            job.started, job.entry = False, self.now
        return bool(promoted)

    # Section 6: levels

    def next_crossing(self, job: Job) -> float:
        if job.level == len(self.limits):
            return math.inf
        return job.level_since + (self.limits[job.level] - job.level_service) / job.request

    def promotion(self, job: Job) -> float:
        """When a waiting job enters level 0 again."""
        if self.order.promote == 0 or job.level == 0:
            return math.inf
        return job.wait_start + (self.order.promote * job.level_service / job.request - job.level_wait)

    # Section 2: what a change of GPUs does to a job

    def start(self, job: Job) -> None:
        """A first start or a resume."""
        job.queueing_delay_s += self.now - job.wait_start
        job.level_wait += self.now - job.wait_start if job.level > 0 else 0.0
        job.hold_start = job.level_since = self.now
        if job.num_starts == 0:
            job.first_start_s = self.now
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
        job.crossing, job.finish_s = math.inf, math.nan
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
        before = {job.job_id: (self.nodes_of(job), job.done_at(self.now)) for job in self.running()}
        if not self.order.preemptive:
            self.pass_in_order()
        elif self.config.select_by_count:
            self.pass_by_count()
        else:
            self.pass_with_eviction()
        for job in self.jobs:
            nodes = self.nodes_of(job)
            if job.job_id not in before:
                if nodes:
                    self.start(job)
            elif not nodes:
                self.preempt(job, before[job.job_id][1])
            elif nodes != before[job.job_id][0]:
                self.migrate(job, before[job.job_id][1])

    def nodes_of(self, job: Job) -> Counter[int]:
        return Counter(self.devices.node_of[d] for d in job.devices)

    def give(self, job: Job, devices: list[int]) -> None:
        self.devices.take(job, devices)
        job.devices = devices

    def drop(self, job: Job) -> None:
        self.devices.release(job)
        job.devices = []

    def try_place(self, job: Job) -> bool:
        devices = self.devices.find(job, self.config, self.seed)
        self.give(job, devices or [])
        return devices is not None

    def candidates(self) -> list[Job]:
        """Waiting jobs and running jobs that may be preempted, in order."""
        return sorted(self.waiting() + [job for job in self.running() if job.preemptible], key=self.rank)

    def pass_in_order(self) -> None:
        for job in sorted(self.waiting(), key=self.rank):
            if not self.try_place(job) and not self.order.backfill:
                break

    def pass_by_count(self) -> None:
        devices = self.devices
        quota = dict.fromkeys(devices.types, 0)  # in thousandths of a device
        for node, gpus in enumerate(devices.sizes):
            quota[devices.type_of[node]] += gpus * WHOLE
        for job in self.running():
            if not job.preemptible:
                quota[self.type_held(job)] -= job.num_gpus * job.share
        kept = []
        for job in self.candidates():
            allowed = [self.type_held(job)] if job.devices else [t for t in quota if job.gpu_type in ("", t)]
            gpu_type = max(allowed, key=lambda t: quota[t])
            if quota[gpu_type] >= job.num_gpus * job.share:
                quota[gpu_type] -= job.num_gpus * job.share
                kept.append(job)
            elif job.devices:
                self.drop(job)
        for job in kept:
            if not job.devices:
                self.try_place(job)

    def type_held(self, job: Job) -> str:
        return self.devices.type_of[self.devices.node_of[job.devices[0]]]

    def pass_with_eviction(self) -> None:
        order = self.candidates()
        for position, job in enumerate(order):
            if not job.devices and not self.try_place(job) and job.share == WHOLE:
                self.evict_for(job, [later for later in order[position + 1 :] if later.devices])

    def evict_for(self, job: Job, later: list[Job]) -> None:
        """Place a job on GPUs of the running jobs behind it, if the last few of them hold enough."""
        enlarged = self.devices.copy()
        for first in reversed(range(len(later))):
            enlarged.release(later[first])
            targets = enlarged.find_nodes(job, self.config, self.seed)
            if targets is not None:
                break
        else:
            return
        for victim in reversed(later[first:]):
            lacking = {n for n, count in targets.items() if len(self.devices.free_on(n)) < count}
            if lacking & set(self.nodes_of(victim)):
                self.drop(victim)
        self.give(job, self.devices.lowest(targets))

    # Section 5: keys

    def rank(self, job: Job) -> tuple[float, float, int]:
        remaining = max(0.0, job.estimate + (job.work - job.duration) - job.done_at(self.now))
        if self.order.key == Key.LEVEL:
            return 2 * job.level + (0 if job.started else 1), job.entry, job.job_id
        if self.order.key == Key.GITTINS:
            return -self.order.values[job.level], 0.0, job.job_id
        first = {
            Key.ARRIVAL: 0.0,
            Key.NUM_GPUS: job.num_gpus,
            Key.DURATION: job.estimate,
            Key.REMAINING: remaining,
            Key.REMAINING_GPU_TIME: remaining * job.request,
            Key.GPU_TIME: job.estimate * job.request,
            Key.SERVICE: job.service_at(self.now),
            Key.RANDOM: uniform(self.seed, int(Purpose.ORDER), job.job_id, 0),
        }
        return first[self.order.key], 0.0, job.job_id


def _read_job(job_id: int, row: dict[Any, Any], config: SimConfig, seed: int) -> Job:
    duration, estimate = float(row["duration_s"]), float(row["estimate_s"])
    if config.durations != "estimate":
        estimate = duration if config.durations == "oracle" else 0.0
    elif math.isnan(estimate):
        estimate = helios_estimate(seed, job_id, duration)
    return Job(
        job_id=job_id,
        arrival=float(row["arrival_s"]),
        num_gpus=int(row["num_gpus"]),
        share=int(row["share_milli"]),
        duration=duration,
        estimate=estimate,
        gpu_type=str(row["gpu_type"]),
        preemptible=bool(row["preemptible"]),
        work=duration,
    )


def _next_multiple(time: float, step: float) -> float:
    """The least multiple of ``step`` after ``time``."""
    k = math.floor(time / step) - 1
    while k * step <= time:
        k += 1
    return k * step


def _is_multiple(time: float, step: float) -> bool:
    return (math.floor(time / step) * step == time) or (math.ceil(time / step) * step == time)


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
    return {name: [getattr(job, name) for job in run.jobs] for name in OUTPUT}
