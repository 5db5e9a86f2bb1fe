"""The knapsack by counts equals an exhaustive search, choice among equals included."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.knapsack import solve

INTEGERS = st.integers


def solved(values: list[list[float]], lows: list[int], caps: list[int], capacity: int) -> tuple[float, list[int]]:
    jobs = len(values)
    # One job more than there are, which must stay untouched; the scratch holds nonsense.
    padded = np.array([*values, [9.0] * len(values[0])])
    table, gpus = np.full((jobs + 2, capacity + 1), np.nan), np.full(jobs + 1, -7)
    total = solve(padded, np.array([*lows, 0]), np.array([*caps, 4]), jobs, capacity, table, gpus)
    assert gpus[jobs] == -7
    assert np.isnan(table[jobs + 1]).all()
    return total, gpus[:jobs].tolist()


def exhaustive(values: list[list[float]], lows: list[int], caps: list[int], capacity: int) -> tuple[float, list[int]]:
    """Of the best choices, the one whose last job has the first there is of 1, 2, ..., 0; then the job before it."""
    every = product(*(range(low, cap + 1) for low, cap in zip(lows, caps, strict=True)))
    fitting = [counts for counts in every if sum(counts) <= capacity]
    if not fitting:
        return -math.inf, [-7] * len(values)

    def rank(counts: tuple[int, ...]) -> tuple[float, list[float]]:
        total = sum(row[w] for row, w in zip(values, counts, strict=True))
        return -total, [w or math.inf for w in reversed(counts)]

    best = min(fitting, key=rank)
    return -rank(best)[0], list(best)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[float]], list[int], list[int], int]:
    """Values are quarters, so that sums are exact, and few, so that many are equal."""
    jobs, most, span = draw(INTEGERS(1, 4)), draw(INTEGERS(1, 5)), draw(st.sampled_from([0, 1, 3, 40]))
    values = [[0.0, *(draw(INTEGERS(-span, span)) / 4 for _ in range(most))] for _ in range(jobs)]
    caps = [draw(INTEGERS(0, most)) for _ in range(jobs)]
    pinned = [draw(INTEGERS(0, 3)) == 0 for _ in range(jobs)]
    lows = [cap if pin else draw(st.sampled_from([0, 0, cap // 2])) for cap, pin in zip(caps, pinned, strict=True)]
    return values, lows, caps, draw(INTEGERS(0, 10))


@settings(max_examples=400, deadline=None)
@given(cases())
def test_equals_exhaustive_search(case: tuple[list[list[float]], list[int], list[int], int]) -> None:
    assert solved(*case) == exhaustive(*case)


def test_the_later_of_equal_jobs_is_served_and_zero_comes_last() -> None:
    flat = [0.0, 1.0, 1.0]
    assert solved([flat, flat], [0, 0], [2, 2], 1) == (1.0, [0, 1])
    assert solved([flat, flat], [0, 0], [2, 2], 4) == (2.0, [1, 1])
    assert solved([[0.0, 0.0, 0.0]], [0], [2], 3) == (0.0, [1])
    assert solved([[0.0, -1.0, -1.0]], [0], [2], 3) == (0.0, [0])


def test_pinned_jobs_keep_their_count() -> None:
    worthless, good = [0.0, -5.0, -9.0], [0.0, 1.0, 2.0]
    assert solved([worthless, good], [2, 0], [2, 2], 3) == (-8.0, [2, 1])
    assert solved([good, worthless], [0, 2], [2, 2], 2) == (-9.0, [0, 2])
    assert solved([good, worthless], [1, 2], [2, 2], 2) == (-math.inf, [-7, -7])


def test_no_jobs_and_no_gpus() -> None:
    nothing = np.empty(0, np.int64)
    assert solve(np.empty((0, 3)), nothing, nothing, 0, 4, np.empty((1, 5)), nothing) == 0.0
    assert solved([[0.0, 5.0]], [0], [1], 0) == (0.0, [0])


def test_counts_beyond_the_capacity_are_left_out() -> None:
    rng = np.random.default_rng(0)
    values = np.cumsum(rng.random((8, 65)), axis=1)
    values[:, 0] = 0
    gpus = np.zeros(8, np.int64)
    total = solve(values, np.zeros(8, np.int64), np.full(8, 64), 8, 20, np.empty((9, 21)), gpus)
    assert gpus.sum() == 20
    assert total == values[np.arange(8), gpus].cumsum()[-1]
