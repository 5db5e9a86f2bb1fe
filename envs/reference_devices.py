"""Devices of the slow reference simulator: who holds what, and which devices a job would get.

Written from docs/design/001-core.md, section 3, and docs/design/002-elastic.md, section 4, alone.
"""

from __future__ import annotations

from collections import Counter
from copy import copy

from envs.reference_jobs import WHOLE, Job
from envs.rng import Purpose, uniform
from envs.spec import ClusterSpec, SimConfig


class Devices:
    """Who holds what share of each device of a cluster, and which devices a job would get (section 3)."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self.types = cluster.types
        self.sizes = [int(gpus) for gpus in cluster.node_gpus]
        self.type_of: list[str] = [cluster.types[t] for t in cluster.node_type]
        self.node_of = [node for node, gpus in enumerate(self.sizes) for _ in range(gpus)]
        self.on_node = [[d for d, n in enumerate(self.node_of) if n == node] for node in range(len(self.sizes))]
        self.holders: list[dict[int, int]] = [{} for _ in self.node_of]  # job_id -> share
        self.down: set[int] = set()  # failed nodes

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
        return [] if node in self.down else [d for d in self.on_node[node] if not self.holders[d]]

    def allowed(self, job: Job) -> tuple[str, ...]:
        if job.training is not None:
            return tuple(job.training.node_gpus)
        return (job.gpu_type,) if job.gpu_type else self.types

    def nodes_of(self, job: Job) -> Counter[int]:
        """GPUs held by node, in the order taken."""
        return Counter(self.node_of[d] for d in job.devices)

    def find(self, job: Job, config: SimConfig, seed: int, *types: str, elastic_gpus: int = 0) -> list[int] | None:
        """Devices for a job, on some types if these are given, or None where it has to wait."""
        if job.share_milli == WHOLE:
            counts = self.find_nodes(job, config, seed, *types, elastic_gpus=elastic_gpus)
            return None if counts is None else self.lowest(counts)
        allowed = types or self.allowed(job)
        left = {d: WHOLE - sum(h.values()) for d, h in enumerate(self.holders)}
        usable = [d for d in left if self.node_of[d] not in self.down and self.type_of[self.node_of[d]] in allowed]
        fitting = [d for d in usable if left[d] >= job.share_milli]
        return [min(fitting, key=lambda d: (left[d], d))] if fitting else None

    def lowest(self, counts: dict[int, int]) -> list[int]:
        return [d for node, count in counts.items() for d in self.free_on(node)[:count]]

    def find_nodes(
        self, job: Job, config: SimConfig, seed: int, *types: str, elastic_gpus: int = 0
    ) -> dict[int, int] | None:
        """GPUs to take from each node, in the order taken, for a job of whole GPUs, or None.

        ``elastic_gpus``: how many an elastic job gets by a decision; 0: its request, by the rules of rigid jobs.
        """
        count = elastic_gpus or job.num_gpus
        free = {n: len(self.free_on(n)) for n, t in enumerate(self.type_of) if t in (types or self.allowed(job))}
        if config.placement == "consolidated" and not elastic_gpus:
            return self._consolidated(free, count)
        total = {t: sum(free[n] for n in free if self.type_of[n] == t) for t in self.types}
        enough = [t for t in self.types if total[t] >= count]
        if not enough:
            return None
        # max and min return the first of equals.
        chosen = max(enough, key=lambda t: total[t]) if config.placement == "spread" else enough[0]
        nodes = [n for n in free if self.type_of[n] == chosen]
        if config.placement in ("consolidated", "emptiest"):
            return _gather({n: free[n] for n in nodes}, count, best_fit=config.placement == "consolidated")
        if config.placement == "random":
            placed = job.num_starts + job.num_rescales
            nodes.sort(key=lambda n: uniform(seed, Purpose.PLACEMENT, job.job_id * 65536 + n, placed))
        taken = dict.fromkeys(nodes, 0)
        for _ in range(count):
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


def _gather(free: dict[int, int], count: int, best_fit: bool) -> dict[int, int]:
    """Take from the emptiest node until, with ``best_fit``, one node has all the rest: then the fullest such one."""
    taken: dict[int, int] = {}
    while count > 0:
        last = _best_fit(free, count) if best_fit else None
        node = max(free, key=lambda n: free[n]) if last is None else next(iter(last))
        taken[node] = min(count, free.pop(node))
        count -= taken[node]
    return taken
