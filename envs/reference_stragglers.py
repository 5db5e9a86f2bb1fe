"""What makes workers slow in the slow reference simulator: components, background, load and speeds of GPUs.

Written from docs/design/005-stragglers.md, section 2, and 006-full.md, section 2, alone. What it does to a job is in
reference_pace.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial

from envs.reference_devices import Devices
from envs.reference_jobs import WHOLE, Job
from envs.reference_pace import Workers
from envs.rng import Purpose, uniform
from envs.spec import SimConfig
from envs.straggler_presets import (
    ASYNCHRONOUS_DEMAND,
    BROKEN_GPU,
    CALM,
    CPU,
    CPU_DEMAND,
    DEGRADED_RATE,
    DEGRADED_SHARE,
    DEGRADED_SLOWDOWN,
    GPU,
    HOT,
    IO,
    LONGEST_S,
    NET,
    NET_DEMAND,
    NODE_SHARE,
    SHORTEST_S,
    SLOW_GPU,
    SLOW_SHARE,
    STRAGGLER_PRESETS,
    THETA,
    UTIL,
    WIDTH,
    Cause,
)
from traces.sensitivity import COMPUTE, SPEED_CLASSES

Numbers = Callable[[int], float]  # the uniform numbers of one thing, by counter


def numbers(seed: int, purpose: Purpose, index: int) -> Numbers:
    return partial(uniform, seed, int(purpose), index)  # a compiled function takes long to tell an enum's type


def normal(first: float, second: float) -> float:
    """A standard normal number from two uniform ones."""
    return math.sqrt(-2 * math.log(1 - first)) * math.cos(2 * math.pi * second)


def lognormal(mean: float, log_sd: float, first: float, second: float) -> float:
    return math.exp(math.log(mean) - log_sd**2 / 2 + log_sd * normal(first, second))


class Component:
    """What may become slow: CPUs, link or storage of a node, or a GPU.

    ``severity``: how many times slower it is, until ``end``; 1 and inf while it is normal. ``at``: time of its
    candidate number ``candidate``, the next that is looked at [s].
    """

    def __init__(self, kind: int, node: int, index: int, cause: Cause, factor: float, config: SimConfig, seed: int):
        self.kind, self.node, self.index, self.cause, self.config = kind, node, index, cause, config
        self.u = numbers(seed, Purpose.STRAGGLER, 4 * index + kind)
        frailty = -(math.log(1 - self.u(0)) + math.log(1 - self.u(1))) / 2
        occurs = cause.excess * config.straggler_severity > 0
        hourly = config.straggler_rate * factor * frailty * (cause.least_rate + cause.hot_rate)
        self.rate = hourly / 3600 if occurs else 0.0  # of candidates [1/s]
        self.severity, self.end = 1.0, math.inf
        self.most_severe = STRAGGLER_PRESETS[config.stragglers].most_severe
        self.candidate, self.at = -1, 0.0
        self.go_on()

    @property
    def next_at(self) -> float:
        """When something happens to it next."""
        return min(self.end, self.at)

    def go_on(self) -> None:
        """To the next candidate."""
        self.candidate += 1
        self.at += -math.log(1 - self.u(2 + 8 * self.candidate)) / self.rate if self.rate > 0 else math.inf

    def settle(self, chance: float) -> bool:
        """Its end, or its candidate, an onset with ``chance``; whether it has become slow or normal."""
        if self.end < math.inf:
            self.severity, self.end = 1.0, math.inf
            return True
        if self.u(3 + 8 * self.candidate) >= chance:
            self.go_on()
            return False
        self.end = self.at + self.duration()
        cause, k = self.cause, self.candidate
        excess = lognormal(
            cause.excess * self.config.straggler_severity, cause.excess_log_sd, self.u(6 + 8 * k), self.u(7 + 8 * k)
        )
        self.severity = min(self.most_severe, 1 + excess)
        while self.at <= self.end:
            self.go_on()
        return True

    def duration(self) -> float:
        cause, k = self.cause, self.candidate
        if self.config.straggler_times == "exponential":
            minutes = -cause.mean_min * math.log(1 - self.u(4 + 8 * k))
        else:
            minutes = lognormal(cause.mean_min, cause.log_sd, self.u(4 + 8 * k), self.u(5 + 8 * k))
        return min(LONGEST_S, max(SHORTEST_S, 60 * minutes))


class Background:
    """Load of one kind at a node that is not ours: epochs, hot or calm; asked about times in ascending order."""

    def __init__(self, kind: int, node: int, hot_share: float, sojourn_h: float, seed: int) -> None:
        self.v = numbers(seed, Purpose.BACKGROUND, 4 * node + kind)
        self.hot_share, self.sojourn_s = hot_share, 3600 * sojourn_h
        self.epoch, self.until = -1, 0.0

    def is_hot(self, now: float) -> bool:
        while self.until <= now:
            self.epoch += 1
            self.until += -self.sojourn_s * math.log(1 - self.v(2 * self.epoch))
        return self.v(2 * self.epoch + 1) < self.hot_share


class Stragglers:
    """All components of a cluster, in the state of the time that was settled last."""

    def __init__(self, devices: Devices, jobs: list[Job], config: SimConfig, seed: int) -> None:
        self.devices, self.config, self.seed = devices, config, seed
        self.jobs = {job.job_id: job for job in jobs}
        self.preset = STRAGGLER_PRESETS[config.stragglers]
        self.components: dict[tuple[int, int], Component] = {}
        kinds = (CPU, NET, IO) if config.straggler_io else (CPU, NET)
        for node, own in enumerate(devices.on_node):
            for kind in kinds:
                self.add(kind, node, node, 1.0)
            for device in own:
                self.add(GPU, node, device, DEGRADED_RATE if self.is_degraded(node) else 1.0)
        self.backgrounds = {
            (kind, node): Background(kind, node, self.preset.causes[kind].hot_share, self.preset.sojourn_h, seed)
            for node in range(len(devices.sizes))
            for kind in (CPU, NET, IO)
        }
        self.speed = cache(self._speed)

    def add(self, kind: int, node: int, index: int, factor: float) -> None:
        cause = self.preset.causes[kind]
        self.components[kind, index] = Component(kind, node, index, cause, factor, self.config, self.seed)

    def first(self) -> Component:
        """To which something happens next."""
        return min(self.components.values(), key=lambda component: component.next_at)

    def settle(self, component: Component) -> bool:
        """What happens to it next; whether it has become slow or normal."""
        return component.settle(self.chance(component, component.next_at))

    # Load and what it does
    def chance(self, component: Component, now: float) -> float:
        """That a candidate of a normal component is an onset."""
        kind, node, cause = component.kind, component.node, component.cause
        if kind == GPU:
            held = bool(self.devices.holders[component.index]) or component.index in self.devices.awake_on(node)
            return (1 + UTIL * (held and self.config.straggler_load)) / (1 + UTIL)
        if kind != NET and self.tenants(kind, node, now) < 2:
            return 0.0
        often = 1 / (1 + math.exp(-(self.load(kind, node, now) - THETA) / WIDTH))
        return (cause.least_rate + cause.hot_rate * often) / (cause.least_rate + cause.hot_rate)

    def tenants(self, kind: int, node: int, now: float) -> int:
        hot = self.backgrounds[kind, node].is_hot(now)
        if not self.config.straggler_load:
            return 2 if hot else 0
        jobs = {job_id for device in self.devices.on_node[node] for job_id in self.devices.holders[device]}
        return len(jobs) + bool(self.devices.awake_on(node)) + hot

    def load(self, kind: int, node: int, now: float) -> float:
        """U of CPU, NET or IO at a node."""
        load = HOT if self.backgrounds[kind, node].is_hot(now) else CALM
        if self.config.straggler_load:
            for device in self.devices.on_node[node]:
                for job_id, share in self.devices.holders[device].items():
                    load += self.demand(kind, self.jobs[job_id]) * share / WHOLE / self.devices.sizes[node]
            if kind != NET:
                load += CPU_DEMAND * len(self.devices.awake_on(node)) / self.devices.sizes[node]
        return load

    def demand(self, kind: int, job: Job) -> float:
        """Of a job that holds all devices of a node."""
        if kind == NET:
            demand = NET_DEMAND * job.communication()[0] if len(self.devices.nodes_of(job)) > 1 else 0.0
        else:
            demand = CPU_DEMAND * (job.feels.cpu if kind == CPU else job.feels.io)
        return demand * (ASYNCHRONOUS_DEMAND if job.sync == "asynchronous" else 1.0)

    # Slowness
    def severity(self, kind: int, index: int) -> float:
        component = self.components.get((kind, index))
        return 1.0 if component is None else component.severity

    def is_degraded(self, node: int) -> bool:
        return self.config.gpu_variability and uniform(self.seed, Purpose.VARIABILITY, 2 * node, 2) < DEGRADED_SHARE

    def _speed(self, device: int, speed_class: int) -> float:
        """How many times longer than usual a device takes for good, for jobs of a class."""
        if not self.config.gpu_variability:
            return 1.0
        node = self.devices.node_of[device]
        x = numbers(self.seed, Purpose.VARIABILITY, 2 * node)
        y = numbers(self.seed, Purpose.VARIABILITY, 2 * device + 1)
        z = math.sqrt(NODE_SHARE) * normal(x(0), x(1)) + math.sqrt(1 - NODE_SHARE) * normal(y(0), y(1))
        broken = self.preset.broken_share
        factor = BROKEN_GPU if y(2) < broken else SLOW_GPU if y(2) < broken + SLOW_SHARE else 1.0
        _, sigma, chi = SPEED_CLASSES[speed_class]
        speed = math.exp(sigma * z + chi * math.log(factor))
        return speed * DEGRADED_SLOWDOWN if self.is_degraded(node) else speed

    def task_slowness(self, device: int) -> float:
        """How many times longer than usual an inference task takes that begins to run now."""
        node = self.devices.node_of[device]
        return self.speed(device, COMPUTE) * self.severity(GPU, device) * self.severity(CPU, node)

    def workers(self, job: Job) -> Workers:
        """Of a running job, as slow as they are."""
        several, feels = len(self.devices.nodes_of(job)) > 1, job.feels
        compute, link = [], []
        for device in job.devices:
            node = self.devices.node_of[device]
            cpu = 1 + feels.cpu * (self.severity(CPU, node) - 1)
            io = 1 + feels.io * (self.severity(IO, node) - 1)
            compute.append(self.speed(device, feels.speed_class) * self.severity(GPU, device) * cpu * io)
            link.append(1 + feels.net * (self.severity(NET, node) - 1) if several else 1.0)
        return Workers(compute, link, *job.communication(), job.backup)
