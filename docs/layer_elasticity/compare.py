"""Comparisons of docs/layer-elasticity.md: mean jct, and what layers lack because they were frozen."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from docs.layer_elasticity.runs import BASES, GAP_S, HOSTS, PLAIN, SEEDS, study_run
from docs.layer_elasticity.store import Outcome
from docs.validation_runs import Run
from envs.statistics import Estimate, paired_ratio
from traces.synthetic_pollux import MODELS

Find = Callable[[Run], Outcome | None]
Floats = npt.NDArray[np.float64]
_NAN = dict.fromkeys(MODELS, np.nan)
UNKNOWN = Outcome(_NAN, dict.fromkeys(MODELS, 1), _NAN, _NAN, *[np.nan] * 6)  # type: ignore[arg-type]


class Case(NamedTuple):
    """A scheduler in one setting, in runs over all seeds."""

    policy: str
    change: str = PLAIN
    preset: str = ""
    gap_s: float = GAP_S

    @property
    def host(self) -> str:
        """The scheduler that allocates."""
        name, _, host = self.policy.partition("?")[0].partition(":")
        return host or name

    def unfrozen(self) -> Case:
        """The host without freezing, on the same jobs; settings of freezing do not matter to it."""
        return self._replace(policy=self.host, change=PLAIN)


def values(find: Find, case: Case, what: str = "mean") -> Floats:
    """(S, 1) of each seed; NaN: no result."""
    return np.array([[getattr(outcome, what)] for outcome in outcomes(find, case)])


def outcomes(find: Find, case: Case) -> list[Outcome]:
    """One a seed."""
    return [find(study_run(case.policy, seed, *case[1:])) or UNKNOWN for seed in SEEDS]


def best_base(find: Find, gap_s: float = GAP_S) -> Case:
    """Of the schedulers that icefrog is compared with the one of the least mean jct; presets do not matter to them."""
    cases = [Case(policy, gap_s=gap_s) for policy in BASES]
    return min(cases, key=lambda case: float(values(find, case).mean()))


def versus_base(find: Find, case: Case) -> Estimate:
    """Change of mean jct against the best of them."""
    return paired_ratio(values(find, case), values(find, best_base(find, case.gap_s)))


def versus_host(find: Find, case: Case) -> Estimate:
    """Change of mean jct against the host without freezing, which is what freezing itself brings."""
    host = case.unfrozen()
    return paired_ratio(values(find, case), values(find, host._replace(preset="")))


def excess(find: Find, case: Case) -> dict[str, float]:
    """By model: mean residual over jobs and seeds beyond that of the same jobs without freezing."""
    host = HOSTS[0] if case.preset else case.host  # without freezing it is the same whoever allocates
    pairs = list(zip(outcomes(find, case), outcomes(find, case.unfrozen()._replace(policy=host)), strict=True))
    return {
        model: float(np.mean([ours.residual[model] - theirs.residual[model] for ours, theirs in pairs]))
        for model in MODELS
    }


def most_excess(find: Find, case: Case) -> float:
    """The largest of them."""
    return float(np.max(list(excess(find, case).values())))


def mean_excess(find: Find, case: Case) -> float:
    """Over all jobs."""
    host = HOSTS[0] if case.preset else case.host
    unfrozen = case.unfrozen()._replace(policy=host)
    return float((values(find, case, "mean_residual") - values(find, unfrozen, "mean_residual")).mean())
