"""Compares our simulator with published ones, and writes docs/validation.md: ``python -m docs.validation``.

Every run of ours is kept in a folder as soon as it ends, so that a second call runs only what is missing or what the
code or the data has changed for. Needs the published results and measured profiles beside the checkout.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from docs.validation_page import make_page
from docs.validation_runs import ROOT, SHARED, Run, all_runs
from docs.validation_store import execute, recall, store
from envs.engine import EngineError, run_tasks
from envs.jit import COMPILING, is_compiled
from traces.command_line import UsageError, parse_arguments, run
from traces.profiles import ProfileError
from traces.trace import TraceError

PAGE = ROOT / "docs" / "validation.md"
OnJobs = Callable[[Run, int, int], None]


@dataclass(frozen=True)
class Arguments:
    """Compare the simulator with published ones, and write the page."""

    folder: Path = ROOT / "runs" / "validation"
    """Where results are kept."""
    jobs: int = 1
    """Processes."""
    studies: bool = False
    """Also run Pollux at other intervals and under interference."""
    quick: bool = False
    """Leave out runs of more than a few seconds, and write the page beside the results."""
    report: bool = False
    """Run nothing: write the page from what is there."""
    keep: bool = False
    """Accept results of older code; the page says which."""
    only: str = ""
    """Run only what has this in its label; the page is written beside the results."""

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise UsageError("--jobs must be at least 1")
        if not SHARED.is_dir():
            raise UsageError(f"the published results are not there: {SHARED}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, 2 for arguments that cannot be used, 130 for Ctrl-C."""
    prog = "python -m docs.validation"
    return run(
        prog,
        lambda: validate(parse_arguments(Arguments, prog, argv)),
        EngineError,
        ProfileError,
        TraceError,
        interrupted="interrupted; what has ended is kept, the same command goes on from there",
    )


def validate(arguments: Arguments) -> None:
    """Run what is missing and write the page."""
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not arguments.report:
        run_missing(arguments)
    part = arguments.quick or bool(arguments.only)
    page = arguments.folder / PAGE.name if part else PAGE
    page.write_text(make_page(partial(recall, arguments.folder, keep=arguments.keep)))
    print(f"{page} written")


def run_missing(arguments: Arguments) -> None:
    """Run what has no result yet, with a progress bar on stderr."""
    wanted = [r for r in all_runs(arguments.studies) if arguments.only in r.label and not (arguments.quick and r.slow)]
    missing = [r for r in wanted if recall(arguments.folder, r, arguments.keep) is None]
    console = Console(stderr=True)
    if missing and not is_compiled():
        console.print(COMPILING)
    columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("runs, {task.description}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bar = progress.add_task("", total=len(wanted), completed=len(wanted) - len(missing))

        def on_jobs(current: Run, finished: int, jobs: int) -> None:
            progress.update(bar, description=f"{current.label}: {finished} of {jobs} jobs")

        work = partial(run_and_store, on_jobs=on_jobs) if arguments.jobs == 1 else run_and_store
        run_tasks(work, arguments.folder, missing, arguments.jobs, "local", lambda _: progress.advance(bar))


def run_and_store(folder: Path, task: Run, on_jobs: OnJobs | None = None) -> None:
    """The work of one task."""
    store(folder, task, execute(task, None if on_jobs is None else partial(on_jobs, task)))


if __name__ == "__main__":
    sys.exit(main())
