"""Booking what a scheduling pass changed: starts, resumptions, preemptions, migrations.

Inside a pass devices move freely; :func:`commit` compares what each touched job holds with what it
held before the pass, so that a change and its undoing cost nothing (docs/design/001-core.md,
section 2).
"""

from __future__ import annotations

import math

from envs.jit import jit
from envs.layout import RUNNING, WAITING
from envs.order import precedes, set_key

# What commit() notes in s.touched about a touched slot.
UNCHANGED, MIGRATED, STARTED, STOPPED = 1, 2, 3, 4


@jit
def insert_waiting(s, j):
    """Put slot ``j`` into the waiting list at its place by key."""
    set_key(s, j, s.order_key)
    lo, hi = 0, s.num_waiting
    while lo < hi:
        mid = (lo + hi) // 2
        if precedes(s, s.waiting[mid], j):
            lo = mid + 1
        else:
            hi = mid
    for i in range(s.num_waiting, lo, -1):
        s.waiting[i] = s.waiting[i - 1]
    s.waiting[lo] = j
    s.num_waiting += 1
    s.settled = 0


@jit
def set_level_time(s, j):
    """Next level crossing of running slot ``j``."""
    if s.level[j] < s.num_limits:
        s.level_time[j] = s.level_since[j] + (s.limits[s.level[j]] - s.level_service[j]) / s.demand[j]
    else:
        s.level_time[j] = math.inf


@jit
def settle_hold(s, j):
    """Close the accounts of slot ``j``'s present hold at ``s.now``: service and pause."""
    held = s.held_gpus[j] * s.share[j] / 1000.0
    s.service[j] += held * (s.now - s.held_since[j])
    paused = min(s.now, s.anchor[j]) - s.held_since[j]
    if paused > 0:
        s.paused_gpu_s[j] += held * paused
    s.held_since[j] = s.now


@jit
def settle_progress(s, j):
    """Fold the progress made since the anchor into ``done``."""
    if s.now > s.anchor[j]:
        s.done[j] = s.done[j] + (s.now - s.anchor[j])


@jit
def start_hold(s, j, pause):
    """Begin to progress after ``pause`` on the devices just taken."""
    s.anchor[j] = s.now + pause
    s.finish[j] = s.anchor[j] + (s.work[j] - s.done[j])
    s.held_since[j] = s.now
    s.num_starts[j] += 1


@jit
def start(s, j):
    """Book the start or resumption of waiting slot ``j``."""
    s.queueing_delay[j] += s.now - s.waiting_since[j]
    if s.level[j] > 0:
        s.level_wait[j] += s.now - s.waiting_since[j]
    first = s.num_starts[j] == 0
    if first:
        s.first_start[j] = s.now
    if not s.level_started[j]:
        s.level_started[j] = 1
        s.start_time[j] = s.now
    s.phase[j] = RUNNING
    start_hold(s, j, 0.0 if first else s.rescale_pause)
    s.level_since[j] = s.now
    set_level_time(s, j)


@jit
def migrate(s, j):
    """Book a change of nodes or count of running slot ``j``."""
    settle_hold(s, j)
    settle_progress(s, j)
    s.num_rescales[j] += 1
    start_hold(s, j, s.rescale_pause)


@jit
def preempt(s, j):
    """Book the loss of all devices of running slot ``j``."""
    settle_hold(s, j)
    s.level_service[j] += s.demand[j] * (s.now - s.level_since[j])
    settle_progress(s, j)
    if s.checkpoint > 0:
        s.done[j] = math.floor(s.done[j] / s.checkpoint) * s.checkpoint
    if s.helios:  # checkpoint overhead by size: tiresias_gavel_helios.md 2.1
        extra = 7.0 if s.request[j] == 1 else (30.0 if s.request[j] <= 8 else 60.0)
        s.work[j] += extra
        s.extra_work[j] += extra
    s.num_preemptions[j] += 1
    s.finish[j] = s.anchor[j] = s.level_time[j] = math.inf
    s.waiting_since[j] = s.now
    s.phase[j] = WAITING


@jit
def keep_phase(s, slots, count, phase):
    """Drop from a list of slots those in another phase; the new length."""
    kept = 0
    for i in range(count):
        j = slots[i]
        if s.phase[j] == phase:
            slots[kept] = j
            kept += 1
    return kept


@jit
def soonest_finish(s):
    """Earliest finish of a running job."""
    soonest = math.inf
    for i in range(s.num_running):
        soonest = min(soonest, s.finish[s.running[i]])
    return soonest


@jit
def book(s, j):
    """Book the net change of touched slot ``j``; what was done."""
    change = UNCHANGED
    if s.phase[j] == RUNNING:
        if s.gpus[j] == 0:
            preempt(s, j)
            change = STOPPED
        elif s.gpus[j] != s.held_gpus[j] or s.node_hash[j] != s.held_hash[j]:
            migrate(s, j)
            change = MIGRATED
    elif s.gpus[j] > 0:
        start(s, j)
        change = STARTED
    s.held_gpus[j], s.held_hash[j] = s.gpus[j], s.node_hash[j]
    return change


@jit
def commit(s):
    """End a scheduling pass: book every net change, bring the lists up to date; whether anything changed."""
    any_started, any_stopped, any_migrated = False, False, False
    for i in range(s.num_touched):
        j = s.touched_slots[i]
        s.touched[j] = book(s, j)
        any_started |= s.touched[j] == STARTED
        any_stopped |= s.touched[j] == STOPPED
        any_migrated |= s.touched[j] == MIGRATED
    if any_started:
        s.num_waiting = keep_phase(s, s.waiting, s.num_waiting, WAITING)
    if any_stopped:
        s.num_running = keep_phase(s, s.running, s.num_running, RUNNING)
    for i in range(s.num_touched):
        j = s.touched_slots[i]
        if s.touched[j] == STARTED:
            s.running[s.num_running] = j
            s.num_running += 1
            s.next_finish = min(s.next_finish, s.finish[j])
        elif s.touched[j] == STOPPED:
            insert_waiting(s, j)
        s.touched[j] = 0
    if any_stopped or any_migrated:
        s.next_finish = soonest_finish(s)
    s.num_touched = 0
    s.dirty = 0
    s.num_passes += 1
    return any_started or any_stopped or any_migrated
