"""Compares our simulator with published ones, and writes docs/validation.md: ``python -m docs.validation``.

Needs the published results and measured profiles beside the checkout.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from docs import study
from docs.validation_page import make_page
from docs.validation_runs import ROOT, SHARED, Run, all_runs
from docs.validation_store import execute, recall, store
from envs.simulate import Progress
from traces.command_line import UsageError

PAGE = ROOT / "docs" / "validation.md"


@dataclass(frozen=True)
class Arguments(study.Arguments):
    """Compare the simulator with published ones, and write the page."""

    folder: Path = ROOT / "runs" / "validation"
    """Where results are kept."""
    studies: bool = False
    """Also run Pollux at other intervals and under interference."""
    quick: bool = False
    """Leave out runs of more than a few seconds, and write the page beside the results."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not SHARED.is_dir():
            raise UsageError(f"the published results are not there: {SHARED}")


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    return study.command("python -m docs.validation", Arguments, validate, argv)


def validate(arguments: Arguments) -> None:
    """Run what is missing and write the page."""
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not arguments.report:
        wanted = [task for task in all_runs(arguments.studies) if not (arguments.quick and task.slow)]
        study.run_missing(
            arguments,
            run_and_store,
            wanted,
            lambda task: recall(arguments.folder, task, arguments.keep) is not None,
            Console(stderr=True),
        )
    part = arguments.quick or bool(arguments.only)
    page = arguments.folder / PAGE.name if part else PAGE
    page.write_text(make_page(partial(recall, arguments.folder, keep=arguments.keep)))
    print(f"{page} written")


def run_and_store(folder: Path, task: Run, on_jobs: Progress | None = None) -> None:
    """The work of one task."""
    store(folder, task, execute(task, on_jobs))


if __name__ == "__main__":
    sys.exit(main())
