"""How fast an elastic job runs where it is: docs/design/002-elastic.md, section 2. Compiled lookups."""

from __future__ import annotations

import math

from envs.jit import jit, jit_inline
from envs.layout import MAX_REPLICAS, UNMEASURED
from envs.pace import set_pace
from envs.tables import FITTED_SHAPES, NECKLACE_BASE, NECKLACE_NODES, NECKLACES, NODES_APART


@jit
def type_held(s, j):
    """GPU type that slot ``j`` holds devices of."""
    return s.node_type[s.gpu_node[s.first_gpu[j]]]


@jit
def list_nodes(s, j):
    """Write the nodes of slot ``j``, at most NECKLACE_NODES, and its devices on each to the target arrays.

    In node order, or under ``pollux`` in the order in which they were taken.
    """
    count = s.num_nodes_held[j]
    g, at, node = s.first_gpu[j], count, -1
    while g >= 0:  # the list begins with what was taken last
        if s.gpu_node[g] != node:
            at -= 1
            node = s.gpu_node[g]
            s.target_node[at], s.target_count[at] = node, 0
        s.target_count[at] += 1
        g = s.gpu_next[g]
    if s.pollux:
        return
    for i in range(1, count):
        node, held = s.target_node[i], s.target_count[i]
        m = i
        while m > 0 and s.target_node[m - 1] > node:
            s.target_node[m], s.target_count[m] = s.target_node[m - 1], s.target_count[m - 1]
            m -= 1
        s.target_node[m], s.target_count[m] = node, held


@jit
def necklace_code(s, j):
    """The least number, in base NECKLACE_BASE, among the rotations of slot ``j``'s GPUs per node; -1: too many."""
    list_nodes(s, j)
    count, least = s.num_nodes_held[j], -1
    for first in range(count):
        code = 0
        for i in range(count):
            held = s.target_count[(first + i) % count]
            if held >= NECKLACE_BASE:
                return -1
            code = code * NECKLACE_BASE + held
        if least < 0 or code < least:
            least = code
    return least


@jit
def find_shape(s, w, j):
    """Row of the rate tables for the placement of slot ``j``; -1: none."""
    row, t = w.classes[s.klass[j]], type_held(s, j)
    if row.necklace_at >= 0 and s.num_nodes_held[j] <= NECKLACE_NODES:
        code = necklace_code(s, j)
        if code >= 0 and w.ints[row.necklace_at + t * NECKLACES + code] >= 0:
            return w.ints[row.necklace_at + t * NECKLACES + code]
    nodes = min(s.num_nodes_held[j], NODES_APART)
    return w.ints[row.pair_at + (t * (NODES_APART + 1) + nodes) * (MAX_REPLICAS + 1) + s.gpus[j]]


@jit
def interpolate(x, table, x_at, y_at, count):
    """The curve through points (x, y), two parts of ``table``, x ascending, at ``x``; constant beyond the ends."""
    if x <= table[x_at]:
        return table[y_at]
    for i in range(1, count):
        low, high = table[x_at + i - 1], table[x_at + i]
        if x <= high:
            slope = (table[y_at + i] - table[y_at + i - 1]) / (high - low)
            return table[y_at + i - 1] + slope * (x - low)
    return table[y_at + count - 1]


@jit
def gradients(w, c, epoch, batch):
    """(squared norm, variance) of the gradient of class ``c`` at an epoch and total batch."""
    row = w.classes[c]
    at, count = epoch * row.num_batches, row.num_batches
    sqr = interpolate(batch, w.floats, row.batches_at, row.sqr_at + at, count)
    return sqr, interpolate(batch, w.floats, row.batches_at, row.var_at + at, count)


@jit
def gain(sqr, var, scale):
    """Progress of an iteration at ``scale`` times the initial batch [iterations at it]."""
    below = var / scale + sqr
    return (var + sqr) / below if below > 0 else 1.0


@jit
def option_place(s, w, j):
    """Places of slot ``j``'s batch among its class's options, and among their times."""
    options = w.classes[s.klass[j]].num_options
    place = (type_held(s, j) * (MAX_REPLICAS + 1) + s.gpus[j]) * options + s.option[j]
    return place, s.shape_id[j] * options + s.option[j]


@jit
def total_batch(s, w, j):
    """Total batch that slot ``j`` runs [samples]."""
    place, _ = option_place(s, w, j)
    row = w.classes[s.klass[j]]
    return float(s.gpus[j] * w.ints[row.run_local_at + place] * (w.ints[row.accum_at + place] + 1))


@jit
def option_rate(s, w, j):
    """Speed of slot ``j`` with the batch of its option [iterations at M0 per s]."""
    place, at = option_place(s, w, j)
    batch = total_batch(s, w, j)
    sqr, var = gradients(w, s.klass[j], s.epoch[j], batch)
    row = w.classes[s.klass[j]]
    seconds = w.floats[row.step_at + at] + w.ints[row.accum_at + place] * w.floats[row.grad_at + at]
    return gain(sqr, var, batch / row.init_batch) / seconds


@jit
def option_noise(s, w, j):
    """Note how much of an iteration with the batch of slot ``j``'s option is communication, and its noise ratio."""
    place, at = option_place(s, w, j)
    row, batch = w.classes[s.klass[j]], total_batch(s, w, j)
    grad, step = w.floats[row.grad_at + at], w.floats[row.step_at + at]
    sqr, var = gradients(w, s.klass[j], s.epoch[j], batch)
    s.comm[j] = (step - grad) / (w.ints[row.accum_at + place] * grad + step)
    s.noise_ratio[j] = var * row.init_batch / (sqr * batch) if sqr > 0 else math.inf


@jit_inline
def set_rate(s, w, j):
    """Set the speed of running slot ``j``; what is not measured stops the record."""
    if s.klass[j] < 0:
        set_pace(s, j)  # rigid jobs have a speed only where there are stragglers
        s.rate[j] = s.pace[j]
        return
    row = w.classes[s.klass[j]]
    rate = math.nan
    if s.shape_id[j] >= 0:
        at = (s.depth[j] * row.epochs + s.epoch[j]) * row.shapes + s.shape_id[j]
        rate = option_rate(s, w, j) if s.online and s.tuned else w.floats[row.rate_at + at]
    if not rate > 0:
        s.status, s.status_slot = UNMEASURED, j
        rate = 1.0
    elif s.straggles:
        if s.online and s.tuned:
            option_noise(s, w, j)
        else:
            s.comm[j], s.noise_ratio[j] = w.floats[row.comm_at + at], w.floats[row.noise_at + at]
        set_pace(s, j)
        rate *= s.pace[j]
    s.rate[j] = rate * s.factor[j] * (1.0 - s.penalty[j])


@jit
def known_rate(w, c, depth, epoch, t, several, gpus):
    """What schedulers know of the speed of class ``c`` at a depth on GPUs of type ``t``; 0: impossible."""
    row = w.classes[c]
    first = row.known_at + (depth * row.epochs + epoch) * row.known_shapes + t * FITTED_SHAPES
    return w.floats[first + several * (FITTED_SHAPES // 2) + gpus]
