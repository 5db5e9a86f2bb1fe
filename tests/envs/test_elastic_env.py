"""The environment with elastic jobs: mask, edits, observation, passes, reward, and weights as actions."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3 import A2C
from stable_baselines3.common.env_checker import check_env as check_for_sb3

from envs.actions import COMMIT, LADDER, NUM_EDITS, Edit
from envs.allocator import allocate, make_scratch
from envs.batch import Batch
from envs.env import ClusterEnv
from envs.layout import FREE, LOG_DTYPE, RUNNING
from envs.observe import FEATURES, fill_observation
from envs.spec import SCENARIOS, SimConfig
from envs.tables import plain
from envs.vector_env import ClusterVectorEnv
from envs.view import ClusterView
from tests.envs.elastic_core_support import jobs, linear
from tests.envs.env_support import PLAYERS, choose_random, holdings, play, state_bytes
from tests.envs.test_env_mask import Free, free_devices, name_of
from tests.envs.test_env_mask import valid_edits as valid_rigid
from traces.profiles import TypeProfile, load_profiles
from traces.trace import Trace

MORE, LESS, PACK, SPREAD = Edit.MORE, Edit.LESS, Edit.PLACE_PACKED, Edit.PLACE_SPREAD
FIXED = SimConfig(interval_s=20.0, rescale_s=0.0, batch="fixed")
EXACT = {"rel": 1e-9, "abs": 1e-9}
NAMES = [f.name for f in FEATURES if f.block == "jobs"]
PLACEMENTS = ("consolidated", "consolidated", "emptiest", "spread", "count")
CLUSTERS = ("1x8", "3x4", "1x4+2x2", "1x3:aws+2x4:rtx", "2x2:rtx+1x8:aws+1x2:rtx")


def elastic_env(seed: int, **given: Any) -> ClusterEnv:
    """A reset environment on a random small workload of both kinds; the whole trace is the window."""
    rng = Random(f"elastic env {seed}")
    cluster = rng.choice(CLUSTERS)
    types = {"aws", *(part.partition(":")[2] or "aws" for part in cluster.split("+"))}
    pick = ["", "", "", *(types if ":" in cluster else ())]
    rows = [
        (rng.choice((1, 1, 2, 3)), 15.0 * rng.randint(0, 12), 70.0 if rng.random() < 0.3 else None) for _ in range(9)
    ]
    rows.sort(key=lambda row: row[1])
    columns = {
        "model": ["" if row[2] else rng.choice("mn") for row in rows],
        "preemptible": [rng.random() < 0.75 for _ in rows],
        "gpu_type": [rng.choice(pick) for _ in rows],
        "max_gpus": [0 if row[2] or rng.random() < 0.6 else row[0] + rng.randint(0, 4) for row in rows],
    }
    names = " ".join(sorted(types))
    models = linear(30, 150, types=names), linear(400, name="n", worth=False, types=names)
    sim = SimConfig(
        interval_s=rng.choice((0.0, 20.0)),
        rescale_cost=rng.choice(("constant", "restart", "afe")),
        rescale_s=5.0,
        checkpoint_s=rng.choice((0.0, 25.0)),
        placement=rng.choice(PLACEMENTS),
        interference=rng.choice((0.0, 0.5)),
        node_mtbf_s=rng.choice((0.0, 0.0, 300.0)),
        node_mttr_s=40.0,
        batch=rng.choice(("fixed", "tuned")),
    )
    world = {"trace": jobs(*rows, **columns), "cluster": cluster, "sim": sim, "profiles": {m.model: m for m in models}}
    env = ClusterEnv(**{"scenario": "elastic", "num_slots": rng.choice((3, 12)), "window_jobs": 9, **world, **given})
    env.reset(seed=seed)
    return env


def small(trace: Trace, cluster: str = "1x8", sim: SimConfig = FIXED, **given: Any) -> ClusterEnv:
    """A reset environment whose slots are the jobs of a trace; model m has epochs that end at 30 and 90."""
    base = {"scenario": "elastic", "num_slots": 6, "profiles": {"m": linear(30, 90)}, "horizon_s": 1e6}
    env = ClusterEnv(**{**base, "trace": trace, "cluster": cluster, "sim": sim, **given})
    env.reset(seed=0)
    return env


def edit(env: ClusterEnv, *edits: tuple[int, Edit]) -> None:
    """Apply (slot, edit) pairs; none of them takes time or is paid for."""
    for slot, what in edits:
        now = float(env.batch.states[0].now)
        assert env.step(np.int64(1 + NUM_EDITS * slot + what))[1] == 0.0
        assert env.batch.states[0].now == now


def commit(env: ClusterEnv) -> float:
    """Commit; the time of the next pass."""
    env.step(np.int64(COMMIT))
    return float(env.batch.states[0].now)


def held(env: ClusterEnv, slot: int = 0) -> list[int]:
    """GPUs of a slot by node, edits of this pass included."""
    return list(
        ClusterView(env.batch.states, env.settings.cluster, env.settings.sim, env.settings.workload).placement()[slot]
    )


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


# --- observation ---


def expected_job(env: ClusterEnv, view: ClusterView, j: int) -> dict[str, float]:
    """The columns that elastic jobs have or change, computed from the view."""
    s, spec = env.batch.states[0], env.settings.cluster
    gpus = sum(held(env, j))
    found = {"elastic": float(view.elastic[j]), "held_share": gpus / spec.num_gpus, "running": float(gpus > 0)}
    found["most_share"] = min(1.0, view.max_gpus[j] / spec.num_gpus)
    if not view.elastic[j]:
        return {**found, **{f"goodput_{n}": 0.0 for n in (1, 2, 4, 8, 16)}}
    nodes = np.flatnonzero(held(env, j))
    known, t = view.goodput([j])[0], int(spec.node_type[nodes[0]]) if len(nodes) else max(0, int(s.gpu_type[j]))
    largest = int(spec.node_gpus[spec.node_type == t].max())
    speed = {n: float(known[int(n > largest), n]) for n in (1, 2, 4, 8, 16)}
    hourly = speed[1] * 3600 / float(s.work[j])
    found["goodput_1"] = hourly / (hourly + 1)
    for n in (2, 4, 8, 16):
        found[f"goodput_{n}"] = speed[n] / speed[1] / (speed[n] / speed[1] + n)
    share = float(view.elastic_progress[j])
    left = float(view.estimate[j]) * (1 - share)
    attained = (
        float(view.service[j])
        if s.phase[j] != RUNNING
        else float(s.service[j] + s.held_gpus[j] * (s.now - s.held_since[j]))
    )
    return {
        **found,
        "known": 1.0,
        "progress": share,
        "remaining": left / (left + 3600),
        "service": attained / (attained + 3600),
        "pause": (p := max(0.0, s.anchor[j] - s.now) if s.phase[j] == RUNNING else 0.0) / (p + 60),
        "rescales": s.num_rescales[j] / (s.num_rescales[j] + 4),
    }


@given(seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
def test_columns_mean_what_they_say_and_a_refreshed_row_equals_a_new_one(seed: int):
    env, rng = elastic_env(seed), Random(seed)
    low, high = env.layout.bounds()
    full = np.full_like(env.batch.obs[0], np.nan)
    for _ in range(40):
        row = env.batch.obs[0]
        assert ((low <= row) & (row <= high)).all()
        fill_observation(env.batch.states[0], env.settings.workload.tables, full, env.layout.gpus_per_node)
        assert full.tobytes() == row.tobytes()
        view = ClusterView(env.batch.states, env.settings.cluster, env.settings.sim, env.settings.workload)
        block = env.layout.split(row)["jobs"]
        for j in view.slots:
            want = expected_job(env, view, int(j))
            got = {name: block[j, NAMES.index(name)] for name in want}
            assert got == pytest.approx(want, rel=2e-6, abs=2e-6)
        if any(env.step(np.int64(choose_random(env.batch, rng)))[2:4]):
            break


def test_goodput_columns_by_hand():
    env = small(jobs((1, 0, None)), "2x4")
    row = dict(zip(NAMES, env.layout.split(env.batch.obs[0])["jobs"][0].tolist(), strict=True))
    # 1, 2 and 4 GPUs of a node, 8 of two: 1 / (1/8 + 1/2 + 6/8) a second; 16 are more than a batch of 8 allows.
    want = {
        "goodput_1": 40 / 41,
        "goodput_2": 0.5,
        "goodput_4": 0.5,
        "goodput_8": (8 / 11) / (8 / 11 + 8),
        "goodput_16": 0,
    }
    assert {name: row[name] for name in want} == pytest.approx(want, rel=1e-6)
    assert (row["elastic"], row["most_share"], row["held_share"], row["request_share"]) == (1, 1, 0, 0.125)
    edit(env, (0, MORE), (0, MORE))
    assert env.layout.split(env.batch.obs[0])["jobs"][0, NAMES.index("held_share")] == 0.25


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


SCENARIO = {
    "scenario": "elastic",
    "trace": "synthetic-pollux?jobs=30",
    "num_slots": 8,
    "window_jobs": 10,
    "split": "all",
}


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


# --- weights ---


def scratch_of(env: ClusterEnv) -> Any:
    return make_scratch(1, env.settings.num_slots, env.settings.cluster.num_gpus)[0]


def allocated(env: ClusterEnv, log_weights: Any) -> list[int]:
    """GPUs of each slot after the allocator's choice at the present pass, which goes on unchanged."""
    states = env.batch.states.copy().view(np.recarray)
    weights, log = np.array(log_weights, np.float64), np.zeros(0, LOG_DTYPE)
    allocate(states[0], plain(env.settings.workload.tables), weights, scratch_of(env), log)
    return [int(n) for n in states[0].gpus[: env.settings.num_slots]]


def worth(env: ClusterEnv, j: int, gpus: int, fair: int) -> float:
    """What DeepBoot's objective says of so many GPUs for slot ``j``, of weight 1."""
    s, largest = env.batch.states[0], int(env.settings.cluster.node_gpus.max())
    view = ClusterView(env.batch.states, env.settings.cluster, env.settings.sim, env.settings.workload)
    if gpus == 0:
        return 0.0
    age, restarts = float(view.age[j]), int(view.num_restarts[j])
    factor = 1.0 if gpus == s.held_gpus[j] else max(age - 10 * restarts, 0) / (age + 10)
    if not view.elastic[j]:
        return (
            (1.0 if s.held_gpus[j] else max(age - 10 * restarts, 0) / (age + 10))
            if gpus == view.num_gpus[j]
            else -math.inf
        )
    if gpus > view.max_gpus[j]:
        return -math.inf
    known, base = view.goodput([j])[0], min(fair, int(view.max_gpus[j]))
    return float(known[int(gpus > largest), gpus] / known[int(base > largest), base]) * factor


def best_by_force(
    env: ClusterEnv, slots: list[int], capacity: int, weights: Any
) -> tuple[float, list[tuple[int, ...]]]:
    """The largest sum over all count vectors, and those that reach it."""
    fair = max(1, math.ceil(capacity / len(slots)))
    values = [[math.exp(weights[j]) * worth(env, j, n, fair) for n in range(capacity + 1)] for j in slots]
    sums = {
        counts: sum(values[i][n] for i, n in enumerate(counts))
        for counts in itertools.product(range(capacity + 1), repeat=len(slots))
        if sum(counts) <= capacity
    }
    most = max(sums.values())
    return most, [counts for counts, total in sums.items() if total >= most - 1e-9]


def weights_env(seed: int, cluster: str = "2x2") -> ClusterEnv:
    """Two or three jobs, elastic or one rigid, some of them running, at a pass with ages above 0."""
    rng = Random(f"weights {seed}")
    rows = [(1, 0.0, None), (rng.choice((1, 2)), 0.0, rng.choice((None, 90.0))), (1, 5.0, None)][: rng.choice((2, 3))]
    models = {"m": linear(300, 600), "n": linear(500, name="n", worth=False)}
    names = ["" if row[2] else rng.choice("mn") for row in rows]
    sim = SimConfig(interval_s=20.0, rescale_s=2.0, on_event=True, batch="fixed")
    trace = jobs(
        *rows,
        (1, 40.0, None),
        model=[*names, "m"],
        batch_size=[0 if row[2] else rng.choice((8, 16)) for row in rows] + [8],
    )
    env = small(trace, cluster, sim, profiles=models, action="weights", num_slots=3)
    env.step(np.array([rng.uniform(-1, 1) for _ in range(3)], np.float32))
    return env


@pytest.mark.parametrize("seed", range(30))
def test_the_allocation_is_the_optimum(seed: int):
    env = weights_env(seed)
    s = env.batch.states[0]
    slots = [j for j in range(3) if s.phase[j] != FREE]
    assert s.now > 0
    for log_weights in ([0, 0, 0], [0.7, -0.4, 0.2]):
        _, best = best_by_force(env, slots, 4, log_weights)
        given = allocated(env, log_weights)
        assert tuple(given[j] for j in slots) in best


def test_a_step_allocates_and_commits():
    env = weights_env(1)
    expected = allocated(env, [0.5, -1, 2])
    before = int(env.batch.states[0].num_passes)
    snapshot = env.snapshot()
    env.step(np.array([0.5, -1, 2], np.float32))
    assert env.batch.states[0].num_passes > before
    alive = [j for j in range(3) if env.batch.states[0].phase[j] == RUNNING]
    assert alive
    assert all(env.batch.states[0].gpus[j] == expected[j] for j in alive)
    env.restore(snapshot)
    assert env.batch.states[0].num_passes == before


@pytest.mark.parametrize("seed", range(10))
def test_a_heavier_job_never_gets_fewer_gpus(seed: int):
    env = weights_env(seed, "1x6")
    slots = [j for j in range(3) if env.batch.states[0].phase[j] != FREE][:2]
    others = [-5.0] * 3
    seen = []
    for weight in np.linspace(-5, 5, 41):
        log_weights = list(others)
        log_weights[slots[1]] = 0.0
        log_weights[slots[0]] = float(weight)
        seen.append(allocated(env, log_weights)[slots[0]])
    assert seen == sorted(seen)
    assert seen[-1] > 0


def test_pinned_jobs_keep_what_they_have_and_rigid_gangs_get_all_or_nothing():
    trace = jobs((2, 0, None), (3, 0, 200.0), (1, 5, None), preemptible=[False, True, True])
    sim = SimConfig(interval_s=20.0, rescale_s=0.0, batch="fixed")
    env = small(trace, "1x4", sim, action="weights", num_slots=3, profiles={"m": linear(1000)})
    env.step(np.array([5, -5, 0], np.float32))
    kept = int(env.batch.states[0].gpus[0])
    assert kept > 0
    for log_weights in ([-5, 5, 5], [-5, 5, -5], [0, 0, 0]):
        given = allocated(env, log_weights)
        assert given[0] == kept
        assert given[1] in (0, 3)
        assert sum(given) <= 4


def test_the_space_of_weights():
    env = weights_env(0)
    assert env.action_space == spaces.Box(-1, 1, (3,), np.float32)
    many = ClusterVectorEnv(2, action="weights", flat=True, **SCENARIO)
    assert many.action_space.shape == (2, 8)
    snapshot = env.snapshot()
    outcomes = []
    for weights in ([1, -1, 0.2], [50, -1e9, 0.2]):  # bounded
        env.restore(snapshot)
        env.step(np.array(weights))
        outcomes.append(state_bytes(env.batch))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("wrong", [np.zeros(2, np.float32), np.zeros((3, 1), np.float32), np.float32(0), 0])
def test_weights_of_a_wrong_shape_are_refused(wrong: Any):
    env = weights_env(0)
    before = state_bytes(env.batch)
    with pytest.raises(ValueError, match=r"shape|expected"):
        env.step(wrong)
    assert state_bytes(env.batch) == before


@pytest.mark.parametrize("shape", [(2,), (2, 3), (3, 8), (2, 8, 1)])
def test_a_batch_refuses_weights_of_a_wrong_shape(shape: Any):
    many = ClusterVectorEnv(2, action="weights", flat=True, **SCENARIO)
    many.reset(seed=0)
    with pytest.raises(ValueError, match=r"actions have shape .*, expected \(2, 8\)"):
        many.step(np.zeros(shape))


def test_plain_sb3_learns_from_weights():
    env = ClusterEnv(flat=True, action="weights", **SCENARIO)
    learner = A2C("MlpPolicy", env, n_steps=8, seed=0, device="cpu", gamma=1.0)
    before = [p.detach().clone() for p in learner.policy.parameters()]
    learner.learn(24)
    assert learner.num_timesteps == 24
    assert any((a != b).any() for a, b in zip(before, learner.policy.parameters(), strict=True))
    assert type(env.action_space) is spaces.Box


def test_types_are_counted_apart():
    """Both types have three GPUs free: a job cannot hold four."""
    speeds = {t: TypeProfile(t, 1, 16, linear(1).types["aws"].throughput) for t in ("aws", "rtx")}
    env = small(jobs((1, 0, None)), "1x3:aws+1x3:rtx", profiles={"m": linear(90, types=speeds)})
    edit(env, (0, MORE), (0, MORE), (0, MORE))
    assert held(env) == [3, 0]
    assert not env.action_masks()[1 + MORE]
