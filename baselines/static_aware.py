"""Static-aware placement: the fastest GPUs by their profile, whatever straggles now (PM-First of PAL, SC'24).

GPUs of one type differ for good, and by class of job (arXiv 2408.11919). A job goes to the node whose GPUs that it
would take are fastest, of a larger one the nodes with the fastest free GPUs come first. Speeds are compared in steps of
``step``, where PAL clusters them; best fit decides among equals.
It is a reconstruction from the abstract and the published simulator's profiles. PAL weighs speed against locality as
well: a job spread over nodes counts as 1.16 (compute-bound), 1.0 (attention) or 1.1 (memory-bound) times slower. Here
the rule of what is allowed, common to all, leaves no such choice: who fits on a node goes on one.
It knows static speeds exactly and nothing of what straggles for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import ClassVar

import numpy as np

from baselines.placing import Placing
from baselines.room import Ask, Ints, Room
from envs.view import ClusterView


@dataclass
class StaticAware(Placing):
    """Place on the GPUs that are fastest by their profile, by best fit among equals."""

    step: float = 0.02
    """Speeds that differ by less are alike, relative."""

    rule: ClassVar[str] = "static-aware"

    def __post_init__(self) -> None:
        if not 0 < self.step < np.inf:
            raise ValueError(f"step must be a finite number > 0, not {self.step}")

    def groups(self, view: ClusterView, room: Room, ask: Ask) -> Ints:
        speed = room.slowest(ask, np.diag(np.minimum(ask.left, ask.gpus)))
        steps = np.rint(np.log(np.where(speed > 0, speed, 1.0)) / log(1.0 + self.step)).astype(np.int64)
        groups: Ints = steps - steps.min()
        return groups
