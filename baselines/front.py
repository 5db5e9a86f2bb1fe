"""How deep a job may be frozen: a cap from noisy readings of how many of its first layers have converged.

Ours (docs/design/004-layers.md, section 7); IceFrog's guard is not public. To freeze one module too many is costly,
for what is frozen stops converging and slows the job down for good, and to freeze one too few is cheap. So:

    steady = median of the last ``memory`` readings of the front, one a turn;  cap = max(0, steady - margin)

A job deeper than ``steady`` is thawed to the cap. One that the cap lets deeper goes to the depth of largest effective
progress when that shortens its time left by more than twice the pause for it, or at once when its devices change in
the same pass, which pauses it anyway; then it may become shallower, too. The work left is known because progress is.
"""

from __future__ import annotations

from statistics import median_low

import numpy as np

from baselines.effective import best_depths
from baselines.hosts import Grants, Ints, with_layers
from envs.view import ClusterView

PAYS = 2.0  # a change alone must save this many times its pause


class TrustedFront:
    """What has been read of the fronts of the jobs in a cluster."""

    def __init__(self, margin: int, memory: int) -> None:
        self.margin, self.memory = margin, memory
        self._readings: dict[int, tuple[tuple[int, int], ...]] = {}  # by job: turn and front, the newest last

    def read(self, view: ClusterView) -> None:
        """Note the front of every job that has not been read in this turn, and forget jobs that have left."""
        turn = int(view.now // (view.config.interval_s or 60.0))
        slots = with_layers(view)
        jobs = view.job_id[slots].tolist()
        self._readings = {job: self._readings.get(job, ()) for job in jobs}
        due = [i for i, job in enumerate(jobs) if not self._readings[job] or self._readings[job][-1][0] != turn]
        for i, front in zip(due, view.front(slots[due]).tolist(), strict=True):
            self._readings[jobs[i]] = (*self._readings[jobs[i]], (turn, front))[-self.memory :]

    def steady(self, view: ClusterView, slots: Ints) -> Ints:
        """(n,) modules of ``slots`` that seem to have converged; the lower of two in the middle."""
        found = (self._readings[job] for job in view.job_id[slots].tolist())
        return np.array([median_low([front for _, front in readings]) for readings in found], np.int64)

    def cap(self, view: ClusterView, slots: Ints) -> Ints:
        """(n,) most modules of ``slots`` to freeze."""
        cap: Ints = np.clip(self.steady(view, slots) - self.margin, 0, view.max_depth[slots])
        return cap

    def depths(self, view: ClusterView, grants: Grants) -> Ints:
        """(n,) depths of the jobs of ``grants`` from now on."""
        slots = grants.slots
        cap, depth = self.cap(view, slots), view.depth[slots]
        thawed = np.where(depth > self.steady(view, slots), cap, depth)
        may = np.flatnonzero(grants.moved | (cap > thawed))
        some = Grants(slots[may], grants.gpus[may], grants.several[may], grants.moved[may])
        best = best_depths(view, some, np.where(some.moved, 0, thawed[may]), cap[may])
        left = view.elastic_remaining[some.slots]
        saved = left / best.at_least - left / best.progress
        pays = some.moved | (saved > PAYS * view.config.freeze_s)
        thawed[may[pays]] = best.depth[pays]
        return thawed
