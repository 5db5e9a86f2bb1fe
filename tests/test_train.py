"""The command ``python train.py``: exit codes, one-line reasons, interruption, and the command it ends with."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import evaluate
import train
from agents.checkpoint import load_checkpoint
from agents.policy import latest_checkpoint
from agents.trainer import Trained
from envs.spec import SCENARIOS
from tests.agents.samples import colocated_settings

ROOT = Path(__file__).resolve().parents[1]
SMALL = [
    "--trace=synthetic-philly?jobs=200", "--cluster=4x4", "--num-slots=12", "--window-jobs=20", "--edit-budget=8",
    "--num-envs=8", "--ppo.rollout-steps=40", "--network.width=16", "--validation-windows=2", "--validate-every=640",
    "--checkpoint-every=640", "--device=cpu",
]  # fmt: skip


def start(*words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "train.py", *SMALL, *words]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_run_ends_with_a_command_that_evaluates_it(tmp_path, capsys):
    out = tmp_path / "run"
    assert train.main([*SMALL, "--steps", "640", "--out", str(out), "--sim.rescale-s", "45"]) == 0
    printed = capsys.readouterr()
    command = printed.out.strip().splitlines()[-1]
    assert command.startswith("python evaluate.py --policies fifo srtf")
    assert "--sim.rescale-s 45.0" in command
    assert "best baseline is" in printed.err
    assert {path.name for path in out.iterdir()} == {"config.json", "best", "checkpoints", "tensorboard"}
    assert list(json.loads((out / "config.json").read_text())["references"]) != []
    assert evaluate.main(shlex.split(command)[2:]) == 0
    table = capsys.readouterr().out
    assert str(out) in table
    assert "srtf" in table


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_closing_command_names_baselines_of_the_scenario(scenario, tmp_path, capsys):
    arguments = replace(train.make_defaults(SCENARIOS[scenario]), out=tmp_path)
    train.report(arguments, Trained(1, None, has_test_windows=True))
    words = shlex.split(capsys.readouterr().out.strip().splitlines()[-1])
    named = words[words.index("--policies") + 1 : words.index(str(tmp_path))]
    assert set(named) <= set(SCENARIOS[scenario].baselines)
    assert len(named) >= 3
    assert "pollux" not in named
    assert ("optimus" in named) == ("optimus" in SCENARIOS[scenario].baselines)


def test_a_toy_is_trained_and_evaluated_whole(tmp_path, capsys):
    words = ["--trace", "toy-five-jobs", "--cluster", "1x1", "--num-slots", "8", "--steps", "4000", "--num-envs", "8"]
    words += ["--network.width", "16", "--validation-windows", "1", "--device", "cpu", "--out", str(tmp_path)]
    assert train.main(words) == 0
    command = capsys.readouterr().out.strip().splitlines()[-1]
    assert "--split" not in command
    assert evaluate.main(shlex.split(command)[2:]) == 0


@pytest.mark.parametrize("changed", [(), ("--sim.slo-s", "4", "--objective", "jct")], ids=["scenario", "changed"])
def test_an_agent_beside_inference_is_trained_and_evaluated(tmp_path, capsys, changed):
    words = ["--scenario", "colocated", "--trace", "synthetic-colocated?jobs=60,load=0.2,mean_duration_s=15"]
    words += ["--window-jobs", "8", "--validation-windows", "1", "--steps", "320", "--out", str(tmp_path), *changed]
    assert train.main([*SMALL, *words]) == 0
    printed = capsys.readouterr()
    measure = "mean jct" if changed else "cost (mean jct + penalties)"
    assert f", {measure} " in printed.err
    assert f"best {measure} " in printed.out
    environment = json.loads((tmp_path / "config.json").read_text())["environment"]
    assert environment["objective"] == ("jct" if changed else "jct_slo")
    assert environment["slo_penalty_s"] == 60.0
    command = printed.out.strip().splitlines()[-1]
    assert "lyra deepboot" in command
    assert "--scenario colocated" in command
    assert re.findall(r"--sim\S+ \S+", command) == (["--sim.slo-s 4.0"] if changed else [])
    if not changed:
        assert evaluate.main(shlex.split(command)[2:]) == 0
        assert str(tmp_path) in capsys.readouterr().out


@pytest.mark.parametrize(("objective", "best"), [("jct", ("fifo", 10.0)), ("jct_slo", ("srtf", 30.0))])
def test_the_best_baseline_has_the_lowest_measure(monkeypatch, objective, best):
    judged = {"fifo": {"mean_jct_s": 10.0, "cost_s": 50.0}, "srtf": {"mean_jct_s": 20.0, "cost_s": 30.0}}
    other = {"mean_jct_s": 99.0, "cost_s": 99.0}
    monkeypatch.setattr(train, "simulate", lambda window, cluster, scheduler, *_, **__: scheduler.name)
    monkeypatch.setattr(train, "judge", lambda name, settings: judged.get(name, other))
    settings = colocated_settings(objective=objective)
    assert train.best_baseline(settings, train.TrainConfig(validation_windows=1)) == best


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--bogus"], "--bogus"),
        (["--algo", "dqn"], "dqn"),
        (["--scenario", "nope"], "unknown scenario"),
        (["--trace", "nope.csv"], "nope.csv"),
        (["--cluster", "4y4"], "4y4"),
        (["--steps", "0"], "steps must be at least 1"),
        (["--num-slots", "0"], "num_slots must be at least 1"),
        (["--window-jobs", "199"], "fewer than one window"),
        (["--objective", "fame"], "unknown objective"),
        (["--sim.rescale-s", "-1"], "rescale_s"),
        (["--ppo.learning-rate", "0"], "learning rate must be above 0"),
        (["--resume"], "no training run to resume"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_code_2(tmp_path, capsys, words, reason):
    assert train.main([*SMALL, "--steps", "320", "--out", str(tmp_path / "run"), *words]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("train.py: ")
    assert reason in last


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_gpu_is_said(tmp_path, capsys):
    assert train.main([*SMALL, "--device", "cuda", "--out", str(tmp_path)]) == 2
    assert "no CUDA GPU" in capsys.readouterr().err


def test_help_shows_the_scenarios_settings(capsys):
    with pytest.raises(SystemExit) as stop:
        train.main(["--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    for flag in (
        "--steps",
        "--resume",
        "--device",
        "--sim.interval-s",
        "--sim.no-on-event",
        "--ppo.gamma",
        "--num-envs",
    ):
        assert flag in shown
    assert train.make_defaults(SCENARIOS["rigid"]).sim == SCENARIOS["rigid"].sim


def test_ctrl_c_saves_and_a_resumed_command_ends_like_an_uninterrupted_one(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    flags = ("--steps", "9600", "--checkpoint-every", "9600", "--validate-every", "9600")
    assert train.main([*SMALL, *flags, "--out", str(whole)]) == 0

    process = start(*flags, "--out", str(parts))
    deadline = time.monotonic() + 300
    while not (parts / "best/manifest.json").exists():  # it has begun to learn
        assert time.monotonic() < deadline
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    interrupted = latest_checkpoint(parts)
    assert load_checkpoint(interrupted).state["num_timesteps"] < 9600

    process = start(*flags, "--out", str(parts), "--resume")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "evaluate.py" in out
    first, second = load_checkpoint(latest_checkpoint(whole)), load_checkpoint(latest_checkpoint(parts))
    assert first.state == second.state
    assert all(torch.equal(first.weights[name], second.weights[name]) for name in first.weights)
    assert all(torch.equal(first.tensors[name], second.tensors[name]) for name in first.tensors)
