"""What schedulers share that divide GPUs among elastic jobs: which jobs are left to them, and how many GPUs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from envs.knapsack import solve
from envs.view import ClusterView

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Share(NamedTuple):
    """What is left once some jobs have their GPUs."""

    slots: Ints  # (n,) jobs whose GPUs are open, in order of arrival
    free: int  # GPUs for them, those they hold included
    gpus: npt.NDArray[np.int32]  # (J,) [GPUs] of all other jobs; 0 for ``slots``


def after_kept(view: ClusterView) -> Share:
    """The GPUs that elastic jobs and waiting rigid ones may divide.

    Rigid jobs keep what they hold, and so do elastic ones that are not preemptible. A fraction of a device counts as a
    whole one. Devices of inference tasks are neither free nor held by a job, so they are in nobody's share.
    """
    slots, held = view.slots, view.gpus
    kept = (held[slots] > 0) & ~(view.elastic[slots] & view.preemptible[slots])
    gpus = np.zeros(len(held), np.int32)
    gpus[slots[kept]] = held[slots[kept]]
    return Share(slots[~kept], int(view.node_free.sum() + held[slots[~kept]].sum()), gpus)


def after_rigid(view: ClusterView) -> Share:
    """The GPUs that elastic jobs may divide.

    As :func:`after_kept`, but waiting rigid jobs come next, in order of arrival; one that does not fit is passed over.
    """
    slots, free, gpus = after_kept(view)
    elastic = view.elastic[slots]
    for j in slots[~elastic]:
        if view.num_gpus[j] <= free:
            gpus[j] = view.num_gpus[j]
            free -= int(gpus[j])
    return Share(slots[elastic], free, gpus)


def best_counts(values: Floats, most: npt.NDArray[np.signedinteger], free: int) -> Ints:
    """(n,) int64 [GPUs] counts 0 .. ``most`` (n,), at most ``free`` in all, of the largest sum of ``values`` (n, 65).

    Of equal sums the one with the first of 1, 2, ..., 0 GPUs for the last job, then for the one before it, and so on.
    """
    jobs = len(values)
    gpus = np.zeros(jobs, np.int64)
    table = np.empty((jobs + 1, free + 1))
    solve(values, np.zeros(jobs, np.int64), most.astype(np.int64), jobs, free, table, gpus)
    return gpus


def ranks(view: ClusterView, slots: Ints) -> Ints:
    """(J,) int64 the place of each slot in ``slots``, of others 0: for Decision.rank."""
    found = np.zeros(len(view.gpus), np.int64)
    found[slots] = np.arange(len(slots))
    return found
