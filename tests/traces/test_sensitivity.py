"""Sensitivities: the fitted rows against the ratios that they were fitted to, and how a row is chosen."""

from __future__ import annotations

import re

import numpy as np
import pytest

from docs.straggler_tables import sensitivities
from traces.profiles import load_profiles
from traces.sensitivity import (
    DEFAULT,
    MEASURED,
    OF_MODEL,
    SENSITIVITIES,
    SPEED_CLASSES,
    sensitivity_of,
    what_is_unknown,
)

CONVOLUTIONAL = tuple(name for name in MEASURED if name not in ("lstm", "transformer"))


@pytest.fixture(scope="module")
def ratios(shared):
    """(4,) by model: how many times as long an iteration took, CPU strong and mild, bandwidth strong and mild."""
    page = shared / "design" / "stragglers.md"
    if not page.is_file():
        pytest.skip(f"needs the design page {page}, which is not part of the project")
    row = re.compile(r"^\| (\w+) \| ([\d.]+) / ([\d.]+) \| ([\d.]+) / ([\d.]+) \|$", re.MULTILINE)
    return {name: np.array(cells, float) for name, *cells in row.findall(page.read_text())}


def factors(excess):
    """(models,) float64 of the nearest matrix factor x level to ``excess`` (models, levels), up to scale."""
    left, strength, levels = np.linalg.svd(excess, full_matrices=False)
    return left[:, 0] * strength[0] * np.sign(levels[0, 0])


def test_the_measured_rows_are_those_of_the_page(ratios):
    assert list(MEASURED) == list(ratios)


def test_cpu_is_fitted(ratios):
    found = dict(zip(ratios, factors(np.array(list(ratios.values()))[:, :2] - 1), strict=True))
    scale = np.mean([found[name] for name in CONVOLUTIONAL])
    for name, row in MEASURED.items():
        assert row.cpu == pytest.approx(found[name] / scale, abs=0.00501), name


def test_the_share_of_communication_is_fitted(ratios):
    """Multiplier of an iteration: 1 + comm_share (slowness of the link - 1)."""
    found = dict(zip(ratios, factors(np.array(list(ratios.values()))[:, 2:] - 1), strict=True))
    scale = 0.5 / max(found.values())
    for name, row in MEASURED.items():
        assert row.comm_share == pytest.approx(max(0.02, scale * found[name]), abs=0.00501), name


def test_the_scale_is_the_stated_one():
    assert len(CONVOLUTIONAL) == 8
    assert np.mean([MEASURED[name].cpu for name in CONVOLUTIONAL]) == pytest.approx(1, abs=0.005)
    assert max(row.comm_share for row in MEASURED.values()) == 0.5


@pytest.mark.parametrize("name", SENSITIVITIES)
def test_rows_are_in_range(name):
    row = SENSITIVITIES[name]
    assert min(row.cpu, row.net, row.io) >= 0
    assert 0 <= row.comm_share < 1
    assert 0 <= row.speed_class < len(SPEED_CLASSES)


def test_a_name_goes_before_the_model_and_vision_is_the_default():
    assert sensitivity_of("lstm", "bert") is SENSITIVITIES["lstm"]
    assert sensitivity_of("", "bert") is SENSITIVITIES["language"]
    assert sensitivity_of("", "gpt5") is sensitivity_of("", "") is SENSITIVITIES["vision"]
    assert DEFAULT == "vision"


def test_every_shipped_model_has_a_row():
    assert set(OF_MODEL) == set(load_profiles())
    assert set(OF_MODEL.values()) <= set(SENSITIVITIES)


def test_what_is_unknown_names_the_nearest_row():
    known = f"known: {', '.join(SENSITIVITIES)}"
    assert what_is_unknown("resnet65") == f"has no row in traces/sensitivity.py (did you mean resnet56?); {known}"
    assert what_is_unknown("q") == f"has no row in traces/sensitivity.py; {known}"


def test_the_table_of_the_docs_has_every_row():
    lines = sensitivities().splitlines()
    assert [line.split("`")[1] for line in lines[2:]] == list(SENSITIVITIES)
    assert len({line.count("|") for line in lines}) == 1
    assert "| `language` | 0.2 | 1 | 0.2 | 0.3 | attention | `bert` |" in lines
