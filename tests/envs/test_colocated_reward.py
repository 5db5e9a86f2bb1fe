"""The return with inference, and what the faces of the environment say of an episode with pods."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.env_checker import check_env as check_for_sb3

from envs.env import ClusterEnv
from envs.layout import NO_POD
from envs.objectives import OBJECTIVES
from envs.spec import SCENARIOS, SimConfig
from envs.vector_env import ClusterVectorEnv
from tests.envs.colocated_support import (
    START_UP_S,
    TRIALS,
    any_case,
    choose_any,
    choose_working,
    env_of,
    hand_env,
    num_services,
)
from tests.envs.elastic_env_support import MORE, commit, edit
from tests.envs.env_support import PLAYERS, play, random_actions, state_bytes
from tests.envs.test_elastic_env import complaints

EXACT = {"rel": 1e-9, "abs": 1e-9}
SMALL = {
    "scenario": "colocated",
    "trace": "synthetic-colocated?jobs=24,load=0.3,mean_duration_s=15",
    "cluster": "2x4",
    "num_slots": 8,
    "window_jobs": 4,
    "split": "all",
}


def late_tasks(jobs: pd.DataFrame, slo_s: float) -> int:
    """Completed tasks that waited and started up for longer than the objective."""
    tasks = jobs[(jobs["kind"] == "inference") & (jobs["status"] == "completed")]
    return int((tasks["first_start_s"] - tasks["arrival_s"] + tasks["paused_gpu_s"] > slo_s).sum())


def job_time(jobs: pd.DataFrame, until: float) -> float:
    """Time in the system of training jobs that are not rejected [job s]."""
    kept = jobs[(jobs["kind"] == "training") & (jobs["status"] != "rejected") & (jobs["arrival_s"] < until)]
    return float((kept["finish_s"].fillna(until) - kept["arrival_s"]).sum())


# --- the return ---


@given(seed=st.integers(0, 10**6), choose=st.sampled_from([choose_working, PLAYERS["greedy"]]))
@settings(max_examples=40, **TRIALS)
def test_the_return_is_job_time_and_late_tasks(seed: int, choose: Any):
    """Guards num_late and take_reward(): every late task is paid for once, whatever edits are made."""
    rng = Random(f"reward {seed}")
    penalty, slo_s = rng.choice((0.0, 2.5, 60.0)), rng.choice((0.0, 3.0, 5.0, 60.0))
    given = {"sim": {"slo_s": slo_s}, "slo_penalty_s": penalty, "objective": "jct_slo"}
    env = env_of(any_case(seed), seed, num_slots=40, reward_scale=100.0, horizon_s=4000.0, **given)
    played = play(env, choose, seed)
    jobs, until = env.batch.episode_jobs(0), float(env.batch.states[0].now)
    late = late_tasks(jobs, slo_s) if played.terminated else int(env.batch.states[0].num_late)
    assert late >= late_tasks(jobs, slo_s)
    assert sum(played.rewards) == pytest.approx(-(job_time(jobs, until) + penalty * late) / 100, **EXACT)
    assert set(played.info["reward_terms"]) == {"jct_slo"}


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_only_one_objective_counts_late_tasks(objective: str):
    """The penalty moves the return of jct_slo alone, and there by its multiple of the late tasks."""
    returns = []
    for penalty in (0.0, 10.0):
        tasks = [("s", 1, 2), ("s", 1, 2), ("t", 3, 50), ("s", 100, 1)]
        env = hand_env([(1, 0, 40.0), (1, 5, 60.0)], tasks, "1x2", slo_penalty_s=penalty, objective=objective)
        rewards = play(env, PLAYERS["greedy"]).rewards
        assert late_tasks(env.batch.episode_jobs(0), env.settings.sim.slo_s) == env.batch.states[0].num_late > 0
        returns.append(sum(rewards))
    late = int(env.batch.states[0].num_late)
    assert returns[1] - returns[0] == pytest.approx(-10.0 * late if objective == "jct_slo" else 0.0, **EXACT)


def test_without_a_penalty_it_is_jct():
    returns = {}
    for objective, penalty in (("jct", 60.0), ("jct_slo", 0.0)):
        env = hand_env([(1, 0, 40.0)], [("s", 1, 2), ("t", 1, 2)], "1x2", slo_penalty_s=penalty, objective=objective)
        returns[objective] = play(env, PLAYERS["greedy"]).rewards
    assert returns["jct"] == returns["jct_slo"]


@pytest.mark.parametrize(("slo_s", "late"), [(3.9, 3), (START_UP_S, 1), (5.0, 1), (17.0, 0)])
def test_late_is_longer_than_the_objective(slo_s: float, late: int):
    """Start-ups of 4 s; the third task waits 13 s for a GPU and starts up 4 s: exactly 17 s is not late."""
    tasks = [("s", 0, 12), ("t", 1, 12), ("u", 33, 1)]
    sim = SimConfig(interval_s=10.0, slo_s=slo_s, batch="fixed")
    env = hand_env([(1, 60, 40.0)], tasks, "1x2", sim, slo_penalty_s=100.0, objective="jct_slo", reward_scale=1.0)
    played = play(env, PLAYERS["greedy"])
    table = env.batch.episode_jobs(0)
    # Pods of the first two are protected until 16 + 30 and 17 + 30: the third, of 33, starts at 46.
    assert table["first_start_s"].tolist()[:3] == [0, 1, 46]
    assert sum(played.rewards) == pytest.approx(-(40 + 100 * late), **EXACT)
    assert played.info["episode_metrics"]["slo_violations"] == pytest.approx(late / 3)


def test_episode_metrics_are_those_of_the_job_table():
    for seed in range(6):
        env = env_of(any_case(seed), seed, num_slots=40, horizon_s=3000.0)
        metrics, jobs = play(env, choose_working, seed).info["episode_metrics"], env.batch.episode_jobs(0)
        training, tasks = (jobs[jobs["kind"] == kind] for kind in ("training", "inference"))
        for status in ("completed", "rejected", "unfinished"):
            assert metrics[f"num_{status}"] == (training["status"] == status).sum()
        assert metrics["mean_jct_s"] == pytest.approx(training["jct_s"].mean(), nan_ok=True)
        done = training["status"] == "completed"
        waited = training.loc[done, "queueing_delay_s"].mean()
        assert metrics["mean_queueing_delay_s"] == pytest.approx(waited, nan_ok=True)
        done = tasks["status"] == "completed"
        assert metrics["mean_latency_s"] == pytest.approx(tasks["jct_s"].mean(), nan_ok=True)
        assert metrics["warm_share"] == pytest.approx(tasks.loc[done, "warm"].mean(), nan_ok=True)
        share = late_tasks(jobs, env.settings.sim.slo_s) / done.sum() if done.any() else np.nan
        assert metrics["slo_violations"] == pytest.approx(share, nan_ok=True)


# --- faces ---


def test_the_scenario_is_the_default_of_everything():
    env = ClusterEnv(scenario="colocated")
    scenario = SCENARIOS["colocated"]
    assert (env.settings.sim, str(env.settings.cluster)) == (scenario.sim, scenario.cluster)
    assert (env.settings.objective, env.settings.slo_penalty_s) == ("jct_slo", 60.0)
    assert set(env.settings.source.jobs["kind"]) == {"training", "inference"}
    assert (env.settings.sim.reclaim, num_services(env)) == ("ats", len(env.settings.workload.services))
    assert num_services(env) > 0
    assert ClusterEnv(scenario="colocated", objective="makespan").settings.objective == "makespan"


@pytest.mark.parametrize("flat", [False, True])
def test_gymnasium_has_no_complaint(flat: bool):
    env = ClusterEnv(flat=flat, on_invalid="commit", **SMALL)
    assert complaints(lambda: check_env(env, skip_render_check=True)) == set()


def test_sb3_has_no_complaint():
    assert complaints(lambda: check_for_sb3(ClusterEnv(flat=True, on_invalid="commit", **SMALL))) == set()


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_row_is_the_environment_with_its_seed(mode: AutoresetMode):
    """Observation, reward, mask, ends and metrics of every row, over several episodes with KEEP and DROP."""
    rows, rng = 4, np.random.default_rng(0)
    envs = ClusterVectorEnv(rows, autoreset_mode=mode, flat=True, **SMALL)
    singles = [ClusterEnv(flat=True, **SMALL) for _ in range(rows)]
    observation, info = envs.reset(seed=100)
    for b, env in enumerate(singles):
        assert env.reset(seed=100 + b)[0].tobytes() == observation[b].tobytes()
    over, ends, tended = np.zeros(rows, bool), 0, 0
    for _ in range(250):
        if mode == AutoresetMode.DISABLED and over.any():
            observation, info = envs.reset(options={"reset_mask": over})
            for b in np.flatnonzero(over):
                assert singles[b].reset()[0].tobytes() == observation[b].tobytes()
            over[:] = False
        actions = random_actions(rng, info["action_mask"], commit=0.4)
        tended += int((actions > 9 * 8).sum())
        observation, reward, terminated, truncated, info = envs.step(actions)
        for b, env in enumerate(singles):
            expected = (env.reset()[0], 0.0, False, False, {}) if over[b] else env.step(actions[b])
            if any(expected[2:4]):
                told = info["final_info"] if mode == AutoresetMode.SAME_STEP else info
                for name, value in expected[4]["episode_metrics"].items():
                    assert told["episode_metrics"][name][b] == pytest.approx(value, rel=0, abs=0, nan_ok=True), name
                if mode == AutoresetMode.SAME_STEP:
                    assert info["final_obs"][b].tobytes() == expected[0].tobytes()
                    expected = (env.reset()[0], *expected[1:])
            assert observation[b].tobytes() == expected[0].tobytes()
            assert (reward[b], terminated[b], truncated[b]) == expected[1:4]
            assert (info["action_mask"][b] == env.action_masks()).all()
        over = (terminated | truncated) & (mode != AutoresetMode.SAME_STEP)
        ends += int((terminated | truncated).sum())
    assert ends > rows
    assert tended > 20


@pytest.mark.parametrize("seed", range(4))
def test_a_snapshot_with_pods_replays_identically(seed: int):
    """Guards snapshot() and restore() on pods, queues, marks and late tasks."""
    env, rng = ClusterEnv(flat=True, **SMALL), Random(seed)
    env.reset(seed=seed)
    while rng.random() < 0.95 or not (env.batch.states[0].pod_state != NO_POD).any():
        if any(env.step(np.int64(choose_any(env.batch, rng)))[2:4]):
            env.reset()
    snapshot, before, rewards, tables = env.snapshot(), state_bytes(env.batch), [], []
    for i in (1, 2, 1):
        rewards.append(play(env, choose_any, seed=i).rewards)
        tables.append(env.batch.episode_jobs(0))
        observation, info = env.restore(snapshot)
        assert state_bytes(env.batch) == before
        assert observation.tobytes() == env.batch.obs[0].tobytes()
        assert (info["action_mask"] == env.action_masks()).all()
    assert rewards[0] == rewards[2] != rewards[1]
    pd.testing.assert_frame_equal(tables[0], tables[2], check_exact=True)


def test_weights_have_no_edits_of_inference():
    """action="weights" decides GPUs alone: a Box, with pods and tasks beside it."""
    env = ClusterEnv(action="weights", flat=True, **SMALL)
    env.reset(seed=0)
    assert env.action_space.shape == (8,)
    ended = False
    while not ended:
        _, _, terminated, truncated, info = env.step(np.zeros(8, np.float32))
        ended = terminated or truncated
        assert not env.batch.states["yields"].any()
    assert info["episode_metrics"]["num_completed"] > 0


def test_one_edit_after_another_reaches_the_commit():
    """Edits of a pass before and after a KEEP are paid for together, at the commit."""
    env = hand_env([(1, 0, None)], [("s", 1, 2)], "1x2", objective="jct_slo", slo_penalty_s=60.0)
    edit(env, (0, MORE))
    assert commit(env) == 40
    assert [env.step(np.int64(action))[1] for action in (1 + 9 * 6, 1 + 9 * 6 + 1, 1 + MORE)] == [0, 0, 0]
