"""AFS-L: a tournament of marginal efficiency for each GPU (Hwang et al., NSDI'21).

Minimises mean jct by weighing short jobs against efficient ones: what a GPU is worth to the job that ends first is
compared with what it is worth to the other, which will have all GPUs to itself later. GPUs are given one at a time.
For each, the jobs are compared in order of arrival, the winner so far with the next one:

* neither has a GPU: the one that would end sooner on one GPU alone wins, iterations left x iteration time(1);
* else the larger worth(K) = (throughput(K + 1) - throughput(K)) / throughput(K + 1) wins, which is 1 at K = 0; among
  equals the one with fewer GPUs, and the later one where those are equal too.

A job at its most GPUs does not take part. It knows true iteration times on packed nodes and the true number of
iterations left; the batch size is the request's. Rigid jobs come first: they keep their GPUs to the end, and waiting
ones start, in order of arrival, where they fit.
This is AFS-L as DeepBoot's simulator has it: who ends sooner matters only between jobs without a GPU. ``hand_out_all``,
as there, gives every GPU away even where it slows a job down; without it a GPU that nobody gains from stays idle.
Under ``compat deepboot`` it counts, as there, throughput in samples, of which an iteration takes more than the batch
has where that cannot be divided evenly, and no job has a most GPUs of its own.
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
def grant(times: Floats, alone: Floats, most: Ints, free: int, hand_out_all: bool, worth: Floats, gpus: Ints) -> None:
    """Divide ``free`` GPUs into ``gpus`` (n,) int64.

    ``times`` (n, K + 1) float64 [s] of equal work by GPUs, inf: not possible; ``alone`` (n,) [s] time left on one GPU;
    ``most`` (n,) [GPUs]; ``worth`` (n,) scratch.
    """
    lowest = -np.inf if hand_out_all else 0.0
    for i in range(len(gpus)):
        gpus[i] = 0
        worth[i] = _worth(times, most, gpus, i)
    for _ in range(free):
        best = -1
        for i in range(len(gpus)):
            if worth[i] > lowest and (best < 0 or _beats(alone, worth, gpus, i, best)):
                best = i
        if best < 0:
            break
        gpus[best] += 1
        worth[best] = _worth(times, most, gpus, best)


@jit
def _worth(times: Floats, most: Ints, gpus: Ints, i: int) -> float:
    """Share of the throughput at one GPU more that is due to it; -inf: the job may not have it.

    With a fixed batch throughput ~ 1 / time, so (1/t' - 1/t) / (1/t') = 1 - t'/t, and t = inf without a GPU.
    """
    k = gpus[i]
    if k >= most[i] or k + 1 >= times.shape[1]:
        return -np.inf
    worth: float = 1.0 if k == 0 else 1.0 - times[i, k + 1] / times[i, k]
    return worth


@jit
def _beats(alone: Floats, worth: Floats, gpus: Ints, i: int, best: int) -> bool:
    """Whether job ``i`` wins against the winner so far."""
    won: bool = worth[i] > worth[best] or (worth[i] == worth[best] and gpus[i] <= gpus[best])
    if gpus[i] == 0 and gpus[best] == 0:
        won = alone[i] < alone[best]
    return won


@dataclass(frozen=True)
class Afs:
    """Give each GPU to the winner of a tournament between efficient and short jobs."""

    hand_out_all: bool = True
    """Give away GPUs that slow a job down, too, as DeepBoot's simulator does."""

    name: ClassVar[str] = "afs"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"
    stochastic: ClassVar[bool] = False
    oracle: ClassVar[tuple[str, ...]] = ("iteration_s", "iterations_left")

    def reset(self, view: ClusterView) -> None:
        """It remembers nothing."""

    def allocate(self, view: ClusterView) -> Decision:
        slots, free, decided = after_rigid(view)
        gpus = np.zeros(len(slots), np.int64)
        times, most = view.oracle_iteration_s(slots), view.max_gpus[slots]
        alone = view.oracle_iterations_left(slots) * times[:, 1]
        if view.config.compat == "deepboot":
            times, most = view.oracle_sample_s(slots), np.full_like(most, times.shape[1] - 1)
        grant(times, alone, most, free, self.hand_out_all, np.empty(len(slots)), gpus)
        decided[slots] = gpus
        return Decision(decided, waits=True)
