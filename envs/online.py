"""What a job learns from its own runs, and the batch it then chooses: docs/design/002-elastic.md, section 6.

Used under ``knowledge online`` only. A job keeps what it has observed in its slot; the fit is made when it is asked
for, since most schedulers of fixed batches never ask.
"""

from __future__ import annotations

from envs.jit import jit
from envs.layout import MAX_POINTS, MAX_REPLICAS
from envs.online_fit import fit, predict
from envs.rates import gain, gradients, option_place, total_batch, type_held
from envs.tables import FIRST_RUN


@jit
def is_new(s, j, nodes, gpus, local):
    """Whether slot ``j`` has not been observed at these nodes, GPUs and micro-batch."""
    for i in range(s.num_points[j]):
        point = s.points[j, i]
        if point[0] == nodes and point[1] == gpus and point[2] == local:
            return False
    return True


@jit
def observe_run(s, w, j):
    """Note what running slot ``j`` has just been seen to do: times if they are new, and gradients."""
    place, at = option_place(s, w, j)
    row = w.classes[s.klass[j]]
    nodes, gpus, local = s.num_nodes_held[j], s.gpus[j], w.ints[row.run_local_at + place]
    if s.num_points[j] < MAX_POINTS and is_new(s, j, nodes, gpus, local):
        point = s.points[j, s.num_points[j]]
        point[0], point[1], point[2] = nodes, gpus, local
        point[3], point[4] = w.floats[row.grad_at + at], w.floats[row.step_at + at]
        s.num_points[j] += 1
        s.stale[j] = 1
        s.profiled[j] = max(s.profiled[j], gpus)
    s.seen_sqr[j], s.seen_var[j] = gradients(w, s.klass[j], s.epoch[j], total_batch(s, w, j))


@jit
def refit(s, j):
    """Fit the throughput of slot ``j`` to its observations, if they have changed."""
    if s.stale[j]:
        fit(s.points[j], s.num_points[j], s.fitted[j], s.fit_scratch)
        s.stale[j] = 0


@jit
def option_goodput(s, w, j, place, several, gpus):
    """Speed of slot ``j`` with the option at ``place`` by its fit [iterations at M0 per s]; 0: not possible."""
    row = w.classes[s.klass[j]]
    local, accum = w.ints[row.local_at + place], w.ints[row.accum_at + place]
    if local == 0:
        return 0.0
    grad, step = predict(s.fitted[j], several, gpus, float(local))
    scale = gpus * local * (accum + 1) / row.init_batch
    return gain(s.seen_sqr[j], s.seen_var[j], scale) / (accum * grad + step)


@jit
def best_option(s, w, j, t, several, gpus):
    """(option, speed) of slot ``j`` that is best by its fit, on GPUs of type ``t``."""
    row = w.classes[s.klass[j]]
    first = (t * (MAX_REPLICAS + 1) + gpus) * row.num_options
    best, most = 0, 0.0
    for o in range(min(row.num_options, FIRST_RUN)):
        speed = option_goodput(s, w, j, first + o, several, gpus)
        if speed > most:
            best, most = o, speed
    return best, most


@jit
def choose_batch(s, w, j):
    """Choose the batch of running slot ``j``, whose class may tune it; whether it is another one than before."""
    row = w.classes[s.klass[j]]
    before = s.option[j]
    if row.num_options == 1:
        s.option[j] = 0
    elif s.num_points[j] == 0:
        s.option[j] = FIRST_RUN
    else:
        refit(s, j)
        option, speed = best_option(s, w, j, type_held(s, j), 1 if s.num_nodes_held[j] > 1 else 0, s.gpus[j])
        s.option[j] = option if speed > 0 else FIRST_RUN
    return s.option[j] != before


@jit
def fitted_goodput(s, w, j, t, several, gpus):
    """What slot ``j``'s fit says of its speed on ``gpus`` GPUs of type ``t``; 0: it has not been observed."""
    if s.num_points[j] == 0:
        return 0.0
    refit(s, j)
    return best_option(s, w, j, t, several, gpus)[1]


@jit
def write_goodput(s, w, j, t, most, out):
    """Write what slot ``j``'s fit says of its speed on GPUs of type ``t`` to ``out`` (2, 65); 0: impossible."""
    for several in range(2):
        for gpus in range(MAX_REPLICAS + 1):
            out[several, gpus] = fitted_goodput(s, w, j, t, several, gpus) if 0 < gpus <= most else 0.0
