"""Weights of jobs as actions: the allocator, its optimum, and what is refused."""

from __future__ import annotations

import itertools
import math
from random import Random
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import A2C

from envs.allocator import allocate, make_scratch
from envs.env import ClusterEnv
from envs.layout import FREE, LOG_DTYPE, RUNNING
from envs.spec import SimConfig
from envs.tables import plain
from envs.vector_env import ClusterVectorEnv
from envs.view import ClusterView
from tests.envs.elastic_core_support import jobs, linear
from tests.envs.elastic_env_support import (
    MORE,
    SCENARIO,
    edit,
    held,
    small,
)
from tests.envs.env_support import state_bytes
from traces.profiles import TypeProfile


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
