"""Lyra: base demands first, then flexible ones by a knapsack (Li et al., EuroSys'23; earlier Aryl, arXiv 2202.07896).

Minimises queueing delay, then jct. Each pass:

1. Base demands: a job needs its request. Running jobs keep theirs. Who lacks it, because it waits or because inference
   took some of it, gets it whole, shortest running time left first, ties the first to arrive; who does not fit is
   passed over.
2. Flexible demands: the GPUs left, among them all that running jobs hold beyond their requests, go to the elastic jobs
   that run. w further GPUs, up to a job's most, are worth the running time that they save it; a multiple-choice
   knapsack, solved exactly, chooses one w a job. GPUs that save nobody time stay idle.

It knows true iteration times on packed nodes and the true number of iterations left of elastic jobs, and of rigid ones
what ``--sim.durations`` lets it know; the batch size is the request's. Rigid jobs have a base demand only.
What the paper does with servers, loaning idle inference servers and returning those whose jobs cost least to preempt,
is the simulator's: ``--sim.reclaim lyra``.
We know the paper by its abstract and by what others do in its name, so the rest is our reading: that base demands are
not preempted, and that a job short of its request may grow past what it has left.
Departures: in the paper users state both ends of the range of workers; here the request is the lower one, and the most
GPUs on which its batch still runs the upper one. Jobs are weighed in GPUs, not workers, all alike, on loan or not.
Under ``compat deepboot`` it is the Aryl of DeepBoot's simulator instead: there is no base demand, and w GPUs up to the
request are worth T w / (w + 1) to a job with time T left on one GPU, or T to a job that may have one only. So long jobs
get everything and short ones starve: these are no results of Lyra.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from baselines.marginal import Floats, Ints, after_kept, after_rigid, best_counts, ranks
from envs.scheduler import Decision
from envs.view import ClusterView


@dataclass(frozen=True)
class Lyra:
    """Start the shortest jobs at their requests and let elastic ones have the rest."""

    name: ClassVar[str] = "lyra"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"
    stochastic: ClassVar[bool] = False
    oracle: ClassVar[tuple[str, ...]] = ("duration", "iteration_s", "iterations_left")

    def reset(self, view: ClusterView) -> None:
        """It remembers nothing."""

    def allocate(self, view: ClusterView) -> Decision:
        if view.config.compat == "deepboot":
            return long_jobs_first(view)
        slots, free, decided = after_kept(view)
        elastic = view.elastic[slots]
        request = view.num_gpus[slots].copy()
        request[elastic] = np.minimum(request, view.max_gpus[slots])[elastic]
        times = running_times(view, slots[elastic])
        left = view.remaining[slots].copy()
        left[elastic] = times[np.arange(len(times)), request[elastic]]
        base = base_demands(request, np.minimum(view.gpus[slots], request), left, free)
        runs = elastic & (base > 0)
        saved = savings(times[base[elastic] > 0], base[runs])
        base[runs] += best_counts(saved, view.max_gpus[slots[runs]] - base[runs], free - int(base.sum()))
        decided[slots] = base
        return Decision(decided, waits=True)


def running_times(view: ClusterView, slots: Ints) -> Floats:
    """(n, 65) float64 [s] true time left of elastic ``slots`` (n,) by GPUs, without pauses; inf: not possible."""
    iteration_s, left = view.oracle_iteration_s(slots), view.oracle_iterations_left(slots)
    possible = iteration_s < np.inf
    return np.where(possible, np.where(possible, iteration_s, 0.0) * left[:, None], np.inf)


def base_demands(request: Ints, kept: Ints, left: Floats, free: int) -> Ints:
    """(n,) int64 [GPUs] the first step: ``kept`` (n,), or the whole ``request`` (n,), least ``left`` (n,) first."""
    gpus = kept.astype(np.int64)
    free -= int(gpus.sum())
    for i in np.argsort(left, kind="stable"):
        lacking = request[i] - gpus[i]
        if lacking <= free:
            gpus[i] += lacking
            free -= int(lacking)
    return gpus


def savings(times: Floats, base: Ints) -> Floats:
    """(n, 65) float64 [s] what w GPUs beyond ``base`` (n,) save of ``times`` (n, 65); -inf where they save nothing."""
    widest = times.shape[1] - 1
    at = base[:, None] + np.arange(widest + 1)
    then = np.where(at <= widest, np.take_along_axis(times, np.minimum(at, widest), axis=1), np.inf)
    saved = times[np.arange(len(base)), base][:, None] - then
    saved = np.where(saved > 0, saved, -np.inf)
    saved[:, 0] = 0.0
    return saved


def long_jobs_first(view: ClusterView) -> Decision:
    """What DeepBoot's simulator takes for Aryl: deepboot.md, section 7."""
    slots, free, decided = after_rigid(view)
    most = np.minimum(view.num_gpus[slots], view.max_gpus[slots])
    alone = view.oracle_iterations_left(slots) * view.oracle_iteration_s(slots)[:, 1]
    order = np.argsort(alone, kind="stable")
    slots, most, alone = slots[order], most[order], alone[order][:, None]
    count = np.arange(65)
    values = np.where(most[:, None] > 1, alone * count / (count + 1), alone * np.minimum(count, 1))
    decided[slots] = best_counts(values, most, free)
    return Decision(decided, waits=True, rank=ranks(view, slots))
