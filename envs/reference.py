"""The slow reference simulator: plain Python, one job and one device at a time.

Written from docs/design/001-core.md to 006-full.md alone (their sections are named below) and never from the compiled
core, so that the two are independent statements of the same rules: the shortest one, not the fastest. Not here:
knowledge ``online`` and compat ``deepboot``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from envs.order import Key, ListOrder
from envs.reference_decisions import Chooser, decide
from envs.reference_devices import Devices
from envs.reference_inference import Inference
from envs.reference_jobs import WHOLE, Job
from envs.reference_stragglers import Stragglers
from envs.reference_workload import Profiles, read_jobs
from envs.rng import Purpose, uniform
from envs.spec import ClusterSpec, SimConfig
from traces.profiles import load_profiles
from traces.trace import Trace

OUTPUT = "first_start_s finish_s queueing_delay_s service_gpu_s paused_gpu_s num_rescales num_preemptions status"
LAYER_OUTPUT = ("residual", "depth_changes")
STRAGGLER_OUTPUT = ("lost_gpu_s", "straggling_gpu_s", "slowed_s")


class Run:
    """One simulation: the state at ``now``, the rounds of events (001, section 1) and the passes (001, section 4)."""

    def __init__(
        self,
        trace: Trace,
        cluster: ClusterSpec,
        scheduler: ListOrder | Chooser,
        config: SimConfig,
        seed: int,
        profiles: Profiles | None = None,
        tuned: bool = False,
        known: Profiles | None = None,
    ) -> None:
        self.chooser = None if isinstance(scheduler, ListOrder) else scheduler
        self.order = scheduler if isinstance(scheduler, ListOrder) else ListOrder(Key.ARRIVAL)
        self.config, self.seed = config.resolve(), seed
        self.devices, self.empty = Devices(cluster), Devices(cluster)
        truth = load_profiles() if profiles is None else profiles
        self.jobs = read_jobs(trace, self.devices, self.order, self.config, seed, truth, known or truth, tuned)
        straggles = self.config.stragglers != "none"
        self.stragglers = Stragglers(self.devices, self.jobs, self.config, seed) if straggles else None
        slowness = self.stragglers.task_slowness if self.stragglers is not None else lambda device: 1.0
        self.inference = Inference(trace, self.devices, self.jobs, self.config, slowness)
        if self.config.reclaim == "static":
            self.devices.inference_part = self.empty.inference_part = set(self.inference.inference_nodes())
        self.toggles = [0] * len(self.devices.sizes)  # failures and repairs of each node
        self.toggle_at = [self.time_up_or_down(node) for node in range(len(self.toggles))]
        self.now = -math.inf
        self.passes = 0

    def running(self) -> list[Job]:
        return [job for job in self.jobs if job.devices]

    def waiting(self) -> list[Job]:
        return [job for job in self.jobs if job.status == "active" and not job.devices]

    def nodes_of(self, job: Job) -> Counter[int]:
        return self.devices.nodes_of(job)

    # 001, section 1, and 003, section 2: events
    def play(self) -> None:
        rounds = 0
        while any(job.status in ("unarrived", "active") for job in self.jobs) or not self.inference.is_over():
            last, self.now = self.now, self.next_round()
            rounds = rounds + 1 if self.now == last else 1
            if self.now == math.inf or rounds > 64 + 8 * len(self.jobs):
                raise RuntimeError(f"the reference simulator is stalled at {last} s")
            self.inference.count_time(self.now - last)
            happened = [self.complete(), self.fail_and_repair()]
            if any(happened):
                self.interfere()
            happened += [self.inference.change_pods(self.now), self.cross_levels(), self.admit()]
            happened += [self.serve(), self.promote()]
            ticks = rounds == 1 and any(_multiple_from(self.now, step) == self.now for step in self.tick_steps())
            if ticks or (self.config.event_driven and any(happened)):
                self.schedule()

    def next_round(self) -> float:
        """When the next event is, with all settled by then that makes workers slow (005, section 2)."""
        at = max(self.now, min(self.next_events(), default=math.inf))
        while self.stragglers is not None and at < math.inf:
            component = self.stragglers.first()
            time = component.next_at
            if time > at:
                break
            if self.stragglers.settle(component):
                self.follow_workers(time, [job for job in self.running() if component.node in self.nodes_of(job)])
                at = max(self.now, time, min(self.next_events()))
        return at

    def follow_workers(self, now: float, jobs: list[Job]) -> None:
        """Let jobs go on as fast as their workers now are."""
        if self.stragglers is not None:
            for job in jobs:
                job.set_workers(now, self.stragglers.workers(job))

    def next_events(self) -> Iterator[float]:
        """Times of what can happen next; those that lie in the past happen now."""
        running, waiting = self.running(), self.waiting()
        yield from (job.finish_s for job in running)
        yield from (job.arrival_s for job in self.jobs if job.status == "unarrived")
        if waiting and self.config.event_driven:
            yield from (job.crossing for job in running)
        yield from (self.promotion(job) for job in waiting)
        yield from self.toggle_at
        yield from self.inference.next_events()
        yield from (_multiple_from(math.nextafter(self.now, math.inf), step) for step in self.tick_steps())

    def tick_steps(self) -> Iterator[float]:
        """Steps of the clocks whose multiples ask for a pass: the interval and the quantum of section 6."""
        if self.config.interval_s > 0 and (self.running() or self.waiting()):
            yield self.config.interval_s
        if self.order.key == Key.SERVICE and self.config.event_driven and self.waiting():
            yield self.order.quantum_s

    def complete(self) -> bool:
        """End epochs, and the jobs whose last one ended."""
        ended = []
        for job in self.running():
            while job.finish_s <= self.now and job.trains_on():
                job.end_epoch()
                self.follow_workers(job.anchor, [job])
            if job.finish_s <= self.now:
                ended.append(job)
        for job in ended:
            job.service_gpu_s = job.service_at(job.finish_s)
            job.settle_pause(job.finish_s)
            self.devices.take_back(job)
            job.status = "completed"
        return bool(ended)

    def cross_levels(self) -> bool:
        """Whether one did while a job waits."""
        return any([job.cross_levels(self.now) for job in self.running()]) and bool(self.waiting())

    def admit(self) -> bool:
        self.inference.admit(self.now)
        arrived = [job for job in self.jobs if job.status == "unarrived" and job.arrival_s <= self.now]
        for job in arrived:
            fits = self.empty.find(job, self.config, self.seed) is not None
            job.status = "active" if fits else "rejected"
            job.wait_start = job.entry = job.arrival_s
            job.queue = (0, job.arrival_s, job.job_id)
        return bool(arrived)

    def promote(self) -> bool:
        promoted = [job for job in self.waiting() if self.promotion(job) <= self.now]
        for job in promoted:
            job.level, job.level_service, job.level_wait, job.started, job.entry = 0, 0.0, 0.0, False, self.now
        return bool(promoted)

    def promotion(self, job: Job) -> float:
        """When a waiting job enters level 0 again."""
        if self.order.promote == 0 or job.level == 0:
            return math.inf
        return job.wait_start + (self.order.promote * job.level_service / job.request - job.level_wait)

    # 003, section 3: serving
    def serve(self) -> bool:
        """Whether a job lost GPUs to a task."""
        if not self.inference.waiting():
            return False
        before = self.holdings()
        self.inference.hit(self.now)
        self.inference.start(self.now)
        return self.book(before)

    # 002, section 3: node failures and interference
    def time_up_or_down(self, node: int) -> float:
        """How long a node's present state lasts."""
        mean = self.config.node_mttr_s if self.toggles[node] % 2 else self.config.node_mtbf_s
        if self.config.node_mtbf_s == 0:
            return math.inf
        return -mean * math.log(1 - uniform(self.seed, Purpose.FAILURE, node, self.toggles[node]))

    def fail_and_repair(self) -> bool:
        happened = False
        for node in range(len(self.toggles)):
            while self.toggle_at[node] <= self.now:
                happened = True
                self.toggles[node] += 1
                self.toggle_at[node] += self.time_up_or_down(node)
                if self.toggles[node] % 2:
                    self.fail(node)
                else:
                    self.devices.down.remove(node)
        return happened

    def fail(self, node: int) -> None:
        for job in self.running():
            if node in self.nodes_of(job):
                done = job.done_at(self.now)
                job.cross_levels(self.now)
                self.devices.take_back(job)
                job.preempt(self.now, done)
        self.devices.down.add(node)

    def interfere(self) -> None:
        """Slow down elastic jobs on several nodes that share one with another job on several nodes."""
        nodes = {job.job_id: set(self.nodes_of(job)) for job in self.running()}
        several = {i: own for i, own in nodes.items() if len(own) > 1}
        for job in self.running():
            own = several.get(job.job_id, set())
            shared = any(own & other for i, other in several.items() if i != job.job_id)
            factor = 1 - self.config.interference if shared else 1.0
            if job.training is not None and factor != job.factor:
                job.set_factors(self.now, factor, job.pace)

    # Passes and serving only move devices; what it means for each job is settled at their end.
    def holdings(self) -> list[tuple[Job, Counter[int], float]]:
        """Active jobs, their GPUs by node and the work done by now."""
        return [(job, self.nodes_of(job), job.done_at(self.now)) for job in self.jobs if job.status == "active"]

    def book(self, before: list[tuple[Job, Counter[int], float]]) -> bool:
        """Settle what has changed since ``before``; whether anything has."""
        changed = [(job, nodes, done) for job, nodes, done in before if self.nodes_of(job) != nodes]
        for job, nodes, done in changed:
            if not job.devices:
                job.preempt(self.now, done)
            elif not nodes:
                job.start(self.now, self.where(job))
            else:
                job.rescale(self.now, done, nodes.total(), self.where(job))
        for job in self.running():
            job.follow_wishes(self.now)
        for job in self.jobs:
            job.wanted_sync = None  # one that waits keeps its own, and its depth
            if job.layers is not None:
                job.layers.wanted = None
        self.interfere()
        self.follow_workers(self.now, self.running())
        return bool(changed)

    # 001, section 4: passes
    def schedule(self) -> None:
        before = self.holdings()
        self.update_queues()
        if self.chooser is not None:
            self.pass_of_chooser(self.chooser)
        elif not self.order.preemptive:
            for job in self.candidates():
                if not job.devices and not self.try_place(job) and not self.order.backfill:
                    break
        elif self.config.select_by_count:
            self.pass_by_count()
        else:
            self.pass_with_eviction()
        self.book(before)

    def pass_of_chooser(self, chooser: Chooser) -> None:
        active = [job for job in self.jobs if job.status == "active"]
        if active:
            decide(chooser, self.now, self.passes, active, self.devices, self.config, self.seed)
            self.passes += 1

    def where(self, job: Job) -> tuple[str, tuple[int, ...]]:
        """Type and GPUs per node of a job's devices; in Pollux's simulator nodes stand in the order taken."""
        nodes = self.nodes_of(job)
        order = nodes if self.config.compat == "pollux" else sorted(nodes)
        return self.devices.type_of[next(iter(nodes))], tuple(nodes[n] for n in order)

    def update_queues(self) -> None:
        """Move the jobs that crossed a limit since the last pass to the end of their level's queue."""
        for job in self.jobs:
            if job.queue and job.queue[0] != job.level:
                job.queue = (job.level, self.now, job.job_id)

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
        for node, gpu_type in enumerate(devices.type_of):
            quota[gpu_type] += len(devices.open_on(node)) * WHOLE
        for job in [job for job in self.running() if not job.preemptible] + self.candidates():
            held = {devices.type_of[node] for node in self.nodes_of(job)}
            demand = (len(job.devices) or job.num_gpus) * job.share_milli
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

    # 001, section 5: keys
    def rank(self, job: Job) -> tuple[float, ...]:
        if self.order.key == Key.QUEUE:
            return job.queue
        remaining = job.remaining_at(self.now)
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


def _multiple_from(time: float, step: float) -> float:
    """The least multiple of ``step`` that is not before ``time``."""
    k = math.floor(time / step) - 1
    while k * step < time:
        k += 1
    return k * step


def simulate_reference(
    trace: Trace,
    cluster: ClusterSpec,
    scheduler: ListOrder | Chooser,
    config: SimConfig,
    seed: int = 0,
    profiles: Profiles | None = None,
    tuned: bool = False,
    known: Profiles | None = None,
) -> dict[str, list[Any]]:
    """Run a trace to its end; columns by name, one entry a job or task in trace order.

    ``first_start_s``, ``finish_s`` [s, nan for a rejected job], ``queueing_delay_s`` [s],
    ``service_gpu_s``, ``paused_gpu_s`` [GPU-s], ``num_rescales``, ``num_preemptions``, ``status``
    ("completed" or "rejected"), ``residual``, ``depth_changes``, ``lost_gpu_s``, ``straggling_gpu_s`` [GPU-s],
    ``slowed_s`` [s], ``warm`` (1: a task that hit a warm pod).
    ``profiles``: by model, those that elastic jobs run by (None: the shipped ones); ``known``: those by which batches
    are chosen and run times estimated (None: the same). ``tuned``: elastic jobs choose their batch. Raises
    RuntimeError for a run that stops advancing or a decision without room.
    """
    run = Run(trace, cluster, scheduler, config, seed, profiles, tuned, known)
    run.play()
    rows = [run.inference.tasks.get(i) or run.inference.jobs[i] for i in range(len(trace))]
    names = [*OUTPUT.split(), *LAYER_OUTPUT, *STRAGGLER_OUTPUT, "warm"]
    return {name: [getattr(row, name, 0) for row in rows] for name in names}
