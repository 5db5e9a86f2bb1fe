"""IceFrog: allocate by effective progress, so that GPUs and frozen layers are chosen together (Gao et al., TPDS'25).

The full text is not public, so this is a reconstruction (docs/design/004-layers.md). Known from the abstract: layer-
aware throughput and a frozen penalty give each job's *effective progress*, a scheduler minimises the mean jct by it,
and accuracy is looked after. Ours is all the rest. The host sees, wherever it asks for goodput,

    max over depths d <= cap of goodput(d) (1 - P(d))

for each number of nodes and GPUs (effective.py; cap: front.py), and decides as it would alone: ``pollux`` by its
genetic search (the paper's authors work on a fork of Pollux), ``elastic-srtf`` greedily, shortest effective remaining
first. Then depths follow as in safe-front. With nothing to freeze it is its host bit for bit. A host that reads true
iteration times instead of goodput (``optimus``, ``afs``, ``lyra``) gets those without frozen layers, and is then
nothing but safe-front.
It knows progress, known speeds at every depth and noisy readings of the front, and what its host reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from baselines.effective import Floats, all_depths, shown_penalty
from baselines.hosts import Ints, with_layers
from baselines.safe_front import SafeFront
from envs.view import ClusterView


class EffectiveView(ClusterView):
    """A view of the same cluster at the same pass in which goodput is effective progress."""

    def __init__(self, view: ClusterView, cap: Ints) -> None:
        """``cap`` (J,): most modules to freeze of each slot."""
        self.__dict__.update(vars(view))
        self._cap = cap

    def goodput(self, slots: npt.ArrayLike, widest: npt.ArrayLike = 64, depth: npt.ArrayLike = 0) -> Floats:
        """(n, 2, 65) the largest effective progress at ``depth`` (n,) or deeper, up to the cap; else as ever."""
        wanted = np.asarray(slots, np.int64)
        least = np.broadcast_to(np.asarray(depth, np.int64), wanted.shape)
        pairs = all_depths(least, np.maximum(least, self._cap[wanted]))
        if not pairs.depth.any():
            return super().goodput(wanted, widest)
        of = wanted[pairs.job]
        table = super().goodput(of, np.broadcast_to(widest, wanted.shape)[pairs.job], pairs.depth)
        table *= (1.0 - shown_penalty(self, of, pairs.depth))[:, None, None]
        best: Floats = np.maximum.reduceat(table, pairs.first, axis=0)
        return best


@dataclass
class IceFrog(SafeFront):
    """Let a host allocate by effective progress, and freeze the first layers that have surely converged."""

    rule: ClassVar[str] = "icefrog"
    default_host: ClassVar[str] = "pollux"

    def show(self, view: ClusterView) -> ClusterView:
        super().show(view)
        slots = with_layers(view)
        cap = np.zeros(view.num_slots, np.int64)
        cap[slots] = self.front.cap(view, slots)
        return EffectiveView(view, cap)
