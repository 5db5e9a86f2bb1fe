"""Whether what schedulers see of stragglers is calibrated and tells anything, on seeds that nothing was fitted to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata

from docs.straggler_burn_in import Readings, burn_in, what_happened
from docs.straggler_calibration import BINS, BURN_IN, FINE, LOGITS, Reliability, coarsen, held_out, reliability
from envs.straggler_calibration import COUNTED, KNOTS, MOST_LOGIT, counts_of, forecast, logit_of
from envs.straggler_presets import STRAGGLER_PRESETS

FRESH = 5000  # first seed of these tests
TOLERATED = 0.03


def runs(preset: str, count: int, turns: int, **settings: Any) -> list[Readings]:
    config = replace(BURN_IN[preset], **settings)
    return [burn_in(config, FRESH + k, turns, turns // 5) for k in range(count)]


def judge(p: list[np.ndarray], happened: list[np.ndarray], cause: int, h: int) -> Reliability:
    """Reliability of probabilities (K, N, 2, 2) of several runs."""
    rows = []
    for forecasts, came in zip(p, happened, strict=True):
        q, y = forecasts[..., cause, h].ravel(), came[..., cause, h].ravel()
        at = np.minimum((BINS * q).astype(int), BINS - 1)
        rows.append([np.bincount(at, w, BINS) for w in (np.ones_like(q), q, y)])
    return reliability(*np.moveaxis(np.array(rows), 1, 0))


def check_calibration(preset: str, count: int, turns: int) -> None:
    """Within 0.03, or two standard errors, in each tenth with 200 readings or more, and 0.03 on average."""
    found = runs(preset, count, turns, straggler_obs="noisy")
    for cause, h in np.ndindex(2, 2):
        judged = judge([r.p for r in found], [r.happened for r in found], cause, h)
        assert judged.worst <= TOLERATED, (preset, cause, h, judged)
        assert judged.expected <= TOLERATED


def test_noisy_probabilities_are_calibrated() -> None:
    """12 runs of 2,000 turns, 760,000 readings."""
    check_calibration("contention", 12, 2000)


@pytest.mark.slow
@pytest.mark.parametrize("preset", STRAGGLER_PRESETS)
def test_noisy_probabilities_of_every_preset_are_calibrated(preset: str) -> None:
    """80 runs of 5,000 turns, 13 million readings."""
    check_calibration(preset, 80, 5000)


def test_noise_without_calibration_would_not_pass() -> None:
    """The measure is able to fail: the same noise, not recalibrated."""
    found = runs("contention", 6, 2000)
    rng = np.random.default_rng(0)
    p = [1 / (1 + np.exp(-logit_of(r.p) - rng.standard_normal(r.p.shape))) for r in found]
    happened = [r.happened for r in found]
    assert max(judge(p, happened, cause, h).worst for cause, h in np.ndindex(2, 2)) > 2 * TOLERATED


def auc(score: np.ndarray, came: np.ndarray) -> float:
    """Probability that the score is higher where it came than where it did not."""
    ranks, positive = rankdata(score), int(came.sum())
    return float((ranks[came].sum() - positive * (positive + 1) / 2) / (positive * (len(came) - positive)))


@pytest.mark.parametrize("preset", ["shared", "contention"])
def test_measured_load_tells_of_onsets_in_the_next_hour(preset: str) -> None:
    """Area under the curve of at least 0.65 for either cause."""
    found = runs(preset, 6, 2000)
    for cause in range(2):
        score, came = (
            np.concatenate([x[..., cause].ravel() for x in part])
            for part in ([r.load for r in found], [r.began for r in found])
        )
        assert auc(score, came) >= 0.65, cause


def test_forecasts_invert_a_known_noise() -> None:
    """Two equally frequent probabilities, p = 0.9 and 0.1, at which straggling comes as often as they say."""
    counts = np.zeros((len(COUNTED), 2))
    for p in (0.1, 0.9):
        k = int(np.argmin(np.abs(COUNTED - logit_of(p))))
        counts[k] = 1e7, 1e7 * p
    for sigma in (0.5, 1.0, 2.0):
        table, spread = forecast(counts, sigma), np.sqrt(sigma**2 + 0.25**2 / 12)
        at = COUNTED[np.argmin(np.abs(COUNTED - logit_of(0.9)))]
        upper = 1 / (1 + np.exp(-2 * at * KNOTS / spread**2))  # posterior of the upper one
        assert table == pytest.approx(0.1 + 0.8 * upper, abs=1e-4)
        assert np.interp(0.0, KNOTS, table) == pytest.approx(0.5)


def test_few_readings_count_less_than_p_itself() -> None:
    counts = np.zeros((len(COUNTED), 2))
    counts[np.argmin(np.abs(COUNTED - 2.0))] = 10, 0
    assert forecast(counts, 0.0)[np.argmin(np.abs(KNOTS - 2.0))] == pytest.approx(200 / 210 / (1 + np.exp(-2.0)))


def test_held_out_integrates_the_noise() -> None:
    """One probability, seen as 0 below its logit and 1 above: half of the readings in either outer tenth."""
    k = int(np.argmin(np.abs(LOGITS - 2.025)))
    counts = np.zeros((3, len(LOGITS), 2))
    counts[:, k] = 100, 60
    table = (LOGITS[k] + 0.2 < KNOTS).astype(float)
    found = held_out(counts, table, 2.0)
    assert found.readings.sum() == pytest.approx(300)
    assert found.readings[0] == pytest.approx(150, abs=15)
    assert found.excess[0] == pytest.approx(0.6, abs=0.02)
    assert found.excess[-1] == pytest.approx(-0.4, abs=0.02)
    assert found.expected == pytest.approx(0.5, abs=0.05)


def test_counts_are_shipped_for_every_preset() -> None:
    for preset in STRAGGLER_PRESETS:
        counts = counts_of(preset)
        assert (counts[..., 0].sum(axis=2) > 1e6).all()
        assert (counts[..., 1] <= counts[..., 0]).all()
        assert (counts[..., 1].sum(axis=2) > 100).all()
    fine = np.random.default_rng(0).random((len(LOGITS), 2))
    assert coarsen(fine).sum(axis=0) == pytest.approx(fine.sum(axis=0))
    assert np.rint(2 * MOST_LOGIT / FINE) + 1 == len(LOGITS)


def test_what_happened_after_each_turn() -> None:
    """Node 0's link is slow from 4,000 to 4,500 s, GPU 1 of node 1 from 9,000 to 9,030 s."""
    episodes = np.array([[1.0, 4000.0, 4500.0], [3 * 2 + 3, 9000.0, 9030.0]])
    happened, began = what_happened(episodes, 40, np.array([0, 0, 1, 1]))
    turns = np.arange(40) * 300.0
    assert (happened[:, 0, 1, 0] == ((turns >= 3400) & (turns < 4440))).all()
    assert (happened[:, 0, 1, 1] == ((turns >= 400) & (turns < 4440))).all()
    assert (began[:, 0, 1] == ((turns >= 400) & (turns < 4000))).all()
    assert (happened[:, 1, 0, 0] == ((turns >= 8400) & (turns < 9000))).all()
    assert not happened[:, 0, 0].any()
    assert not happened[:, 1, 1].any()
