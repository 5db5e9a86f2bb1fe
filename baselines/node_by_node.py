"""Node by node: the least risky nodes first, however many that makes; the rule that must not be used.

The first idea for using straggler probabilities: rank nodes by the excess time that a job is expected to have there
(foresight.py) and fill the best. In the toy of shared/design/stragglers.md, section 4.5, it was worse than oblivious
placement, for it leaves every node half full, so that large jobs spread over more nodes and meet more stragglers. Best
fit decides among equals. Compare ``psr``, which scores placements whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from baselines.foresight import Foresight
from baselines.placing import Placing
from baselines.room import Ask, Ints, Room
from envs.view import ClusterView


@dataclass
class NodeByNode(Placing):
    """Place on the nodes that are least likely to straggle, one by one (a trap)."""

    rule: ClassVar[str] = "node-by-node"

    @property
    def oracle(self) -> tuple[str, ...]:
        return (*super().oracle, "straggler_p")

    def reset(self, view: ClusterView) -> None:
        super().reset(view)
        self._foresight = Foresight()

    def watch(self, view: ClusterView, room: Room) -> None:
        self._foresight.look(view, room)

    def groups(self, view: ClusterView, room: Room, ask: Ask) -> Ints:
        rows = np.minimum(ask.left, ask.gpus)[None]
        met = self._foresight.added(ask.slot, room, rows, np.array([ask.several]))
        comm = view.stragglers.comm_share[ask.slot]
        risk = (1.0 - comm) * met.compute + comm * ask.several * met.network
        groups: Ints = np.unique(risk[0].round(9), return_inverse=True)[1]
        return groups
