"""Random but lawful decisions of schedulers in Python: pure functions of what a pass shows, without its time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from envs.reference_decisions import Seen

Answer = dict[int, tuple[int, tuple[int, ...] | None]]


class JobFacts(NamedTuple):
    """What a trace says of a job: the GPU types of the cluster that it may use, and whether it may be stopped."""

    types: tuple[str, ...]
    preemptible: bool


@dataclass(frozen=True)
class RandomChooser:
    """Mostly leaves jobs alone; now and then (``shake``) stops, resizes or moves some; starts waiting ones.

    ``placed``: the chance that a pass answers with placements. ``widest``: counts go to the GPU type with most free
    devices, not to the first with enough. It never leaves a cluster idle that could run a job.
    """

    seed: int
    facts: dict[int, JobFacts]
    types: tuple[str, ...]
    node_types: tuple[str, ...]
    widest: bool
    placed: float
    shake: float

    def __call__(self, now: float, index: int, jobs: list[Seen], nodes: list[int]) -> Answer:
        rng = Random(f"{self.seed} {index}")
        shaken = rng.random() < self.shake
        wanted = {job.job_id: self._wish(rng, job, shaken) for job in jobs}
        answer = self._answer(rng, jobs, nodes, wanted)
        if not any(gpus for gpus, _ in answer.values()):
            answer = self._answer(rng, jobs, nodes, {job.job_id: 1 if job.elastic else job.request for job in jobs})
        return answer

    def _wish(self, rng: Random, job: Seen, shaken: bool) -> int | None:
        """GPUs that a job should get; None: what it has, where it has it."""
        if job.gpus == 0:
            return self._size(rng, job) if rng.random() < 0.7 else 0
        if not self.facts[job.job_id].preemptible or not shaken or rng.random() < 0.5:
            return None
        return rng.choice((0, job.gpus, self._size(rng, job), self._size(rng, job)))

    def _size(self, rng: Random, job: Seen) -> int:
        return rng.choice((1, job.request, rng.randint(1, job.max_gpus))) if job.elastic else job.request

    def _answer(self, rng: Random, jobs: list[Seen], nodes: list[int], wanted: dict[int, int | None]) -> Answer:
        if rng.random() < self.placed:
            return self._place(rng, jobs, nodes, wanted)
        return self._count(jobs, nodes, wanted)

    def _free(self, jobs: list[Seen], nodes: list[int], released: set[int]) -> list[int]:
        held = [job.placement for job in jobs if job.job_id not in released]
        return [size - sum(row[n] for row in held) for n, size in enumerate(nodes)]

    def _place(self, rng: Random, jobs: list[Seen], nodes: list[int], wanted: dict[int, int | None]) -> Answer:
        released = {job.job_id for job in jobs if wanted[job.job_id] is not None}
        free = self._free(jobs, nodes, released)
        answer: Answer = {job.job_id: (job.gpus, job.placement) for job in jobs if job.job_id not in released}
        for job in rng.sample(jobs, len(jobs)):
            gpus = wanted[job.job_id]
            if gpus is None:
                continue
            room = {t: [n for n, u in enumerate(self.node_types) if u == t] for t in self.facts[job.job_id].types}
            enough = [t for t in room if sum(free[n] for n in room[t]) >= (gpus if not job.elastic else min(gpus, 1))]
            row = [0] * len(nodes)
            if gpus and enough:
                gpu_type = rng.choice(enough)
                gpus = min(gpus, sum(free[n] for n in room[gpu_type]))
                for n in _scatter(rng, {n: free[n] for n in room[gpu_type]}, gpus).elements():
                    row[n] += 1
                    free[n] -= 1
            answer[job.job_id] = sum(row), tuple(row)
        return answer

    def _count(self, jobs: list[Seen], nodes: list[int], wanted: dict[int, int | None]) -> Answer:
        """Counts for all of which the simulator finds a type, in the order in which it places jobs."""
        changed = [job for job in jobs if wanted[job.job_id] not in (None, job.gpus)]
        by_node = self._free(jobs, nodes, {job.job_id for job in changed})
        free = {t: sum(f for f, u in zip(by_node, self.node_types, strict=True) if u == t) for t in self.types}
        answer: Answer = {job.job_id: (job.gpus, None) for job in jobs if job not in changed}

        def turn(job: Seen) -> tuple[bool, int, int]:
            gpus = wanted[job.job_id] or 0
            return job.elastic, gpus if job.elastic else -gpus, job.job_id

        for job in sorted(changed, key=turn):
            gpus = wanted[job.job_id] or 0
            enough = [t for t in self.types if t in self.facts[job.job_id].types and free[t] >= gpus]
            if enough:
                free[max(enough, key=free.__getitem__) if self.widest else enough[0]] -= gpus
            answer[job.job_id] = gpus if enough else 0, None
        return answer


def _scatter(rng: Random, free: dict[int, int], gpus: int) -> Counter[int]:
    """``gpus`` devices by node: node after node in a random order, or one by one anywhere."""
    devices = [n for n, count in free.items() for _ in range(count)]
    if rng.random() < 0.6:
        order = rng.sample(list(free), len(free))
        devices.sort(key=order.index)
    else:
        rng.shuffle(devices)
    return Counter(devices[:gpus])
