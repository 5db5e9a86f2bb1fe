"""What slows workers down and when: docs/design/005-stragglers.md, section 2.

A component is the CPUs, the link or the storage of a node, or a GPU. It becomes slow at some of its candidates, which
are a Poisson process of its own; which of them depends on the load at that time. So all schedulers see the same
candidates, and the same episodes where they load alike.
"""

from __future__ import annotations

import math

from envs.commit import follow_pace, soonest_finish
from envs.devices import WHOLE
from envs.jit import jit, jit_inline
from envs.layout import NOT_NEGATIVE
from envs.rng import Purpose, draw, stream
from envs.straggler_load import gauss, gpu_hazard_share, hazard_share
from envs.straggler_presets import (
    BROKEN_GPU,
    DEGRADED_RATE,
    DEGRADED_SHARE,
    DEGRADED_SLOWDOWN,
    GPU,
    LONGEST_S,
    NET,
    NODE_SHARE,
    SHORTEST_S,
    SLOW_GPU,
    SLOW_SHARE,
)
from traces.sensitivity import SPEED_CLASSES

SIGMA = tuple(c.sigma for c in SPEED_CLASSES)
CHI = tuple(c.chi for c in SPEED_CLASSES)


# --- components ---


@jit_inline
def kind_of(s, c):
    """Kind of component ``c``, and the number of its node or device."""
    nodes = GPU * s.num_nodes
    return (c % GPU, c // GPU) if c < nodes else (GPU, c - nodes)


@jit_inline
def numbers_of(s, c):
    """The random numbers of component ``c``."""
    kind, index = kind_of(s, c)
    return stream(s.seed, Purpose.STRAGGLER, 4 * index + kind)


@jit_inline
def next_candidate(s, c, numbers):
    """Go on to the next candidate of component ``c``."""
    s.candidate[c] += 1
    if s.comp_rate[c] > 0:
        s.candidate_at[c] -= math.log(1.0 - draw(numbers, 2 + 8 * s.candidate[c])) / s.comp_rate[c]
    else:
        s.candidate_at[c] = math.inf


@jit
def begin_episode(s, c, kind, numbers):
    """Make component ``c`` slow from now on: for how long and how slow follows from its candidate alone."""
    at = 8 * s.candidate[c]
    mean, spread = s.episode_s[kind], s.episode_log_sd[kind]
    if s.fixed_times:
        length = -mean * math.log(1.0 - draw(numbers, 4 + at))
    else:
        deviate = gauss(draw(numbers, 4 + at), draw(numbers, 5 + at))
        length = math.exp(math.log(mean) - 0.5 * spread * spread + spread * deviate)
    excess, spread = s.excess[kind], s.excess_log_sd[kind]
    if excess > 0:
        deviate = gauss(draw(numbers, 6 + at), draw(numbers, 7 + at))
        excess = math.exp(math.log(excess) - 0.5 * spread * spread + spread * deviate)
    s.severity[c] = min(s.most_severe, 1.0 + excess)
    s.onset[c] = s.now
    s.comp_next[c] = s.now + min(max(length, SHORTEST_S), LONGEST_S)


@jit
def pass_candidate(s, c):
    """Component ``c`` is at a candidate, or at the end of its episode; whether its severity changes."""
    numbers = numbers_of(s, c)
    kind, index = kind_of(s, c)
    slow = s.onset[c] > -math.inf
    if slow:
        s.severity[c], s.onset[c] = 1.0, -math.inf
        while s.candidate_at[c] <= s.now:
            next_candidate(s, c, numbers)
    else:
        share = gpu_hazard_share(s, index) if kind == GPU else hazard_share(s, index, kind)
        if draw(numbers, 3 + 8 * s.candidate[c]) < share:
            begin_episode(s, c, kind, numbers)
            return True
        next_candidate(s, c, numbers)
    s.comp_next[c] = s.candidate_at[c]
    return slow


@jit
def uses(s, j, kind, index):
    """Whether slot ``j`` has a worker that a component of a kind slows down."""
    if kind == NET and s.num_nodes_held[j] < 2:
        return False
    g = s.first_gpu[j]
    while g >= 0:
        if (g if kind == GPU else s.gpu_node[g]) == index:
            return True
        g = s.gpu_next[g] if s.share[j] == WHOLE else -1
    return False


@jit
def slow_down(s, w, c):
    """Set the pace of every job that uses component ``c``; whether one has changed."""
    kind, index = kind_of(s, c)
    changed = False
    for i in range(s.num_running):
        if uses(s, s.running[i], kind, index):
            changed |= follow_pace(s, w, s.running[i])
    if changed:
        s.next_finish = soonest_finish(s)
    return changed


@jit
def set_node_straggle(s, n):
    """Find what is next at node ``n``."""
    soonest = math.inf
    for kind in range(GPU):
        soonest = min(soonest, s.comp_next[GPU * n + kind])
    first = GPU * s.num_nodes + s.node_first[n]
    for i in range(s.node_gpus[n]):
        soonest = min(soonest, s.comp_next[(first + i) & NOT_NEGATIVE])
    s.node_straggle[n] = soonest


@jit
def set_next_straggle(s):
    """Find what is next at all."""
    s.next_straggle = math.inf
    for n in range(s.num_nodes):
        s.next_straggle = min(s.next_straggle, s.node_straggle[n])


@jit
def straggle_until(s, w, until):
    """Let components become slow and normal up to ``until``, or to the first that changes a job's rate."""
    while s.next_straggle <= until:
        s.now = max(s.now, s.next_straggle)
        changed = False
        for n in range(s.num_nodes):
            if s.node_straggle[n] <= s.now:
                changed |= pass_node(s, w, n)
        set_next_straggle(s)
        if changed:
            return


@jit
def pass_node(s, w, n):
    """Handle what is due at node ``n``; whether a job's rate has changed."""
    changed = False
    for kind in range(GPU):
        c = GPU * n + kind
        if s.comp_next[c] <= s.now and pass_candidate(s, c):
            changed |= slow_down(s, w, c)
    for i in range(s.node_gpus[n]):
        c = GPU * s.num_nodes + s.node_first[n] + i
        if s.comp_next[c] <= s.now and pass_candidate(s, c):
            changed |= slow_down(s, w, c)
    set_node_straggle(s, n)
    return changed


# --- the beginning of a run ---


@jit
def frailty(numbers):
    """How much more often than others a component straggles: Gamma of mean 1 and shape 2."""
    return -0.5 * (math.log(1.0 - draw(numbers, 0)) + math.log(1.0 - draw(numbers, 1)))


@jit
def set_speeds(s, n, degraded):
    """Draw the static speeds of node ``n``'s devices."""
    node = stream(s.seed, Purpose.VARIABILITY, 2 * n)
    common = gauss(draw(node, 0), draw(node, 1))
    for i in range(s.node_gpus[n]):
        g = s.node_first[n] + i
        own = stream(s.seed, Purpose.VARIABILITY, 2 * g + 1)
        z = math.sqrt(NODE_SHARE) * common + math.sqrt(1.0 - NODE_SHARE) * gauss(draw(own, 0), draw(own, 1))
        kind, outlier = draw(own, 2), 0.0
        if kind < s.broken_share:
            outlier = math.log(BROKEN_GPU)
        elif kind < s.broken_share + SLOW_SHARE:
            outlier = math.log(SLOW_GPU)
        for q in range(len(SIGMA)):
            speed = math.exp(SIGMA[q] * z + CHI[q] * outlier) * (DEGRADED_SLOWDOWN if degraded else 1.0)
            s.gpu_speed[g, q] = speed if s.varies else 1.0


@jit
def begin_component(s, c, rate):
    """Set component ``c`` to normal before its first candidate; ``rate``: of candidates, without its frailty."""
    numbers = numbers_of(s, c)
    s.severity[c], s.onset[c], s.candidate[c], s.candidate_at[c] = 1.0, -math.inf, -1, 0.0
    s.comp_rate[c] = s.straggler_scale * rate * frailty(numbers)
    next_candidate(s, c, numbers)
    s.comp_next[c] = s.candidate_at[c]


@jit
def begin_stragglers(s):
    """Set all components to normal, and draw what stays the same for the run."""
    for n in range(s.num_nodes):
        degraded = s.varies and draw(stream(s.seed, Purpose.VARIABILITY, 2 * n), 2) < DEGRADED_SHARE
        set_speeds(s, n, degraded)
        for kind in range(GPU):
            s.hot_epoch[n, kind], s.hot_until[n, kind] = -1, 0.0
            begin_component(s, GPU * n + kind, s.least_rate[kind] + s.hot_rate[kind])
        rate = (s.least_rate[GPU] + s.hot_rate[GPU]) * (DEGRADED_RATE if degraded else 1.0)
        for i in range(s.node_gpus[n]):
            begin_component(s, GPU * s.num_nodes + s.node_first[n] + i, rate)
        set_node_straggle(s, n)
    set_next_straggle(s)
    s.seen_turn = -1
