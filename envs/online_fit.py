"""The compiled fit of a job's seven throughput parameters to the iterations it has run.

Model and objective: Qiao et al., "Pollux" (OSDI 2021), section 3.2. The method is that of its simulator, L-BFGS-B
from one start: its fits often stop long before the minimum, and a better optimiser would predict other times.
Written from Byrd, Lu, Nocedal and Zhu, "A limited memory algorithm for bound constrained optimization" (1995), with
the projection of Morales and Nocedal (2011) and the line search of Moré and Thuente (1994); with seven variables
the limited-memory matrix is simply formed.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from envs.jit import jit

__all__ = ["FTOL", "FTOL_SIA", "NUM_PARAMS", "SCRATCH_ROWS", "fit", "objective", "predict", "prepare"]

FloatArray = npt.NDArray[np.float64]

NUM_PARAMS = 7
ALPHA_C, BETA_C, ALPHA_N, BETA_N, ALPHA_R, BETA_R, GAMMA = range(NUM_PARAMS)
LEAST, MOST_GAMMA = 1e-8, 10.0  # bounds; also the network time of a single GPU [s]

# Least relative decrease of an iteration: scipy's default (Pollux, DeepBoot), and what Sia's artifact asks for.
FTOL, FTOL_SIA = 1e7 * 2.0**-52, 1e-5
PGTOL = 1e-5
MEMORY, MAX_ITERATIONS, MAX_TRIALS = 10, 15000, 20
ARMIJO, CURVATURE, NARROW, FAILED = 1e-3, 0.9, 0.1, -1.0  # of the line search; its constants are L-BFGS-B's

# Rows of the scratch array: pairs of steps and gradient changes, two matrices, vectors, then one row a point.
STEPS, CHANGES, MODEL, FACTOR = 0, MEMORY, 2 * MEMORY, 2 * MEMORY + NUM_PARAMS
LOWER, UPPER, GRAD, LAST_X, LAST_GRAD, MOVE, TARGET, BREAK, FREE, SPARE = range(FACTOR + NUM_PARAMS, FACTOR + 17)
SCRATCH_ROWS = SPARE + 1
# Columns of a point's row; link: 0 one GPU, 1 one node, 2 several nodes; others: (GPUs - 2)+.
LOCAL, LINK, OTHERS, LOG_GRAD, LOG_STEP = range(5)


@jit
def predict(params: FloatArray, several: int, gpus: int, local: float) -> tuple[float, float]:
    """Seconds ``(grad, step)`` of one micro-batch of ``local`` samples a GPU, without and with synchronisation.

    ``params``: (7,) as :func:`fit` leaves them; ``several``: whether the GPUs are on several nodes.
    """
    grad = params[ALPHA_C] + params[BETA_C] * local
    net = LEAST
    if several:
        net = params[ALPHA_N] + params[BETA_N] * max(gpus - 2.0, LEAST)
    elif gpus > 1:
        net = params[ALPHA_R] + params[BETA_R] * max(gpus - 2.0, LEAST)
    high = max(grad, net)
    gamma = params[GAMMA]
    return grad, high * (1.0 + (min(grad, net) / high) ** gamma) ** (1.0 / gamma)


@jit
def objective(x: FloatArray, rows: FloatArray, count: int, grad: FloatArray) -> float:
    """Value at ``x`` (7,) for ``count`` rows that :func:`prepare` wrote; its gradient goes to ``grad`` (7,).

    RMSE of log grad and of log step, + 0.001 (gamma-1)^2 + 0.01 ((beta_n/alpha_n)^2 + (beta_r/alpha_r)^2).
    """
    gamma = x[GAMMA]
    squares_1 = squares_2 = const_1 = slope_1 = const_2 = slope_2 = curve = 0.0
    grad[:] = 0.0
    for p in range(count):
        local, link, others = rows[p, LOCAL], int(rows[p, LINK]), rows[p, OTHERS]
        own = x[ALPHA_C] + x[BETA_C] * local
        log_own = math.log(own)
        at = ALPHA_N if link == 2 else ALPHA_R
        net = x[at] + x[at + 1] * others if link > 0 else LEAST
        log_net = math.log(net)
        # log step = log(own^gamma + net^gamma) / gamma, from the larger of the two
        less = math.exp(-gamma * abs(log_own - log_net))
        log_step = max(log_own, log_net) + math.log1p(less) / gamma
        share = 1.0 / (1.0 + less) if log_own > log_net else less / (1.0 + less)  # d log step / d log own
        miss_1, miss_2 = log_own - rows[p, LOG_GRAD], log_step - rows[p, LOG_STEP]
        squares_1 += miss_1 * miss_1
        squares_2 += miss_2 * miss_2
        const_1 += miss_1 / own
        slope_1 += miss_1 / own * local
        const_2 += miss_2 * share / own
        slope_2 += miss_2 * share / own * local
        curve += miss_2 * (share * log_own + (1.0 - share) * log_net - log_step)
        if link > 0:
            pull = miss_2 * (1.0 - share) / net
            grad[at] += pull
            grad[at + 1] += pull * others
    # d rmse = sum(miss d miss) / (count rmse); none at the kink rmse = 0
    rmse_1, rmse_2 = math.sqrt(squares_1 / count), math.sqrt(squares_2 / count)
    scale_1 = 1.0 / (count * rmse_1) if rmse_1 > 0 else 0.0
    scale_2 = 1.0 / (count * rmse_2) if rmse_2 > 0 else 0.0
    grad[ALPHA_C], grad[BETA_C] = scale_1 * const_1 + scale_2 * const_2, scale_1 * slope_1 + scale_2 * slope_2
    grad[GAMMA] = scale_2 * curve / gamma + 2e-3 * (gamma - 1.0)
    value: float = rmse_1 + rmse_2 + 1e-3 * (gamma - 1.0) * (gamma - 1.0)
    for at in range(ALPHA_N, GAMMA, 2):
        ratio = x[at + 1] / x[at]
        value += 1e-2 * ratio * ratio
        grad[at] = scale_2 * grad[at] - 2e-2 * ratio * ratio / x[at]
        grad[at + 1] = scale_2 * grad[at + 1] + 2e-2 * ratio / x[at]
    return value


@jit
def _dot(a, b):
    total = 0.0
    for i in range(NUM_PARAMS):
        total += a[i] * b[i]
    return total


@jit
def _projected_gradient(x, w):
    """Largest component of the gradient, each cut where ``x`` would meet its bound."""
    largest = 0.0
    for i in range(NUM_PARAMS):
        g = w[GRAD, i]
        largest = max(largest, min(g, x[i] - w[LOWER, i]) if g > 0 else min(-g, w[UPPER, i] - x[i]))
    return largest


@jit
def _form_model(w, first, stored, theta):
    """Second derivatives by BFGS from ``theta`` times identity and the pairs, oldest first."""
    b, bs = w[MODEL:FACTOR], w[SPARE]
    b[:] = 0.0
    for i in range(NUM_PARAMS):
        b[i, i] = theta
    for p in range(stored):
        s, y = w[STEPS + (first + p) % MEMORY], w[CHANGES + (first + p) % MEMORY]
        for i in range(NUM_PARAMS):
            bs[i] = _dot(b[i], s)
        sbs, sy = _dot(s, bs), _dot(s, y)
        for i in range(NUM_PARAMS):
            for k in range(NUM_PARAMS):
                b[i, k] += y[i] * y[k] / sy - bs[i] * bs[k] / sbs


@jit
def _model_gradient(x, w, i):
    """Component ``i`` of the model's gradient at TARGET."""
    total = w[GRAD, i]
    for k in range(NUM_PARAMS):
        total += w[MODEL + i, k] * (w[TARGET, k] - x[k])
    return total


@jit
def _cauchy_point(x, w):
    """TARGET: the model's first minimum along the projected steepest descent; FREE: variables not at a bound there."""
    d, until, free, z = w[MOVE], w[BREAK], w[FREE], w[TARGET]
    for i in range(NUM_PARAMS):
        g = w[GRAD, i]
        until[i] = (x[i] - w[LOWER if g > 0 else UPPER, i]) / g if g != 0.0 else math.inf
        free[i] = 1.0 if until[i] > 0 and w[LOWER, i] < w[UPPER, i] else 0.0
        d[i] = -g * free[i]
        z[i] = x[i]
    now = 0.0
    while True:
        slope = curve = 0.0
        k = -1
        for i in range(NUM_PARAMS):
            if d[i] != 0.0:
                slope += d[i] * _model_gradient(x, w, i)
                curve += d[i] * _dot(w[MODEL + i], d)
                if k < 0 or until[i] < until[k]:
                    k = i
        if k < 0:
            return
        best = now + max(-slope / curve, 0.0)
        reached = best >= until[k]
        now = until[k] if reached else best
        for i in range(NUM_PARAMS):
            if d[i] != 0.0:
                z[i] = x[i] + now * d[i]
        if not reached:
            return
        z[k] = w[UPPER, k] if d[k] > 0 else w[LOWER, k]
        d[k] = free[k] = 0.0


@jit
def _newton_step(x, w):
    """MOVE: from TARGET to the model's minimum over the free variables, by Cholesky; whether that worked."""
    d, free, factor = w[MOVE], w[FREE], w[FACTOR : FACTOR + NUM_PARAMS]
    for i in range(NUM_PARAMS):
        d[i] = -_model_gradient(x, w, i) * free[i]
        value = 0.0
        for k in range(i + 1):  # variables that are not free have a row of the identity
            value = w[MODEL + i, k] * free[i] * free[k] + (1.0 - free[i] if i == k else 0.0)
            for m in range(k):
                value -= factor[i, m] * factor[k, m]
            if k < i:
                factor[i, k] = value / factor[k, k]
                d[i] -= factor[i, k] * d[k]
        if not value > 0:
            return False
        factor[i, i] = math.sqrt(value)
        d[i] /= factor[i, i]
    for i in range(NUM_PARAMS - 1, -1, -1):
        for k in range(i + 1, NUM_PARAMS):
            d[i] -= factor[k, i] * d[k]
        d[i] /= factor[i, i]
    return True


@jit
def _subspace_minimum(x, w):
    """Improve TARGET over the free variables: the Newton point, projected; whether the model allowed it."""
    if not _newton_step(x, w):
        return False
    z, d, start = w[TARGET], w[MOVE], w[SPARE]
    slope, inside = 0.0, True
    for i in range(NUM_PARAMS):
        start[i] = z[i]
        if w[FREE, i] != 0.0:
            z[i] = min(max(z[i] + d[i], w[LOWER, i]), w[UPPER, i])
            inside = inside and w[LOWER, i] < z[i] < w[UPPER, i]
        slope += (z[i] - x[i]) * w[GRAD, i]
    if inside or slope <= 0:
        return True
    # The projection leads uphill: go only as far towards the Newton point as the first bound.
    share = 1.0
    for i in range(NUM_PARAMS):
        if d[i] != 0.0:
            share = min(share, ((w[UPPER, i] if d[i] > 0 else w[LOWER, i]) - start[i]) / d[i])
    for i in range(NUM_PARAMS):
        z[i] = min(max(start[i] + share * d[i], w[LOWER, i]), w[UPPER, i])
    return True


@jit
def _cubic(a, b):
    """Minimum of the cubic through two points ``(t, value, slope)``, and whether it lies beyond ``a``, seen from b."""
    theta = 3.0 * (a[1] - b[1]) / (b[0] - a[0]) + a[2] + b[2]
    s = max(abs(theta), abs(a[2]), abs(b[2]))
    root = math.copysign(s * math.sqrt(max(0.0, (theta / s) * (theta / s) - (a[2] / s) * (b[2] / s))), b[0] - a[0])
    share = (root - a[2] + theta) / (root - a[2] + root + b[2])
    return a[0] + share * (b[0] - a[0]), share < 0 and root != 0


@jit
def _next_trial(best, other, trial, bracketed, low, high):
    """Where Moré and Thuente look next, and whether a minimum lies between best and the other end then."""
    t, start = trial[0], best[0]
    opposite = trial[2] * math.copysign(1.0, best[2]) < 0.0
    if trial[1] > best[1]:
        cubic = _cubic(best, trial)[0]
        quad = start + best[2] / ((best[1] - trial[1]) / (t - start) + best[2]) / 2.0 * (t - start)
        return (cubic if abs(cubic - start) < abs(quad - start) else cubic + (quad - cubic) / 2.0), True
    far = high if t > start else low
    if opposite or abs(trial[2]) < abs(best[2]):
        cubic, beyond = _cubic(trial, best)
        quad = t + trial[2] / (trial[2] - best[2]) * (start - t)
        if not opposite and not beyond:
            cubic = far
        near, wide = (cubic, quad) if abs(cubic - t) < abs(quad - t) else (quad, cubic)
        if opposite:
            return wide, True
        if not bracketed:
            return min(max(wide, low), high), False
        limit = t + 0.66 * (other[0] - t)
        return (min(limit, near) if t > start else max(limit, near)), True
    return (_cubic(trial, other)[0] if bracketed else far), bracketed


@jit
def _line_search(x, w, count, f0, d0, t, longest):
    """Find a step of sufficient decrease and small slope (Moré and Thuente): ``(step or FAILED, value, slope)``."""
    stx, fx, dx, sty, fy, dy = 0.0, f0, d0, 0.0, f0, d0
    bracketed, first_stage = False, True
    width, last_width, low, high = longest, 2.0 * longest, 0.0, 5.0 * t
    for _ in range(MAX_TRIALS):
        for i in range(NUM_PARAMS):
            x[i] = w[TARGET, i] if t == 1.0 else w[LAST_X, i] + t * w[MOVE, i]
            x[i] = min(max(x[i], w[LOWER, i]), w[UPPER, i])
        f = objective(x, w[SCRATCH_ROWS:], count, w[GRAD])
        d = _dot(w[GRAD], w[MOVE])
        wanted = f0 + t * ARMIJO * d0
        first_stage = first_stage and not (f <= wanted and d >= 0.0)
        stuck = bracketed and (t <= low or t >= high or high - low <= NARROW * high)
        if stuck or (f <= wanted and (abs(d) <= -CURVATURE * d0 or (t == longest and d <= ARMIJO * d0))):
            return t, f, d
        # Before the first sufficient decrease, steps are chosen on f minus the wanted decrease.
        tilt = ARMIJO * d0 if first_stage and f <= fx and f > wanted else 0.0
        best, trial = (stx, fx - stx * tilt, dx - tilt), (t, f - t * tilt, d - tilt)
        following, bracketed = _next_trial(best, (sty, fy - sty * tilt, dy - tilt), trial, bracketed, low, high)
        if trial[1] > best[1]:
            sty, fy, dy = t, f, d
        else:
            if trial[2] * math.copysign(1.0, best[2]) < 0.0:
                sty, fy, dy = stx, fx, dx
            stx, fx, dx = t, f, d
        t = following
        if bracketed:
            if abs(sty - stx) >= 0.66 * last_width:
                t = stx + 0.5 * (sty - stx)
            last_width, width = width, abs(sty - stx)
            low, high = min(stx, sty), max(stx, sty)
        else:
            low, high = t + 1.1 * (t - stx), t + 4.0 * (t - stx)
        t = min(max(t, 0.0), longest)
        if bracketed and (t <= low or t >= high or high - low <= NARROW * high):
            t = stx
    return FAILED, f0, d0


@jit
def _search(x, w, count, value, first):
    """Line search from ``x`` to TARGET, at first no farther than 1: ``(step, value, change of slope, slope)``.

    After FAILED, ``x`` and its gradient are as before.
    """
    longest = 1.0 if first else 1e10
    for i in range(NUM_PARAMS):
        w[LAST_X, i], w[LAST_GRAD, i] = x[i], w[GRAD, i]
        w[MOVE, i] = w[TARGET, i] - x[i]
        if w[MOVE, i] != 0.0 and not first:
            longest = min(longest, (w[UPPER if w[MOVE, i] > 0 else LOWER, i] - x[i]) / w[MOVE, i])
    slope = _dot(w[GRAD], w[MOVE])
    step, end = FAILED, slope
    if slope < 0:
        start = min(1.0, 1.0 / math.sqrt(_dot(w[MOVE], w[MOVE]))) if first else 1.0
        step, value, end = _line_search(x, w, count, value, slope, start, max(longest, 1.0))
    if step == FAILED:
        for i in range(NUM_PARAMS):
            x[i], w[GRAD, i] = w[LAST_X, i], w[LAST_GRAD, i]
    return step, value, end - slope, slope


@jit
def _minimise(x, w, count, ftol):
    """L-BFGS-B from ``x`` with the bounds and points in ``w``; returns the value of the objective."""
    value = objective(x, w[SCRATCH_ROWS:], count, w[GRAD])
    oldest, stored, theta, first, settled = 0, 0, 1.0, True, False
    for _ in range(MAX_ITERATIONS):
        if settled or _projected_gradient(x, w) <= PGTOL:
            break
        _form_model(w, oldest, stored, theta)
        _cauchy_point(x, w)
        step = FAILED
        if stored == 0 or _subspace_minimum(x, w):
            step, found, rise, slope = _search(x, w, count, value, first)
        if step == FAILED:  # begin again without memory, once
            if stored == 0:
                break
            oldest, stored, theta = 0, 0, 1.0
            continue
        first, settled, value = False, value - found <= ftol * max(abs(value), abs(found), 1.0), found
        if rise <= -(2.0**-52) * slope:  # no positive curvature: keep the pairs
            continue
        row = (oldest + stored) % MEMORY
        oldest, stored = (oldest + stored // MEMORY) % MEMORY, min(stored + 1, MEMORY)
        for i in range(NUM_PARAMS):
            w[STEPS + row, i] = step * w[MOVE, i]
            w[CHANGES + row, i] = w[GRAD, i] - w[LAST_GRAD, i]
        theta = _dot(w[CHANGES + row], w[CHANGES + row]) / (rise * step)
    return value


@jit
def prepare(points: FloatArray, count: int, x: FloatArray, scratch: FloatArray) -> bool:
    """Write start, bounds and rows of a fit; whether a point ran on several nodes. Arguments as in :func:`fit`."""
    several = one_node = many = False
    one_batch, total = True, 0.0
    for p in range(count):
        nodes, gpus, row = points[p, 0], points[p, 1], scratch[SCRATCH_ROWS + p]
        row[LOCAL], row[OTHERS] = points[p, 2], max(gpus - 2.0, LEAST)
        row[LINK] = 2.0 if nodes > 1 else 1.0 if gpus > 1 else 0.0
        row[LOG_GRAD], row[LOG_STEP] = math.log(points[p, 3]), math.log(points[p, 4])
        several, one_node, many = several or nodes > 1, one_node or row[LINK] == 1.0, many or gpus > 2
        one_batch = one_batch and points[p, 2] == points[0, 2]
        total += points[p, 3]
    for i in range(GAMMA):
        x[i] = 0.01 if i % 2 else 0.1
        scratch[LOWER, i], scratch[UPPER, i] = LEAST, math.inf
        seen = several if i < ALPHA_R else one_node
        if i >= ALPHA_N and not (seen and (many or i % 2 == 0)):  # until seen, more GPUs or nodes cost nothing
            x[i] = scratch[UPPER, i] = LEAST
    x[GAMMA], scratch[LOWER, GAMMA], scratch[UPPER, GAMMA] = 1.001, 1.0, MOST_GAMMA
    if one_batch:  # the constant and the growing part get half of the time each
        x[ALPHA_C] = scratch[LOWER, ALPHA_C] = scratch[UPPER, ALPHA_C] = total / count / 2.0
    return several


@jit
def fit(points: FloatArray, count: int, params: FloatArray, scratch: FloatArray, ftol: float = FTOL) -> float:
    """Fit ``params`` (7,): alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r [s], gamma; returns the objective.

    ``points``: (P, 5), of which the first ``count`` >= 1 hold: nodes, GPUs, samples a GPU, and the positive seconds
    of a micro-batch without synchronisation and of a step. ``scratch``: (SCRATCH_ROWS + P, 7), contents irrelevant.
    What the points say nothing of is pinned, and several nodes are then taken as 1.1 times a single one.
    """
    several = prepare(points, count, params, scratch)
    value: float = _minimise(params, scratch, count, ftol)
    if not several:
        params[ALPHA_N] = max(params[ALPHA_N], 1.1 * params[ALPHA_R])
        params[BETA_N] = max(params[BETA_N], 1.1 * params[BETA_R])
    return value
