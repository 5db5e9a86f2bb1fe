"""Actions of the environment: edits of the allocation, and the mask of valid ones.

Action 0 commits. Action ``1 + j * K + e`` applies edit ``e`` of EDITS to slot ``j``; those after the last slot are
the edits of inference services (envs/service_edits.py). Edits change who holds which device at once, but only the net
change at the commit costs anything. A rigid job has two rungs, nothing and its request; an elastic one those of LADDER
up to its most GPUs.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from envs.devices import WHOLE, release, take_targets, touch
from envs.jit import jit, jit_inline
from envs.layout import ATS, CONSOLIDATED, MAX_REPLICAS, NOT_NEGATIVE
from envs.placement import allowed, find_placement, find_share, gather_on, pack_on, place, place_count, round_robin_on
from envs.service_edits import NUM_SERVICE_EDITS, apply_service_edit, mask_services


class Edit(IntEnum):
    """What one action does to one job."""

    MORE = 0
    LESS = 1
    FREEZE = 2
    UNFREEZE = 3
    PLACE_PACKED = 4
    PLACE_SAFE = 5
    PLACE_ALIKE = 6
    PLACE_SPREAD = 7
    YIELDS = 8


EDITS: tuple[tuple[str, str], ...] = (
    ("more", "more GPUs: the next rung of the ladder; a waiting rigid job starts"),
    ("less", "fewer GPUs: the rung below; a rigid job stops"),
    ("freeze", "freeze one module more (layer-elastic jobs)"),
    ("unfreeze", "freeze one module less (layer-elastic jobs)"),
    ("place_packed", "move to as few nodes as possible"),
    ("place_safe", "move to the nodes with the least straggler risk (straggler scenario)"),
    ("place_alike", "move to nodes of equal speed (straggler scenario)"),
    ("place_spread", "move to as many nodes as possible"),
    ("yields", "mark it as the first whose GPUs inference takes, or take the mark away (reclaim ats)"),
)
NUM_EDITS = len(EDITS)
COMMIT = 0
SERVICE = -2  # instead of the slot that an edit has changed
LADDER = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # GPUs of an elastic job
# The rungs next to each number of GPUs, constants of the compiled code; above the last, one that nobody gets.
RUNG_ABOVE = np.array([min((r for r in LADDER if r > n), default=MAX_REPLICAS + 1) for n in range(MAX_REPLICAS + 1)])
RUNG_BELOW = np.array([max((r for r in LADDER if r < n), default=0) for n in range(MAX_REPLICAS + 1)])


def num_actions(num_slots: int, num_services: int) -> int:
    """A, the size of the action space."""
    return 1 + num_slots * NUM_EDITS + num_services * NUM_SERVICE_EDITS


@jit
def own_type(s, j):
    """GPU type that slot ``j`` holds devices of."""
    return s.node_type[s.gpu_node[s.first_gpu[j]]]


@jit
def free_without(s, j):
    """Write the free devices of each node, were slot ``j`` to give its own back, to ``scratch_free``."""
    for n in range(s.num_nodes):
        s.scratch_free[n] = s.node_free[n]
    g = s.first_gpu[j]
    while g >= 0:
        s.scratch_free[s.gpu_node[g]] += 1
        g = s.gpu_next[g]


@jit_inline
def can_grow(s, j):
    """Whether elastic slot ``j`` may climb a rung: a type has enough free devices, its own counted."""
    rung = RUNG_ABOVE[s.gpus[j]]
    if rung > s.max_gpus[j]:
        return False
    own = own_type(s, j) if s.gpus[j] > 0 else -1
    for t in range(s.num_types):  # noqa: SIM110 - compiled loop
        if allowed(s, j, t) and s.type_free[t] + (s.gpus[j] if t == own else 0) >= rung:
            return True
    return False


@jit_inline
def valid_elastic(s, j, most_free, free_nodes):
    """Valid edits of elastic slot ``j`` as bits."""
    bits = can_grow(s, j) << Edit.MORE
    if s.gpus[j] > 0:
        keeps = s.pinned[j] == 0 or s.held_gpus[j] == 0 or RUNG_BELOW[s.gpus[j]] > 0
        bits |= keeps << Edit.LESS
        if s.gpus[j] > 1:
            bits |= placements(s, j, most_free, free_nodes)
    return bits


@jit
def set_rung(s, j, rung, log):
    """Give elastic slot ``j`` another number of GPUs."""
    if s.gpus[j] > 0:
        release(s, j, log)
    if rung > 0:
        place_count(s, j, rung, s.placement_rule)


@jit
def find_packed(s, j):
    """Fewest-nodes placement of running slot ``j`` on its own type, its devices counted as free."""
    free_without(s, j)
    if s.klass[j] >= 0:
        return gather_on(s, s.gpus[j], own_type(s, j), s.scratch_free, True)
    return pack_on(s, s.gpus[j], own_type(s, j), s.scratch_free)


@jit
def most_without(s, j, most_free):
    """Most free devices of a node, were running slot ``j`` to give its own back; ``most_free``: now."""
    most, own, node = most_free, 0, -1
    g = s.first_gpu[j]
    while g >= 0:  # devices of a node follow one another
        if s.gpu_node[g] != node:
            node, own = s.gpu_node[g], 0
        own += 1
        most = max(most, s.node_free[node] + own)
        g = s.gpu_next[g]
    return most


@jit_inline
def can_pack(s, j, most_free, one_type):
    """Whether a running job could span fewer nodes; ``one_type``: the cluster has a single type."""
    fewer = s.num_nodes_held[j] - 1
    if fewer * s.max_node_gpus[own_type(s, j)] < s.gpus[j]:
        return False
    most = most_without(s, j, most_free)
    if most >= s.gpus[j] and one_type:
        return True
    return fewer * most >= s.gpus[j] and 0 < find_packed(s, j) <= fewer


@jit
def holds_on(s, j, n):
    """Whether slot ``j`` holds a device of node ``n``."""
    g = s.first_gpu[j]
    while g >= 0:
        if s.gpu_node[g] == n:
            return True
        g = s.gpu_next[g]
    return False


@jit_inline
def can_spread(s, j, free_nodes):
    """Whether a running job could span more nodes: some other node of its type has a free device.

    ``free_nodes`` of the cluster have one, if it has a single type; else -1.
    """
    if s.num_nodes_held[j] >= s.gpus[j]:
        return False
    if free_nodes >= 0 and (free_nodes == 0 or free_nodes > s.num_nodes_held[j]):
        return free_nodes > 0
    t = own_type(s, j)
    for n in range(s.num_nodes):  # noqa: SIM110 - compiled loop
        if s.node_free[n] > 0 and s.node_type[n] == t and not holds_on(s, j, n):
            return True
    return False


@jit
def fits(s, j):
    """Whether waiting slot ``j`` can be placed now."""
    if s.share[j] < WHOLE:
        return find_share(s, j) >= 0
    return find_placement(s, j, s.placement_rule) > 0


@jit_inline
def placements(s, j, most_free, free_nodes):
    """Valid moves of running slot ``j`` as bits: bit e for edit e."""
    packed = can_pack(s, j, most_free, free_nodes >= 0)
    return packed << Edit.PLACE_PACKED | can_spread(s, j, free_nodes) << Edit.PLACE_SPREAD


@jit_inline
def valid_edits(s, j, most_free, largest, free_nodes):
    """Valid edits of slot ``j`` as bits: bit e for edit e.

    ``largest``: what the largest node has, ``most_free``: what the emptiest one has free, which decides for a job
    that needs one node of any type; ``largest`` 0: no such job.
    """
    if s.klass[j] >= 0:
        return valid_elastic(s, j, most_free, free_nodes)
    if s.gpus[j] > 0:
        bits = (s.pinned[j] == 0 or s.held_gpus[j] == 0) << Edit.LESS
        if s.gpus[j] > 1:
            bits |= placements(s, j, most_free, free_nodes)
        return bits
    if s.request[j] <= largest and s.share[j] == WHOLE and s.gpu_type[j] < 0:
        return (s.request[j] <= most_free) << Edit.MORE
    return fits(s, j) << Edit.MORE


@jit_inline
def valid_depths(s, j):
    """Valid changes of the depth that slot ``j`` is to have, as bits: of jobs that hold GPUs and have layers."""
    if s.gpus[j] == 0 or s.modules[j] == 0:
        return 0
    deeper, back = s.next_depth[j] < s.max_depth[j], s.next_depth[j] > 0
    return deeper << Edit.FREEZE | back << Edit.UNFREEZE


@jit
def mask_slots(s, mask, slots, count, most_free, largest, free_nodes):
    """Write the validity of the edits of the first ``count`` of ``slots``."""
    for i in range(count):
        j = slots[i] & NOT_NEGATIVE
        bits = valid_edits(s, j, most_free, largest, free_nodes)
        if s.freezes:
            bits |= valid_depths(s, j)
        first = (1 + j * NUM_EDITS) & NOT_NEGATIVE
        while bits != 0:
            mask[first] = bits & 1
            first += 1
            bits >>= 1


@jit
def mask_yields(s, mask, slots, count):
    """Let the first ``count`` of ``slots`` be marked, or their marks be taken away."""
    for i in range(count):
        j = slots[i] & NOT_NEGATIVE
        mask[1 + j * NUM_EDITS + Edit.YIELDS] = s.pinned[j] == 0 and s.share[j] == WHOLE


@jit
def fill_mask(s, mask):
    """Write the validity of every action to ``mask`` (A,) bool; commit is always valid."""
    for i in range(mask.shape[0]):
        mask[i] = False
    mask[COMMIT] = True
    most_free = largest = free_nodes = 0
    for n in range(s.num_nodes):
        most_free = max(most_free, s.node_free[n])
        free_nodes += s.node_free[n] > 0
        largest = max(largest, s.max_node_gpus[s.node_type[n]])
    if s.placement_rule != CONSOLIDATED:
        largest = 0
    if s.num_types > 1:
        free_nodes = -1
    mask_slots(s, mask, s.waiting, s.num_waiting, most_free, largest, free_nodes)
    mask_slots(s, mask, s.running, s.num_running, most_free, largest, free_nodes)
    if s.num_services > 0 and not s.deepboot:  # there its rules decide who yields
        if s.reclaim == ATS:
            mask_yields(s, mask, s.waiting, s.num_waiting)
            mask_yields(s, mask, s.running, s.num_running)
        mask_services(s, mask, 1 + s.num_slots * NUM_EDITS)


@jit
def apply_edit(s, action, log):
    """Apply a valid edit; the slot it changed, or SERVICE."""
    j = (action - 1) // NUM_EDITS
    edit = (action - 1) % NUM_EDITS
    if j >= s.num_slots:
        apply_service_edit(s, action - 1 - s.num_slots * NUM_EDITS)
        return SERVICE
    if edit == Edit.YIELDS:
        s.yields[j] = 1 - s.yields[j]
        return j
    if edit in (Edit.FREEZE, Edit.UNFREEZE):
        s.next_depth[j] += 1 if edit == Edit.FREEZE else -1
        touch(s, j)
        return j
    if s.klass[j] >= 0 and edit == Edit.MORE:
        set_rung(s, j, RUNG_ABOVE[s.gpus[j]], log)
    elif s.klass[j] >= 0 and edit == Edit.LESS:
        set_rung(s, j, RUNG_BELOW[s.gpus[j]], log)
    elif edit == Edit.MORE:
        place(s, j, s.placement_rule)
    elif edit == Edit.LESS:
        release(s, j, log)
    else:
        t, held = own_type(s, j), s.gpus[j]
        count = find_packed(s, j) if edit == Edit.PLACE_PACKED else 0
        release(s, j, log)
        if edit == Edit.PLACE_SPREAD:
            count = round_robin_on(s, held, t)
        take_targets(s, j, count)
    if s.freezes and s.gpus[j] == 0:  # the wish for another depth goes with the GPUs
        s.next_depth[j] = s.depth[j]
    return j
