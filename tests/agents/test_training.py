"""Training: reaches known optima, repeats bit by bit, resumes as if it had not stopped, and tells what it does."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agents import callback as callback_module
from agents.checkpoint import CheckpointError, is_checkpoint, load_checkpoint, save_checkpoint
from agents.config import A2CConfig, PPOConfig, TrainConfig, TrainError
from agents.network import NetworkConfig
from agents.policy import find_checkpoint, latest_checkpoint, load_policy
from agents.trainer import Run, make_model, train
from agents.validation import Validator
from envs.rollout import rollout
from envs.settings import EnvSettings
from envs.spec import SCENARIOS, ClusterSpec
from tests.agents.samples import colocated_settings, small_settings
from traces.toys import TOYS

TINY = NetworkConfig(width=16)
SHORT = TrainConfig(
    steps=1600,  # five rollouts of PPO
    num_envs=8,
    ppo=PPOConfig(rollout_steps=40, batch_size=160, epochs=2),
    a2c=A2CConfig(rollout_steps=20),
    network=TINY,
    validate_every=640,
    validation_windows=2,
    checkpoint_every=640,
    device="cpu",
)


def short_run(out: Path, **changes: object) -> Run:
    return Run(replace(SHORT, **changes), small_settings(), out, references={"srtf": 1234.5})


def colocated_run(out: Path, **changes: object) -> Run:
    return replace(short_run(out, **changes), settings=colocated_settings())


def assert_same_end(a: Path, b: Path) -> None:
    """The last checkpoints are equal: weights, optimiser, generators, environments, counters."""
    first, second = (load_checkpoint(latest_checkpoint(out)) for out in (a, b))
    assert first.state == second.state
    for left, right in ((first.weights, second.weights), (first.tensors, second.tensors)):
        assert left.keys() == right.keys()
        assert [name for name in left if not torch.equal(left[name], right[name])] == []


def interrupt_at(call: int):
    """A progress callback that is interrupted, as by Ctrl-C, when it is called for this time."""
    calls = iter(range(1, 10_000))

    def on_progress(decisions: int, best: float | None) -> None:
        if next(calls) == call:
            raise KeyboardInterrupt

    return on_progress


@pytest.mark.parametrize("algo", ["maskable-ppo", "ppo", "a2c"])
def test_two_trainings_with_one_seed_are_equal_and_with_another_are_not(tmp_path, algo):
    train(short_run(tmp_path / "a", algo=algo))
    train(short_run(tmp_path / "b", algo=algo))
    assert_same_end(tmp_path / "a", tmp_path / "b")
    train(short_run(tmp_path / "c", algo=algo, seed=1))
    first, other = (load_checkpoint(latest_checkpoint(tmp_path / name)) for name in "ac")
    assert not torch.equal(first.tensors["last_obs"], other.tensors["last_obs"])
    assert not torch.equal(first.weights["commit_head.1.weight"], other.weights["commit_head.1.weight"])


def test_a_resumed_run_with_inference_equals_an_uninterrupted_one(tmp_path):
    train(colocated_run(tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        train(colocated_run(tmp_path / "parts"), False, interrupt_at(70))
    train(colocated_run(tmp_path / "parts"), resume=True)
    assert_same_end(tmp_path / "whole", tmp_path / "parts")


# The callback is called once by the first validation and then at every step of 8 decisions, so that call
# 70 lies in the second rollout of PPO.
@pytest.mark.parametrize(
    ("algo", "calls"), [("maskable-ppo", (70,)), ("maskable-ppo", (3, 41, 100)), ("ppo", (70,)), ("a2c", (75,))]
)
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, algo, calls):
    train(short_run(tmp_path / "whole", algo=algo))
    run, resume = short_run(tmp_path / "parts", algo=algo), False
    for call in calls:
        with pytest.raises(KeyboardInterrupt):
            train(run, resume, interrupt_at(call))
        assert latest_checkpoint(run.out) is not None, "an interrupt saves a checkpoint"
        resume = True
    train(run, resume=True)
    assert_same_end(tmp_path / "whole", tmp_path / "parts")


def test_a_run_that_was_killed_goes_on_from_its_last_periodic_checkpoint(tmp_path, monkeypatch):
    """Killed while it writes its second checkpoint, without any chance to save."""
    train(short_run(tmp_path / "whole"))
    real, saves = callback_module.save_checkpoint, iter(range(99))

    def save(folder: Path, checkpoint: object) -> None:
        if folder.name.startswith("step-") and next(saves) == 1:
            folder.mkdir()
            (folder / "weights-0123456789ab.safetensors").write_bytes(b"half")
            raise SystemExit
        real(folder, checkpoint)

    monkeypatch.setattr(callback_module, "save_checkpoint", save)
    with pytest.raises(SystemExit):
        train(short_run(tmp_path / "parts"))
    monkeypatch.undo()
    assert latest_checkpoint(tmp_path / "parts").name == "step-000000000640"
    train(short_run(tmp_path / "parts"), resume=True)
    assert_same_end(tmp_path / "whole", tmp_path / "parts")
    assert len(list((tmp_path / "parts/checkpoints").iterdir())) == SHORT.keep_checkpoints


def test_a_run_of_another_version_of_the_simulator_is_not_resumed(tmp_path):
    train(short_run(tmp_path, steps=320))
    folder = latest_checkpoint(tmp_path)
    checkpoint = load_checkpoint(folder)
    save_checkpoint(folder, replace(checkpoint, state={**checkpoint.state, "environments": "of old"}))
    with pytest.raises(CheckpointError, match="another version of the simulator"):
        train(short_run(tmp_path, steps=640), resume=True)


def test_more_steps_continue_a_finished_run(tmp_path):
    train(short_run(tmp_path, steps=320))
    assert train(short_run(tmp_path, steps=320), resume=True).decisions == 320
    assert train(short_run(tmp_path, steps=960), resume=True).decisions == 960


def test_a_folder_is_neither_overwritten_nor_resumed_as_another_run(tmp_path):
    with pytest.raises(TrainError, match="no training run to resume"):
        train(short_run(tmp_path / "none"), resume=True)
    train(short_run(tmp_path / "run", steps=320))
    with pytest.raises(TrainError, match="already holds a training run"):
        train(short_run(tmp_path / "run"))
    with pytest.raises(TrainError, match=r"training\.seed 0, so it cannot be resumed with 7"):
        train(short_run(tmp_path / "run", seed=7), resume=True)
    other = Run(SHORT, small_settings(trace="synthetic-philly?jobs=200,seed=9"), tmp_path / "run")
    with pytest.raises(TrainError, match="trained on other jobs"):
        train(other, resume=True)
    settings = small_settings(sim=replace(SCENARIOS["rigid"].sim, rescale_s=60.0))
    with pytest.raises(TrainError, match=r"sim\.rescale_s 30\.0, so"):
        train(Run(SHORT, settings, tmp_path / "run"), resume=True)


@pytest.mark.parametrize("toy", list(TOYS))
@pytest.mark.parametrize("disturb", [False, True])
def test_the_agent_reaches_the_known_optimum(tmp_path, toy, disturb):
    case, steps = TOYS[toy], 16_000
    settings = EnvSettings(trace=case.trace, cluster=case.cluster, num_slots=16, edit_budget=16)
    config = TrainConfig(
        steps=steps, num_envs=16, ppo=PPOConfig(learning_rate=1e-3, rollout_steps=32, batch_size=256),
        network=NetworkConfig(width=32, disturb=disturb), validate_every=steps, validation_windows=1, device="cpu",
    )  # fmt: skip
    train(Run(config, settings, tmp_path))
    policy = load_policy(latest_checkpoint(tmp_path), "cpu")  # the last, so that nothing was picked
    run = rollout(case.trace, settings.cluster, settings.sim, policy)
    assert run.metrics()["mean_jct_s"] == pytest.approx(case.optimal_mean_jct_s, rel=1e-9)


def test_ppo_without_masks_learns_the_five_job_toy(tmp_path):
    case = TOYS["toy-five-jobs"]
    settings = EnvSettings(trace=case.trace, cluster=case.cluster, num_slots=8, edit_budget=16)
    config = TrainConfig(
        algo="ppo", steps=16_000, num_envs=16, ppo=PPOConfig(learning_rate=1e-3, rollout_steps=32, batch_size=256),
        network=NetworkConfig(width=32), validate_every=16_000, validation_windows=1, device="cpu",
    )  # fmt: skip
    trained = train(Run(config, settings, tmp_path))
    first_come = 98.0  # TOYS says so
    assert trained.best_s < (first_come + case.optimal_mean_jct_s) / 2


def test_a_reloaded_policy_scores_what_its_validation_said(tmp_path):
    """And evaluate.py's way, a rollout of each validation window, gives the same as the trainer's batch."""
    run = short_run(tmp_path)
    trained = train(run)
    policy = load_policy(tmp_path, "cpu")
    best = load_checkpoint(tmp_path / "best")
    assert best.config["validation"]["mean_jct_s"] == trained.best_s
    again = Validator(run.settings, SHORT.validation_windows, SHORT.seed)(policy.network, 0)
    assert again.greedy["mean_jct_s"] == pytest.approx(trained.best_s, rel=1e-9)
    starts = run.settings.source.window_starts(SHORT.validation_windows, run.settings.length, "validation")
    settings = run.settings
    runs = [
        rollout(settings.source.window(start, settings.length), settings.cluster, settings.sim, policy)
        for start in starts
    ]
    for name in ("mean_jct_s", "p99_jct_s", "mean_queueing_delay_s", "utilisation_allocated", "makespan_s"):
        mean = np.mean([result.metrics()[name] for result in runs])
        assert mean == pytest.approx(again.greedy[name], rel=1e-9), name


def test_a_policy_runs_on_another_cluster_and_with_more_slots(tmp_path):
    train(short_run(tmp_path, steps=320))
    policy = load_policy(tmp_path, "cpu")
    policy.num_slots = 40
    trace = small_settings().source.window(0, 60)
    run = rollout(trace, ClusterSpec.parse("6x8+3x2"), SCENARIOS["rigid"].sim, policy)
    assert (run.jobs["status"] == "completed").all()


def test_validation_does_not_disturb_training(tmp_path):
    train(short_run(tmp_path / "often", validate_every=320))
    train(short_run(tmp_path / "seldom", validate_every=100_000))
    often, seldom = (load_checkpoint(latest_checkpoint(tmp_path / name)).weights for name in ("often", "seldom"))
    assert all(torch.equal(often[name], seldom[name]) for name in often)


def test_validation_windows_are_not_trained_on(tmp_path):
    settings = small_settings()
    validator = Validator(settings, 4, 0)
    trained_until = settings.windows.max() + settings.length
    assert validator.starts.min() >= trained_until
    assert make_model(SHORT, settings).env.batch.windows.max() + settings.length <= trained_until


def test_tensorboard_speaks_of_jobs_and_clusters(tmp_path):
    train(short_run(tmp_path))
    events = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"images": 0}).Reload()
    scalars = set(events.Tags()["scalars"])
    assert {
        "validation/mean_jct_s", "validation/mean_jct_s/srtf", "validation/mean_jct_s/agent_sampled",
        "validation/p99_jct_s", "validation/mean_queueing_delay_s", "validation/utilisation_allocated",
        "validation/num_preemptions", "validation/num_rescales", "validation/unfinished_windows",
        "rollout/mean_jct_s", "rollout/ep_rew_mean", "rollout/ep_len_mean", "actions/commit", "actions/more",
        "time/decisions_per_s", "time/share_env", "time/share_policy", "time/share_learner",
        "train/value_loss", "train/learning_rate",
    } <= scalars  # fmt: skip
    assert {event.value for event in events.Scalars("validation/mean_jct_s/srtf")} == {1234.5}
    assert [event.step for event in events.Scalars("validation/mean_jct_s")] == [0, 640, 1280, 1600]
    shares = [
        sum(events.Scalars(f"time/share_{part}")[i].value for part in ("env", "policy", "learner")) for i in range(4)
    ]
    assert shares == pytest.approx([1.0] * 4)
    assert events.Tags()["histograms"] == ["actions/kinds"]
    assert len(events.Images("validation/gantt")) == 4
    plugins = {name for name in events.PluginTagToContent("hparams")}
    assert "_hparams_/experiment" in plugins


def test_the_run_folder_says_what_made_it(tmp_path):
    train(replace(short_run(tmp_path, steps=320), command="python train.py --steps 320"))
    record = json.loads((tmp_path / "config.json").read_text())
    assert record["command"] == "python train.py --steps 320"
    assert re.fullmatch("[0-9a-f]{64}", record["trace"]["sha256"])
    assert record["training"]["seed"] == 0
    assert record["environment"]["window_jobs"] == 20
    assert {"python", "numpy", "torch", "stable-baselines3"} <= record["versions"].keys()
    facts = load_policy(tmp_path, "cpu").trained_on
    assert facts["decisions"] in (0, 320)
    assert facts["trace"] == record["trace"]


def test_load_policy_names_what_is_wrong(tmp_path):
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        load_policy(tmp_path, "cpu")
    train(short_run(tmp_path, steps=320))
    best = find_checkpoint(tmp_path)
    assert best == tmp_path / "best"
    if not torch.cuda.is_available():
        with pytest.raises(CheckpointError, match="no CUDA GPU"):
            load_policy(tmp_path, "cuda")
    checkpoint = load_checkpoint(best)
    save_checkpoint(best, replace(checkpoint, config={**checkpoint.config, "features": ["cluster.moon: phase"]}))
    with pytest.raises(CheckpointError, match="other observations or actions"):
        load_policy(tmp_path, "cpu")
    save_checkpoint(best, replace(checkpoint, config={"algo": "dqn"}))
    with pytest.raises(CheckpointError, match="describes no policy"):
        load_policy(tmp_path, "cpu")
    save_checkpoint(best, replace(checkpoint, config={**checkpoint.config, "network": {"width": 32}}))
    with pytest.raises(CheckpointError, match="but this network needs"):
        load_policy(tmp_path, "cpu")
    assert is_checkpoint(best)


def test_the_learned_policy_keeps_to_the_mask_and_repeats_its_draws(tmp_path):
    train(short_run(tmp_path, steps=320))
    policy = load_policy(tmp_path, "cpu")
    env = make_model(SHORT, small_settings()).env
    obs = env.reset()
    for _ in range(60):
        greedy = policy.act(obs, env.batch.mask)
        drawn = policy.act(obs, env.batch.mask, rng=np.random.default_rng(0))
        np.testing.assert_array_equal(drawn, policy.act(obs, env.batch.mask, rng=np.random.default_rng(0)))
        rows = np.arange(len(obs))
        assert env.batch.mask[rows, greedy].all()
        assert env.batch.mask[rows, drawn].all()
        obs, *_ = env.step(drawn)
    with pytest.raises(ValueError, match="layout describes"):
        policy.act(obs[:, :-1], env.batch.mask)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"network": NetworkConfig(width=0)}, "width must be at least 1"),
        ({"num_envs": 1, "ppo": PPOConfig(rollout_steps=1)}, "cannot be split"),
        ({"num_envs": 1, "ppo": PPOConfig(rollout_steps=521, batch_size=500)}, "cannot be split"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes, message):
    with pytest.raises(TrainError, match=message):
        replace(SHORT, **changes)
    with pytest.raises(TrainError, match=r"learning rate must be above 0"):
        PPOConfig(learning_rate=0.0)


def test_minibatches_are_equal():
    assert TrainConfig(num_envs=10, ppo=PPOConfig(rollout_steps=64)).batch_size == 320
    assert TrainConfig(num_envs=2, ppo=PPOConfig(rollout_steps=64)).batch_size == 128
