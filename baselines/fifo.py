"""First come, first served.

Optimises nothing but order of arrival; the yardstick of every other scheduler. It knows arrival
times only. ``fifo`` stops at the first job that does not fit (head-of-line blocking), as HeliosArtifact's
FIFO and the Tiresias simulator's ``fifo`` do; ``fifo-backfill`` goes on to later jobs that fit, as the
Tiresias simulator's ``fjf`` does. Departure: none; backfill makes no reservation, so a wide job can starve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from envs.order import Key, ListOrder


@dataclass(frozen=True)
class Fifo:
    """Start jobs in order of arrival; nobody overtakes."""

    name: ClassVar[str] = "fifo"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"
    oracle: ClassVar[tuple[str, ...]] = ()

    def order(self) -> ListOrder:
        return ListOrder(Key.ARRIVAL)


@dataclass(frozen=True)
class FifoBackfill:
    """Start jobs in order of arrival; a job that does not fit is overtaken by those that do."""

    name: ClassVar[str] = "fifo-backfill"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"
    oracle: ClassVar[tuple[str, ...]] = ()

    def order(self) -> ListOrder:
        return ListOrder(Key.ARRIVAL, backfill=True)
