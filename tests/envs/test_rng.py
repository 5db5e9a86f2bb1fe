"""Counter-based random numbers: known values, quality, and the same bits with and without the compiler."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from envs.rng import Purpose, _absorb, helios_estimate, uniform

ROOT = Path(__file__).resolve().parents[2]
MASK = (1 << 64) - 1
PROBES = [(0, 0, 0, 0), (1, 3, 2, 3), (12345, 1, 65536 * 7 + 3, 9), (2**63 - 1, 2, 0, 2**40), (5, 0, -1, 0)]


def splitmix64(state: int) -> int:
    """The published step, on Python's unlimited integers."""
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def draws(count: int, seed: int = 7) -> np.ndarray:
    return np.array([uniform(seed, 1, i, 0) for i in range(count)])


def test_first_step_is_the_first_number_of_splitmix64_with_seed_0() -> None:
    assert int(_absorb(np.uint64(0), 0)) == 0xE220A8397B1DCDAF


@pytest.mark.parametrize("probe", PROBES)
def test_uniform_chains_the_four_integers(probe: tuple[int, int, int, int]) -> None:
    state = 0
    for value in probe:
        state = splitmix64((state + (value & MASK >> 1)) & MASK)
    assert uniform(*probe) == (state >> 11) / 2**53


def test_every_argument_counts() -> None:
    values = {uniform(*probe) for probe in [(1, 2, 3, 4), (2, 1, 3, 4), (1, 3, 2, 4), (1, 2, 4, 3), (1, 2, 3, 5)]}
    assert len(values) == 5


def test_purposes_keep_their_numbers() -> None:
    names = ["ORDER", "PLACEMENT", "ESTIMATE", "WINDOW", "FAILURE", "FREEZING", "FRONT"]
    names += ["STRAGGLER", "BACKGROUND", "VARIABILITY", "SIGHT", "DETECTION"]
    assert [(p.name, p.value) for p in Purpose] == list(zip(names, range(12), strict=True))


def test_uniform_is_uniform() -> None:
    x = draws(20_000)
    assert x.min() >= 0
    assert x.max() < 1
    assert abs(x.mean() - 0.5) < 4 / math.sqrt(12 * len(x))  # four standard errors
    counts = np.histogram(x, bins=50, range=(0, 1))[0]
    chi_square = ((counts - 400) ** 2 / 400).sum()
    assert 24 < chi_square < 86  # 49 degrees of freedom: 0.1 % on either side


@pytest.mark.parametrize("step", [(0, 0, 1, 0), (0, 0, 0, 1), (0, 1, 0, 0), (1, 0, 0, 0)])
def test_neighbours_are_not_correlated(step: tuple[int, int, int, int]) -> None:
    base = [(3, 0, 0, i) for i in range(0, 20_000, 2)] if step[2] else [(3, 0, 2 * i, 0) for i in range(10_000)]
    here = [uniform(*probe) for probe in base]
    there = [uniform(*(a + b for a, b in zip(probe, step, strict=True))) for probe in base]
    assert abs(np.corrcoef(here, there)[0, 1]) < 4 / math.sqrt(len(base))


def test_helios_errors_have_the_published_shares() -> None:
    estimates = np.array([helios_estimate(11, j, 100.0) for j in range(10_000)])
    error = np.abs(estimates - 100) / 100
    # Of the errors above the truth's size half are negative, and their estimates become 0.
    for share, found in [
        (0.1, error < 0.1),
        (0.4, (error >= 0.1) & (error < 0.5)),
        (0.2, (error >= 0.5) & (error < 1)),
        (0.15, estimates == 0),
        (0.1, (estimates > 200) & (error < 10)),
        (0.05, error >= 10),
    ]:
        assert abs(found.mean() - share) < 4 * math.sqrt(share * (1 - share) / len(estimates))
    assert estimates.max() < 10_100
    assert ((estimates > 100) & (error < 1)).mean() == pytest.approx(0.35, abs=0.02)  # half of 0.7: either sign


def test_compiled_and_interpreted_agree_bit_for_bit() -> None:
    script = (
        f"import envs.rng as r; print([float(r.uniform(*p)).hex() for p in {PROBES}]"
        " + [float(r.helios_estimate(3, j, 1000.1)).hex() for j in range(20)])"
    )
    flipped = {**os.environ, "NUMBA_DISABLE_JIT": "0" if os.environ.get("NUMBA_DISABLE_JIT") == "1" else "1"}
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, env=flipped, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    here = [uniform(*probe).hex() for probe in PROBES] + [helios_estimate(3, j, 1000.1).hex() for j in range(20)]
    assert done.stdout.strip() == str(here)
