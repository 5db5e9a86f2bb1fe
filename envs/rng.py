"""Random numbers as a pure function of (seed, purpose, index, counter).

There is no stream and so no stream position: what one job or node draws never depends on what
was drawn before, on the scheduler or on the number of threads. Each of the four integers is
mixed in by one step of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014: the golden-ratio increment followed by the finaliser).
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from envs.jit import jit


class Purpose(IntEnum):
    """What a random number is for; the values are part of every result, so never renumber them."""

    ORDER = 0
    PLACEMENT = 1
    ESTIMATE = 2
    WINDOW = 3
    FAILURE = 4
    FREEZING = 5
    FRONT = 6
    STRAGGLER = 7
    BACKGROUND = 8
    VARIABILITY = 9
    SIGHT = 10
    DETECTION = 11


# The ufuncs wrap uint64 scalars in silence where + and * warn in interpreted code (NUMBA_DISABLE_JIT=1);
# compiled, each is the one machine instruction.
_wrapping_add, _wrapping_multiply = np.add, np.multiply

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@jit
def _absorb(state: np.uint64, value: int) -> np.uint64:
    """The next state: one splitmix64 step from ``state + value``; ``value`` counts modulo 2**63."""
    z: np.uint64 = _wrapping_add(_wrapping_add(state, _GAMMA), np.uint64(value & 0x7FFFFFFFFFFFFFFF))
    z = _wrapping_multiply(z ^ (z >> np.uint64(30)), _FIRST)
    z = _wrapping_multiply(z ^ (z >> np.uint64(27)), _SECOND)
    return z ^ (z >> np.uint64(31))


@jit
def hash45(value: int) -> np.int64:
    """A hash of ``value`` in [0, 2**45): sums of up to 2**17 of them fit an int64."""
    return np.int64(_absorb(np.uint64(0), value) >> np.uint64(19))


@jit
def stream(seed: int, purpose: int, index: int) -> np.uint64:
    """What the numbers of all counters have in common, from which draw() makes them."""
    state = _absorb(np.uint64(0), seed)
    state = _absorb(state, purpose)
    return _absorb(state, index)


@jit
def draw(state: np.uint64, counter: int) -> float:
    """A float64 in [0, 1), a multiple of 2**-53."""
    return np.float64(_absorb(state, counter) >> np.uint64(11)) * 2.0**-53


@jit
def uniform(seed: int, purpose: int, index: int, counter: int) -> float:
    """A float64 in [0, 1), a multiple of 2**-53, from four int64."""
    return draw(stream(seed, purpose, index), counter)


@jit
def helios_estimate(seed: int, job_id: int, duration: float) -> float:
    """A predicted duration [s] of a job: the truth with the relative error of Helios's evaluation.

    Errors below 10 %, 10-50 %, 50-100 %, 1-10 times and 10-100 times the truth, either way, have
    probability 0.1, 0.4, 0.2, 0.2 and 0.1 (Hu et al., SC'21, artefact; QSSF on the Philly trace).
    Estimates below 0 become 0.
    """
    band = uniform(seed, Purpose.ESTIMATE, job_id, 0)
    low, high = 10.0, 100.0
    if band < 0.1:
        low, high = 0.0, 0.1
    elif band < 0.5:
        low, high = 0.1, 0.5
    elif band < 0.7:
        low, high = 0.5, 1.0
    elif band < 0.9:
        low, high = 1.0, 10.0
    size = low + (high - low) * uniform(seed, Purpose.ESTIMATE, job_id, 1)
    sign = -1.0 if uniform(seed, Purpose.ESTIMATE, job_id, 2) < 0.5 else 1.0
    return max(0.0, duration * (1.0 + sign * size))
