"""The convergence model of docs/design/004-layers.md, section 3, and its constants from measured runs.

Of a run with frozen modules the model says its effective progress p at the end, where 1 is a whole run without
freezing: it has done as much as p of such a run. What that is worth is measured: runs without freezing of several
lengths, each with a whole learning-rate schedule, give the test loss as a function of p.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

Array = NDArray[np.float64]

MOST_PENALTY = 0.95
BOUNDS = ((0.01, 0.01, 0.25), (2.0, 2.0, 4.0))  # of p_a, p_b and eta; p_b < p_a is allowed: deep modules first
EXTRA = {"scale": (0.25, 4.0), "slope": (0.0, 10.0)}  # a fourth constant that may be fitted, and its bounds
STEP = 1e-4  # of each constant, for differences
MOST_TRIES = 60  # from each start; at a kink least squares goes on for long without getting better
EDGE = 1e-3  # a constant this near to a bound is at it


class Constants(NamedTuple):
    """Module i of K has converged at p_i = first + (last - first) (i / (K - 1))^shape.

    Two constants are not in the model of the design. ``scale``: factor of the penalty. ``slope``: by how much the
    logarithm of the loss rises with the residual beyond that of an unfrozen run of the same effective progress.
    """

    first: float
    last: float
    shape: float
    scale: float = 1.0
    slope: float = 0.0


class Followed(NamedTuple):
    """What the model says of runs, each (...) float64."""

    progress: Array  # p at the end
    residual: Array  # Q = sum w_i u_i
    excess: Array  # Q less what it is after the same p without freezing, at least 0


def converged_at(first: Array | float, last: Array | float, shape: Array | float, modules: int) -> Array:
    """(..., K): p_i for constants of any common shape (...)."""
    first, last, shape = (np.asarray(value, dtype=float)[..., None] for value in (first, last, shape))
    return np.asarray(first + (last - first) * (np.arange(modules) / (modules - 1)) ** shape)


def weights(modules: int) -> Array:
    """(K,): uniform over the modules before the head, which is never frozen."""
    return np.append(np.full(modules - 1, 1.0 / (modules - 1)), 0.0)


def follow(depths: NDArray[np.int64], reference: int, ends: Array, scale: Array | float = 1.0) -> Followed:
    """Follow runs epoch by epoch; exact, for the penalty is constant while the depth is.

    ``depths`` (..., E): frozen modules in each epoch; ``reference``: epochs of a whole run, p = 1 without freezing;
    ``ends`` (..., K): p_i; ``scale`` (...): factor of the penalty. Leading axes broadcast.
    """
    modules = ends.shape[-1]
    w = weights(modules)
    runs = np.broadcast_shapes(depths.shape[:-1], ends.shape[:-1], np.shape(scale))
    active = np.zeros((*runs, modules))  # c_i
    progress = np.zeros(active.shape[:-1])
    for epoch in range(depths.shape[-1]):
        frozen = np.arange(modules) < depths[..., epoch, None]
        penalty = np.minimum(MOST_PENALTY, scale * (w * _unconverged(active, ends) * frozen).sum(-1))
        step = (1.0 - penalty) / reference
        active += step[..., None] * ~frozen
        progress += step
    residual = (w * _unconverged(active, ends)).sum(-1)
    unfrozen = (w * _unconverged(progress[..., None], ends)).sum(-1)
    return Followed(progress, residual, np.maximum(residual - unfrozen, 0.0))


def _unconverged(active: Array, ends: Array) -> Array:
    return np.maximum(0.0, 1.0 - active / ends)


@dataclass(frozen=True)
class Curve:
    """A measured quantity (n,) after unfrozen runs of ``share`` (n,) rising, of a whole one: a line between logarithms.

    Beyond its ends the outermost lines go on.
    """

    share: Array
    value: Array

    def at(self, share: Array) -> Array:
        """The quantity after a share of a whole run."""
        return np.exp(_lines(np.log(share), np.log(self.share), np.log(self.value)))

    def share_of(self, value: Array) -> Array:
        """The share after which a falling quantity has a value; none is below a quarter of the least or above 2."""
        falling = np.minimum.accumulate(np.log(self.value)) - 1e-9 * np.arange(len(self.value))  # never flat
        log_share = _lines(np.log(value), falling[::-1], np.log(self.share)[::-1])
        return np.exp(np.clip(log_share, np.log(self.share[0] / 4.0), np.log(2.0)))


def _lines(x: Array, xs: Array, ys: Array) -> Array:
    at = np.clip(np.searchsorted(xs, x) - 1, 0, len(xs) - 2)
    return np.asarray(ys[at] + (x - xs[at]) * (ys[at + 1] - ys[at]) / (xs[at + 1] - xs[at]))


@dataclass(frozen=True)
class Measurements:
    """What there is to fit: S schedules of E epochs each, and the curve of the runs without freezing."""

    names: Sequence[str]
    depths: NDArray[np.int64]  # (S, E)
    loss: Array  # (S,) geometric means over the seeds
    curve: Curve
    modules: int

    @property
    def reference(self) -> int:
        return int(self.depths.shape[1])

    def without(self, out: int) -> Measurements:
        keep = np.arange(len(self.names)) != out
        names = [name for number, name in enumerate(self.names) if number != out]
        return Measurements(names, self.depths[keep], self.loss[keep], self.curve, self.modules)


def predict(constants: Constants, measured: Measurements) -> Array:
    """(S,): the test loss that the model predicts."""
    followed = follow_all(constants, measured)
    return np.asarray(measured.curve.at(followed.progress) * np.exp(constants.slope * followed.excess))


def follow_all(constants: Constants, measured: Measurements) -> Followed:
    """(S,): :func:`follow` for every schedule."""
    ends = converged_at(constants.first, constants.last, constants.shape, measured.modules)
    return follow(measured.depths, measured.reference, ends, constants.scale)


def fit(measured: Measurements, extra: str | None = None) -> Constants:
    """Least squares of the logarithm of the loss within bounds, from the best points of a grid.

    ``extra``: a key of EXTRA that is fitted too.
    """
    names = (*Constants._fields[:3], *([extra] if extra else []))
    low, high = (np.array([*pair, *([EXTRA[extra][end]] if extra else [])]) for end, pair in enumerate(BOUNDS))

    def misses(values: Array) -> Array:
        return np.asarray(np.log(_predict_each(names, values[None], measured)[0] / measured.loss))

    def slopes(values: Array) -> Array:
        """All differences in one pass."""
        logs = np.log(_predict_each(names, np.vstack([values, values + STEP * np.eye(len(values))]), measured))
        return np.asarray((logs[1:] - logs[0]).T / STEP)

    found = []
    for point in _grid_starts(measured, extra):
        start = np.clip(np.array([getattr(point, name) for name in names]), low, high)
        found.append(least_squares(misses, start, jac=slopes, bounds=(low, high), max_nfev=MOST_TRIES))
    best = min(found, key=lambda result: float(result.cost)).x
    return Constants(**dict(zip(names, map(float, best), strict=True)))


def _predict_each(names: Sequence[str], points: Array, measured: Measurements) -> Array:
    """(P, S): :func:`predict` for points (P, C), whose columns are constants by name."""
    columns: dict[str, Any] = dict(zip(names, points.T[..., None], strict=True))
    return predict(Constants(**columns), measured)


def _grid_starts(measured: Measurements, extra: str | None) -> list[Constants]:
    """The best of a grid for each scale, every point with its best slope: the model has kinks, so a start matters."""
    ends, scales = np.geomspace(0.02, 1.9, 12), [0.7, 1.0, 1.3, 1.7, 2.2] if extra == "scale" else [1.0]
    axes = np.meshgrid(ends, ends, (0.4, 0.7, 1.0, 1.6, 2.5), scales, indexing="ij")
    first, last, shape, scale = (axis.ravel() for axis in axes)
    p_i = converged_at(first, last, shape, measured.modules)[:, None, :]
    followed = follow(measured.depths, measured.reference, p_i, scale[:, None])
    misses = np.log(measured.curve.at(followed.progress) / measured.loss)  # (grid, S)
    slope = np.zeros(len(first))
    if extra == "slope":
        norm = np.maximum((followed.excess**2).sum(1), 1e-12)
        slope = np.clip(-(misses * followed.excess).sum(1) / norm, *EXTRA["slope"])
    cost = ((misses + slope[:, None] * followed.excess) ** 2).sum(1)
    best = [np.where(scale == value, cost, np.inf).argmin() for value in scales]
    return [Constants(*(float(column[at]) for column in (first, last, shape, scale, slope))) for at in best]


Fitted = Callable[[Measurements], Array]
Predictor = Callable[[Measurements], Fitted]
"""Learns from measurements; the result predicts the loss (S,) of others, whose own loss it does not use."""


def ignore_freezing(_: Measurements) -> Fitted:
    """As if every module always trained."""
    return lambda measured: np.full(len(measured.names), measured.curve.at(np.array(1.0)))


def count_frozen(_: Measurements) -> Fitted:
    """As if no module ever converged: every frozen one costs its weight for as long as it is frozen."""
    never = np.inf

    def predicted(measured: Measurements) -> Array:
        followed = follow(measured.depths, measured.reference, np.full(measured.modules, never))
        return measured.curve.at(followed.progress)

    return predicted


def follow_share(train: Measurements) -> Fitted:
    """No model: the logarithm of the loss rises by a fitted slope with the mean share of frozen modules."""
    share = _frozen_share(train)
    rise = np.log(train.loss / train.curve.at(np.array(1.0)))
    slope = float((share * rise).sum() / (share**2).sum())
    return lambda measured: np.asarray(measured.curve.at(np.array(1.0)) * np.exp(slope * _frozen_share(measured)))


def _frozen_share(measured: Measurements) -> Array:
    return np.asarray(measured.depths.mean(axis=1) / (measured.modules - 1))


def given(constants: Constants) -> Predictor:
    """The model with constants from elsewhere."""
    return lambda _: lambda measured: predict(constants, measured)


def fitted(extra: str | None = None) -> Predictor:
    """The model with constants of the schedules that are seen."""

    def learn(train: Measurements) -> Fitted:
        constants = fit(train, extra)
        return lambda measured: predict(constants, measured)

    return learn


def leave_one_out(measured: Measurements, predictor: Predictor) -> Array:
    """(S,): the loss of each schedule as predicted from all the others."""
    found = [predictor(measured.without(out))(measured)[out] for out in range(len(measured.names))]
    return np.array(found)


def mean_error(predicted: Array, loss: Array) -> float:
    """Mean of the factors between prediction and measurement, less 1: 0.1 is 10 % too high or too low."""
    return float(np.exp(np.abs(np.log(predicted / loss)).mean()) - 1.0)


def at_bounds(constants: Constants) -> list[str]:
    """Names of the constants that the fit pushed to a bound: the measurements say no more than that."""
    values = zip(Constants._fields, constants, *BOUNDS, strict=False)
    return [name for name, value, low, high in values if min(value - low, high - value) < EDGE]
