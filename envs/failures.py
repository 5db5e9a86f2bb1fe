"""Nodes that fail and come up again: docs/design/002-elastic.md, section 3.

Each node is up and down for exponential times that are a function of (seed, node, index) alone.
"""

from __future__ import annotations

import math

from envs.commit import settle_changes
from envs.devices import WHOLE, release
from envs.jit import jit
from envs.layout import HOLDER_DOWN, HOLDER_NONE
from envs.rng import Purpose, uniform


@jit
def time_in_state(s, n):
    """How long node ``n`` stays as it is now [s]."""
    mean = s.mttr if s.node_down[n] else s.mtbf
    return -mean * math.log(1.0 - uniform(s.seed, Purpose.FAILURE, n, s.node_toggles[n]))


@jit
def set_next_toggle(s):
    """Find the earliest failure or repair."""
    s.next_toggle = math.inf
    for n in range(s.num_nodes):
        s.next_toggle = min(s.next_toggle, s.node_toggle[n])


@jit
def first_toggles(s):
    """All nodes are up; draw when each fails first."""
    for n in range(s.num_nodes):
        s.node_down[n] = s.node_toggles[n] = 0
        s.node_toggle[n] = time_in_state(s, n) if s.mtbf > 0 else math.inf
    set_next_toggle(s)


@jit
def evict_node(s, n, log):
    """Take all devices from every job that holds one on node ``n``."""
    for i in range(s.num_running):
        j = s.running[i]
        g = s.first_gpu[j]
        while g >= 0:
            if s.gpu_node[g] == n:
                release(s, j, log)
                break
            g = s.gpu_next[g] if s.share[j] == WHOLE else -1


@jit
def set_devices(s, n, up):
    """Make the devices of node ``n`` free, or nobody's."""
    for i in range(s.node_gpus[n]):
        g = s.node_first[n] + i
        s.gpu_holder[g] = HOLDER_NONE if up else HOLDER_DOWN
        s.gpu_free_milli[g] = WHOLE if up else 0
    count = s.node_gpus[n] if up else -s.node_gpus[n]
    s.node_free[n] += count
    s.type_free[s.node_type[n]] += count
    s.type_up[s.node_type[n]] += count


@jit
def toggle_due(s, w, log):
    """Fail and repair every node whose time has come; jobs on failed ones are preempted."""
    for n in range(s.num_nodes):
        while s.node_toggle[n] <= s.now:
            if not s.node_down[n]:
                evict_node(s, n, log)
            set_devices(s, n, s.node_down[n] == 1)
            s.node_down[n] = 1 - s.node_down[n]
            s.node_toggles[n] += 1
            s.node_toggle[n] += time_in_state(s, n)
    set_next_toggle(s)
    s.settled = 0
    settle_changes(s, w)
