"""How likely straggling is, and how long it goes on: the formulas behind what is seen of it, without any state.

shared/design/stragglers.md, section 3.5. Episodes last D: lognormal or exponential, cut to SHORTEST_S .. LONGEST_S
(docs/design/005-stragglers.md, section 2). A component that is normal now becomes slow at a constant rate.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from envs.jit import jit
from envs.straggler_presets import LONGEST_S, SHORTEST_S

GRACE_S = 60.0  # what is slow now counts if it is for this long yet


@jit
def uncut_survival(age: float, mean: float, log_sd: float, exponential: bool) -> float:
    """Probability that an episode of mean ``mean`` [s] lasts longer than ``age`` [s] > 0, were it not cut."""
    if exponential:
        return math.exp(-age / mean)
    return 0.5 * math.erfc((math.log(age / mean) / log_sd + 0.5 * log_sd) / math.sqrt(2.0))


@jit
def survival(age: float, mean: float, log_sd: float, exponential: bool) -> float:
    """S(a): probability that an episode lasts longer than ``age`` [s]."""
    if age < SHORTEST_S:
        return 1.0
    if age >= LONGEST_S:
        return 0.0
    return uncut_survival(age, mean, log_sd, exponential)


@jit
def uncut_mean_after(age: float, mean: float, log_sd: float, exponential: bool) -> float:
    """Mean [s] of the part of an episode after ``age`` [s] > 0, were it not cut: the integral of uncut_survival()."""
    longer = uncut_survival(age, mean, log_sd, exponential)
    if exponential:
        return mean * longer
    by_length = 0.5 * math.erfc((math.log(age / mean) / log_sd - 0.5 * log_sd) / math.sqrt(2.0))
    return mean * by_length - age * longer


@jit
def mean_residual(age: float, mean: float, log_sd: float, exponential: bool) -> float:
    """r(a): mean time [s] that an episode of age ``age`` [s] goes on; 0 if none gets as old."""
    if age >= LONGEST_S:
        return 0.0
    start = max(age, SHORTEST_S)
    rest = uncut_mean_after(start, mean, log_sd, exponential) - uncut_mean_after(LONGEST_S, mean, log_sd, exponential)
    return start - age + rest / survival(age, mean, log_sd, exponential)


@jit
def stay(age: float, mean: float, log_sd: float, exponential: bool) -> float:
    """Probability that what has been slow for ``age`` [s] is for another GRACE_S."""
    now = survival(age, mean, log_sd, exponential)
    return survival(age + GRACE_S, mean, log_sd, exponential) / now if now > 0.0 else 0.0


@jit
def occurrence(rate: float, staying: float, horizon: float) -> float:
    """p: probability of straggling within ``horizon`` [s].

    ``rate`` [1/s] of onsets; ``staying``: probability that it goes on from before, 0 for what is normal now.
    """
    return 1.0 - (1.0 - staying) * math.exp(-rate * horizon)


@jit
def time_fraction(slow: bool, rate: float, mean_left: float, horizon: float) -> float:
    """Share of the next ``horizon`` [s] that a component is expected to be slow, if its episodes were exponential.

    ``rate`` [1/s] of onsets; ``mean_left`` [s] > 0: mean_residual() at its age if it is slow now, else at 0.
    """
    turnover = rate + 1.0 / mean_left
    usual = rate / turnover
    return usual + ((1.0 if slow else 0.0) - usual) * (1.0 - math.exp(-turnover * horizon)) / (turnover * horizon)


@jit
def expected_excess(fraction: float, kappa: float, excess: float) -> float:
    """By what share an iteration is expected to take longer because of one component.

    ``fraction``: time_fraction(); ``kappa``: how much the job feels it; ``excess``: its severity less 1 if it is slow
    now, else the preset's mean.
    """
    return fraction * kappa * excess


def placement_odds(p: npt.ArrayLike, placement: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """(...) probability that a node straggles of those that a placement (..., N) [GPUs] uses, given p (..., N)."""
    spared = np.where(np.asarray(placement) > 0, 1.0 - np.asarray(p, np.float64), 1.0)
    return np.asarray(1.0 - spared.prod(axis=-1))
