"""Oblivious placement with workers that do not simply wait for each other: what changes of the training itself help.

``lb-bsp`` divides the samples of an iteration by the speed of workers (Chen et al., "Semi-Dynamic Load Balancing",
SoCC'20), ``drop`` does not wait for the slowest worker (k of N; Chen et al., arXiv 1604.00981), ``asynchronous`` waits
for nobody (FlexRR and before), and ``backup`` has workers to spare: jobs of 8 GPUs or more hold 5 % more than they
need, for which they wait and are charged from arrival on; so it is a setting, ``--sim.sync backup``, which this layer
asks for. What each mode gains and costs is docs/design/005-stragglers.md, section 4.
Departures: LB-BSP predicts speeds, here it knows them; a job keeps its mode to the end, jobs of one GPU, which wait for
nobody, train as ever, and so by default do those of which one worker is more than an eighth under ``drop``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from baselines.parameters import PolicyError
from baselines.placing import Placing
from baselines.room import Ints, Room
from envs.layout import SYNC_MODES
from envs.view import ClusterView


@dataclass
class InMode(Placing):
    """Let a host say who runs, place by best fit, and have all workers wait for each other in one way."""

    def reset(self, view: ClusterView) -> None:
        """Raises :class:`PolicyError` where jobs have backup workers, which they cannot give up."""
        super().reset(view)
        refuse_backup(self.name, view)

    def modes(self, view: ClusterView, room: Room) -> Ints:
        return np.where(room.rows.sum(axis=1) >= self.least, SYNC_MODES.index(self.rule), -1)

    @property
    def least(self) -> int:
        """GPUs of the smallest job with this mode."""
        return 2


@dataclass
class Drop(InMode):
    """Place by best fit, and never wait for the slowest worker of a job."""

    least_gpus: int = 8
    """GPUs of the smallest job that drops a worker's samples."""

    rule: ClassVar[str] = "drop"

    def __post_init__(self) -> None:
        if self.least_gpus < 2:
            raise ValueError(f"least_gpus must be a whole number >= 2, not {self.least_gpus}")

    @property
    def least(self) -> int:
        return self.least_gpus


@dataclass
class Asynchronous(InMode):
    """Place by best fit, and let no worker wait for another."""

    rule: ClassVar[str] = "asynchronous"


@dataclass
class LbBsp(InMode):
    """Place by best fit, and divide each iteration's samples by the speed of workers."""

    rule: ClassVar[str] = "lb-bsp"


@dataclass
class Backup(Placing):
    """Place by best fit, with a few workers to spare; needs ``--sim.sync backup``."""

    rule: ClassVar[str] = "backup"

    def reset(self, view: ClusterView) -> None:
        """Raises :class:`PolicyError` where jobs have no backup workers."""
        super().reset(view)
        if view.config.stragglers != "none" and view.config.sync != "backup":
            raise PolicyError(
                f"{self.name} needs --sim.sync backup, since jobs hold their backup workers from arrival on"
            )


def refuse_backup(name: str, view: ClusterView) -> None:
    """Raise :class:`PolicyError` where jobs have backup workers."""
    if view.config.sync == "backup":
        raise PolicyError(f"{name} cannot be run with --sim.sync backup, which jobs keep to the end")
