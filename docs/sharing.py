"""Training that borrows the GPUs of inference: writes docs/sharing.md and its plots: ``python -m docs.sharing``.

Runs on DeepBoot's own workload need the measured data beside the checkout; without it they are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from docs import study
from docs.sharing_page import make_page
from docs.sharing_plots import draw_all
from docs.sharing_runs import Study, all_runs
from docs.sharing_store import Outcome, execute
from docs.validation_runs import ROOT, SHARED
from docs.validation_store import recall_as, store
from envs.simulate import Progress

PAGE = ROOT / "docs" / "sharing.md"


@dataclass(frozen=True)
class Arguments(study.Arguments):
    """Compare training that borrows the GPUs of inference with training that does not, and write the page."""

    folder: Path = ROOT / "runs" / "sharing"
    """Where results are kept."""


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    return study.command("python -m docs.sharing", Arguments, compare, argv)


def compare(arguments: Arguments) -> None:
    """Run what is missing, then write the page and its plots."""
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not arguments.report:
        run_missing(arguments)
    found = {wanted: _recall(arguments, wanted) for wanted in all_runs()}
    study.write_page(arguments, PAGE, make_page(found), draw_all(found.get))


def run_missing(arguments: Arguments) -> None:
    """Run what has no result yet."""
    console = Console(stderr=True)
    if not SHARED.is_dir():
        console.print(f"runs on DeepBoot's own workload are left out: {SHARED} is not there")
    wanted = all_runs(SHARED.is_dir())
    study.run_missing(arguments, run_and_store, wanted, lambda task: _recall(arguments, task) is not None, console)


def run_and_store(folder: Path, task: Study, on_jobs: Progress | None = None) -> None:
    """The work of one task."""
    store(folder, task, execute(task, on_jobs))


def _recall(arguments: Arguments, task: Study) -> Outcome | None:
    if task.profiles and not SHARED.is_dir():
        return None
    return recall_as(Outcome, arguments.folder, task, arguments.keep)


if __name__ == "__main__":
    sys.exit(main())
