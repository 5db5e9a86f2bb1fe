"""What the reward measures: objectives by name.

The running part is paid at every commit and integrates exactly; the terminal part is paid once, when
the episode ends, from the jobs that completed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from envs.episode import JOB_TIME, NOTHING, TIME
from envs.metrics import finish_time_fairness, mean, percentile, slowdown


class Objective(NamedTuple):
    """One objective: what the running reward integrates, the cost paid at the end, and what else costs.

    ``counts_late``: late inference tasks; ``counts_residual``: what the layers of a job lack when it completes.
    """

    integral: int
    final_cost: Callable[[pd.DataFrame, int], float]
    meaning: str
    counts_late: bool = False
    counts_residual: bool = False


def _none(jobs: pd.DataFrame, num_gpus: int) -> float:
    return 0.0


def _p99_slowdown(jobs: pd.DataFrame, num_gpus: int) -> float:
    return percentile(slowdown(jobs), 99)


def _fairness(jobs: pd.DataFrame, num_gpus: int) -> float:
    return mean(finish_time_fairness(jobs, num_gpus))


OBJECTIVES: dict[str, Objective] = {
    "jct": Objective(JOB_TIME, _none, "- sum of JCT / scale: paid as - (unfinished jobs) x time / scale"),
    "jct_slo": Objective(
        JOB_TIME,
        _none,
        "- (sum of training JCT + slo_penalty_s x late tasks) / scale: paid as jct, and when a late task is served",
        counts_late=True,
    ),
    "jct_residual": Objective(
        JOB_TIME,
        _none,
        "- (sum of JCT + residual_penalty x residual x isolated time) / scale: paid as jct, and when a job completes",
        counts_residual=True,
    ),
    "makespan": Objective(TIME, _none, "- makespan / scale: paid as - time / scale"),
    "p99_slowdown": Objective(NOTHING, _p99_slowdown, "- 99th percentile of slowdown, paid at the end"),
    "finish_time_fairness": Objective(NOTHING, _fairness, "- mean rho (finish-time fairness), paid at the end"),
}


def terminal_reward(objective: str, jobs: pd.DataFrame, num_gpus: int) -> float:
    """Reward paid when an episode has ended; 0 where nothing completed that the cost is defined for."""
    cost = OBJECTIVES[objective].final_cost(jobs[jobs["status"] == "completed"], num_gpus)
    return 0.0 if np.isnan(cost) else -cost
