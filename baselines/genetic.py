"""Genetic search of Pollux (Qiao et al., OSDI'21, section 4.2): NSGA-II over matrices of GPUs, compiled.

A member of the population is x (J, N), the GPUs of each job on each node. Two objectives are minimised:

    f1 = -(sum_j (u_j + 0.001)^p / J)^(1/p)     u_j: scaled speed-up, times a factor if row j changes
    f2 = -sum_j speedup_j / GPUs of the nodes in use

Selection is NSGA-II as in pymoo 0.4, which the authors' simulator runs (nsga2.py). The first generation
is the initial population; offspring that repeat a member are drawn again.
Departures from the authors' program: where distributed jobs meet on a node only the later distributed
ones lose it, where theirs takes it from every later job; offspring are drawn again ``MAX_MATINGS`` times
instead of 100, which matters only when nearly all matrices have been seen; rows of pinned jobs are fixed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from baselines.nsga2 import (
    Floats,
    Ints,
    Matrix,
    Pool,
    Words,
    below,
    chance,
    is_new,
    make_pool,
    survive,
    tournament,
    wrapping_add,
    wrapping_multiply,
)
from envs.jit import jit

MAX_NODES = 16  # of an elastic job
MAX_MATINGS = 20
CROSSOVER = 0.9  # pymoo's default: the other pairs of children start as copies of their parents
RESET, THIN, THIN_ENTRY = 0.1, 0.1, 0.1


class Problem(NamedTuple):
    """One scheduling pass as the search sees it; jobs in their order of precedence, pinned ones first."""

    base: Matrix  # (J, N) int16 [GPUs] held now
    room: Matrix  # (N,) int16 [GPUs] of each node that the jobs hold or may get
    node_type: Ints  # (N,) a job keeps to one type
    least: Ints  # (J,) [GPUs] a row with fewer is zeroed: the gang of a rigid job, else 0
    most: Ints  # (J,) [GPUs]
    terms: Floats  # (J, 2, 2, K + 1) (u + 0.001)^p, for p = 0 log max(u, 0.001): [job, changed, several nodes, GPUs]
    speedups: Floats  # (J, 2, K + 1) [job, several nodes, GPUs]
    num_pinned: int
    num_types: int
    power: float  # p
    avoid_interference: bool  # at most one job that spans several nodes on any node


@jit
def _mutate(x: Matrix, problem: Problem, used: Ints, held: Ints, state: Words) -> None:
    """Reset rows to what is held now, thin rows out, then grow entries on nodes with a free GPU."""
    J, N = x.shape
    for n in range(N):
        used[n] = 0
        held[n] = 0
    for j in range(J):
        if chance(state) < RESET:
            for n in range(N):
                x[j, n] = problem.base[j, n]
        if chance(state) < THIN:
            for n in range(N):
                if chance(state) < THIN_ENTRY:
                    x[j, n] = 0
        for n in range(N):
            used[n] += x[j, n]
            held[n] += 1 if x[j, n] > 0 else 0
    first = 1.0 / J
    for n in range(N):
        if used[n] >= problem.room[n]:
            continue
        both = first + (1.0 - first) / max(held[n], 1)
        for j in range(J):
            if chance(state) < (both if x[j, n] > 0 else first):
                x[j, n] += below(state, problem.room[n] - x[j, n] + 1)


@jit
def _keep_one_type(x: Matrix, j: int, problem: Problem) -> None:
    """Zero row j outside the GPU type of which it has most, ties: the first."""
    N = x.shape[1]
    best, most = 0, -1
    for kind in range(problem.num_types):
        gpus = 0
        for n in range(N):
            gpus += x[j, n] if problem.node_type[n] == kind else 0
        if gpus > most:
            best, most = kind, gpus
    for n in range(N):
        if problem.node_type[n] != best:
            x[j, n] = 0


@jit
def _cap_row(x: Matrix, j: int, most: int, max_nodes: int, order: Ints, state: Words) -> None:
    """Visit the nodes in random order; leave row j at most ``most`` GPUs on the first ``max_nodes`` that it is on."""
    N = x.shape[1]
    for n in range(N):
        order[n] = n
    gpus, nodes = 0, 0
    for k in range(N):
        pick = k + below(state, N - k)
        n = order[pick]
        order[pick] = order[k]
        if x[j, n] > 0:
            x[j, n] = min(x[j, n], most - gpus) if nodes < max_nodes else 0
            gpus += x[j, n]
            nodes += 1


@jit
def _repair(x: Matrix, problem: Problem, node: Ints, state: Words) -> None:
    """Make every row possible in itself: interference, one GPU type, most GPUs and nodes; pinned rows are as held."""
    J, N = x.shape
    taken = node[0]
    for n in range(N):
        taken[n] = 0
    for j in range(J):
        if j < problem.num_pinned:
            for n in range(N):
                x[j, n] = problem.base[j, n]
        gpus, nodes = 0, 0
        for n in range(N):
            gpus += x[j, n]
            nodes += 1 if x[j, n] > 0 else 0
        if nodes > 1 and problem.avoid_interference:
            for n in range(N):
                if x[j, n] > 0:
                    if taken[n] > 0 and j >= problem.num_pinned:
                        gpus -= x[j, n]
                        nodes -= 1
                        x[j, n] = 0
                    taken[n] = 1
        if j < problem.num_pinned:
            continue
        if nodes > 1 and problem.num_types > 1:
            _keep_one_type(x, j, problem)
        max_nodes = MAX_NODES if problem.least[j] == 0 else N
        if gpus > problem.most[j] or nodes > max_nodes:
            _cap_row(x, j, problem.most[j], max_nodes, node[1], state)


@jit
def _settle(i: int, problem: Problem, pool: Pool) -> None:
    """Fit place i into the nodes, jobs in order, zero rows below their least; store its hash and objectives."""
    x, left = pool.members[i], pool.node[0]
    J, N = x.shape
    for n in range(N):
        left[n] = problem.room[n]
    key = np.uint64(0)
    total, speed = 0.0, 0.0
    for j in range(J):
        gpus, nodes = 0, 0
        for n in range(N):
            v = min(np.int64(x[j, n]), left[n])
            x[j, n] = v
            gpus += v
            nodes += 1 if v > 0 else 0
        if gpus < problem.least[j]:
            gpus, nodes = 0, 0
            for n in range(N):
                x[j, n] = 0
        changed = 0
        for n in range(N):
            v = np.int64(x[j, n])
            left[n] -= v
            changed |= v ^ problem.base[j, n]
            key = wrapping_add(key, wrapping_multiply(pool.weights[j, n], np.uint64(v)))
        several = 1 if nodes > 1 else 0
        total += problem.terms[j, 1 if changed != 0 else 0, several, gpus]
        speed += problem.speedups[j, several, gpus]
    in_use = 0
    for n in range(N):
        in_use += problem.room[n] if left[n] < problem.room[n] else 0
    pool.keys[i] = key
    mean = math.exp(total / J) if problem.power == 0.0 else math.pow(total / J, 1.0 / problem.power)
    pool.f1[i] = -mean
    pool.f2[i] = -speed / in_use if in_use > 0 else 0.0


@jit
def _make_child(i: int, a: int, b: int, cut: int, problem: Problem, pool: Pool) -> None:
    """Place i: rows of b before the cut, of a from it on; mutated and repaired."""
    x = pool.members[i]
    J, N = x.shape
    for j in range(J):
        parent = b if j < cut else a
        for n in range(N):
            x[j, n] = pool.members[parent, j, n]
    _mutate(x, problem, pool.node[0], pool.node[1], pool.state)
    _repair(x, problem, pool.node, pool.state)
    _settle(i, problem, pool)


@jit
def _mate(count: int, size: int, problem: Problem, pool: Pool) -> int:
    """Fill up to ``size`` free places with offspring of the first ``count`` of ``alive``; returns how many."""
    J = pool.members.shape[1]
    pool.table[:] = -1
    for k in range(count):
        is_new(pool.alive[k], pool)
    made = 0
    for _ in range(MAX_MATINGS):
        for k in range(count):
            pool.deck[k] = pool.alive[k]
        pool.cursor[0] = 0
        for _ in range((size - made + 1) // 2):
            a, b = tournament(count, pool), tournament(count, pool)
            cut = below(pool.state, J)
            if chance(pool.state) >= CROSSOVER:
                cut = 0
            for child in range(2):
                if made < size:
                    i = pool.alive[count + made]
                    if child == 0:
                        _make_child(i, a, b, cut, problem, pool)
                    else:
                        _make_child(i, b, a, cut, problem, pool)
                    made += 1 if is_new(i, pool) else 0
        if made == size:
            break
    return made


@jit
def _begin(count: int, size: int, problem: Problem, pool: Pool) -> tuple[int, int]:
    """Repair and evaluate the first ``count`` places, drop repetitions; returns as ``survive``."""
    pool.table[:] = -1
    different = 0
    for i in range(count):
        _repair(pool.members[i], problem, pool.node, pool.state)
        _settle(i, problem, pool)
        if is_new(i, pool):
            pool.alive[i] = pool.alive[different]
            pool.alive[different] = i
            different += 1
    return survive(different, size, pool)


@jit
def _evolve(count: int, size: int, generations: int, problem: Problem, pool: Pool) -> int:
    """Run the search from the first ``count`` places; returns the size of the first front, first in ``alive``."""
    kept, front = _begin(count, size, problem, pool)
    for _ in range(generations - 1):
        made = _mate(kept, size, problem, pool)
        if made == 0:
            break
        kept, front = survive(kept + made, size, pool)
    return front


def search(problem: Problem, initial: Matrix, size: int, generations: int, state: Words) -> tuple[Matrix, Matrix]:
    """The member of the final first front with the least f1 (J, N), and that whole front (F, J, N).

    ``initial`` (S, J, N) int16 [GPUs], S <= 2 ``size``, is repaired first. ``state`` (1,) uint64 is advanced.
    """
    pool = make_pool(initial, size, state)
    front = pool.alive[: _evolve(len(initial), size, generations, problem, pool)]
    best = front[np.argmin(pool.f1[front])]
    return pool.members[best], pool.members[front]
