"""How fast a job runs whose workers are slow, for the slow reference simulator (docs/design/005-stragglers.md, 4)."""

from __future__ import annotations

import math
from typing import NamedTuple

STRAGGLES = 1.2  # a worker that takes this many times as long as the fastest of its job
ASYNCHRONOUS = 0.7  # what an asynchronous iteration is worth
GROUPS = 0.85  # the same with several groups
SAMPLES, MOST_SAMPLES = 32, 64  # of a worker that all share, and of one worker (lb-bsp)


class Workers(NamedTuple):
    """The workers of one job: how many times longer than usual each takes to compute and to communicate.

    ``comm_share``: of an iteration. ``noise_ratio``: noise scale over total batch. ``backup``: workers too many.
    """

    compute: list[float]
    link: list[float]
    comm_share: float
    noise_ratio: float = math.inf
    backup: int = 0

    @property
    def times(self) -> list[float]:
        """By how much longer each takes over an iteration, in all."""
        return [self.time(f, c) for f, c in zip(self.compute, self.link, strict=True)]

    def time(self, compute: float, link: float) -> float:
        return 1 + (1 - self.comm_share) * (compute - 1) + self.comm_share * (link - 1)

    @property
    def straggling(self) -> int:
        """How many of them straggle."""
        return sum(time > STRAGGLES * min(self.times) for time in self.times)

    def pace(self, mode: str) -> float:
        """Share of the usual speed at which the job runs."""
        count, times = len(self.compute), sorted(self.times)
        if mode == "backup" and self.backup > 0:
            return 1 / times[count - self.backup - 1]
        if mode == "drop" and count > 1:
            return self.worth_without_one() / times[-2]
        if mode == "asynchronous":
            return ASYNCHRONOUS * sum(1 / time for time in times) / count
        if mode == "grouped":
            return grouped(times)
        if mode == "lb-bsp":
            return 1 / self.time(balanced(self.compute), max(self.link))
        return 1 / self.time(max(self.compute), max(self.link))

    def worth_without_one(self) -> float:
        """Of an iteration from which one worker's gradients are left out."""
        share = (len(self.compute) - 1) / len(self.compute)
        if math.isinf(self.noise_ratio):
            return share
        return share * (self.noise_ratio + 1) / (self.noise_ratio + share)


def grouped(times: list[float]) -> float:
    """Pace where workers wait only for those about as fast; ``times`` ascending."""
    groups: list[list[float]] = []
    for time in times:
        if groups and time <= STRAGGLES * groups[-1][0]:
            groups[-1].append(time)
        else:
            groups.append([time])
    pace = sum(len(group) / len(times) / group[-1] for group in groups)
    return pace * GROUPS if len(groups) > 1 else pace


def balanced(compute: list[float]) -> float:
    """How many times longer than usual the compute of an iteration takes whose samples are divided by speed."""
    speeds = {worker: 1 / slowness for worker, slowness in enumerate(compute)}
    samples: dict[int, float] = {}
    total = float(SAMPLES * len(compute))
    while True:
        rest = [worker for worker in speeds if worker not in samples]
        left = total - sum(samples.values())
        shares = {worker: left * speeds[worker] / sum(speeds[w] for w in rest) for worker in rest}
        full = [worker for worker in rest if shares[worker] > MOST_SAMPLES]
        if not full:
            samples |= shares
            return max(math.ceil(samples[w] - 1e-9) * slowness / SAMPLES for w, slowness in enumerate(compute))
        samples |= dict.fromkeys(full, float(MOST_SAMPLES))
