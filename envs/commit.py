"""Booking what a scheduling pass changed: starts, resumptions, preemptions, migrations.

Inside a pass devices move freely; :func:`commit` compares what each touched job holds with what it
held before the pass, so that a change and its undoing cost nothing (docs/design/001-core.md,
section 2).
"""

from __future__ import annotations

import math

from envs.clock import is_multiple
from envs.devices import holding_hash
from envs.freezing import set_depth
from envs.jit import jit, jit_inline
from envs.layout import CONSTANT, HELIOS, LYRA, RESTART, RUNNING, WAITING
from envs.online import choose_batch
from envs.order import precedes, set_key
from envs.pace import account, pace_of
from envs.rates import find_shape, set_rate
from envs.reclaim import strip

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
    paused = min(s.now, s.pause_end[j]) - s.held_since[j]
    if paused > 0:
        s.paused_gpu_s[j] += held * paused
    s.held_since[j] = s.now
    if s.straggles:
        account(s, j)


@jit
def settle_progress(s, j):
    """Fold the progress made since the anchor into ``done``."""
    if s.now > s.anchor[j]:
        s.done[j] = s.done[j] + s.rate[j] * (s.now - s.anchor[j])


@jit_inline
def set_finish(s, j):
    """Set when slot ``j``'s present stretch ends if nothing changes."""
    finish = s.anchor[j] + (s.target[j] - s.done[j]) / s.rate[j]
    if s.pollux and s.klass[j] >= 0:
        # Pollux's simulator ends epochs at whole seconds, but first moves by whole intervals: what ends just after a
        # pass is still there in it; in DeepBoot's any event will do. Half to even, as Python's round().
        whole = float(round(finish))
        late = whole < finish and (s.deepboot or (s.interval > 0 and is_multiple(whole, s.interval)))
        finish = max(whole + 1e-6 if late else whole, s.anchor[j])
    s.finish[j] = finish


@jit
def pause_of(s, w, j, before):
    """Pause that slot ``j``, which held ``before`` GPUs, makes for what it holds now [s]."""
    if s.klass[j] < 0:
        return 0.0 if s.rescale_cost == HELIOS or s.num_starts[j] == 0 else s.rescale_pause
    if s.rescale_cost == CONSTANT or s.rescale_cost == HELIOS:
        return s.rescale_pause
    row, now = w.classes[s.klass[j]], s.gpus[j]
    if s.rescale_cost == RESTART or before == 0 or before == now:
        return row.first_delay
    if now < before:
        return row.next_delay
    growth = (row.first_delay - row.next_delay) * (now - before) / now
    return row.next_delay + (math.floor(growth) if s.deepboot else growth)


@jit_inline
def start_hold(s, w, j, before):
    """Begin to progress, after a pause, on the devices just taken; ``before``: GPUs held until now."""
    s.anchor[j] = s.pause_end[j] = s.now + pause_of(s, w, j, before)
    s.sync[j], s.accounted[j] = s.next_sync[j], s.now
    if s.klass[j] >= 0:
        s.shape_id[j] = find_shape(s, w, j)
        if s.online and s.tuned:
            choose_batch(s, w, j)
        set_rate(s, w, j)
        s.saved[j], s.saved_at[j] = s.done[j], s.anchor[j]
        if not s.deepboot:  # there tiresias charges what a job has asked for: deepboot.md Q6
            s.demand[j] = s.gpus[j]
    elif s.straggles:
        set_rate(s, w, j)
    set_finish(s, j)
    s.held_since[j] = s.now
    s.num_starts[j] += 1


@jit
def start(s, w, j):
    """Book the start or resumption of waiting slot ``j``."""
    if s.layered and s.modules[j] > 0:
        set_depth(s, j, s.next_depth[j])
    s.queueing_delay[j] += s.now - s.waiting_since[j]
    if s.level[j] > 0:
        s.level_wait[j] += s.now - s.waiting_since[j]
    if s.num_starts[j] == 0:
        s.first_start[j] = s.now
    if not s.level_started[j]:
        s.level_started[j] = 1
        s.start_time[j] = s.now
    s.phase[j] = RUNNING
    start_hold(s, w, j, 0)
    s.level_since[j] = s.now
    set_level_time(s, j)


@jit
def migrate(s, w, j):
    """Book a change of nodes or count of running slot ``j``."""
    before = s.held_gpus[j]
    settle_hold(s, j)
    settle_progress(s, j)
    if s.layered and s.modules[j] > 0:
        set_depth(s, j, s.next_depth[j])
    s.num_rescales[j] += 1
    if s.gpus[j] != before:
        s.level_service[j] += s.demand[j] * (s.now - s.level_since[j])
        s.level_since[j] = s.now
    start_hold(s, w, j, before)
    if s.gpus[j] != before:
        set_level_time(s, j)


@jit
def book_saves(s, j):
    """Elastic slot ``j``: note the last checkpoint it has made by ``s.now``."""
    if s.checkpoint > 0 and s.now > s.saved_at[j]:
        count = math.floor((s.now - s.saved_at[j]) / s.checkpoint)
        if count > 0:
            s.saved_at[j] += count * s.checkpoint
            s.saved[j] = s.done[j] + s.rate[j] * (s.saved_at[j] - s.anchor[j])


@jit
def lose_unsaved(s, j):
    """Put slot ``j`` back to its last checkpoint, if it makes any."""
    if s.klass[j] < 0:
        settle_progress(s, j)
        if s.checkpoint > 0:
            s.done[j] = math.floor(s.done[j] / s.checkpoint) * s.checkpoint
    elif s.checkpoint > 0:
        book_saves(s, j)
        s.done[j] = s.saved[j]
    else:
        settle_progress(s, j)


@jit
def preempt(s, j):
    """Book the loss of all devices of running slot ``j``."""
    settle_hold(s, j)
    s.level_service[j] += s.demand[j] * (s.now - s.level_since[j])
    lose_unsaved(s, j)
    if s.rescale_cost == HELIOS and s.klass[j] < 0:  # checkpoint overhead by size: tiresias_gavel_helios.md 2.1
        extra = 7.0 if s.request[j] == 1 else (30.0 if s.request[j] <= 8 else 60.0)
        s.work[j] += extra
        s.target[j] = s.work[j]
        s.extra_work[j] += extra
    s.num_preemptions[j] += 1
    s.demand[j] = s.request[j] * s.share[j] / 1000.0
    s.finish[j] = s.anchor[j] = s.pause_end[j] = s.level_time[j] = math.inf
    s.waiting_since[j] = s.now
    s.phase[j] = WAITING


@jit
def change_rate(s, w, j):
    """Go on at another rate from ``s.now`` on, without a pause: running slot ``j``."""
    if s.klass[j] >= 0:
        book_saves(s, j)
    settle_progress(s, j)
    s.anchor[j] = max(s.anchor[j], s.now)
    set_rate(s, w, j)
    set_finish(s, j)


@jit
def follow_pace(s, w, j):
    """Let running slot ``j`` go on at the pace of its devices as they are now; whether it is another."""
    account(s, j)
    pace = pace_of(s, j)
    if pace == s.pace[j]:
        return False
    change_rate(s, w, j)
    return True


@jit
def change_in_place(s, w, j):
    """Book a change of depth or mode alone of running slot ``j``: a short pause, at whose end it saves as ever."""
    settle_hold(s, j)
    settle_progress(s, j)
    pause = s.resync_pause if s.next_sync[j] != s.sync[j] else 0.0
    if s.layered and s.next_depth[j] != s.depth[j]:
        set_depth(s, j, s.next_depth[j])
        pause = max(pause, s.freeze_pause)
    s.sync[j] = s.next_sync[j]
    s.anchor[j] = s.pause_end[j] = max(s.anchor[j], s.now + pause)
    s.saved[j], s.saved_at[j] = s.done[j], s.anchor[j]
    set_rate(s, w, j)
    set_finish(s, j)


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


@jit_inline
def soonest_finish(s):
    """Earliest finish of a running job."""
    soonest = math.inf
    for i in range(s.num_running):
        soonest = min(soonest, s.finish[s.running[i]])
    return soonest


@jit_inline
def book(s, w, j):
    """Book the net change of touched slot ``j``; what was done."""
    change, now_hash = UNCHANGED, holding_hash(s, j)
    if s.phase[j] == RUNNING:
        if s.gpus[j] == 0:
            preempt(s, j)
            change = STOPPED
        elif s.gpus[j] != s.held_gpus[j] or now_hash != s.held_hash[j]:
            migrate(s, w, j)
            change = MIGRATED
        elif (s.layered and s.next_depth[j] != s.depth[j]) or s.next_sync[j] != s.sync[j]:
            change_in_place(s, w, j)
            change = MIGRATED
        elif s.straggles and follow_pace(s, w, j):  # it may have got other devices on the same nodes
            change = MIGRATED
    elif s.gpus[j] > 0:
        start(s, w, j)
        change = STARTED
    s.held_gpus[j], s.held_hash[j] = s.gpus[j], now_hash
    return change


@jit
def settle_changes(s, w):
    """Book what every touched slot has lost and won, and bring the lists up to date; whether anything changed."""
    any_started, any_stopped, any_migrated = False, False, False
    for i in range(s.num_touched):
        j = s.touched_slots[i]
        s.touched[j] = book(s, w, j)
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
    s.num_touched = 0
    changed = any_started or any_stopped or any_migrated
    if changed and s.interference > 0:
        interfere(s, w)
    if any_stopped or any_migrated:
        s.next_finish = soonest_finish(s)
    return changed


@jit
def commit(s, w, log):
    """End a scheduling pass: book every net change, bring the lists up to date; whether anything changed."""
    if s.deepboot and s.num_services > 0:
        s.unsorted = 1
        if s.reclaim == LYRA:
            strip(s, log)
    changed = settle_changes(s, w)
    s.dirty = 0
    s.num_passes += 1
    return changed


# --- interference ---


@jit
def count_distributed(s):
    """Write to ``scratch_free`` how many jobs of several nodes each node serves."""
    for n in range(s.num_nodes):
        s.scratch_free[n] = 0
    for i in range(s.num_running):
        j = s.running[i]
        if s.num_nodes_held[j] > 1:
            add_on_nodes(s, j)


@jit
def add_on_nodes(s, j):
    """Count slot ``j`` once on each of its nodes (devices of a node follow one another in its list)."""
    g, node = s.first_gpu[j], -1
    while g >= 0:
        if s.gpu_node[g] != node:
            node = s.gpu_node[g]
            s.scratch_free[node] += 1
        g = s.gpu_next[g]


@jit
def is_disturbed(s, j):
    """Whether slot ``j`` of several nodes shares one with another such job (after count_distributed())."""
    g = s.first_gpu[j]
    while g >= 0:
        if s.scratch_free[s.gpu_node[g]] > 1:
            return True
        g = s.gpu_next[g]
    return False


@jit
def interfere(s, w):
    """Slow down the jobs of several nodes that share one, and no others; whether a rate changed."""
    count_distributed(s)
    changed = False
    for i in range(s.num_running):
        j = s.running[i]
        if s.klass[j] < 0:
            continue
        disturbed = s.num_nodes_held[j] > 1 and is_disturbed(s, j)
        factor = 1.0 - s.interference if disturbed else 1.0
        if factor != s.factor[j]:
            s.factor[j] = factor
            change_rate(s, w, j)
            changed = True
    if changed:
        s.next_finish = soonest_finish(s)
    return changed
