"""Shortest remaining time first, preemptive.

Minimises mean jct on one machine with free preemption; on a cluster of gangs it is a strong
heuristic rather than an optimum. ``srtf`` ranks by remaining seconds (the Tiresias simulator's
``shortest``, HeliosArtifact's SRTF), ``srtf-gpu`` by remaining seconds x GPUs (``shortest-gpu``), which
prefers jobs that give their GPUs back sooner. Both read remaining work: true with
``--sim.durations oracle``, predicted with ``estimate``, and with ``unknown`` they are FIFO with preemption.
Departures: equals run in order of arrival, where the Tiresias simulator leaves ahead whoever was ahead at
the previous event. Helios evaluates the order every second; here that happens at events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from envs.order import Key, ListOrder


@dataclass(frozen=True)
class Srtf:
    """Run the jobs with the least remaining time; the others are preempted."""

    name: ClassVar[str] = "srtf"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"
    oracle: ClassVar[tuple[str, ...]] = ("duration",)

    def order(self) -> ListOrder:
        return ListOrder(Key.REMAINING, preemptive=True)


@dataclass(frozen=True)
class SrtfGpu:
    """Run the jobs with the least remaining GPU-time; the others are preempted."""

    name: ClassVar[str] = "srtf-gpu"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"
    oracle: ClassVar[tuple[str, ...]] = ("duration",)

    def order(self) -> ListOrder:
        return ListOrder(Key.REMAINING_GPU_TIME, preemptive=True)
