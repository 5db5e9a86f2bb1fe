"""``python -m traces profile-layers``: models of one's own, files, errors, and the check on this machine's CPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from traces.__main__ import main
from traces.layer_profiles import load_layer_profiles
from traces.layers.profiler import Settings, prepare

ROOT = Path(__file__).resolve().parents[2]
MINE = """
import torch
from torch import nn
from traces.layers.workload import Workload

def pair():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(16, 4)

def workload():
    model, inputs = pair()
    return Workload(model, (inputs,), lambda out: out.abs().sum(), units=("0", "2"), optimizer="adam", about="tiny")

def nothing():
    return None
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module of a user's, found by this process and by others."""
    (tmp_path / "my_models.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    monkeypatch.setenv("COLUMNS", "200")
    yield tmp_path
    sys.modules.pop("my_models", None)


def run(*arguments):
    """In a process of its own, since the command changes how the process uses memory and threads."""
    done = subprocess.run(
        [sys.executable, "-m", "traces", "profile-layers", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_module_of_ones_own(mine):
    out = run("my_models:pair", str(mine / "out.json"), "--check", "--rounds", "1", "--units", "0", "2")
    assert "my_models:pair: 58 parameters" in out
    assert "a step with k frozen modules; mean error" in out
    profile = load_layer_profiles(mine / "out.json")["my_models:pair"]
    assert [(module.name, module.params) for module in profile.modules] == [("0", 40), ("2", 18)]
    assert [module.forward_flops for module in profile.modules] == [2 * 4 * 8, 2 * 8 * 2]
    assert (profile.times.batch, profile.times.threads) == (16, 1)
    assert (profile.step_s() > 0).all()


def test_a_workload_of_ones_own(mine):
    work, modules = prepare("my_models:workload", Settings(), torch.device("cpu"))
    assert (work.about, work.optimizer, work.units) == ("tiny", "adam", ("0", "2"))
    assert [module.name for module in modules] == ["0", "2"]
    assert prepare("my_models:pair", Settings(), torch.device("cpu"))[0].units == ("0", "1", "2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resnet19"], "model is 'resnet19', expected package.module:function or one of all, resnet18_cifar10,"),
        (["no_such_module:f"], "no_such_module:f cannot be called: No module named 'no_such_module'"),
        (["my_models:absent"], "my_models:absent cannot be called: module 'my_models' has no attribute 'absent'"),
        (["my_models:nothing"], "my_models:nothing returned a NoneType, expected (module, inputs) or a Workload"),
        (["my_models:pair", "--units", "0", "1"], "parameter 2.weight is in none of the units 0 1"),
        (["my_models:pair", "--units", "2", "0"], "unit 0 ran where 2 was expected: name the units as they run"),
        (["my_models:pair", "--batch", "3"], "batch is given for my_models:pair, which brings its own inputs"),
        (["neumf_ml1m", "--units", "a", "b"], "units are given for neumf_ml1m, whose units are fixed"),
        (["neumf_ml1m", "--rounds", "0"], "rounds is 0, expected at least 1"),
        (["neumf_ml1m", "--device", "meta"], "device meta has no clock here, expected cpu or cuda"),
        (["neumf_ml1m", "no_folder/out.json"], "no_folder/out.json cannot be written: there is no folder no_folder"),
        (["neumf_ml1m", "--device", "gpu"], "device is 'gpu', expected cpu, cuda or cuda:N"),
    ],
)
def test_errors_are_one_sentence(mine, capsys, arguments, message):
    assert main(["profile-layers", *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18_cifar10", "mobilenetv2_cifar10", "bert_6layer_64", "vgg19bn_cifar10"])
def test_the_profile_predicts_steps_with_frozen_modules(mine, name):
    """On this CPU, from the times of the step without freezing alone: within 5 % on average."""
    mean = re.search(r"mean error ([\d.]+)%", " ".join(run(name, "--check", "--rounds", "6").split()))
    assert float(mean[1]) <= 5
