"""A scheduling pass with preemption under consolidated placement: docs/design/001-core.md, section 4.

Jobs are walked in order of their keys; one that does not fit may evict running jobs behind it.
"""

from __future__ import annotations

from envs.devices import WHOLE, release, take_targets
from envs.jit import jit
from envs.layout import CONSOLIDATED
from envs.list_pass import (
    KEPT,
    NEVER,
    UNDECIDED,
    fill_from,
    fill_head,
    free_devices,
    known_to_fail,
    least_failure,
    needs_one_node,
    sort_running,
)
from envs.order import Key, precedes
from envs.placement import find_consolidated, place


@jit
def evictable(s, j):
    """Whether the walk may still evict running slot ``j``."""
    return s.walk_state[j] == UNDECIDED and s.gpus[j] > 0


@jit
def reset_scratch(s):
    """Copy what is free to the scratch arrays."""
    for n in range(s.num_nodes):
        s.scratch_free[n] = s.node_free[n]
    if s.has_shares:
        for g in range(s.num_gpus):
            s.scratch_milli[g] = s.gpu_free_milli[g]


@jit
def add_devices(s, j):
    """Add what slot ``j`` holds to the scratch arrays; the most free devices on a node of it then."""
    g = s.first_gpu[j]
    if s.share[j] < WHOLE:
        s.scratch_milli[g] += s.share[j]
        s.scratch_free[s.gpu_node[g]] += s.scratch_milli[g] == WHOLE
        return s.scratch_free[s.gpu_node[g]]
    most = 0
    while g >= 0:
        n = s.gpu_node[g]
        s.scratch_free[n] += 1
        most = max(most, s.scratch_free[n])
        g = s.gpu_next[g]
    return most


@jit
def find_with_evictions(s, j, first):
    """Place slot ``j`` as if the shortest possible suffix of ``running[first:]`` were gone; 0: impossible."""
    k, wide = s.request[j], not needs_one_node(s, j)
    reset_scratch(s)
    if wide:  # many nodes to look at each time, so first see whether it can succeed at all
        for i in range(first, s.num_running):
            if evictable(s, s.running[i]):
                add_devices(s, s.running[i])
        if find_consolidated(s, j, k, s.scratch_free) == 0:
            return 0
        reset_scratch(s)
    for i in range(s.num_running - 1, first - 1, -1):
        v = s.running[i]
        if evictable(s, v) and (add_devices(s, v) >= k or wide):
            count = find_consolidated(s, j, k, s.scratch_free)
            if count > 0:
                return count
    return 0


@jit
def blocks_target(s, v, count):
    """Whether slot ``v`` holds a device on one of the ``count`` targets that lacks free devices."""
    g = s.first_gpu[v]
    while g >= 0:
        n = s.gpu_node[g]
        for i in range(count):
            if s.target_node[i] == n and s.node_free[n] < s.target_count[i]:
                return True
        g = s.gpu_next[g] if s.share[v] == WHOLE else -1
    return False


@jit
def evict_for(s, j, first, log):
    """Evict from the end of ``running[first:]`` what slot ``j`` needs and place it; whether that worked."""
    count = find_with_evictions(s, j, first)
    if count == 0:
        return False
    for i in range(s.num_running - 1, first - 1, -1):
        v = s.running[i]
        if evictable(s, v) and blocks_target(s, v, count):
            release(s, v, log)
    take_targets(s, j, count)
    return True


@jit
def first_behind(s, j):
    """Place of the first running job, in sorted order, that comes after slot ``j``."""
    lo, hi = 0, s.num_running
    while lo < hi:
        mid = (lo + hi) // 2
        if precedes(s, j, s.running[mid]):
            hi = mid
        else:
            lo = mid + 1
    return lo


@jit
def keys_only_fall(s):
    """Whether the keys of running jobs can only fall while they run, relative to waiting jobs."""
    return s.order_key < Key.SERVICE or s.order_key == Key.RANDOM


@jit
def evict_pass(s, log):
    """Walk running and waiting jobs in order; one that does not fit may evict jobs behind it.

    Up to the first waiting job that does not fit, running jobs matter to nobody; running jobs before
    it in order stay, so the walk proper begins there. If no running job is behind it, only free
    devices count, and that stays so until a job begins to wait or overtakes another (``settled``).
    """
    w = fill_head(s)
    if w == s.num_waiting:
        return
    r = s.num_running
    if not s.settled:
        sort_running(s)
        r = first_behind(s, s.waiting[w])
    if r == s.num_running:
        failed = least_failure(s, s.waiting[w], NEVER)
        overtaken = fill_from(s, w + 1, failed)
        s.settled = keys_only_fall(s) and not overtaken
    else:
        evict_walk(s, w, r, log)


@jit
def evict_walk(s, w, r, log):
    """The walk from place ``w`` of the waiting and ``r`` of the running list on."""
    failed = NEVER
    # Devices free or held by jobs not yet reached; with fractions of devices just a bound.
    left = NEVER if s.has_shares else free_devices(s)
    for i in range(r, s.num_running):
        j = s.running[i]
        s.walk_state[j] = KEPT if s.pinned[j] else UNDECIDED
        if evictable(s, j):
            left += s.gpus[j]
    while left > 0 and (r < s.num_running or w < s.num_waiting):
        if w == s.num_waiting or (r < s.num_running and precedes(s, s.running[r], s.waiting[w])):
            j = s.running[r]
            r += 1
            if s.gpus[j] > 0:
                if evictable(s, j):
                    left -= s.gpus[j]
                continue
        else:
            j = s.waiting[w]
            w += 1
        whole = s.share[j] == WHOLE
        if whole and known_to_fail(s, j, left, failed):
            continue
        before = free_devices(s)
        if place(s, j, CONSOLIDATED):
            left -= before - free_devices(s)
        elif whole and evict_for(s, j, r, log):
            left -= s.request[j]
        else:
            failed = least_failure(s, j, failed)
