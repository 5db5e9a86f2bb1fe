"""Serving the inference tasks that wait, at every event: docs/design/003-inference.md, sections 3 and 6."""

from __future__ import annotations

import math

from envs.clock import is_multiple
from envs.commit import settle_changes
from envs.devices import drop_ghost, end_sleep, end_sleeping, touch
from envs.jit import jit
from envs.layout import ATS, POD_PROTECT, POD_SLEEP
from envs.pods import give_birth, take_task, wake
from envs.rates import list_nodes
from envs.reclaim import choose_device, count_training, find_idle


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
    """Give tasks to idle pods of their service; one that hits a ghost still waits for a device."""
    for v in range(s.num_services):
        while s.queue_len[v] > 0:
            g, k = warm_pod(s, v), first_ghost(s, v)
            if k >= 0 and (g < 0 or (s.pod_hits[g] == 0 and s.ghost_born[k] < s.pod_born[g])):
                s.ghost_task[k] = take_task(s, w, v)
                s.num_queued += 1
            elif g >= 0:
                wake(s, w, g, take_task(s, w, v))
            else:
                break


@jit
def first_queue(s):
    """The service whose first waiting task arrived first."""
    best = -1
    for v in range(s.num_services):
        if s.queue_len[v] > 0 and (best < 0 or s.queue_first[v] < s.queue_first[best]):
            best = v
    return best


@jit
def start_on(s, w, g):
    """Let the first task that waits have device ``g``, which is nobody's; those that have hit ghosts come last."""
    v = first_queue(s)
    if v >= 0:
        give_birth(s, w, g, take_task(s, w, v), -1)
    else:
        give_back(s, w, g)


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
        start_on(s, w, g)


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
def start_in_pass(s, w):
    """Begin pods in a pass, on the emptiest nodes, as its Optimus alone does (deepboot.md 7)."""
    while s.num_queued > 0:
        n = 0
        for m in range(1, s.num_nodes):
            if s.node_free[m] > s.node_free[n]:
                n = m
        if s.node_free[n] == 0:
            return
        if s.node_free[n] == s.node_asleep[n]:
            end_sleeping(s, n, 1)
        start_on(s, w, find_idle(s, n, False))


@jit
def first_ghost(s, v):
    """The ghost born first of those of service ``v`` that no task has hit, or with -1 of those hit; -1: none."""
    best = -1
    for k in range(s.num_ghosts):
        wanted = s.ghost_task[k] >= 0 if v < 0 else s.ghost_task[k] < 0 and s.ghost_service[k] == v
        if wanted and (best < 0 or s.ghost_born[k] < s.ghost_born[best]):
            best = k
    return best


@jit
def give_back(s, w, g):
    """Give device ``g``, which is nobody's, to a ghost that a task has hit: it remains the pod that it was."""
    k = first_ghost(s, -1)
    row, born = s.ghost_task[k], s.ghost_born[k]
    drop_ghost(s, k)
    s.num_queued -= 1
    give_birth(s, w, g, row, born)


@jit
def forget_pass(s):
    """End what the last pass left behind: ghosts, and nodes in the order in which they were taken."""
    for k in range(s.num_ghosts - 1, -1, -1):
        if s.ghost_task[k] < 0:
            drop_ghost(s, k)
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
        if s.pod_state[g] == POD_SLEEP or (s.pod_state[g] == POD_PROTECT and s.queue_len[s.pod_service[g]] > 0):
            return True
    for k in range(s.num_ghosts):  # noqa: SIM110 - compiled loop; a ghost is a pod that sleeps
        if s.ghost_task[k] < 0:
            return True
    return False


@jit
def next_tick(s):
    """Time of the next whole second if it is an event; inf: it is not."""
    return math.floor(s.now) + 1.0 if tick_due(s) else math.inf
