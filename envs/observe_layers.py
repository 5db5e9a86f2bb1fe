"""Writing what an agent sees of layers: the layers block of envs/features.py (scenario layer-elastic)."""

from __future__ import annotations

import numpy as np

from envs.features import LAYER_COLUMNS, LAYER_GPUS
from envs.freezing import MOST_PENALTY, active_by_now, front_of, front_shift, gained, turn_of
from envs.jit import jit, jit_inline
from envs.layout import NOT_NEGATIVE, RUNNING
from envs.tables import RELATIVES

SPEEDS = len(LAYER_GPUS)
FIRST_SPEED = LAYER_COLUMNS - 2 * SPEEDS
ZERO, HALF = np.float32(0), np.float32(0.5)  # a Python float would make float64 of the whole row


@jit_inline
def write_speeds(s, w, j, depth, left, row, at):
    """Write the goodput of slot ``j`` at a depth by number of GPUs, of which the penalty leaves the share ``left``."""
    if depth == 0:
        for i in range(SPEEDS):
            row[at + i] = HALF if LAYER_GPUS[i] <= s.max_gpus[j] else ZERO
        return
    t = max(0, s.gpu_type[j])
    if s.gpus[j] > 0 and s.num_types > 1:
        t = s.node_type[s.gpu_node[s.first_gpu[j]]]
    table = w.classes[s.klass[j]]
    first = table.relative_at + ((depth * table.epochs + s.epoch[j]) * s.num_types + t) * RELATIVES
    for i in range(SPEEDS):
        gpus = LAYER_GPUS[i]
        place = first + i + (SPEEDS if gpus > s.max_node_gpus[t] else 0)
        row[at + i] = w.floats[place & NOT_NEGATIVE] * left if gpus <= s.max_gpus[j] else 0.0


@jit_inline
def write_depth(s, w, j, depth, more, share, row, at):
    """Write the speeds of slot ``j`` at a depth from ``row[at]`` on; the penalty that it seems to cost.

    ``more``: gained(); ``share``: 1 / modules.
    """
    total = 0.0
    for i in range(depth):
        total += max(0.0, 1.0 - active_by_now(s, j, i, more) * w.floats[(s.usual_at[j] + i) & NOT_NEGATIVE])
    penalty = min(MOST_PENALTY, total * share)
    write_speeds(s, w, j, depth, 1.0 - penalty, row, at)
    return penalty


@jit_inline
def write_new(s, j, row, at):
    """Write the row of slot ``j``, which has never run and gets no GPUs in this pass so far; the row is all zero."""
    row[at + 3] = s.max_depth[j] / s.modules[j]
    for i in range(SPEEDS):
        half = HALF if LAYER_GPUS[i] <= s.max_gpus[j] else ZERO
        row[at + FIRST_SPEED + i] = row[at + FIRST_SPEED + SPEEDS + i] = half


@jit_inline
def write_layer_row(s, w, j, turn, row, at):
    """Write what is known of slot ``j``'s layers, which starts at ``row[at]``; nothing if it has none."""
    if s.modules[j] == 0:
        return
    if s.num_starts[j] == 0 and s.gpus[j] == 0:
        write_new(s, j, row, at)
        return
    if s.gpus[j] > 0 or s.phase[j] == RUNNING:
        write_started(s, w, j, turn, row, at)
        return
    key = 32 * s.num_starts[j] + s.next_depth[j]
    kept = s.kept_row[j]
    if s.kept_for[j] != key:  # while it waits nothing changes: it is neither trained nor measured
        write_started(s, w, j, turn, kept, 0)
        s.kept_for[j] = key
    for i in range(LAYER_COLUMNS):
        row[at + i] = kept[i]


@jit_inline
def write_started(s, w, j, turn, row, at):
    """Write the row of slot ``j``, which has run or is to run, from ``row[at]`` on."""
    more, share = gained(s, j), 1.0 / s.modules[j]
    front = min(max(front_of(s, j, more) + front_shift(s, j, turn), 0), s.max_depth[j])
    row[at] = s.next_depth[j] * share
    row[at + 1] = s.depth[j] * share
    row[at + 2] = front * share
    row[at + 3] = s.max_depth[j] * share
    row[at + 4] = write_depth(s, w, j, s.next_depth[j], more, share, row, at + FIRST_SPEED)
    if front != s.next_depth[j]:
        write_depth(s, w, j, front, more, share, row, at + FIRST_SPEED + SPEEDS)
        return
    for i in range(SPEEDS):
        row[at + FIRST_SPEED + SPEEDS + i] = row[at + FIRST_SPEED + i]


@jit
def write_layers(s, w, row, first, slots, count, turn):
    """Write the rows of the first ``count`` of ``slots``; the layers block starts at ``row[first]``."""
    for i in range(count):
        j = slots[i] & NOT_NEGATIVE
        write_layer_row(s, w, j, turn, row, (first + j * LAYER_COLUMNS) & NOT_NEGATIVE)


@jit
def fill_layers(s, w, row, first):
    """Write the layers block, which starts at ``row[first]``; where it ends."""
    block = row[first : first + s.num_slots * LAYER_COLUMNS]
    for i in range(block.shape[0]):
        block[i] = 0.0
    turn = turn_of(s)
    write_layers(s, w, row, first, s.waiting, s.num_waiting, turn)
    write_layers(s, w, row, first, s.running, s.num_running, turn)
    return first + s.num_slots * LAYER_COLUMNS


@jit
def refresh_layers(s, w, row, first, j):
    """Bring the layers block, which starts at ``row[first]``, up to date after an edit of slot ``j``; where it ends."""
    at = (first + j * LAYER_COLUMNS) & NOT_NEGATIVE
    for i in range(LAYER_COLUMNS):
        row[at + i] = ZERO
    write_layer_row(s, w, j, turn_of(s), row, at)
    return first + s.num_slots * LAYER_COLUMNS
