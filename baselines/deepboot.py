"""DeepBoot's ATS-T: the GPU counts with the largest sum of speed-ups (Chen et al., "DeepBoot", TPDS'23).

Maximises the sum of the training jobs' speed-ups by a group knapsack at every pass, over the GPUs that training may
hold just then, which inference takes and gives back. With J jobs and M such GPUs, w GPUs are worth to a job

    goodput(w GPUs, on as few nodes as possible) / goodput(fair share, one node),   fair share = ceil(M / J)

times max(age - 10 s x restarts, 0) / (age + 10 s) where w is not what it holds: a young or often restarted job had
better stay as it is. One that has never run has a speed-up of w / fair share. A job gets at most twice the GPUs that it
has been observed on (``knowledge online``; with other knowledge that does not bind), a new one a single GPU. Jobs are
taken by attained service, least first; among equal sums the last in that order has the fewest GPUs but not none, then
the one before it. Batch sizes are tuned. The simulator places what changes: fewest GPUs first, best fit.
It knows goodput as far as ``--sim.knowledge`` lets it, ages and attained service, never how much work is left.
How inference takes GPUs (ATS-I) is ``--sim.reclaim ats``, pods that stay warm (AISS) are ``--sim.aiss``, and cheaper
restarts (AFE) are ``--sim.rescale-cost afe``.
Departures: this is the policy of the authors' public simulator; how far the paper differs is not known to us. A fair
share above a job's most GPUs is cut to
these. Rigid jobs, which DeepBoot does not have, are worth 1 at their request and nothing else; what is not preemptible
keeps what it holds, and so do rigid jobs of more than 64 GPUs, which start where the others leave room.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from baselines.marginal import Floats, Ints, Share, best_counts, ranks
from envs.scheduler import Decision
from envs.view import ClusterView

RESTART_S = 10.0  # what the policy takes a restart to cost, whatever it costs
WIDEST = 64  # most GPUs that are weighed


@dataclass(frozen=True)
class DeepBoot:
    """Divide GPUs by a knapsack of speed-ups over a fair share."""

    name: ClassVar[str] = "deepboot"
    batch: ClassVar[Literal["fixed", "tuned"]] = "tuned"
    stochastic: ClassVar[bool] = False
    oracle: ClassVar[tuple[str, ...]] = ()

    def reset(self, view: ClusterView) -> None:
        """It remembers nothing."""

    def allocate(self, view: ClusterView) -> Decision:
        jobs, free, decided = contenders(view)
        if not len(jobs):
            return Decision(decided, waits=True)
        values, most = weigh(view, jobs, max(1, -(-free // len(jobs))))
        gpus = best_counts(values, most, free)
        free -= int(gpus.sum())
        for i in np.flatnonzero(~view.elastic[jobs] & (view.num_gpus[jobs] > WIDEST)):
            gpus[i] = view.num_gpus[jobs[i]] if view.num_gpus[jobs[i]] <= free else 0
            free -= int(gpus[i])
        decided[jobs] = gpus
        return Decision(decided, waits=True, rank=ranks(view, jobs))


def contenders(view: ClusterView) -> Share:
    """The jobs whose GPUs are open, least attained service first, and the GPUs for them; the others keep theirs."""
    slots, held = view.slots, view.gpus
    wide = ~view.elastic[slots] & (view.num_gpus[slots] > WIDEST)
    kept = (held[slots] > 0) & (wide | ~view.preemptible[slots])
    gpus = np.zeros(len(held), np.int32)
    gpus[slots[kept]] = held[slots[kept]]
    jobs = slots[~kept]
    order = np.argsort(view.service[jobs], kind="stable")  # of equals the first to arrive
    return Share(jobs[order], int(view.node_free.sum() + held[jobs].sum()), gpus)


def weigh(view: ClusterView, jobs: Ints, fair: int) -> tuple[Floats, Ints]:
    """(n, 65) float64 what each number of GPUs is worth to ``jobs`` (n,); (n,) [GPUs] the most that each may get."""
    elastic, held = view.elastic[jobs], view.gpus[jobs]
    count = np.arange(WIDEST + 1)
    request = np.where(view.num_gpus[jobs] <= WIDEST, view.num_gpus[jobs], 0)
    values = np.where(count == request[:, None], 1.0, -np.inf)
    values[elastic] = speedups(view, jobs[elastic], fair)
    values[:, 0] = 0.0
    age, restarts = view.age[jobs], view.num_restarts[jobs]
    factor = np.maximum(age - RESTART_S * restarts, 0.0) / (age + RESTART_S)
    with np.errstate(invalid="ignore"):
        changed = values * factor[:, None]
    values = np.where((count == held[:, None]) | np.isinf(values), values, changed)
    most = np.minimum(view.max_gpus[jobs], np.maximum(1, 2 * view.profiled[jobs]))
    return values, np.where(elastic, np.minimum(most, WIDEST), request)


def speedups(view: ClusterView, jobs: Ints, fair: int) -> Floats:
    """(n, 65) float64 goodput of elastic ``jobs`` (n,) on packed GPUs over that on the fair share."""
    both = view.goodput(jobs, np.maximum(2 * view.profiled[jobs], fair))
    one_node = int(view.node_gpus.max()) + 1
    packed = np.concatenate([both[:, 0, :one_node], both[:, 1, one_node:]], axis=1)
    base = both[np.arange(len(jobs)), 0, np.minimum(np.minimum(fair, view.max_gpus[jobs]), WIDEST)][:, None]
    linear = np.broadcast_to(np.arange(WIDEST + 1) / fair, packed.shape)
    found: Floats = np.divide(packed, base, out=linear.copy(), where=base > 0)
    return found
