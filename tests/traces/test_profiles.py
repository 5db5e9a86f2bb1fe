"""Model profiles: the formulas by hand, against the published simulators' values, and the shipped table."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from traces.profiles import (
    GPU_TYPES,
    ModelProfile,
    Throughput,
    TypeProfile,
    canonical_type,
    gain,
    load_profiles,
    optimise_batch,
)

close = partial(pytest.approx, rel=1e-6)
MODELS = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")
# Pollux's limit, not Sia's; and what was measured and Sia's jobs run, not what Sia's scheduler assumes (57).
OTHER_LIMITS = {("yolov3", "aws"): 8, ("deepspeech2", "rtx"): 80}
TIMES = Throughput(alpha_c=1.0, beta_c=0.5, alpha_n=4.0, beta_n=1.0, alpha_r=2.0, beta_r=0.25, gamma=2.0)


@pytest.fixture
def model():
    """Three epochs, gradients measured at batches 10 and 30."""
    return ModelProfile(
        model="mine",
        init_batch=10,
        max_batch=40,
        progress=np.array([100.0, 200.0, 320.0]),
        batches=np.array([10.0, 30.0]),
        grad_sqr=np.array([[1.0, 3.0], [0.0, 0.0], [1.0, 1.0]]),
        grad_var=np.array([[4.0, 8.0], [0.0, 0.0], [3.0, 3.0]]),
        iterations=np.array([[100.0, 50.0], [200.0, 90.0], [320.0, 120.0]]),
        first_delay_s=30.0,
        next_delay_s=3.0,
        types={},
    )


@pytest.mark.parametrize(
    ("several", "gpus", "grad", "step"),
    [
        (False, 1, 3.0, 3.0),  # 1 + 0.5 x 4, no network
        (False, 2, 3.0, 13**0.5),  # network 2: sqrt(9 + 4)
        (False, 6, 3.0, 18**0.5),  # 2 + 0.25 x 4 = 3
        (True, 2, 3.0, 5.0),  # 4: the 3-4-5 triangle
        (True, 4, 3.0, 45**0.5),  # 4 + 1 x 2 = 6
    ],
)
def test_step_times_by_hand(several, gpus, grad, step):
    assert TIMES.times(several, gpus, 4) == (close(grad), close(step))


def test_step_times_broadcast():
    grad, step = TIMES.times(np.array([[False], [True]]), np.array([1, 2, 4]), 4)
    assert grad.shape == step.shape == (2, 3)
    assert step[1] == pytest.approx([3.0, 5.0, 45**0.5])  # a single GPU has no network, whatever is said of nodes


def test_gradients_are_linear_between_batches_and_clamped_outside(model):
    assert model.gradients(0, 15.0) == (1.5, 5.0)
    assert model.gradients(0, 1.0) == (1.0, 4.0)
    assert model.gradients(0, 99.0) == (3.0, 8.0)
    sqr, var = model.gradients(0, np.array([10.0, 20.0]))
    assert sqr.tolist() == [1.0, 2.0]
    assert var.tolist() == [4.0, 6.0]


def test_gain_by_hand(model):
    assert model.gain(0, 10.0) == 1.0
    assert model.gain(2, 30.0) == 2.0  # (3 + 1) / (3 / 3 + 1)
    assert model.gain(1, 30.0) == 1.0  # no gradients: 0 / 0
    assert gain(-1.0, 2.0, 10, 20.0) == 1.0  # 2 / 2 - 1 is not above 0
    assert gain(1.0, 3.0, 10, np.array([10.0, 30.0])).tolist() == [1.0, 2.0]


def test_iterations_left_by_hand(model):
    assert model.iterations_left(0, 10.0) == 220.0
    assert model.iterations_left(0, 20.0) == 145.0  # half-way between 220 and 120 - 50
    assert model.iterations_left(2, 30.0) == 0.0
    fitted = ModelProfile(**{**vars(model), "iterations": None})
    assert fitted.iterations_left(0, 30.0) == 160.0  # 100 / 1 + 120 / 2
    assert fitted.iterations_left(2, 30.0) == 0.0


def test_best_batch_by_hand(model):
    """Without network and with phi = 0 a larger batch is slower for nothing: M0 it is, cut to the memory."""
    entry = TypeProfile("aws", 2, 4, Throughput(0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0))
    goodput, local, steps = optimise_batch(entry, model, entry.throughput, 1.0, 0.0, 1, 1)
    assert (local, steps) == (4, 2)  # ceil(10 / 4) - 1 = 2 accumulation steps of ceil(10 / 3)
    assert goodput == close(1 / 12)
    assert optimise_batch(entry, model, entry.throughput, 1.0, 0.0, 1, 2, 40)[1:] == (4, 4)
    assert optimise_batch(entry, model, entry.throughput, 1.0, 0.0, 1, 3, 40)[1:] == (3, 3)  # 4 x 12 > 40: cut to 3
    assert optimise_batch(entry, model, entry.throughput, 1.0, 0.0, 1, 21) == (0.0, 0, 0)  # 21 x 2 > 40


def test_a_single_gpu_accumulates_above_the_first_batch(model):
    entry = TypeProfile("aws", 2, 40, Throughput(0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0))
    assert optimise_batch(entry, model, entry.throughput, 1.0, 1.0, 1, 1, 12)[1:] == (6, 1)
    assert optimise_batch(entry, model, entry.throughput, 1.0, 1.0, 1, 1, 10)[1:] == (10, 0)
    assert optimise_batch(entry, model, entry.throughput, 1.0, 1.0, 1, 2, 12)[1:] == (6, 0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("", "aws"), ("T4", "aws"), ("2080Ti", "rtx"), ("A100", "dgx-ext"), (" v100 ", "azure"), ("h100", "h100")],
)
def test_type_aliases(name, expected):
    assert canonical_type(name) == expected


def test_type_names_stand_for_themselves():
    assert [canonical_type(name) for name in GPU_TYPES] == list(GPU_TYPES)


def test_shipped_table_has_every_model_and_type():
    profiles = load_profiles()
    assert tuple(profiles) == MODELS
    for name, profile in profiles.items():
        assert profile.model == name
        assert set(profile.types) == set(GPU_TYPES)
        assert profile.iterations is None
        assert profile.grad_sqr.shape == profile.grad_var.shape == (len(profile.progress), 1)
        assert profile.gain(0, float(profile.max_batch)) > profile.gain(0, float(profile.init_batch)) == 1.0
        for gpu_type, entry in profile.types.items():
            assert entry.gpu_type == gpu_type
            assert entry.measured is None
            assert 0 < entry.min_local <= entry.max_local
            assert 1.0 <= entry.throughput.gamma <= 10.0
    assert profiles["yolov3"].types["aws"].max_local == 8


def test_shipped_facts_are_those_of_the_simulators(shared):
    facts = json.loads((shared / "reference" / "pollux_sia" / "app_facts.json").read_text())
    for name, profile in load_profiles().items():
        assert profile.init_batch == facts[name]["init_batch_size"]
        assert profile.max_batch == facts[name]["max_batch_size"]
        assert len(profile.progress) == facts[name]["max_epochs"]
        assert profile.progress[-1] == close(facts[name]["progress_total"])
        for gpu_type, limits in facts[name]["per_gpu_type"].items():
            entry = profile.types[gpu_type]
            assert entry.min_local == limits["min_local_bsz"]
            assert entry.max_local == OTHER_LIMITS.get((name, gpu_type), limits["max_local_bsz_any"])


def test_best_batches_are_those_of_sias_code(shared):
    golden = json.loads((shared / "reference" / "pollux_sia" / "golden_goodput.json").read_text())
    profiles = load_profiles()
    for case in golden["optimize"]:
        entry = TypeProfile(case["gpu"], case["m_min"], case["m_max"], Throughput(*case["perf_params"]))
        model = profiles[case["model"]]
        assert (model.init_batch, model.max_batch) == (case["M0"], case["Mmax"])
        best = partial(optimise_batch, entry, model, entry.throughput, case["grad_sqr"], case["grad_var"])
        goodput, local, steps = best(case["nodes"], case["replicas"])
        assert (local, steps) == (case["atomic_bsz"], case["accum_steps"])
        assert goodput * model.init_batch == close(case["goodput"])  # theirs in samples/s
        fixed, *_ = best(case["nodes"], case["replicas"], model.max_batch)
        assert fixed * model.init_batch == close(case["fixed_batch_goodput_at_Mmax"])
