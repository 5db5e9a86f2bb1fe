"""Layer elasticity on a cluster: writes docs/layer-elasticity.md and its plots: ``python -m docs.layer_elasticity``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from docs import study
from docs.layer_elasticity.page import make_page
from docs.layer_elasticity.plots import draw_all
from docs.layer_elasticity.runs import all_runs
from docs.layer_elasticity.store import Outcome, execute
from docs.validation_runs import ROOT, Run
from docs.validation_store import recall_as, store
from envs.simulate import Progress

PAGE = ROOT / "docs" / "layer-elasticity.md"


@dataclass(frozen=True)
class Arguments(study.Arguments):
    """Compare schedulers that freeze layers with others, and write the page."""

    folder: Path = ROOT / "runs" / "layer-elasticity"
    """Where results are kept."""


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    return study.command("python -m docs.layer_elasticity", Arguments, compare, argv)


def compare(arguments: Arguments) -> None:
    """Run what is missing, then write the page and its plots."""
    arguments.folder.mkdir(parents=True, exist_ok=True)
    recall = partial(recall_as, Outcome, arguments.folder, keep=arguments.keep)
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
