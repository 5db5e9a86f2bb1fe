"""Train a policy: make or resume the run in a folder, learn, and leave a checkpoint behind at every end.

A run folder holds ``config.json``, ``checkpoints/step-*`` (to resume from), ``best/`` (the policy with
the lowest measure on the validation windows) and ``tensorboard/``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import LinearSchedule

from agents.callback import OnProgress, TrainingCallback
from agents.checkpoint import load_checkpoint, load_weights
from agents.config import A2CConfig, TrainConfig, TrainError
from agents.policy import build_network, latest_checkpoint, policy_config, resolve_device
from agents.rollout_buffer import MaskablePassRolloutBuffer, PassRolloutBuffer
from agents.sb3_policy import ClusterPolicy, MaskableClusterPolicy
from agents.sb3_vec_env import ClusterSB3VecEnv
from agents.tensorboard import RunLog
from agents.training_state import restore
from agents.validation import WORDS, Validator
from envs.batch import Batch
from envs.provenance import git_commit, trace_sha256, versions
from envs.results import write_json
from envs.settings import EnvSettings

CONFIG = "config.json"
# Settings that a resumed run may change: they do not change what is learned, or only how long.
FREE = ("steps", "checkpoint_every", "keep_checkpoints", "device", "threads")


@dataclass(frozen=True)
class Run:
    """A training run: what to do and where."""

    config: TrainConfig
    settings: EnvSettings
    out: Path
    command: str = ""
    references: Mapping[str, float] = field(default_factory=dict)
    """Baselines' measure (agents/validation.py) [s] on the validation windows, by name; drawn beside the agent's."""


@dataclass(frozen=True)
class Trained:
    """What a training run came to."""

    decisions: int
    best_s: float | None
    """Measure [s] of the best policy on the validation windows; None: none finished them."""
    has_test_windows: bool
    """Whether the trace is long enough for test windows that nothing was trained or chosen on."""


def train(run: Run, resume: bool = False, on_progress: OnProgress = lambda decisions, best: None) -> Trained:
    """Learn until ``config.steps`` decisions have been made.

    Interrupted (KeyboardInterrupt), it saves a checkpoint and passes the interrupt on. A resumed run
    ends with the weights, optimiser and counters of one that was never interrupted. Raises
    :class:`TrainError` if the folder holds another run, or none to resume.
    """
    torch.set_num_threads(run.config.threads)
    facts = describe(run)
    validator = Validator(run.settings, run.config.validation_windows, run.config.seed)
    model = make_model(run.config, run.settings)
    start = _resume(model, run.out) if _prepare_folder(run, facts, resume) else {}
    step = model.num_timesteps
    log = RunLog(run.out / "tensorboard", step)
    chart = (f"validation/{validator.measure}", f"{WORDS[validator.measure]} [s]")
    log.describe(_flatten(asdict(run.config)), run.references, *chart)
    model.set_logger(Logger(folder=None, output_formats=[log]))
    about = policy_config(run.settings.layout, run.config.network, run.settings.edit_budget, facts)
    callback = TrainingCallback(
        run.config, run.out, log, validator, about, run.references, on_progress, start.get("progress")
    )
    try:
        if step < run.config.steps:
            model.learn(run.config.steps - step, callback, log_interval=1, reset_num_timesteps=not start)
    except KeyboardInterrupt:
        callback.save_boundary()
        raise
    finally:
        log.close()
    return Trained(model.num_timesteps, callback.best, len(run.settings.source.job_rows) > run.settings.length)


def make_model(config: TrainConfig, settings: EnvSettings) -> OnPolicyAlgorithm:
    """The algorithm with a fresh network and ``num_envs`` environments."""
    masked = config.algo == "maskable-ppo"
    batch = Batch(replace(settings, on_invalid="raise" if masked else "commit"), config.num_envs)
    batch.set_threads(config.threads)
    learner = config.learner
    shared: dict[str, Any] = {
        "policy": MaskableClusterPolicy if masked else ClusterPolicy,
        "env": ClusterSB3VecEnv(batch),
        "policy_kwargs": {"layout": batch.layout, "network": config.network},
        "rollout_buffer_class": MaskablePassRolloutBuffer if masked else PassRolloutBuffer,
        "learning_rate": LinearSchedule(learner.learning_rate, 0.0, 1.0) if learner.anneal else learner.learning_rate,
        "n_steps": learner.rollout_steps,
        "seed": config.seed,
        "device": resolve_device(config.device),
        **{name: getattr(learner, name) for name in ("gamma", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm")},
    }
    if isinstance(learner, A2CConfig):
        return A2C(normalize_advantage=learner.normalise_advantage, **shared)
    extra: dict[str, Any] = {
        "batch_size": config.batch_size,
        "n_epochs": learner.epochs,
        "clip_range": learner.clip_range,
    }
    return MaskablePPO(**shared, **extra) if masked else PPO(**shared, **extra)


def describe(run: Run) -> dict[str, Any]:
    """Facts that a checkpoint and ``config.json`` keep: all that decides what is learned, and what ran it."""
    settings, trace = run.settings, run.settings.source
    names = ("scenario", "num_slots", "window_jobs", "split", "objective", "slo_penalty_s", "residual_penalty",
             "edit_budget", "horizon_s", "reward_scale", "workload_seed")  # fmt: skip
    return {
        "trace": {
            "name": trace.name,
            "jobs": len(trace),
            "provenance": trace.provenance,
            "sha256": trace_sha256(trace),
        },
        "cluster": str(settings.cluster),
        "sim": asdict(settings.sim),
        "environment": {name: getattr(settings, name) for name in names},
        "training": asdict(run.config),
        "versions": versions(),
        "git_commit": git_commit(),
    }


def _prepare_folder(run: Run, facts: dict[str, Any], resume: bool) -> bool:
    """Write ``config.json``, or check that the one there is of the same run; whether there is a state to load."""
    path, found = run.out / CONFIG, latest_checkpoint(run.out)
    if not resume and (path.exists() or found is not None):
        raise TrainError(f"{run.out} already holds a training run: go on with --resume, or choose another --out")
    if resume and not path.exists():
        raise TrainError(f"there is no training run to resume in {run.out}: it has no {CONFIG}")
    if resume:
        _check_same(json.loads(path.read_text()), facts, run.out)
    run.out.mkdir(parents=True, exist_ok=True)
    write_json(path, {"command": run.command, **facts, "references": dict(run.references)})
    return found is not None


def _check_same(before: dict[str, Any], now: dict[str, Any], out: Path) -> None:
    """Raise if something that decides what is learned differs from the run's."""
    if before["trace"]["sha256"] != now["trace"]["sha256"]:
        raise TrainError(f"{out} was trained on other jobs, {before['trace']['name']}, not {now['trace']['name']}")
    old, new = (
        _flatten({name: record[name] for name in ("cluster", "sim", "environment", "training")})
        for record in (before, now)
    )
    for name in sorted(old.keys() | new.keys()):
        if name.split(".")[-1] not in FREE and old.get(name) != new.get(name):
            raise TrainError(
                f"{out} was trained with {name} {old.get(name)}, so it cannot be resumed with {new.get(name)}"
            )


def _resume(model: OnPolicyAlgorithm, out: Path) -> dict[str, Any]:
    """Load the latest checkpoint into ``model``; its plain state."""
    folder = latest_checkpoint(out)
    assert folder is not None
    checkpoint = load_checkpoint(folder)
    build_network(checkpoint, folder)
    load_weights(model.policy.network, checkpoint.weights, folder)  # type: ignore[arg-type]
    restore(model, checkpoint.state, checkpoint.tensors)
    return checkpoint.state


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat
