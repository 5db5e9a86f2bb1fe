"""Each toy's stated optimum is the best over every order of its jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from traces import TOYS, load_trace


def orders(jobs: list[tuple[int, float]]) -> Iterator[list[tuple[int, float]]]:
    """Distinct orders of the jobs (equal jobs are interchangeable)."""
    if not jobs:
        yield []
    for job in dict.fromkeys(jobs):
        rest = jobs.copy()
        rest.remove(job)
        for tail in orders(rest):
            yield [job, *tail]


def mean_jct(order: list[tuple[int, float]], gpus: int, keep_order: bool = False) -> float:
    """Mean finish time when each job in turn takes the earliest start at which its GPUs are free for its whole run.

    Over all orders, such schedules contain an optimal one for any measure that grows with the finish times. With
    ``keep_order`` no job starts before the one ahead of it.
    """
    running: list[tuple[float, float, int]] = []  # start, finish, GPUs
    last = 0.0
    for need, duration in order:
        starts = sorted({last if keep_order else 0.0, *(finish for _, finish, _ in running)})
        for start in starts:
            if keep_order and start < last:
                continue
            instants = [start, *(s for s, _, _ in running if start < s < start + duration)]
            if all(sum(g for s, f, g in running if s <= t < f) + need <= gpus for t in instants):
                break
        running.append((start, start + duration, need))
        last = start
    return sum(finish for _, finish, _ in running) / len(running)


def jobs_of(name: str) -> tuple[list[tuple[int, float]], int]:
    jobs = TOYS[name].trace.jobs
    nodes, gpus = TOYS[name].cluster.split("x")
    assert nodes == "1"
    return list(zip(jobs["num_gpus"].tolist(), jobs["duration_s"].tolist(), strict=True)), int(gpus)


@pytest.mark.parametrize("name", list(TOYS))
def test_the_optimum_is_the_best_of_all_orders(name):
    jobs, gpus = jobs_of(name)
    assert min(mean_jct(order, gpus) for order in orders(jobs)) == pytest.approx(TOYS[name].optimal_mean_jct_s)


@pytest.mark.parametrize(
    ("name", "mean_jct_s"),
    [("toy-two-jobs", 105), ("toy-five-jobs", 100), ("toy-packing", 1300 / 9), ("toy-backfill", 140)],
)
def test_first_come_first_served_is_worse_by_what_the_toy_says(name, mean_jct_s):
    jobs, gpus = jobs_of(name)
    assert mean_jct(jobs, gpus, keep_order=True) == pytest.approx(mean_jct_s)
    assert f"{mean_jct_s:g}"[:5] in TOYS[name].why


def test_greedy_backfill_is_what_the_backfill_toy_needs():
    """Trace order is the order by duration; a backfill that reserves the second job's start (at 60 s) does not help."""
    jobs, gpus = jobs_of("toy-backfill")
    assert [duration for _, duration in jobs] == sorted(duration for _, duration in jobs)
    assert mean_jct(jobs, gpus) == 140
    first, second, third = jobs
    assert mean_jct([first, third, second], gpus, keep_order=True) == TOYS["toy-backfill"].optimal_mean_jct_s


@pytest.mark.parametrize("name", list(TOYS))
def test_toys_load_by_name_as_copies(name):
    trace = load_trace(name)
    assert (trace.jobs["arrival_s"] == 0).all()
    trace.jobs.loc[0, "duration_s"] = 1e9
    assert TOYS[name].trace.jobs["duration_s"][0] != 1e9
