"""Avoid slow nodes: oblivious, but nodes where iterations have been taking longer than they should come last.

Ours, as comparison 3 of shared/design/stragglers.md, section 4.4. It looks back: at the smoothed ratio of observed to
expected times of what ran on a node, of links only for jobs that would span nodes. Where nothing runs that ratio fades,
so that it knows least of idle nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from baselines.placing import Placing
from baselines.room import Ask, Bools, Ints, Room
from envs.view import ClusterView


@dataclass
class AvoidSlow(Placing):
    """Place by best fit, on nodes last where jobs have been slow of late."""

    slow: float = 1.1
    """Ratio of observed to expected time from which a node is slow."""

    rule: ClassVar[str] = "avoid-slow"

    def __post_init__(self) -> None:
        if not self.slow >= 1:
            raise ValueError(f"slow must be a ratio >= 1, not {self.slow}")

    def watch(self, view: ClusterView, room: Room) -> None:
        super().watch(view, room)
        _ = view.stragglers.ratio  # to look is what keeps the ratios up to date

    def groups(self, view: ClusterView, room: Room, ask: Ask) -> Ints:
        return slow_nodes(view, ask.several, self.slow).astype(np.int64)


def slow_nodes(view: ClusterView, several: bool, slow: float) -> Bools:
    """(N,) bool whether nodes have been slow of late, with their links if a job is on ``several``."""
    ratio = view.stragglers.ratio
    found: Bools = (ratio if several else ratio[:, :1]).max(axis=1) > slow
    return found
