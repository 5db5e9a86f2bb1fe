"""Smallest job first: fewest GPUs.

Favours jobs that are easy to fit and so keeps many of them running; it knows requests only, no
durations. The Tiresias simulator calls this rule ``sjf``; the name is not used here because
"shortest job" elsewhere means shortest duration (see ``sjf``). Preemptive, and a job that does not
fit is skipped. Departure: ties are broken by arrival, as there, but the simulator may charge a pause
for each resume, which the Tiresias simulator never does (``--sim.compat tiresias`` does not either).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from envs.order import Key, ListOrder


@dataclass(frozen=True)
class Smallest:
    """Run the jobs with the fewest GPUs; wider ones are preempted for them."""

    name: ClassVar[str] = "smallest"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"
    oracle: ClassVar[tuple[str, ...]] = ()

    def order(self) -> ListOrder:
        return ListOrder(Key.NUM_GPUS, preemptive=True)
