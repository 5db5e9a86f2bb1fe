"""Tiresias: discretised two-dimensional least attained service (Gu et al., NSDI'19, section 3.2).

Minimises mean jct without knowing durations: a job starts in the first queue and falls to the next
when its attained GPU-time reaches that queue's threshold; lower queues run what the upper ones leave.
Inside a queue jobs run in order of their start, so that a newcomer never preempts its equals.
``promote`` = k returns a job to the first queue when it has waited k times as long as it has run
(the paper's PROMOTEKNOB), against starvation; off by default, as in the authors' simulator.
Departures: thresholds are met at the exact instant. The authors' simulator predicts that instant
wrongly for jobs of several GPUs and demotes them late. Placement by tensor skew, which their open
simulator lacks too, is not modelled.
Elastic jobs run at their requests. Under ``compat pollux`` or ``deepboot`` it is the Tiresias of those simulators
instead: one threshold of 16 GPU-hours, and jobs of a queue run in order of their entry into it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import ClassVar, Literal

from envs.order import MAX_LIMITS, Key, ListOrder
from envs.spec import SimConfig

DEFAULT_THRESHOLDS = (3250.0, 7200.0)


@dataclass(frozen=True)
class Tiresias:
    """Multi-level feedback queues over attained GPU-time."""

    thresholds: tuple[float, ...] = DEFAULT_THRESHOLDS
    """Attained service at which a job falls to the next queue, ascending [GPU-s]."""
    within: Literal["start", "entry"] = "start"
    """Jobs of one queue run in order of their start, or of their entry into the queue."""
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

    def with_config(self, config: SimConfig) -> Tiresias:
        """As Pollux's simulator and DeepBoot's have it, if ``config`` follows one and thresholds are not given."""
        if config.as_pollux and self.thresholds == DEFAULT_THRESHOLDS:
            return replace(self, thresholds=(57600.0,), within="entry")
        return self

    def order(self) -> ListOrder:
        key = Key.LEVEL if self.within == "start" else Key.QUEUE
        return ListOrder(key, preemptive=True, limits=self.thresholds, promote=self.promote)
