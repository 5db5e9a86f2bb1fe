"""Comparisons of docs/sharing.md: at equal settings, at equal violations, and over stretched arrivals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from docs.sharing_runs import LARGEST, LOADS, PROTECT, SEEDS, STRETCHES, Study, measured_run, sweep_run
from docs.sharing_store import Outcome
from envs.statistics import Estimate, paired_ratio

Find = Callable[[Study], Outcome | None]
Floats = npt.NDArray[np.float64]
LEAST = 1e-5  # shares of violations below this count as this: curves are read on a logarithmic scale
NOT_IN_MEAN = "not in the mean"  # of part A: the largest jobs run, but their jcts do not count


class Equalised(NamedTuple):
    """A scheduler's mean jct by seed, (S, 1) float64 [s], where it violates as much as it is compared with.

    ``reached``: (S,) bool, whether its curve gets there; else it is the jct at the nearest end of the curve.
    """

    jct_s: Floats
    reached: npt.NDArray[np.bool_]


def at_violations(violations: Floats, jct_s: Floats, wanted: float) -> tuple[float, bool]:
    """Mean jct [s] where a curve through (P,) points has the ``wanted`` share of violations, and whether it gets there.

    Linear in the logarithm of the share between neighbouring points; beyond its ends, the jct of the nearest one. NaN
    and False if a point or ``wanted`` is NaN.
    """
    if np.isnan([*violations, *jct_s, wanted]).any():
        return np.nan, False
    order = np.argsort(violations, kind="stable")
    at, goal = np.log(np.maximum(violations[order], LEAST)), np.log(max(wanted, LEAST))
    return float(np.interp(goal, at, jct_s[order])), bool(at[0] <= goal <= at[-1])


def equalise(find: Find, scheduler: str, load: float, without: str, rule: str = "ats") -> Equalised:
    """A scheduler's mean jct where it violates as much as ``deepboot`` at the default protection, seed by seed.

    ``rule``: of that ``deepboot``; ``static``: the one that is confined to its half.
    """
    wanted = values(find, "violations", "deepboot", load, without, rule=rule)
    curve = [values(find, name, scheduler, load, without, PROTECT) for name in ("violations", "mean")]
    found = [at_violations(curve[0][k], curve[1][k], float(wanted[k, 0])) for k in range(len(SEEDS))]
    return Equalised(np.array([[jct] for jct, _ in found]), np.array([reached for _, reached in found]))


def values(
    find: Find,
    what: str,
    scheduler: str,
    load: float,
    without: str,
    protect: Sequence[float] = PROTECT[:1],
    rule: str = "ats",
) -> Floats:
    """(S, P) float64 of a field of the outcomes of part B, by seed and ``protect``; NaN where there is none."""
    runs = [[sweep_run(scheduler, load, seed, without, p, rule) for p in protect] for seed in SEEDS]
    return np.array([[getattr(find(run), what, np.nan) for run in row] for row in runs], np.float64)


def versus_deepboot(find: Find, scheduler: str, load: float, without: str) -> tuple[Estimate, Estimate]:
    """Mean jct over that of ``deepboot``, less one: at the same protection, and at the same violations."""
    base = values(find, "mean", "deepboot", load, without)
    same = values(find, "mean", scheduler, load, without)
    return paired_ratio(same, base), paired_ratio(equalise(find, scheduler, load, without).jct_s, base)


def versus_confined(find: Find, load: float, without: str, protect: float | None) -> Estimate:
    """Mean jct of ``deepboot`` that borrows over that of ``deepboot`` confined to its half, less one.

    At a protection, or (None) where both violate equally.
    """
    confined = values(find, "mean", "deepboot", load, without, rule="static")
    if protect is None:
        return paired_ratio(equalise(find, "deepboot", load, without, "static").jct_s, confined)
    return paired_ratio(values(find, "mean", "deepboot", load, without, (protect,)), confined)


def stretched(find: Find, scheduler: str, mode: str, kind: str) -> Floats:
    """(K,) float64 mean jct of part A [s] by stretch; ``kind``: "", LARGEST (left out) or NOT_IN_MEAN."""
    without, uncounted = (LARGEST if kind == name else "" for name in (LARGEST, NOT_IN_MEAN))
    found = [find(measured_run(scheduler, mode, without, stretch)) for stretch in STRETCHES]
    return np.array([outcome.mean_without(uncounted) if outcome else np.nan for outcome in found])


def gains(find: Find, scheduler: str, mode: str, kind: str) -> Floats:
    """(K,) float64: mean jct over that of the same scheduler confined to its half, less one, by stretch."""
    return stretched(find, scheduler, mode, kind) / stretched(find, scheduler, "confined", kind) - 1


def measured_violations(find: Find, scheduler: str, mode: str, without: str) -> float:
    """Share of violations in part A, mean over the stretches that there are."""
    found = [find(measured_run(scheduler, mode, without, stretch)) for stretch in STRETCHES]
    return float(np.mean([outcome.violations for outcome in found if outcome] or [np.nan]))


CELLS = tuple((load, without) for without in ("", LARGEST) for load in LOADS)
