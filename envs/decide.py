"""Checking and applying the decision of an external scheduler.

A decision is checked whole before anything moves; what breaks a rule is named by slot. Placing may
still fail for fragmentation: the caller keeps a copy of the record to restore.
"""

from __future__ import annotations

from envs.devices import WHOLE, release, take_on_node, take_share, touch
from envs.jit import jit
from envs.layout import EMPTIEST, FREE, MAX_REPLICAS, STATIC
from envs.placement import allowed, place, place_count
from envs.serving import start_in_pass

# Why a decision is refused; DECISION_RULES says it in words.
ACCEPTED, NO_JOB, NOT_REQUEST, PINNED, ROW_SUM, MIXED_TYPES, WRONG_TYPE, NODE_FULL, TOO_MANY, FRAGMENTED = range(10)
OVER_LIMIT = 10
DECISION_RULES = (
    "accepted",
    "the slot holds no job",
    "a rigid job gets all the GPUs it requests or none",
    "the job must not be preempted",
    "the placement's row does not add up to the job's GPUs",
    "the placement mixes GPU types",
    "the placement uses a GPU type that the job may not run on",
    "the placement puts more on a node than it has, or something on one that is down",
    "more GPUs are given out than the cluster has (on nodes that are up)",
    "no free devices satisfy the placement rule (the cluster is fragmented)",
    "an elastic job gets at most the GPUs that its batch size and its max_gpus allow",
)


@jit
def check_counts(s, gpus):
    """Check GPU counts (J,) alone; (rule, slot)."""
    total = up = 0
    for t in range(s.num_types):
        up += s.type_up[t]
    for j in range(s.num_slots):
        if gpus[j] == 0:
            if s.phase[j] != FREE and s.pinned[j] and s.gpus[j] > 0:
                return PINNED, j
            continue
        if s.phase[j] == FREE:
            return NO_JOB, j
        if s.klass[j] < 0 and gpus[j] != s.request[j]:
            return NOT_REQUEST, j
        most = MAX_REPLICAS if s.deepboot and s.klass[j] >= 0 else s.max_gpus[j]  # its AFS reads no limit
        if gpus[j] < 0 or gpus[j] > most:
            return OVER_LIMIT, j
        total += gpus[j] * s.share[j]
        if total > WHOLE * up:
            return TOO_MANY, j
    return ACCEPTED, -1


@jit
def check_row(s, gpus, placement, j):
    """Check one job's row of a placement (J, N); the rule broken, or ACCEPTED."""
    total, node_type = 0, -1
    for n in range(s.num_nodes):
        if placement[j, n] == 0:
            continue
        total += placement[j, n]
        if node_type >= 0 and s.node_type[n] != node_type:
            return MIXED_TYPES
        node_type = s.node_type[n]
        if not allowed(s, j, node_type):
            return WRONG_TYPE
        if placement[j, n] < 0 or placement[j, n] > s.node_gpus[n] or s.node_down[n]:
            return NODE_FULL
    return ACCEPTED if total == gpus[j] else ROW_SUM


@jit
def check_placement(s, gpus, placement):
    """Check placements (J, N) of whole devices; (rule, slot). Fractions are placed by the simulator."""
    for j in range(s.num_slots):
        if gpus[j] > 0 and s.share[j] == WHOLE:
            rule = check_row(s, gpus, placement, j)
            if rule != ACCEPTED:
                return rule, j
    for n in range(s.num_nodes):
        used, last = 0, -1
        for j in range(s.num_slots):
            if gpus[j] > 0 and s.share[j] == WHOLE and placement[j, n] > 0:
                used += placement[j, n]
                last = j
        if used > s.node_gpus[n]:
            return NODE_FULL, last
    return ACCEPTED, -1


@jit
def same_nodes(s, placement, j):
    """Whether slot ``j`` already holds exactly its row of the placement."""
    for n in range(s.num_nodes):
        held = 0
        g = s.first_gpu[j]
        while g >= 0:
            held += s.gpu_node[g] == n
            g = s.gpu_next[g]
        if held != placement[j, n]:
            return False
    return True


@jit
def apply_counts(s, w, gpus, by_size, waits, log):
    """Release jobs whose count changes; then place rigid ones in the order ``by_size``, elastic ones from its end.

    ``waits``: what has no room waits; else the result is FRAGMENTED. Returns (rule, slot).
    """
    for j in range(s.num_slots):
        if s.phase[j] != FREE and gpus[j] != s.gpus[j] and s.gpus[j] > 0:
            release(s, j, log)
    if s.deepboot and s.placement_rule == EMPTIEST and s.reclaim != STATIC:
        start_in_pass(s, w)
    for i in range(by_size.shape[0]):
        j = by_size[i]
        new = gpus[j] > 0 and s.gpus[j] == 0 and s.klass[j] < 0
        if new and not place(s, j, s.placement_rule) and not waits:
            return FRAGMENTED, j
    for i in range(by_size.shape[0] - 1, -1, -1):
        j = by_size[i]
        new = gpus[j] > 0 and s.gpus[j] == 0 and s.klass[j] >= 0
        if new and not place_count(s, j, gpus[j], s.placement_rule) and not waits:
            return FRAGMENTED, j
    return ACCEPTED, -1


@jit
def apply_placement(s, gpus, placement, devices, order, log):
    """Move every job to its row of the placement, fractions to their device (-1: any); (rule, slot).

    ``order``: slots as they take devices, whose numbers matter where they straggle.
    """
    for j in range(s.num_slots):
        if s.phase[j] == FREE or s.gpus[j] == 0:
            continue
        if s.share[j] == WHOLE:
            moves = not same_nodes(s, placement, j)
        else:
            moves = devices[j] >= 0 and devices[j] != s.first_gpu[j]
        if gpus[j] == 0 or moves:
            release(s, j, log)
    # Fractions with a device of their own come first: whole jobs take the lowest devices that are left.
    for j in order:
        given = gpus[j] > 0 and s.gpus[j] == 0 and devices[j] >= 0 and s.share[j] < WHOLE
        if given and not take_given_share(s, j, devices[j]):
            return FRAGMENTED, j
    for j in order:
        if gpus[j] > 0 and s.gpus[j] == 0 and s.share[j] == WHOLE and not take_row(s, j, placement):
            return FRAGMENTED, j
    for j in order:
        if gpus[j] > 0 and s.gpus[j] == 0 and not place(s, j, s.placement_rule):
            return FRAGMENTED, j
    return ACCEPTED, -1


@jit
def take_row(s, j, placement):
    """Give slot ``j`` its row of the placement; whether the devices were free."""
    touch(s, j)
    for n in range(s.num_nodes):
        if placement[j, n] > s.node_free[n]:
            return False
        if placement[j, n] > 0:
            take_on_node(s, j, n, placement[j, n])
    return True


@jit
def take_given_share(s, j, g):
    """Give slot ``j`` its fraction of device ``g``; whether there was room."""
    if s.gpu_free_milli[g] < s.share[j] or not allowed(s, j, s.node_type[s.gpu_node[g]]):
        return False
    take_share(s, j, g)
    return True


@jit
def note_wishes(s, wished, present, following):
    """Note what slots (J,) are to have from the end of the pass on, depth or mode; -1: a job keeps its ``present``."""
    for j in range(s.num_slots):
        if s.phase[j] == FREE:
            continue
        following[j] = wished[j] if wished[j] >= 0 and s.gpus[j] > 0 else present[j]
        if following[j] != present[j]:
            touch(s, j)
