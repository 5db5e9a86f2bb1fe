"""Devices of the slow reference simulator: who holds what, and which devices a job would get.

Written from docs/design/001-core.md, section 3, 002-elastic.md, section 4, and 003-inference.md, section 4, alone.
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from dataclasses import dataclass

from envs.reference_jobs import WHOLE, Job
from envs.rng import Purpose, uniform
from envs.spec import ClusterSpec, SimConfig


@dataclass
class Pod:
    """A device that serves one inference service (003, section 1).

    ``state``: start, running, protect or sleep, until ``until`` [s].
    """

    service: str
    born: int  # number of births in the run before it
    task: int  # the last one it serves or has served
    until: float
    state: str = "start"
    hits: int = 0

    def is_warm(self) -> bool:
        return self.state in ("protect", "sleep")

    def is_awake(self) -> bool:
        return self.state != "sleep"


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
        self.pods: dict[int, Pod] = {}  # by device
        self.reserved: set[int] = set()  # nodes of which training may hold nothing
        self.inference_part: set[int] = set()  # nodes that are reserved for ever

    def give(self, job: Job, devices: list[int]) -> None:
        job.devices = devices
        for device in devices:
            self.holders[device][job.job_id] = job.share_milli
            self.pods.pop(device, None)

    def without(self, jobs: list[Job]) -> Devices:
        """The same devices if these jobs held none."""
        ids = {job.job_id for job in jobs}
        other = copy(self)
        other.holders = [{i: h[i] for i in h if i not in ids} for h in self.holders]
        return other

    def take_back(self, job: Job) -> None:
        self.holders = self.without([job]).holders
        job.devices = []

    def take_back_on(self, job: Job, *devices: int) -> None:
        """Some of a job's devices."""
        for device in devices:
            del self.holders[device][job.job_id]
        job.devices = [d for d in job.devices if d not in devices]

    def open_on(self, node: int) -> list[int]:
        """The devices of a node that training may hold: first those without a pod, then by birth, last first."""
        if node in self.down | self.reserved | self.inference_part:
            return []
        return [d for d in self.on_node[node] if d not in self.pods] + self.asleep_on(node)[::-1]

    def asleep_on(self, node: int) -> list[int]:
        """The devices of a node with a sleeping pod, the one born first first."""
        asleep = [d for d in self.on_node[node] if d in self.pods and not self.pods[d].is_awake()]
        return sorted(asleep, key=lambda d: self.pods[d].born)

    def awake_on(self, node: int) -> list[int]:
        """The devices of a node whose pods do not sleep."""
        return [d for d in self.on_node[node] if d in self.pods and self.pods[d].is_awake()]

    def empty_on(self, node: int) -> list[int]:
        return [d for d in self.on_node[node] if node not in self.down and not self.holders[d] and d not in self.pods]

    def free_on(self, node: int) -> list[int]:
        """The wholly free devices of a node that training may hold, in the order in which it takes them."""
        return [d for d in self.open_on(node) if not self.holders[d]]

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
        usable = [d for n, t in enumerate(self.type_of) if t in allowed for d in self.open_on(n)]
        left = {d: WHOLE - sum(self.holders[d].values()) for d in usable}
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
        nodes = [n for n, t in enumerate(self.type_of) if t in (types or self.allowed(job))]
        free = {n: len(self.free_on(n)) for n in nodes if n not in self.inference_part}
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
