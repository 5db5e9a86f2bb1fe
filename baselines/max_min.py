"""Max-min fairness: each further GPU goes to the job that is worst off (water-filling).

Ours, for comparisons that ask for something themis-like; Themis itself (Mahajan et al., NSDI'20) auctions GPUs by
finish-time fairness, for which it must know how long each job takes. Here every elastic job gets one GPU, in order of
arrival while there are any; then each further GPU goes to the job with the lowest

    goodput at its GPUs / goodput at its fair share,  fair share = ceil(GPUs / jobs)

both on as few nodes as possible and by what is known of the job; of equals to the first to arrive. A job at its most
GPUs, or whose goodput the GPU would not raise, is passed over; what nobody can use stays idle. Where no goodput is
known at the fair share, the next lower count is what a job is compared with; a job of unknown goodput keeps one GPU.
Under knowledge online a job holds at most twice what it has been observed with. It knows known speeds only, never how
much work is left. Batch sizes are tuned. Rigid jobs come first: they keep their GPUs to the end, and waiting ones
start, in order of arrival, where they fit. No change is charged with its pause: shares move only when jobs do.
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
def grant(relative: Floats, most: Ints, free: int, gpus: Ints) -> None:
    """Divide ``free`` GPUs into ``gpus`` (n,) int64.

    ``relative`` (n, K + 1) float64 by GPUs; ``most`` (n,) [GPUs].
    """
    for i in range(len(gpus)):
        gpus[i] = min(1, free, most[i])
        free -= gpus[i]
    while free > 0:
        worst = -1
        for i in range(len(gpus)):
            if _can_rise(relative, most, gpus, i) and (
                worst < 0 or relative[i, gpus[i]] < relative[worst, gpus[worst]]
            ):
                worst = i
        if worst < 0:
            break
        gpus[worst] += 1
        free -= 1


@jit
def _can_rise(relative: Floats, most: Ints, gpus: Ints, i: int) -> bool:
    """Whether job ``i``, which has a GPU, gains by one more."""
    k = gpus[i]
    if k == 0 or k >= most[i] or k + 1 >= relative.shape[1]:
        return False
    rises: bool = relative[i, k + 1] > relative[i, k]
    return rises


def relative_to_fair_share(goodput: Floats, fair: int) -> Floats:
    """(n, K + 1) float64: ``goodput`` (n, K + 1) over that of ``fair`` GPUs, or of the most below that are possible."""
    relative = np.zeros_like(goodput)
    for row, rates in enumerate(goodput):
        possible = rates[: fair + 1][rates[: fair + 1] > 0]
        if possible.size:
            relative[row] = rates / possible[-1]
    return relative


@dataclass(frozen=True)
class MaxMin:
    """Give each GPU to the job with the lowest goodput relative to that of its fair share."""

    name: ClassVar[str] = "max-min"
    batch: ClassVar[Literal["fixed", "tuned"]] = "tuned"
    stochastic: ClassVar[bool] = False
    oracle: ClassVar[tuple[str, ...]] = ()

    def reset(self, view: ClusterView) -> None:
        """It remembers nothing."""

    def allocate(self, view: ClusterView) -> Decision:
        slots, free, decided = after_rigid(view)
        gpus = np.zeros(len(slots), np.int64)
        if len(slots):
            both = view.goodput(slots)
            one_node = int(view.node_gpus.max()) + 1
            goodput = np.concatenate([both[:, 0, :one_node], both[:, 1, one_node:]], axis=1)
            most = np.minimum(view.max_gpus[slots], np.maximum(1, 2 * view.profiled[slots]))
            grant(relative_to_fair_share(goodput, -(-free // len(slots))), most, free, gpus)
        decided[slots] = gpus
        return Decision(decided, waits=True)
