"""Decisions by counts and by placements in the slow reference simulator (002-elastic.md, section 4; 004 and 005)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from envs.reference_devices import Devices
from envs.reference_jobs import Job
from envs.spec import SimConfig


class Seen(NamedTuple):
    """What a chooser sees of an active job; ``placement``: GPUs held on each node, (N,); ``deepest``: most depth."""

    job_id: int
    request: int
    max_gpus: int
    gpus: int
    elastic: bool
    placement: tuple[int, ...]
    deepest: int = 0


# (now, passes with jobs so far, active jobs by job_id, GPUs of each node that training may hold) ->
# {job_id: (GPUs, placement or None, and a depth and a way to wait if it shall have others)}; a job left out gets none.
# If one has a placement, all with GPUs have.
Placement = tuple[int, ...] | None
Answer = tuple[int, Placement] | tuple[int, Placement, int | None] | tuple[int, Placement, int | None, str | None]
Chooser = Callable[[float, int, list[Seen], list[int]], dict[int, Answer]]


def decide(
    chooser: Chooser, now: float, index: int, jobs: list[Job], devices: Devices, config: SimConfig, seed: int
) -> None:
    """Ask the chooser about the active jobs and move devices as it says."""
    sizes = [len(devices.open_on(n)) for n in range(len(devices.sizes))]
    answer = chooser(now, index, [_see(job, devices) for job in jobs], sizes)
    wanted = [(job, *answer.get(job.job_id, (0, None))[:2]) for job in jobs]
    for job in jobs:
        if job.layers is not None:
            job.layers.wanted = next(iter(answer.get(job.job_id, ())[2:3]), None)
        job.wanted_sync = next(iter(answer.get(job.job_id, ())[3:]), None)
    if any(row is not None for _, _, row in wanted):
        _follow_placements(devices, [(job, row if gpus and row else ()) for job, gpus, row in wanted])
    else:
        _follow_counts(devices, [(job, gpus) for job, gpus, _ in wanted], config, seed)


def _see(job: Job, devices: Devices) -> Seen:
    nodes = devices.nodes_of(job)
    row = tuple(nodes[n] for n in range(len(devices.sizes)))
    deepest = 0 if job.layers is None else job.layers.deepest
    return Seen(job.job_id, job.num_gpus, job.max_gpus, sum(row), job.training is not None, row, deepest)


def _follow_placements(devices: Devices, wanted: list[tuple[Job, tuple[int, ...]]]) -> None:
    changed = []
    for job, row in wanted:
        nodes = Counter({n: gpus for n, gpus in enumerate(row) if gpus})
        if nodes != devices.nodes_of(job):
            devices.take_back(job)
            changed.append((job, nodes))
    for job, nodes in changed:
        devices.give(job, devices.lowest(nodes))


def _follow_counts(devices: Devices, wanted: list[tuple[Job, int]], config: SimConfig, seed: int) -> None:
    changed = [(job, gpus) for job, gpus in wanted if gpus != len(job.devices)]
    for job, _ in changed:
        devices.take_back(job)
    rigid = sorted((-gpus, job.job_id, job) for job, gpus in changed if gpus and job.training is None)
    elastic = sorted((gpus, job.job_id, job) for job, gpus in changed if gpus and job.training is not None)
    for gpus, _, job in [*rigid, *elastic]:
        found = devices.find(job, config, seed, elastic_gpus=max(gpus, 0))
        if found is None:
            raise RuntimeError(f"no place for the {abs(gpus)} GPUs of job {job.job_id}")
        devices.give(job, found)
