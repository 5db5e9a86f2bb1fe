"""Schedulers that avoid stragglers: writes docs/stragglers.md and its plots: ``python -m docs.straggler_study``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from docs import study
from docs.straggler_study.page import make_page
from docs.straggler_study.plots import draw_all
from docs.straggler_study.runs import all_runs
from docs.straggler_study.store import execute
from docs.straggler_study.store import recall as recall_from
from docs.validation_runs import ROOT, Run
from docs.validation_store import store
from envs.simulate import Progress

PAGE = ROOT / "docs" / "stragglers.md"


@dataclass(frozen=True)
class Arguments(study.Arguments):
    """Compare schedulers that avoid stragglers with others, and write the page."""

    folder: Path = ROOT / "runs" / "stragglers"
    """Where results are kept."""


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    return study.command("python -m docs.straggler_study", Arguments, compare, argv)


def compare(arguments: Arguments) -> None:
    """Run what is missing, then write the page and its plots."""
    arguments.folder.mkdir(parents=True, exist_ok=True)
    recall = partial(recall_from, arguments.folder, keep=arguments.keep)
    if not arguments.report:
        is_there = lambda task: recall(task) is not None  # noqa: E731
        study.run_missing(arguments, run_and_store, all_runs(), is_there, Console(stderr=True))
    found = {wanted: recall(wanted) for wanted in all_runs()}
    study.write_page(arguments, PAGE, make_page(found), draw_all(found.get))


def run_and_store(folder: Path, task: Run, on_jobs: Progress | None = None) -> None:
    """The work of one task."""
    store(folder, task, execute(task, on_jobs))


if __name__ == "__main__":
    sys.exit(main())
