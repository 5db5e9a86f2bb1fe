"""Optimus: GPUs one at a time to the job that saves most time by one more (Peng et al., EuroSys'18, section 4.1).

Minimises the sum of predicted completion times, greedily: every elastic job gets one GPU, in order of arrival while
there are any; then each further GPU goes to the job with the largest gain

    (iteration time at K GPUs - iteration time at K + 1) x iterations left,

the first in order of arrival among equals, until no gain is above 0. A job at its most GPUs gains nothing. The batch
size is the request's. This is Optimus as Pollux evaluates it (Qiao et al., OSDI'21, section 5): it knows true
iteration times on packed nodes and the true number of iterations left, where the paper fits both as jobs run.
Rigid jobs come first: they keep their GPUs to the end, and waiting ones start, in order of arrival, where they fit.
Under ``compat deepboot`` each inference task that waits for a device has one set aside before training gets any.
Departures: the paper counts parameter servers and workers, of which we have workers only, and normalises a gain by the
dominant share of what it takes, which is the same for every job here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from baselines.marginal import Floats, Ints, after_rigid
from envs.jit import jit
from envs.scheduler import Decision
from envs.view import ClusterView


@jit
def grant(iteration_s: Floats, left: Floats, most: Ints, free: int, gains: Floats, gpus: Ints) -> None:
    """Divide ``free`` GPUs into ``gpus`` (n,) int64.

    ``iteration_s`` (n, K + 1) float64 [s] by GPUs, inf: not possible; ``left`` (n,) iterations; ``most`` (n,) [GPUs];
    ``gains`` (n,) scratch.
    """
    for i in range(len(gpus)):
        gpus[i] = min(1, free, most[i])
        free -= gpus[i]
        gains[i] = _gain(iteration_s, left, most, gpus, i)
    while free > 0:
        best, gain = -1, 0.0
        for i in range(len(gpus)):
            if gains[i] > gain:
                best, gain = i, gains[i]
        if best < 0:
            break
        gpus[best] += 1
        free -= 1
        gains[best] = _gain(iteration_s, left, most, gpus, best)


@jit
def _gain(iteration_s: Floats, left: Floats, most: Ints, gpus: Ints, i: int) -> float:
    """Time saved by one more GPU [s]; 0 where there is none to be had."""
    k = gpus[i]
    if k == 0 or k >= most[i] or k + 1 >= iteration_s.shape[1] or iteration_s[i, k + 1] == np.inf:
        return 0.0
    saved: float = (iteration_s[i, k] - iteration_s[i, k + 1]) * left[i]
    return saved


@dataclass(frozen=True)
class Optimus:
    """Give each GPU to the job whose remaining time it shortens most."""

    name: ClassVar[str] = "optimus"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"
    stochastic: ClassVar[bool] = False
    oracle: ClassVar[tuple[str, ...]] = ("iteration_s", "iterations_left")

    def reset(self, view: ClusterView) -> None:
        """It remembers nothing."""

    def allocate(self, view: ClusterView) -> Decision:
        slots, free, decided = after_rigid(view)
        if view.config.compat == "deepboot":
            free = max(0, free - view.num_queued)
        gpus = np.zeros(len(slots), np.int64)
        left = view.oracle_iterations_left(slots)
        grant(view.oracle_iteration_s(slots), left, view.max_gpus[slots], free, np.empty(len(slots)), gpus)
        decided[slots] = gpus
        return Decision(decided, waits=True)
