"""Who runs, and in what order those are placed that need devices: what a host says, whether a rule or in Python.

A rule that is not preemptive lets running jobs stay and waiting ones start in order. One that is chooses by GPU count
alone, as envs/list_pass.py does where it selects by count: first what must not be preempted, then in order whoever has
room in the count of his GPU type. Of a scheduler in Python the counts matter, and not where it would place them: jobs
whose count changes move, the widest first, ties by its rank or else the first to arrive.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from baselines.room import WHOLE, Bools, Ints, Room
from envs.order import ListOrder
from envs.scheduler import Decision
from envs.view import ClusterView


class Chosen(NamedTuple):
    """What a host wants of one pass."""

    gpus: Ints  # (J,) what each slot is to hold
    leave: Ints  # (m,) slots that give up what they hold
    queue: Ints  # (n,) slots to be placed, in this order
    blocks: bool  # whether one of them that has no room keeps back those behind it
    depth: Ints | None = None  # (J,) first modules that each job is to freeze, of a host that freezes layers


def by_rule(view: ClusterView, room: Room, order: ListOrder) -> Chosen:
    """What an ordering rule wants."""
    request = np.where(view.elastic, np.minimum(view.num_gpus, view.max_gpus), view.num_gpus)
    gpus = np.where(view.running, view.gpus, request)
    nobody = np.zeros(0, np.int64)
    if not view.waiting.any():
        return Chosen(gpus, nobody, nobody, True)
    ranked = view.ranked(order)
    if not order.preemptive:
        return Chosen(gpus, nobody, ranked[view.waiting[ranked]], not order.backfill)
    kept = choose_by_count(view, room, ranked, gpus)
    leave = ranked[view.running[ranked] & ~kept[ranked]]
    return Chosen(gpus, leave, ranked[view.waiting[ranked] & kept[ranked]], False)


def choose_by_count(view: ClusterView, room: Room, ranked: Ints, gpus: Ints) -> Bools:
    """(J,) whether each slot may run, by the count of GPUs alone."""
    kinds = view.node_type[room.node]
    quota = WHOLE * np.bincount(kinds[room.up], minlength=len(view.cluster.types))
    first = room.rows.argmax(axis=1)
    held, required = view.node_type[first], view.gpu_type
    pinned = view.running & ~view.preemptible
    chosen = np.zeros(len(gpus), np.bool_)
    charge = gpus * room.share
    for j in [*ranked[pinned[ranked]], *ranked[~pinned[ranked]]]:
        if view.running[j]:
            kind = int(held[j])
        else:
            fits = quota >= charge[j]
            fits &= (required[j] < 0) | (np.arange(len(quota)) == required[j])
            kind = int(fits.argmax())
            if not fits[kind]:
                continue
        if pinned[j] or quota[kind] >= charge[j]:
            chosen[j] = True
            quota[kind] -= charge[j]
        if quota.sum() <= 0:
            break
    return chosen


def by_count(view: ClusterView, decision: Decision) -> Chosen:
    """What the counts of a scheduler in Python want."""
    gpus = np.asarray(decision.gpus, np.int64)
    changes = gpus != view.gpus
    rank = view.job_id if decision.rank is None else np.asarray(decision.rank)
    queue = np.flatnonzero(changes & (gpus > 0))
    first = view.preemptible[queue]  # those that must keep GPUs are placed before there may be no room
    queue = queue[np.lexsort((view.job_id[queue], rank[queue], -gpus[queue], first))]
    return Chosen(gpus, np.flatnonzero(changes & (view.gpus > 0)), queue, False, decision.depth)
