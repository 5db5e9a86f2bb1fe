"""Levels of attained service, and the return of starved jobs: docs/design/001-core.md, section 6."""

from __future__ import annotations

import math

from envs.clock import multiple_from
from envs.commit import insert_waiting, set_level_time
from envs.jit import jit
from envs.order import Key

PENDING = -1.0  # time of entry into a level, until the pass that finds it out


@jit
def cross_levels(s):
    """Bring the levels of running jobs up to date; whether one rose."""
    happened = False
    for i in range(s.num_running):
        j = s.running[i]
        while s.level_time[j] <= s.now:
            s.level_service[j] = s.limits[s.level[j]]  # exactly, at the crossing
            s.level_since[j] = s.level_time[j]
            s.level[j] += 1
            if s.order_key == Key.QUEUE:
                s.enter_time[j] = PENDING if s.event_driven else multiple_from(s.level_time[j], s.interval)
            set_level_time(s, j)
            happened = True
    return happened


@jit
def set_entries(s):
    """Date the entries into a level that this pass finds out."""
    for i in range(s.num_running):
        if s.enter_time[s.running[i]] == PENDING:
            s.enter_time[s.running[i]] = s.now


@jit
def promotion_time(s, j):
    """When waiting slot ``j`` returns to level 0; inf: not by waiting."""
    if s.level[j] == 0:
        return math.inf
    return s.waiting_since[j] + (s.promote * s.level_service[j] / s.demand[j] - s.level_wait[j])


@jit
def promote(s, i):
    """Return the job at place ``i`` of the waiting list to level 0."""
    j = s.waiting[i]
    s.level[j] = s.level_started[j] = 0
    s.level_service[j] = s.level_wait[j] = 0.0
    s.queueing_delay[j] += s.now - s.waiting_since[j]
    s.waiting_since[j] = s.enter_time[j] = s.now
    for m in range(i, s.num_waiting - 1):
        s.waiting[m] = s.waiting[m + 1]
    s.num_waiting -= 1
    insert_waiting(s, j)


@jit
def promote_due(s):
    """Return starved jobs to level 0; whether there was one."""
    happened = False
    i = 0
    while i < s.num_waiting:
        if promotion_time(s, s.waiting[i]) <= s.now:
            promote(s, i)
            happened = True
            i = 0
        else:
            i += 1
    return happened
