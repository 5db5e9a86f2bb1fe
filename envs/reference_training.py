"""How fast an elastic job runs, for the slow reference simulator: batch size, rate, most GPUs, estimate.

Written from docs/design/002-elastic.md, sections 2 and 6 (profile and oracle), and 005-stragglers.md alone.
"""

from __future__ import annotations

import math
from functools import cache

from traces.profiles import ModelProfile, TypeProfile, canonical_type

MOST_GPUS = 64
CANDIDATES = 50  # total batch sizes tried when tuning


class Training:
    """Speed of one job: ``truth`` as simulated, ``known`` as its batch is chosen by.

    ``node_gpus``: GPUs of the largest node of each type that the job may use, in type order. ``batch_size`` is the
    requested one (0: the model's default).
    """

    def __init__(
        self,
        truth: ModelProfile,
        known: ModelProfile,
        num_gpus: int,
        batch_size: int,
        tuned: bool,
        node_gpus: dict[str, int],
    ) -> None:
        self.truth, self.known, self.tuned, self.node_gpus = truth, known, tuned, node_gpus
        self.min_local = max((type_of(truth, t).min_local for t in node_gpus), default=1)
        default = min(truth.max_batch, max(truth.init_batch, self.min_local * num_gpus))
        self.batch = batch_size or default
        self.rate = cache(self._rate)
        self.communication = cache(self._communication)

    def most_gpus(self, limit: int) -> int:
        """The most GPUs the job may hold; ``limit`` is the trace's (0: none)."""
        batch = self.truth.max_batch if self.tuned else self.batch
        return min(MOST_GPUS, batch // self.min_local, limit or MOST_GPUS)

    def _rate(self, gpu_type: str, placement: tuple[int, ...], epoch: int) -> float:
        """Iterations at M0 per second; ``placement``: GPUs of each node held, in node order."""
        local, steps = self.choose_batch(gpu_type, sum(placement), len(placement) > 1, epoch)
        return goodput(self.truth, type_of(self.truth, gpu_type), placement, local, steps, epoch)

    def _communication(self, gpu_type: str, placement: tuple[int, ...], epoch: int) -> tuple[float, float]:
        """Of the batch that runs there: the share of an iteration that is communication (005, section 3), and its
        noise scale over its total size.
        """
        gpus = sum(placement)
        local, steps = self.choose_batch(gpu_type, gpus, len(placement) > 1, epoch)
        grad, step = times(type_of(self.truth, gpu_type), placement, local)
        batch = gpus * local * (steps + 1)
        sqr, var = (float(x) for x in self.truth.gradients(min(epoch, len(self.truth.progress) - 1), batch))
        noise = math.inf if sqr == 0 else var * self.truth.init_batch / sqr
        return (step - grad) / (steps * grad + step), noise / batch

    def choose_batch(self, gpu_type: str, gpus: int, several: bool, epoch: int) -> tuple[int, int]:
        """(local batch, accumulation steps)."""
        profile = type_of(self.truth, gpu_type)
        choices = list(self.candidates(profile, gpus)) if self.tuned else []
        if choices:
            placement = pack(gpus, several, self.node_gpus[gpu_type])
            known = type_of(self.known, gpu_type)
            # The first of equals.
            local, steps = max(choices, key=lambda c: goodput(self.known, known, placement, c[0], c[1], epoch))
        else:
            target = max(self.truth.init_batch, profile.min_local * gpus) if self.tuned else self.batch
            local = ceil(target / gpus)
            steps = ceil(local / profile.max_local) - 1
            if gpus == 1 and target > self.truth.init_batch:
                steps = max(steps, 1)
            local = ceil(local / (steps + 1))
        return min(local, self.truth.max_batch // (gpus * (steps + 1))), steps

    def candidates(self, profile: TypeProfile, gpus: int) -> list[tuple[int, int]]:
        """(local batch, accumulation steps) of the geometric batch sizes that fit, ascending."""
        low, high = max(self.truth.init_batch, profile.min_local * gpus), self.truth.max_batch
        found = []
        for i in range(CANDIDATES):
            share = low * (high / low) ** (i / (CANDIDATES - 1)) / gpus
            steps = ceil(share / profile.max_local) - 1
            if gpus == 1 and share > self.truth.init_batch + 1e-8:
                steps = max(steps, 1)
            local = ceil(share / (steps + 1))
            if profile.min_local <= local <= profile.max_local:
                found.append((local, steps))
        return found

    def estimate(self, num_gpus: int, totals: dict[str, int]) -> float:
        """Run time [s] at the request by what is known; ``totals``: GPUs of each type that the job may use."""
        fitting = [t for t in self.node_gpus if totals[t] >= num_gpus]
        if not fitting:
            return 0.0
        gpu_type, time, before = fitting[0], 0.0, 0.0
        several = num_gpus > self.node_gpus[gpu_type]
        for epoch, end in enumerate(self.known.progress):
            time += float(end - before) / self.known_goodput(gpu_type, num_gpus, several, epoch)
            before = end
        return time

    def known_goodput(self, gpu_type: str, gpus: int, several: bool, epoch: int) -> float:
        """Iterations at M0 per second by what is known, packed on the fewest nodes."""
        local, steps = self.choose_batch(gpu_type, gpus, several, epoch)
        placement = pack(gpus, several, self.node_gpus[gpu_type])
        return goodput(self.known, type_of(self.known, gpu_type), placement, local, steps, epoch)


def type_of(model: ModelProfile, gpu_type: str) -> TypeProfile:
    return model.types[canonical_type(gpu_type)]


def goodput(
    model: ModelProfile, profile: TypeProfile, placement: tuple[int, ...], local: int, steps: int, epoch: int
) -> float:
    """Iterations at M0 per second of a local batch with accumulation steps on a placement."""
    gpus = sum(placement)
    grad, step = times(profile, placement, local)
    time = steps * grad + step
    return float(model.gain(min(epoch, len(model.progress) - 1), gpus * local * (steps + 1))) / time


def times(profile: TypeProfile, placement: tuple[int, ...], local: int) -> tuple[float, float]:
    """Seconds of the gradients of a local batch, and of these with their synchronisation."""
    if profile.measured is not None:
        step, sync = profile.measured.times(placement, local)
        return float(step - sync), float(step)
    grad, step = profile.throughput.times(len(placement) > 1, sum(placement), local)
    return float(grad), float(step)


def pack(gpus: int, several: bool, node_gpus: int) -> tuple[int, ...]:
    """A placement on the fewest nodes of ``node_gpus`` GPUs each, at least two if ``several``."""
    if not several:
        return (gpus,)
    nodes = max(2, math.ceil(gpus / node_gpus))
    full = min(node_gpus, gpus - (nodes - 1))
    return (gpus - full * (nodes - 1), *[full] * (nodes - 1))


def ceil(number: float) -> int:
    """The least integer not below a number that may be 1e-8 too large by rounding."""
    return math.ceil(number - 1e-8)
