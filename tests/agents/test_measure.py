"""What the best policy is chosen by, and what the agent is said to have done."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agents import trainer as trainer_module
from agents.checkpoint import load_checkpoint
from agents.config import PPOConfig, TrainConfig
from agents.network import NetworkConfig
from agents.policy import KINDS, find_checkpoint, kinds_of, load_policy
from agents.trainer import Run, train
from agents.validation import COST, Validation, Validator, judge
from baselines import BASELINES
from envs.rollout import rollout
from envs.service_edits import SERVICE_EDITS
from envs.simulate import simulate
from tests.agents.samples import colocated_settings, small_settings

SHORT = TrainConfig(
    steps=960, num_envs=8, ppo=PPOConfig(rollout_steps=40, batch_size=160, epochs=1),
    network=NetworkConfig(width=16), validate_every=320, validation_windows=2, device="cpu",
)  # fmt: skip


def test_kinds_of_actions_by_hand():
    """3 slots of 9 edits, 2 services of 2."""
    actions = np.array([0, 1, 9, 10, 1 + 2 * 9 + 1, 27, 28, 29, 30, 31])
    names = ["commit", "more", "yields", "more", "less", "yields", "keep", "drop", "keep", "drop"]
    assert [KINDS[kind] for kind in kinds_of(actions, num_slots=3)] == names


def test_cost_by_hand():
    """Late: 5.5 s of waiting, and 4 s with 2 s of start-up; not: exactly 5 s, and a task that did not complete."""
    settings = colocated_settings(slo_penalty_s=30.0)
    window = settings.source.window(int(settings.windows[0]), settings.length)
    run = simulate(window, settings.cluster, BASELINES["fifo"](), settings.sim)
    jobs = run.jobs.copy()
    tasks = np.flatnonzero(jobs["kind"] == "inference")
    delay, start_up = np.zeros(len(tasks)), np.zeros(len(tasks))
    delay[:4], start_up[1] = (5.5, 4.0, 5.0, 99.0), 2.0
    jobs.iloc[tasks, jobs.columns.get_loc("queueing_delay_s")] = delay
    jobs.iloc[tasks, jobs.columns.get_loc("paused_gpu_s")] = start_up
    jobs.iloc[tasks[3], jobs.columns.get_loc("status")] = "unfinished"
    judged = judge(replace(run, jobs=jobs), settings)
    assert settings.sim.slo_s == 5.0
    assert judged[COST] == pytest.approx(judged["mean_jct_s"] + 2 * 30 / 8)
    assert COST not in judge(run, replace(settings, objective="jct"))


# mean jct and cost [s] of the validations at 0, 320, 640 and 960 decisions
CANNED = ((100.0, 200.0), (150.0, 160.0), (90.0, 300.0), (120.0, 170.0))


@pytest.mark.parametrize(
    ("objective", "measure", "best", "at"),
    [("jct_slo", "cost_s", 160.0, 320), ("jct", "mean_jct_s", 90.0, 640), ("makespan", "mean_jct_s", 90.0, 640)],
)
def test_the_best_policy_is_chosen_by_the_objectives_own_cost(tmp_path, monkeypatch, objective, measure, best, at):
    class Canned(Validator):
        def __call__(self, network, step):
            jct, cost = CANNED[step // 320]
            values = {"mean_jct_s": jct, "cost_s": cost}
            return Validation(values, values, unfinished=1)

    monkeypatch.setattr(trainer_module, "Validator", Canned)
    settings = small_settings(objective=objective)
    trained = train(Run(SHORT, settings, tmp_path, references={"srtf": 1234.5}))
    assert trained.best_s == best
    chosen = load_checkpoint(tmp_path / "best").config
    assert chosen["validation"] == {measure: best}
    assert chosen["trained_on"]["decisions"] == at
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    tags = set(events.Tags()["scalars"])
    assert {f"validation/{measure}/srtf", f"validation/{measure}/agent_sampled"} <= tags
    assert [tag for tag in tags if tag.endswith("/srtf")] == [f"validation/{measure}/srtf"]


def test_a_policy_learned_beside_inference_is_chosen_by_cost_reloaded_and_runs_without(tmp_path):
    settings = colocated_settings()
    trained = train(Run(SHORT, settings, tmp_path))
    best = load_checkpoint(find_checkpoint(tmp_path)).config
    assert best["validation"] == {"cost_s": trained.best_s}
    assert best["layout"]["num_services"] == len(settings.workload.services) > 0
    assert best["edits"][-2:] == [name for name, _ in SERVICE_EDITS]
    policy = load_policy(tmp_path, "cpu")
    again = Validator(settings, SHORT.validation_windows, SHORT.seed)(policy.network, 0)
    assert again.greedy["cost_s"] == pytest.approx(trained.best_s, rel=1e-9)
    assert again.greedy["cost_s"] >= again.greedy["mean_jct_s"]
    rigid = small_settings()
    run = rollout(rigid.source.window(0, 20), rigid.cluster, rigid.sim, policy)
    assert (run.jobs["status"] == "completed").all()
