"""What the commands share that make a page of many simulations: arguments, and running what has no result yet.

Every result is kept in a folder as soon as it is there, so that a second call runs only what is missing or what the
code or the data has changed for (docs/validation_store.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from docs.validation_page import cpu_model
from docs.validation_runs import Run
from docs.validation_tables import table
from envs.engine import EngineError, run_tasks
from envs.jit import COMPILING, is_compiled
from envs.provenance import git_commit, versions
from envs.simulate import Progress as OnJobs
from traces.command_line import UsageError, parse_arguments, run
from traces.profiles import ProfileError
from traces.trace import TraceError


class Work(Protocol):
    """Runs one simulation and keeps its result in a folder."""

    def __call__(self, folder: Path, task: Any, on_jobs: OnJobs | None = None) -> None: ...


@dataclass(frozen=True)
class Arguments:
    """What such a command is told; a subclass says where ``folder`` is by default."""

    folder: Path
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


def command(prog: str, form: type[Arguments], write: Callable[[Any], None], argv: Sequence[str] | None) -> int:
    """Exit code 0, 2 for arguments that cannot be used, 130 for Ctrl-C."""
    return run(
        prog,
        lambda: write(parse_arguments(form, prog, argv)),
        EngineError,
        ProfileError,
        TraceError,
        interrupted="interrupted; what has ended is kept, the same command goes on from there",
    )


def run_missing(
    arguments: Arguments, work: Work, wanted: Sequence[Run], is_there: Callable[[Any], bool], console: Console
) -> None:
    """Run what has no result yet of what is wanted, with a progress bar."""
    wanted = [task for task in wanted if arguments.only in task.label]
    missing = [task for task in wanted if not is_there(task)]
    if missing and not is_compiled():
        console.print(COMPILING)
    columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("runs, {task.description}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bar = progress.add_task("", total=len(wanted), completed=len(wanted) - len(missing))

        def here(folder: Path, task: Run) -> None:
            work(folder, task, partial(on_jobs, task.label))

        def on_jobs(label: str, finished: int, jobs: int) -> None:
            progress.update(bar, description=f"{label}: {finished} of {jobs} jobs")

        def on_done(task: Run) -> None:
            progress.update(bar, advance=1, description=task.label)

        run_tasks(here if arguments.jobs == 1 else work, arguments.folder, missing, arguments.jobs, "local", on_done)


def made_with(found: Mapping[Any, Any], command: str, seeds: str) -> str:
    """The table that says what a page was made with; ``found``: what is kept of each run, None where there is none."""
    there = [outcome for outcome in found.values() if outcome]
    older = sum(not outcome.same_code for outcome in there)
    names = versions()
    rows = [
        ("date", date.today().isoformat()),
        ("commit", git_commit() or "unknown"),
        ("command", command),
        ("seeds", seeds),
        ("results", f"{len(there)} of {len(found)} runs have one" + (f", {older} of older code" if older else "")),
        ("CPU time", f"{sum(outcome.cpu_s for outcome in there) / 60:.0f} min in all, traces not counted"),
        ("machine", f"{cpu_model()}, one thread"),
        ("versions", ", ".join(f"{name} {names[name]}" for name in ("python", "numpy", "numba", "scipy", "pandas"))),
    ]
    return table(("made", "with"), rows)


def write_page(arguments: Arguments, page: Path, text: str, plots: Mapping[str, bytes]) -> None:
    """Write a page, and its plots (PNG by file stem) into a folder of its name; of a part, beside the results."""
    page = arguments.folder / page.name if arguments.only else page
    folder = page.with_suffix("")
    folder.mkdir(exist_ok=True)
    for stem, png in plots.items():
        (folder / f"{stem}.png").write_bytes(png)
    page.write_text(text)
    print(f"{page} written")
