"""The bootstrap against closed forms and scipy, the interquartile mean against hand values, pairing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from envs.statistics import (
    MIN_REPETITIONS,
    estimate,
    interquartile_mean,
    mean,
    paired_difference,
    paired_ratio,
    resample,
    win_rate,
)


def column(values):
    """A table of one seed a window."""
    return np.array(values, dtype=float)[:, None]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([5.0], 5.0),
        ([1.0, 2.0, 6.0], 3.0),  # floor(3 / 4) = 0 are cut
        ([0.0, 1.0, 2.0, 100.0], 1.5),  # one cut at each end
        ([9.0, 1.0, 3.0, 2.0, 4.0, 1000.0, 5.0, -7.0], 3.5),  # two: the mean of 2, 3, 4, 5
    ],
)
def test_interquartile_mean_by_hand(values, expected):
    assert interquartile_mean(np.array(values)) == pytest.approx(expected)


def test_statistics_of_nothing_are_nan():
    assert np.isnan(mean(np.empty(0)))
    assert np.isnan(interquartile_mean(np.empty(0)))
    assert np.isnan(estimate(np.full((7, 1), np.nan)).value)


def test_interval_of_a_binomial_mean():
    """Resampled means of 0 0 0 0 1 are Binomial(5, 1/5) / 5, whose 97.5 % quantile is 3 / 5 (P(X <= 2) = 0.942)."""
    found = estimate(column([0, 0, 0, 0, 1]))
    assert found == (0.2, 0.0, 0.6, 5)


def test_interval_agrees_with_scipy():
    values = np.random.default_rng(1).lognormal(0, 1, 60)
    found = estimate(column(values))
    scipy = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=2).confidence_interval
    width = scipy.high - scipy.low
    assert found.ci_low == pytest.approx(scipy.low, abs=0.06 * width)
    assert found.ci_high == pytest.approx(scipy.high, abs=0.06 * width)


def test_interval_agrees_with_the_normal_approximation():
    """Of many windows the mean is nearly normal: half width 1.96 sigma / sqrt(n)."""
    values = np.random.default_rng(3).normal(10, 2, 400)
    found = estimate(column(values))
    half = 1.96 * values.std() / np.sqrt(400)
    assert (found.ci_high - found.ci_low) / 2 == pytest.approx(half, rel=0.08)


def test_fewer_than_five_repetitions_give_no_interval():
    few = estimate(column(range(MIN_REPETITIONS - 1)))
    assert few.value == 1.5
    assert np.isnan(few.ci_low)
    assert np.isnan(few.ci_high)
    assert few.n == 4
    assert not np.isnan(estimate(column(range(MIN_REPETITIONS))).ci_low)


def test_windows_are_the_outer_level():
    """Values that differ between windows only: the interval is that of 6 windows, not of 60 repetitions."""
    windows = np.random.default_rng(4).normal(0, 1, 6)
    once, repeated = estimate(column(windows)), estimate(np.repeat(column(windows), 10, axis=1))
    assert repeated.n == 60
    assert repeated[:3] == pytest.approx(once[:3])


def test_draws_take_seeds_from_the_drawn_window():
    drawn = resample(4, 3).reshape(-1, 4, 3)
    assert (drawn // 3 == drawn[:, :, :1] // 3).all()
    assert set(np.unique(drawn)) == set(range(12))


def test_missing_repetitions_are_left_out():
    found = estimate(column([1, 2, np.nan, 3, 4, 5]))
    assert found.value == 3
    assert found.n == 5
    assert 1 <= found.ci_low < 3 < found.ci_high <= 5


def test_pairing_removes_what_both_share():
    """Windows differ by thousands, the policies by about 1: only paired differences can tell."""
    generator = np.random.default_rng(5)
    base = generator.uniform(0, 10_000, (20, 3))
    ours = base + 1 + generator.normal(0, 0.5, (20, 3))
    assert estimate(ours).ci_low < estimate(base).ci_high
    gap = paired_difference(ours, base)
    assert gap.excludes_zero
    assert 0.7 < gap.ci_low < gap.value < gap.ci_high < 1.3
    assert not paired_difference(base, base).excludes_zero


def test_a_deterministic_policy_is_paired_with_every_seed():
    ours, theirs = np.array([[1.0, 3.0], [5.0, 7.0]]), column([1, 4])
    assert paired_difference(ours, theirs).value == pytest.approx((0 + 2 + 1 + 3) / 4)
    assert paired_ratio(ours, theirs).value == pytest.approx(16 / 10 - 1)


def test_ratio_and_difference_agree_on_what_is_significant():
    generator = np.random.default_rng(6)
    for shift in (0.0, 0.5, 3.0):
        theirs = generator.uniform(5, 10, (12, 1))
        ours = theirs - shift + generator.normal(0, 1, (12, 1))
        assert paired_ratio(ours, theirs).excludes_zero == paired_difference(ours, theirs).excludes_zero


def test_ratio_to_nothing_is_nan():
    assert np.isnan(paired_ratio(column(range(6)), column([0] * 6)).value)


@pytest.mark.parametrize(("better", "expected"), [("lower", 0.625), ("higher", 0.375)])
def test_win_rate_counts_ties_as_halves(better, expected):
    assert win_rate(column([1, 2, 3, 5]), column([2, 3, 3, 4]), better) == expected
