"""Effective progress: goodput with some first layers frozen, less what the freezing is thought to cost.

    goodput(d) (1 - P(d)) at depth d, P: the penalty that schedulers are shown

Of IceFrog (Gao et al., TPDS'25) the abstract says as much: layer-aware throughput and a frozen penalty together give
an "effective progress". Its full text is not public: the formulas are ours (docs/design/004-layers.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from baselines.hosts import Grants, Ints
from envs.view import ClusterView

Floats = npt.NDArray[np.float64]


class Best(NamedTuple):
    """The depths of largest effective progress."""

    depth: Ints  # (n,) the least of equals
    progress: Floats  # (n,) [iterations at the initial batch per s] there
    at_least: Floats  # (n,) the same at the least depth that was asked for


class Pairs(NamedTuple):
    """Every depth from ``least`` to ``most`` of each of n jobs, one job after another."""

    job: Ints  # (m,) 0 .. n - 1
    depth: Ints  # (m,)
    first: Ints  # (n,) where each job begins


def all_depths(least: Ints, most: Ints) -> Pairs:
    """All depths (n,) ``least`` .. ``most``, which is not below it."""
    count = most - least + 1
    first = np.cumsum(count) - count
    job = np.repeat(np.arange(len(count)), count)
    return Pairs(job, np.arange(len(job)) - first[job] + least[job], first)


def shown_penalty(view: ClusterView, slots: Ints, depth: Ints) -> Floats:
    """(m,) penalty of ``depth`` (m,) frozen modules of ``slots`` (m,), which need no layers at depth 0."""
    penalty = np.zeros(len(slots))
    frozen = depth > 0
    penalty[frozen] = view.penalty(slots[frozen], depth[frozen])
    return penalty


def best_depths(view: ClusterView, grants: Grants, least: Ints, most: Ints) -> Best:
    """The best depths (n,) from ``least`` to ``most`` for jobs at the GPUs that they get."""
    pairs = all_depths(least, most)
    slots = grants.slots[pairs.job]
    goodput = view.goodput(slots, depth=pairs.depth)
    rate = goodput[np.arange(len(slots)), grants.several[pairs.job], grants.gpus[pairs.job]]
    progress = rate * (1.0 - shown_penalty(view, slots, pairs.depth))
    ends = pairs.first + most - least + 1
    best = np.array([a + int(progress[a:b].argmax()) for a, b in zip(pairs.first, ends, strict=True)], np.int64)
    return Best(pairs.depth[best], progress[best], progress[pairs.first])
