"""Schedulers that choose devices around one that says who runs: docs/design/005-stragglers.md, section 8.

The host is an ordering rule or a scheduler in Python, one that freezes layers too (chosen.py). A layer places those
that get devices, may move jobs that run and say how their workers wait for each other. Where it says nothing of its own
it is *oblivious*: a job of one node goes where fewest free GPUs are left over (best fit), a larger one gathers the GPUs
of the emptiest nodes, and what one node can serve of the rest is taken by best fit; ties are broken at random, by
(seed, job, start). Where nothing straggles (``--sim.stragglers none``) every layer is oblivious. ``--sim.placement``
has no say.

Departures from the simulator's own rules: a larger job need not have whole nodes; an elastic job that no single node
has room for goes on several; and preemption is by GPU count alone. So compare layers with each other, not with
their host alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from baselines.chosen import Chosen, by_count, by_rule
from baselines.hosts import Hosted
from baselines.room import Ask, Ints, Room
from envs.order import ListOrder
from envs.rng import Purpose, uniform
from envs.scheduler import Decision, ListScheduler
from envs.view import ClusterView

NEVER = -1  # the group of nodes that a layer would rather not use at all
Draw = Callable[[int], float]


@dataclass
class Placing(Hosted):
    """A host, and where its jobs go."""

    default_host: ClassVar[str] = "fifo"
    takes_rules: ClassVar[bool] = True

    def reset(self, view: ClusterView) -> None:
        self._behind = 0  # jobs that the one being placed keeps back if it waits
        self._order = self.order_of_host()
        if self._order is None:
            self.host.reset(view)

    def order_of_host(self) -> ListOrder | None:
        """The rule that says who runs; None: a scheduler in Python does."""
        return self.host.order() if isinstance(self.host, ListScheduler) else None

    def allocate(self, view: ClusterView) -> Decision:
        room = Room(view)
        sees = view.config.stragglers != "none"
        if sees:
            self.watch(view, room)
        chosen = by_rule(view, room, self._order) if self._order else by_count(view, self.host.allocate(view))
        for slot in chosen.leave:
            room.drop(slot)
        self._place_all(view, room, chosen, sees)
        if sees:
            self.move(view, room)
        return replace(room.decision(self.modes(view, room) if sees else None), depth=chosen.depth)

    def _place_all(self, view: ClusterView, room: Room, chosen: Chosen, sees: bool) -> None:
        for place_in_queue, slot in enumerate(chosen.queue, 1):
            self._behind = len(chosen.queue) - place_in_queue if chosen.blocks else 0
            gpus = int(chosen.gpus[slot])
            ask = room.ask(slot, gpus)
            if ask is None and view.elastic[slot]:
                ask = room.ask(slot, gpus, apart=True)
            row = None
            if ask is not None:
                row = self.pick(view, room, ask) if sees else place(view, ask)
                if row is None and (view.running[slot] or not room.rows.any()):
                    row = place(view, ask)  # rather than take what it has, or leave the cluster idle
            if row is not None:
                room.put(slot, row)
            elif chosen.blocks:
                return

    def watch(self, view: ClusterView, room: Room) -> None:
        """Note what is to be seen at a pass, before anybody moves."""

    def pick(self, view: ClusterView, room: Room, ask: Ask) -> Ints | None:
        """(N,) [GPUs] where a job is to go, which has room; None: it had better wait."""
        return place(view, ask, self.groups(view, room, ask))

    def groups(self, view: ClusterView, room: Room, ask: Ask) -> Ints | None:
        """(N,) the nodes of a lower group come first, those of NEVER are not used; None: all are alike."""
        return None

    def move(self, view: ClusterView, room: Room) -> None:
        """Move jobs that run, once those that wait have been placed."""

    def modes(self, view: ClusterView, room: Room) -> Ints | None:
        """(J,) how the workers of each job that runs in ``room`` wait for each other; -1, or None: as before."""
        return None


def place(view: ClusterView, ask: Ask, groups: Ints | None = None) -> Ints | None:
    """(N,) [GPUs] the oblivious choice among nodes of ``groups`` (N,), lowest first; None: they have no room."""
    groups = np.zeros_like(ask.left) if groups is None else groups
    ask = ask.only(groups != NEVER)
    if not ask.possible():
        return None
    row = np.zeros_like(ask.left)
    if ask.several:
        gather(ask, groups, drawing(view, ask.slot), row)
    else:
        best = np.flatnonzero(ask.left > 0)
        best = best[groups[best] == groups[best].min()]
        row[first_of(best, ask.left[best], drawing(view, ask.slot))] = ask.gpus
    return row


def gather(ask: Ask, groups: Ints, draw: Draw, row: Ints) -> None:
    """Write to ``row`` (N,) the emptiest nodes of each group, and for the rest, where one has enough, the fullest."""
    left, need = ask.left.copy(), ask.gpus
    for group in np.unique(groups[left > 0]):
        while need > 0:
            nodes = np.flatnonzero((left > 0) & (groups == group))
            if not len(nodes):
                break
            enough = nodes[left[nodes] >= need]
            best = first_of(enough, left[enough], draw) if len(enough) else first_of(nodes, -left[nodes], draw)
            row[best] = min(need, int(left[best]))
            need -= int(row[best])
            left[best] = 0


def first_of(nodes: Ints, keys: Ints, draw: Draw) -> int:
    """The node with the least key, ties at random."""
    least = nodes[keys == keys.min()]
    return int(least[0]) if len(least) == 1 else int(min(least, key=draw))


def drawing(view: ClusterView, slot: int) -> Draw:
    """Random numbers by node for the present start of job ``slot``, as of the simulator's placement at random."""
    starts = int(view.num_restarts[slot]) + int(not np.isnan(view.first_start[slot]))
    job = int(view.job_id[slot])
    return lambda n: uniform(view.seed, Purpose.PLACEMENT, job * 65536 + int(n), starts)
