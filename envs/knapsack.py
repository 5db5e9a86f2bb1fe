"""The compiled knapsack by which DeepBoot shares out GPUs: one count a job, the largest sum of values.

DeepBoot's training scheduler (ATS-T); a published simulator's choice among equal sums is kept, since many are equal.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from envs.jit import jit

__all__ = ["solve"]


@jit
def solve(
    values: npt.NDArray[np.float64],
    lows: npt.NDArray[np.int64],
    caps: npt.NDArray[np.int64],
    num_jobs: int,
    capacity: int,
    table: npt.NDArray[np.float64],
    gpus: npt.NDArray[np.int64],
) -> float:
    """Choose ``lows[j] <= gpus[j] <= caps[j]`` of largest total value with ``sum(gpus) <= capacity``; return the total.

    ``values``: (J, K+1), of ``w`` GPUs for job ``j``; ``lows``, ``caps``, ``gpus``: (J,); ``table``: scratch
    (J+1, capacity+1). ``lows[j] = caps[j]`` pins a job. From the last job to the first, the first of 1, 2, ..., 0
    GPUs with which the rest can still reach the total is taken. If the lows do not fit, the total is -inf and
    ``gpus`` is unchanged.
    """
    table[0, : capacity + 1] = 0.0
    for j in range(num_jobs):
        _add_job(values[j], lows[j], caps[j], capacity, table[j], table[j + 1])
    total: float = table[num_jobs, capacity]
    left = capacity
    if total > -math.inf:
        for j in range(num_jobs - 1, -1, -1):
            gpus[j] = _given(values[j], lows[j], min(caps[j], left), left, table[j], table[j + 1, left])
            left -= gpus[j]
    return total


@jit
def _add_job(values, low, cap, capacity, before, after):
    """``after[c]``: the most that jobs up to this one are worth with ``c`` GPUs, from ``before`` of those ahead."""
    for c in range(capacity + 1):
        after[c] = before[c] + values[0] if low == 0 else -math.inf
    for w in range(max(low, 1), min(cap, capacity) + 1):
        value, moved = values[w], after[w:]
        for c in range(capacity + 1 - w):
            other = before[c] + value
            moved[c] = other if other > moved[c] else moved[c]


@jit
def _given(values, low, cap, left, before, total):
    """The first of 1, 2, ..., ``cap`` GPUs, from ``low`` on, that reaches ``total`` with ``left``; 0 if none does."""
    for w in range(max(low, 1), cap + 1):
        if before[left - w] + values[w] == total:
            return w
    return 0
