"""Wrangler-like: nodes that are likely to straggle soon take a job only once it has waited (Yadwadkar et al., SoCC'14).

Wrangler classifies nodes by their counters and delays assignments to those that it is confident will straggle. Here
a node is one if it is seen to straggle within 10 minutes with probability ``confident`` or more, for a job on several
nodes its link too; a job that finds no other place waits ``patience_s``, and then such nodes come last.
Departures: the probability is the simulator's (``--sim.straggler-obs``) instead of a classifier's; Wrangler places the
tasks of one job one by one, ours are gangs; and under a rule that does not backfill those behind wait, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from baselines.placing import NEVER, Placing
from baselines.room import Ask, Ints, Room
from envs.view import ClusterView


@dataclass
class Wrangler(Placing):
    """Place by best fit, on nodes that will probably straggle only after a while."""

    confident: float = 0.7
    """Probability from which a node counts as straggling."""
    patience_s: float = 300.0
    """How long a job waits for other nodes [s]."""

    rule: ClassVar[str] = "wrangler"

    def __post_init__(self) -> None:
        if not 0 < self.confident <= 1:
            raise ValueError(f"confident must lie in (0, 1], not {self.confident}")
        if not self.patience_s >= 0:
            raise ValueError(f"patience_s must be a time >= 0, not {self.patience_s}")

    @property
    def oracle(self) -> tuple[str, ...]:
        return (*super().oracle, "straggler_p")

    def groups(self, view: ClusterView, room: Room, ask: Ask) -> Ints:
        p = view.stragglers.p[:, :, 0]
        spared = (1.0 - p).prod(axis=1) if ask.several else 1.0 - p[:, 0]
        waited = view.queueing_delay[ask.slot] >= self.patience_s
        return np.where(1.0 - spared >= self.confident, 1 if waited else NEVER, 0)
