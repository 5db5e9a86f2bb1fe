"""What a scheduler is, in Python or as an ordering rule, and what it answers: :class:`Decision`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy.typing as npt

from envs.order import ListOrder

if TYPE_CHECKING:
    from envs.view import ClusterView


@dataclass
class Decision:
    """A scheduler's answer: GPUs of each slot, and optionally where.

    ``gpus`` (J,) integers [GPUs]: a rigid job gets what it requests or 0, an elastic one 0 .. ``max_gpus``.
    ``placement`` (J, N) integers [GPUs]: without it the simulator places new jobs and leaves the others where they are.
    ``devices`` (J,) integers: with a placement, the device that a fraction gets; -1, or without it: the
    simulator chooses, after all whole devices are given. ``waits``: without a placement, a job that the free devices
    have no room for waits instead of being an error. ``rank`` (J,) integers: without a placement, the lowest of jobs of
    equal counts is placed first; by default the first to arrive. ``depth`` (J,) integers: how many of its first modules
    each job freezes from the end of the pass on; -1, or without it: as many as before.
    ``sync`` (J,) integers: how the workers of each job wait for each other from then on, a place in SYNC_MODES of
    envs/layout.py other than backup; -1, or without it: as before.
    """

    gpus: npt.NDArray[Any]
    placement: npt.NDArray[Any] | None = None
    devices: npt.NDArray[Any] | None = None
    waits: bool = False
    rank: npt.NDArray[Any] | None = None
    depth: npt.NDArray[Any] | None = None
    sync: npt.NDArray[Any] | None = None


@runtime_checkable
class Scheduler(Protocol):
    """Who gets GPUs, decided in Python at every scheduling pass."""

    @property
    def name(self) -> str:
        """What the results call it."""
        ...

    @property
    def batch(self) -> Literal["fixed", "tuned"]:
        """Who chooses the batch size of elastic jobs: the request, or the optimum of goodput."""
        ...

    def reset(self, view: ClusterView) -> None:
        """Forget everything; a run begins."""

    def allocate(self, view: ClusterView) -> Decision:
        """Answer one scheduling pass."""
        ...


@runtime_checkable
class ListScheduler(Protocol):
    """Who gets GPUs, given as an ordering rule that runs wholly in compiled code."""

    @property
    def name(self) -> str:
        """What the results call it."""
        ...

    @property
    def batch(self) -> Literal["fixed", "tuned"]:
        """Who chooses the batch size of elastic jobs: the request, or the optimum of goodput."""
        ...

    def order(self) -> ListOrder:
        """The ordering rule."""
        ...
