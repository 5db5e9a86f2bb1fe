"""``python -m traces measure-freezing``: PyTorch is imported when it trains, not before.

The file of results holds every run that has ended, so that an interrupted call goes on; the fit is made anew each time.
"""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from traces.fit import write_table
from traces.freezing import PRESETS
from traces.freezing_report import NONE, PREDICTORS, summarise
from traces.profiles import ProfileError

SHIPPED = Path(__file__).with_name("freezing_measured.json")
MODULES = 8  # of the network that is trained, its head among them
LENGTHS = (0.25, 0.5, 0.75, 1.0)  # of runs without freezing, in whole runs
FEWEST = 5  # schedules that a fit of three constants, one schedule left out, can be judged by
INTERRUPTED = "interrupted; runs that have ended are kept, the same command goes on from there"


class Schedule(NamedTuple):
    """Frozen modules: from each share of the run on, as many as stand beside it."""

    about: str
    changes: tuple[tuple[float, int], ...]

    def depths(self, epochs: int) -> list[int]:
        """The depth of each epoch, as it is at the epoch's beginning."""
        return [
            next((depth for start, depth in reversed(self.changes) if start <= epoch / epochs + 1e-9), 0)
            for epoch in range(epochs)
        ]


def front(first: float, last: float) -> tuple[tuple[float, int], ...]:
    """Freezes module i at first + (last - first) i / (K - 1), as FreezeOut does; never the head."""
    step = (last - first) / (MODULES - 1)
    return tuple((first + step * module, module + 1) for module in range(MODULES - 1))


# Share 1 - (1 - 1/E)^t of the modules after t of E epochs, close to 1 - exp(-t/E): PipeTransformer with alpha = 1/E.
PIPE = tuple((-math.log(1.0 - depth / MODULES), depth) for depth in range(1, 6))

SCHEDULES: dict[str, Schedule] = {
    "first": Schedule("the stem never trains", ((0.0, 1),)),
    "random": Schedule("three modules never train", ((0.0, 3),)),
    "shallow": Schedule("two modules, early", ((0.1, 2),)),
    "third": Schedule("half of the modules after a third", ((0.33, 4),)),
    "half": Schedule("half of the modules after half", ((0.5, 4),)),
    "late": Schedule("two after half, four after three quarters", ((0.5, 2), (0.75, 4))),
    "greedy": Schedule("six modules, far too early", ((0.1, 6),)),
    "head": Schedule("all but the head after 40 %", ((0.4, 7),)),
    "freezeout": Schedule("FreezeOut, linear from half on; the front of preset conservative", front(0.5, 1.0)),
    "middle": Schedule("the front of preset middle", front(*PRESETS["middle"][:2])),
    "egeria": Schedule("the front of preset egeria", front(*PRESETS["egeria"][:2])),
    "finetune": Schedule("the front of preset finetune", front(*PRESETS["finetune"][:2])),
    "pipe": Schedule("PipeTransformer's recursion, alpha = 1 / epochs", PIPE),
    "thaw": Schedule("five modules between 20 % and half", ((0.2, 5), (0.5, 0))),
    "pause": Schedule("six modules between 40 % and 60 %", ((0.4, 6), (0.6, 0))),
    "twice": Schedule("four modules early, none, and again late", ((0.1, 4), (0.3, 0), (0.6, 4))),
}


class Run(NamedTuple):
    """One training run."""

    schedule: str
    epochs: int
    seed: int

    @property
    def depths(self) -> list[int]:
        return [0] * self.epochs if self.schedule == NONE else SCHEDULES[self.schedule].depths(self.epochs)


@dataclass(frozen=True)
class MeasureFreezing:
    """Train a small network with and without frozen layers, and fit the constants of the convergence model."""

    out: Annotated[Path, tyro.conf.arg(metavar="OUT.json"), tyro.conf.Positional] = Path("freezing_measured.json")
    """results: written after every run; runs that it already holds are not made again"""
    epochs: int = 24
    """length of a whole run"""
    batches: int = 32
    """steps an epoch, of 64 images each"""
    seeds: int = 3
    """runs of each schedule, with seeds 0, 1, ..."""
    task: int = 0
    """seed of the ten classes"""
    schedules: tuple[str, ...] = ()
    """at least five of them by name (default: all)"""
    threads: int = 1
    """of PyTorch"""

    def __call__(self) -> None:
        table = self._start()
        runs = self._runs()
        done = {Run(row["schedule"], row["epochs"], row["seed"]) for row in table["runs"]}
        try:
            self._train(table, [run for run in runs if run not in done], len(runs))
        except KeyboardInterrupt:
            Console(stderr=True).print(INTERRUPTED)
            raise
        table |= summarise(table)
        save(table, self.out)
        print_results(Console(), table)

    def _runs(self) -> list[Run]:
        """Seeds in the outer loop, so that an interrupted call has seen every schedule as often."""
        lengths = sorted({max(1, round(share * self.epochs)) for share in LENGTHS})
        names = self.schedules or tuple(SCHEDULES)
        unknown = [name for name in names if name not in SCHEDULES]
        if unknown:
            raise ProfileError(f"there is no schedule {unknown[0]!r} (there are: {', '.join(SCHEDULES)})")
        if len(set(names)) < FEWEST:
            raise ProfileError(f"{len(set(names))} schedules are too few to fit the model, which needs {FEWEST}")
        for option in ("epochs", "batches", "seeds", "threads"):
            if (value := getattr(self, option)) < (least := 2 if option == "epochs" else 1):
                raise ProfileError(f"{option} is {value}, expected at least {least}")
        return [
            run
            for seed in range(self.seeds)
            for run in (*(Run(NONE, e, seed) for e in lengths), *(Run(name, self.epochs, seed) for name in names))
        ]

    def _start(self) -> dict[str, Any]:
        """What the file holds, or a table without runs; ProfileError if the file was made with other settings."""
        import torch

        from traces.freezing_train import Training
        from traces.layers.times import device_name

        settings = {
            "modules": MODULES,
            "epochs": self.epochs,
            "task": self.task,
            **asdict(Training(batches=self.batches)),
        }
        if not self.out.parent.is_dir():
            raise ProfileError(f"{self.out} cannot be written: there is no folder {self.out.parent}")
        if self.out.exists():
            table = load_measured(self.out)
            if table["settings"] != settings:
                raise ProfileError(f"{self.out} holds runs with other settings; name another file, or delete it")
            return table
        versions = {name: version(name) for name in ("torch", "numpy", "scipy")}
        machine = f"{device_name(torch.device('cpu'))}, Python {platform.python_version()}"
        options = ("epochs", "batches", "seeds", "task")
        changed = [
            f" --{name} {getattr(self, name)}" for name in options if getattr(self, name) != getattr(type(self), name)
        ]
        command = f"python -m traces measure-freezing {self.out}{''.join(changed)}"
        about = {"command": command, "machine": machine, "threads": self.threads, "versions": versions}
        return {**about, "settings": settings, "runs": []}

    def _train(self, table: dict[str, Any], missing: list[Run], total: int) -> None:
        import torch

        from traces.freezing_train import Trainer, Training

        torch.set_num_threads(self.threads)
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("runs, {task.description}"), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as progress:
            bar = progress.add_task("", total=total, completed=total - len(missing))
            for run in missing:
                progress.update(bar, description=f"{run.schedule}, {run.epochs} epochs, seed {run.seed}")
                began = time.process_time()
                curve = list(Trainer(Training(batches=self.batches), self.task, run.seed, run.depths).run())
                cpu_s = time.process_time() - began
                if not math.isfinite(curve[-1].loss):
                    raise ProfileError(f"schedule {run.schedule}, seed {run.seed}: the training diverged")
                table["runs"].append(row_of(run, curve, cpu_s))
                save(table, self.out)
                progress.advance(bar)


def row_of(run: Run, curve: Sequence[tuple[int, float, float]], cpu_s: float) -> dict[str, Any]:
    """A run as it stands in the file: test loss [nats] and accuracy after some of its epochs, the last one included."""
    at, loss, accuracy = zip(*curve, strict=True)
    measured = {"at": list(at), "loss": [round(x, 5) for x in loss], "accuracy": [round(x, 5) for x in accuracy]}
    return {**run._asdict(), "cpu_s": round(cpu_s, 2), "depths": run.depths, **measured}


def save(table: dict[str, Any], path: Path) -> None:
    """Write the file whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    write_table(table, part)
    part.replace(path)


def load_measured(path: Path = SHIPPED) -> dict[str, Any]:
    """A file of results; ProfileError if it is none."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProfileError(f"{path} cannot be read: {error}") from None
    if not isinstance(table, dict) or not {"settings", "runs"} <= set(table):
        raise ProfileError(f"{path} is no file of measure-freezing")
    return table


def print_results(console: Console, table: dict[str, Any]) -> None:
    """Every schedule, then the constants and how far off each predictor is."""
    rows = Table(title="Schedules; in brackets as predicted from the others", title_justify="left")
    for title in ("schedule", "test loss", "accuracy", "effective progress", "residual"):
        rows.add_column(title, justify="left" if title == "schedule" else "right")
    for name, row in table["schedules"].items():
        guess = row["predicted"]
        figures = (f"{row['loss']:.3f} ({guess['loss']:.3f})", f"{row['accuracy']:.1%} ({guess['accuracy']:.1%})")
        progress = f"{row['equivalent']:.2f} ({guess['progress']:.2f})"
        rows.add_row(name, *figures, progress, f"({guess['residual']:.2f})")
    console.print(rows)
    found = table["fit"]
    console.print(", ".join(f"{name} {value:.3g}" for name, value in found["constants"].items()))
    errors = Table(title="Mean error of the test loss of held-out schedules", title_justify="left", show_header=False)
    for name, (about, _, _) in PREDICTORS.items():
        errors.add_row(about, f"{found['held_out'][name]['mean']:.1%}")
    console.print(errors)
