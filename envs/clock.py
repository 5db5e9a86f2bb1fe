"""Multiples of an interval, exact in spite of rounding."""

from __future__ import annotations

import math

from envs.jit import jit


@jit
def next_multiple(now, step):
    """The first multiple of ``step`` after ``now``."""
    index = math.floor(now / step)
    while index * step <= now:
        index += 1
    return index * step


@jit
def is_multiple(now, step):
    """Whether ``now`` is a multiple of ``step``; the quotient may be off by one through rounding."""
    index = math.floor(now / step)
    return index * step == now or (index + 1) * step == now


@jit
def multiple_from(now, step):
    """The first multiple of ``step`` at or after ``now``."""
    return now if is_multiple(now, step) else next_multiple(now, step)
