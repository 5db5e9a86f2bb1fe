"""Which device a cold start of an inference task gets, and who gives it up: docs/design/003-inference.md, section 3."""

from __future__ import annotations

import math

from envs.devices import JUST_ENDED, WHOLE, drop_ghost, release, release_on
from envs.jit import jit
from envs.layout import ATS, EMPTIEST, HOLDER_INFERENCE, HOLDER_SHARED, NO_POD, POD_SLEEP
from envs.online import fitted_goodput
from envs.pods import reserve
from envs.rates import known_rate, type_held
from envs.rounding import find_by_rounding, has_less

BLOCKED = 1 << 60  # training devices of a node that training cannot be driven from


@jit
def is_empty(s, g):
    """Whether nothing at all is on device ``g``."""
    return s.pod_state[g] == NO_POD and (s.gpu_free_milli[g] == WHOLE or s.node_reserved[s.gpu_node[g]] == 1)


@jit
def find_idle(s, n, asleep):
    """The lowest empty device of node ``n``, or that of the sleeping pod born first; -1: none."""
    best = -1
    for g in range(s.node_first[n], s.node_first[n] + s.node_gpus[n]):
        if asleep and s.pod_state[g] == POD_SLEEP and (best < 0 or s.pod_born[g] < s.pod_born[best]):
            best = g
        elif not asleep and is_empty(s, g):
            return g
    return best


# --- DeepBoot's ATS-I: any device ---


@jit
def count_training(s):
    """Write how many devices training holds whole on each node to ``scratch_left``."""
    for n in range(s.num_nodes):
        s.scratch_left[n] = 0
        for g in range(s.node_first[n], s.node_first[n] + s.node_gpus[n]):
            s.scratch_left[n] += s.gpu_holder[g] >= 0


@jit
def choose_any(s, w, log):
    """An idle device, on the node with least training, or one taken from training; -1: none."""
    for asleep in range(2):
        best = -1
        for n in range(s.num_nodes):
            if best < 0 or s.scratch_left[n] < s.scratch_left[s.gpu_node[best]]:
                g = find_idle(s, n, asleep == 1)
                best = g if g >= 0 else best
        if best >= 0:
            return best
    j, n = find_cheapest(s, w)
    return -1 if j < 0 else take_from(s, j, n, log)


@jit
def find_cheapest(s, w):
    """(slot, node) of the training device whose loss costs least; (-1, -1): none may be taken.

    Jobs that an agent has marked come first.
    """
    if s.deepboot and not s.tuned:
        return find_by_rounding(s, fair_share(s))
    best, best_node, least = -1, -1, math.inf
    fair = fair_share(s)
    for i in range(s.num_running):
        j = s.running[i]
        if s.pinned[j] or s.share[j] < WHOLE:
            continue
        n, cost = cheapest_node(s, w, j, fair)
        if n >= 0 and (best < 0 or yields_before(s, j, cost, best, least)):
            best, best_node, least = j, n, cost
    return best, best_node


@jit
def cheapest_node(s, w, j, fair):
    """(node, cost) where slot ``j``, with whole devices, loses least by one less; node -1: it holds none."""
    best, least = -1, math.inf
    g = s.first_gpu[j]
    while g >= 0:
        n, count = s.gpu_node[g], 0
        while g >= 0 and s.gpu_node[g] == n:
            count += 1
            g = s.gpu_next[g]
        cost = loss(s, w, j, count == 1, fair) * s.pace[j]
        if best < 0 or cost < least or (cost == least and n < best):
            best, least = n, cost
    return best, least


@jit
def yields_before(s, j, cost, other, other_cost):
    """Whether slot ``j`` yields before another: it is marked, or its loss costs less, or it has less service."""
    if s.yields[j] != s.yields[other]:
        return s.yields[j] == 1
    return cost < other_cost or (cost == other_cost and has_less(s, j, other))


@jit
def fair_share(s):
    """GPUs of a job if all had the same."""
    jobs, total = s.num_running + s.num_waiting, 0
    for t in range(s.num_types):
        total += s.type_up[t]
    if s.deepboot:  # 64, and every task that waits or owns a pod, or a ghost, counts as a job: deepboot.md Q18
        total, jobs = 64, jobs + s.num_queued
        for g in range(s.num_gpus):
            jobs += s.pod_state[g] != NO_POD
        for k in range(s.num_ghosts):
            jobs += s.ghost_task[k] < 0
    return max(1, -(-total // max(1, jobs)))


@jit
def loss(s, w, j, leaves_node, fair):
    """What slot ``j`` loses of its speed-up over the fair share by one device less; ``leaves_node``: its last there."""
    if s.klass[j] < 0:
        return 1.0
    t, n, nodes = type_held(s, j), s.gpus[j], s.num_nodes_held[j]
    share = min(fair, s.max_gpus[j])
    several = 1 if share > s.max_node_gpus[t] and not s.deepboot else 0
    base = goodput_on(s, w, j, t, several, share)
    if not base > 0:
        return 1.0 / share
    after = goodput_on(s, w, j, t, 1 if nodes - leaves_node > 1 else 0, n - 1)
    return (goodput_on(s, w, j, t, 1 if nodes > 1 else 0, n) - after) / base


@jit
def goodput_on(s, w, j, t, several, gpus):
    """Known goodput of slot ``j`` at its depth on GPUs of type ``t``, on one node or ``several``; 0: impossible."""
    if gpus == 0:
        return 0.0
    if s.online:
        return fitted_goodput(s, w, j, t, several, gpus)
    return known_rate(w, s.klass[j], s.depth[j], s.epoch[j], t, several, gpus)


@jit
def take_from(s, j, n, log):
    """Take a device of slot ``j`` on node ``n``, or all it holds if it is rigid; the device for inference."""
    g = s.first_gpu[j]
    while s.gpu_node[g] != n:
        g = s.gpu_next[g]  # the first of the node is the highest
    if s.klass[j] >= 0:
        s.num_taken += 1
        release_on(s, j, n, 1, log)
        return g
    s.num_taken += s.gpus[j]
    release(s, j, log)
    return find_idle(s, n, False)


# --- Lyra's loaned servers, and the static part ---


@jit
def cost_of_node(s, n):
    """Devices that training would lose if a task landed on node ``n``; BLOCKED: it cannot be driven from there."""
    if s.node_reserved[n]:
        return 0
    cost = 0
    for g in range(s.node_first[n], s.node_first[n] + s.node_gpus[n]):
        j = s.gpu_holder[g]
        if j == HOLDER_SHARED or (j >= 0 and s.pinned[j] == 1):
            return BLOCKED
        cost += j >= 0
    return cost


@jit
def choose_server(s, log):
    """A device of the inference part, from whose node training is driven; -1: none."""
    n = find_server(s, False)
    if n < 0:
        n = find_server(s, True)
    if n >= 0:
        g = find_idle(s, n, False)
        g = g if g >= 0 else find_idle(s, n, True)
        land(s, n, log)
        return g
    least = BLOCKED
    for m in range(s.inference_first, s.num_nodes):
        cost = cost_of_node(s, m)
        if 0 < cost < least:
            n, least = m, cost
    if n < 0:
        return -1
    land(s, n, log)
    return find_idle(s, n, False)


@jit
def find_server(s, asleep):
    """The inference node with an empty device and least training, or the first with a sleeping pod; -1: none."""
    best, least = -1, BLOCKED
    for n in range(s.inference_first, s.num_nodes):
        cost = cost_of_node(s, n)
        if cost < least and find_idle(s, n, asleep) >= 0:
            if asleep or s.deepboot:
                return n
            best, least = n, cost
    return best


@jit
def land(s, n, log):
    """Drive training from node ``n``, on which a task lands, and reserve it."""
    if s.node_reserved[n]:
        return
    s.num_taken += drive_from(s, n, log)
    if not s.deepboot:
        reserve(s, n)


@jit
def drive_from(s, n, log):
    """Let every job give up what it holds on node ``n``; a rigid one gives up all. How many devices that were."""
    taken = 0
    for g in range(s.node_first[n], s.node_first[n] + s.node_gpus[n]):
        j = s.gpu_holder[g]
        if j >= 0 and s.pinned[j] == 0:
            before = s.gpus[j]
            if s.klass[j] >= 0:
                release_on(s, j, n, s.node_gpus[n], log)
            else:
                release(s, j, log)
            taken += before - s.gpus[j]
    return taken


@jit
def strip(s, log):
    """DeepBoot's simulator under ``lyra``: training gives up what a pass gave it where a pod lives (deepboot.md Q9).

    Its Optimus, the only one that places on the emptiest nodes, gives up what lies beside awake pods before it takes
    the devices of sleeping ones, so that these live on.
    """
    for n in range(s.num_nodes):
        hosts = False
        for g in range(s.node_first[n], s.node_first[n] + s.node_gpus[n]):
            hosts |= s.pod_state[g] != NO_POD
        if hosts:
            drive_from(s, n, log)
        for g in range(s.node_first[n], s.node_first[n] + s.node_gpus[n]):
            if s.pod_state[g] == NO_POD and s.pod_warm[g] == JUST_ENDED:
                s.pod_warm[g] = 0
                if s.node_pods[n] > 0 and s.placement_rule == EMPTIEST:
                    revive(s, g)


@jit
def revive(s, g):
    """Undo the end of the sleeping pod on device ``g``, which is free, unless it lives elsewhere already."""
    for k in range(s.num_ghosts):
        if s.ghost_born[k] == s.pod_born[g] and s.ghost_task[k] < 0:
            drop_ghost(s, k)
            s.pod_state[g], s.pod_since[g], s.gpu_holder[g] = POD_SLEEP, s.now, HOLDER_INFERENCE
            s.node_asleep[s.gpu_node[g]] += 1
            return


@jit
def choose_device(s, w, log):
    """A device for a cold start, held by nobody or by a sleeping pod; -1: none."""
    return choose_any(s, w, log) if s.reclaim == ATS else choose_server(s, log)
