"""How fast a job goes on where its workers straggle: docs/design/005-stragglers.md, sections 4 and 5.

The pace of a job is its speed over that without stragglers. Times of workers are in units of an iteration without.
"""

from __future__ import annotations

import math

from envs.jit import jit, jit_inline
from envs.layout import ASYNCHRONOUS, BACKUP, DROP, GROUPED, LB_BSP, SYNCHRONOUS
from envs.straggler_presets import CPU, GPU, IO, NET
from traces.sensitivity import COMPUTE

STRAGGLES = 1.2  # a worker straggles that takes so many times as long as the fastest (STAR)
SLOWED = 1.1  # a job is slowed down whose iterations take so many times as long as without stragglers
ASYNCHRONOUS_GAIN, GROUPED_GAIN = 0.7, 0.85  # what stale gradients leave of an iteration's worth; guessed
SAMPLES, MOST_SAMPLES = 32, 64  # of a worker in an iteration; with load balancing at most


@jit_inline
def worker_factor(s, j, g):
    """How many times as long slot ``j``'s worker on device ``g`` takes to compute."""
    at = GPU * s.gpu_node[g]
    return (
        s.gpu_speed[g, s.speed_class[j]]
        * s.severity[GPU * s.num_nodes + g]
        * (1.0 + s.kappa[j, CPU] * (s.severity[at + CPU] - 1.0))
        * (1.0 + s.kappa[j, IO] * (s.severity[at + IO] - 1.0))
    )


@jit
def task_time(s, w, row, g):
    """How long the inference task of a row runs that begins to on device ``g`` now [s]: as slow as things are now."""
    time = w.jobs[row].work
    if s.straggles:
        slow_cpu = s.severity[GPU * s.gpu_node[g] + CPU]
        time *= s.gpu_speed[g, COMPUTE] * s.severity[GPU * s.num_nodes + g] * slow_cpu
    return time


@jit_inline
def link_factor(s, j, n):
    """How many times as long slot ``j``'s communication takes at node ``n``."""
    if s.num_nodes_held[j] < 2:
        return 1.0
    return 1.0 + s.kappa[j, NET] * (s.severity[GPU * n + NET] - 1.0)


@jit
def gather_workers(s, j):
    """Write the times of slot ``j``'s workers to the scratch array; how many there are, the worst factors of both."""
    count, slowest, worst_link, comm = 0, 0.0, 0.0, s.comm[j]
    g = s.first_gpu[j]
    for _ in range(s.gpus[j]):
        compute, link = worker_factor(s, j, g), link_factor(s, j, s.gpu_node[g])
        s.worker_time[count] = 1.0 + (1.0 - comm) * (compute - 1.0) + comm * (link - 1.0)
        slowest, worst_link = max(slowest, compute), max(worst_link, link)
        count += 1
        g = s.gpu_next[g]
    return count, slowest, worst_link


@jit
def count_straggling(s, count):
    """Workers among ``count`` times that straggle."""
    least, straggling = math.inf, 0
    for i in range(count):
        least = min(least, s.worker_time[i])
    for i in range(count):
        straggling += s.worker_time[i] > STRAGGLES * least
    return straggling


@jit
def sort_workers(s, count):
    """Sort ``count`` times, the shortest first."""
    times = s.worker_time
    for i in range(1, count):
        time, m = times[i], i
        while m > 0 and times[m - 1] > time:
            times[m] = times[m - 1]
            m -= 1
        times[m] = time


@jit
def dropping(s, j, count):
    """Pace if the slowest of ``count`` sorted workers is not waited for: its samples are missing."""
    share, noise = (count - 1) / count, s.noise_ratio[j]
    worth = 1.0 if noise == math.inf else (noise + 1.0) / (noise + share)
    return share * worth / s.worker_time[count - 2]


@jit
def in_groups(s, count):
    """Pace if workers about as fast as each other wait for each other, and for nobody else."""
    times, pace, groups, first = s.worker_time, 0.0, 0, 0
    while first < count:
        last = first
        while last + 1 < count and times[last + 1] <= STRAGGLES * times[first]:
            last += 1
        pace += (last + 1 - first) / count / times[last]
        groups += 1
        first = last + 1
    return pace * (GROUPED_GAIN if groups > 1 else 1.0)


@jit
def balanced(s, j, count):
    """Compute time of an iteration whose samples are divided by speed (LB-BSP), in units of one without stragglers."""
    factor, g, rest = s.worker_time, s.first_gpu[j], 0.0
    for i in range(count):
        factor[i] = worker_factor(s, j, g)
        rest += 1.0 / factor[i]
        g = s.gpu_next[g]
    sort_workers(s, count)
    left, longest = float(SAMPLES * count), 0.0
    for i in range(count):  # the fastest first: what one of them may not take, the others share
        samples = left / (rest * factor[i])
        if samples <= MOST_SAMPLES:
            for m in range(i, count):
                longest = max(longest, math.ceil(left / (rest * factor[m]) - 1e-9) * factor[m])
            break
        longest = max(longest, MOST_SAMPLES * factor[i])
        left -= MOST_SAMPLES
        rest -= 1.0 / factor[i]
    return longest / SAMPLES


@jit
def pace_of(s, j):
    """Pace of slot ``j`` on the devices it holds; notes how many of its workers straggle."""
    count, slowest, link = gather_workers(s, j)
    s.straggling[j] = count_straggling(s, count)
    mode, comm = s.sync[j], s.comm[j]
    if mode == LB_BSP:
        slowest = balanced(s, j, count)
    elif mode != SYNCHRONOUS:
        sort_workers(s, count)
    if mode == BACKUP and s.backup[j] > 0:
        return 1.0 / s.worker_time[count - s.backup[j] - 1]
    if mode == DROP and count > 1:
        return dropping(s, j, count)
    if mode == ASYNCHRONOUS:
        total = 0.0
        for i in range(count):
            total += 1.0 / s.worker_time[i]
        return ASYNCHRONOUS_GAIN * total / count
    if mode == GROUPED:
        return in_groups(s, count)
    return 1.0 / (1.0 + (1.0 - comm) * (slowest - 1.0) + comm * (link - 1.0))


@jit
def account(s, j):
    """Count what stragglers have cost running slot ``j`` up to now; before its pace or its hold changes."""
    time = s.now - max(s.accounted[j], s.pause_end[j])
    if time > 0:
        share = s.share[j] / 1000.0
        useful = (s.held_gpus[j] - s.backup[j]) * s.pace[j]
        s.lost_gpu_s[j] += (s.held_gpus[j] - useful) * share * time
        s.straggling_gpu_s[j] += s.straggling[j] * share * time
        s.slowed_s[j] += time if s.pace[j] < 1.0 / SLOWED else 0.0
    s.accounted[j] = s.now


@jit
def set_pace(s, j):
    """Set the pace of running slot ``j``."""
    account(s, j)
    s.pace[j] = pace_of(s, j)
