"""Edits of inference services, worked by hand: which idle pods stay warm, which end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from envs.actions import COMMIT, NUM_EDITS
from envs.env import ClusterEnv
from envs.layout import POD_PROTECT, POD_RUNNING, POD_SLEEP
from envs.spec import SimConfig
from tests.envs.colocated_support import (
    DROP,
    KEEP,
    SOON,
    Task,
    Training,
    check_conservation,
    hand_env,
    is_valid,
    open_gpus,
    pods,
    tend,
)
from tests.envs.elastic_env_support import LESS, MORE, commit, edit
from tests.envs.env_support import PLAYERS, play

LYRA, STATIC = replace(SOON, reclaim="lyra"), replace(SOON, reclaim="static")


def until(env: ClusterEnv, device: int) -> float:
    return float(env.batch.states[0].pod_until[device])


# --- KEEP ---

# On two GPUs an elastic job has one; a task at 1 starts up until 5 and is served until 7, protected until 37.
ONE: list[Training] = [(1, 0, None)]
FIRST: Task = ("s", 1, 2)


def at_forty(*tasks: Task, **given: Any) -> ClusterEnv:
    """At the pass at 40: the first task's pod has slept since 37 on device 1."""
    env = hand_env(ONE, [FIRST, *tasks], "1x2", **given)
    edit(env, (0, MORE))
    assert commit(env) == 40
    return env


def at_twenty(*tasks: Task, sim: SimConfig = SOON, cluster: str = "1x2", **given: Any) -> ClusterEnv:
    """At the pass at 20, for a job that has arrived at 15: the first task's pod is protected until 37."""
    training = given.pop("training", [*ONE, (1, 15, 900.0)])
    env = hand_env(training, [FIRST, *tasks], cluster, sim, **given)
    edit(env, (0, MORE))
    while commit(env) < 20:  # a pod that does not stay awake makes a pass at 10
        pass
    assert env.batch.states[0].now == 20
    return env


def test_keep_protects_a_sleeping_pod_for_two_minutes():
    """Its device is not free for training until then; at 160 it sleeps again."""
    env = at_forty()
    assert pods(env) == {1: (0, POD_SLEEP)}
    assert env.action_masks()[1 + MORE]
    assert open_gpus(env) == (2, [1])
    tend(env, 0, KEEP)
    assert pods(env) == {1: (0, POD_PROTECT)}
    assert until(env, 1) == 160
    assert open_gpus(env) == (1, [0])
    assert not env.action_masks()[1 + MORE]
    check_conservation(env)
    assert commit(env) == 160
    assert pods(env) == {1: (0, POD_SLEEP)}
    assert open_gpus(env) == (2, [1])


@pytest.mark.parametrize("keep", [True, False])
def test_a_kept_pod_is_hit_warm(keep: bool):
    """Training takes the device of a sleeping pod, and a task at 100 starts cold; of a kept one it may not."""
    env = at_forty(("s", 100, 2))
    if keep:
        tend(env, 0, KEEP)
    else:
        edit(env, (0, MORE))
    # A hit of a protected pod counts: 30 + 15 s from 102 on. A cold start takes a GPU: a pass; 30 s from 106 on.
    assert commit(env) == (150 if keep else 100)
    assert keep or commit(env) == 140
    play(env, PLAYERS["idle"])
    rows = env.batch.episode_jobs(0)
    task = rows[rows["arrival_s"] == 100].iloc[0]
    assert (task["first_start_s"], task["finish_s"], task["warm"]) == (100, 102 if keep else 106, keep)
    assert env.batch.states[0].num_taken == (0 if keep else 1)


def test_keep_lengthens_a_protection_and_leaves_the_hits():
    """Two hits in a row by 20 s: 30 + 15 x 2 s of protection after them; the third hit makes 75 s."""
    env = at_twenty(("s", 9, 1), ("s", 12, 1), ("s", 130, 2))
    assert pods(env) == {1: (0, POD_PROTECT)}
    assert (until(env, 1), env.batch.states[0].pod_hits[1]) == (13 + 60, 2)
    tend(env, 0, KEEP)
    assert (until(env, 1), env.batch.states[0].pod_hits[1]) == (140, 2)
    edit(env, (0, LESS))  # so that something happens at 20 and 132 + 75 alone
    edit(env, (1, MORE))
    commit(env)
    while pods(env)[1][1] != POD_SLEEP:
        commit(env)
    assert env.batch.states[0].pod_since[1] == 132 + 75


def test_keep_is_masked_when_nothing_would_change():
    """Guards the mask: after a KEEP the same one would protect nobody for longer, a second pod's does."""
    env = at_twenty(("s", 2, 30), cluster="1x4")
    assert {state for _, state in pods(env).values()} == {POD_PROTECT, POD_RUNNING}
    assert is_valid(env, 0, KEEP)
    tend(env, 0, KEEP)
    assert not is_valid(env, 0, KEEP)
    assert is_valid(env, 0, DROP)
    assert commit(env) == 70  # the second pod's task was done at 36, its protection ended at 66
    assert commit(env) == 140
    assert sorted(state for _, state in pods(env).values()) == [POD_SLEEP, POD_SLEEP]


def test_only_idle_pods_are_edited():
    """A pod that starts up or serves is neither kept nor dropped, and a service without pods has no edits."""
    env = at_twenty(("t", 15, 30), ("u", 900, 1), cluster="1x4")
    assert pods(env)[2] == (1, POD_RUNNING)
    for service in (1, 2):
        assert not is_valid(env, service, KEEP)
        assert not is_valid(env, service, DROP)
    before = env.batch.states[0].pod_until[2]
    tend(env, 0, KEEP)
    tend(env, 0, DROP)
    assert pods(env) == {2: (1, POD_RUNNING)}
    assert env.batch.states[0].pod_until[2] == before


@pytest.mark.parametrize(("factor", "time"), [(0.0, None), (0.5, 60), (2.0, 240)])
def test_protect_times_scale_a_keep(factor: float, time: float | None):
    """Without protection there is nothing to keep, but a pod to drop."""
    sim = replace(SOON, protect_times=factor)
    env = at_twenty(sim=sim)
    assert is_valid(env, 0, DROP)
    assert is_valid(env, 0, KEEP) is (time is not None)
    if time is not None:
        tend(env, 0, KEEP)
        assert until(env, 1) == 20 + time
    else:
        assert pods(env) == {1: (0, POD_SLEEP)}


def test_without_aiss_there_is_no_idle_pod():
    env = at_twenty(sim=replace(SOON, aiss=False))
    assert pods(env) == {}
    assert not is_valid(env, 0, KEEP)
    assert not is_valid(env, 0, DROP)


# --- DROP ---


def test_drop_frees_the_device_of_a_protected_pod():
    """Training may have it in the same pass, and the service's next task starts cold."""
    env = at_twenty(("s", 30, 2), horizon_s=500.0)
    assert open_gpus(env) == (1, [0])
    assert not env.action_masks()[1 + NUM_EDITS + MORE]
    tend(env, 0, DROP)
    assert pods(env) == {}
    assert open_gpus(env) == (2, [1])
    assert env.action_masks()[1 + NUM_EDITS + MORE]
    check_conservation(env)
    commit(env)
    play(env, PLAYERS["idle"])
    rows = env.batch.episode_jobs(0)
    task = rows[rows["arrival_s"] == 30].iloc[0]
    assert (task["finish_s"], task["warm"], task["paused_gpu_s"]) == (36, False, 4)


def test_a_dropped_pod_is_accounted_until_it_ends():
    """Protected from 7 to 20 in the one case, asleep from 37 to 40 in the other."""
    early, late = at_twenty(horizon_s=500.0), at_forty(horizon_s=500.0)
    for env in (early, late):
        tend(env, 0, DROP)
        play(env, PLAYERS["idle"])
    kinds = {"start": 1, "running": 2, "protect": 3, "sleep": 4}
    spent = [{name: float(env.batch.states[0].pod_gpu_s[at]) for name, at in kinds.items()} for env in (early, late)]
    assert spent[0] == {"start": 4, "running": 2, "protect": 13, "sleep": 0}
    assert spent[1] == {"start": 4, "running": 2, "protect": 30, "sleep": 3}


@pytest.mark.parametrize("drop", [True, False])
def test_a_dropped_device_is_offered_to_waiting_tasks_at_the_next_event(drop: bool):
    """The job on the other GPU may not be preempted: task t of 12 waits for the pod of s, or for nobody's device."""
    columns = {"preemptible": [False, True, True]}
    env = at_twenty(("t", 12, 2), training=[*ONE, (1, 15, 900.0), (1, 25, 900.0)], columns=columns)
    assert env.batch.states[0].num_queued == 1
    if drop:
        tend(env, 0, DROP)
        assert env.batch.states[0].num_queued == 1  # not at once: the pass goes on
    commit(env)
    while env.batch.states[0].num_queued:
        commit(env)
    assert pods(env)[1][0] == 1
    assert env.batch.states[0].pod_begun[1] == (25 if drop else 37)


def test_one_service_is_edited_and_no_other():
    env = at_twenty(("t", 2, 2), cluster="1x4")
    assert pods(env) == {1: (0, POD_PROTECT), 2: (1, POD_PROTECT)}
    tend(env, 1, KEEP)
    assert (until(env, 1), until(env, 2)) == (37, 140)
    tend(env, 1, DROP)
    assert pods(env) == {1: (0, POD_PROTECT)}
    assert not is_valid(env, 1, DROP)
    assert is_valid(env, 0, DROP)


def test_lyra_lends_a_node_whose_last_awake_pod_is_dropped():
    """Two nodes of two, the second inference's: reserved by a cold start, until nobody is awake there."""
    env = at_twenty(("t", 2, 2), sim=LYRA, cluster="2x2")
    s = env.batch.states[0]
    assert (s.node_reserved[1], open_gpus(env)) == (1, (2, [1, 0]))
    tend(env, 0, DROP)
    assert (s.node_reserved[1], open_gpus(env)) == (1, (2, [1, 0]))  # the freed device is kept for inference
    check_conservation(env)
    tend(env, 1, DROP)
    assert (s.node_reserved[1], open_gpus(env)) == (0, (4, [1, 2]))
    check_conservation(env)


def test_lyra_lends_sleeping_pods_with_the_node():
    """t's pod, protected until 38, is dropped at 50 while u's is; s's sleeps since 37 and stays to be taken."""
    training: list[Training] = [*ONE, (1, 15, 900.0), (4, 45, 900.0)]
    env = at_twenty(("t", 30, 5), training=training, sim=LYRA, cluster="2x2")
    s = env.batch.states[0]
    edit(env, (1, MORE))
    assert (commit(env), commit(env)) == (40, 50)
    assert pods(env) == {2: (0, POD_SLEEP), 3: (1, POD_PROTECT)}
    assert (s.node_reserved[1], s.node_asleep[1], open_gpus(env)) == (1, 0, (2, [0, 0]))
    tend(env, 1, DROP)
    assert (s.node_reserved[1], s.node_asleep[1], open_gpus(env)) == (0, 1, (4, [0, 2]))
    check_conservation(env)
    tend(env, 0, KEEP)  # a pod that wakes on a lent node reserves nothing
    assert (s.node_reserved[1], s.node_pods[1], open_gpus(env)) == (0, 1, (3, [0, 1]))
    check_conservation(env)
    tend(env, 0, DROP)
    assert (s.node_pods[1], open_gpus(env)) == (0, (4, [0, 2]))


def test_static_keeps_its_nodes():
    env = at_twenty(sim=STATIC, cluster="2x2")
    s = env.batch.states[0]
    assert (s.node_reserved[1], s.node_pods[1], open_gpus(env)) == (1, 1, (2, [1, 0]))
    tend(env, 0, KEEP)
    assert until(env, 2) == 140
    tend(env, 0, DROP)
    assert (s.node_reserved[1], s.node_pods[1], open_gpus(env)) == (1, 0, (2, [1, 0]))
    check_conservation(env)


# --- what every edit of a pass keeps to ---


def test_the_last_edit_of_the_budget_commits_whatever_it_is():
    env = hand_env(ONE, [FIRST], "1x2", edit_budget=2)
    edit(env, (0, MORE))
    assert commit(env) == 40
    tend(env, 0, KEEP)
    env.step(np.int64(1 + 9 * 6 + DROP))
    assert env.batch.states[0].now > 40
    assert env.batch.states[0].edits_left == 2
    assert pods(env) == {}


def test_an_edit_of_a_service_has_no_reward():
    """Two late tasks before the first pass, at 20: the commit pays for them, and not the edit before it."""
    sim = replace(SOON, slo_s=3.0)
    env = hand_env([(1, 15, None)], [("s", 0, 2), ("t", 0, 2)], sim=sim, scenario="colocated", slo_penalty_s=7.0)
    assert (env.batch.states[0].now, env.batch.states[0].num_late) == (20, 2)
    rewards = [env.step(np.int64(action))[1] for action in (1 + 9 * 6 + KEEP, 1 + MORE, COMMIT)]
    assert rewards[:2] == [0, 0]
    assert rewards[2] < -2 * 7
