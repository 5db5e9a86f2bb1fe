"""Schedulers around a scheduler: a host says who gets how many GPUs, and a wrapper adds what the host knows nothing of.

What a host may know is what it may know alone. Wrappers that freeze layers are here: ours (docs/design/004-layers.md,
section 7); their host decides in Python, they give a depth only to jobs that have layers and get GPUs, and where there
are none they answer as their host does. Those that choose devices are in placing.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from envs.scheduler import Decision, Scheduler
from envs.spec import SimConfig
from envs.view import ClusterView

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Grants(NamedTuple):
    """Jobs with layers that get GPUs at this pass."""

    slots: Ints  # (n,) in order of arrival
    gpus: Ints  # (n,) [GPUs]
    several: Ints  # (n,) 0: on one node, 1: on several
    moved: Bools  # (n,) whether their devices change, so that a change of depth costs no pause of its own


@dataclass
class Hosted(ABC):
    """A scheduler around another."""

    host: Any
    """Who divides the GPUs: a Scheduler, or of wrappers that take rules a ListScheduler too."""

    rule: ClassVar[str]
    default_host: ClassVar[str] = ""  # the baseline that hosts where none is named; "": one must be
    takes_rules: ClassVar[bool] = False  # whether an ordering rule may be the host
    stochastic: ClassVar[bool] = True  # what a wrapper sees, and more, is drawn by the seed

    @property
    def name(self) -> str:
        return f"{self.rule}:{self.host.name}"

    @property
    def batch(self) -> Literal["fixed", "tuned"]:
        batch: Literal["fixed", "tuned"] = self.host.batch
        return batch

    @property
    def oracle(self) -> tuple[str, ...]:
        """What the host reads."""
        reads: tuple[str, ...] = getattr(self.host, "oracle", ())
        return reads

    def with_history(self, jobs: pd.DataFrame, start: int) -> Self:
        """The same around a host that knows the jobs before row ``start`` of a trace, if that matters to it."""
        adapt: Any = getattr(self.host, "with_history", None)
        return self if adapt is None else replace(self, host=adapt(jobs, start))

    def with_config(self, config: SimConfig) -> Self:
        """The same around the host as it is under ``config``, if that matters to it."""
        adapt: Any = getattr(self.host, "with_config", None)
        return self if adapt is None else replace(self, host=adapt(config))

    @abstractmethod
    def reset(self, view: ClusterView) -> None:
        """Forget everything; a run begins."""

    @abstractmethod
    def allocate(self, view: ClusterView) -> Decision:
        """Answer one scheduling pass."""


@dataclass
class Freezing(Hosted):
    """A host, and the depths that go with its decisions: progress, speeds and layers are known."""

    host: Scheduler
    """Who divides the GPUs."""

    def reset(self, view: ClusterView) -> None:
        self.host.reset(view)

    def allocate(self, view: ClusterView) -> Decision:
        decision = self.host.allocate(self.show(view))
        grants = find_grants(view, decision)
        if not len(grants.slots):
            return decision
        depth = np.full(view.num_slots, -1, np.int64)
        depth[grants.slots] = self.depths(view, grants)
        return replace(decision, depth=depth)

    def show(self, view: ClusterView) -> ClusterView:
        """What the host sees of this pass."""
        return view

    @abstractmethod
    def depths(self, view: ClusterView, grants: Grants) -> Ints:
        """(n,) int64 first modules that the jobs of ``grants`` are to freeze."""


def with_layers(view: ClusterView) -> Ints:
    """(n,) slots of jobs whose layers may be frozen, in order of arrival."""
    slots = view.slots
    return slots[view.modules[slots] > 0]


def find_grants(view: ClusterView, decision: Decision) -> Grants:
    """The jobs with layers that ``decision`` gives GPUs; a new count without a placement is on few nodes."""
    slots = with_layers(view)
    gpus = np.asarray(decision.gpus, np.int64)[slots]
    slots, gpus = slots[gpus > 0], gpus[gpus > 0]
    held = view.placement()[slots] if len(slots) else np.zeros((0, len(view.node_gpus)), np.int16)
    if decision.placement is None:
        moved = gpus != view.gpus[slots]
        several = np.where(moved, gpus > view.node_gpus.max(), np.count_nonzero(held, axis=1) > 1)
    else:
        wanted = np.asarray(decision.placement)[slots]
        moved = (wanted != held).any(axis=1)
        several = np.count_nonzero(wanted, axis=1) > 1
    return Grants(slots, gpus, several.astype(np.int64), moved)
