"""Freezing that nobody should do: what a model of freezing must punish, and a learned policy must not fall for; ours.

``always-max`` freezes all that a job may freeze from its start; ``greedy-freeze`` what makes effective progress
largest at this moment, at every pass, with nothing to hold it back: it freezes ahead of convergence for a small gain
at once, the modules then never converge, and the penalty stays (shared/design/layer_elasticity.md, section 3.4). Both
leave much of the model untrained, which jct alone does not show: compare the residual. Allocations are the host's,
which knows speeds without frozen layers only. Beyond its host, greedy-freeze knows progress and known speeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from baselines.effective import best_depths
from baselines.hosts import Freezing, Grants, Ints
from envs.view import ClusterView


@dataclass
class AlwaysMax(Freezing):
    """Let a host allocate and freeze as many layers as possible from the start (a trap)."""

    rule: ClassVar[str] = "always-max"

    def depths(self, view: ClusterView, grants: Grants) -> Ints:
        return view.max_depth[grants.slots].astype(np.int64)


@dataclass
class GreedyFreeze(Freezing):
    """Let a host allocate and freeze whatever is fastest now, converged or not (a trap)."""

    rule: ClassVar[str] = "greedy-freeze"

    def depths(self, view: ClusterView, grants: Grants) -> Ints:
        most = view.max_depth[grants.slots].astype(np.int64)
        return best_depths(view, grants, np.zeros_like(most), most).depth
