"""Shortest remaining time first for elastic jobs; ours, after heSRPT (Berg, Vesilo and Harchol-Balter, 2020).

Minimises mean jct. Strict SRTF would give the shortest job all GPUs, of which its speedup makes little. For jobs whose
speedup on k GPUs is k^p, heSRPT proves that the i-th largest of m jobs is best given (i/m)^q - ((i-1)/m)^q of the
GPUs, q = 1/(1-p). To maximise sum_i i^p speedup_i leads to shares ~ i^(q-1), nearly the same, and it is a rule for
measured speedups as well. Each pass:

1. The time left of a job is its work left / its best goodput per GPU; sorted by it, the i-th largest has weight i^p
   (equals: the later arrival is the larger). The weight grows with the number of jobs that wait longer than it.
2. The value of k GPUs is weight x goodput(k) / best goodput per GPU, by what is known of the job, on one node as long
   as k GPUs fit on one. Any other than the present k is worth only horizon_s / (horizon_s + rescale_s) of that, as if
   the pause had to pay off within ``horizon_s``; this keeps allocations from changing all the time.
3. GPUs go to the largest rise in value per GPU, in one or more GPUs at once where speedup is not concave, until they
   are used up or nothing rises: the greedy method for concave envelopes.

A job holds at most its most GPUs, and twice what it has been observed with where knowledge is online; one of unknown
goodput counts as the shortest and is given one GPU. Batch sizes are tuned. Rigid jobs come first: they keep their GPUs
to the end, and waiting ones start, in order of arrival, where they fit.
It knows the true work left, for users state the number of epochs; how fast that passes is by ``--sim.knowledge``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar, Literal

import numpy as np

from baselines.marginal import Floats, Ints, after_rigid
from envs.jit import jit
from envs.scheduler import Decision
from envs.view import ClusterView


@jit
def grant(value: Floats, most: Ints, free: int, rise: Floats, target: Ints, gpus: Ints) -> None:
    """Divide ``free`` GPUs into ``gpus`` (n,) int64.

    ``value`` (n, K + 1) float64 by GPUs; ``most`` (n,) [GPUs]; ``rise`` and ``target`` (n,) scratch: the largest rise
    in value per further GPU, and the count that it leads to.
    """
    for i in range(len(gpus)):
        gpus[i] = 0
        _look_ahead(value, most, free, rise, target, gpus, i)
    while free > 0:
        best = -1
        for i in range(len(gpus)):
            if target[i] - gpus[i] > free:
                _look_ahead(value, most, free, rise, target, gpus, i)
            if rise[i] > 0 and (best < 0 or rise[i] > rise[best]):
                best = i
        if best < 0:
            break
        free -= target[best] - gpus[best]
        gpus[best] = target[best]
        _look_ahead(value, most, free, rise, target, gpus, best)


@jit
def _look_ahead(value: Floats, most: Ints, free: int, rise: Floats, target: Ints, gpus: Ints, i: int) -> None:
    """Set the steepest way up of job ``i`` that ``free`` GPUs allow; the shortest of equals."""
    held = gpus[i]
    rise[i], target[i] = 0.0, held
    for k in range(held + 1, min(most[i], held + free, value.shape[1] - 1) + 1):
        per_gpu = (value[i, k] - value[i, held]) / (k - held)
        if per_gpu > rise[i]:
            rise[i], target[i] = per_gpu, k


def values(goodput: Floats, left: Floats, held: Ints, exponent: float, keep: float) -> Floats:
    """(n, K + 1) float64: the value of each number of GPUs, steps 1 and 2 of the rule.

    ``goodput`` (n, K + 1) and ``left`` (n,) in one unit of work; ``held`` (n,) [GPUs]; ``keep``: what a change
    leaves of the value, 0..1.
    """
    count = np.arange(goodput.shape[1])
    best = (goodput[:, 1:] / count[1:]).max(axis=1)
    unknown = best <= 0
    best[unknown] = 1.0
    order = np.argsort(np.where(unknown, 0.0, left / best), kind="stable")
    weight = np.empty(len(left))
    weight[order] = np.arange(len(left), 0, -1) ** exponent
    value: Floats = goodput * (weight / best)[:, None]
    value[unknown, 1] = weight[unknown]
    present = value[np.arange(len(left)), held]
    value *= keep
    value[np.arange(len(left)), held] = present
    return value


@dataclass(frozen=True)
class ElasticSrtf:
    """Divide GPUs by measured speedups, weighted in favour of jobs with little time left."""

    exponent: float = 0.75
    """p of the weights: 0 maximises the sum of speedups, 1 favours short jobs as if speedup were linear."""
    horizon_s: float = 300.0
    """A change must pay for its pause within this time [s]."""

    name: ClassVar[str] = "elastic-srtf"
    batch: ClassVar[Literal["fixed", "tuned"]] = "tuned"
    stochastic: ClassVar[bool] = False
    oracle: ClassVar[tuple[str, ...]] = ("elastic_remaining",)

    def __post_init__(self) -> None:
        if not 0 <= self.exponent <= 10:
            raise ValueError(f"exponent must lie between 0 and 10, not {self.exponent}")
        if not (isfinite(self.horizon_s) and self.horizon_s > 0):
            raise ValueError(f"horizon_s must be a finite time > 0, not {self.horizon_s}")

    def reset(self, view: ClusterView) -> None:
        """It remembers nothing."""

    def allocate(self, view: ClusterView) -> Decision:
        slots, free, decided = after_rigid(view)
        both = view.goodput(slots)
        one_node = int(view.node_gpus.max()) + 1
        goodput = np.concatenate([both[:, 0, :one_node], both[:, 1, one_node:]], axis=1)
        keep = self.horizon_s / (self.horizon_s + view.config.rescale_s)
        value = values(goodput, view.elastic_remaining[slots], view.gpus[slots], self.exponent, keep)
        most = np.minimum(view.max_gpus[slots], np.maximum(1, 2 * view.profiled[slots]))
        gpus = np.zeros(len(slots), np.int64)
        grant(value, most, free, np.empty(len(slots)), np.empty(len(slots), np.int64), gpus)
        decided[slots] = gpus
        return Decision(decided, waits=True)
