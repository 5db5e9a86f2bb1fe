"""FreezeOut: each layer trains until a time of its own, the first ones shortest (Brock et al., arXiv 1706.04983).

Of K modules, module i is frozen from progress t_i on, t_i = t_0 + (1 - t_0) i / (K - 1), by default cubed: t_i^3, so
that with t_0 = 0.8 the first is frozen at 0.512. Its user sets it, whatever the cluster does; allocations are the
host's, which knows speeds without frozen layers only. It knows the job's progress.
Departures: the paper anneals the learning rate of each layer to 0 until t_i, which is not modelled; its time is
epochs, ours statistical work; and the last modules, which a job never freezes, train to the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from baselines.hosts import Freezing, Grants, Ints
from envs.view import ClusterView


@dataclass
class FreezeOut(Freezing):
    """Let a host allocate and freeze each layer at a progress fixed beforehand."""

    start: float = 0.8
    """t_0 of the first module, before it is cubed."""
    cubed: bool = True
    """Cube the times: the first modules stop much earlier, the last no earlier."""

    rule: ClassVar[str] = "freezeout"

    def __post_init__(self) -> None:
        if not 0 <= self.start <= 1:
            raise ValueError(f"start must lie between 0 and 1, not {self.start}")

    def depths(self, view: ClusterView, grants: Grants) -> Ints:
        modules, progress = view.modules[grants.slots, None], view.elastic_progress[grants.slots, None]
        place = np.arange(modules.max())
        times = (self.start + (1.0 - self.start) * place / (modules - 1)) ** (3 if self.cubed else 1)
        depth: Ints = np.minimum(((place < modules) & (times <= progress)).sum(axis=1), view.max_depth[grants.slots])
        return depth
