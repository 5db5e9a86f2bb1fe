"""Whole runs of the compiled list scheduler: passes, the watchdog, and many windows in one loop."""

from __future__ import annotations

import math

from envs.commit import commit
from envs.dynamics import FINISHED, PASS_DUE, STOPPED, advance, start_window
from envs.evict_pass import evict_pass
from envs.jit import jit
from envs.layout import OK, STALLED
from envs.list_pass import NEVER, count_pass, fill_pass

LOOK_EVERY = 4096  # passes between looks of the watchdog


@jit
def list_pass(s, w, log):
    """One scheduling pass by the record's ordering rule."""
    settled = True
    if not s.preemptive:
        fill_pass(s)
    elif s.num_waiting > 0 or s.deepboot:  # there pods that have come may drive out a job although none waits
        if s.select_by_count:
            settled = count_pass(s, log)
        else:
            evict_pass(s, log)
    changed = commit(s, w, log)
    # A pass that changes nothing would change nothing again, so the next interval may be skipped; one
    # that preempts may leave devices for jobs that it had already passed over.
    s.dirty = not settled or (s.preemptive and changed)


@jit
def work_left(s):
    """Work left of all jobs in slots [s], that of elastic ones in iterations."""
    left = 0.0
    for i in range(s.num_waiting):
        left += s.work[s.waiting[i]] - s.done[s.waiting[i]]
    for i in range(s.num_running):
        j = s.running[i]
        left += s.work[j] - s.done[j] - s.rate[j] * max(0.0, s.now - s.anchor[j])
    return left


@jit
def makes_no_headway(s):
    """Whether nothing arrived, finished or got nearer its end in the last LOOK_EVERY passes at least.

    So it is where jobs take turns that are shorter than the pauses between them.
    """
    s.quiet_passes += 1
    if s.quiet_passes % LOOK_EVERY != 0:
        return False
    left, before = work_left(s), s.quiet_left
    s.quiet_left = left
    return s.quiet_passes > LOOK_EVERY and left >= before


@jit
def run_list(s, w, results, log, until, max_passes):
    """Schedule with the record's ordering rule to ``until`` or for ``max_passes``; as advance() returns."""
    for _ in range(max_passes):
        code = advance(s, w, results, log, until)
        if code != PASS_DUE:
            return code
        list_pass(s, w, log)
        if s.status != OK:
            return STOPPED
        if makes_no_headway(s):
            s.status = STALLED
            return STOPPED
    return PASS_DUE


@jit
def run_windows(states, w, results, log, starts):
    """run_list() on windows of ``results.shape[1]`` jobs, each on the empty cluster; the first that stalls, or -1."""
    s = states[0]
    for row in range(starts.shape[0]):
        lo = starts[row]
        start_window(s, lo, min(lo + results.shape[1], w.jobs.shape[0]), w.jobs[lo].arrival)
        if run_list(s, w, results[row], log, math.inf, NEVER) != FINISHED:
            return row
    return -1
