"""Stand-ins for a ClusterView with elastic jobs, from tables written by hand or drawn at random."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

MOST = 64


def iteration_table(times):
    """(n, 65) float64 [s] from lists of times on 1, 2, ... GPUs; inf elsewhere."""
    table = np.full((len(times), MOST + 1), np.inf)
    for row, known in zip(table, times, strict=True):
        row[1 : len(known) + 1] = known
    return table


def goodput_table(rates, several=None):
    """(n, 2, 65) float64 from lists of rates on 1, 2, ... GPUs of one node, and of several (or the same)."""
    table = np.zeros((len(rates), 2, MOST + 1))
    for kind, lists in enumerate((rates, several or rates)):
        for job, known in enumerate(lists):
            table[job, kind, 1 : len(known) + 1] = known
    return table


def make_view(free, jobs, *, iteration_s=None, left=None, goodput=None, node_gpus=(4, 4), rescale_s=0.0):
    """A view of ``jobs``: dicts of what differs from an elastic, preemptible job of 1 GPU that waits.

    ``free``: free GPUs of each node. Tables are by job, so a scheduler must ask by slot: jobs lie in descending slots,
    and slot 0 is not in use.
    """
    count = len(jobs)

    def column(name, default, dtype):
        values = np.full(count + 1, default, dtype)
        values[:0:-1] = [job.get(name, default) for job in jobs]
        return values

    most = column("max_gpus", MOST, np.int64)
    work = np.zeros(count + 1)
    work[:0:-1] = 0.0 if left is None else left
    job_id = np.concatenate([[-1], np.arange(count)[::-1]])
    return SimpleNamespace(
        slots=np.arange(count, 0, -1),
        job_id=job_id,
        elastic=column("elastic", True, bool),
        preemptible=column("preemptible", True, bool),
        num_gpus=column("num_gpus", 1, np.int64),
        gpus=column("gpus", 0, np.int64),
        max_gpus=most,
        profiled=column("profiled", MOST, np.int64),
        node_free=np.array(free),
        node_gpus=np.array(node_gpus),
        config=SimpleNamespace(rescale_s=rescale_s, compat="none"),
        elastic_remaining=work,
        goodput=lambda slots, widest=None: goodput[job_id[slots]],
        oracle_iteration_s=lambda slots: iteration_s[job_id[slots]],
        oracle_iterations_left=lambda slots: work[slots],
    )


def answer(scheduler, view):
    """GPUs by job, as a list."""
    scheduler.reset(view)
    decision = scheduler.allocate(view)
    assert decision.placement is None
    assert decision.gpus.shape == view.gpus.shape
    assert decision.gpus[0] == 0, "the slot that is not in use"
    return decision.gpus[view.slots].tolist()


def random_instance(rng, concave):
    """(iteration times as lists, iterations left, most GPUs) of 1 to 6 jobs."""
    count = int(rng.integers(1, 7))
    times = []
    for _ in range(count):
        limit = int(rng.integers(1, 9))
        speed = np.cumsum(np.sort(rng.random(limit))[::-1]) if concave else rng.random(limit) + 0.1
        times.append((1 / speed).round(3).tolist())
    return times, rng.integers(1, 1000, count).astype(float), [int(rng.integers(1, 9)) for _ in times]
