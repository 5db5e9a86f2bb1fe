"""How one cluster moves from event to event: docs/design/001-core.md, sections 1, 2 and 6.

Progress is stored as (work done at an anchor, anchor, finish) and rewritten only when a job's
holding changes, so results do not depend on how the clock is advanced.
"""

from __future__ import annotations

import math

from envs.clock import is_multiple, next_multiple
from envs.commit import (
    change_rate,
    insert_waiting,
    interfere,
    keep_phase,
    set_finish,
    settle_hold,
    soonest_finish,
)
from envs.devices import release
from envs.failures import first_toggles, toggle_due
from envs.freezing import begin_layers, catch_up, move_modules, residual, set_depth
from envs.jit import jit, jit_inline
from envs.layout import COMPLETED, FREE, LOG_FULL, OK, REJECTED, RUNNING, SLOTS_FULL, STALLED, WAITING
from envs.levels import cross_levels, promote_due, promotion_time, set_entries
from envs.online import choose_batch, observe_run
from envs.order import Key
from envs.pods import clear_pods, close_accounts, pods_due, queue_task
from envs.rates import set_rate
from envs.serving import next_tick, serve, tick_due
from envs.straggler_presets import GPU
from envs.stragglers import begin_stragglers, straggle_until

# What advance() returns.
REACHED, PASS_DUE, FINISHED, STOPPED = 0, 1, 2, 3


@jit
def start_window(s, lo, hi, origin):
    """Empty the cluster and set the clock to 0 before rows ``lo`` .. ``hi - 1`` of the job table."""
    s.now = s.last_event = s.jct_integral = s.lacked_s = 0.0
    s.quiet_passes = s.status = s.rounds = s.num_events = s.num_passes = s.pass_index = s.dirty = s.log_len = 0
    s.job_lo, s.job_hi, s.next_job, s.next_admit, s.origin = lo, hi, lo, lo, origin
    s.num_unfinished = s.num_completed = s.num_rejected = 0
    s.num_running = s.num_waiting = s.num_touched = s.settled = 0
    s.next_finish = math.inf
    s.num_free_slots = s.num_slots
    for j in range(s.num_slots):
        s.free_slots[j] = s.num_slots - 1 - j  # a stack: slot 0 is taken first
        s.phase[j], s.job_id[j], s.first_gpu[j], s.gpus[j], s.touched[j] = FREE, -1, -1, 0, 0
    for g in range(s.num_gpus):
        s.gpu_holder[g], s.gpu_next[g], s.gpu_free_milli[g] = -1, -1, 1000
    for n in range(s.num_nodes):
        s.node_free[n] = s.node_gpus[n]
    for t in range(s.num_types):
        s.type_free[t] = s.type_up[t] = s.type_gpus[t]
    first_toggles(s)
    clear_pods(s)
    if s.straggles:
        begin_stragglers(s)


# --- arrivals ---


@jit
def clear_slot(s, j, arrival):
    """Set the history of slot ``j`` to that of a job that arrives now."""
    s.arrival[j] = s.waiting_since[j] = s.enter_time[j] = s.held_since[j] = s.start_time[j] = arrival
    s.extra_work[j] = s.done[j] = s.service[j] = s.paused_gpu_s[j] = s.queueing_delay[j] = 0.0
    s.level_service[j] = s.level_wait[j] = 0.0
    s.finish[j] = s.anchor[j] = s.pause_end[j] = s.level_time[j] = math.inf
    s.first_start[j] = math.nan
    s.rate[j] = s.factor[j] = 1.0
    s.epoch[j] = s.option[j] = s.profiled[j] = s.num_points[j] = s.stale[j] = s.yields[j] = 0
    s.saved[j] = s.saved_at[j] = s.seen_sqr[j] = s.seen_var[j] = 0.0
    s.num_starts[j] = s.num_rescales[j] = s.num_preemptions[j] = s.level[j] = s.level_started[j] = 0
    s.gpus[j] = s.node_hash[j] = s.num_nodes_held[j] = s.held_gpus[j] = s.held_hash[j] = 0
    s.depth[j], s.penalty[j] = 0, 0.0
    s.pace[j], s.noise_ratio[j] = 1.0, math.inf
    s.sync[j] = s.next_sync[j] = s.first_sync
    s.straggling[j] = 0
    s.accounted[j] = s.lost_gpu_s[j] = s.straggling_gpu_s[j] = s.slowed_s[j] = 0.0
    s.first_gpu[j] = -1


@jit
def reject(s, results, row):
    """Book that the job of row ``row``, which could never run, is turned away on arrival."""
    s.num_rejected += 1
    results[row - s.job_lo].status = REJECTED
    results[row - s.job_lo].queueing_delay = 0.0


@jit
def admit(s, w, row):
    """Give row ``row`` of the job table a slot."""
    s.num_free_slots -= 1
    j = s.free_slots[s.num_free_slots]
    job = w.jobs[row]
    s.job_id[j] = row - s.job_lo
    s.request[j], s.share[j], s.gpu_type[j], s.pinned[j] = job.num_gpus, job.share_milli, job.gpu_type, job.pinned
    s.demand[j] = job.num_gpus * job.share_milli / 1000.0
    s.estimate[j], s.work[j], s.klass[j], s.max_gpus[j] = job.estimate, job.work, job.klass, job.max_gpus
    s.target[j] = job.work if job.klass < 0 else w.floats[w.classes[job.klass].progress_at]
    clear_slot(s, j, job.arrival - s.origin)
    if s.layered:
        begin_layers(s, w, row, j)
    if s.straggles:
        s.backup[j], s.comm[j], s.speed_class[j] = job.backup, job.comm, job.speed_class
        for kind in range(GPU):
            s.kappa[j, kind] = job.kappa[kind]
    s.phase[j] = WAITING
    insert_waiting(s, j)


@jit_inline
def admit_due(s, w, results):
    """Let everything arrive that is due; whether something did. Stops with SLOTS_FULL for want of a slot."""
    happened = False
    while s.next_job < s.job_hi and w.jobs[s.next_job].arrival - s.origin <= s.now:
        if w.jobs[s.next_job].service >= 0:
            queue_task(s, w, s.next_job)
            s.next_job += 1
            continue
        if not w.jobs[s.next_job].fits:
            reject(s, results, s.next_job)
        elif s.num_free_slots == 0 and not s.backlog_allowed:
            s.status = SLOTS_FULL
            return happened
        else:
            s.num_unfinished += 1
            if not s.backlog_allowed:
                admit(s, w, s.next_job)
        s.next_job += 1
        happened = True
    if s.backlog_allowed:
        while s.next_admit < s.next_job and (s.num_free_slots > 0 or not w.jobs[s.next_admit].fits):
            if w.jobs[s.next_admit].fits:
                admit(s, w, s.next_admit)
                happened = True
            s.next_admit += 1
    else:
        s.next_admit = s.next_job
    return happened


# --- completions ---


@jit
def complete(s, w, j, results, log):
    """Finish slot ``j``, write its result row, free its devices and the slot."""
    settle_hold(s, j)
    release(s, j, log)
    row = results[s.job_id[j]]
    row.first_start = s.first_start[j]
    row.finish = s.finish[j]
    row.queueing_delay = s.queueing_delay[j]
    row.service = s.service[j]
    row.paused_gpu_s = s.paused_gpu_s[j]
    row.num_rescales = s.num_rescales[j]
    row.num_preemptions = s.num_preemptions[j]
    row.lost_gpu_s, row.straggling_gpu_s, row.slowed_s = s.lost_gpu_s[j], s.straggling_gpu_s[j], s.slowed_s[j]
    if s.layered and s.modules[j] > 0:
        row.residual, row.depth_changes = residual(s, j), s.depth_changes[j]
        s.lacked_s += row.residual * w.jobs[s.job_lo + s.job_id[j]].isolated_s
    row.status = COMPLETED
    s.num_completed += 1
    s.num_unfinished -= 1
    s.phase[j], s.job_id[j], s.touched[j] = FREE, -1, 0
    s.num_touched = 0  # completions happen between passes: only this slot is listed
    s.free_slots[s.num_free_slots] = j
    s.num_free_slots += 1


@jit_inline
def next_epoch(s, w, j):
    """Let elastic slot ``j``, which has ended an epoch, go on with the next."""
    row = w.classes[s.klass[j]]
    s.done[j], s.anchor[j] = s.target[j], s.finish[j]
    s.saved[j], s.saved_at[j] = s.done[j], s.anchor[j]
    if s.online:
        observe_run(s, w, j)
        if s.tuned:
            choose_batch(s, w, j)
    s.epoch[j] += 1
    s.target[j] = w.floats[row.progress_at + s.epoch[j]]
    set_rate(s, w, j)
    set_finish(s, j)


@jit
def goes_on(s, w, j):
    """Whether slot ``j``, whose work is done, trains on with nothing frozen because its layers lack too much."""
    s.done[j] = s.target[j]
    move_modules(s, j)
    more = 0.0 if s.extra_work[j] > 0 else catch_up(s, j, s.most_residual)  # once is enough: nothing is frozen then
    if not more > 0:
        return False
    s.anchor[j] = s.finish[j]
    s.saved[j], s.saved_at[j] = s.done[j], s.anchor[j]
    more *= s.work[j] - s.extra_work[j]
    s.extra_work[j] += more
    s.work[j] += more
    s.target[j] = s.work[j]
    set_depth(s, j, 0)
    s.max_depth[j] = 0  # else it might never end
    set_rate(s, w, j)
    set_finish(s, j)
    return True


@jit_inline
def complete_due(s, w, results, log):
    """End every epoch and every running job whose time has come; (a job completed, an epoch ended)."""
    if s.next_finish > s.now:
        return False, False
    completed, ended = False, False
    for i in range(s.num_running):
        j = s.running[i]
        while s.finish[j] <= s.now and s.klass[j] >= 0 and s.target[j] < s.work[j]:
            next_epoch(s, w, j)
            ended = True
        if s.finish[j] <= s.now and s.layered and s.modules[j] > 0 and goes_on(s, w, j):
            continue
        if s.finish[j] <= s.now:
            complete(s, w, j, results, log)
            completed = True
    if completed:
        s.num_running = keep_phase(s, s.running, s.num_running, RUNNING)
    s.next_finish = soonest_finish(s)
    return completed, ended


@jit
def look_at_runs(s, w):
    """Knowledge online: let every job that has progressed learn from it, and choose its batch again."""
    changed = False
    for i in range(s.num_running):
        j = s.running[i]
        if s.klass[j] >= 0 and s.now > s.anchor[j]:
            observe_run(s, w, j)
            if s.tuned and choose_batch(s, w, j):
                change_rate(s, w, j)
                changed = True
    if changed:
        s.next_finish = soonest_finish(s)


# --- inference ---


@jit
def run_inference(s, w, results, arrived, log):
    """Let pods whose time has come move on, and serve the tasks that wait; whether training lost or may win devices."""
    freed, done = pods_due(s, w, results, log)
    if s.deepboot:
        if not (arrived or done or (s.now == math.floor(s.now) and tick_due(s))):
            return freed
        if s.online:
            look_at_runs(s, w)
    lost = serve(s, w, log)
    return freed or lost or s.deepboot > 0


# --- the clock ---


@jit_inline
def next_pass_time(s):
    """Time of the next pass that the clock alone makes due; inf: none."""
    t = math.inf
    if s.interval > 0 and s.num_unfinished > 0 and (s.dirty or not s.skip_idle):
        t = s.pass_index * s.interval
    if s.quantum > 0 and s.event_driven and s.num_waiting > 0:
        t = min(t, next_multiple(s.now, s.quantum))
    return t


@jit_inline
def next_event_time(s, w):
    """Time of the next event; inf: none. Level crossings count only while a job waits."""
    t = min(next_pass_time(s), s.next_finish)
    if s.num_services > 0:
        t = min(t, s.next_pod)
        if s.deepboot:
            t = min(t, next_tick(s))
    if s.next_job < s.job_hi:
        t = min(t, w.jobs[s.next_job].arrival - s.origin)
    if s.mtbf > 0 and s.num_unfinished > 0:
        t = min(t, s.next_toggle)
    if s.num_waiting > 0 and s.num_limits > 0:
        for i in range(s.num_running):
            t = min(t, s.level_time[s.running[i]])
        if s.promote > 0:
            for i in range(s.num_waiting):
                t = min(t, promotion_time(s, s.waiting[i]))
    return max(t, s.now)


@jit_inline
def note_change(s):
    """Something happened at ``s.now``: the next interval pass at or after it is needed."""
    s.dirty = 1
    if s.interval > 0:
        index = math.floor(s.now / s.interval)
        if index * s.interval < s.now:
            index += 1
        s.pass_index = max(s.pass_index, int(index))


@jit_inline
def pass_due(s, happened):
    """Whether a scheduling pass is due at ``s.now``; books the interval pass as held."""
    due = happened and s.event_driven
    if s.quantum > 0 and s.event_driven and s.num_waiting > 0:
        due |= is_multiple(s.now, s.quantum)
    if s.interval > 0 and s.num_unfinished > 0 and s.pass_index * s.interval <= s.now:
        if s.dirty or not s.skip_idle:
            due = True
        s.pass_index += 1
    return due


@jit_inline
def handle_instant(s, w, results, log):
    """Handle everything that happens at ``s.now`` up to the scheduling pass; whether a pass is due."""
    s.num_events += 1
    s.jct_integral += s.num_unfinished * (s.now - s.last_event)
    s.rounds = s.rounds + 1 if s.now == s.last_event else 0
    s.last_event = s.now
    completed, ended = complete_due(s, w, results, log)
    failed = s.mtbf > 0 and s.next_toggle <= s.now
    crossed = s.num_limits > 0 and cross_levels(s) and s.num_waiting > 0
    if failed:
        if s.order_key == Key.QUEUE:
            set_entries(s)
        toggle_due(s, w, log)
    if s.interference > 0 and (completed or failed):
        interfere(s, w)
    first = s.next_job
    arrived = admit_due(s, w, results)
    if completed or arrived:
        s.quiet_passes = 0
    happened = completed or failed or arrived or crossed
    if s.num_services > 0 and s.status == OK:  # else the rest of this instant is still to arrive
        happened |= run_inference(s, w, results, s.next_job > first, log)
    if s.promote > 0:
        happened |= promote_due(s)
    if happened or (ended and s.epochs_count):
        note_change(s)
    if s.status != OK:
        return False
    return pass_due(s, happened)


@jit
def advance(s, w, results, log, until):
    """Move to the next scheduling pass, or to ``until`` if none is due up to then.

    Returns PASS_DUE, REACHED, FINISHED (nothing is left to do) or STOPPED (see ``s.status``).
    """
    while True:
        if s.next_job == s.job_hi and s.num_unfinished == 0 and s.tasks_open == 0:
            close_accounts(s)
            return FINISHED
        if log.shape[0] > 0 and log.shape[0] - s.log_len < 2 * s.num_gpus + s.num_running:
            s.status = LOG_FULL
            return STOPPED
        t = next_event_time(s, w)
        if t == math.inf or s.rounds > 64 + 8 * (s.num_slots + s.job_hi - s.job_lo):
            s.status = STALLED
            return STOPPED
        if s.straggles and s.next_straggle <= min(t, until):
            straggle_until(s, w, min(t, until))
            continue
        if t > until:
            s.now = max(s.now, until)
            return REACHED
        s.now = t
        if handle_instant(s, w, results, log):
            if s.order_key == Key.QUEUE:
                set_entries(s)
            if s.online:
                look_at_runs(s, w)
            return PASS_DUE
        if s.status != OK:
            return STOPPED
