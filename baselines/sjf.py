"""Shortest job first, by duration, without preemption.

Minimises mean jct on one machine when all jobs are there at the start. It reads the duration of
every job: the true one (an oracle) with ``--sim.durations oracle``, a prediction with ``estimate``,
and with ``unknown`` nothing, so that it falls back to arrival order. As in HeliosArtifact (SC'21),
it stops at the first job that does not fit. Departure: Helios admits and starts jobs at whole seconds
only; here both happen at the event itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from envs.order import Key, ListOrder


@dataclass(frozen=True)
class Sjf:
    """Start the shortest job; wait for its GPUs if they are not free."""

    name: ClassVar[str] = "sjf"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"
    oracle: ClassVar[tuple[str, ...]] = ("duration",)

    def order(self) -> ListOrder:
        return ListOrder(Key.DURATION)
