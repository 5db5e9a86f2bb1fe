"""Depths of the schedules that users set, and of the two traps, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.freeze_traps import AlwaysMax, GreedyFreeze
from baselines.freezeout import FreezeOut
from baselines.pipetransformer import PipeTransformer
from tests.baselines.layer_views import Gives, depths, layer_view


def at(wrapper, progress, modules=10, **parameters):
    return depths(wrapper(Gives([0, 1]), **parameters), layer_view([{"progress": progress, "modules": modules}]))[0]


@pytest.mark.parametrize(
    ("progress", "depth"),
    # 1 - 0.99^10 = 0.0956, ^11: 0.1047, ^22: 0.198, ^23: 0.206, ^50: 0.395, ^100: 0.634
    [(0.0, 0), (0.105, 0), (0.115, 1), (0.225, 1), (0.235, 2), (0.505, 3), (1.0, 6)],
)
def test_pipetransformer_in_a_hundred_epochs(progress, depth):
    assert at(PipeTransformer, progress) == depth


def test_pipetransformer_in_few_epochs():
    # After the first of two epochs half of 9 modules; after the only epoch all that may be frozen.
    assert [at(PipeTransformer, p, 9, epochs=2) for p in (0.49, 0.5, 0.99)] == [0, 4, 4]
    assert [at(PipeTransformer, p, epochs=1) for p in (0.99, 1.0)] == [0, 9]


@pytest.mark.parametrize(
    ("progress", "depth"),
    # Cubes of 0.8, 0.822, 0.844 ... 0.978, 1: 0.512, 0.556, 0.602, ... 0.935, 1
    [(0.0, 0), (0.511, 0), (0.513, 1), (0.555, 1), (0.556, 2), (0.601, 2), (0.603, 3), (0.934, 8), (0.936, 9), (1, 9)],
)
def test_freezeout_cubed(progress, depth):
    assert at(FreezeOut, progress) == depth


@pytest.mark.parametrize(("progress", "depth"), [(0.49, 0), (0.51, 1), (0.55, 1), (0.56, 2), (0.95, 9), (1.0, 9)])
def test_freezeout_linear(progress, depth):
    """Times 0.5, 0.556, 0.611 ... 1."""
    assert at(FreezeOut, progress, start=0.5, cubed=False) == depth


def test_freezeout_of_models_with_different_numbers_of_modules():
    # Of 5 modules at 0.5, 0.625, 0.75, 0.875, 1 and of 14 at 0.5, 0.538, 0.577, 0.615, 0.654 ...
    view = layer_view([{"progress": 0.64, "modules": 5}, {"progress": 0.64, "modules": 14}])
    assert depths(FreezeOut(Gives([0, 1, 1]), start=0.5, cubed=False), view) == [2, 4]


@pytest.mark.parametrize("modules", [5, 8, 10, 16])
def test_always_max_freezes_nine_tenths_at_once(modules):
    assert at(AlwaysMax, 0.0, modules) == modules * 9 // 10


def test_greedy_takes_the_largest_effective_progress_of_all_depths():
    speed = np.array([1.0, 1.2, 1.1, 1.3, 1.0, 1.0, 1.25, 1.3, 1.0, 0.5])
    jobs = [{"speed": speed}, {"speed": speed, "depth": 7, "left": 0.0}, {"speed": speed[::-1]}]
    assert depths(GreedyFreeze(Gives([0, 1, 1, 1])), layer_view(jobs)) == [3, 3, 2]


def test_greedy_counts_the_penalty():
    """Twice the speed at a penalty of 0.6 is slower."""
    job = {"speed": np.array([1.0, 0.8] + [0.0] * 8), "penalty": np.array([0, 0.6] + [0.95] * 8)}
    assert depths(GreedyFreeze(Gives([0, 1])), layer_view([job])) == [0]
