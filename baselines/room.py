"""What is free while one pass is being decided: :class:`Room`, and what one job may have of it: :class:`Ask`.

Which places are allowed is the same for every scheduler that chooses devices: a job that fits on a node of its GPU
type goes on one node, a larger one on any nodes of the first type that has room. Inside a node the simulator takes the
lowest free devices, those of sleeping pods last; of jobs that come to one node in the same pass it serves the first to
arrive first, and here the first to be placed is.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from envs.scheduler import Decision
from envs.view import ClusterView

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

WHOLE = 1000  # share of a whole device [1/1000]
NOBODY = -1  # holds a device that is free


class Ask(NamedTuple):
    """A job that is to get devices, and where it may have them."""

    slot: int
    gpus: int
    left: Ints
    """(N,) by node, 0 where it cannot go: free GPUs that it may take; of a share of a device the least free share
    [1/1000] of a device with room for it."""
    several: bool
    """Whether it goes on any nodes, as ``gpus`` of them need; else on one, and all in ``left`` have room for it."""

    def only(self, nodes: Bools) -> Ask:
        """The same without nodes that are not in ``nodes`` (N,)."""
        return self._replace(left=np.where(nodes, self.left, 0))

    def possible(self) -> bool:
        return bool(self.left.sum() >= self.gpus if self.several else self.left.any())


class Room:
    """Devices free and held, as they would be if the pass ended here.

    ``rows`` (J, N) int64 [GPUs] held by each slot on each node, a share of a device counting as 1; ``spare`` (D,) free
    share of each device [1/1000]; ``node`` and ``holder`` (D,): its node, and the slot that has all of it.
    """

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self.node_gpus = view.node_gpus
        self.first = np.cumsum(self.node_gpus) - self.node_gpus
        self.node = np.repeat(np.arange(len(self.node_gpus)), self.node_gpus)
        self.holder: Ints = np.array(view.gpu_holder)
        self.spare: Ints = np.where(self.holder == NOBODY, WHOLE, 0)
        self._wake(view.node_free - self.free)
        self.device: Ints = np.array(view.device)
        self.share = view.share_milli
        shape = (view.num_slots, len(self.node_gpus))
        held = self.holder >= 0
        at = self.holder[held] * shape[1] + self.node[held]
        self.rows: Ints = np.bincount(at, minlength=shape[0] * shape[1]).reshape(shape)
        parts = np.flatnonzero(view.running & (self.share < WHOLE))
        self.spare[self.device[parts]] = WHOLE
        np.subtract.at(self.spare, self.device[parts], self.share[parts])
        self.rows[parts, self.node[self.device[parts]]] = 1
        self.up = held | (self.spare > 0)
        self.up[self.device[parts]] = True
        self.before = self.rows.copy()
        self.given: Ints = np.full(shape[0], -1, np.int64)  # devices of shares that were placed in this pass

    def _wake(self, asleep: Ints) -> None:
        """Count as free as many devices of inference as there are sleeping pods, ``asleep`` (N,) by node."""
        for n in np.flatnonzero(asleep):
            own = np.arange(self.first[n], self.first[n] + self.node_gpus[n])
            self.spare[own[self.holder[own] < NOBODY][: asleep[n]]] = WHOLE

    @property
    def free(self) -> Ints:
        """(N,) [GPUs] wholly free on each node."""
        count: Ints = np.add.reduceat(self.spare == WHOLE, self.first, dtype=np.int64)
        return count

    def changed(self) -> bool:
        return not np.array_equal(self.rows, self.before)

    def ask(self, slot: int, gpus: int, apart: bool = False) -> Ask | None:
        """Where job ``slot`` may have ``gpus``; None: nowhere. ``apart``: on any nodes, though it would fit on one."""
        view = self.view
        required = int(view.gpu_type[slot])
        allowed = np.ones(len(self.node_gpus), np.bool_) if required < 0 else view.node_type == required
        if self.share[slot] < WHOLE:
            fits = np.where(self.spare >= self.share[slot], self.spare, WHOLE + 1)
            least = np.minimum.reduceat(fits, self.first)
            found = Ask(slot, gpus, np.where(allowed & (least <= WHOLE), least, 0), False)
            return found if found.possible() else None
        free = np.where(allowed, self.free, 0)
        if gpus <= self.node_gpus[allowed].max(initial=0) and not apart:
            found = Ask(slot, gpus, np.where(free >= gpus, free, 0), False)
            return found if found.possible() else None
        for kind in range(int(view.node_type.max()) + 1):
            found = Ask(slot, gpus, np.where(view.node_type == kind, free, 0), True)
            if found.possible():
                return found
        return None

    def drop(self, slot: int) -> None:
        """Take all devices from job ``slot``."""
        if self.share[slot] < WHOLE:
            self.spare[self.device[slot]] += self.share[slot]
            self.given[slot] = -1
        else:
            mine = self.holder == slot
            self.holder[mine] = NOBODY
            self.spare[mine] = WHOLE
        self.rows[slot] = 0

    def put(self, slot: int, row: Ints) -> None:
        """Give job ``slot``, which holds nothing, ``row`` (N,) [GPUs]."""
        self.rows[slot] = row
        if self.share[slot] < WHOLE:
            g = self.best_device(slot, int(row.argmax()))
            self.spare[g] -= self.share[slot]
            self.device[slot] = self.given[slot] = g
            return
        taken = self.lowest(row[None])[0]
        self.holder[taken] = slot
        self.spare[taken] = 0

    def best_device(self, slot: int, n: int) -> int:
        """Device of node ``n`` with the least free share that has room for the share of job ``slot``."""
        spare = self.spare[self.first[n] : self.first[n] + self.node_gpus[n]]
        return int(self.first[n] + np.where(spare >= self.share[slot], spare, WHOLE + 1).argmin())

    def lowest(self, rows: Ints) -> Bools:
        """(C, D) the devices that placements (C, N) of whole devices would take: the lowest free ones."""
        free = self.spare == WHOLE
        count = np.cumsum(free)
        place = count - (count - free)[self.first][self.node]
        taken: Bools = free & (place <= rows[:, self.node])
        return taken

    def lifted(self, slot: int) -> Room:
        """A copy in which job ``slot`` holds nothing."""
        room = copy(self)
        room.holder, room.spare = self.holder.copy(), self.spare.copy()
        room.rows, room.device, room.given = self.rows.copy(), self.device.copy(), self.given.copy()
        room.drop(slot)
        return room

    def emptied(self) -> Room:
        """A copy in which nobody holds anything and all devices that are up are free."""
        room = copy(self)
        room.spare = np.where(self.up, WHOLE, 0)
        room.rows, room.holder = np.zeros_like(self.rows), np.full_like(self.holder, NOBODY)
        return room

    def movable(self) -> Ints:
        """(n,) slots that hold whole devices since before this pass and may be moved: they may be preempted."""
        view = self.view
        unmoved = (self.rows == self.before).all(axis=1)
        return np.flatnonzero(view.running & view.preemptible & (self.share == WHOLE) & unmoved)

    def slowest(self, ask: Ask, rows: Ints) -> Floats:
        """(C,) static slowness of the slowest GPU that each placement (C, N) of a job would take; 0: it takes none."""
        seen = self.view.stragglers
        speed = seen.gpu_speed[:, seen.speed_class[ask.slot]]
        if self.share[ask.slot] == WHOLE:
            slowest: Floats = np.where(self.lowest(rows), speed, 0.0).max(axis=1)
            return slowest
        one = [speed[self.best_device(ask.slot, n)] if ask.left[n] > 0 else 0.0 for n in range(len(ask.left))]
        found: Floats = np.where(rows > 0, one, 0.0).max(axis=1)
        return found

    def decision(self, sync: Ints | None) -> Decision:
        """Everybody gets what he has here; without a placement if nobody gets anything else than before."""
        gpus = self.rows.sum(axis=1)
        if not self.changed():
            return Decision(gpus, sync=sync)
        return Decision(gpus, self.rows, self.given, sync=sync)
