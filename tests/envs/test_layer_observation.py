"""What an agent sees of layers that may be frozen."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from scipy import stats

from envs.env import ClusterEnv
from envs.freezing import EDGES, STOPPED_AT
from envs.layout import FRONT_NOISE
from envs.observe import fill_observation
from envs.rng import Purpose, uniform
from envs.trials import held_by_node
from envs.view import ClusterView
from tests.envs.elastic_env_support import LESS, MORE, commit, edit
from tests.envs.layer_env_support import (
    COLUMNS,
    EXACT_FRONT,
    FREEZE,
    UNFREEZE,
    choose_any,
    layer_env,
    one_layered_job,
    seen,
    small_env,
)
from traces.freezing import Freezing, shares

GPUS = (1, 2, 4, 8)


def squashed(x: float) -> float:
    return x / (x + 1)


# --- what is seen, by hand ---


def usual_penalty(depth: int, *active: float) -> float:
    """P_hat of a conservative job of 10 modules that have been active for so long (the last: all others too)."""
    ends = 0.5 + 0.5 * np.arange(10) / 9
    moved = np.array([*active, *[active[-1]] * (10 - len(active))])
    return float(min(0.95, np.maximum(0, 1 - moved[:depth] / ends[:depth]).sum() / 10))


def true_front(seed: int, active: float) -> int:
    """Most modules of that job at a penalty of at most 0.02, all of them active for so long."""
    first, last = (x * (0.8 + 0.4 * uniform(seed, Purpose.FREEZING, 0, i)) for i, x in enumerate((0.5, 1.0)))
    lacks = np.maximum(0, 1 - active / (first + (last - first) * np.arange(10) / 9))
    return int(np.searchsorted(lacks.cumsum(), 0.2, side="right").clip(max=9))


def test_a_job_that_has_not_run():
    row = seen(small_env(one_layered_job()))
    assert row == pytest.approx(
        {
            **dict.fromkeys(("frozen", "was_frozen", "front", "penalty"), 0),
            "freezable": 0.9,
            **{f"{kind}_{n}": 0.5 for kind in ("speed", "front_speed") for n in GPUS},
        }
    )


def test_columns_before_and_after_freezing():
    """One GPU from 0 on: progress 0.2 at 20, where five modules are frozen, and unfrozen again at 80."""
    env = small_env(one_layered_job((15, 4), (75, 4)), workload_seed=3)
    edit(env, (0, MORE))
    while float(env.batch.states[0].now) < 20:
        commit(env)
    assert seen(env)["front"] == pytest.approx(true_front(3, 0.2) / 10)
    edit(env, *[(0, FREEZE)] * 5)
    quicker, penalty = 1 / shares("cifar10", 5, Freezing())[1], usual_penalty(5, 0.2)
    row = seen(env)
    assert (row["frozen"], row["was_frozen"]) == (0.5, 0)
    assert row["penalty"] == pytest.approx(penalty, rel=1e-6)
    assert row["speed_1"] == pytest.approx(squashed(quicker) * (1 - penalty), rel=1e-6)
    edit(env, (1, MORE))
    while float(env.batch.states[0].now) < 80:
        commit(env)
    s = env.batch.states[0]
    done = 0.2 + 57 * float(s.rate[0]) / 100  # after a pause of 3 s
    assert 0.2 < done < 1
    row, active = seen(env), [0.2] * 5 + [done]
    assert (row["frozen"], row["was_frozen"]) == (0.5, 0.5)
    assert row["penalty"] == pytest.approx(penalty, rel=1e-6)
    edit(env, (0, FREEZE))
    assert seen(env)["penalty"] == pytest.approx(usual_penalty(6, *active), rel=1e-6)
    edit(env, *[(0, UNFREEZE)] * 4)
    row = seen(env)
    assert row["penalty"] == pytest.approx(usual_penalty(2, *active), rel=1e-6)
    gain, left = 1 / shares("cifar10", 2, Freezing())[1], 1 - usual_penalty(2, *active)
    assert row["speed_1"] == pytest.approx(squashed(gain) * left, rel=1e-6)
    assert (row["frozen"], row["was_frozen"]) == pytest.approx((0.2, 0.5))


def test_a_noisy_front_is_the_front_and_a_normal_number_of_its_turn():
    """0.05 K g modules deeper, between 0 and the most."""
    others, shifts = [(15 + 10 * i, 1.0) for i in range(12)], Counter()
    for seed in range(6):
        trace = one_layered_job(*others)
        env = small_env(trace, replace(EXACT_FRONT, front="noisy"), seed, num_slots=20, workload_seed=3)
        edit(env, (0, MORE))
        while commit(env) < 95:
            turn = int(env.batch.states[0].now // 10)
            shift = round(FRONT_NOISE * 10 * stats.norm.ppf(uniform(seed, Purpose.FRONT, 0, turn)))
            front = true_front(3, float(env.batch.states[0].now) / 100)
            assert seen(env)["front"] == pytest.approx(min(max(front + shift, 0), 9) / 10)
            shifts[shift] += 1
    assert min(shifts[x] for x in (-1, 0, 1)) > 3


def test_a_job_is_not_measured_while_it_waits():
    """Exact before it has run; then one reading more, which stays until it runs again."""
    others = [(15 + 10 * i, 1.0) for i in range(12)]
    for seed in range(6):
        sim = replace(EXACT_FRONT, front="noisy")
        env = small_env(one_layered_job(*others), sim, seed, num_slots=20, workload_seed=3)
        edit(env, (0, MORE))
        while float(env.batch.states[0].now) < 40:
            commit(env)
        progress = float(env.batch.states[0].now) / 100
        edit(env, (0, LESS))
        shift = round(FRONT_NOISE * 10 * stats.norm.ppf(uniform(seed, Purpose.FRONT, 0, STOPPED_AT - 1)))
        for _ in range(3):
            commit(env)
            front = min(max(true_front(3, progress) + shift, 0), 9)
            assert seen(env)["front"] == pytest.approx(front / 10)


def test_the_noise_is_normal_and_rounded():
    """Edges of the shares at which it is the next whole number; beyond 4 modules it is cut."""
    for modules in (5, 10, 16):
        share = stats.norm.cdf((np.arange(-4, 4) + 0.5) / (FRONT_NOISE * modules))
        assert EDGES[modules] == pytest.approx(share, rel=1e-12)


# --- what is seen, against the schedulers' view ---


def expected(env: ClusterEnv, view: ClusterView, j: int) -> dict[str, float]:
    """The columns of a slot, computed from the view."""
    s, modules, spec = env.batch.states[0], int(view.modules[j]), env.settings.cluster
    if modules == 0:
        return dict.fromkeys(COLUMNS, 0.0)
    depth, front = int(s.next_depth[j]), int(view.front([j])[0])
    nodes = np.flatnonzero(held_by_node(s)[j])
    t = int(spec.node_type[nodes[0]]) if len(nodes) else max(0, int(s.gpu_type[j]))
    largest = int(spec.node_gpus[spec.node_type == t].max())
    found = {"frozen": depth / modules, "was_frozen": view.depth[j] / modules, "front": front / modules}
    found |= {"freezable": view.max_depth[j] / modules, "penalty": view.penalty([j], depth)[0]}
    for name, at in (("speed", depth), ("front_speed", front)):
        known, plain = (view.goodput([j], depth=[d])[0] for d in (at, 0))
        for n in GPUS:
            base, several = plain[int(n > largest), n], int(n > largest)
            left = 1 - view.penalty([j], at)[0]
            possible = n <= view.max_gpus[j]
            found[f"{name}_{n}"] = squashed(known[several, n] / base) * left if possible else 0.0
    return found


@pytest.mark.parametrize("seed", range(24))
def test_columns_equal_the_view_and_a_refreshed_row_a_new_one(seed: int):
    with layer_env(seed) as (env, _):
        rng, (low, high) = Random(seed), env.layout.bounds()
        full = np.full_like(env.batch.obs[0], np.nan)
        for _ in range(60):
            row = env.batch.obs[0]
            assert ((low <= row) & (row <= high)).all()
            states = env.batch.states.copy()
            states["front_until"] = -np.inf
            fill_observation(states[0], env.settings.workload.tables, full, env.layout.gpus_per_node)
            assert full.tobytes() == row.tobytes()
            view = ClusterView(env.batch.states, env.settings.cluster, env.settings.sim, env.settings.workload, seed)
            for j in view.slots:
                assert seen(env, j) == pytest.approx(expected(env, view, j), rel=2e-6, abs=2e-6), j
            if any(env.step(np.int64(choose_any(env.batch, rng)))[2:4]):
                break
