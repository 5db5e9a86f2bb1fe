"""What a list scheduler would do, tried out on a copy of the record: for the view of a scheduler in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from envs.evict_pass import evict_pass
from envs.layout import CONSOLIDATED, FREE, RUNNING, WAITING
from envs.list_pass import fill_pass
from envs.order import Key, ListOrder, set_key, set_order
from envs.scheduler import Decision

Ints = npt.NDArray[np.int64]
NO_LOG = np.zeros(0, np.dtype([("gpu", "i8"), ("job", "i8"), ("start", "f8"), ("end", "f8")])).view(np.recarray)


def rank_slots(states: np.recarray, used: Ints, order: ListOrder) -> Ints:
    """The slots ``used`` (n,) in the order of a rule now."""
    trial = states[:1].copy().view(np.recarray)
    set_order(trial, order)
    s = trial[0]
    for j in used:
        set_key(s, j, int(order.key))
    ranks: Ints = used[np.lexsort((s.job_id[used], s.key2[used], s.key1[used]))]
    return ranks


def try_list(states: np.recarray, used: Ints, order: Ints, preempt: bool, backfill: bool) -> Decision:
    """What ClusterView.pack() answers; ``used`` (n,): slots in use, ``order`` (k,): as they are taken."""
    s = states[:1].copy().view(np.recarray)[0]
    rest = [j for j in used if s.phase[j] == RUNNING and j not in set(order.tolist())]
    ranked = np.concatenate([order, np.asarray(rest, np.int64)])
    s.order_key = Key.GIVEN
    s.key2[ranked] = 0.0
    s.key1[ranked] = np.arange(len(ranked))
    waiting = [j for j in ranked if s.phase[j] == WAITING]
    s.num_waiting = len(waiting)
    s.waiting[: len(waiting)] = waiting
    s.backfill = backfill
    if preempt:
        s.placement_rule = CONSOLIDATED
        evict_pass(s, NO_LOG)
    else:
        fill_pass(s)
    slots = int(s.num_slots)
    gpus = np.where(s.phase[:slots] == FREE, 0, s.gpus[:slots])
    fraction = (gpus > 0) & (s.share[:slots] < 1000)
    devices = np.where(fraction, s.first_gpu[:slots], -1)
    return Decision(gpus.astype(np.int32), held_by_node(s), devices)


def held_by_node(s: Any) -> npt.NDArray[np.int16]:
    """(J, N) int16 [GPUs] held by each slot on each node; a fraction counts as 1."""
    held = np.zeros((int(s.num_slots), int(s.num_nodes)), np.int16)
    for j in np.flatnonzero((s.phase[: int(s.num_slots)] != FREE) & (s.gpus[: int(s.num_slots)] > 0)):
        if s.share[j] < 1000:
            held[j, s.gpu_node[s.first_gpu[j]]] = 1
            continue
        g = int(s.first_gpu[j])
        while g >= 0:
            held[j, s.gpu_node[g]] += 1
            g = int(s.gpu_next[g])
    return held
