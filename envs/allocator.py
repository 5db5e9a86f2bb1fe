"""The allocator behind ``action="weights"``: the counts that maximise a weighted sum of speed-ups.

The group knapsack of DeepBoot's ATS-T (Chen et al., TPDS'23): each job gets w GPUs, all together at most what the
cluster has, so that the sum of weight x speed-up is largest. Speed-up: known goodput on w GPUs, packed, over that on
a fair share; times max(age - 10 restarts, 0) / (age + 10) where w is not what the job holds. A rigid job gets its
request, speed-up 1, or nothing. What must not be preempted keeps what it has; rigid jobs wider than 64 GPUs start
where the others leave room.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from envs.devices import release
from envs.jit import jit
from envs.knapsack import solve
from envs.layout import MAX_REPLICAS, record_dtype
from envs.observe import known_goodput
from envs.placement import place, place_count
from envs.rates import type_held

RESTART_S = 10.0  # what DeepBoot's policy takes a restart to cost


@jit
def is_kept(s, j):
    """Whether slot ``j`` keeps what it holds, whatever the weights: it is pinned, or too wide to weigh."""
    return s.gpus[j] > 0 and (s.pinned[j] or (s.klass[j] < 0 and s.request[j] > MAX_REPLICAS))


@jit
def list_jobs(s, order):
    """Write the slots whose count is open to ``order``, by attained service, then arrival; how many."""
    count = 0
    for part in range(2):
        slots, length = (s.running, s.num_running) if part == 0 else (s.waiting, s.num_waiting)
        for i in range(length):
            j = slots[i]
            if is_kept(s, j):
                continue
            s.key1[j] = s.service[j] + (s.demand[j] * (s.now - s.held_since[j]) if part == 0 else 0.0)
            m = count
            while m > 0 and comes_first(s, j, order[m - 1]):
                order[m] = order[m - 1]
                m -= 1
            order[m] = j
            count += 1
    return count


@jit
def comes_first(s, a, b):
    """Whether slot ``a`` has less attained service than ``b``; ties: the earlier job."""
    return s.key1[a] < s.key1[b] or (s.key1[a] == s.key1[b] and s.job_id[a] < s.job_id[b])


@jit
def change_factor(s, j):
    """What a change of slot ``j``'s GPUs leaves of their worth."""
    age = s.now - s.arrival[j]
    return max(age - RESTART_S * max(0, s.num_starts[j] - 1), 0.0) / (age + RESTART_S)


@jit
def fill_elastic(s, w, j, weight, fair, values):
    """Write the values of 1 .. GPUs of elastic slot ``j``."""
    t = type_held(s, j) if s.gpus[j] > 0 else max(0, s.gpu_type[j])
    base = known_goodput(s, w, j, t, max(1, min(fair, s.max_gpus[j])))
    for k in range(1, s.max_gpus[j] + 1):
        speedup = known_goodput(s, w, j, t, k) / base if base > 0 else float(k) / fair
        values[k] = weight * speedup * (1.0 if k == s.held_gpus[j] else change_factor(s, j))


@jit
def fill_rigid(s, j, weight, values):
    """Write the values of rigid slot ``j``: its request or nothing."""
    for k in range(1, min(s.request[j], values.shape[0] - 1) + 1):
        values[k] = -math.inf
    if s.request[j] < values.shape[0]:
        values[s.request[j]] = weight * (1.0 if s.held_gpus[j] > 0 else change_factor(s, j))


@jit
def choose_counts(s, w, log_weights, order, values, lows, caps, table, gpus):
    """Write the best counts to ``gpus``, in the order of ``order``; how many jobs there are.

    ``log_weights`` (J,) by slot. Scratch: ``order``, ``lows``, ``caps``, ``gpus`` (J,) int64, ``values`` (J, 65) and
    ``table`` (J + 1, GPUs + 1) float64.
    """
    count, capacity = list_jobs(s, order), 0
    for t in range(s.num_types):
        capacity += s.type_up[t]
    for i in range(s.num_running):
        if is_kept(s, s.running[i]):
            capacity -= s.gpus[s.running[i]]
    fair = max(1, -(-capacity // max(1, count)))
    for i in range(count):
        j = order[i]
        values[i, 0] = 0.0
        weight = math.exp(log_weights[j])
        lows[i], caps[i] = 0, s.max_gpus[j]
        if s.klass[j] >= 0:
            fill_elastic(s, w, j, weight, fair, values[i])
        else:
            fill_rigid(s, j, weight, values[i])
            caps[i] = s.request[j] if s.request[j] <= MAX_REPLICAS else 0
    solve(values, lows, caps, count, capacity, table, gpus)
    return count


@jit
def apply_choice(s, order, gpus, count, log):
    """Release jobs whose count changes, then place rigid ones in order and elastic ones, fewest GPUs first.

    What fits nowhere (a rigid gang, or a count that no single GPU type has) waits.
    """
    for i in range(count):
        j = order[i]
        if s.gpus[j] > 0 and gpus[i] != s.gpus[j]:
            release(s, j, log)
    for i in range(count):
        j = order[i]
        if s.klass[j] < 0 and (gpus[i] > 0 or s.request[j] > MAX_REPLICAS) and s.gpus[j] == 0:
            place(s, j, s.placement_rule)
    for size in range(1, MAX_REPLICAS + 1):
        for i in range(count):
            j = order[i]
            if s.klass[j] >= 0 and gpus[i] == size and s.gpus[j] == 0:
                place_count(s, j, size, s.placement_rule)


@jit
def allocate(s, w, log_weights, scratch, log):
    """Give every job what the weights (J,) make best; ``scratch``: a record of make_scratch()."""
    count = choose_counts(
        s, w, log_weights, scratch.order, scratch.values, scratch.lows, scratch.caps, scratch.table, scratch.gpus
    )
    apply_choice(s, scratch.order, scratch.gpus, count, log)


def make_scratch(rows: int, num_slots: int, num_gpus: int) -> npt.NDArray[np.void]:
    """Scratch of :func:`allocate` for ``rows`` clusters."""
    fields = [
        ("order", "i8", (num_slots,)),
        ("lows", "i8", (num_slots,)),
        ("caps", "i8", (num_slots,)),
        ("gpus", "i8", (num_slots,)),
        ("values", "f8", (num_slots, MAX_REPLICAS + 1)),
        ("table", "f8", (num_slots + 1, num_gpus + 1)),
    ]
    return np.zeros(rows, record_dtype(fields, align=True))
