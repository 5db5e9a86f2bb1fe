"""Jobs and devices of the slow reference simulator: who holds what, and which devices a job would get.

Written from docs/design/001-core.md, section 3, alone, as envs/reference.py is from the rest of it.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, field

from envs.rng import Purpose, uniform
from envs.spec import ClusterSpec, SimConfig

WHOLE = 1000  # a device, in thousandths


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

    def allowed(self, job: Job) -> tuple[str, ...]:
        return (job.gpu_type,) if job.gpu_type else self.types

    def find(self, job: Job, config: SimConfig, seed: int, *types: str) -> list[int] | None:
        """Devices for a job, on some types if these are given, or None where it has to wait."""
        if job.share_milli == WHOLE:
            counts = self.find_nodes(job, config, seed, *types)
            return None if counts is None else self.lowest(counts)
        allowed = types or self.allowed(job)
        left = {d: WHOLE - sum(h.values()) for d, h in enumerate(self.holders)}
        fitting = [d for d in left if left[d] >= job.share_milli and self.type_of[self.node_of[d]] in allowed]
        return [min(fitting, key=lambda d: (left[d], d))] if fitting else None

    def lowest(self, counts: dict[int, int]) -> list[int]:
        return [d for node, count in counts.items() for d in self.free_on(node)[:count]]

    def find_nodes(self, job: Job, config: SimConfig, seed: int, *types: str) -> dict[int, int] | None:
        """GPUs to take from each node for a job of whole GPUs, or None."""
        free = {n: len(self.free_on(n)) for n, t in enumerate(self.type_of) if t in (types or self.allowed(job))}
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
