"""One scheduling pass of the compiled list scheduler: docs/design/001-core.md, section 4.

Three walks over jobs in order of their keys: without preemption, with preemption by GPU count, and
with preemption under consolidated placement, where a job may evict those behind it.
"""

from __future__ import annotations

import math

from envs.commit import commit
from envs.dynamics import FINISHED, PASS_DUE, advance, start_window
from envs.jit import jit
from envs.layout import CONSOLIDATED
from envs.order import Key, precedes, set_key
from envs.placement import WHOLE, allowed, find_consolidated, place, release, take_targets

# What a walk has decided for a slot.
UNDECIDED, KEPT, CHOSEN = 0, 1, 2
NEVER = 1 << 60


@jit
def sort_running(s):
    """Bring the running list into the order of its keys at ``s.now`` (insertion: it is nearly sorted)."""
    key = s.order_key
    for i in range(s.num_running):
        j = s.running[i]
        set_key(s, j, key)
        m = i
        while m > 0 and precedes(s, j, s.running[m - 1]):
            s.running[m] = s.running[m - 1]
            m -= 1
        s.running[m] = j


@jit
def free_devices(s):
    """Wholly free devices of the cluster."""
    total = 0
    for t in range(s.num_types):
        total += s.type_free[t]
    return total


@jit
def needs_one_node(s, j):
    """Whether consolidated placement puts whole-device job ``j`` on a single node."""
    for t in range(s.num_types):  # noqa: SIM110 - compiled loop
        if allowed(s, j, t) and s.request[j] <= s.max_node_gpus[t]:
            return True
    return False


# A walk remembers the least request that failed: what it could use only shrinks, so a wider job that
# needs a single node fails too.


@jit
def known_to_fail(s, j, free, failed):
    """Whether whole-device job ``j`` cannot fit, given ``free`` devices and the least failure so far."""
    k = s.request[j]
    return k > free or (s.placement_rule == CONSOLIDATED and failed <= k and needs_one_node(s, j))


@jit
def least_failure(s, j, failed):
    """The least failed request after job ``j``, which may use any type, failed as well."""
    if s.share[j] == WHOLE and s.gpu_type[j] < 0 and needs_one_node(s, j):
        return min(failed, s.request[j])
    return failed


@jit
def fill_from(s, first, failed):
    """Start waiting jobs from place ``first`` on, in order, on free devices; whether any started."""
    free, started = free_devices(s), False
    for i in range(first, s.num_waiting):
        if free == 0 and not s.has_shares:
            break
        j = s.waiting[i]
        whole = s.share[j] == WHOLE
        if not (whole and known_to_fail(s, j, free, failed)) and place(s, j, s.placement_rule):
            free, started = free_devices(s), True
        else:
            failed = least_failure(s, j, failed)
    return started


@jit
def fill_head(s):
    """Start waiting jobs in order up to the first that does not fit; its place in the list."""
    for i in range(s.num_waiting):
        if not place(s, s.waiting[i], s.placement_rule):
            return i
    return s.num_waiting


@jit
def fill_pass(s):
    """Start waiting jobs in order on free devices."""
    if s.backfill:
        fill_from(s, 0, NEVER)
    else:
        fill_head(s)


# --- preemption by count ---


@jit
def share_type(s, j):
    """GPU type that running slot ``j`` is on."""
    return s.node_type[s.gpu_node[s.first_gpu[j]]]


@jit
def spend_quota(s, j, t):
    """Take slot ``j``'s demand from the quota of type ``t`` if it is there; whether it was."""
    need = s.request[j] * s.share[j]
    if s.scratch_quota[t] < need:
        return False
    s.scratch_quota[t] -= need
    return True


@jit
def richest_type(s, j):
    """Allowed type with most quota left."""
    best = -1
    for t in range(s.num_types):
        if allowed(s, j, t) and (best < 0 or s.scratch_quota[t] > s.scratch_quota[best]):
            best = t
    return best


@jit
def begin_walk(s):
    """Sort the running jobs, keep those that must not be preempted, and set the quotas."""
    sort_running(s)
    for t in range(s.num_types):
        s.scratch_quota[t] = WHOLE * s.type_gpus[t]
    for i in range(s.num_running):
        j = s.running[i]
        s.walk_state[j] = UNDECIDED
        if s.pinned[j]:
            s.walk_state[j] = KEPT
            s.scratch_quota[share_type(s, j)] -= s.request[j] * s.share[j]


@jit
def quota_left(s):
    """Quota of all types."""
    total = 0
    for t in range(s.num_types):
        total += s.scratch_quota[t]
    return total


@jit
def count_pass(s, log):
    """Choose who runs by GPU count alone, preempt the others, then place the newly chosen.

    Whether all of those could be placed: if not, devices stay idle and the next pass may differ.
    """
    begin_walk(s)
    left = quota_left(s)
    r = w = 0
    while left > 0 and (r < s.num_running or w < s.num_waiting):
        if w == s.num_waiting or (r < s.num_running and precedes(s, s.running[r], s.waiting[w])):
            j = s.running[r]
            r += 1
            if s.walk_state[j] == UNDECIDED and spend_quota(s, j, share_type(s, j)):
                s.walk_state[j] = KEPT
                left -= s.request[j] * s.share[j]
        else:
            j = s.waiting[w]
            w += 1
            s.walk_state[j] = UNDECIDED
            t = richest_type(s, j)
            if t >= 0 and spend_quota(s, j, t):
                s.walk_state[j] = CHOSEN
                left -= s.request[j] * s.share[j]
    for i in range(s.num_running):
        if s.walk_state[s.running[i]] == UNDECIDED:
            release(s, s.running[i], log)
    settled = True
    for i in range(w):
        if s.walk_state[s.waiting[i]] == CHOSEN:
            settled &= place(s, s.waiting[i], s.placement_rule)
    return settled


# --- preemption under consolidated placement ---


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
    return s.order_key != Key.SERVICE and s.order_key != Key.LEVEL and s.order_key != Key.GITTINS


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


# --- the whole run ---


@jit
def list_pass(s, log):
    """One scheduling pass by the record's ordering rule."""
    settled = True
    if not s.preemptive:
        fill_pass(s)
    elif s.num_waiting > 0:
        if s.select_by_count:
            settled = count_pass(s, log)
        else:
            evict_pass(s, log)
    changed = commit(s)
    # A pass that changes nothing would change nothing again, so the next interval may be skipped; one
    # that preempts may leave devices for jobs that it had already passed over.
    s.dirty = not settled or (s.preemptive and changed)


@jit
def run_list(s, jobs, results, log, until, max_passes):
    """Schedule with the record's ordering rule to ``until`` or for ``max_passes``; as advance() returns."""
    for _ in range(max_passes):
        code = advance(s, jobs, results, log, until)
        if code != PASS_DUE:
            return code
        list_pass(s, log)
    return PASS_DUE


@jit
def run_windows(states, jobs, results, log, starts):
    """run_list() on windows of ``results.shape[1]`` jobs, each on the empty cluster; the first that stalls, or -1."""
    s = states[0]
    for row in range(starts.shape[0]):
        lo = starts[row]
        start_window(s, lo, min(lo + results.shape[1], jobs.shape[0]), jobs[lo].arrival)
        if run_list(s, jobs, results[row], log, math.inf, NEVER) != FINISHED:
            return row
    return -1
