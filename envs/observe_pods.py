"""Writing what an agent sees of inference: the services block of envs/features.py."""

from __future__ import annotations

import math

from envs.features import SERVICE_COLUMNS
from envs.jit import jit
from envs.layout import NO_POD, POD_PROTECT, POD_START
from envs.pods import recent_tasks


@jit
def squash(x, c):
    """x / (x + c): 0 at 0, 1/2 at c, below 1."""
    return x / (x + c)


@jit
def count_pods(s, row, first):
    """Write pods by state and the longest protection left to the rows of their services, not yet squashed."""
    for g in range(s.num_gpus):
        state = s.pod_state[g]
        if state == NO_POD:
            continue
        at = first + s.pod_service[g] * SERVICE_COLUMNS
        row[at + state - POD_START] += 1.0
        if state == POD_PROTECT:
            row[at + 5] = max(row[at + 5], s.pod_until[g] - s.now)


@jit
def write_services(s, row, first):
    """Write the services block, which starts at ``row[first]``."""
    for i in range(first, first + s.num_services * SERVICE_COLUMNS):
        row[i] = 0.0
    count_pods(s, row, first)
    for v in range(s.num_services):
        at = first + v * SERVICE_COLUMNS
        row[at + 4] = s.queue_len[v]
        for i in range(5):
            row[at + i] = squash(row[at + i], 4.0)
        row[at + 5] = squash(row[at + 5], 60.0)
        row[at + 6] = squash(s.start_up[v], 10.0)
        row[at + 7] = squash(s.now - s.last_task[v], 60.0) if s.last_task[v] > -math.inf else 1.0
        row[at + 8] = squash(recent_tasks(s, v), 16.0)
