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
from functools import cache
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


@cache
def resample(windows: int, seeds: int) -> npt.NDArray[np.int64]:
    """(NUM_RESAMPLES, windows * seeds) int64 indices into a flattened (windows, seeds) table; always the same ones."""
    generator = np.random.default_rng(0)
    drawn = generator.integers(windows, size=(NUM_RESAMPLES, windows, 1))
    inner = generator.integers(seeds, size=(NUM_RESAMPLES, windows, seeds))
    return (drawn * seeds + inner).reshape(NUM_RESAMPLES, windows * seeds)


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
    resampled = statistic(drawn) if known.all() else np.array([statistic(row[~np.isnan(row)]) for row in drawn])
    return Estimate(value, *_interval(resampled), n)


def paired_difference(values: Floats, reference: Floats) -> Estimate:
    """Mean of ``values - reference`` over the repetitions of two tables, (W, S) or (W, 1) each, with its interval."""
    return estimate(values - reference)


def paired_ratio(values: Floats, reference: Floats) -> Estimate:
    """mean(values) / mean(reference) - 1 over the repetitions known in both; NaN where the reference is 0 throughout.

    For a reference > 0 its interval excludes 0 exactly when that of :func:`paired_difference` does.
    """
    known = ~np.isnan(values - reference)
    ours, theirs = (np.where(known, table, 0.0).ravel() for table in (values, reference))
    n = int(known.sum())
    value = float(_ratio(ours, theirs))
    if n < MIN_REPETITIONS or np.isnan(value):
        return Estimate(value, np.nan, np.nan, n)
    drawn = resample(*known.shape)
    return Estimate(value, *_interval(_ratio(ours[drawn], theirs[drawn])), n)


def _ratio(ours: Floats, theirs: Floats) -> Floats:
    base = theirs.sum(axis=-1)
    return np.asarray(ours.sum(axis=-1) / np.where(base == 0, np.nan, base) - 1, dtype=np.float64)


def _interval(resampled: Floats) -> tuple[float, float]:
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.nanpercentile(resampled, [tail, 100 - tail])
    return float(low), float(high)


def win_rate(values: Floats, reference: Floats, better: str) -> float:
    """Share of repetitions in which ``values`` beats ``reference``; a tie counts one half. NaN of nothing."""
    gap = (reference - values if better == "lower" else values - reference).ravel()
    gap = gap[~np.isnan(gap)]
    return float(np.mean(np.where(gap > 0, 1.0, np.where(gap == 0, 0.5, 0.0)))) if gap.size else np.nan
