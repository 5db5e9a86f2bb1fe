"""Intervals for comparisons: means, interquartile means and paired differences with bootstrap bounds.

Repetitions form a table (W windows, S seeds). Windows are a sample of the workload and seeds a sample
of a policy's randomness inside a window, so the bootstrap draws windows with replacement, and inside
each drawn window draws seeds with replacement. A deterministic policy has the same value for every
seed, on which the inner draw does nothing: repeating it cannot narrow its interval. Every policy
is resampled with the same draws, so differences are paired (common random numbers; Colas et al.,
arXiv 1806.08295). The interquartile mean is the one of Agarwal et al., NeurIPS'21 (rliable).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]

MIN_REPETITIONS = 5  # below this the bootstrap's coverage is far from nominal: no interval is given
NUM_RESAMPLES = 2000
CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A statistic with its interval; bounds are NaN when there are too few repetitions."""

    value: float
    ci_low: float
    ci_high: float
    n: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval exists and lies wholly on one side of 0."""
        return self.ci_low > 0 or self.ci_high < 0


def interquartile_mean(values: Floats) -> Floats:
    """Mean of the middle half along the last axis: (..., n) -> (...). NaN of nothing.

    floor(n / 4) values are cut at each end, as scipy's ``trim_mean`` and rliable do.
    """
    if values.shape[-1] == 0:
        return np.full(values.shape[:-1], np.nan)
    return np.asarray(stats.trim_mean(values, 0.25, axis=-1), dtype=np.float64)


def mean(values: Floats) -> Floats:
    """Mean along the last axis: (..., n) -> (...). NaN of nothing."""
    return values.mean(axis=-1) if values.shape[-1] else np.full(values.shape[:-1], np.nan)


Statistic = Callable[[Floats], Floats]


def resample(windows: int, seeds: int, num_resamples: int = NUM_RESAMPLES, seed: int = 0) -> npt.NDArray[np.int64]:
    """(num_resamples, windows * seeds) int64 indices into a flattened (windows, seeds) table."""
    generator = np.random.default_rng(seed)
    drawn = generator.integers(windows, size=(num_resamples, windows, 1))
    inner = generator.integers(seeds, size=(num_resamples, windows, seeds))
    return (drawn * seeds + inner).reshape(num_resamples, windows * seeds)


def estimate(values: Floats, statistic: Statistic = mean) -> Estimate:
    """A statistic of a table (W, S) of repetitions and its percentile interval.

    Repetitions without a value (NaN: a window without completed jobs) are left out of the statistic,
    in the table as in each resample; ``n`` counts the others.
    """
    flat = values.ravel()
    known = ~np.isnan(flat)
    n = int(known.sum())
    value = float(statistic(flat[known]))
    if n < MIN_REPETITIONS:
        return Estimate(value, np.nan, np.nan, n)
    drawn = flat[resample(*values.shape)]
    if known.all():
        resampled = statistic(drawn)
    else:
        resampled = np.array([statistic(row[~np.isnan(row)]) for row in drawn])
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.nanpercentile(resampled, [tail, 100 - tail])
    return Estimate(value, float(low), float(high), n)


def paired_difference(values: Floats, reference: Floats) -> Estimate:
    """Mean of ``values - reference`` over the repetitions of two tables, (W, S) or (W, 1) each, with its interval."""
    return estimate(values - reference)


def win_rate(values: Floats, reference: Floats, better: str) -> float:
    """Share of repetitions in which ``values`` beats ``reference``; a tie counts one half. NaN of nothing."""
    gap = (reference - values if better == "lower" else values - reference).ravel()
    gap = gap[~np.isnan(gap)]
    return float(np.mean(np.where(gap > 0, 1.0, np.where(gap == 0, 0.5, 0.0)))) if gap.size else np.nan
