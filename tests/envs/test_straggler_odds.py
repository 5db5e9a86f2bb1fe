"""How likely straggling is and how long it goes on: formulas against simulated episodes."""

from __future__ import annotations

import numpy as np
import pytest

from envs.straggler_odds import GRACE_S, occurrence, placement_odds, stay, survival
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
def test_survival_is_that_of_simulated_episodes(kind: tuple[float, float, bool]) -> None:
    """Within 4 standard errors of 400,000 episodes."""
    lengths = durations(*kind)
    for age in (0.0, 29.0, 30.0, 100.0, 600.0, 3000.0, 20_000.0):
        older = lengths[lengths > age]
        share = len(older) / DRAWS
        assert survival(age, *kind) == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / DRAWS) + 1e-5)
        if len(older) < 100:
            continue
        lasting = (older > age + GRACE_S).mean()
        error = np.sqrt(lasting * (1 - lasting) / len(older))
        assert stay(age, *kind) == pytest.approx(lasting, abs=4 * error + 1e-12)


def test_cutting_keeps_the_ends() -> None:
    """No episode ends before half a minute or after ten hours, so both odds are certain there."""
    assert survival(29.9, 600.0, 1.0, False) == 1.0
    assert survival(30.1, 600.0, 1.0, False) < 1.0
    assert stay(LONGEST_S - GRACE_S, 600.0, 1.0, False) == 0.0
    assert stay(LONGEST_S, 600.0, 1.0, False) == survival(LONGEST_S, 600.0, 1.0, False) == 0.0


def test_occurrence_is_that_of_simulated_onsets() -> None:
    """Within 4 standard errors of 400,000 trials: slow for another minute, or an onset within the horizon."""
    rng = np.random.default_rng(3)
    for rate, staying, horizon in ((1e-4, 0.0, 600.0), (5e-4, 0.0, 3600.0), (1e-4, 0.7, 3600.0)):
        came = (rng.random(DRAWS) < staying) | (rng.exponential(1 / rate, DRAWS) < horizon)
        error = came.std() / np.sqrt(DRAWS)
        assert occurrence(rate, staying, horizon) == pytest.approx(came.mean(), abs=4 * error)
    assert occurrence(0.0, 0.0, 600.0) == 0.0
    assert occurrence(0.0, 1.0, 600.0) == 1.0


def test_placement_odds() -> None:
    p = np.zeros((3, 2, 1))
    p[:, 0, 0], p[:, 1, 0] = (0.5, 0.2, 0.1), (0.9, 0.3, 0.0)
    assert placement_odds(p, [0, 0, 0]) == pytest.approx([0.0])
    assert placement_odds(p, [0, 8, 0]) == pytest.approx([0.2]), "no link"
    both = 1 - 0.8 * 0.9 * 0.7 * 1.0
    assert placement_odds(p, [[0, 1, 1], [4, 0, 0]]) == pytest.approx(np.array([[both], [0.5]]))
