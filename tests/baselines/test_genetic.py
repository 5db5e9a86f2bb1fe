"""The genetic search: optimal where all matrices can be listed, feasible always, the same for the same seed."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.genetic import MAX_NODES, Problem, search
from baselines.nsga2 import make_pool, survive

K = 16


def make_problem(J, room, *, seed=0, base=None, power=-1.0, **changes):
    """Random concave speed-ups, slower across nodes; a changed row loses part of its worth."""
    rng = np.random.default_rng(seed)
    room = np.asarray(room, np.int16)
    k = np.arange(K + 1)
    loss = rng.uniform(0, 0.5, (J, 1))
    one = k / (1 + loss * np.maximum(k - 1, 0))
    speedups = np.stack([one, np.where(k > 1, one * rng.uniform(0.3, 1, (J, 1)), one)], axis=1)
    u = speedups * len(room) / room.sum()
    u = np.stack([u, u * rng.uniform(0.4, 1, (J, 1, 1))], axis=1)
    values = {
        "base": np.zeros((J, len(room)), np.int16) if base is None else np.asarray(base, np.int16),
        "room": room,
        "node_type": np.zeros(len(room), np.int64),
        "least": np.zeros(J, np.int64),
        "most": np.full(J, K),
        "terms": np.log(np.maximum(u, 1e-3)) if power == 0 else (u + 1e-3) ** power,
        "speedups": speedups,
        "num_pinned": 0,
        "num_types": 1,
        "power": power,
        "avoid_interference": True,
    }
    return Problem(**(values | changes))


def run(problem, *, seed=0, initial=None, size=40, generations=30):
    state = np.array([seed], np.uint64)
    return search(problem, problem.base[None] if initial is None else initial, size, generations, state)


def objectives(problem, x):
    """(f1, f2) from the definition in the module's docstring."""
    terms, speedup = [], 0.0
    for j, row in enumerate(x):
        several = int(np.count_nonzero(row) > 1)
        terms.append(problem.terms[j, int((row != problem.base[j]).any()), several, row.sum()])
        speedup += problem.speedups[j, several, row.sum()]
    mean = np.exp(np.mean(terms)) if problem.power == 0 else np.mean(terms) ** (1 / problem.power)
    in_use = problem.room[x.sum(axis=0) > 0].sum()
    return -mean, (-speedup / in_use if in_use else 0.0)


def is_feasible(problem, x):
    free = np.arange(len(x)) >= problem.num_pinned
    rows, nodes = x.sum(axis=1), np.count_nonzero(x, axis=1)
    distributed = (nodes > 1)[:, None] & (x > 0)
    types = [len(set(problem.node_type[row > 0])) <= 1 for row in x[free]]
    meet = distributed[free].sum(axis=0) + distributed[~free].any(axis=0) > 1
    return bool(
        (x >= 0).all()
        and (x.sum(axis=0) <= problem.room).all()
        and (x[~free] == problem.base[~free]).all()
        and (rows <= problem.most)[free].all()
        and ((rows == 0) | (rows >= problem.least))[free].all()
        and (nodes <= np.where(problem.least > 0, len(problem.room), MAX_NODES))[free].all()
        and all(types)
        and not (problem.avoid_interference and meet.any())
    )


def enumerate_feasible(problem):
    J, N = problem.base.shape
    columns = [c for c in product(range(3), repeat=J) if sum(c) <= 2]  # nodes of 2 GPUs
    matrices = (np.array(choice, np.int16).T for choice in product(columns, repeat=N))
    return [x for x in matrices if is_feasible(problem, x)]


@pytest.mark.parametrize("power", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize(("J", "most"), [(2, 4), (3, 4), (3, 2)])
def test_finds_the_optimum_of_small_instances(J, most, power):
    for seed in range(5):
        base = np.zeros((J, 2), np.int16)
        base[0, 0] = seed % 3
        problem = make_problem(J, [2, 2], seed=seed, base=base, power=power, most=np.full(J, most))
        best, _ = run(problem, seed=seed, size=60)
        optimum = min(objectives(problem, x)[0] for x in enumerate_feasible(problem))
        assert objectives(problem, best)[0] == pytest.approx(optimum, rel=1e-12)


@pytest.mark.parametrize("avoid", [True, False])
def test_interference_is_avoided_only_if_asked(avoid):
    """Three jobs that are worth most on 2 nodes each; without the rule they overlap."""
    k = np.arange(K + 1)
    speedups = np.stack([0.1 * k, np.where(k > 1, 1.0 * k, 0.0)], axis=0)[None].repeat(3, axis=0)
    u = np.stack([speedups, speedups], axis=1)
    changes = {"speedups": speedups, "terms": (u + 1e-3) ** -1.0, "avoid_interference": avoid}
    best, _ = run(make_problem(3, [4, 4], **changes), size=100, generations=60)
    assert (np.count_nonzero(best, axis=1) > 1).sum() == (1 if avoid else 3)


@st.composite
def problems(draw):
    J, N = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    room = np.array(draw(st.lists(st.integers(0, 4), min_size=N, max_size=N)), np.int16)
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    base = np.zeros((J, N), np.int16)
    left = room.copy()
    for j in range(J):
        n = rng.integers(N)
        base[j, n] = rng.integers(left[n] + 1)
        left[n] -= base[j, n]
    least = np.where(rng.random(J) < 0.3, np.maximum(base.sum(axis=1), 1), 0)
    most = np.where(least > 0, least, np.maximum(rng.integers(1, K, J), base.sum(axis=1)))
    problem = make_problem(
        J,
        room if room.any() else room + 1,
        seed=draw(st.integers(0, 1000)),
        base=base,
        least=least,
        most=most,
        node_type=rng.integers(0, 2, N),
        num_types=2,
        num_pinned=draw(st.integers(0, J)),
        avoid_interference=draw(st.booleans()),
    )
    initial = rng.integers(0, 5, (3, J, N)).astype(np.int16)  # partly impossible: it is repaired
    return problem, np.concatenate([base[None], initial])


@settings(max_examples=60, deadline=None)
@given(case=problems(), seed=st.integers(0, 2**63))
def test_every_member_returned_is_feasible_and_the_front_is_one(case, seed):
    problem, initial = case
    best, front = run(problem, seed=seed, initial=initial, size=10, generations=5)
    assert all(is_feasible(problem, x) for x in front)
    values = np.array([objectives(problem, x) for x in front])
    for f in values:
        assert not ((values <= f).all(axis=1) & (values < f).any(axis=1)).any()
    assert objectives(problem, best)[0] == pytest.approx(values[:, 0].min(), rel=1e-12)
    assert len({x.tobytes() for x in front}) == len(front)


def test_elastic_jobs_stay_on_sixteen_nodes():
    speedups = np.arange(41.0) * np.ones((1, 2, 1))
    terms = (np.stack([speedups, speedups], axis=1) + 1e-3) ** -1.0
    problem = make_problem(1, [1] * 20, speedups=speedups, terms=terms, most=np.array([40]))
    best, _ = run(problem)
    assert best.sum() == 16


def test_a_search_is_a_function_of_its_seed():
    problem = make_problem(6, [4] * 6)
    (best, front), (again, _), (_, other) = run(problem), run(problem), run(problem, seed=1)
    assert np.array_equal(best, again)
    assert front.shape != other.shape or not np.array_equal(front, other)


def test_more_generations_are_no_worse():
    problem = make_problem(8, [4] * 8, seed=3)
    values = [objectives(problem, run(problem, generations=g)[0])[0] for g in (1, 5, 40)]
    assert values[0] > values[1] > values[2]


def crowding(F, front):
    """Of each member of a front: half the sum of the normalised gaps between its neighbours in each objective."""
    if len(front) <= 2:
        return dict.fromkeys(front, np.inf)
    first = {tuple(F[i]): i for i in sorted(front, reverse=True)}  # repetitions have distance 0
    result = dict.fromkeys(front, 0.0)
    for f, i in first.items() if len(first) > 1 else []:
        for o in (0, 1):
            values = sorted(g[o] for g in first)
            k = values.index(f[o])
            end = k in (0, len(values) - 1)
            result[i] += 1e14 if end else (values[k + 1] - values[k - 1]) / (values[-1] - values[0]) / 2
        result[i] = min(result[i], 1e14)
    return result


def test_fronts_and_crowding_against_the_definitions():
    """Ranks by peeling off what nobody dominates; values repeat."""
    rng = np.random.default_rng(5)
    problem = make_problem(1, [1])
    pool = make_pool(problem.base[None], 30, np.zeros(1, np.uint64))
    pool.f1[:], pool.f2[:] = rng.integers(0, 12, (2, 60))
    kept, first = survive(60, 60, pool)
    F = np.stack([pool.f1, pool.f2], axis=1)
    left, rank = set(range(60)), 0
    while left:
        front = [i for i in left if not any((F[k] <= F[i]).all() and (F[k] < F[i]).any() for k in left)]
        assert set(front) == set(np.flatnonzero(pool.rank == rank))
        assert rank > 0 or len(front) == first
        for i, distance in crowding(F, front).items():
            assert pool.crowding[i] == pytest.approx(distance)
        left, rank = left - set(front), rank + 1
    assert kept == 60
    assert sorted(pool.alive) == list(range(60))


def test_the_most_crowded_of_the_last_front_die():
    """One front of 6, f1 = 0 1 2 4 7 11, f2 = -f1: the ends survive, then those with the widest gaps."""
    problem = make_problem(1, [1])
    pool = make_pool(problem.base[None], 3, np.zeros(1, np.uint64))
    pool.f1[:] = [0, 1, 2, 4, 7, 11]
    pool.f2[:] = -pool.f1
    kept, first = survive(6, 4, pool)
    assert (kept, first) == (4, 4)
    assert set(pool.f1[pool.alive[:4]]) == {0, 11, 7, 4}  # gaps 7 for 7, 5 for 4, 3 for 2, 2 for 1
