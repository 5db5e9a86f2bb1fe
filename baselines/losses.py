"""How much each job has lost to stragglers that a detector has found, since it last got its devices: :class:`Losses`.

For ski rental: it pays to move a job once what it has lost equals what the move costs, which is then at most twice what
the best decision in hindsight would have cost (Greyhound, arXiv 2410.12588, chooses its reactions by it). While a job
is on a flagged node its iterations are seen to take s times as long as they should, so that each second loses 1 - 1/s.
"""

from __future__ import annotations

import numpy as np

from baselines.room import Bools, Floats, Ints, Room
from envs.view import ClusterView


class Losses:
    """Time lost by each running job."""

    def __init__(self) -> None:
        self._lost: dict[tuple[int, int], float] = {}  # by job and its number of restarts [s]
        self._read_at = 0.0

    def read(self, view: ClusterView, room: Room) -> None:
        """Count what has been lost since the last pass; ``on_flagged`` (J, 2) says by cause who is on flagged nodes."""
        self.on_flagged = on_flagged(view, room)
        time, self._read_at = view.now - self._read_at, view.now
        running = np.flatnonzero(view.running)
        restarts = view.num_restarts
        self._keys = {int(j): (int(view.job_id[j]), int(restarts[j])) for j in running}
        self._lost = {key: self._lost.get(key, 0.0) for key in self._keys.values()}
        slow = running[self.on_flagged[running].any(axis=1)]
        for j, slowdown in zip(slow.tolist(), view.stragglers.slowdown(slow).tolist(), strict=True):
            self._lost[self._keys[j]] += time * max(0.0, 1.0 - 1.0 / slowdown)

    def of(self, slots: Ints) -> Floats:
        """(n,) [s] lost by running jobs ``slots`` (n,) since they got their devices."""
        return np.array([self._lost[self._keys[int(j)]] for j in slots], np.float64)


def flagged_nodes(view: ClusterView, several: bool) -> Bools:
    """(N,) whether a node is flagged, for its link only as a job on ``several`` would care."""
    flagged = view.stragglers.flagged
    return flagged[:, 0] | (flagged[:, 1] & several)


def on_flagged(view: ClusterView, room: Room) -> Bools:
    """(J, 2) whether a job holds GPUs on a node that is flagged for a cause; for links it must be on several."""
    held = room.rows > 0
    flagged = held.astype(np.int64) @ view.stragglers.flagged.astype(np.int64) > 0
    flagged[:, 1] &= held.sum(axis=1) > 1
    return flagged
