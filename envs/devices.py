"""Who holds which device: taking devices, giving them back, and the log of who held them.

Inside a scheduling pass devices move freely; envs/commit.py then books what each job has lost and won.
"""

from __future__ import annotations

import math

from envs.jit import jit
from envs.layout import HOLDER_NONE, HOLDER_SHARED, NO_POD, POD_SLEEP
from envs.rng import hash45

WHOLE = 1000  # share of a whole device [1/1000]
BIRTHS = (1 << 32) - 1
JUST_ENDED = 2  # deepboot: in pod_warm of a sleeping pod whose device the present pass has taken


@jit
def node_mix(n):
    """A hash of a node number; sums of it identify multisets of nodes."""
    return hash45(n)


@jit
def holding_hash(s, j):
    """A hash of the nodes of slot ``j``'s devices; under ``compat deepboot`` also of the order in which it has them."""
    if not s.deepboot:
        return s.node_hash[j]
    found, place, g = 0, 0, s.first_gpu[j]
    while g >= 0:
        found += (1 + place % 64) * node_mix(s.gpu_node[g])
        place += 1
        g = s.gpu_next[g]
    return found


@jit
def touch(s, j):
    """List slot ``j`` for the commit at the end of the pass."""
    if s.touched[j] == 0:
        s.touched[j] = 1
        s.touched_slots[s.num_touched] = j
        s.num_touched += 1


@jit
def end_sleep(s, g):
    """End the sleeping pod on device ``g``, for someone who takes the device."""
    n = s.gpu_node[g]
    s.pod_gpu_s[POD_SLEEP] += s.now - s.pod_since[g]
    s.pod_state[g], s.pod_until[g] = NO_POD, math.inf
    if not s.node_reserved[n]:
        s.node_asleep[n] -= 1
        s.gpu_holder[g] = HOLDER_NONE


@jit
def place_in_order(s, g):
    """Place of the sleeping pod on device ``g`` in the order in which a pass lets pods keep their devices: birth."""
    # DeepBoot's own scheduler sorts its jobs by attained service first, which of a pod is its start-up: deepboot.md 6.
    return s.pod_born[g] if s.tuned else s.pod_born[g] & BIRTHS


@jit
def leave_ghost(s, g):
    """Let the sleeping pod on device ``g``, which training takes, live on without a device (deepboot.md Q4)."""
    k = s.num_ghosts
    if k < s.num_gpus:
        s.ghost_service[k], s.ghost_born[k], s.ghost_task[k] = s.pod_service[g], s.pod_born[g], -1
        s.num_ghosts += 1
        s.pod_warm[g] = JUST_ENDED


@jit
def drop_ghost(s, k):
    """Forget ghost ``k``; the last takes its place."""
    s.num_ghosts -= 1
    m = s.num_ghosts
    s.ghost_service[k], s.ghost_born[k], s.ghost_task[k] = s.ghost_service[m], s.ghost_born[m], s.ghost_task[m]


@jit
def end_sleeping(s, n, count):
    """End ``count`` sleeping pods of node ``n`` for training, the last in order first."""
    for _ in range(count):
        last = -1
        for g in range(s.node_first[n], s.node_first[n] + s.node_gpus[n]):
            if s.pod_state[g] == POD_SLEEP and (last < 0 or place_in_order(s, g) > place_in_order(s, last)):
                last = g
        if s.deepboot:
            leave_ghost(s, last)
        end_sleep(s, last)


@jit
def take_on_node(s, j, n, count):
    """Give slot ``j`` the ``count`` lowest free devices of node ``n``, those of sleeping pods last."""
    if s.node_asleep[n] > 0:
        end_sleeping(s, n, max(0, count - (s.node_free[n] - s.node_asleep[n])))
    g = s.node_first[n]
    left = count
    while left > 0:
        if s.gpu_free_milli[g] == WHOLE and s.pod_state[g] == NO_POD:
            s.gpu_holder[g] = j
            s.gpu_free_milli[g] = 0
            s.gpu_since[g] = s.now
            s.gpu_next[g] = s.first_gpu[j]
            s.first_gpu[j] = g
            left -= 1
        g += 1
    s.gpus[j] += count
    s.node_free[n] -= count
    s.type_free[s.node_type[n]] -= count
    s.node_hash[j] += count * node_mix(n)
    s.num_nodes_held[j] += 1


@jit
def take_targets(s, j, count):
    """Give slot ``j`` the placement found last; it must hold nothing."""
    touch(s, j)
    for i in range(count):
        take_on_node(s, j, s.target_node[i], s.target_count[i])


@jit
def take_share(s, j, g):
    """Give slot ``j`` its fraction of device ``g``."""
    touch(s, j)
    n = s.gpu_node[g]
    if s.pod_state[g] == POD_SLEEP:
        end_sleep(s, g)
    if s.gpu_free_milli[g] == WHOLE:
        s.gpu_holder[g] = HOLDER_SHARED
        s.node_free[n] -= 1
        s.type_free[s.node_type[n]] -= 1
    s.gpu_free_milli[g] -= s.share[j]
    s.first_gpu[j] = g
    s.gpus[j] = 1
    s.node_hash[j] = node_mix(n)
    s.num_nodes_held[j] = 1
    s.taken_at[j] = s.now


@jit
def release(s, j, log):
    """Take all devices from slot ``j`` and log who held them (unless ``log`` has no rows)."""
    touch(s, j)
    g = s.first_gpu[j]
    if s.share[j] < WHOLE:
        if g >= 0:
            log_interval(s, j, g, s.taken_at[j], log)
            s.gpu_free_milli[g] += s.share[j]
            if s.gpu_free_milli[g] == WHOLE:
                free_device(s, g)
    else:
        while g >= 0:
            log_interval(s, j, g, s.gpu_since[g], log)
            s.gpu_free_milli[g] = WHOLE
            free_device(s, g)
            g = s.gpu_next[g]
    s.first_gpu[j] = -1
    s.gpus[j] = 0
    s.node_hash[j] = 0
    s.num_nodes_held[j] = 0


@jit
def release_on(s, j, n, count, log):
    """Take up to ``count`` whole devices on node ``n`` from slot ``j``, the highest first."""
    touch(s, j)
    g, before, left = s.first_gpu[j], -1, count
    while g >= 0 and s.gpu_node[g] != n:
        before, g = g, s.gpu_next[g]
    while g >= 0 and s.gpu_node[g] == n and left > 0:  # devices of a node follow one another, the highest first
        log_interval(s, j, g, s.gpu_since[g], log)
        s.gpu_free_milli[g] = WHOLE
        free_device(s, g)
        s.node_hash[j] -= node_mix(n)
        s.gpus[j] -= 1
        left -= 1
        g = s.gpu_next[g]
    if before >= 0:
        s.gpu_next[before] = g
    else:
        s.first_gpu[j] = g
    if g < 0 or s.gpu_node[g] != n:
        s.num_nodes_held[j] -= 1


@jit
def free_device(s, g):
    """Count device ``g`` as wholly free again."""
    n = s.gpu_node[g]
    s.gpu_holder[g] = HOLDER_NONE
    s.node_free[n] += 1
    s.type_free[s.node_type[n]] += 1


@jit
def log_interval(s, j, g, start, log):
    """Append one row to the log of GPU intervals; the caller has made sure that there is room."""
    if log.shape[0] > 0 and s.now > start:
        row = log[s.log_len]
        row.gpu = g
        row.job = s.job_id[j]
        row.start = start
        row.end = s.now
        s.log_len += 1
