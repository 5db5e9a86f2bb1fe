"""Writing what an agent sees of layers: the layers block of envs/features.py (scenario layer-elastic).

A job that waits makes no progress, so what is seen of it changes with the noise of its front alone: the rest is kept.
"""

from __future__ import annotations

import numpy as np

from envs.features import LAYER_COLUMNS, LAYER_GPUS, LAYER_SLOPE, LAYER_TILE
from envs.freezing import MOST_PENALTY, active_by_now, front_of, front_shift, gained, turn_of
from envs.jit import jit, jit_inline
from envs.layout import NOT_NEGATIVE, WAITING
from envs.tables import RELATIVES

SPEEDS = len(LAYER_GPUS)
FIRST_SPEED = LAYER_COLUMNS - 2 * SPEEDS
ZERO, ONE = np.float32(0), np.float32(1)  # a Python float would make float64 of the whole row


@jit_inline
def write_speeds(s, w, j, depth, left, row, at):
    """Write what is left of the goodput of slot ``j`` at a depth, relative to that at depth 0, by number of GPUs."""
    if depth == 0:
        for i in range(SPEEDS):
            row[at + i] = ONE if LAYER_GPUS[i] <= s.max_gpus[j] else ZERO
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
def seen_lack(s, w, j, i, more):
    """How much module ``i`` of slot ``j`` seems to lack, as in seen_penalty(); ``more``: gained()."""
    return max(0.0, 1.0 - active_by_now(s, j, i, more) / w.floats[(s.usual_at[j] + i) & NOT_NEGATIVE])


@jit_inline
def write_depth(s, w, j, depth, more, share, row, at):
    """Write the speeds of slot ``j`` at a depth from ``row[at]`` on, not yet squashed; the penalty it seems to cost.

    ``share``: 1 / modules.
    """
    total = 0.0
    for i in range(depth):
        total += seen_lack(s, w, j, i, more)
    penalty = min(MOST_PENALTY, total * share)
    write_speeds(s, w, j, depth, 1.0 - penalty, row, at)
    return penalty


@jit_inline
def write_rest(s, w, j, more, share, row, at):
    """Write what does not concern the front of slot ``j`` to its row, which starts at ``row[at]``."""
    row[at] = s.next_depth[j] * share
    row[at + 1] = s.depth[j] * share
    row[at + 3] = s.max_depth[j] * share
    row[at + 4] = write_depth(s, w, j, s.next_depth[j], more, share, row, at + FIRST_SPEED)


@jit
def keep_layers(s, w, j):
    """Keep what will be seen of slot ``j`` while it waits: its row without the front, and the speeds at every front."""
    more, share, total = gained(s, j), 1.0 / s.modules[j], 0.0
    s.seen_front[j] = front_of(s, j, more)
    write_rest(s, w, j, more, share, s.kept_layers[j], 0)
    s.kept_layers[j, 2] = share
    for depth in range(s.max_depth[j] + 1):
        write_speeds(s, w, j, depth, 1.0 - min(MOST_PENALTY, total * share), s.kept_fronts[j], SPEEDS * depth)
        total += seen_lack(s, w, j, min(depth, s.modules[j] - 1), more)
    s.layers_kept[j] = 1


@jit_inline
def write_waiting(s, w, j, turn, row, at):
    """Write the row of slot ``j``, which waits and has layers, and gets no GPUs in this pass so far."""
    if not s.layers_kept[j]:
        keep_layers(s, w, j)
    front = min(max(s.seen_front[j] + front_shift(s, j, turn), 0), s.max_depth[j]) & NOT_NEGATIVE
    kept, speeds = s.kept_layers[j], s.kept_fronts[j]
    for i in range(FIRST_SPEED + SPEEDS):
        row[at + i] = kept[i]
    row[at + 2] = front * kept[2]
    for i in range(SPEEDS):
        row[at + FIRST_SPEED + SPEEDS + i] = speeds[front * SPEEDS + i]


@jit_inline
def write_layer_row(s, w, j, turn, row, at):
    """Write what is known of slot ``j``'s layers, which starts at ``row[at]``; nothing if it has none."""
    if s.modules[j] == 0:
        return
    if s.phase[j] == WAITING and s.gpus[j] == 0:
        write_waiting(s, w, j, turn, row, at)
        return
    more = gained(s, j)
    share = 1.0 / s.modules[j]
    front = min(max(front_of(s, j, more) + front_shift(s, j, turn), 0), s.max_depth[j])
    write_rest(s, w, j, more, share, row, at)
    row[at + 2] = front * share
    write_depth(s, w, j, front, more, share, row, at + FIRST_SPEED + SPEEDS)


@jit
def write_layers(s, w, row, first, slots, count):
    """Write the rows of the first ``count`` of ``slots``; the layers block starts at ``row[first]``. The last slot."""
    last, turn = -1, turn_of(s)
    for i in range(count):
        j = slots[i] & NOT_NEGATIVE
        last = max(last, j)
        write_layer_row(s, w, j, turn, row, (first + j * LAYER_COLUMNS) & NOT_NEGATIVE)
    return last


@jit
def squash_layers(row, first, stop):
    """Squash the rows that lie in ``row[first:stop]``."""
    for tile in range(first, stop, LAYER_TILE):
        part = row[tile : min(stop, tile + LAYER_TILE)]
        for i in range(part.shape[0]):
            part[i] = part[i] / (LAYER_SLOPE[i] * part[i] + ONE)


@jit
def fill_layers(s, w, row, first):
    """Write the layers block, which starts at ``row[first]``; where it ends."""
    block = row[first : first + s.num_slots * LAYER_COLUMNS]
    for i in range(block.shape[0]):
        block[i] = 0.0
    last = write_layers(s, w, row, first, s.waiting, s.num_waiting)
    last = max(last, write_layers(s, w, row, first, s.running, s.num_running))
    squash_layers(row, first, first + (last + 1) * LAYER_COLUMNS)
    return first + s.num_slots * LAYER_COLUMNS


@jit
def refresh_layers(s, w, row, first, j):
    """Bring the layers block, which starts at ``row[first]``, up to date after an edit of slot ``j``; where it ends."""
    at = (first + j * LAYER_COLUMNS) & NOT_NEGATIVE
    write_layer_row(s, w, j, turn_of(s), row, at)
    if s.modules[j] > 0:
        squash_layers(row, at, at + LAYER_COLUMNS)
    return first + s.num_slots * LAYER_COLUMNS
