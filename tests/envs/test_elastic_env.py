"""The environment with elastic jobs: mask, edits, passes, reward, and what checkers say."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.env_checker import check_env as check_for_sb3

from envs.actions import COMMIT, LADDER, NUM_EDITS, Edit
from envs.batch import Batch
from envs.env import ClusterEnv
from envs.layout import FREE, RUNNING
from envs.spec import SCENARIOS, SimConfig
from tests.envs.elastic_core_support import jobs
from tests.envs.elastic_env_support import (
    EXACT,
    LESS,
    MORE,
    PACK,
    SCENARIO,
    SPREAD,
    commit,
    edit,
    elastic_env,
    held,
    small,
)
from tests.envs.env_support import PLAYERS, choose_random, holdings, play, state_bytes
from tests.envs.test_env_mask import Free, free_devices, name_of
from tests.envs.test_env_mask import valid_edits as valid_rigid
from traces.profiles import load_profiles

# --- mask ---


def gather(free: Free, need: int) -> int:
    """Nodes for so many devices: the fullest one that has all, else all of the emptiest, and so on; 0: too few."""
    free, taken = dict(free), 0
    while need > 0 and any(free.values()):
        enough = [n for n in free if free[n] >= need]
        node = min(enough, key=lambda n: (free[n], n)) if enough else max(free, key=lambda n: (free[n], -n))
        need -= free.pop(node)
        taken += 1
    return taken if need <= 0 else 0


def valid_elastic(s: Any, spec: Any, j: int, devices: list[int]) -> set[Edit]:
    """What the ladder and the placement rules allow an elastic job that holds ``devices``."""
    valid, count = set(), len(devices)
    own = int(spec.node_type[s.gpu_node[devices[0]]]) if devices else -1
    above = [rung for rung in LADDER if rung > count]
    for t in range(len(spec.types)):
        if above and above[0] <= s.max_gpus[j] and s.gpu_type[j] in (-1, t):
            room = {n: c for n, c in free_devices(s, devices).items() if spec.node_type[n] == t}
            if sum(room.values()) >= above[0]:
                valid.add(MORE)
    if not devices:
        return valid
    if count > 1 or not (s.pinned[j] and s.phase[j] == RUNNING):
        valid.add(LESS)
    nodes = {int(s.gpu_node[g]) for g in devices}
    mine = {n: c for n, c in free_devices(s, devices).items() if spec.node_type[n] == own}
    if 0 < gather(mine, count) < len(nodes):
        valid.add(PACK)
    others = {n for n, c in free_devices(s, []).items() if c and spec.node_type[n] == own}
    if len(nodes) < count and others - nodes:
        valid.add(SPREAD)
    return valid


def feasible(env: ClusterEnv) -> list[int]:
    """Every action that should be valid."""
    s, found, owned, spec = env.batch.states[0], [COMMIT], holdings(env.batch.states[0]), env.settings.cluster
    placement = env.settings.sim.placement
    for j in range(int(s.num_slots)):
        if s.phase[j] != FREE:
            devices = owned.get(j, [])
            if s.klass[j] >= 0:
                edits = valid_elastic(s, spec, j, devices)
            else:
                edits = valid_rigid(s, spec, placement, j, devices)
            found += [1 + j * NUM_EDITS + e for e in edits]
    return sorted(found)


def check_devices(s: Any) -> None:
    """Assert that every device has one holder, is free, or is down, inside a pass too."""
    owned = sorted(g for devices in holdings(s).values() for g in devices)
    assert len(owned) == len(set(owned))
    up = [g for g in range(int(s.num_gpus)) if not s.node_down[s.gpu_node[g]]]
    assert set(owned) <= set(up)
    idle = set(up) - set(owned)
    assert sum(s.node_free[: s.num_nodes]) == sum(s.type_free[: s.num_types]) == len(idle)
    assert all(s.gpu_free_milli[g] == (1000 if g in idle else 0) for g in range(int(s.num_gpus)))


@given(seed=st.integers(0, 10**6), player=st.sampled_from(["random", "churn"]))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_the_mask_is_the_ladder_and_the_placement_rules(seed: int, player: str):
    env, rng = elastic_env(seed), Random(seed)
    for _ in range(40):
        check_devices(env.batch.states[0])
        assert [name_of(a) for a in np.flatnonzero(env.action_masks())] == [name_of(a) for a in feasible(env)]
        if any(env.step(np.int64(PLAYERS[player](env.batch, rng)))[2:4]):
            break


def check_effect(env: ClusterEnv, action: int) -> None:
    """Assert that a valid edit of an elastic job does what it says."""
    s, (j, what) = env.batch.states[0], divmod(action - 1, NUM_EDITS)
    count, nodes, room = int(s.gpus[j]), int(s.num_nodes_held[j]), free_devices(s, holdings(s).get(j, []))
    spec = env.settings.cluster
    own = {
        n: c for n, c in room.items() if count and spec.node_type[n] == spec.node_type[np.flatnonzero(held(env, j))[0]]
    }
    edit(env, (j, Edit(what)))
    check_devices(s)
    if what in (MORE, LESS):
        beyond = [r for r in LADDER if (r > count if what == MORE else r < count)]
        assert s.gpus[j] == (beyond[0] if what == MORE else beyond[-1])
        return
    assert s.gpus[j] == count
    assert s.num_nodes_held[j] == gather(own, count) if what == PACK else s.num_nodes_held[j] > nodes


@pytest.mark.parametrize("seed", range(8))
def test_every_valid_edit_works(seed: int):
    env, rng = elastic_env(seed, edit_budget=10**6), Random(seed)
    for _ in range(5):
        snapshot, before = env.snapshot(), state_bytes(env.batch)
        for action in np.flatnonzero(env.action_masks())[1:]:
            if env.batch.states[0].klass[(action - 1) // NUM_EDITS] >= 0:
                check_effect(env, int(action))
            env.restore(snapshot)
            assert state_bytes(env.batch) == before
        for _ in range(8):
            if any(env.step(np.int64(choose_random(env.batch, rng)))[2:4]):
                return


# --- edits, by hand ---


def test_the_ladder_up_and_down():
    env = small(jobs((1, 0, None), batch_size=[64]), "2x16")
    seen = []
    for what in [MORE] * 9 + [LESS] * 9:
        edit(env, (0, what))
        seen.append(int(env.batch.states[0].gpus[0]))
    assert seen == [1, 2, 3, 4, 6, 8, 12, 16, 24, 16, 12, 8, 6, 4, 3, 2, 1, 0]
    assert not env.action_masks()[1 + LESS]


def test_the_ladder_ends_at_the_most_gpus():
    env = small(jobs((1, 0, None), max_gpus=[7]), "2x16")
    edit(env, *[(0, MORE)] * 5)
    assert held(env) == [6, 0]
    assert not env.action_masks()[1 + MORE]


def test_a_change_that_is_undone_costs_nothing():
    sim = SimConfig(interval_s=20.0, rescale_cost="restart", batch="fixed")
    env = small(jobs((2, 0, None), (1, 10, 500.0)), sim=sim)
    edit(env, (0, MORE), (0, MORE), (0, LESS), (0, MORE))
    assert commit(env) == 20
    edit(env, (0, MORE), (0, LESS), (0, LESS), (0, LESS), (0, MORE), (0, MORE), (1, MORE))
    play(env, PLAYERS["idle"])
    row = env.batch.episode_jobs(0).loc[0]
    assert (row["finish_s"], row["paused_gpu_s"], row["num_rescales"]) == (32 + 45, 64, 0)


def test_only_the_net_change_is_charged():
    env = small(jobs((1, 0, None), (1, 10, 500.0)), sim=SimConfig(interval_s=20.0, rescale_cost="afe", batch="fixed"))
    edit(env, (0, MORE), (0, MORE))
    assert commit(env) == 20
    edit(env, (0, MORE), (0, MORE), (0, LESS), (0, LESS), (0, LESS), (0, MORE), (0, MORE), (0, MORE), (1, MORE))
    play(env, PLAYERS["idle"])
    row = env.batch.episode_jobs(0).loc[0]
    # Two GPUs pause until 20 of 32 s; from two to four costs 8 + 24 / 2 s, and then 90 / 4 s are left.
    assert (row["finish_s"], row["paused_gpu_s"], row["num_rescales"]) == (40 + 22.5, 2 * 20 + 4 * 20, 1)


def test_spread_and_packed():
    env = small(jobs((4, 0, None)), "1x4+2x2")
    edit(env, *[(0, MORE)] * 4)
    assert held(env) == [4, 0, 0]
    edit(env, (0, SPREAD))
    assert held(env) == [2, 1, 1]
    edit(env, (0, PACK))
    assert held(env) == [4, 0, 0]
    assert not env.action_masks()[1 + PACK]


def test_growth_prefers_the_own_node():
    env = small(jobs((1, 0, None), (1, 0, None)), "2x4")
    edit(env, (0, MORE), (1, MORE), (0, MORE))
    assert (held(env, 0), held(env, 1)) == ([2, 0], [1, 0])
    edit(env, (1, MORE), (1, MORE))
    assert (held(env, 0), held(env, 1)) == ([2, 0], [0, 3])


def test_a_pinned_job_shrinks_to_one_gpu_and_no_further():
    env = small(jobs((1, 0, None), (1, 15, None), preemptible=[False, True]))
    edit(env, (0, MORE), (0, LESS), (0, MORE), (0, MORE))
    assert commit(env) == 20
    edit(env, (0, LESS))
    assert held(env) == [1]
    assert not env.action_masks()[1 + LESS]


# --- passes ---


def times(env: ClusterEnv, *edits: tuple[int, Edit]) -> list[float]:
    """Times of all passes when these edits are made at the first one and nothing but starts of others after it."""
    found = [float(env.batch.states[0].now)]
    edit(env, *edits)
    while not any(env.step(np.int64(COMMIT))[2:4]):
        found.append(float(env.batch.states[0].now))
        waiting = [
            j for j in range(6) if env.action_masks()[1 + NUM_EDITS * j + MORE] and not env.batch.states[0].gpus[j]
        ]
        edit(env, *[(j, MORE) for j in waiting])
    return found


def test_a_pass_is_held_when_something_has_happened():
    # Job 0 ends its first epoch at 30 and is done at 90; job 1 arrives at 145 and needs 30 and 60 s from 160 on.
    env = small(jobs((1, 0, None), (1, 145, None)))
    assert times(env, (0, MORE)) == [0, 40, 160, 200]
    # The pass that starts job 1 is one; ends of epochs count for elastic jobs only.
    env = small(jobs((1, 0, 90.0), (1, 145, None)))
    assert times(env, (0, MORE)) == [0, 160, 200]


def test_at_events_epochs_are_no_passes():
    env = small(jobs((1, 0, None), (1, 45, None)), sim=SimConfig(interval_s=0.0, rescale_s=0.0, batch="fixed"))
    assert times(env, (0, MORE)) == [0, 45, 90]


# --- reward, horizon, checkers ---


@given(seed=st.integers(0, 10**6), player=st.sampled_from(["churn", "greedy", "random"]))
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
def test_the_return_is_minus_the_sum_of_jcts(seed: int, player: str):
    env = elastic_env(seed, num_slots=12, reward_scale=100.0, horizon_s=3000.0)
    played = play(env, PLAYERS[player], seed)
    table, until = env.batch.episode_jobs(0), float(env.batch.states[0].now)
    kept = table[table["status"] != "rejected"]
    ends = kept["finish_s"].fillna(until)
    assert played.truncated == (table["status"] == "unfinished").any()
    assert sum(played.rewards) == pytest.approx(-(ends - kept["arrival_s"]).sum() / 100, **EXACT)


def test_the_scale_is_the_run_time_on_one_gpu():
    env = small(jobs((4, 0, None), (1, 0, 40.0)), horizon_s=None)
    s = env.batch.states[0]
    assert s.reward_scale == 90 + 40
    edit(env, (0, MORE), (0, MORE), (1, MORE))
    rewards = play(env, PLAYERS["idle"]).rewards
    assert sum(rewards) == pytest.approx(-(45 + 40) / 130, **EXACT)


def test_the_horizon_is_one_job_after_another_with_a_pause_each():
    env = small(jobs((4, 0, None), (1, 15, 40.0)), horizon_s=None)
    # 15 s to the last arrival, 90 and 40 s of work, and twice a minute and the longest restart of the models.
    assert env.batch.states[0].horizon == 15 + 130 + 2 * (60 + 32)
    assert play(env, PLAYERS["idle"]).truncated
    assert env.batch.states[0].now == 329


@pytest.mark.parametrize("seed", range(6))
def test_one_gpu_at_a_time_keeps_the_horizon(seed: int):
    def choose(batch: Batch, rng: Random) -> int:
        s = batch.states[0]
        return COMMIT if s.gpus[: s.num_slots].any() else PLAYERS["greedy"](batch, rng)

    sim = SimConfig(interval_s=60.0, rescale_cost="restart")
    env = elastic_env(seed, sim=sim, num_slots=12, cluster="1x4")
    assert play(env, choose).terminated


def complaints(check: Callable[[], Any]) -> set[str]:
    """What a checker warns of, up to the first full stop or bracket."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check()
    return {re.split(r"[.(]|, we", str(w.message).removeprefix("\x1b[33mWARN: "))[0] for w in caught}


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("action", ["edits", "weights"])
def test_gymnasium_has_no_complaint(flat: bool, action: Any):
    env = ClusterEnv(flat=flat, on_invalid="commit", action=action, **SCENARIO)
    assert complaints(lambda: check_env(env, skip_render_check=True)) == set()


@pytest.mark.parametrize("action", ["edits", "weights"])
def test_sb3_has_no_complaint(action: Any):
    env = ClusterEnv(flat=True, on_invalid="commit", action=action, **SCENARIO)
    assert complaints(lambda: check_for_sb3(env)) == set()


def test_the_scenario_is_the_default_of_everything():
    env = ClusterEnv(scenario="elastic")
    scenario = SCENARIOS["elastic"]
    assert (env.settings.sim, str(env.settings.cluster)) == (scenario.sim, scenario.cluster)
    assert len(env.settings.source) == 1600
    assert (env.settings.workload.jobs["klass"] >= 0).all()
    assert env.settings.workload.tuned
    assert set(env.settings.source.jobs["model"]) <= set(load_profiles())
