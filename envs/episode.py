"""One environment's episode: begin, step, reward. Compiled, over one record.

Time advances only on a commit. A pass at which no job waits is skipped if all jobs are rigid: then there is
nothing to gain by stopping a job for nobody. With elastic jobs every pass counts before which something happened.
"""

from __future__ import annotations

import math

from envs.actions import COMMIT, apply_edit, fill_mask
from envs.clock import next_multiple
from envs.commit import commit
from envs.dynamics import FINISHED, PASS_DUE, REACHED, advance, start_window
from envs.jit import jit
from envs.layout import FREE, OK, RUNNING, STALLED, UNFINISHED
from envs.observe import fill_observation, refresh_observation
from envs.pace import account
from envs.pods import close_accounts
from envs.rng import Purpose, uniform
from envs.serving import serve

# What the reward integrates.
JOB_TIME, TIME, NOTHING = 0, 1, 2
# What a step led to.
RUNNING_ON, TERMINATED, TRUNCATED, INVALID_ACTION, HALTED = 0, 1, 2, 3, 4
COMMITTED = -1  # instead of the slot that a step has edited
IDLE_S = 60.0  # how far the clock moves when jobs wait, nothing runs and nothing will happen


@jit
def draw_window(s, windows):
    """Start of this episode's window, a pure function of the seed and the number of the episode."""
    pick = int(uniform(s.seed, Purpose.WINDOW, s.episode, 0) * windows.shape[0])
    return windows[pick]


@jit
def clear_results(results):
    """Forget the jobs of the window before."""
    for i in range(results.shape[0]):
        row = results[i]
        row.first_start = row.finish = row.queueing_delay = math.nan
        row.service = row.paused_gpu_s = 0.0
        row.num_rescales = row.num_preemptions = row.warm = row.depth_changes = 0
        row.residual = row.lost_gpu_s = row.straggling_gpu_s = row.slowed_s = 0.0
        row.status = UNFINISHED


@jit
def find_stop(w, start, settings):
    """One past the last row of the window at ``start``: ``length`` training jobs and the tasks that arrive among them.

    In a trace without training jobs, ``length`` tasks.
    """
    stop, found = start, 0
    while stop < w.jobs.shape[0]:
        found += w.jobs[stop].service < 0 or not settings.has_training
        if found > settings.length:
            break
        stop += 1
    return stop


@jit
def begin_episode(s, w, results, log, start, settings):
    """Start the window at row ``start`` and run to the first pass; as run_to_pass().

    ``settings`` (a record of envs/batch.py): ``length`` of the window; ``horizon`` [s] and ``scale``, or 0 for
    the bound and the divisor that the window implies; ``own_clock``: the trace's times are kept; ``has_training``.
    """
    stop = find_stop(w, start, settings)
    clear_results(results)
    start_window(s, start, stop, 0.0 if settings.own_clock else w.jobs[start].arrival)
    s.last_window, s.window = s.window, start
    s.episode += 1
    work, serving = 0.0, 0.0
    for i in range(start, stop):
        work += w.jobs[i].serial_s
        if w.jobs[i].service >= 0:
            serving += w.jobs[i].start_up + w.jobs[i].work
    # One job after another would be done by then, even with a pause each.
    waits = max(60.0, s.interval) + max(s.rescale_pause, w.jobs[start].longest_pause)
    bound = w.jobs[stop - 1].arrival - s.origin + work + serving + (stop - start) * waits
    s.horizon = settings.horizon if settings.horizon > 0 else bound
    s.reward_scale = settings.scale if settings.scale > 0 else max(work, 1.0)
    s.rewarded = 0.0
    s.needs_reset = 0
    return run_to_pass(s, w, results, log)


@jit
def integrate_to(s, t):
    """Move the clock to ``t`` although nothing happens there."""
    s.jct_integral += s.num_unfinished * (t - s.last_event)
    s.now = s.last_event = t


@jit
def write_unfinished(s, w, results):
    """Write the result rows of the jobs that the horizon leaves unfinished."""
    for j in range(s.num_slots):
        if s.phase[j] == FREE:
            continue
        row = results[s.job_id[j]]
        row.first_start = s.first_start[j]
        row.queueing_delay, row.service, row.paused_gpu_s = s.queueing_delay[j], s.service[j], s.paused_gpu_s[j]
        row.num_rescales, row.num_preemptions = s.num_rescales[j], s.num_preemptions[j]
        row.depth_changes = s.depth_changes[j]
        row.lost_gpu_s, row.straggling_gpu_s, row.slowed_s = s.lost_gpu_s[j], s.straggling_gpu_s[j], s.slowed_s[j]
        if s.phase[j] == RUNNING:
            row.service += s.demand[j] * (s.now - s.held_since[j])
            row.paused_gpu_s += s.demand[j] * max(0.0, min(s.now, s.pause_end[j]) - s.held_since[j])
        else:
            row.queueing_delay += s.now - s.waiting_since[j]
    for i in range(s.next_admit, s.next_job):
        if w.jobs[i].fits:
            results[i - s.job_lo].queueing_delay = s.now - (w.jobs[i].arrival - s.origin)


@jit
def account_running(s):
    """Bring the accounts of what stragglers cost up to date."""
    for i in range(s.num_running):
        account(s, s.running[i])


@jit
def truncate(s, w, results):
    """End the episode at the horizon."""
    integrate_to(s, s.horizon)
    if s.straggles:
        account_running(s)
    write_unfinished(s, w, results)
    close_accounts(s)
    return TRUNCATED


@jit
def run_to_pass(s, w, results, log):
    """Advance to the next pass that matters; RUNNING_ON, TERMINATED, TRUNCATED or HALTED."""
    while True:
        code = advance(s, w, results, log, s.horizon)
        if code == PASS_DUE:
            if s.num_waiting > 0 or (s.has_elastic and s.num_running > 0):
                s.edits_left = s.edit_budget
                return RUNNING_ON
            commit(s, w, log)
        elif code == FINISHED:
            return TERMINATED
        elif code == REACHED:
            return truncate(s, w, results)
        elif s.status == STALLED and s.num_running == 0:
            s.status = OK
            t = s.now + IDLE_S if s.interval == 0 else next_multiple(s.now, s.interval)
            if t >= s.horizon:
                return truncate(s, w, results)
            integrate_to(s, t)
            if s.num_queued > 0:  # an edit may have freed a device
                serve(s, w, log)
            s.edits_left = s.edit_budget
            return RUNNING_ON
        else:
            return HALTED


@jit
def take_reward(s):
    """Reward since the last one: minus the increase of the objective's integral, scaled."""
    integral = s.jct_integral if s.objective == JOB_TIME else (s.now if s.objective == TIME else 0.0)
    integral += s.late_penalty * s.num_late + s.residual_penalty * s.lacked_s
    reward = -(integral - s.rewarded) / s.reward_scale
    s.rewarded = integral
    return reward


@jit
def step_episode(s, w, results, log, mask, action):
    """Take one action; what it led to, and the slot or SERVICE that it edited, or COMMITTED.

    Nothing changes on INVALID_ACTION.
    """
    if action < 0 or action >= mask.shape[0] or not mask[action]:
        return INVALID_ACTION, COMMITTED
    if action != COMMIT:
        slot = apply_edit(s, action, log)
        s.edits_left -= 1
        if s.edits_left > 0:
            return RUNNING_ON, slot
    commit(s, w, log)
    return run_to_pass(s, w, results, log), COMMITTED


@jit
def observe(s, w, obs, mask, width, slot):
    """Write observation and mask; after an edit of ``slot`` only what it changed."""
    if slot >= 0:
        refresh_observation(s, w, obs, width, slot)
    else:
        fill_observation(s, w, obs, width)
    fill_mask(s, mask)
