"""Look at, convert and generate traces, fit and measure profiles: ``python -m traces COMMAND``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from traces.command_line import parse_arguments, run
from traces.fit import table_of, write_table
from traces.generators import GENERATORS, build
from traces.load import load_trace
from traces.measure_freezing import MeasureFreezing
from traces.measured import read_profiles
from traces.musher_csv import write_trace
from traces.profile_layers import ProfileLayers
from traces.profiles import ProfileError
from traces.published import PUBLISHED, published
from traces.readers import READERS
from traces.report import print_report
from traces.toys import TOYS
from traces.trace import Trace, TraceError

Text = Annotated[str, tyro.conf.arg(metavar="NAME"), tyro.conf.Positional]
Source = Annotated[str, tyro.conf.arg(metavar="PATH|NAME"), tyro.conf.Positional]
Output = Annotated[Path, tyro.conf.arg(metavar="OUT.csv"), tyro.conf.Positional]


@dataclass(frozen=True)
class Info:
    """Describe a trace: sizes, durations, arrivals, tenants and rows left out."""

    source: Source
    """a trace file, or a built-in workload such as synthetic-philly?jobs=20000,seed=3"""
    trace_format: str | None = None
    """read the file as this format (see list) instead of detecting it"""
    cluster_gpus: int | None = None
    """also print the load that the trace offers to this many GPUs"""
    max_duration_s: float | None = None
    """cut longer durations to this many seconds"""

    def __call__(self) -> None:
        if self.cluster_gpus is not None and self.cluster_gpus < 1:
            raise TraceError(f"cluster_gpus is {self.cluster_gpus}, expected at least 1")
        print_report(Console(), load_trace(self.source, self.trace_format, self.max_duration_s), self.cluster_gpus)


@dataclass(frozen=True)
class Convert:
    """Write any trace as our own CSV."""

    source: Source
    """a trace file, or a built-in workload"""
    out: Output
    """file to write, whole or not at all"""
    trace_format: str | None = None
    """read the file as this format (see list) instead of detecting it"""
    max_duration_s: float | None = None
    """cut longer durations to this many seconds"""

    def __call__(self) -> None:
        _write(load_trace(self.source, self.trace_format, self.max_duration_s), self.out)


@dataclass(frozen=True)
class Generate:
    """Write a built-in workload as our own CSV."""

    name: Text
    """generator or toy (see list)"""
    out: Output
    """file to write, whole or not at all"""
    jobs: int | None = None
    """number of jobs (default 10000)"""
    seed: int | None = None
    """the same seed gives the same trace (default 0)"""
    mean_gap_s: float | None = None
    """mean time between arrivals in seconds, which sets the load (default 100)"""

    def __call__(self) -> None:
        given = {"jobs": self.jobs, "seed": self.seed, "mean_gap_s": self.mean_gap_s}
        query = ",".join(f"{key}={value}" for key, value in given.items() if value is not None)
        _write(build(f"{self.name}{',' if '?' in self.name else '?'}{query}" if query else self.name), self.out)


@dataclass(frozen=True)
class List:
    """List built-in workloads, file formats and public traces."""

    def __call__(self) -> None:
        console = Console()
        built_in = {name: generator.about for name, generator in GENERATORS.items()}
        toys = {name: f"{len(toy.trace)} jobs on {toy.cluster}; {toy.why}" for name, toy in TOYS.items()}
        formats = {name: f"{reader.about}: {reader.header}" for name, reader in READERS.items()}
        public = {name: f"{entry.title} ({entry.licence})" for name, entry in PUBLISHED.items()}
        for title, rows in (
            ("Built-in workloads", {**built_in, **toys}),
            ("File formats", formats),
            ("Public traces (python -m traces fetch NAME)", public),
        ):
            console.print(_pairs(title, rows))


@dataclass(frozen=True)
class Fetch:
    """Say where a public trace is published, on which terms, and how to read it; downloads nothing."""

    name: Text
    """public trace (see list)"""

    def __call__(self) -> None:
        entry = published(self.name)
        use = (
            f"python -m traces info FILE (format {entry.reader})"
            if entry.reader
            else "no reader yet: write our own CSV"
        )
        rows = {
            "what": entry.title,
            "where": entry.where,
            "files": entry.files,
            "licence": entry.licence,
            "cite": entry.cite,
            "to use it": use,
        }
        Console().print(_pairs(f"{self.name}: download it yourself", rows))


@dataclass(frozen=True)
class Fit:
    """Fit the throughput models of a folder of measured profiles (Pollux, Sia or DeepBoot format)."""

    folder: Annotated[Path, tyro.conf.arg(metavar="FOLDER"), tyro.conf.Positional]
    """folder with one folder a model"""
    out: Annotated[Path | None, tyro.conf.arg(metavar="OUT.json"), tyro.conf.Positional] = None
    """table of profiles to write (default: only print the errors)"""
    gpu_type: str | None = None
    """GPU type of files without one in their names (default aws); else the only type to read"""

    def __call__(self) -> None:
        profiles = table_of(read_profiles(self.folder, self.gpu_type), self.folder.resolve().name)
        errors = Table(title="Mean relative errors", title_justify="left")
        for title in ("model", "GPU type", "points", "step time", "compute time"):
            errors.add_column(title, justify="left" if title in ("model", "GPU type") else "right")
        for model, row in profiles["models"].items():
            for gpu_type, entry in row["types"].items():
                fit = entry["fit"]
                figures = (str(fit["points"]), f"{fit['step_error']:.1%}", f"{fit['compute_error']:.1%}")
                errors.add_row(model, gpu_type, *figures)
        Console().print(errors)
        if self.out is not None:
            write_table(profiles, self.out)
            print(f"{self.out}: {len(profiles['models'])} models")


def _write(trace: Trace, out: Path) -> None:
    """Write the trace; what was left out or changed goes into the provenance, and is printed."""
    changes = [f"{count} rows left out: {why}" for why, count in trace.skipped.items()]
    changes += [f"{count} rows changed: {what}" for what, count in trace.notes.items()]
    write_trace(replace(trace, provenance="; ".join([trace.provenance, *changes])), out)
    print("; ".join([f"{out}: {len(trace)} jobs", *changes]))


def _pairs(title: str, rows: dict[str, str]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, 2 (usage or input error, one line on stderr) or 130 (Ctrl-C)."""
    prog = "python -m traces"
    form = (
        Annotated[Info, tyro.conf.subcommand("info")]
        | Annotated[Convert, tyro.conf.subcommand("convert")]
        | Annotated[Generate, tyro.conf.subcommand("generate")]
        | Annotated[List, tyro.conf.subcommand("list")]
        | Annotated[Fetch, tyro.conf.subcommand("fetch")]
        | Annotated[Fit, tyro.conf.subcommand("fit")]
        | Annotated[ProfileLayers, tyro.conf.subcommand("profile-layers")]
        | Annotated[MeasureFreezing, tyro.conf.subcommand("measure-freezing")]
    )
    return run(prog, lambda: parse_arguments(form, prog, arguments, __doc__)(), TraceError, ProfileError)


if __name__ == "__main__":
    sys.exit(main())
