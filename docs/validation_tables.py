"""What every table of docs/validation.md is made of: cells, verdicts and published figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from docs.validation_runs import SHARED, Run
from docs.validation_store import Result

Recall = Callable[[Run], Result | None]
Floats = npt.NDArray[np.float64]
NOTHING = "–"
EQUAL_S = 0.5  # jcts that differ by less are equal


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table between empty lines."""
    lines = [[str(cell) for cell in row] for row in (header, *rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


@cache
def reference(name: str) -> Any:
    """A JSON file of published or measured results."""
    return json.loads((SHARED / "reference" / name).read_text())


def published(key: str) -> dict[str, Any]:
    """Results of the authors of Pollux: means by workload (``avgs``) and jcts by workload and job."""
    found: dict[str, Any] = reference("pollux_sia/osdi21_published_results.json")[key]
    return found


def number(value: float, digits: int = 0) -> str:
    """NaN, which stands for a result that is missing, is a dash."""
    return NOTHING if np.isnan(value) else f"{value:.{digits}f}"


def difference(ours: float, theirs: float) -> str:
    change = ours / theirs - 1
    if np.isnan(change):
        return NOTHING
    return "0" if abs(change) < 5e-6 else f"{change:+.2%}"


def percent(share: float) -> str:
    """A share; never rounded up to all."""
    if np.isnan(share):
        return NOTHING
    return "100 %" if share == 1 else f"{min(100 * share, 99.9):.1f} %"


def verdict(ours: float, theirs: float, tolerance: float) -> str:
    if np.isnan(ours):
        return NOTHING
    return "within" if abs(ours / theirs - 1) <= tolerance else "outside"


def mean_of(recall: Recall, runs: Sequence[Run]) -> tuple[float, str]:
    """Mean jct [s] over runs and a note on how many there are, if some are missing; NaN if all are."""
    means = means_of(recall, runs)
    there = ~np.isnan(means)
    note = "" if there.all() or not there.any() else f" ({there.sum()} of {len(means)})"
    return float(means[there].mean()) if there.any() else float("nan"), note


def means_of(recall: Recall, runs: Sequence[Run]) -> Floats:
    """(R,) mean jct of each run [s]; NaN: no result."""
    results = [recall(run) for run in runs]
    return np.array([result.mean if result else np.nan for result in results])


def compare_means(recall: Recall, runs: Sequence[Run], theirs: Sequence[float], tolerance: float) -> list[str]:
    """Cells ours, theirs, difference, tolerance and verdict of a mean over runs; over those that we have."""
    ours, wanted = means_of(recall, runs), np.array(theirs)
    there = ~np.isnan(ours)
    note = "" if there.all() or not there.any() else f" ({there.sum()} of {len(ours)} runs)"
    mine, their = (float(a[there].mean()) if there.any() else float("nan") for a in (ours, wanted))
    shown = number(their if there.any() else float(wanted.mean()), 1)
    return [
        number(mine, 1) + note,
        shown,
        difference(mine, their),
        f"{100 * tolerance:g} %",
        verdict(mine, their, tolerance),
    ]


def jct_differences(result: Result, theirs: dict[str, float]) -> tuple[float, float]:
    """Share of jobs that are equal, and share within 1 %."""
    ours = np.array([result.jct_s[job] for job in theirs])
    wanted = np.array(list(theirs.values()), np.float64)
    apart = np.abs(ours - wanted)
    return float((apart < EQUAL_S).mean()), float((apart <= 0.01 * wanted).mean())
