"""One scheduling pass of the compiled list scheduler: docs/design/001-core.md, section 4.

Two walks over jobs in order of their keys: without preemption, and with preemption by GPU count. The
third, where a job may evict those behind it, is in envs/evict_pass.py.
"""

from __future__ import annotations

from envs.devices import WHOLE, release
from envs.jit import jit
from envs.layout import CONSOLIDATED, SPREAD
from envs.order import precedes, set_key
from envs.placement import allowed, place

# What a walk has decided for a slot; CHOSEN + t: it is to start on GPU type t.
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
def charge(s, j):
    """What slot ``j`` is charged for: what it holds, which inference may have made less than its request, or that."""
    return (s.request[j] if s.gpus[j] == 0 or s.deepboot else s.gpus[j]) * s.share[j]


@jit
def choose_type(s, j):
    """Type whose quota waiting slot ``j`` is charged to, chosen as its placement would be; -1: none has enough."""
    best, need = -1, s.request[j] * s.share[j]
    for t in range(s.num_types):
        if allowed(s, j, t) and s.scratch_quota[t] >= need:
            if s.placement_rule != SPREAD:
                return t
            if best < 0 or s.scratch_quota[t] > s.scratch_quota[best]:
                best = t
    return best


@jit
def place_on_type(s, j, t):
    """Find and take a placement for slot ``j`` on type ``t`` alone; whether it succeeded."""
    required = s.gpu_type[j]
    s.gpu_type[j] = t
    placed = place(s, j, s.placement_rule)
    s.gpu_type[j] = required
    return placed


@jit
def begin_walk(s):
    """Sort the running jobs, keep those that must not be preempted, and set the quotas."""
    sort_running(s)
    for t in range(s.num_types):
        s.scratch_quota[t] = WHOLE * s.type_up[t]
    if s.deepboot:  # there tasks that wait count as if they held devices: deepboot.md 7
        s.scratch_quota[0] = max(0, s.scratch_quota[0] - WHOLE * s.num_queued)
    for i in range(s.num_running):
        j = s.running[i]
        s.walk_state[j] = UNDECIDED
        if s.pinned[j]:
            s.walk_state[j] = KEPT
            s.scratch_quota[share_type(s, j)] -= charge(s, j)


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
            if s.walk_state[j] == KEPT:
                continue
            t = share_type(s, j)
            if s.scratch_quota[t] < charge(s, j):
                continue
            s.walk_state[j] = KEPT
        else:
            j = s.waiting[w]
            w += 1
            t = choose_type(s, j)
            s.walk_state[j] = CHOSEN + t if t >= 0 else UNDECIDED
            if t < 0:
                continue
        s.scratch_quota[t] -= charge(s, j)
        left -= charge(s, j)
    for i in range(s.num_running):
        if s.walk_state[s.running[i]] == UNDECIDED:
            release(s, s.running[i], log)
    settled = True
    for i in range(w):
        j = s.waiting[i]
        if s.walk_state[j] >= CHOSEN:
            settled &= place_on_type(s, j, s.walk_state[j] - CHOSEN)
    return settled
