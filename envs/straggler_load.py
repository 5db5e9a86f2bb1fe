"""How loaded a node is, and how likely it is to straggle for that: docs/design/005-stragglers.md, section 2.

The load of a kind is that of a background, other users of the node and its links, and that of the jobs on it.
"""

from __future__ import annotations

import math

from envs.devices import WHOLE
from envs.jit import jit, jit_inline
from envs.layout import ASYNCHRONOUS, HOLDER_DOWN, HOLDER_INFERENCE, NO_POD, POD_SLEEP
from envs.rng import Purpose, draw, stream
from envs.straggler_presets import (
    ASYNCHRONOUS_DEMAND,
    CALM,
    CPU_DEMAND,
    HOT,
    NET,
    NET_DEMAND,
    THETA,
    UTIL,
    WIDTH,
)


@jit
def gauss(a, b):
    """A standard normal number from two uniform ones (Box and Muller)."""
    return math.sqrt(-2.0 * math.log(1.0 - a)) * math.cos(2.0 * math.pi * b)


@jit
def background(s, n, kind):
    """Load of node ``n`` that jobs of this cluster do not make, now."""
    if s.hot_until[n, kind] <= s.now:
        numbers = stream(s.seed, Purpose.BACKGROUND, 4 * n + kind)
        while s.hot_until[n, kind] <= s.now:
            epoch = s.hot_epoch[n, kind] + 1
            s.hot_epoch[n, kind] = epoch
            s.hot_until[n, kind] -= s.sojourn * math.log(1.0 - draw(numbers, 2 * epoch))
            s.hot[n, kind] = draw(numbers, 2 * epoch + 1) < s.hot_share[kind]
    return HOT if s.hot[n, kind] else CALM


@jit_inline
def demand_of(s, j, kind):
    """Load that a device of slot ``j`` puts on a node whose only device it is."""
    if kind == NET:
        load = NET_DEMAND * s.comm[j] if s.num_nodes_held[j] > 1 else 0.0
    else:
        load = CPU_DEMAND * s.kappa[j, kind]
    return load * (ASYNCHRONOUS_DEMAND if s.sync[j] == ASYNCHRONOUS else 1.0)


@jit
def load_of(s, n, kind):
    """Load of a kind at node ``n`` now; 1 is what it can bear."""
    load = background(s, n, kind)
    if not s.straggler_load:
        return load
    used = CPU_DEMAND * s.node_pods[n] if kind != NET else 0.0
    for i in range(s.node_gpus[n]):
        j = s.gpu_holder[s.node_first[n] + i]
        if j >= 0:
            used += demand_of(s, j, kind)
    if s.has_shares:
        for i in range(s.num_running):
            j = s.running[i]
            if s.share[j] < WHOLE and s.gpu_node[s.first_gpu[j]] == n:
                used += demand_of(s, j, kind) * s.share[j] / 1000.0
    return load + used / s.node_gpus[n]


@jit_inline
def is_first(s, n, i):
    """Whether no device of node ``n`` before its ``i``-th has the same holder."""
    first = s.node_first[n]
    for m in range(i):  # noqa: SIM110 - compiled loop
        if s.gpu_holder[first + m] == s.gpu_holder[first + i]:
            return False
    return True


@jit
def tenants_of(s, n, kind):
    """Jobs on node ``n``, and one more each for its pods and a hot background; without load two or none."""
    tenants = 1 if background(s, n, kind) == HOT else 0
    if not s.straggler_load:
        return 2 * tenants
    tenants += s.node_pods[n] > 0
    for i in range(s.node_gpus[n]):
        tenants += s.gpu_holder[s.node_first[n] + i] >= 0 and is_first(s, n, i)
    if s.has_shares:
        for i in range(s.num_running):
            j = s.running[i]
            tenants += s.share[j] < WHOLE and s.gpu_node[s.first_gpu[j]] == n
    return tenants


@jit
def hazard_share(s, n, kind):
    """Share of its candidates at which a component of node ``n`` becomes slow, as loaded now."""
    if kind != NET and tenants_of(s, n, kind) < 2:
        return 0.0
    most = s.least_rate[kind] + s.hot_rate[kind]
    at = 1.0 / (1.0 + math.exp(-(load_of(s, n, kind) - THETA) / WIDTH))
    return (s.least_rate[kind] + s.hot_rate[kind] * at) / most if most > 0 else 0.0


@jit
def is_used(s, g):
    """Whether somebody computes on device ``g``: a job or a pod that is awake."""
    if s.gpu_holder[g] == HOLDER_INFERENCE:
        return s.pod_state[g] != NO_POD and s.pod_state[g] != POD_SLEEP
    return s.gpu_free_milli[g] < WHOLE and s.gpu_holder[g] != HOLDER_DOWN


@jit
def gpu_hazard_share(s, g):
    """The same for device ``g``."""
    return (1.0 + UTIL * (s.straggler_load and is_used(s, g))) / (1.0 + UTIL)
