"""Safe front: freeze what has surely converged, around any scheduler; ours, the baseline that IceFrog has to beat.

Allocations are the host's, which knows each job's speed without frozen layers only; then every job freezes as the cap
of front.py allows. It knows progress, known speeds at every depth and noisy readings of the front, and nothing that
no real scheduler has, apart from what its host reads. In a model like ours most of what layer elasticity gains is this
(shared/design/layer_elasticity.md, section 5.3), so that allocating with layers in mind must show what it adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from baselines.front import TrustedFront
from baselines.hosts import Freezing, Grants, Ints
from envs.view import ClusterView


@dataclass
class SafeFront(Freezing):
    """Let a host allocate and freeze the first layers that have surely converged."""

    margin: int = 1
    """Modules that are left active below what seems to have converged."""
    memory: int = 5
    """Readings of the front, one a turn, whose median counts."""

    rule: ClassVar[str] = "safe-front"

    def __post_init__(self) -> None:
        if self.margin < 0:
            raise ValueError(f"margin must be a whole number >= 0, not {self.margin}")
        if self.memory < 1:
            raise ValueError(f"memory must be a whole number >= 1, not {self.memory}")

    def reset(self, view: ClusterView) -> None:
        super().reset(view)
        self.front = TrustedFront(self.margin, self.memory)

    def show(self, view: ClusterView) -> ClusterView:
        self.front.read(view)
        return view

    def depths(self, view: ClusterView, grants: Grants) -> Ints:
        return self.front.depths(view, grants)
