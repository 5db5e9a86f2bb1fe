"""Model profiles at a depth: what is left of the time of a step when the first modules are frozen."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from traces.freezing import LAYERS, PRESETS, Freezing, freeze, layers_of, max_local, shares
from traces.measured import read_profiles
from traces.profiles import ProfileError, load_profiles

MODELS = load_profiles()
PLAIN, CACHED = Freezing(sync_left=1.0), Freezing(cached=True)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_nothing_changes_at_depth_0(model: str) -> None:
    """Bit for bit: the very profile."""
    assert freeze(MODELS[model], 0) is MODELS[model]
    assert shares(model, 0, Freezing()) == pytest.approx((1.0, 1.0, 1.0), abs=1e-12)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_a_step_shrinks_with_every_module(model: str) -> None:
    """Compute and synchronisation time never grow with the depth, the largest micro-batch never shrinks."""
    deepest = layers_of(model)[1].max_frozen
    assert deepest >= 4
    profiles = [freeze(MODELS[model], depth) for depth in range(deepest + 1)]
    for name in MODELS[model].types:
        found = [p.types[name] for p in profiles]
        times = [t.throughput.times(False, np.array([1, 4]), t.min_local) for t in found]
        for (grad, step), (less_grad, less_step) in pairwise(times):
            assert (less_grad <= grad * (1 + 1e-9)).all()
            assert (less_step <= step * (1 + 1e-9)).all()
        assert times[-1][0][0] < 0.8 * times[0][0][0]
        assert all(a.max_local <= b.max_local for a, b in pairwise(found))


def test_by_hand() -> None:
    """ResNet-18 with 5 of 10 modules frozen, by the formulas of the design note."""
    profile = layers_of("cifar10")[1]
    half = freeze(MODELS["cifar10"], 5).types["aws"].throughput
    whole = MODELS["cifar10"].types["aws"].throughput
    c, b, q = (float(share[5]) for share in (profile.forward_share(), profile.backward_share(), profile.param_share()))
    assert half.alpha_c / whole.alpha_c == pytest.approx(0.25 + 0.75 * 0.5)
    assert half.beta_c / whole.beta_c == pytest.approx(0.38 * (c + 0.85 * (1 - c)) + 0.62 * b)
    for name in ("alpha_n", "beta_n", "alpha_r", "beta_r"):
        assert asdict(half)[name] / asdict(whole)[name] == pytest.approx(0.1 + 0.9 * q)
    assert half.gamma == whole.gamma


def test_plain_ddp_saves_no_synchronisation_and_a_cache_saves_the_forward_pass() -> None:
    depth = 6
    usual, plain, cached = (shares("bert", depth, how) for how in (Freezing(), PLAIN, CACHED))
    assert plain[2] == 1.0
    assert usual[2] < 0.7
    assert plain[:2] == usual[:2]
    assert cached[1] < usual[1] - 0.1
    assert (cached[0], cached[2]) == (usual[0], usual[2])


def test_freed_memory_is_what_it_says() -> None:
    """The samples that fit at a depth need no more than those that fit at 0 do, and one more would (LE 3.5)."""
    for model in MODELS:
        profile, at_zero = layers_of(model)[1], 64
        budget = profile.memory_bytes(at_zero)[0]
        for depth in range(profile.max_frozen + 1):
            local = max_local(model, depth, at_zero)
            assert profile.memory_bytes(local)[depth] <= budget * (1 + 1e-9)
            assert profile.memory_bytes(local + 1)[depth] > budget * (1 - 1e-9)


def test_presets_are_ordered_by_how_early_layers_converge() -> None:
    names = ["conservative", "middle", "egeria", "finetune"]
    assert list(PRESETS) == names
    assert all(PRESETS[a].first > PRESETS[b].first for a, b in pairwise(names))
    assert all(0 < preset.first < preset.last <= 1 for preset in PRESETS.values())
    assert [name for name in names if PRESETS[name].may_cache] == ["finetune"]


def test_every_shipped_model_has_layers() -> None:
    assert set(LAYERS) == set(MODELS)


def test_what_cannot_be_frozen_is_said(shared: Path) -> None:
    with pytest.raises(ProfileError, match=r"^model cifar10: depth 10 lies outside 0 to 9$"):
        freeze(MODELS["cifar10"], 10)
    with pytest.raises(ProfileError, match=r"^the layers of model 'gpt5' are not known \(known: bert, "):
        freeze(replace(MODELS["bert"], model="gpt5"), 1)
    measured = read_profiles(shared / "data/profiles/pollux_osdi21")["cifar10"]
    with pytest.raises(ProfileError, match=r"^model cifar10 on aws: measured step times are not known with frozen"):
        freeze(measured, 1)
