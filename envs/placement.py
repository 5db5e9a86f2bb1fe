"""Which devices a job gets: the rules of docs/design/001-core.md, section 3.

A rule writes nodes and device counts to ``s.target_node`` and ``s.target_count`` and returns how
many nodes there are, 0 if the job does not fit. It reads free counts from an array, so that the
list scheduler can ask "what if these jobs were gone". :func:`take_targets` then takes the devices.
"""

from __future__ import annotations

from envs.devices import WHOLE, take_share, take_targets
from envs.jit import jit
from envs.layout import CONSOLIDATED, COUNT, EMPTIEST, RANDOM, SPREAD
from envs.rng import Purpose, uniform


@jit
def allowed(s, j, t):
    """Whether slot ``j`` may run on GPU type ``t``."""
    return s.gpu_type[j] < 0 or s.gpu_type[j] == t


@jit
def best_fit(s, j, k, free):
    """Node with the fewest free devices that still has ``k``; -1 if none. Ties: the lowest node."""
    best, best_free = -1, 1 << 60
    for n in range(s.num_nodes):
        if k <= free[n] < best_free and allowed(s, j, s.node_type[n]):
            best, best_free = n, free[n]
            if best_free == k:
                break
    return best


@jit
def is_target(s, n, num_targets):
    """Whether node ``n`` is among the first ``num_targets`` targets."""
    for i in range(num_targets):  # noqa: SIM110 - compiled loop
        if s.target_node[i] == n:
            return True
    return False


@jit
def best_fit_on(s, k, t, free, num_targets):
    """Best fit among nodes of type ``t`` that are not targets already."""
    best, best_free = -1, 1 << 60
    for n in range(s.num_nodes):
        if s.node_type[n] == t and k <= free[n] < best_free and not is_target(s, n, num_targets):
            best, best_free = n, free[n]
    return best


@jit
def pack_on(s, k, t, free):
    """Few nodes of type ``t``: wholly idle nodes, largest first, while they are used up; the rest on one node."""
    need, count = k, 0
    while need > 0 and k > s.max_node_gpus[t]:
        best, best_gpus = -1, 0
        for n in range(s.num_nodes):
            gpus = s.node_gpus[n]
            if s.node_type[n] == t and free[n] == gpus and gpus > best_gpus and not is_target(s, n, count):
                best, best_gpus = n, gpus
        if best < 0 or best_gpus > need:
            break
        s.target_node[count], s.target_count[count] = best, best_gpus
        need -= best_gpus
        count += 1
    if need == 0:
        return count
    rest = best_fit_on(s, need, t, free, count)
    if rest < 0:
        return 0
    s.target_node[count], s.target_count[count] = rest, need
    return count + 1


@jit
def find_consolidated(s, j, k, free):
    """One node if any allowed node is large enough, else whole nodes of one type and a remainder."""
    largest = 0
    for t in range(s.num_types):
        if allowed(s, j, t):
            largest = max(largest, s.max_node_gpus[t])
    if k <= largest:
        n = best_fit(s, j, k, free)
        if n < 0:
            return 0
        s.target_node[0], s.target_count[0] = n, k
        return 1
    for t in range(s.num_types):
        if allowed(s, j, t):
            count = pack_on(s, k, t, free)
            if count > 0:
                return count
    return 0


@jit
def find_count(s, j, k, free):
    """Any free devices of the first type that has enough, lowest numbers first."""
    for t in range(s.num_types):
        if not allowed(s, j, t) or s.type_free[t] < k:
            continue
        need, count = k, 0
        for n in range(s.num_nodes):
            if s.node_type[n] == t and free[n] > 0:
                take = min(need, free[n])
                s.target_node[count], s.target_count[count] = n, take
                need -= take
                count += 1
                if need == 0:
                    return count
    return 0


@jit
def gather_on(s, k, t, free, fit):
    """All free devices of the emptiest node of type ``t``, and so on, until ``k`` are found, which must be there.

    With ``fit``, as soon as one node has all that is still needed, the fullest such serves instead.
    """
    for n in range(s.num_nodes):
        s.scratch_left[n] = free[n] if s.node_type[n] == t else 0
    need, count = k, 0
    while need > 0:
        emptiest, fullest, least = 0, -1, 1 << 60
        for n in range(s.num_nodes):
            left = s.scratch_left[n]
            if left > s.scratch_left[emptiest]:
                emptiest = n
            if need <= left < least:
                fullest, least = n, left
        best = fullest if fit and fullest >= 0 else emptiest
        s.target_node[count], s.target_count[count] = best, min(need, s.scratch_left[best])
        need -= s.target_count[count]
        s.scratch_left[best] = 0
        count += 1
    return count


@jit
def find_elastic(s, j, k, rule, free):
    """Any ``k`` free devices for elastic slot ``j``, of the first type that has enough, chosen by ``rule``."""
    if rule == COUNT:
        return find_count(s, j, k, free)
    if rule == RANDOM:
        return find_random(s, j, k, free)
    if rule == SPREAD:
        return find_spread(s, j, k, free)
    for t in range(s.num_types):
        if allowed(s, j, t) and s.type_free[t] >= k:
            return gather_on(s, k, t, free, rule != EMPTIEST)
    return 0


@jit
def place_count(s, j, k, rule):
    """Give elastic slot ``j``, which holds nothing, ``k`` free devices; whether there were enough."""
    count = find_elastic(s, j, k, rule, s.node_free)
    if count > 0:
        take_targets(s, j, count)
    return count > 0


@jit
def spread_on(s, k, t, free):
    """One device at a time from the node of type ``t`` with most free ones; ``k`` must be there."""
    for n in range(s.num_nodes):
        s.scratch_free[n] = free[n] if s.node_type[n] == t else 0
    count = 0
    for _ in range(k):
        best = 0
        for n in range(1, s.num_nodes):
            if s.scratch_free[n] > s.scratch_free[best]:
                best = n
        s.scratch_free[best] -= 1
        i = 0
        while i < count and s.target_node[i] != best:
            i += 1
        if i == count:
            s.target_node[i], s.target_count[i] = best, 0
            count += 1
        s.target_count[i] += 1
    return count


@jit
def round_robin_on(s, k, t):
    """One free device a node of type ``t`` in turn: as many nodes as possible; ``k`` must be there."""
    for n in range(s.num_nodes):
        s.scratch_free[n] = s.node_free[n] if s.node_type[n] == t else 0
    count, left = 0, k
    for n in range(s.num_nodes):
        if s.scratch_free[n] > 0 and left > 0:
            s.target_node[count], s.target_count[count] = n, 1
            s.scratch_free[n] -= 1
            left -= 1
            count += 1
    while left > 0:
        for i in range(count):
            if left > 0 and s.scratch_free[s.target_node[i]] > 0:
                s.target_count[i] += 1
                s.scratch_free[s.target_node[i]] -= 1
                left -= 1
    return count


@jit
def find_spread(s, j, k, free):
    """Spread over the allowed type with most free devices."""
    best = -1
    for t in range(s.num_types):
        if allowed(s, j, t) and (best < 0 or s.type_free[t] > s.type_free[best]):
            best = t
    if best < 0 or s.type_free[best] < k:
        return 0
    return spread_on(s, k, best, free)


@jit
def find_random(s, j, k, free):
    """Nodes of the first type with enough devices, in an order drawn from (seed, job, start)."""
    for t in range(s.num_types):
        if not allowed(s, j, t) or s.type_free[t] < k:
            continue
        for n in range(s.num_nodes):
            usable = s.node_type[n] == t and free[n] > 0
            index = s.job_id[j] * 65536 + n
            s.scratch_rank[n] = uniform(s.seed, Purpose.PLACEMENT, index, s.num_starts[j]) if usable else 2.0
        need, count = k, 0
        while need > 0:
            best = 0
            for n in range(1, s.num_nodes):
                if s.scratch_rank[n] < s.scratch_rank[best]:
                    best = n
            take = min(need, free[best])
            s.scratch_rank[best] = 2.0
            s.target_node[count], s.target_count[count] = best, take
            need -= take
            count += 1
        return count
    return 0


@jit
def find_placement(s, j, rule):
    """Place slot ``j`` on free devices by ``rule``; number of target nodes, 0: does not fit."""
    k = s.request[j]
    if rule == CONSOLIDATED:
        return find_consolidated(s, j, k, s.node_free)
    if rule == COUNT:
        return find_count(s, j, k, s.node_free)
    if rule == RANDOM:
        return find_random(s, j, k, s.node_free)
    if rule == EMPTIEST:
        return find_elastic(s, j, k, rule, s.node_free)
    return find_spread(s, j, k, s.node_free)


@jit
def find_share(s, j):
    """Device with the least free share that fits slot ``j``'s fraction; -1: none. Ties: the lowest."""
    best, best_free = -1, WHOLE + 1
    for g in range(s.num_gpus):
        if s.share[j] <= s.gpu_free_milli[g] < best_free and allowed(s, j, s.node_type[s.gpu_node[g]]):
            best, best_free = g, s.gpu_free_milli[g]
    return best


@jit
def fits_empty(s, j, rule):
    """Whether the job in slot ``j`` could run on the empty cluster."""
    k = s.request[j]
    for t in range(s.num_types):
        if allowed(s, j, t) and (k <= s.max_node_gpus[t] or (rule != CONSOLIDATED and k <= s.type_gpus[t])):
            return True
    return rule == CONSOLIDATED and s.share[j] == WHOLE and find_consolidated(s, j, k, s.node_gpus) > 0


@jit
def place(s, j, rule):
    """Find and take a placement for slot ``j`` on free devices; whether it succeeded."""
    if s.share[j] < WHOLE:
        g = find_share(s, j)
        if g >= 0:
            take_share(s, j, g)
        return g >= 0
    count = find_placement(s, j, rule)
    if count > 0:
        take_targets(s, j, count)
    return count > 0
