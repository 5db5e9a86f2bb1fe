"""The undiscounted return is the objective: minus the sum of JCTs, the makespan, or a cost paid at the end."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.env import ClusterEnv
from envs.metrics import finish_time_fairness
from envs.spec import SimConfig
from tests.envs.core_support import hand
from tests.envs.env_support import (
    EVENTS,
    MIXED,
    PLAYERS,
    Played,
    choose_greedy,
    choose_idle,
    mixed_trace,
    play,
    random_env,
)

EXACT = {"rel": 1e-9, "abs": 1e-9}
CONFIGS = {
    "events": EVENTS,
    "interval": SimConfig(interval_s=45.0, rescale_s=10.0),
    "both": SimConfig(interval_s=60.0, on_event=True, placement="spread"),
    "helios": SimConfig(interval_s=0.0, rescale_cost="helios", placement="count"),
    "checkpoints": SimConfig(interval_s=0.0, checkpoint_s=100.0, placement="random", durations="estimate"),
}
TRACE = mixed_trace(400, seed=1, rejects=False)  # see test_a_job_rejected_from_the_backlog_costs_nothing


def jobs_of(env: ClusterEnv) -> pd.DataFrame:
    """The job table of the episode that has just ended, times from the start of the window."""
    return env.batch.episode_jobs(0)


def job_time(jobs: pd.DataFrame, until: float) -> float:
    """Time spent in the system by all jobs up to ``until`` [s]: the sum of JCTs if all are done by then."""
    arrived = jobs[(jobs["arrival_s"] < until) & (jobs["status"] != "rejected")]
    return float((arrived["finish_s"].fillna(np.inf).clip(upper=until) - arrived["arrival_s"]).sum())


def check_return(env: ClusterEnv, played: Played) -> None:
    """Assert what the objective jct promises of a whole episode."""
    jobs = jobs_of(env)
    scale = max(float(jobs["duration_s"].sum()), 1.0)
    until = float(env.batch.states[0].now)
    assert sum(played.rewards) == pytest.approx(-job_time(jobs, until) / scale, **EXACT)
    if played.terminated:
        assert set(jobs["status"]) <= {"completed", "rejected"}
        assert sum(played.rewards) == pytest.approx(-jobs["jct_s"].sum() / scale, **EXACT)
    else:
        assert (jobs["status"] == "unfinished").any()
        assert until == env.batch.states[0].horizon


@pytest.mark.parametrize("num_slots", [4, 40])  # with a backlog and without
@pytest.mark.parametrize("player", ["greedy", "churn", "random"])
@pytest.mark.parametrize("config", CONFIGS)
def test_return_is_minus_the_sum_of_jcts(config, player, num_slots):
    env = ClusterEnv(
        trace=TRACE, cluster=MIXED, sim=CONFIGS[config], num_slots=num_slots, window_jobs=40, horizon_s=1e7
    )
    for start in (0, 137, 199):
        env.reset(seed=start, options={"window": start})
        played = play(env, PLAYERS[player], seed=start)
        assert played.terminated
        check_return(env, played)


@given(seed=st.integers(0, 10**6), player=st.sampled_from(sorted(PLAYERS)))
@settings(max_examples=60, deadline=None)
def test_return_of_any_episode(seed, player):
    env = random_env(seed, num_slots=40)
    check_return(env, play(env, PLAYERS[player], seed))


def test_a_job_rejected_from_the_backlog_costs_nothing():
    env = ClusterEnv(trace=hand([(1, 0, 100), (2, 1, 10)]), cluster="1x1", num_slots=1)
    env.reset(seed=0)
    check_return(env, play(env, choose_greedy))


@pytest.mark.parametrize("horizon_s", [0.5, 7.0, 10.0, 25.0, 1000.0])
def test_truncation_at_the_horizon(horizon_s):
    """Jobs of 10 s at 0 and of 20 s at 5 on one GPU, one after the other: finished at 10 and 30."""
    env = ClusterEnv(
        trace=hand([(1, 0, 10), (1, 5, 20)]), cluster="1x1", num_slots=4, horizon_s=horizon_s, reward_scale=1.0
    )
    env.reset(seed=0)
    played = play(env, choose_greedy)
    done = sum(finish <= horizon_s for finish in (10, 30))
    expected = min(10, horizon_s) + max(0, min(30, horizon_s) - 5)
    assert sum(played.rewards) == -expected
    assert (played.terminated, played.truncated) == (done == 2, done < 2)
    assert played.info["episode_metrics"]["num_completed"] == done
    assert played.info["episode_metrics"]["num_unfinished"] == 2 - done
    check = jobs_of(env)["status"].tolist()
    assert check == ["completed"] * done + ["unfinished"] * (2 - done)


@pytest.mark.parametrize("player", PLAYERS)
@pytest.mark.parametrize("config", ["events", "interval"])
def test_return_up_to_a_horizon(player, config):
    env = ClusterEnv(
        trace=TRACE, cluster=MIXED, sim=CONFIGS[config], num_slots=8, window_jobs=60, horizon_s=2000.0, reward_scale=3.0
    )
    env.reset(seed=2)
    played = play(env, PLAYERS[player])
    assert played.truncated
    assert sum(played.rewards) == pytest.approx(-job_time(jobs_of(env), 2000.0) / 3.0, **EXACT)


def test_a_schedule_without_idling_ends_before_the_implied_horizon():
    env = ClusterEnv(trace=hand([(1, 0, 10)] * 9), cluster="1x1", sim=SimConfig(interval_s=600.0), num_slots=16)
    env.reset(seed=0)
    assert play(env, choose_greedy).terminated


def test_doing_nothing_ends_at_the_implied_horizon():
    """One job after another with 60 s and a pause of 30 s each: 5 + 30 + 2 x 90 = 215 s."""
    env = ClusterEnv(trace=hand([(1, 0, 10), (1, 5, 20)]), cluster="1x1", num_slots=4)
    env.reset(seed=0)
    played = play(env, choose_idle)
    assert played.truncated
    assert sum(played.rewards) == pytest.approx(-(215 + 210) / 30, **EXACT)
    assert env.batch.states[0].now == 215


@pytest.mark.parametrize("player", ["greedy", "churn", "random"])
@pytest.mark.parametrize("num_slots", [4, 40])
def test_makespan(player, num_slots):
    env = ClusterEnv(
        trace=TRACE, cluster=MIXED, num_slots=num_slots, window_jobs=40, objective="makespan", horizon_s=1e7
    )
    env.reset(seed=0)
    played, jobs = play(env, PLAYERS[player]), jobs_of(env)
    span = jobs["finish_s"].max() - jobs["arrival_s"].min()
    assert sum(played.rewards) == pytest.approx(-span / jobs["duration_s"].sum(), **EXACT)


def p99_slowdown(jobs: pd.DataFrame) -> float:
    jobs = jobs[(jobs["status"] == "completed") & (jobs["duration_s"] > 0)]
    return float(np.percentile(jobs["jct_s"] / jobs["duration_s"], 99))


def fairness(jobs: pd.DataFrame) -> float:
    return float(np.nanmean(finish_time_fairness(jobs[jobs["status"] == "completed"], 32)))


@pytest.mark.parametrize(("objective", "cost"), [("p99_slowdown", p99_slowdown), ("finish_time_fairness", fairness)])
@pytest.mark.parametrize("horizon_s", [None, 3000.0])
def test_terminal_objectives_pay_once(objective, cost, horizon_s):
    env = ClusterEnv(trace=mixed_trace(300), cluster=MIXED, window_jobs=40, objective=objective, horizon_s=horizon_s)
    for start in (0, 60):
        env.reset(seed=0, options={"window": start})
        played = play(env, choose_greedy)
        assert set(played.rewards[:-1]) == {0.0}
        assert played.rewards[-1] == pytest.approx(-cost(jobs_of(env)), **EXACT)


@pytest.mark.parametrize("objective", ["p99_slowdown", "finish_time_fairness"])
def test_terminal_objectives_pay_nothing_where_nothing_completed(objective):
    env = ClusterEnv(trace=hand([(1, 0, 10)]), cluster="1x1", num_slots=4, objective=objective, horizon_s=5.0)
    env.reset(seed=0)
    assert play(env, choose_idle).rewards == [0.0]


@pytest.mark.parametrize("objective", ["jct", "makespan", "p99_slowdown"])
def test_reward_terms_add_up_to_the_reward(objective):
    env = ClusterEnv(trace=mixed_trace(300), cluster=MIXED, window_jobs=20, num_slots=8, objective=objective)
    env.reset(seed=1)
    ended = False
    while not ended:
        _, reward, terminated, truncated, info = env.step(np.int64(choose_greedy(env.batch, None)))
        assert info["reward_terms"] == {objective: reward}
        ended = terminated or truncated
        assert ("episode_metrics" in info) is ended


def test_episode_metrics_are_those_of_the_job_table():
    env = ClusterEnv(trace=mixed_trace(300), cluster=MIXED, window_jobs=50, num_slots=50, split="all", horizon_s=4000.0)
    env.reset(options={"window": 90})
    metrics, jobs = play(env, PLAYERS["churn"]).info["episode_metrics"], jobs_of(env)
    assert metrics["mean_jct_s"] == pytest.approx(jobs["jct_s"].mean(), **EXACT)
    assert metrics["mean_queueing_delay_s"] == pytest.approx(
        jobs.loc[jobs["status"] == "completed", "queueing_delay_s"].mean(), **EXACT
    )
    for status in ("completed", "rejected", "unfinished"):
        assert metrics[f"num_{status}"] == (jobs["status"] == status).sum() > 0
    for count in ("num_rescales", "num_preemptions"):
        assert metrics[count] == jobs[count].sum() > 0


def test_a_window_at_the_end_of_the_trace_may_be_short():
    env = ClusterEnv(trace=TRACE, cluster=MIXED, window_jobs=40, num_slots=8)
    env.reset(seed=0, options={"window": len(TRACE) - 3})
    played = play(env, choose_greedy)
    assert played.info["episode_metrics"]["num_completed"] == len(jobs_of(env)) == 3
    check_return(env, played)
