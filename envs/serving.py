"""Serving the inference tasks that wait, at every event: docs/design/003-inference.md, sections 3 and 6."""

from __future__ import annotations

import math

from envs.clock import is_multiple
from envs.commit import settle_changes
from envs.devices import end_sleep, touch
from envs.jit import jit
from envs.layout import ATS, POD_PROTECT, POD_SLEEP
from envs.pods import give_birth, take_task, wake
from envs.rates import list_nodes
from envs.reclaim import choose_device, count_training


@jit
def warm_pod(s, v):
    """Device of the pod that a task of service ``v`` finds warm: most hits, then born first; -1: none."""
    best = -1
    for g in range(s.num_gpus):
        if s.pod_service[g] != v or (s.pod_state[g] != POD_SLEEP and s.pod_state[g] != POD_PROTECT):
            continue
        if best < 0 or (s.pod_hits[g], -s.pod_born[g]) > (s.pod_hits[best], -s.pod_born[best]):
            best = g
    return best


@jit
def hit_warm(s, w):
    """Give tasks to idle pods of their service."""
    for v in range(s.num_services):
        while s.queue_len[v] > 0:
            g = warm_pod(s, v)
            if g < 0:
                break
            wake(s, w, g, take_task(s, w, v))


@jit
def first_queue(s):
    """The service whose first waiting task arrived first."""
    best = -1
    for v in range(s.num_services):
        if s.queue_len[v] > 0 and (best < 0 or s.queue_first[v] < s.queue_first[best]):
            best = v
    return best


@jit
def start_cold(s, w, log):
    """Begin pods for the tasks that found none, as long as there are devices."""
    if s.reclaim == ATS:
        count_training(s)
    while s.num_queued > 0:
        g = choose_device(s, w, log)
        if g < 0:
            return
        if s.pod_state[g] == POD_SLEEP:
            end_sleep(s, g)
        v = first_queue(s)
        ghost = take_ghost(s, v) if s.deepboot else -1
        give_birth(s, w, g, take_task(s, w, v), ghost)


@jit
def serve(s, w, log):
    """Serve what waits; whether training lost devices."""
    if s.num_queued > 0:
        hit_warm(s, w)
    if s.deepboot and is_multiple(s.now, s.interval):
        return False  # deepboot.md Q3
    if s.num_queued > 0:
        start_cold(s, w, log)
    if s.deepboot:
        forget_pass(s)
    lost = s.num_touched > 0
    if lost:
        settle_changes(s, w)
    return lost


# --- DeepBoot's simulator ---


@jit
def take_ghost(s, v):
    """``pod_born`` of the ghost of service ``v`` that was born first, which is one no more; -1: there is none."""
    first = -1
    for g in range(s.num_gpus):
        if s.ghost_service[g] == v and (first < 0 or s.ghost_born[g] < s.ghost_born[first]):
            first = g
    if first < 0:
        return -1
    s.ghost_service[first] = -1
    return s.ghost_born[first]


@jit
def forget_pass(s):
    """End what the last pass left behind: ghosts, and nodes in the order in which they were taken."""
    for g in range(s.num_gpus):
        s.ghost_service[g] = -1
    if s.unsorted:
        for i in range(s.num_running):
            sort_nodes(s, s.running[i])
        s.unsorted = 0


@jit
def sort_nodes(s, j):
    """Put slot ``j``'s devices into node order; if this changes it, the job counts as moved (deepboot.md Q8)."""
    list_nodes(s, j)
    in_order = True
    for m in range(1, s.num_nodes_held[j]):
        in_order &= s.target_node[m - 1] < s.target_node[m]
    if in_order:
        return
    s.first_gpu[j] = -1
    for g in range(s.num_gpus):
        if s.gpu_holder[g] == j:
            s.gpu_next[g], s.first_gpu[j] = s.first_gpu[j], g
    touch(s, j)


@jit
def tick_due(s):
    """Whether the next whole second is an event: tasks wait, and a pod sleeps or is one of theirs (deepboot.md 3).

    A ghost counts as asleep.
    """
    if s.num_queued == 0:
        return False
    for g in range(s.num_gpus):
        if s.pod_state[g] == POD_SLEEP or s.ghost_service[g] >= 0:
            return True
        if s.pod_state[g] == POD_PROTECT and s.queue_len[s.pod_service[g]] > 0:
            return True
    return False


@jit
def next_tick(s):
    """Time of the next whole second if it is an event; inf: it is not."""
    return math.floor(s.now) + 1.0 if tick_due(s) else math.inf
