"""How likely straggling is and how long it goes on: formulas against integration and against simulated episodes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad

from envs.straggler_odds import (
    GRACE_S,
    expected_excess,
    mean_residual,
    occurrence,
    placement_odds,
    stay,
    survival,
    time_fraction,
)
from envs.straggler_presets import LONGEST_S, SHORTEST_S

DRAWS = 400_000
KINDS = [(600.0, 1.0, False), (1440.0, 1.2, False), (4320.0, 1.0, False), (600.0, 1.0, True), (4320.0, 1.0, True)]


def durations(mean: float, log_sd: float, exponential: bool) -> np.ndarray:
    """(DRAWS,) [s] episodes, cut."""
    rng = np.random.default_rng(7)
    if exponential:
        lengths = rng.exponential(mean, DRAWS)
    else:
        lengths = np.exp(np.log(mean) - log_sd**2 / 2 + log_sd * rng.standard_normal(DRAWS))
    return np.clip(lengths, SHORTEST_S, LONGEST_S)


@pytest.mark.parametrize("kind", KINDS)
def test_survival_and_mean_residual_are_those_of_simulated_episodes(kind: tuple[float, float, bool]) -> None:
    """Within 4 standard errors of 400,000 episodes."""
    lengths = durations(*kind)
    for age in (0.0, 29.0, 30.0, 100.0, 600.0, 3000.0, 20_000.0):
        older = lengths[lengths > age]
        share = len(older) / DRAWS
        assert survival(age, *kind) == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / DRAWS) + 1e-5)
        if len(older) < 100:
            continue
        error = older.std() / np.sqrt(len(older))
        assert mean_residual(age, *kind) == pytest.approx((older - age).mean(), abs=4 * error)
        lasting = (older > age + GRACE_S).mean()
        error = np.sqrt(lasting * (1 - lasting) / len(older))
        assert stay(age, *kind) == pytest.approx(lasting, abs=4 * error + 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_mean_residual_is_the_integral_of_survival(kind: tuple[float, float, bool]) -> None:
    for age in (0.0, 10.0, 30.0, 500.0, 5000.0, 35_000.0):
        ends = [age, *(x for x in (SHORTEST_S, 300.0, 3000.0, 15_000.0, LONGEST_S) if x > age)]
        pieces = [quad(survival, a, b, args=kind)[0] for a, b in pairwise(ends)]
        assert mean_residual(age, *kind) == pytest.approx(sum(pieces) / survival(age, *kind), rel=1e-6)
    assert mean_residual(LONGEST_S, *kind) == stay(LONGEST_S, *kind) == survival(LONGEST_S, *kind) == 0.0


def test_cutting_keeps_the_ends() -> None:
    """No episode ends before half a minute or after ten hours, so both odds are certain there."""
    assert survival(29.9, 600.0, 1.0, False) == 1.0
    assert survival(30.1, 600.0, 1.0, False) < 1.0
    assert stay(LONGEST_S - GRACE_S, 600.0, 1.0, False) == 0.0
    later = survival(SHORTEST_S, 600.0, 1.0, False) * mean_residual(SHORTEST_S, 600.0, 1.0, False)
    assert mean_residual(0.0, 600.0, 1.0, False) == pytest.approx(SHORTEST_S + later)


def test_occurrence_is_that_of_simulated_onsets() -> None:
    """Within 4 standard errors of 400,000 trials: slow for another minute, or an onset within the horizon."""
    rng = np.random.default_rng(3)
    for rate, staying, horizon in ((1e-4, 0.0, 600.0), (5e-4, 0.0, 3600.0), (1e-4, 0.7, 3600.0)):
        came = (rng.random(DRAWS) < staying) | (rng.exponential(1 / rate, DRAWS) < horizon)
        error = came.std() / np.sqrt(DRAWS)
        assert occurrence(rate, staying, horizon) == pytest.approx(came.mean(), abs=4 * error)
    assert occurrence(0.0, 0.0, 600.0) == 0.0
    assert occurrence(0.0, 1.0, 600.0) == 1.0


def test_time_fraction_is_that_of_a_simulated_component() -> None:
    """20,000 paths of steps of 4 s, whose own error is below 0.004, within 4 standard errors of it."""
    paths, step, rate, left = 20_000, 4.0, 1 / 1500, 700.0
    for slow, horizon in ((False, 600.0), (True, 600.0), (False, 3600.0), (True, 3600.0)):
        rng = np.random.default_rng(11)
        state, time = np.full(paths, slow), np.zeros(paths)
        for _ in range(int(horizon / step)):
            turns = rng.random(paths) < 1 - np.exp(-step * np.where(state, 1 / left, rate))
            time += step * (state * 0.5 + (state ^ turns) * 0.5)  # half a step in each state where it turns
            state ^= turns
        share = time / horizon
        error = share.std() / np.sqrt(paths)
        assert time_fraction(slow, rate, left, horizon) == pytest.approx(share.mean(), abs=4 * error + 0.004)


def test_expected_excess() -> None:
    """Slow for a quarter of the time, twice as slow, and half of it felt: an eighth."""
    assert expected_excess(0.25, 0.5, 1.0) == 0.125


def test_placement_odds() -> None:
    p = np.array([0.5, 0.2, 0.1])
    assert placement_odds(p, [0, 0, 0]) == 0.0
    assert placement_odds(p, [0, 8, 0]) == pytest.approx(0.2)
    assert placement_odds(p, [8, 1, 0]) == pytest.approx(1 - 0.5 * 0.8)
    assert placement_odds(p, [[1, 1, 1], [0, 0, 4]]) == pytest.approx([1 - 0.5 * 0.8 * 0.9, 0.1])
