"""The environment with layers that may be frozen: edits, reward, and runs under the same decisions."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.env_checker import check_env as check_for_sb3

from envs.actions import COMMIT, NUM_EDITS, Edit
from envs.batch import Batch
from envs.env import ClusterEnv
from envs.layout import FREE
from envs.metrics import JOB_COLUMNS
from envs.rollout import rollout
from envs.scheduler import Decision
from envs.settings import EnvSettings
from envs.simulate import simulate
from envs.spec import SCENARIOS, ClusterSpec, SpecError
from envs.trials import held_by_node
from envs.vector_env import ClusterVectorEnv
from envs.view import ClusterView
from tests.envs.core_support import External
from tests.envs.elastic_env_support import EXACT, LESS, MORE, commit, edit
from tests.envs.env_support import play, random_actions, state_bytes
from tests.envs.layer_env_support import (
    EXACT_FRONT,
    FREEZE,
    PROFILES,
    SCENARIO,
    UNFREEZE,
    RandomPolicy,
    choose_any,
    layer_env,
    one_layered_job,
    small_env,
    valid_depths,
)
from tests.envs.test_elastic_env import check_devices, complaints
from traces.load import load_trace
from traces.trace import TraceError

NUMBERS = [column.name for column in JOB_COLUMNS if column.dtype in ("float64", "int64")]


# --- edits ---


@pytest.mark.parametrize("seed", range(12))
def test_mask_devices_and_wishes_in_random_play(seed: int):
    with layer_env(seed + 100) as (env, _):
        rng, over, steps, begun = Random(seed), False, 0, True
        while not over and steps < 1500:
            s, valid = env.batch.states[0], set(np.flatnonzero(env.action_masks()).tolist())
            check_devices(s)
            assert {a for a in valid if a and (a - 1) % NUM_EDITS in (FREEZE, UNFREEZE)} == valid_depths(env)
            live = np.flatnonzero(s.phase[: s.num_slots] != FREE)
            wishes, gpus = s.next_depth[live], s.gpus[live]
            assert (wishes[gpus == 0] == s.depth[live][gpus == 0]).all()
            assert not begun or (wishes == s.depth[live]).all()
            action = choose_any(env.batch, rng)
            before = int(s.num_passes)
            over, steps = any(env.step(np.int64(action))[2:4]), steps + 1
            begun = int(s.num_passes) != before


def test_a_wish_lives_as_long_as_the_draft_has_gpus():
    env = small_env(one_layered_job())
    s = env.batch.states[0]
    assert not env.action_masks()[1 + FREEZE]
    edit(env, (0, MORE), (0, FREEZE), (0, FREEZE), (0, MORE), (0, Edit.LESS))
    assert (s.gpus[0], s.next_depth[0]) == (1, 2)
    edit(env, (0, LESS))
    assert (s.gpus[0], s.next_depth[0], s.depth[0]) == (0, 0, 0)
    edit(env, (0, MORE))
    assert s.next_depth[0] == 0
    assert not env.action_masks()[1 + UNFREEZE]
    edit(env, *[(0, FREEZE)] * 9)
    assert not env.action_masks()[1 + FREEZE]


def test_what_is_undone_costs_nothing_and_depth_alone_costs_its_pause():
    for edits, pause in (([FREEZE, UNFREEZE], 0), ([FREEZE], 3), ([FREEZE, MORE], 0)):
        env = small_env(one_layered_job((15, 4)))
        edit(env, (0, MORE))
        while float(env.batch.states[0].now) < 20:
            commit(env)
        edit(env, *((0, what) for what in edits))
        env.step(np.int64(COMMIT))
        s = env.batch.states[0]
        assert s.pause_end[0] - 20 == pytest.approx(pause) if pause else s.pause_end[0] <= 20
        assert s.depth_changes[0] == (edits != [FREEZE, UNFREEZE])


def test_freezing_and_unfreezing_do_not_stop_the_clock():
    env = small_env(one_layered_job((15, 4)), edit_budget=5)
    env.step(np.int64(1 + MORE))
    for what in (FREEZE, UNFREEZE, FREEZE):
        env.step(np.int64(1 + what))
    assert env.batch.states[0].now == 0
    env.step(np.int64(1 + UNFREEZE))
    assert env.batch.states[0].now == 20


# --- the same decisions in the environment and in simulate() ---


def one_edit(batch: Batch, rng: Random) -> int:
    """A random valid edit, mostly a start where nothing runs; not one that stops the last job. COMMIT: none is left."""
    s = batch.states[0]
    valid = [int(a) for a in np.flatnonzero(batch.mask[0])[1:]]
    held = int((s.gpus[: s.num_slots] > 0).sum())
    valid = [a for a in valid if held > 1 or (a - 1) % NUM_EDITS != LESS]
    starts = [a for a in valid if s.gpus[(a - 1) // NUM_EDITS] == 0]
    if starts and (held == 0 or rng.random() < 0.3):
        return rng.choice(starts)
    depths = [a for a in valid if (a - 1) % NUM_EDITS in (FREEZE, UNFREEZE)]
    calm = s.num_passes > 60
    return rng.choice(depths if depths and rng.random() < 0.6 else valid) if valid and not calm else COMMIT


def decide(env: ClusterEnv, seed: int) -> dict[float, dict[int, tuple[tuple[int, ...], int]]]:
    """Play with up to three edits a pass; by time and job: GPUs of each node and depth at the end of the pass."""
    rng, found, over = Random(seed), {}, False
    while not over:
        for _ in range(rng.randint(1, 3)):
            action = one_edit(env.batch, rng)
            if action != COMMIT:
                env.step(np.int64(action))
        s = env.batch.states[0]
        held, live = held_by_node(s), np.flatnonzero(s.phase[: s.num_slots] != FREE)
        found[float(s.now)] = {int(s.job_id[j]): (tuple(held[j].tolist()), int(s.next_depth[j])) for j in live}
        over = any(env.step(np.int64(COMMIT))[2:4])
    return found


def follow(decisions: dict[float, dict[int, tuple[tuple[int, ...], int]]]) -> External:
    """The scheduler that decides so; at passes that the environment skips, everybody keeps what he has."""

    def allocate(view: ClusterView) -> Decision:
        placement, depth = view.placement().astype(np.int64), np.full(view.num_slots, -1)
        if view.now in decisions:
            for j in view.slots:
                placement[j], wish = decisions[view.now][int(view.job_id[j])]
                depth[j] = wish if view.modules[j] else -1
        return Decision(placement.sum(axis=1), placement, depth=depth)

    return External(allocate)


def test_an_episode_is_a_run_under_the_same_decisions():
    """Every number of every job bit for bit, residuals and changes of depth included."""
    found: Counter[str] = Counter()
    for seed in range(16):
        config = replace(layer_case_config(seed), node_mtbf_s=0.0)
        with layer_env(seed, sim=config, num_slots=40, horizon_s=1e7, workload_seed=seed) as (env, case):
            decisions = decide(env, seed)
            window = case.trace.window(0, env.settings.length)  # times count from the first arrival
            run = simulate(window, case.cluster, follow(decisions), config, seed=seed, profiles=case.profiles)
            table = env.batch.episode_jobs(0)
            pd.testing.assert_frame_equal(table[NUMBERS], run.jobs[NUMBERS], check_exact=True)
            found["changes"] += int(table["depth_changes"].sum())
            found["residual"] += int((table["residual"] > 0).sum())
            found["rescales"] += int(table["num_rescales"].sum())
    assert min(found[name] for name in ("changes", "residual", "rescales")) > 20


def layer_case_config(seed: int) -> Any:
    """The settings of a random case, batches as the environment chooses them."""
    with layer_env(seed) as (_, case):
        return replace(case.config, batch="tuned" if case.tuned else "fixed")


# --- reward and metrics ---


@pytest.mark.parametrize("seed", range(12))
def test_the_return_counts_times_and_residuals(seed: int):
    with layer_env(seed + 50, horizon_s=20000.0, num_slots=12, residual_penalty=7.0) as (env, _):
        played = play(env, choose_any, seed)
        table, until = env.batch.episode_jobs(0), float(env.batch.states[0].now)
        kept = table[table["status"] != "rejected"]
        done = kept[kept["status"] == "completed"]
        cost = (kept["finish_s"].fillna(until) - kept["arrival_s"]).sum() + 7 * (
            done["residual"] * done["isolated_s"]
        ).sum()
        scale = float(env.batch.states[0].reward_scale)
        assert sum(played.rewards) * scale == pytest.approx(-cost, **EXACT)
        layered = done["residual"][done["freezing"] != ""]
        want = (layered.mean(), layered.max())
        got = [played.info["episode_metrics"].get(name, np.nan) for name in ("mean_residual", "max_residual")]
        assert got == pytest.approx(want, nan_ok=True)
        assert not table["residual"][table["status"] != "completed"].any()


def test_a_residual_is_paid_when_its_job_completes():
    """Frozen half from the start to the end: its Q x 100 s alone x 10, over the scale, in the last step."""
    returns = []
    for objective in ("jct", "jct_residual"):
        env = small_env(one_layered_job(), objective=objective, reward_scale=1.0)
        edit(env, (0, MORE), *[(0, FREEZE)] * 5)
        returns.append(sum(play(env, lambda batch, rng: COMMIT).rewards))
    job = env.batch.episode_jobs(0).loc[0]
    assert job["residual"] > 0.4
    assert returns[0] - returns[1] == pytest.approx(10 * job["residual"] * job["isolated_s"])
    assert job["isolated_s"] == 100


def test_metrics_are_absent_without_layers():
    env = ClusterEnv(scenario="elastic", trace="synthetic-pollux?jobs=4", cluster="4x4")
    env.reset(seed=0)
    assert "mean_residual" not in play(env, choose_any).info["episode_metrics"]


# --- other scenarios, checkers, batches ---


def test_presets_are_not_seen_in_other_scenarios():
    """In scenario elastic a trace with presets looks as one without, action by action."""
    layered = load_trace("synthetic-layers?jobs=20")
    plain = replace(layered, jobs=layered.jobs.assign(freezing=""))
    envs = [ClusterEnv(**{**SCENARIO, "scenario": "elastic", "trace": trace}, flat=True) for trace in (layered, plain)]
    rows = [env.reset(seed=1)[0] for env in envs]
    rng = Random(0)
    for _ in range(400):
        assert rows[0].tobytes() == rows[1].tobytes()
        assert (envs[0].action_masks() == envs[1].action_masks()).all()
        action = np.int64(choose_any(envs[0].batch, rng))
        assert (action - 1) % NUM_EDITS not in (FREEZE, UNFREEZE) or action == COMMIT
        steps = [env.step(action) for env in envs]
        assert steps[0][1:4] == steps[1][1:4]
        rows = [step[0] for step in steps]
        if any(steps[0][2:4]):
            rows = [env.reset()[0] for env in envs]


def test_without_presets_nothing_can_be_frozen():
    env = ClusterEnv(**{**SCENARIO, "trace": "synthetic-pollux?jobs=12"})
    env.reset(seed=0)
    over, rng = False, Random(0)
    while not over:
        assert not valid_depths(env)
        assert not env.action_masks()[1 + FREEZE :: NUM_EDITS].any()
        assert not env.layout.split(env.batch.obs[0])["layers"].any()
        over = any(env.step(np.int64(choose_any(env.batch, rng)))[2:4])


@pytest.mark.parametrize("flat", [False, True])
def test_checkers_have_no_complaint(flat: bool):
    env = ClusterEnv(flat=flat, on_invalid="commit", **SCENARIO)
    assert complaints(lambda: check_env(env, skip_render_check=True)) == set()
    if flat:
        assert complaints(lambda: check_for_sb3(env)) == set()


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_a_row_is_the_environment_with_its_seed(mode: AutoresetMode):
    """Over several episodes, in a batch of four and alone: so the size of the batch changes nothing."""
    given = {**SCENARIO, "trace": "synthetic-layers?jobs=12", "window_jobs": 3, "cluster": "2x4"}
    envs, singles = (
        ClusterVectorEnv(4, autoreset_mode=mode, flat=True, **given),
        [ClusterEnv(flat=True, **given) for _ in range(4)],
    )
    observation, info = envs.reset(seed=100)
    rng, over, ends = np.random.default_rng(0), np.zeros(4, bool), 0
    for b, env in enumerate(singles):
        assert env.reset(seed=100 + b)[0].tobytes() == observation[b].tobytes()
    for _ in range(1500):
        actions = random_actions(rng, info["action_mask"], commit=0.4)
        observation, reward, terminated, truncated, info = envs.step(actions)
        for b, env in enumerate(singles):
            want: Any = (env.reset()[0], 0.0, False, False, {}) if over[b] else env.step(actions[b])
            if any(want[2:4]) and mode == AutoresetMode.SAME_STEP:
                want = (env.reset()[0], *want[1:])
            assert observation[b].tobytes() == want[0].tobytes()
            assert (reward[b], terminated[b], truncated[b]) == want[1:4]
            assert (info["action_mask"][b] == env.action_masks()).all()
        over = (terminated | truncated) & (mode != AutoresetMode.SAME_STEP)
        ends += int((terminated | truncated).sum())
    assert ends > 4


def test_a_snapshot_replays_identically():
    with layer_env(7, num_slots=12) as (env, _):
        rng = Random(1)
        for _ in range(30):
            env.step(np.int64(choose_any(env.batch, rng)))
        snapshot, before, rewards = env.snapshot(), state_bytes(env.batch), []
        for _ in range(2):
            rewards.append(play(env, choose_any, 5).rewards)
            env.restore(snapshot)
            assert state_bytes(env.batch) == before
        assert rewards[0] == rewards[1]


# --- settings, rollout, trace ---


def test_the_scenario_is_the_default_of_everything():
    settings, scenario = EnvSettings("layer-elastic"), SCENARIOS["layer-elastic"]
    assert (settings.sim, str(settings.cluster)) == (scenario.sim, "12x4")
    assert (settings.objective, settings.residual_cost, settings.cluster.num_gpus) == ("jct_residual", 10.0, 48)
    assert set(settings.source.jobs["freezing"]) == {"finetune", "middle"}
    assert EnvSettings("elastic", trace="synthetic-pollux?jobs=4").residual_cost == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"action": "weights"}, "action must be edits in scenario layer-elastic, since log-weights freeze no layers"),
        ({"residual_penalty": -1.0}, "residual_penalty must be a finite number >= 0, not -1.0"),
        ({"residual_penalty": math.inf}, "residual_penalty must be a finite number >= 0, not inf"),
    ],
)
def test_bad_settings(given: dict[str, Any], message: str):
    with pytest.raises(SpecError, match=f"^{message}$"):
        EnvSettings(**{**SCENARIO, **given})


def test_presets_cannot_be_known_from_runs():
    with pytest.raises(TraceError, match=r"freezing must be empty with sim\.knowledge online"):
        EnvSettings(**SCENARIO, sim=replace(SCENARIOS["layer-elastic"].sim, knowledge="online"))


@pytest.mark.parametrize("freezes", [True, False])
def test_rollout_of_a_policy_that_freezes_and_of_one_that_does_not(freezes: bool):
    trace, cluster, changes = one_layered_job((15, 4), (35, 4)), ClusterSpec.parse("1x8"), 0
    for seed in range(8):
        policy = RandomPolicy(freezes, seed)
        result = rollout(trace, cluster, EXACT_FRONT, policy, profiles=PROFILES)
        assert policy.layered == {freezes}
        assert result.metrics()["max_residual"] == result.jobs["residual"].max()
        changes += int(result.jobs["depth_changes"].sum())
    assert (changes > 0) == freezes
