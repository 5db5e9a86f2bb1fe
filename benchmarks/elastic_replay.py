"""Speed of schedulers of elastic jobs on one workload, and of the fit by which jobs learn their own speed.

A run is split into what its scheduler decided and the simulator's own work; of schedulers that run compiled inside the
simulator only the sum is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.measure import Figures, Timing, console, measure, table
from envs.online_fit import NUM_PARAMS, SCRATCH_ROWS, fit
from envs.scheduler import ListScheduler, Scheduler
from envs.simulate import RunResult, simulate
from envs.spec import SCENARIOS, ClusterSpec
from envs.workload import Profiles
from traces.profiles import Throughput, TypeProfile, load_profiles
from traces.trace import Trace

SIM = SCENARIOS["elastic"].sim
LONG_S = 10.0  # CPU seconds after which a run is not repeated
FIT_POINTS = (1, 2, 5, 10, 20, 50, 100)
FITS, NOISE = 10, 0.05  # jobs of each model that are fitted, and the spread of the times they saw
NODES, NODE_GPUS = 16, 4  # where they ran

Points = npt.NDArray[np.float64]


class TimedRun(NamedTuple):
    """A run and the CPU seconds it took, those for building its tables included."""

    cpu_s: float
    result: RunResult


def replay_elastic(
    trace: Trace,
    cluster: ClusterSpec,
    schedulers: Sequence[Scheduler | ListScheduler],
    profiles: Profiles | None,
    repeats: int,
) -> Figures:
    """The whole trace under each scheduler; ``profiles`` None: the shipped ones."""
    shown = table(
        f"Elastic jobs: {trace.name}, {len(trace):,} jobs on {cluster}",
        (
            "scheduler", "CPU s", "best", "jobs/s", "decisions [s]", "simulator [s]", "passes", "ms a decision",
            "mean jct [s]",
        ),
        f"median of {repeats}, fewer of what takes {LONG_S:.0f} s; in the CPU seconds are also the tables of speeds; "
        f"profiles: {'shipped' if profiles is None else 'given'}",
    )  # fmt: skip
    figures: Figures = {}
    for scheduler in schedulers:
        runs = time_runs(partial(simulate, trace, cluster, scheduler, SIM, profiles=profiles), repeats)
        timing, result = Timing(tuple(run.cpu_s for run in runs)), runs[(len(runs) - 1) // 2].result
        name = f"{scheduler.name}.pollux"
        figures |= {f"jobs_per_cpu_s.{name}": len(trace) / timing.median, f"cpu_s.{name}": timing.median}
        decisions = simulator = each = "-"
        if not isinstance(scheduler, ListScheduler):
            decided = float(result.decision_s.sum())
            figures |= {f"decision_s.{name}": decided, f"simulator_s.{name}": result.elapsed_s - decided}
            decisions, simulator = f"{decided:.3f}", f"{result.elapsed_s - decided:.3f}"
            each = f"{1e3 * result.decision_s.mean():.3f}"
        shown.add_row(
            scheduler.name, f"{timing.median:.3f}", f"{timing.best:.3f}", f"{len(trace) / timing.median:,.0f}",
            decisions, simulator, f"{result.num_passes:,}", each, f"{result.metrics()['mean_jct_s']:,.0f}",
        )  # fmt: skip
    console().print(shown)
    return figures


def time_runs(once: Callable[[], RunResult], repeats: int) -> list[TimedRun]:
    """Runs in order of their CPU seconds, at most ``repeats``, after one that compiles."""
    once()
    runs: list[TimedRun] = []
    while len(runs) < repeats and sum(run.cpu_s for run in runs) < LONG_S:
        began = time.process_time()
        result = once()
        runs.append(TimedRun(time.process_time() - began, result))
    return sorted(runs, key=lambda run: run.cpu_s)


def measure_fits(repeats: int) -> Figures:
    """Microseconds of one fit by the number of points that the job has been observed at."""
    shown = table(
        "The fit of a job's speed to its runs",
        ("points", "us a fit", "best"),
        f"median of {repeats}, each {FITS} jobs of every shipped model on up to {NODES} nodes of {NODE_GPUS} GPUs",
    )
    figures: Figures = {}
    for count in FIT_POINTS:
        jobs = drawn_jobs(count)
        once = partial(fit_all, jobs)
        once()  # compiles
        timing = measure(once, repeats)
        figures[f"fit_us.{count}"] = 1e6 * timing.median / len(jobs)
        shown.add_row(str(count), f"{figures[f'fit_us.{count}']:,.1f}", f"{1e6 * timing.best / len(jobs):,.1f}")
    console().print(shown)
    return figures


def drawn_jobs(count: int) -> list[Points]:
    """Points (count, 5) of FITS jobs of every shipped model on its first GPU type."""
    rng = np.random.default_rng(0)
    types = [next(iter(profile.types.values())) for profile in load_profiles().values()]
    return [draw_points(kind, count, rng) for kind in types for _ in range(FITS)]


def draw_points(kind: TypeProfile, count: int, rng: np.random.Generator) -> Points:
    """Different (nodes, GPUs, micro-batch) and the seconds (grad, step) that a job saw there, as envs.online keeps."""
    places: dict[tuple[int, int, int], None] = {}  # in the order drawn
    while len(places) < count:
        nodes = int(rng.integers(1, NODES + 1))
        gpus = int(rng.integers(nodes, nodes * NODE_GPUS + 1))
        places[nodes, gpus, int(rng.integers(kind.min_local, kind.max_local + 1))] = None
    drawn = np.array(list(places), np.float64)
    model: Throughput = kind.throughput
    seconds = np.column_stack(model.times(drawn[:, 0] > 1, drawn[:, 1], drawn[:, 2]))
    return np.column_stack([drawn, seconds * rng.lognormal(0.0, NOISE, seconds.shape)])


def fit_all(jobs: Sequence[Points]) -> None:
    """Fit every job once."""
    params, scratch = np.empty(NUM_PARAMS), np.empty((SCRATCH_ROWS + len(jobs[0]), NUM_PARAMS))
    for points in jobs:
        fit(points, len(points), params, scratch)
