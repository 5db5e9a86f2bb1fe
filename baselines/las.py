"""Least attained service first (2D-LAS; Gu et al., Tiresias, NSDI'19, section 3.1).

Without any knowledge of durations it favours jobs that have had the least service, attained service
being GPUs x time held; good for mean jct when most jobs are short and a few are very long. Continuous
LAS would switch between two equal jobs without end; comparing only every ``quantum_s`` while jobs
wait, and at arrivals and completions, makes it round robin with that quantum.
Departure: pauses count as service, since the GPUs are held.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar, Literal

from envs.order import Key, ListOrder


@dataclass(frozen=True)
class Las:
    """Run the jobs with the least attained GPU-time; the others are preempted."""

    quantum_s: float = 60.0
    """Time between two comparisons while jobs wait [s]."""

    name: ClassVar[str] = "las"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"
    oracle: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if not (isfinite(self.quantum_s) and self.quantum_s > 0):
            raise ValueError(f"quantum_s must be a finite time > 0, not {self.quantum_s}")

    def order(self) -> ListOrder:
        return ListOrder(Key.SERVICE, preemptive=True, quantum_s=self.quantum_s)
