"""Ordering rules of the compiled list scheduler: what a published ordering scheduler is made of.

A rule is a key of :class:`Key` and a few flags; jobs run in ascending ``(key1, key2, job_id)``.
The keys are described in docs/design/001-core.md, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from envs.jit import jit, jit_inline
from envs.layout import RUNNING
from envs.rng import Purpose, uniform

MAX_LIMITS = 63


class Key(IntEnum):
    """What jobs are sorted by, smallest first."""

    ARRIVAL = 0
    NUM_GPUS = 1
    DURATION = 2
    REMAINING = 3
    REMAINING_GPU_TIME = 4
    GPU_TIME = 5
    SERVICE = 6
    LEVEL = 7
    GITTINS = 8
    RANDOM = 9
    GIVEN = 10  # key1 and key2 were stored by the caller
    QUEUE = 11  # levels, first come first served within each


@dataclass(frozen=True)
class ListOrder:
    """One ordering rule.

    ``preemptive``: running jobs compete too, and a job that does not fit is always skipped.
    ``backfill``: without preemption, whether jobs behind one that does not fit may start.
    ``limits`` [GPU-s], ascending: attained service at which a job's level rises (LEVEL, GITTINS);
    ``values``: the Gittins index of each level, one more than limits. ``promote``: a waiting job
    returns to level 0 after this multiple of its run time (0: never). ``quantum_s``: time between
    comparisons of attained service while jobs wait (SERVICE).
    """

    key: Key
    preemptive: bool = False
    backfill: bool = False
    limits: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    promote: float = 0.0
    quantum_s: float = 60.0

    def __post_init__(self) -> None:
        if len(self.limits) > MAX_LIMITS:
            raise ValueError(f"at most {MAX_LIMITS} limits, not {len(self.limits)}")
        if any(a >= b for a, b in zip(self.limits, self.limits[1:], strict=False)) or any(x <= 0 for x in self.limits):
            raise ValueError(f"limits must be positive and ascending, not {self.limits}")
        if self.key == Key.GITTINS and len(self.values) != len(self.limits) + 1:
            raise ValueError(f"{len(self.limits)} limits need {len(self.limits) + 1} index values")
        if self.promote < 0 or self.quantum_s <= 0:
            raise ValueError("promote must be >= 0 and quantum_s > 0")


def set_order(states: np.recarray, order: ListOrder) -> None:
    """Copy an ordering rule into fresh states, (B,) records."""
    states["order_key"] = int(order.key)
    states["preemptive"] = order.preemptive
    states["backfill"] = order.backfill
    states["promote"] = order.promote
    states["quantum"] = order.quantum_s if order.key == Key.SERVICE else 0.0
    states["skip_idle"] = order.key != Key.SERVICE
    states["num_limits"] = len(order.limits)
    states["limits"][:, : len(order.limits)] = order.limits
    states["values"][:, : len(order.values)] = order.values


@jit_inline
def set_key(s, j, key):
    """Store the sort key of slot ``j`` at ``s.now`` in ``s.key1[j]``, ``s.key2[j]``; ``key`` is ``s.order_key``."""
    if key == Key.GIVEN:
        return
    first, second = 0.0, 0.0
    if key == Key.NUM_GPUS:
        first = float(s.request[j])
    elif key == Key.DURATION:
        first = s.estimate[j]
    elif key == Key.GPU_TIME:
        first = s.estimate[j] * s.request[j] * s.share[j] / 1000.0
    elif key == Key.REMAINING or key == Key.REMAINING_GPU_TIME:
        done = s.done[j]
        if s.phase[j] == RUNNING and s.now > s.anchor[j]:
            done += s.rate[j] * (s.now - s.anchor[j])
        if s.klass[j] < 0:
            first = max(0.0, s.estimate[j] + s.extra_work[j] - done)
        else:  # as at its request
            first = s.estimate[j] * max(0.0, 1.0 - done / s.work[j])
        if key == Key.REMAINING_GPU_TIME:
            first *= s.request[j] * s.share[j] / 1000.0  # an elastic job may hold less
    elif key == Key.SERVICE:
        first = s.service[j]
        if s.phase[j] == RUNNING:
            first += s.demand[j] * (s.now - s.held_since[j])
    elif key == Key.LEVEL:
        first = 2.0 * s.level[j] + (0.0 if s.level_started[j] else 1.0)
        second = s.start_time[j] if s.level_started[j] else s.enter_time[j]
    elif key == Key.QUEUE:
        first = float(s.level[j])
        second = s.enter_time[j]
    elif key == Key.GITTINS:
        first = -s.values[s.level[j]]
    elif key == Key.RANDOM:
        first = uniform(s.seed, Purpose.ORDER, s.job_id[j], 0)
    s.key1[j] = first
    s.key2[j] = second


@jit
def precedes(s, a, b):
    """Whether slot ``a`` comes before slot ``b`` by the stored keys; the job id breaks ties."""
    if s.key1[a] != s.key1[b]:
        return s.key1[a] < s.key1[b]
    if s.key2[a] != s.key2[b]:
        return s.key2[a] < s.key2[b]
    return s.job_id[a] < s.job_id[b]
