"""Edits inside a pass and what the commit charges for them, worked by hand on small clusters."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.actions import COMMIT, NUM_EDITS, Edit
from envs.env import ClusterEnv
from envs.spec import SimConfig
from tests.envs.core_support import hand
from tests.envs.env_support import EVENTS, choose_greedy, choose_idle, choose_random, holdings, play, random_env

START, STOP, PACK, SPREAD = Edit.MORE, Edit.LESS, Edit.PLACE_PACKED, Edit.PLACE_SPREAD
PAUSE = 30.0  # of SimConfig
# Two gangs of 2 fill two nodes of 2; a third arrives at 10 s.
FULL = [(2, 0, 100), (2, 0, 100), (2, 10, 5)]


def begin(jobs: list[tuple[int, float, float]], cluster: str, columns: dict[str, Any] | None = None, **given: Any):
    """A reset environment whose slots are the jobs by number, as long as none leaves before another arrives."""
    env = ClusterEnv(
        trace=hand(jobs, **(columns or {})), cluster=cluster, **{"num_slots": 8, "horizon_s": 1e6, **given}
    )
    env.reset(seed=0)
    return env


def edit(env: ClusterEnv, *edits: tuple[int, Edit]) -> None:
    """Apply (slot, edit) pairs; none of them takes time or is paid for."""
    for slot, what in edits:
        now, passes = float(env.batch.states[0].now), int(env.batch.states[0].num_passes)
        assert env.step(np.int64(1 + NUM_EDITS * slot + what))[1] == 0.0
        assert (env.batch.states[0].now, env.batch.states[0].num_passes) == (now, passes)


def commit(env: ClusterEnv) -> float:
    """Commit; the time of the next pass."""
    env.step(np.int64(COMMIT))
    return float(env.batch.states[0].now)


def finish(env: ClusterEnv) -> Any:
    """Go on greedily to the end; the job table."""
    play(env, choose_greedy)
    return env.batch.episode_jobs(0)


def at_ten(pass_edits: list[tuple[int, Edit]]) -> Any:
    """FULL with both gangs started at 0 and these edits at 10 s; the job table."""
    env = begin(FULL, "2x2")
    edit(env, (0, START), (1, START))
    assert commit(env) == 10
    edit(env, *pass_edits)
    return finish(env)


def test_a_stop_that_is_undone_costs_nothing():
    jobs = at_ten([(0, STOP), (0, START), (1, STOP), (1, START)])
    assert jobs["finish_s"].tolist() == [100, 100, 105]
    assert jobs[["num_preemptions", "num_rescales", "paused_gpu_s"]].to_numpy().sum() == 0


def test_a_start_that_is_undone_leaves_no_trace():
    env = begin([(1, 0, 10)], "1x1")
    edit(env, (0, START), (0, STOP), (0, START), (0, STOP))
    assert commit(env) == 60
    jobs = finish(env)
    assert jobs.loc[0, ["first_start_s", "finish_s", "queueing_delay_s", "paused_gpu_s"]].tolist() == [60, 70, 60, 0]
    assert jobs.loc[0, ["num_preemptions", "num_rescales"]].tolist() == [0, 0]


def test_a_stop_is_a_preemption_with_a_pause_at_resumption():
    """Job 2 runs from 10 to 15; job 0 resumes then, pauses to 45 and has 90 s left."""
    jobs = at_ten([(0, STOP), (2, START)])
    assert jobs["finish_s"].tolist() == [135, 100, 15]
    assert jobs["num_preemptions"].tolist() == [1, 0, 0]
    assert jobs["paused_gpu_s"].tolist() == [2 * PAUSE, 0, 0]
    assert jobs["queueing_delay_s"].tolist() == [5, 0, 0]


def moved(*pass_edits: tuple[int, Edit]) -> Any:
    """A gang of 2 started on one of two nodes, edits at 10 s (a job that needs the whole cluster waits); its row."""
    env = begin([(2, 0, 100), (4, 10, 5)], "2x2")
    edit(env, (0, START))
    assert commit(env) == 10
    edit(env, *pass_edits)
    return finish(env).loc[0]


def test_a_move_is_one_migration_with_one_pause():
    """90 s left at 10 s, after a pause of 30 s."""
    row = moved((0, SPREAD))
    assert (row["finish_s"], row["num_rescales"], row["num_preemptions"]) == (130, 1, 0)
    assert row["paused_gpu_s"] == 2 * PAUSE


def test_moves_that_end_where_they_began_cost_nothing():
    row = moved((0, SPREAD), (0, PACK), (0, STOP), (0, START))
    assert (row["finish_s"], row["num_rescales"], row["paused_gpu_s"]) == (100, 0, 0)


def test_only_the_net_change_is_charged():
    row = moved((0, SPREAD), (0, PACK), (0, SPREAD), (0, STOP), (0, START), (0, SPREAD))
    assert (row["finish_s"], row["num_rescales"], row["num_preemptions"]) == (130, 1, 0)


def test_a_first_start_on_chosen_nodes_has_no_pause():
    env = begin([(2, 0, 100)], "2x2")
    edit(env, (0, START), (0, SPREAD))
    assert env.batch.states[0].num_nodes_held[0] == 2
    row = finish(env).loc[0]
    assert (row["finish_s"], row["num_rescales"], row["paused_gpu_s"]) == (100, 0, 0)


def test_stopped_and_started_elsewhere_is_a_migration():
    """Job 1 takes the node of job 0, which moves to the other one."""
    env = begin([(2, 0, 100), (2, 10, 50)], "2x2")
    edit(env, (0, START))
    assert commit(env) == 10
    edit(env, (0, STOP), (1, START), (0, START))
    jobs = finish(env)
    assert jobs["finish_s"].tolist() == [130, 60]
    assert jobs["num_rescales"].tolist() == [1, 0]
    assert jobs["num_preemptions"].tolist() == [0, 0]


def test_a_pinned_job_can_be_stopped_only_in_the_pass_that_starts_it():
    env = begin([(1, 0, 100), (1, 5, 1)], "1x1", {"preemptible": [False, True]})
    edit(env, (0, START), (0, STOP), (0, START))
    assert commit(env) == 5
    assert not env.action_masks()[1 + STOP]
    assert finish(env)["finish_s"].tolist() == [100, 101]


# --- the budget ---


@pytest.mark.parametrize("budget", [1, 2, 7, 64])
def test_the_last_edit_of_the_budget_commits(budget):
    """Start and stop in turn: after an odd number of edits the job runs and is done at 10 s, else it waits."""
    env, odd = begin([(1, 0, 10)], "1x1", edit_budget=budget), budget % 2 == 1
    for i in range(budget - 1):
        edit(env, (0, STOP if i % 2 else START))
        assert env.batch.states[0].edits_left == budget - 1 - i
    _, reward, terminated, _, _ = env.step(np.int64(1 + (START if odd else STOP)))
    assert (reward, terminated) == ((-1.0, True) if odd else (-6.0, False))
    assert env.batch.states[0].now == (10 if odd else 60)
    assert env.batch.states[0].edits_left == (0 if odd else budget)


def test_the_default_budget_is_64():
    assert ClusterEnv(trace=hand([(1, 0, 10)]), cluster="1x1").batch.states[0].edit_budget == 64


# --- when the agent is asked ---


def test_passes_at_which_no_job_waits_are_skipped():
    """Completions at 10 and 20 s are passes of their own; the agent is asked again at the arrival at 50 s."""
    env = begin([(1, 0, 10), (1, 0, 20), (1, 50, 5)], "1x2")
    edit(env, (0, START), (1, START))
    assert commit(env) == 50
    assert env.batch.states[0].num_passes == 3
    assert env.batch.states[0].edits_left == 64


def test_interval_passes_without_waiting_jobs_are_skipped():
    env = begin([(1, 0, 500), (1, 1000, 5)], "1x1", sim=SimConfig(interval_s=60.0))
    edit(env, (0, START))
    assert commit(env) == 1020


@pytest.mark.parametrize(
    ("sim", "times"),
    [
        (EVENTS, [200, 260, 320]),
        (SimConfig(interval_s=45.0), [225, 270, 315]),
        (SimConfig(interval_s=45.0, on_event=True), [200, 225, 270, 315]),
    ],
)
def test_an_idle_commit_moves_the_clock(sim, times):
    """Nothing runs. While a job is still to come, an idle commit waits for it; else it moves by 60 s or an interval."""
    env = begin([(1, 0, 10), (1, 200, 10)], "1x1", sim=sim)
    assert [commit(env) for _ in times] == times


@pytest.mark.parametrize("sim", [EVENTS, SimConfig(interval_s=45.0)])
def test_an_idle_commit_waits_for_a_running_job(sim):
    env = begin([(1, 0, 1000), (2, 0, 10)], "1x2", sim=sim)
    edit(env, (0, START))
    assert commit(env) == (1000 if sim.interval_s == 0 else 1035)


@pytest.mark.parametrize("seed", range(20))
def test_doing_nothing_never_hangs(seed):
    """At most one step for each arrival and each 60 s or interval up to the horizon."""
    env = random_env(seed)
    s, jobs = env.batch.states[0], len(env.settings.source)
    step = env.settings.sim.resolve().interval_s or 60.0
    assert len(play(env, choose_idle).rewards) <= 2 + 2 * jobs + s.horizon / step


def test_many_jobs_without_work_pass_through_one_slot():
    env = begin([(1, 0, 0)] * 100, "1x1", num_slots=2, window_jobs=100)
    assert (finish(env)["finish_s"] == 0).all()


# --- the same as a property ---


def undo_stops(env: ClusterEnv) -> None:
    """Stop and start again every running job that comes back to the nodes it had."""
    s = env.batch.states[0]
    for j in holdings(s):
        before, start = env.snapshot(), 1 + NUM_EDITS * j + START
        if env.action_masks()[1 + NUM_EDITS * j + STOP]:
            edit(env, (j, STOP))
            if env.action_masks()[start]:
                edit(env, (j, START))
            if s.node_hash[j] != s.held_hash[j]:
                env.restore(before)


@given(seed=st.integers(0, 10**6), steps=st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_undone_stops_cost_nothing_at_any_state(seed, steps):
    env, rng = random_env(seed, edit_budget=10**6), Random(seed)
    for _ in range(steps):
        if any(env.step(np.int64(choose_random(env.batch, rng)))[2:4]):
            return
    commit(env)
    snapshot = env.snapshot()
    reward = env.step(np.int64(COMMIT))[1]
    direct = env.snapshot()
    env.restore(snapshot)
    undo_stops(env)
    assert env.step(np.int64(COMMIT))[1] == reward
    after = env.snapshot()
    names = ("now", "done", "anchor", "finish", "service", "paused_gpu_s", "queueing_delay", "num_starts")
    for name in (*names, "num_rescales", "num_preemptions", "num_waiting", "num_running", "num_completed"):
        np.testing.assert_array_equal(after["states"][name], direct["states"][name], err_msg=name)
    assert after["results"].tobytes() == direct["results"].tobytes()
