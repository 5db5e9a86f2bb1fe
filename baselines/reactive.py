"""Reactive replacement: a job moves off nodes found slow once it has lost there what moving costs (ski rental).

Ours, after Greyhound (arXiv 2410.12588), which escalates when accumulated loss reaches the cost of the next reaction;
comparisons 4 and 5 of shared/design/stragglers.md, section 4.4. Placement is oblivious (``reactive``) or that of
avoid-slow (``avoid-reactive``); jobs that must not be preempted stay. The pause is ``--sim.rescale-s``. A job moves as
a whole, to any nodes without a flag; where there are none it stays, and those behind in the queue go first.
It knows what the detector flags and observed iteration times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from baselines.avoid_slow import AvoidSlow
from baselines.losses import Losses, flagged_nodes
from baselines.placing import NEVER, Placing, place
from baselines.room import Room
from envs.view import ClusterView


@dataclass
class Reactive(Placing):
    """Place by best fit, and move jobs off flagged nodes when they have lost what it costs."""

    rule: ClassVar[str] = "reactive"

    def reset(self, view: ClusterView) -> None:
        super().reset(view)
        self._losses = Losses()

    def watch(self, view: ClusterView, room: Room) -> None:
        super().watch(view, room)
        self._losses.read(view, room)

    def move(self, view: ClusterView, room: Room) -> None:
        slots = room.movable()
        slots = slots[self._losses.on_flagged[slots].any(axis=1)]
        lost = self._losses.of(slots)
        for slot in slots[np.argsort(-lost, kind="stable")][: int((lost >= view.config.rescale_s).sum())]:
            self._move(view, room, int(slot))

    def _move(self, view: ClusterView, room: Room, slot: int) -> None:
        without = room.lifted(slot)
        ask = without.ask(slot, int(room.rows[slot].sum()))
        if ask is None:  # an elastic job on several nodes though it would fit on one
            return
        groups = self.groups(view, without, ask)
        groups = np.zeros_like(ask.left) if groups is None else groups
        row = place(view, ask, np.where(flagged_nodes(view, ask.several), NEVER, groups))
        if row is not None:
            room.drop(slot)
            room.put(slot, row)


@dataclass
class AvoidReactive(Reactive, AvoidSlow):
    """Place as avoid-slow does, and move jobs off flagged nodes when they have lost what it costs."""

    rule: ClassVar[str] = "avoid-reactive"
