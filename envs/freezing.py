"""Frozen layers of a job: what it has of progress by module, what that costs, and changes of depth.

docs/design/004-layers.md, sections 3 and 4. ``depth`` of a slot is the number of its first modules that are frozen;
between changes of it the active modules move with the job's progress and the frozen ones stay, so that the penalty,
and with it the job's speed, is constant.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from envs.jit import jit, jit_inline
from envs.layout import FRONT_NOISE, MAX_MODULES, RUNNING
from envs.rng import Purpose, draw, stream

MOST_PENALTY = 0.95
SAFE = 0.02  # penalty that counts as none where a front is looked for
STOPPED_AT = -1  # less a job's starts: the number of its measurement while it waits
MOST_SHIFT = 4  # modules: with 16 of them 5.6 standard deviations of the noise


def _edges() -> npt.NDArray[np.float64]:
    """(17, 8): a uniform number in [edge k - 1, edge k) is a shift of k - 4 modules, by the modules of a job."""
    halves = np.arange(-MOST_SHIFT, MOST_SHIFT) + 0.5
    return np.asarray(ndtr(halves / (FRONT_NOISE * np.maximum(np.arange(MAX_MODULES + 1), 1))[:, None]))


EDGES = _edges()


@jit
def begin_layers(s, w, row, j):
    """Set the layers of slot ``j`` to those of a job that has not run."""
    job = w.jobs[row]
    s.modules[j], s.max_depth[j] = job.modules, job.max_depth
    s.depth[j] = s.next_depth[j] = s.depth_changes[j] = 0
    s.depth_since[j] = s.penalty[j] = 0.0
    for i in range(job.modules):
        place = i / (job.modules - 1.0)
        s.module_active[j, i] = 0.0
        s.module_end[j, i] = job.first_end + (job.last_end - job.first_end) * place**job.end_shape
    s.front_until[j], s.kept_for[j] = -math.inf, 0
    s.noise_of[j], s.usual_at[j] = stream(s.seed, Purpose.FRONT, job.row), job.usual_at


@jit
def progress(s, j):
    """Share of the work that slot ``j`` began with which it has done, as last settled."""
    return s.done[j] / (s.work[j] - s.extra_work[j])


@jit
def move_modules(s, j):
    """Count the progress of slot ``j`` since the last call, less what it has lost, for its active modules."""
    now = progress(s, j)
    s.front_until[j] = -math.inf
    for i in range(s.depth[j], s.modules[j]):
        s.module_active[j, i] = max(0.0, s.module_active[j, i] + now - s.depth_since[j])
    s.depth_since[j] = now


@jit
def lacking(s, j, i):
    """How far module ``i`` of slot ``j`` is from convergence: 1 untrained, 0 converged."""
    return max(0.0, 1.0 - s.module_active[j, i] / s.module_end[j, i])


@jit
def penalty_at(s, j, depth):
    """Share of progress lost while ``depth`` modules of slot ``j`` are frozen."""
    total = 0.0
    for i in range(depth):
        total += lacking(s, j, i)
    return min(MOST_PENALTY, total / s.modules[j])


@jit
def residual(s, j):
    """Mean of what the modules of slot ``j`` lack."""
    total = 0.0
    for i in range(s.modules[j]):
        total += lacking(s, j, i)
    return total / s.modules[j]


@jit
def set_depth(s, j, depth):
    """Freeze the first ``depth`` modules of slot ``j``, whose progress is settled."""
    move_modules(s, j)
    s.depth_changes[j] += depth != s.depth[j]
    s.depth[j] = s.next_depth[j] = depth
    s.penalty[j] = penalty_at(s, j, depth)


@jit
def catch_up(s, j, most):
    """Least further progress with nothing frozen after which the residual of slot ``j`` is at most ``most``.

    The residual falls as a polygon whose corners are where modules converge.
    """
    at, left = 0.0, residual(s, j)
    while left > most:
        rate, corner = 0.0, math.inf
        for i in range(s.modules[j]):
            missing = s.module_end[j, i] - s.module_active[j, i]
            if missing > at:
                rate += 1.0 / (s.module_end[j, i] * s.modules[j])
                corner = min(corner, missing)
        if corner == math.inf:
            return at
        if left - rate * (corner - at) <= most:
            return at + (left - most) / rate
        left -= rate * (corner - at)
        at = corner
    return at


# --- what schedulers see ---


@jit_inline
def gained(s, j):
    """Progress of slot ``j`` by now since its modules were last counted."""
    done = s.done[j]
    if s.phase[j] == RUNNING:
        done += s.rate[j] * max(0.0, s.now - s.anchor[j])
    return done / (s.work[j] - s.extra_work[j]) - s.depth_since[j]


@jit_inline
def active_by_now(s, j, i, more):
    """Progress that module ``i`` of slot ``j`` has been active for; ``more``: gained()."""
    return max(0.0, s.module_active[j, i] + (more if i >= s.depth[j] else 0.0))


@jit_inline
def front_of(s, j, more):
    """The most modules of slot ``j`` that may be frozen now at a penalty of at most SAFE; ``more``: gained()."""
    if not s.front_from[j] <= more < s.front_until[j]:
        find_front(s, j, more)
    return s.front[j]


@jit
def find_front(s, j, more):
    """Look for the front of slot ``j``, and until when it surely is the same.

    What ends it is the lack of its first module i beyond SAFE in all, and as long as that alone does, nothing changes:
    1 - (c_i + g) / p_i > SAFE K - lack of the frozen ones, where g grows from ``more`` on.
    """
    most, total, frozen, front = SAFE * s.modules[j], 0.0, 0.0, s.max_depth[j]
    s.front_from[j], s.front_until[j] = more, math.inf
    for i in range(s.max_depth[j]):
        total += max(0.0, 1.0 - active_by_now(s, j, i, more) / s.module_end[j, i])
        if i < s.depth[j]:
            frozen = total
        if total > most:
            front = i
            if i >= s.depth[j]:
                until = s.module_end[j, i] * (1.0 - most + frozen) - s.module_active[j, i]
                s.front_until[j] = until - 1e-9  # a lower bound in spite of rounding
            break
    s.front[j] = front


@jit
def turn_of(s):
    """Number of the interval in which schedulers measure now."""
    return int(s.now // (s.interval if s.interval > 0 else 60.0))


@jit_inline
def front_shift(s, j, turn):
    """Noise of the last measurement of the front of slot ``j`` [modules]: normal, rounded; 0 before its first start.

    A job is measured once an interval while it runs, and once more when it stops.
    """
    if s.front_noise == 0.0 or s.num_starts[j] == 0:
        return 0
    at = turn if s.phase[j] == RUNNING else STOPPED_AT - s.num_starts[j]
    share, shift, edges = draw(s.noise_of[j], at), -MOST_SHIFT, EDGES[s.modules[j]]
    for k in range(2 * MOST_SHIFT):
        shift += share >= edges[k]
    return shift


@jit
def seen_front(s, j):
    """The front with the noise of this interval's measurement, if any."""
    return min(max(front_of(s, j, gained(s, j)) + front_shift(s, j, turn_of(s)), 0), s.max_depth[j])


@jit
def seen_penalty(s, w, j, depth):
    """Penalty of ``depth`` frozen modules of slot ``j`` now, if its modules converge when the preset's usually do."""
    job, more, total = w.jobs[s.job_lo + s.job_id[j]], gained(s, j), 0.0
    for i in range(depth):
        end = job.usual_first + (job.usual_last - job.usual_first) * (i / (job.modules - 1.0)) ** job.end_shape
        total += max(0.0, 1.0 - active_by_now(s, j, i, more) / end)
    return min(MOST_PENALTY, total / job.modules)
