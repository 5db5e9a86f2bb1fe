"""Speed of whole simulations: ``python -m benchmarks.replay_speed [--json] [--trace PATH]``.

A trace of rigid jobs is run whole under ordering schedulers on Philly's cluster and on a crowded one, and then in many
windows at once. A trace of elastic jobs is run whole under schedulers of those (benchmarks/elastic_replay.py).
Building the table of jobs is part of every figure but those that say otherwise. Figures are named ``philly`` and
``pollux`` whether the trace is the real one, given with --trace, or the synthetic one of equal size; the tables say
which.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from baselines import BASELINES
from baselines.hosts import Hosted
from baselines.policy import prepare
from benchmarks.elastic_replay import measure_fits, replay_elastic
from benchmarks.measure import Figures, console, measure, peak_memory_mb, print_figures, table
from envs.applying import SimulatorError
from envs.scheduler import ListScheduler
from envs.simulate import simulate, simulate_windows
from envs.spec import SCENARIOS, ClusterSpec, SpecError
from envs.workload import make_workload
from traces.command_line import UsageError, parse_arguments, run
from traces.load import load_trace
from traces.measured import read_profiles
from traces.profiles import ProfileError
from traces.trace import Trace, TraceError

SIM = SCENARIOS["rigid"].sim


@dataclass(frozen=True)
class Arguments:
    """Print jobs per CPU second, by scheduler and trace."""

    trace: tuple[str, ...] = ("synthetic-philly?jobs=82247", "synthetic-pollux")
    """Trace files or built-in workloads."""
    schedulers: tuple[str, ...] = ("fifo", "fifo-backfill", "srtf", "tiresias")
    """Baselines for rigid jobs, which are run wholly compiled."""
    elastic_schedulers: tuple[str, ...] = ("tiresias", "optimus", "afs", "elastic-srtf", "pollux")
    """Baselines for elastic jobs."""
    clusters: tuple[str, ...] = ("321x2+231x8", "58x8")
    """Clusters for the whole trace: by default Philly's own, and one that has long queues."""
    window_cluster: str = "16x4"
    """Cluster for the windows."""
    window_jobs: int = 256
    """Jobs in each window."""
    elastic_cluster: str = "16x4"
    """Cluster for elastic jobs."""
    profiles: str | None = None
    """A folder of measured model profiles for elastic jobs; by default the shipped ones."""
    repeats: int = 5
    """Repeats, of which the median and the best are printed."""
    json: bool = False
    """End with one line of JSON."""

    def __post_init__(self) -> None:
        if self.repeats < 1 or self.window_jobs < 1:
            raise UsageError("--repeats and --window-jobs must be at least 1")
        known = [name for name, cls in BASELINES.items() if not issubclass(cls, Hosted)]
        for name in (*self.schedulers, *self.elastic_schedulers):
            if name not in known:
                raise UsageError(f"unknown scheduler {name!r}; known are {', '.join(known)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, 2 for arguments that cannot be used, 130 for Ctrl-C."""
    prog = "python -m benchmarks.replay_speed"
    errors = (SpecError, SimulatorError, TraceError, ProfileError)
    return run(prog, lambda: benchmark(parse_arguments(Arguments, prog, argv, __doc__)), *errors)


def benchmark(arguments: Arguments) -> None:
    """Measure and print everything."""
    figures: Figures = {}
    for source in arguments.trace:
        trace = load_trace(source)
        elastic = bool(trace.jobs["duration_s"].isna().any())
        figures |= elastic_figures(trace, arguments) if elastic else rigid_figures(trace, arguments)
    figures["peak_memory_mb"] = peak_memory_mb()
    if arguments.json:
        print_figures(figures)


def rigid_figures(trace: Trace, arguments: Arguments) -> Figures:
    """A trace of rigid jobs, whole and in windows."""
    clusters = [ClusterSpec.parse(text) for text in arguments.clusters]
    schedulers = [cast(ListScheduler, prepare(BASELINES[name](), trace.jobs)) for name in arguments.schedulers]
    figures = replay(trace, clusters, schedulers, arguments.repeats)
    return figures | replay_windows(trace, schedulers, arguments)


def elastic_figures(trace: Trace, arguments: Arguments) -> Figures:
    """A trace of elastic jobs, and the fit of their speeds."""
    cluster = ClusterSpec.parse(arguments.elastic_cluster)
    profiles = None if arguments.profiles is None else read_profiles(arguments.profiles)
    schedulers: list[Any] = [prepare(BASELINES[name](), trace.jobs) for name in arguments.elastic_schedulers]
    figures = replay_elastic(trace, cluster, schedulers, profiles, arguments.repeats)
    return figures | measure_fits(arguments.repeats)


def replay(trace: Trace, clusters: Sequence[ClusterSpec], schedulers: Sequence[ListScheduler], repeats: int) -> Figures:
    """The whole trace, each scheduler on each cluster."""
    shown = table(
        f"A whole trace: {trace.name}, {len(trace):,} jobs",
        (
            "scheduler",
            "cluster",
            "CPU s",
            "best",
            "jobs/s",
            "events/s",
            "core alone [s]",
            "mean jct [s]",
            "memory [MB]",
        ),
        f"median of {repeats}; memory: the most that this process has held so far",
    )
    figures: Figures = {}
    for scheduler in schedulers:
        for cluster in clusters:
            once = partial(simulate, trace, cluster, scheduler, SIM)
            result = once()  # compiles
            timing = measure(once, repeats)
            speed, name = len(trace) / timing.median, f"{scheduler.name}.philly"
            figures[f"jobs_per_cpu_s.{name}"] = min(speed, figures.get(f"jobs_per_cpu_s.{name}", np.inf))
            figures[f"jobs_per_cpu_s.{name}.{cluster}"] = speed
            figures[f"cpu_s.{name}.{cluster}"] = timing.median
            jct = result.metrics()["mean_jct_s"]
            shown.add_row(
                scheduler.name, str(cluster), f"{timing.median:.3f}", f"{timing.best:.3f}", f"{speed:,.0f}",
                f"{result.num_events / timing.median:,.0f}", f"{once().elapsed_s:.3f}", f"{jct:,.0f}",
                f"{peak_memory_mb():,.0f}",
            )  # fmt: skip
    console().print(shown)
    return figures


def replay_windows(trace: Trace, schedulers: Sequence[ListScheduler], arguments: Arguments) -> Figures:
    """All windows of the trace, one after another, each scheduler."""
    length, cluster = arguments.window_jobs, ClusterSpec.parse(arguments.window_cluster)
    if len(trace) < length:
        raise UsageError(f"trace {trace.name} has {len(trace)} jobs, fewer than one window of {length}")
    starts = np.arange(0, len(trace) - length + 1, length)
    jobs = len(starts) * length
    shown = table(
        f"{len(starts)} windows of {length} jobs: {trace.name} on {cluster}",
        ("scheduler", "CPU s", "jobs/s", "best", "jobs/s without the table"),
        f"median of {arguments.repeats}",
    )
    building = measure(partial(make_workload, trace, cluster, SIM, 0), arguments.repeats)
    figures: Figures = {}
    for scheduler in schedulers:
        once = partial(simulate_windows, trace, cluster, scheduler.order(), SIM, starts, length)
        once()  # compiles
        timing = measure(once, arguments.repeats)
        alone = jobs / (timing.median - building.median)
        name = f"jobs_per_cpu_s.{scheduler.name}.windows{length}"
        figures |= {name: jobs / timing.median, f"{name}.best": jobs / timing.best, f"{name}.without_table": alone}
        shown.add_row(
            scheduler.name, f"{timing.median:.3f}", f"{jobs / timing.median:,.0f}", f"{jobs / timing.best:,.0f}",
            f"{alone:,.0f}",
        )  # fmt: skip
    console().print(shown)
    return figures


if __name__ == "__main__":
    sys.exit(main())
