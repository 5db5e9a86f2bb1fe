"""Who yields a device in DeepBoot's simulator where no model is fitted (deepboot.md Q6): rounding decides.

There every job's speed-up is GPUs / fair share, so whichever gives up one, the sum is the same but for rounding. The
largest sum wins, the first of equals in the order of attained service, and the sum is numpy's, which adds eight lanes.
Measured: in a run without warm pods each of the 56 victims is theirs.
"""

from __future__ import annotations

from envs.jit import jit

LANES = 8


@jit
def attained(s, j):
    """Attained service of slot ``j``, which holds whole devices or nothing [GPU-s]."""
    return s.service[j] + s.held_gpus[j] * (s.now - s.held_since[j])


@jit
def list_by_service(s):
    """Write all slots in use to ``walk_state`` by attained service, then arrival; how many."""
    count = 0
    for part in range(2):
        slots, length = (s.running, s.num_running) if part == 0 else (s.waiting, s.num_waiting)
        for i in range(length):
            j, m = slots[i], count
            while m > 0 and has_less(s, j, s.walk_state[m - 1]):
                s.walk_state[m] = s.walk_state[m - 1]
                m -= 1
            s.walk_state[m] = j
            count += 1
    return count


@jit
def has_less(s, a, b):
    """Whether slot ``a`` has less attained service than ``b``; ties: the earlier job."""
    less, more = attained(s, a), attained(s, b)
    return less < more or (less == more and s.job_id[a] < s.job_id[b])


@jit
def speedup(s, i, loser, fair):
    """Speed-up of the job at place ``i`` of ``walk_state`` if the one at place ``loser`` gives up a device."""
    return (s.gpus[s.walk_state[i]] - (i == loser)) / float(fair)


@jit
def lane(s, first, stop, loser, fair):
    """Sum of every eighth speed-up."""
    total = 0.0
    for i in range(first, stop, LANES):
        total += speedup(s, i, loser, fair)
    return total


@jit
def sum_as_numpy(s, count, loser, fair):
    """Sum of all speed-ups, of at most 128 jobs, as np.sum() rounds it."""
    stop = count - count % LANES
    a = lane(s, 0, stop, loser, fair) + lane(s, 1, stop, loser, fair)
    b = lane(s, 2, stop, loser, fair) + lane(s, 3, stop, loser, fair)
    c = lane(s, 4, stop, loser, fair) + lane(s, 5, stop, loser, fair)
    d = lane(s, 6, stop, loser, fair) + lane(s, 7, stop, loser, fair)
    total = (a + b) + (c + d)
    for i in range(stop, count):
        total += speedup(s, i, loser, fair)
    return total


@jit
def find_by_rounding(s, fair):
    """(slot, node) that yields; (-1, -1): none holds anything."""
    count = list_by_service(s)
    best, most = -1, -1.0
    for i in range(count):
        total = sum_as_numpy(s, count, i, fair)
        if s.gpus[s.walk_state[i]] > 0 and not s.pinned[s.walk_state[i]] and total > most:
            best, most = s.walk_state[i], total
    if best < 0:
        return -1, -1
    lowest, g = s.num_nodes, s.first_gpu[best]
    while g >= 0:
        lowest = min(lowest, s.gpu_node[g])
        g = s.gpu_next[g]
    return best, lowest
