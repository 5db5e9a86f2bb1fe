"""How likely straggling is, and that it goes on: the formulas behind what is seen of it, without any state.

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


def placement_odds(p: npt.ArrayLike, placement: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """(..., H) probability that a placement (..., N) [GPUs] straggles within each horizon, given p (N, 2, H).

    p: by node, cause (compute, network) and horizon, as if they were independent; a link counts where there are
    several nodes.
    """
    used = np.asarray(placement) > 0
    counts = np.stack([used, used & (used.sum(axis=-1, keepdims=True) > 1)], axis=-1)  # (..., N, 2)
    spared = np.where(counts[..., None], 1.0 - np.asarray(p, np.float64), 1.0)
    return np.asarray(1.0 - spared.prod(axis=(-3, -2)))
