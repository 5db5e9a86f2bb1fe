"""What schedulers share that hand out GPUs by marginal gain: which jobs are left to them, and how many GPUs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from envs.view import ClusterView

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Share(NamedTuple):
    """What is left once rigid and pinned jobs have their GPUs."""

    slots: Ints  # (n,) elastic jobs whose GPUs may change, in order of arrival
    free: int  # GPUs for them, those they hold included
    gpus: npt.NDArray[np.int32]  # (J,) [GPUs] of all other jobs; 0 for ``slots``


def after_rigid(view: ClusterView) -> Share:
    """The GPUs that elastic jobs may divide.

    Rigid jobs keep what they hold, and so do elastic ones that are not preemptible. Waiting rigid jobs come next, in
    order of arrival; one whose gang does not fit is passed over. A fraction of a device counts as a whole one.
    """
    slots, held = view.slots, view.gpus
    elastic = view.elastic[slots]
    kept = (held[slots] > 0) & ~(elastic & view.preemptible[slots])
    gpus = np.zeros(len(held), np.int32)
    gpus[slots[kept]] = held[slots[kept]]
    movable = slots[elastic & ~kept]
    free = int(view.node_free.sum() + held[movable].sum())
    for j in slots[~elastic & ~kept]:
        if view.num_gpus[j] <= free:
            gpus[j] = view.num_gpus[j]
            free -= int(gpus[j])
    return Share(movable, free, gpus)
