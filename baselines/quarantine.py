"""Quarantine: nodes found slow take no new jobs for an hour; Guard-like (arXiv 2605.17879, known by its abstract).

Guard sweeps idle nodes and keeps slow ones out of large jobs. Here a node is found slow when what runs on it takes
``slow`` times as long as it should: the smoothed ratio of observed to expected times, for compute times the profiled
slowness of its median GPU, or that of its link. It then takes no jobs for ``keep_out_s``, those that it has stay, and
after that it is on probation until it is found slow again. Nodes that no job runs on are not measured.
Departures: a sweep costs no time, and a job that finds no other room waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from baselines.placing import NEVER, Placing
from baselines.room import Ask, Floats, Ints, Room
from envs.view import ClusterView

CLASS = 0  # of jobs, compute-bound: whose times the slowness of a GPU shows in most


@dataclass
class Quarantine(Placing):
    """Place by best fit, and keep new jobs off nodes for an hour that are found slow."""

    slow: float = 1.1
    """Ratio of measured to usual time from which a node is slow."""
    keep_out_s: float = 3600.0
    """How long it takes no jobs [s]."""

    rule: ClassVar[str] = "quarantine"

    def __post_init__(self) -> None:
        if not self.slow >= 1:
            raise ValueError(f"slow must be a ratio >= 1, not {self.slow}")
        if not self.keep_out_s > 0:
            raise ValueError(f"keep_out_s must be a time > 0, not {self.keep_out_s}")

    def reset(self, view: ClusterView) -> None:
        super().reset(view)
        self._until: Floats = np.zeros(len(view.node_gpus))

    def watch(self, view: ClusterView, room: Room) -> None:
        seen = view.stragglers
        speed = seen.gpu_speed[:, CLASS]
        usual = np.array([np.median(part) for part in np.split(speed, room.first[1:])])
        found = np.maximum(seen.ratio[:, 0] * usual, seen.ratio[:, 1]) > self.slow
        begins = found & room.rows.any(axis=0) & (self._until <= view.now)
        self._until[begins] = view.now + self.keep_out_s

    def groups(self, view: ClusterView, room: Room, ask: Ask) -> Ints:
        return np.where(self._until > view.now, NEVER, 0)
