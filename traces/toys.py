"""Toy workloads with a known best mean job completion time.

All jobs arrive at 0 and run to the end once started: a preempted job that resumes is paused, so no optimum here needs
preemption. The tests prove each optimum by trying every order.
"""

from __future__ import annotations

from typing import NamedTuple

from traces.trace import Trace, make_trace


class Toy(NamedTuple):
    """A workload, the cluster it is meant for (``NODESxGPUS``), its best mean jct [s], and the reason."""

    trace: Trace
    cluster: str
    optimal_mean_jct_s: float
    why: str


def _toy(name: str, cluster: str, jobs: list[tuple[int, float]], optimal_mean_jct_s: float, why: str) -> Toy:
    """A toy of ``jobs``, (GPUs, duration [s]) in trace order."""
    columns = {
        "arrival_s": [0.0] * len(jobs),
        "num_gpus": [gpus for gpus, _ in jobs],
        "duration_s": [duration for _, duration in jobs],
    }
    trace = make_trace(name, columns, f"toy for a {cluster} cluster; best mean jct {optimal_mean_jct_s:g} s: {why}")
    return Toy(trace, cluster, optimal_mean_jct_s, why)


TOYS: dict[str, Toy] = {
    "toy-two-jobs": _toy(
        "toy-two-jobs",
        "1x1",
        [(1, 100.0), (1, 10.0)],
        60.0,  # 10 and 110
        "shortest first; first come first served reaches 105 s",
    ),
    "toy-five-jobs": _toy(
        "toy-five-jobs",
        "1x1",
        [(1, 50.0), (1, 20.0), (1, 40.0), (1, 10.0), (1, 30.0)],
        70.0,  # 10, 30, 60, 100 and 150
        "shortest first; first come first served reaches 100 s",
    ),
    "toy-packing": _toy(
        "toy-packing",
        "1x8",
        [(8, 100.0)] + [(1, 50.0)] * 8,
        550.0 / 9.0,  # eight times 50, then 150
        "the eight small jobs side by side, then the large one; the large one first reaches 144.4 s",
    ),
    "toy-backfill": _toy(
        "toy-backfill",
        "1x2",
        [(1, 60.0), (2, 70.0), (1, 100.0)],
        110.0,  # 60, 170 and 100
        "the third job runs beside the first and delays the second, which greedy backfill allows; in order of arrival "
        "or of duration, without it, 140 s",
    ),
}
