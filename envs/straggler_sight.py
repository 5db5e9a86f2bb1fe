"""What schedulers see of stragglers: probabilities, measured loads, ratios of times, and what a detector flags.

docs/design/005-stragglers.md, section 6. Readings are taken at the first look in each turn of TURN_S and stand until
the first look in another. Only mode oracle shows hidden states; noisy shows what follows from them through
noise (envs/straggler_calibration.py).

Random numbers: uniform(seed, SIGHT, 2 node + cause, 8 turn + i), of which i = 0 and 1 make the innovation of the noise
of probabilities, 2 says whether a reading is lost, 3 and 4 make the noise of the ratio of times, 5 and 6 that of the
load; uniform(seed, SIGHT, -1 - job, 8 turn + i), 0 and 1, that of its slowdown. uniform(seed, DETECTION, 2 node +
cause, 8 turn) says whether there is a false alarm, uniform(seed, DETECTION, -1 - (4 index + kind), candidate) whether
the episode is missed that a candidate of a component began. So noise is a function of what is read and of the turn
alone. What depends on the turns looked at: ratios, which looks update, and what stands in place of lost readings.
"""

from __future__ import annotations

import math

from envs.devices import WHOLE
from envs.jit import jit, jit_inline
from envs.layout import EWMA, HOLDER_SHARED, NOISY, ORACLE, RUNNING
from envs.pace import link_factor, worker_factor
from envs.rng import Purpose, draw, stream, uniform
from envs.straggler_calibration import KNOT_STEP, LEAST_P, MOST_LOGIT
from envs.straggler_load import gauss, gpu_hazard_share, hazard_share, load_of
from envs.straggler_odds import occurrence, stay
from envs.straggler_presets import CPU, GPU, HORIZONS_S, IO, NET, TURN_S

COMPUTE, NETWORK = 0, 1
CAUSES = ("compute", "network")
NOISE_KEPT = 0.5 ** (1 / 6)  # of the noise of probabilities, from turn to turn
NOISE_NEW = math.sqrt(1.0 - NOISE_KEPT**2)
LOST = 0.05  # of the readings of noisy probabilities
RATIO_KEPT, RATIO_NOISE = 0.8, 0.01
EXCESS_KEPT = 0.5 ** (1 / 12)  # of the ratio less 1, from turn to turn while nothing runs there
SURE_EXCESS = 0.2  # the ratio less 1 that mode ewma takes for certain
LOAD_NOISE = 0.05
SLOWDOWN_NOISE, SLOWDOWN_NOISE_APART = 0.01, 0.02  # on one node, on several
DETECTED_S, DETECTED = 10.0, 1.1  # how long and how slow what is detected has to be
MISSED, MISSED_GOOD = 0.12, 0.02  # episodes (Greyhound, table of detectors)
FALSE_ALARM, FALSE_ALARM_GOOD = 0.015, 0.0  # turns


@jit_inline
def turn_now(s):
    """Number of the present turn."""
    return int(s.now // TURN_S)


@jit
def look(s):
    """Bring all readings up to the present turn, if they are older."""
    turn = turn_now(s)
    if turn == s.seen_turn:
        return
    observe_workers(s)
    for n in range(s.num_nodes):
        for cause in range(2):
            numbers = stream(s.seed, Purpose.SIGHT, 2 * n + cause)
            read_ratio(s, n, cause, numbers, turn)  # before the load, whose place holds what was observed
            noise = 1.0 + LOAD_NOISE * gauss(draw(numbers, 8 * turn + 5), draw(numbers, 8 * turn + 6))
            s.node_load[n, cause] = load_of(s, n, NET if cause == NETWORK else CPU) * noise
            read_odds(s, n, cause, numbers, turn)
    s.seen_turn = turn


# --- ratios of observed to expected times ---


@jit
def observe_workers(s):
    """Write the largest factor of any worker at each node and cause to ``s.node_load``, where 0 means there is none."""
    for n in range(s.num_nodes):
        s.node_load[n, COMPUTE] = s.node_load[n, NETWORK] = 0.0
    for i in range(s.num_running):
        j = s.running[i]
        g = s.first_gpu[j]
        while g >= 0:
            n = s.gpu_node[g]
            factor = worker_factor(s, j, g) / s.gpu_speed[g, s.speed_class[j]]
            s.node_load[n, COMPUTE] = max(s.node_load[n, COMPUTE], factor)
            if s.num_nodes_held[j] > 1:
                s.node_load[n, NETWORK] = max(s.node_load[n, NETWORK], link_factor(s, j, n))
            g = s.gpu_next[g] if s.share[j] == WHOLE else -1


@jit_inline
def read_ratio(s, n, cause, numbers, turn):
    """Smooth what observe_workers() has found at a node and cause, or let the ratio fade to 1 for want of workers."""
    if s.seen_turn < 0:
        s.node_ratio[n, cause] = 1.0
    observed, ratio = s.node_load[n, cause], s.node_ratio[n, cause]
    if observed > 0:
        observed *= 1.0 + RATIO_NOISE * gauss(draw(numbers, 8 * turn + 3), draw(numbers, 8 * turn + 4))
        s.node_ratio[n, cause] = RATIO_KEPT * ratio + (1.0 - RATIO_KEPT) * observed
    else:
        s.node_ratio[n, cause] = 1.0 + (ratio - 1.0) * EXCESS_KEPT ** (turn - s.seen_turn)


# --- probabilities ---


@jit_inline
def count_component(s, c, kind, share, odds):
    """Multiply ``odds`` (2,), by horizon that nothing straggles, by those of component ``c`` at a share of its rate."""
    staying = 0.0
    if s.onset[c] > -math.inf:
        staying = stay(s.now - s.onset[c], s.episode_s[kind], s.episode_log_sd[kind], s.fixed_times == 1)
    for h in range(2):
        odds[h] *= 1.0 - occurrence(s.comp_rate[c] * share, staying, HORIZONS_S[h])


@jit
def true_odds(s, n, cause, odds):
    """Write the probabilities of straggling at a node and cause to ``odds`` (2,), by horizon."""
    odds[0] = odds[1] = 1.0
    if cause == NETWORK:
        count_component(s, GPU * n + NET, NET, hazard_share(s, n, NET), odds)
    else:
        count_component(s, GPU * n + CPU, CPU, hazard_share(s, n, CPU), odds)
        count_component(s, GPU * n + IO, IO, hazard_share(s, n, IO), odds)
        for i in range(s.node_gpus[n]):
            g = s.node_first[n] + i
            count_component(s, GPU * s.num_nodes + g, GPU, gpu_hazard_share(s, g), odds)
    for h in range(2):
        odds[h] = 1.0 - odds[h]


@jit
def move_noise(s, n, cause, numbers, turn):
    """The noise at a node and cause in ``turn``: a stationary AR(1) that makes each step since the last look."""
    error = s.sight_error[n, cause]
    for t in range(s.seen_turn + 1, turn + 1):
        new = gauss(draw(numbers, 8 * t), draw(numbers, 8 * t + 1))
        error = NOISE_KEPT * error + NOISE_NEW * new if t > 0 else new
    s.sight_error[n, cause] = error
    return error


@jit_inline
def blur(p, shift, forecasts):
    """Forecast of probability ``p`` if its logit is known up to ``shift``; ``forecasts`` (113,) by KNOTS of the sum."""
    p = min(max(p, LEAST_P), 1.0 - LEAST_P)
    z = min(max(math.log(p / (1.0 - p)) + shift, -MOST_LOGIT), MOST_LOGIT)
    place = (z + MOST_LOGIT) / KNOT_STEP
    k = min(int(place), len(forecasts) - 2)
    return forecasts[k] + (place - k) * (forecasts[k + 1] - forecasts[k])


@jit
def read_odds(s, n, cause, numbers, turn):
    """Take the readings of a node and cause; the first that is lost, and without sight any, is the usual one."""
    odds = s.seen_p[n, cause]
    if s.seen_turn < 0:
        for h in range(2):
            odds[h] = s.usual_p[cause, h]
    if s.sight == ORACLE:
        true_odds(s, n, cause, odds)
    elif s.sight == EWMA:
        odds[0] = odds[1] = min(max((s.node_ratio[n, cause] - 1.0) / SURE_EXCESS, 0.0), 1.0)
    elif s.sight == NOISY:
        shift = s.sight_noise * move_noise(s, n, cause, numbers, turn)
        if draw(numbers, 8 * turn + 2) >= LOST:
            true_odds(s, n, cause, odds)
            for h in range(2):
                odds[h] = blur(odds[h], shift, s.forecasts[cause, h])


# --- what is noticed at once ---


@jit
def alarmed(s, n, cause):
    """Whether the detector takes a node and cause for slow in this turn without any reason."""
    share = FALSE_ALARM_GOOD if s.good_detector else FALSE_ALARM
    return uniform(s.seed, Purpose.DETECTION, 2 * n + cause, 8 * turn_now(s)) < share


@jit
def noticed(s, c, kind, index):
    """Whether component ``c`` of a node or device ``index`` is so slow for so long that the detector knows."""
    if s.severity[c] < DETECTED or s.now - s.onset[c] < DETECTED_S:
        return False
    share = MISSED_GOOD if s.good_detector else MISSED
    return uniform(s.seed, Purpose.DETECTION, -1 - (4 * index + kind), s.candidate[c]) >= share


@jit
def flagged(s, n, cause):
    """Whether the detector flags a cause at a node now; only where a worker feels it (network: of a wide job)."""
    used = False
    for i in range(s.node_gpus[n]):
        g = s.node_first[n] + i
        j = s.gpu_holder[g]
        if cause == NETWORK:
            used |= j >= 0 and s.num_nodes_held[j] > 1
        elif j >= 0 or j == HOLDER_SHARED:
            if noticed(s, GPU * s.num_nodes + g, GPU, g):
                return True
            used = True
    if not used:
        return False
    if cause == NETWORK:
        return noticed(s, GPU * n + NET, NET, n) or alarmed(s, n, cause)
    return noticed(s, GPU * n + CPU, CPU, n) or noticed(s, GPU * n + IO, IO, n) or alarmed(s, n, cause)


@jit
def write_flags(s, flags):
    """Write flagged() of all nodes and causes to ``flags`` (N, 2)."""
    for n in range(s.num_nodes):
        for cause in range(2):
            flags[n, cause] = flagged(s, n, cause)


@jit
def seen_slowdown(s, j):
    """How many times as long slot ``j``'s iterations seem to take as without stragglers; 1: it does not run."""
    if s.phase[j] != RUNNING:
        return 1.0
    numbers, at = stream(s.seed, Purpose.SIGHT, -1 - s.job_id[j]), 8 * turn_now(s)
    spread = SLOWDOWN_NOISE_APART if s.num_nodes_held[j] > 1 else SLOWDOWN_NOISE
    return (1.0 + spread * gauss(draw(numbers, at), draw(numbers, at + 1))) / s.pace[j]
