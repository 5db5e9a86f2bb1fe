"""Writes docs/validation.md: the published figures beside ours, section by section."""

from __future__ import annotations

import platform
from datetime import date
from pathlib import Path

from docs.validation_deepboot import deepboot
from docs.validation_fit import fit_errors
from docs.validation_osdi import fixed_requests, measured, pollux, studies
from docs.validation_others import every_run, small_cases, speed, tiresias
from docs.validation_runs import SEEDS, Run, all_runs
from docs.validation_store import Result
from docs.validation_tables import Recall, table
from docs.validation_text import TEXTS
from envs.provenance import git_commit, versions

SECTIONS = (fixed_requests, measured, pollux, studies, tiresias, deepboot, small_cases, fit_errors, speed)


def make_page(recall: Recall) -> str:
    """The whole page from the results there are; what is missing is a dash."""
    results = {run.label: recall(run) for run in all_runs()}

    def known(run: Run) -> Result | None:
        return results[run.label]

    body = "".join(section(known) for section in SECTIONS) + TEXTS["not"] + every_run(known)
    return TEXTS["head"].lstrip() + _made_with(results) + body.rstrip() + "\n"


def _made_with(results: dict[str, Result | None]) -> str:
    found = [result for result in results.values() if result]
    older = sum(not result.same_code for result in found)
    kept = f"{len(found)} of {len(results)} runs have a result" + (f", {older} of older code" if older else "")
    names = versions()
    rows = [
        ("date", date.today().isoformat()),
        ("commit", git_commit() or "unknown"),
        ("command", "`python -m docs.validation --studies`"),
        (
            "seeds",
            f"{', '.join(map(str, SEEDS))} for pollux at rounds of 60 s and for its two measured runs; 0 otherwise",
        ),
        ("results", kept),
        ("machine", f"{cpu_model()}, one process, one thread"),
        ("versions", ", ".join(f"{name} {names[name]}" for name in ("python", "numpy", "numba", "scipy", "pandas"))),
    ]
    return table(("made", "with"), rows)


def cpu_model() -> str:
    """Name of the CPU as Linux gives it, else as Python does."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
