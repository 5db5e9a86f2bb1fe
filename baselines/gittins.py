"""Gittins index over attained GPU-time (Gu et al., Tiresias, NSDI'19, section 3.2, "2D-Gittins").

Minimises mean jct given the distribution of GPU-times but not the GPU-time of any one job: the index
of a job that has attained a is the best ratio of completions to service spent,

    G(a) = sup_D  P(X - a <= D | X > a) / E[min(X - a, D) | X > a],

and jobs run in descending index. X is a sample of GPU-times: by default the jobs of the trace that
precede the evaluated window, as an operator would have them. When there are fewer than
``MIN_HISTORY`` of those, or with ``history=trace``, it is the whole trace, which is an oracle of the
distribution (never of a job); the results table marks it.
Departures: the supremum is taken over many D instead of one quantum, as in the classical index. Index
and D live on a grid of at most ``num_levels`` points, spaced evenly in log GPU-time since GPU-times span
five decades; with D free, the index would peak wherever two sample values happen to lie close together.
The authors' simulator sorts ``gittins`` the wrong way round and crashes as shipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from baselines.parameters import PolicyError
from envs.order import MAX_LIMITS, Key, ListOrder

MIN_HISTORY = 64  # jobs; with fewer, quantiles of a heavy-tailed distribution are mostly luck

Floats = npt.NDArray[np.float64]


def gpu_times(jobs: pd.DataFrame) -> Floats:
    """(n,) float64 [GPU-s]: duration x GPUs of the training jobs of a trace whose duration is known."""
    jobs = jobs[jobs["kind"] == "training"]
    times = jobs["duration_s"] * jobs["num_gpus"] * jobs["share_milli"] / 1000
    return times.dropna().to_numpy(np.float64)


def gittins_index(sample: Floats, attained: float, limits: tuple[float, ...]) -> float:
    """G(attained) [1 / GPU-s] of an empirical sample (n,) float64 [GPU-s]; 0 at and beyond the last limit.

    D runs over the limits above ``attained``, where a running job is looked at again.
    """
    left = sample[sample > attained] - attained
    spans = np.array([limit - attained for limit in limits if limit > attained])
    if left.size == 0 or spans.size == 0:
        return 0.0
    finished = (left <= spans[:, None]).mean(axis=1)
    spent = np.minimum(left, spans[:, None]).mean(axis=1)
    return float(np.max(finished / spent))


def make_limits(sample: Floats, num_levels: int) -> tuple[float, ...]:
    """Ascending grid [GPU-s] of at most ``num_levels`` points from the 1 % quantile to the maximum."""
    positive = sample[sample > 0]
    if positive.size == 0:
        return ()
    lowest = float(np.quantile(positive, 0.01, method="lower"))
    grid = np.geomspace(lowest, positive.max(), num_levels)
    grid[-1] = positive.max()  # exact, so that the last level is "beyond all history"
    return tuple(float(x) for x in np.unique(grid))


@dataclass(frozen=True)
class Gittins:
    """Run the jobs with the highest Gittins index; the others are preempted."""

    history: Literal["before", "trace"] = "before"
    """Where GPU-times come from: the jobs before the window, or the whole trace."""
    num_levels: int = MAX_LIMITS
    """Grid points of attained service, 2 to 63."""
    sample: tuple[float, ...] = field(default=(), repr=False)
    """GPU-times to use instead of the trace's [GPU-s]."""

    name: ClassVar[str] = "gittins"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"

    def __post_init__(self) -> None:
        if not 2 <= self.num_levels <= MAX_LIMITS:
            raise ValueError(f"num_levels must lie between 2 and {MAX_LIMITS}, not {self.num_levels}")
        if not all(0 <= x < np.inf for x in self.sample):
            raise ValueError("sample must hold finite GPU-times >= 0")

    @property
    def oracle(self) -> tuple[str, ...]:
        return ("distribution",) if self.history == "trace" else ()

    def with_history(self, jobs: pd.DataFrame, start: int) -> Gittins:
        """This scheduler with the sample it may know when rows ``start`` .. of a trace's jobs are evaluated."""
        if self.sample:
            return self
        if self.history == "before" and start >= MIN_HISTORY:
            return replace(self, sample=tuple(gpu_times(jobs.iloc[:start])))
        return replace(self, history="trace", sample=tuple(gpu_times(jobs)))

    def order(self) -> ListOrder:
        """Raises :class:`PolicyError` when no history was given, or one without durations."""
        if not self.sample:
            raise PolicyError("gittins knows no GPU-times: call with_history(trace.jobs, start) or give sample=")
        sample = np.asarray(self.sample)
        limits = make_limits(sample, self.num_levels)
        values = tuple(gittins_index(sample, attained, limits) for attained in (0.0, *limits))
        return ListOrder(Key.GITTINS, preemptive=True, limits=limits, values=values)
