"""Comparisons of docs/stragglers.md: what stragglers cost, and how much of it a scheduler gets back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from docs.straggler_study.runs import FREE, ORACLE, PSR, STATIC, Case, study_run
from docs.straggler_study.store import Outcome
from docs.validation_runs import Run
from envs.statistics import Estimate, paired_difference, paired_ratio

Find = Callable[[Run], Any]  # an Outcome or, of probes, a Probed; None: no result
Floats = npt.NDArray[np.float64]


def outcomes(find: Find, case: Case, seeds: range | None = None) -> list[Outcome | None]:
    """One a seed, by default of all that the case has."""
    return [find(study_run(case, seed)) for seed in case.seeds if seeds is None or seed in seeds]


def values(find: Find, case: Case, what: str = "mean_s", seeds: range | None = None) -> Floats:
    """(S, 1) of each seed; NaN: no result."""
    found = outcomes(find, case, seeds)
    return np.array([[getattr(outcome, what) if outcome else np.nan] for outcome in found])


def average(find: Find, case: Case, what: str = "mean_s") -> float:
    """Mean over seeds; NaN if one has no result."""
    return float(values(find, case, what).mean())


def of_size(find: Find, case: Case, size: str, what: str) -> float:
    """Mean over seeds of a figure of the jobs of a class of size; NaN if one has no such jobs."""
    found = [outcome.by_size.get(size, {}) if outcome else {} for outcome in outcomes(find, case)]
    return float(np.mean([each.get(what, np.nan) for each in found]))


def pair(find: Find, case: Case, other: Case, what: str) -> tuple[Floats, Floats]:
    """(S, 1) of both, of the seeds that both have."""
    seeds = min(case.seeds, other.seeds, key=len)
    return values(find, case, what, seeds), values(find, other, what, seeds)


def change(find: Find, case: Case, other: Case | None = None, what: str = "mean_s") -> Estimate:
    """Of a mean over seeds against that of ``other``, by default oblivious placement in the same world, relative."""
    return paired_ratio(*pair(find, case, other or case.base, what))


def recovered(find: Find, case: Case, other: Case | None = None) -> Estimate:
    """Share of the straggler loss of ``other``, by default of oblivious placement, that is not lost under ``case``."""
    return _less(change(find, case, other, "loss"))


def gained(find: Find, case: Case, other: Case) -> Estimate:
    """By how much ``case`` recovers more than ``other`` does, in shares of the loss of oblivious placement."""
    ours, theirs = pair(find, case, other, "loss")
    seeds = min(case.seeds, other.seeds, key=len)
    lost = values(find, case.base, "loss", seeds)
    return _plus(paired_ratio(theirs - ours, lost))


def of_oracle(find: Find, preset: str, what: str) -> Estimate:
    """(oblivious - psr) / (oblivious - oracle) of means over seeds, of ``loss`` or of the mean jct ``mean_s``."""
    case = Case(PSR, preset)
    base = values(find, case.base, what)
    return _plus(paired_ratio(base - values(find, case, what), base - values(find, Case(PSR, preset, ORACLE), what)))


def headroom(find: Find, preset: str, what: str) -> Estimate:
    """What the oracle run has less than oblivious placement."""
    oracle = Case(PSR, preset, ORACLE)
    return paired_difference(values(find, oracle.base, what), values(find, oracle, what))


def still(find: Find, case: Case) -> Floats:
    """(S, 1) loss of each seed where nothing straggles for a while and only GPUs differ."""
    return values(find, case._replace(change=STATIC), "loss")


def passing(find: Find, case: Case) -> Floats:
    """(S, 1) the rest of each seed's loss: what stragglers that come and go cost."""
    return values(find, case, "loss") - still(find, case)


def recovered_passing(find: Find, case: Case) -> Estimate:
    """Share of that rest of oblivious placement that is not lost under ``case``."""
    return _less(paired_ratio(passing(find, case), passing(find, case.base)))


def cost(find: Find, preset: str) -> Estimate:
    """By how much stragglers raise the mean jct of oblivious placement, relative to none and equal GPUs."""
    base = Case(PSR, preset).base
    return paired_ratio(values(find, base), values(find, base._replace(change=FREE)))


def _less(found: Estimate) -> Estimate:
    """A change as a share that is saved."""
    return Estimate(-found.value, -found.ci_high, -found.ci_low, found.n)


def _plus(found: Estimate) -> Estimate:
    """Undo the - 1 of paired_ratio."""
    return Estimate(found.value + 1, found.ci_low + 1, found.ci_high + 1, found.n)
