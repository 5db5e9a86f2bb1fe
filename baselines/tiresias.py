"""Tiresias: discretised two-dimensional least attained service (Gu et al., NSDI'19, section 3.2).

Minimises mean jct without knowing durations: a job starts in the first queue and falls to the next
when its attained GPU-time reaches that queue's threshold; lower queues run what the upper ones leave.
Inside a queue jobs run in order of their start, so that a newcomer never preempts its equals.
``promote`` = k returns a job to the first queue when it has waited k times as long as it has run
(the paper's PROMOTEKNOB), against starvation; off by default, as in the authors' simulator.
Departures: thresholds are met at the exact instant. The authors' simulator predicts that instant
wrongly for jobs of several GPUs and demotes them late. Placement by tensor skew, which their open
simulator lacks too, is not modelled.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar, Literal

from envs.order import MAX_LIMITS, Key, ListOrder


@dataclass(frozen=True)
class Tiresias:
    """Multi-level feedback queues over attained GPU-time."""

    thresholds: tuple[float, ...] = (3250.0, 7200.0)
    """Attained service at which a job falls to the next queue, ascending [GPU-s]."""
    promote: float = 0.0
    """A job returns to the first queue after waiting this multiple of its run time; 0: never."""

    name: ClassVar[str] = "tiresias"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"
    oracle: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        ascending = all(low < high for low, high in zip((0.0, *self.thresholds), self.thresholds, strict=False))
        if not (ascending and all(map(isfinite, self.thresholds)) and 1 <= len(self.thresholds) <= MAX_LIMITS):
            raise ValueError(f"thresholds must be 1 to {MAX_LIMITS} ascending numbers > 0, not {self.thresholds}")
        if not (isfinite(self.promote) and self.promote >= 0):
            raise ValueError(f"promote must be a finite number >= 0, not {self.promote}")

    def order(self) -> ListOrder:
        return ListOrder(Key.LEVEL, preemptive=True, limits=self.thresholds, promote=self.promote)
