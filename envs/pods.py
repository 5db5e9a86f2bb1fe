"""Pods of inference services, and the tasks that wait for one: docs/design/003-inference.md, sections 1, 2 and 4.

A pod is a device that serves a service, so it is stored by device. While it is awake its device is nobody else's;
while it sleeps training may take the device, unless the node is reserved for inference.
"""

from __future__ import annotations

import math

from envs.devices import WHOLE, end_sleep
from envs.jit import jit
from envs.layout import (
    COMPLETED,
    HOLDER_INFERENCE,
    HOLDER_NONE,
    LYRA,
    NO_POD,
    POD_PROTECT,
    POD_RUNNING,
    POD_SLEEP,
    POD_START,
    STATIC,
)
from envs.pace import task_time

RECENT_S = 300.0  # time constant of the count of recent tasks, which only observations read
LONGEST_PROTECT_S = 120.0


@jit
def clear_pods(s):
    """No pod, no task; under ``static`` the inference nodes are reserved."""
    s.tasks_open = s.num_queued = s.num_births = s.num_taken = s.num_late = s.num_ghosts = s.unsorted = 0
    s.next_pod = math.inf
    for v in range(s.num_services):
        s.queue_len[v] = 0
        s.last_task[v], s.recent[v] = -math.inf, 0.0
    for state in range(s.pod_gpu_s.shape[0]):
        s.pod_gpu_s[state] = 0.0
    for g in range(s.num_gpus):
        s.pod_state[g] = NO_POD
    for n in range(s.num_nodes):
        s.node_pods[n] = s.node_asleep[n] = s.node_reserved[n] = 0
    if s.reclaim == STATIC:
        for n in range(s.inference_first, s.num_nodes):
            reserve(s, n)


# --- tasks ---


@jit
def queue_task(s, w, row):
    """Let the task of a row of the job table wait; ``next_task`` of the rows chains the tasks of a service."""
    v = w.jobs[row].service
    if s.queue_len[v] == 0:
        s.queue_first[v] = row
    s.queue_len[v] += 1
    s.num_queued += 1
    s.tasks_open += 1
    s.recent[v] = recent_tasks(s, v) + 1.0
    s.last_task[v] = s.now


@jit
def recent_tasks(s, v):
    """Tasks of service ``v`` that arrived until now, each fading to 1 / e in RECENT_S."""
    return s.recent[v] * math.exp((s.last_task[v] - s.now) / RECENT_S)


@jit
def count_late(s, w, row, start_up):
    """Count the task of a row, which is given to a pod now, if its objective is missed."""
    s.num_late += s.now - (w.jobs[row].arrival - s.origin) + start_up > s.slo


@jit
def take_task(s, w, v):
    """Row of the first waiting task of service ``v``, which waits no longer."""
    row = s.queue_first[v]
    s.queue_first[v] = w.jobs[row].next_task
    s.queue_len[v] -= 1
    s.num_queued -= 1
    return row


@jit
def complete_task(s, w, g, results, log):
    """Write the result row of the task that the pod on device ``g`` has served."""
    row = s.pod_task[g]
    job = w.jobs[row]
    log_task(s, g, row - s.job_lo, log)
    result = results[row - s.job_lo]
    result.first_start = s.pod_begun[g]
    result.finish = s.pod_until[g]
    result.queueing_delay = s.pod_begun[g] - (job.arrival - s.origin)
    result.paused_gpu_s = 0.0 if s.pod_warm[g] else job.start_up
    result.service = s.pod_until[g] - s.pod_begun[g]
    result.warm = s.pod_warm[g]
    result.status = COMPLETED
    s.tasks_open -= 1
    s.num_completed += 1


@jit
def log_task(s, g, job, log):
    """Log that device ``g`` served a task until now."""
    if log.shape[0] > 0 and s.now > s.pod_begun[g]:
        row = log[s.log_len]
        row.gpu, row.job, row.start, row.end = g, job, s.pod_begun[g], s.now
        s.log_len += 1


# --- devices ---


@jit
def close_device(s, g):
    """Take device ``g``, which training may have but does not hold, out of its reach."""
    n = s.gpu_node[g]
    s.gpu_free_milli[g] = 0
    s.gpu_holder[g] = HOLDER_INFERENCE
    s.node_free[n] -= 1
    s.type_free[s.node_type[n]] -= 1
    s.type_up[s.node_type[n]] -= 1
    s.node_asleep[n] -= s.pod_state[g] == POD_SLEEP


@jit
def open_device(s, g):
    """Let training have device ``g``, on which no pod is awake, again."""
    n = s.gpu_node[g]
    s.gpu_free_milli[g] = WHOLE
    s.gpu_holder[g] = HOLDER_NONE if s.pod_state[g] == NO_POD else HOLDER_INFERENCE
    s.node_free[n] += 1
    s.type_free[s.node_type[n]] += 1
    s.type_up[s.node_type[n]] += 1
    s.node_asleep[n] += s.pod_state[g] == POD_SLEEP


@jit
def reserve(s, n):
    """Keep node ``n``, on which training holds nothing, for inference alone."""
    for g in range(s.node_first[n], s.node_first[n] + s.node_gpus[n]):
        if s.pod_state[g] == NO_POD or s.pod_state[g] == POD_SLEEP:
            close_device(s, g)
    s.node_reserved[n] = 1


@jit
def unreserve(s, n):
    """Lend node ``n``, on which no pod is awake, to training."""
    s.node_reserved[n] = 0
    for g in range(s.node_first[n], s.node_first[n] + s.node_gpus[n]):
        open_device(s, g)


# --- states ---


@jit
def set_state(s, g, state, until):
    """Let the pod on device ``g`` change its state now."""
    s.pod_gpu_s[s.pod_state[g]] += s.now - s.pod_since[g]
    s.pod_state[g], s.pod_since[g], s.pod_until[g] = state, s.now, until
    s.next_pod = min(s.next_pod, until)


@jit
def protect_time(s, g):
    """How long the pod on device ``g`` is protected when its task is done [s]: shared/reference/deepboot.md 8.3."""
    time = min(30.0 * s.protect + 15.0 * s.protect * s.pod_hits[g], LONGEST_PROTECT_S * s.protect)
    return math.floor(time) + 1.0 if s.deepboot else time


@jit
def rest(s, g, state):
    """Let the pod on device ``g``, which was awake, sleep or end; a node without another awake pod is lent again."""
    n = s.gpu_node[g]
    set_state(s, g, state, math.inf)
    s.pod_hits[g] = 0
    s.node_pods[n] -= 1
    if not s.node_reserved[n]:
        open_device(s, g)
    elif s.reclaim == LYRA and s.node_pods[n] == 0:
        unreserve(s, n)


@jit
def wake(s, w, g, row):
    """Let the idle pod on device ``g`` serve the task of a row: a warm hit."""
    if s.pod_state[g] == POD_SLEEP:
        n = s.gpu_node[g]
        if not s.node_reserved[n]:
            close_device(s, g)
        s.node_pods[n] += 1
        hits = 0
    else:
        hits = s.pod_hits[g] + 1
    s.pod_hits[g], s.pod_task[g], s.pod_warm[g], s.pod_begun[g] = hits, row, 1, s.now
    count_late(s, w, row, 0.0)
    set_state(s, g, POD_RUNNING, s.now + task_time(s, w, row, g))


@jit
def give_birth(s, w, g, row, ghost):
    """Begin a pod on device ``g``, which is nobody's, for the task of a row.

    ``ghost``: ``pod_born`` of the ghost that it was (deepboot), which needs no start-up; -1: none.
    """
    n = s.gpu_node[g]
    if not s.node_reserved[n]:
        close_device(s, g)
    s.node_pods[n] += 1
    s.pod_since[g] = s.now  # of no pod: nothing to account for
    s.pod_service[g], s.pod_task[g], s.pod_hits[g] = w.jobs[row].service, row, 0
    s.pod_begun[g] = s.now
    if ghost >= 0:
        s.pod_warm[g], s.pod_born[g] = 1, ghost
        count_late(s, w, row, 0.0)
        set_state(s, g, POD_RUNNING, s.now + task_time(s, w, row, g))
        return
    s.pod_warm[g], s.pod_born[g] = 0, s.num_births
    s.num_births += 1
    count_late(s, w, row, w.jobs[row].start_up)
    if s.deepboot:  # there pods are in order of attained service, which is their start-up
        s.pod_born[g] += int(w.jobs[row].start_up) << 32
    set_state(s, g, POD_START, s.now + w.jobs[row].start_up)


@jit
def keep_idle(s, v):
    """Protect the idle pods of service ``v`` for the longest protect time from now on."""
    until = s.now + LONGEST_PROTECT_S * s.protect
    for g in range(s.num_gpus):
        if s.pod_service[g] != v:
            continue
        if s.pod_state[g] == POD_SLEEP:
            n = s.gpu_node[g]
            if not s.node_reserved[n]:
                close_device(s, g)
            s.node_pods[n] += 1
            set_state(s, g, POD_PROTECT, until)
        elif s.pod_state[g] == POD_PROTECT:
            set_state(s, g, POD_PROTECT, until)


@jit
def drop_idle(s, v):
    """End the idle pods of service ``v``."""
    for g in range(s.num_gpus):
        if s.pod_service[g] == v and s.pod_state[g] == POD_PROTECT:
            rest(s, g, NO_POD)
        elif s.pod_service[g] == v and s.pod_state[g] == POD_SLEEP:
            end_sleep(s, g)


@jit
def move_on(s, w, g, results, log):
    """Let the pod on device ``g``, whose time has come, enter its next state; whether its task is done."""
    state = s.pod_state[g]
    if state == POD_START:
        set_state(s, g, POD_RUNNING, s.now + task_time(s, w, s.pod_task[g], g))
        return False
    if state == POD_PROTECT:
        rest(s, g, POD_SLEEP)
        return False
    complete_task(s, w, g, results, log)
    if s.aiss:
        set_state(s, g, POD_PROTECT, s.now + protect_time(s, g))
    else:
        rest(s, g, NO_POD)
    return True


@jit
def pods_due(s, w, results, log):
    """Let every pod whose time has come move on; (a device was given up, a task was done)."""
    freed, done = False, False
    if s.next_pod > s.now:
        return freed, done
    s.next_pod = math.inf
    for g in range(s.num_gpus):
        while s.pod_state[g] != NO_POD and s.pod_until[g] <= s.now:
            done |= move_on(s, w, g, results, log)
            freed |= s.pod_state[g] == NO_POD or s.pod_state[g] == POD_SLEEP
        if s.pod_state[g] != NO_POD:
            s.next_pod = min(s.next_pod, s.pod_until[g])
    return freed, done


@jit
def close_accounts(s):
    """Count the time that idle pods have spent until now: the run ends."""
    for g in range(s.num_gpus):
        if s.pod_state[g] != NO_POD:
            s.pod_gpu_s[s.pod_state[g]] += s.now - s.pod_since[g]
            s.pod_since[g] = s.now
