"""NSGA-II (Deb et al., IEEE TEC 2002) over integer matrices, compiled: who survives and who mates.

Built as pymoo 0.4 builds it: tournaments are won by dominance, then by the larger crowding distance;
repeated objectives have distance 0; ties are broken at random. With two objectives one sort gives all
fronts. Random numbers come from one splitmix64 stream (see envs/rng.py), kept in an array.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from envs.jit import jit

Ints = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

wrapping_add, wrapping_multiply = np.add, np.multiply  # silent where + and * warn in interpreted code
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


class Pool(NamedTuple):
    """2P places for members of a population of P and their offspring, and scratch space."""

    members: Matrix  # (2P, J, N) int16 [GPUs]
    f1: Floats  # (2P,)
    f2: Floats  # (2P,)
    keys: Words  # (2P,) hash of the member
    weights: Words  # (J, N) coefficients of the hash
    crowding: Floats  # (2P,)
    alive: Ints  # (2P,) all places: members first, best front first, then the free ones
    rank: Ints  # (2P,) front, 0 is the best
    line: Ints  # (2P,) places, sorted
    spare: Ints  # (2P,)
    tails: Ints  # (2P,) last place of each front while fronts are built; then where each ends in line
    tie: Floats  # (2P,) random
    table: Ints  # (power of two >= 4P,) hash table of places, -1: empty
    deck: Ints  # (2P,) places, dealt at random
    cursor: Ints  # (1,) cards dealt
    node: Ints  # (2, N) scratch
    state: Words  # (1,) of the random numbers


@jit
def _random(state: Words) -> np.uint64:
    """64 random bits: one step of splitmix64."""
    z: np.uint64 = wrapping_add(state[0], _GAMMA)
    state[0] = z
    z = wrapping_multiply(z ^ (z >> np.uint64(30)), _FIRST)
    z = wrapping_multiply(z ^ (z >> np.uint64(27)), _SECOND)
    return z ^ (z >> np.uint64(31))


@jit
def chance(state: Words) -> float:
    """A float64 in [0, 1)."""
    return np.float64(_random(state) >> np.uint64(11)) * 2.0**-53


@jit
def below(state: Words, bound: int) -> int:
    """An integer in [0, bound), bound < 2**32."""
    return int(np.int64(((_random(state) >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32)))


@jit
def is_new(i: int, pool: Pool) -> bool:
    """Whether no place in the table equals place i, which is entered if so."""
    _, J, N = pool.members.shape
    last = len(pool.table) - 1
    spot = np.int64(pool.keys[i] & np.uint64(last))
    while pool.table[spot] >= 0:
        k = pool.table[spot]
        if pool.keys[k] == pool.keys[i]:
            same = True
            for j in range(J):
                for n in range(N):
                    same &= pool.members[k, j, n] == pool.members[i, j, n]
            if same:
                return False
        spot = (spot + 1) & last
    pool.table[spot] = i
    return True


@jit
def _sort(index: Ints, low: int, high: int, first: Floats, second: Floats, spare: Ints) -> None:
    """Sort index[low:high] by (first, second) of its entries, ascending and stable: merges of growing runs."""
    width = 1
    while width < high - low:
        for start in range(low, high, 2 * width):
            middle, end = min(start + width, high), min(start + 2 * width, high)
            a, b = start, middle
            for k in range(start, end):
                take_b = a >= middle
                if a < middle and b < end:
                    p, q = index[a], index[b]
                    take_b = first[q] < first[p] or (first[q] == first[p] and second[q] < second[p])
                if take_b:
                    spare[k] = index[b]
                    b += 1
                else:
                    spare[k] = index[a]
                    a += 1
        for k in range(low, high):
            index[k] = spare[k]
        width *= 2


@jit
def _rank(count: int, pool: Pool) -> int:
    """Rank the first ``count`` of ``alive``, list them in ``line`` by front, f1 ascending; returns the fronts.

    In order of (f1, f2) a member is dominated by a front exactly if it is by the front's last member so far,
    so the first front that does not dominate it is found by halving. ``tails`` then holds where each ends.
    """
    order, tails, f1, f2 = pool.alive, pool.tails, pool.f1, pool.f2
    for k in range(count):
        pool.line[k] = order[k]
    _sort(pool.line, 0, count, f1, f2, pool.spare)
    num_fronts = 0
    for k in range(count):
        i = pool.line[k]
        low, high = 0, num_fronts
        while low < high:
            middle = (low + high) >> 1
            t = tails[middle]
            if f2[t] < f2[i] or (f2[t] == f2[i] and f1[t] < f1[i]):
                low = middle + 1
            else:
                high = middle
        tails[low] = i
        pool.rank[i] = low
        num_fronts = max(num_fronts, low + 1)
    for r in range(num_fronts):
        tails[r] = 0
    for k in range(count):
        tails[pool.rank[pool.line[k]]] += 1
    start = 0
    for r in range(num_fronts):
        start, tails[r] = start + tails[r], start
    for k in range(count):
        i = pool.line[k]
        pool.spare[tails[pool.rank[i]]] = i
        tails[pool.rank[i]] += 1
    for k in range(count):
        pool.line[k] = pool.spare[k]
    return num_fronts


@jit
def _crowd(low: int, high: int, pool: Pool) -> None:
    """Crowding distance of the front line[low:high]: mean normalised gap between neighbours; 1e14 at the ends."""
    line, f1, f2 = pool.line, pool.f1, pool.f2
    first, last = line[low], line[high - 1]
    if high - low <= 2:
        pool.crowding[first] = pool.crowding[last] = np.inf
        return
    if f1[first] == f1[last]:  # then all are equal, since none dominates another
        for k in range(low, high):
            pool.crowding[line[k]] = 0.0
        return
    before = first
    k = low
    while k < high:
        i = line[k]
        after = k + 1
        while after < high and f1[line[after]] == f1[i]:
            pool.crowding[line[after]] = 0.0
            after += 1
        if k == low or after == high:
            pool.crowding[i] = 1e14
        else:
            gap1 = (f1[line[after]] - f1[before]) / (f1[last] - f1[first])
            gap2 = (f2[before] - f2[line[after]]) / (f2[first] - f2[last])
            pool.crowding[i] = 0.5 * (gap1 + gap2)
        before, k = i, after


@jit
def survive(count: int, size: int, pool: Pool) -> tuple[int, int]:
    """Put the best ``size`` of the first ``count`` of ``alive`` in front; returns how many, and of the first front."""
    num_fronts = _rank(count, pool)
    kept, low = min(count, size), 0
    first_front = 0
    for r in range(num_fronts):
        high = pool.tails[r]
        if low >= kept:
            break
        _crowd(low, high, pool)
        if high > kept:
            for k in range(low, high):
                pool.tie[pool.line[k]] = chance(pool.state)
                pool.crowding[pool.line[k]] = -pool.crowding[pool.line[k]]
            _sort(pool.line, low, high, pool.crowding, pool.tie, pool.spare)
            for k in range(low, high):
                pool.crowding[pool.line[k]] = -pool.crowding[pool.line[k]]
        if r == 0:
            first_front = min(high, kept)
        low = high
    for k in range(count):
        pool.alive[k] = pool.line[k]
    return kept, first_front


@jit
def _draw(count: int, pool: Pool) -> int:
    """The next of ``count`` members in random order, each once before any comes twice."""
    k = pool.cursor[0]
    pick = k + below(pool.state, count - k)
    i: int = pool.deck[pick]
    pool.deck[pick] = pool.deck[k]
    pool.deck[k] = i
    pool.cursor[0] = k + 1 if k + 1 < count else 0
    return i


@jit
def tournament(count: int, pool: Pool) -> int:
    """The better of two members: the one that dominates, else the less crowded, else either."""
    a, b = _draw(count, pool), _draw(count, pool)
    f1, f2 = pool.f1, pool.f2
    a_wins = f1[a] < f1[b] or f2[a] < f2[b]
    b_wins = f1[b] < f1[a] or f2[b] < f2[a]
    if a_wins == b_wins:
        a_wins = pool.crowding[a] > pool.crowding[b]
        if pool.crowding[a] == pool.crowding[b]:
            a_wins = chance(pool.state) < 0.5
    return a if a_wins else b


def make_pool(initial: Matrix, size: int, state: Words) -> Pool:
    """Places for a population of ``size``, the first ones holding ``initial`` (S, J, N) int16; shares ``state``."""
    _, J, N = initial.shape
    members = np.zeros((2 * size, J, N), np.int16)
    members[: len(initial)] = initial
    f1, f2, crowding, tie = np.zeros((4, 2 * size))
    rank, line, spare, tails, deck = np.zeros((5, 2 * size), np.int64)
    return Pool(
        members=members,
        f1=f1,
        f2=f2,
        keys=np.zeros(2 * size, np.uint64),
        weights=np.random.default_rng(0).integers(0, 2**64, (J, N), np.uint64),
        crowding=crowding,
        alive=np.arange(2 * size),
        rank=rank,
        line=line,
        spare=spare,
        tails=tails,
        tie=tie,
        table=np.zeros(1 << (8 * size - 1).bit_length(), np.int64),
        deck=deck,
        cursor=np.zeros(1, np.int64),
        node=np.zeros((2, N), np.int64),
        state=state,
    )
