"""Random order: the floor that any scheduler should beat.

Draws one rank for each job from the run's seed and keeps it; every job that fits is started in that
order, none is preempted. It knows nothing. Its results depend on the seed, so it is run once a seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from envs.order import Key, ListOrder


@dataclass(frozen=True)
class Random:
    """Start any job that fits, in random order."""

    name: ClassVar[str] = "random"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"
    oracle: ClassVar[tuple[str, ...]] = ()

    def order(self) -> ListOrder:
        return ListOrder(Key.RANDOM, backfill=True)
