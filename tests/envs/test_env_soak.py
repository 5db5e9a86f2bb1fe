"""A million masked random steps: no action of the mask is refused, every observation is finite and within bounds."""

from __future__ import annotations

import numpy as np
import pytest

from envs.batch import Batch
from envs.settings import EnvSettings
from tests.envs.env_support import EVENTS, MIXED, check_devices, mixed_trace, random_actions

ROWS = 256
# Slots and batch steps; actions are 1 + 9 x slots: 73, 577 and 2,296. 256 x 3,907 = 1,000,192 steps.
SOAKS = [(8, 1700), (64, 1500), (255, 707)]


def batch(num_slots: int, **settings) -> Batch:
    given = {"window_jobs": 4 * num_slots, "split": "all", "sim": EVENTS, "num_slots": num_slots}
    soaked = Batch(EnvSettings(trace=mixed_trace(1500), cluster=MIXED, **{**given, **settings}), ROWS)
    soaked.reset(np.arange(ROWS))
    return soaked


@pytest.mark.parametrize(("num_slots", "steps"), SOAKS)
def test_masked_random_soak(num_slots, steps):
    soaked, rng = batch(num_slots), np.random.default_rng(num_slots)
    low, high = soaked.layout.bounds()
    sizes, ended, most, least = [], 0, -np.inf, np.inf
    for _ in range(steps):
        sizes.append(soaked.mask.sum(axis=1))
        soaked.step(random_actions(rng, soaked.mask))  # raises on a refused action
        # np.maximum, unlike max(), hands on NaN.
        most, least = np.maximum(most, (soaked.obs - high).max()), np.minimum(least, (soaked.obs - low).min())
        ended += int((soaked.terminated | soaked.truncated).sum())
    assert most <= 0 <= least
    assert soaked.mask.shape == (ROWS, 1 + 9 * num_slots)
    assert np.min(sizes) == 1
    assert np.max(sizes) > min(num_slots, 32)
    assert ended > 0 or num_slots > 8
    for s in soaked.states[::16]:
        check_devices(s)


def test_unmasked_random_soak_when_invalid_actions_commit():
    soaked, rng = batch(8, on_invalid="commit"), np.random.default_rng(0)
    ended = np.zeros(ROWS, np.int64)
    for _ in range(400):
        soaked.step(rng.integers(-2, 78, ROWS))  # 73 actions: some lie outside the space
        assert np.isfinite(soaked.obs).all()
        ended += soaked.terminated | soaked.truncated
    assert (ended > 0).all()
    for s in soaked.states[::16]:
        check_devices(s)
