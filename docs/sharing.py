"""Training that borrows the GPUs of inference: writes docs/sharing.md and its plots: ``python -m docs.sharing``.

Every run is kept in a folder as soon as it ends, so that a second call runs only what is missing or what the code or
the data has changed for. Runs on DeepBoot's own workload need the measured data beside the checkout; without it they
are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from docs.sharing_page import make_page
from docs.sharing_plots import draw_all
from docs.sharing_runs import Study, all_runs
from docs.sharing_store import Outcome, execute
from docs.validation_runs import ROOT, SHARED
from docs.validation_store import recall_as, store
from envs.engine import EngineError, run_tasks
from envs.jit import COMPILING, is_compiled
from traces.command_line import UsageError, parse_arguments, run
from traces.profiles import ProfileError
from traces.trace import TraceError

PAGE = ROOT / "docs" / "sharing.md"


@dataclass(frozen=True)
class Arguments:
    """Compare training that borrows the GPUs of inference with training that does not, and write the page."""

    folder: Path = ROOT / "runs" / "sharing"
    """Where results are kept."""
    jobs: int = 1
    """Processes."""
    report: bool = False
    """Run nothing: write the page from what is there."""
    keep: bool = False
    """Accept results of older code; the page says how many."""
    only: str = ""
    """Run only what has this in its label; the page is written beside the results."""

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise UsageError("--jobs must be at least 1")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, 2 for arguments that cannot be used, 130 for Ctrl-C."""
    prog = "python -m docs.sharing"
    return run(
        prog,
        lambda: compare(parse_arguments(Arguments, prog, argv)),
        EngineError,
        ProfileError,
        TraceError,
        interrupted="interrupted; what has ended is kept, the same command goes on from there",
    )


def compare(arguments: Arguments) -> None:
    """Run what is missing, then write the page and its plots."""
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not arguments.report:
        run_missing(arguments)
    found = {study: _recall(arguments, study) for study in all_runs()}
    page = arguments.folder / PAGE.name if arguments.only else PAGE
    plots = page.with_suffix("")
    plots.mkdir(exist_ok=True)
    for stem, png in draw_all(found.get).items():
        (plots / f"{stem}.png").write_bytes(png)
    page.write_text(make_page(found))
    print(f"{page} written")


def run_missing(arguments: Arguments) -> None:
    """Run what has no result yet, with a progress bar on stderr."""
    console = Console(stderr=True)
    if not SHARED.is_dir():
        console.print(f"runs on DeepBoot's own workload are left out: {SHARED} is not there")
    wanted = [study for study in all_runs(SHARED.is_dir()) if arguments.only in study.label]
    missing = [study for study in wanted if _recall(arguments, study) is None]
    if missing and not is_compiled():
        console.print(COMPILING)
    columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("runs, {task.description}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bar = progress.add_task("", total=len(wanted), completed=len(wanted) - len(missing))

        def on_done(study: Study) -> None:
            progress.update(bar, advance=1, description=study.label)

        run_tasks(run_and_store, arguments.folder, missing, arguments.jobs, "local", on_done)


def run_and_store(folder: Path, study: Study) -> None:
    """The work of one task."""
    store(folder, study, execute(study))


def _recall(arguments: Arguments, study: Study) -> Outcome | None:
    if study.profiles and not SHARED.is_dir():
        return None
    return recall_as(partial(Outcome), arguments.folder, study, arguments.keep)


if __name__ == "__main__":
    sys.exit(main())
