"""What a calibrated forecast is of a straggler probability that is known up to noise only.

docs/design/005-stragglers.md, section 6: mode noisy knows z = logit p + sigma eps, and shows the share of the readings
with this z after which straggling came. It follows from how p is distributed and how often straggling comes after each
p, which burn-in runs at the default settings of each preset have counted (envs/straggler_counts.json): Bayes' rule. A
straight line in the logit (Platt scaling) would not do, since p has two peaks, at nodes that are slow and at calm ones.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from envs.spec import SimConfig, SpecError

Floats = npt.NDArray[np.float64]
LEAST_P = 1e-6  # p is kept so far from 0 and 1
MOST_LOGIT = 14  # no less than the logit of that
COUNT_STEP, KNOT_STEP = 0.25, 0.25  # logits at which readings are counted, at which forecasts are tabulated
COUNTED = np.arange(-MOST_LOGIT, MOST_LOGIT + COUNT_STEP, COUNT_STEP)
KNOTS = np.arange(-MOST_LOGIT, MOST_LOGIT + KNOT_STEP, KNOT_STEP)
PRIOR = 200  # readings that p itself is worth where few were counted
TABLE = Path(__file__).with_name("straggler_counts.json")


def check_sight(config: SimConfig) -> None:
    """SpecError if straggler probabilities are to be seen in a way that there is none of."""
    if config.straggler_obs == "learned":
        raise SpecError(
            "sim.straggler_obs learned needs a trained predictor, and none is shipped: choose noisy or ewma"
        )


def logit_of(p: npt.ArrayLike) -> Floats:
    """ln(p / (1 - p)), with p kept within LEAST_P .. 1 - LEAST_P."""
    kept = np.clip(p, LEAST_P, 1.0 - LEAST_P)
    return np.asarray(np.log(kept / (1.0 - kept)))


@cache
def counts_of(preset: str) -> Floats:
    """(2, 2, 113, 2): by cause, horizon and logit, how many readings there were and after how many straggling came."""
    counts = np.zeros((2, 2, len(COUNTED), 2))
    for cause, of_cause in enumerate(json.loads(TABLE.read_text(encoding="utf-8"))[preset]):
        for horizon, rows in enumerate(of_cause):
            place, *numbers = np.array(rows).T
            counts[cause, horizon, place] = np.stack(numbers, axis=1)
    counts.flags.writeable = False
    return counts


def forecast(counts: Floats, sigma: float) -> Floats:
    """(113,) share of the readings after which straggling comes, by KNOTS of z, given counts (113, 2).

    Within a step of COUNTED p is taken to be spread evenly, which adds a step's variance to that of the noise.
    """
    spread = np.sqrt(sigma**2 + COUNT_STEP**2 / 12.0)
    seen, came = counts.T
    usual = (came + PRIOR / (1.0 + np.exp(-COUNTED))) / (seen + PRIOR)
    with np.errstate(divide="ignore"):
        weight = np.log(seen) - 0.5 * ((KNOTS[:, None] - COUNTED) / spread) ** 2
    weight = np.exp(weight - weight.max(axis=1, keepdims=True))
    return np.asarray((weight @ usual) / weight.sum(axis=1))


def forecasts_of(config: SimConfig) -> Floats:
    """(2, 2, 113) forecast() by cause and horizon; ``config.stragglers`` is a preset."""
    counts = counts_of(config.stragglers)
    return np.array([[forecast(counts[cause, h], config.sight_noise) for h in range(2)] for cause in range(2)])


def usual_p(config: SimConfig) -> Floats:
    """(2, 2) probability of straggling at any node and time by cause and horizon; counted at the default rate."""
    seen, came = np.moveaxis(counts_of(config.stragglers).sum(axis=2), -1, 0)
    return np.asarray(1.0 - (1.0 - came / seen) ** config.straggler_rate)
