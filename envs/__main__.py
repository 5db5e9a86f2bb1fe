"""Check that the simulator works on this machine, and compile it: ``python -m envs check``.

Exit code 0; 1 when a check fails, with one line that says which; 2 for arguments it does not take; 130 after Ctrl-C.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import gymnasium
import numba
import numpy as np
import numpy.typing as npt
import tyro
from gymnasium.envs.registration import load_env_creator
from gymnasium.utils.env_checker import check_env
from rich.console import Console

from envs.actions import COMMIT
from envs.batch import SAME_STEP, Batch
from envs.env import ClusterEnv
from envs.metrics import STATUSES
from envs.order import Key, ListOrder
from envs.registration import register
from envs.scheduler import Decision
from envs.settings import EnvSettings
from envs.simulate import RunResult, simulate, simulate_windows
from envs.spec import SCENARIOS, ClusterSpec, SimConfig
from envs.view import ClusterView
from traces.command_line import UsageError, one_line, parse_arguments, run
from traces.load import load_trace

PROG = "python -m envs"
TRACE, CLUSTER = "synthetic-philly?jobs=300", "16x4"
SIM = SCENARIOS["rigid"].sim
ROWS = 16  # environments of the determinism check


class CheckError(RuntimeError):
    """Something does not work; the message is one sentence."""


@dataclass(frozen=True)
class Arguments:
    """Check that the simulator works on this machine, and compile it ahead of time."""

    command: Annotated[Literal["check"], tyro.conf.Positional]
    """What to do."""
    speed_s: float = 0.5
    """CPU seconds of each of the two speed measurements."""

    def __post_init__(self) -> None:
        if not self.speed_s > 0:
            raise UsageError(f"--speed-s must be above 0, not {self.speed_s:g}")


@dataclass(frozen=True)
class Shortest:
    """Shortest remaining time first, compiled: it starts, preempts, resumes and moves jobs."""

    name: ClassVar[str] = "shortest"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"

    def order(self) -> ListOrder:
        return ListOrder(Key.REMAINING, preemptive=True)


@dataclass(frozen=True)
class ShortestInPython:
    """The same in Python: what a user's own scheduler calls."""

    name: ClassVar[str] = "shortest-in-python"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"

    def reset(self, view: ClusterView) -> None:
        """Nothing is kept between passes."""

    def allocate(self, view: ClusterView) -> Decision:
        slots = view.slots
        return view.pack(slots[np.lexsort((view.job_id[slots], view.oracle_remaining[slots]))].tolist(), preempt=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    try:
        return run(PROG, lambda: check(parse_arguments(Arguments, PROG, argv, __doc__)))
    except CheckError as error:
        print(f"check failed: {one_line(error)}", file=sys.stderr)
        return 1


def check(arguments: Arguments) -> None:
    """Do every check; raises CheckError at the first that fails."""
    console = Console() if sys.stdout.isatty() else Console(width=120)
    console.print(f"Compiled code is kept in {numba.config.CACHE_DIR}; the first run takes a minute or two.")  # type: ignore[attr-defined]
    stages: tuple[tuple[str, Callable[[], str]], ...] = (
        ("compile the environment", compile_environment),
        ("compile the simulator, up to 256 jobs at once", lambda: compile_simulator(256)),
        ("compile the simulator, up to 1024 jobs at once", lambda: compile_simulator(300)),
        ("compile what schedulers in Python call", compile_for_python),
        ("registry", check_registry),
        ("Gymnasium's checker", check_gymnasium),
        ("conservation of GPUs and jobs", check_conservation),
        ("determinism", check_determinism),
        ("speed", lambda: measure_speed(arguments.speed_s)),
    )
    for number, (name, stage) in enumerate(stages, 1):
        began = time.perf_counter()
        console.print(f"\\[{number}/{len(stages)}] {name} ...", end=" ")
        try:
            found = stage()
        except CheckError as error:
            console.print("failed")
            raise CheckError(f"{name}: {error}") from None
        except Exception as error:
            console.print("failed")
            raise CheckError(f"{name}: {type(error).__name__}: {error}") from error
        console.print(f"{found} ({time.perf_counter() - began:.1f} s)")


def compile_environment() -> str:
    batch = Batch(EnvSettings(trace=TRACE, cluster=CLUSTER), ROWS)
    batch.reset(np.arange(ROWS))
    for threads in (2, 1):  # each has its own loop over the rows
        batch.set_threads(min(threads, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
        batch.step(np.full(ROWS, COMMIT))
    return "ok"


def compile_simulator(jobs: int) -> str:
    simulate(load_trace(TRACE).window(0, jobs), ClusterSpec.parse(CLUSTER), Shortest(), SIM, record=True)
    return "ok"


def compile_for_python() -> str:
    """Jobs by a scheduler in Python have the same completion times as by the compiled one."""
    trace, cluster = load_trace(TRACE).window(0, 256), ClusterSpec.parse(CLUSTER)
    compiled, python = (simulate(trace, cluster, scheduler, SIM) for scheduler in (Shortest(), ShortestInPython()))
    if not compiled.jobs["finish_s"].equals(python.jobs["finish_s"]):
        raise CheckError("the same order gives other completion times in Python than compiled")
    return "ok"


def check_registry() -> str:
    """Every id of ours can be made, and every scenario's trace and cluster can be read."""
    register()
    ids = [name for name in gymnasium.registry if name.startswith("musher/")]
    for name in ids:
        made = gymnasium.make(name, trace=TRACE)
        if not isinstance(made.unwrapped, ClusterEnv):
            raise CheckError(f"{name} makes a {type(made.unwrapped).__name__}")
        load_env_creator(str(gymnasium.spec(name).vector_entry_point))
    for scenario in SCENARIOS.values():
        EnvSettings(scenario.name)
    return f"{', '.join(ids)}; scenarios {', '.join(SCENARIOS)}"


def check_gymnasium() -> str:
    """A warning of the checker counts as a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for flat in (False, True):
            # The checker draws actions without looking at the mask.
            env = gymnasium.make("musher/Cluster-v0", trace=TRACE, flat=flat, on_invalid="commit")
            check_env(env.unwrapped, skip_render_check=True)
    return "no complaint about Dict and flat observations"


def check_conservation() -> str:
    """Run a trace whose jobs are preempted and moved, and count every GPU-second and every job again."""
    trace, cluster = load_trace(TRACE), ClusterSpec.parse(CLUSTER)
    for config in (SIM, SimConfig(interval_s=60.0, placement="spread")):
        result = simulate(trace, cluster, Shortest(), config, record=True)
        count_again(result)
    preemptions = int(result.jobs["num_preemptions"].sum())
    return f"{len(trace)} jobs, {len(result.intervals)} GPU intervals, {preemptions} preemptions"


def count_again(result: RunResult) -> None:
    """Compare a recorded run with itself; raises CheckError for the first thing that does not add up."""
    jobs, held = result.jobs, result.intervals.sort_values(["gpu", "start_s"], kind="stable")
    same_gpu = held["gpu"].to_numpy()[1:] == held["gpu"].to_numpy()[:-1]
    overlaps = same_gpu & (held["start_s"].to_numpy()[1:] < held["end_s"].to_numpy()[:-1])
    if overlaps.any():
        row = held.iloc[int(np.flatnonzero(overlaps)[0]) + 1]
        job = jobs["job_id"].iloc[int(row["job"])]
        raise CheckError(
            f"GPU {row['gpu']:.0f} is given to job {job} at {row['start_s']:g} s, but another job holds it"
        )
    seconds = (held["end_s"] - held["start_s"]).groupby(held["job"]).sum().reindex(range(len(jobs)), fill_value=0.0)
    booked = jobs["service_gpu_s"].to_numpy(np.float64)
    wrong = np.flatnonzero(~np.isclose(seconds.to_numpy(np.float64), booked, rtol=1e-9, atol=1e-6))
    if len(wrong):
        job = jobs["job_id"].iloc[wrong[0]]
        raise CheckError(
            f"job {job} held GPUs for {seconds.iloc[wrong[0]]:g} GPU-s, but {booked[wrong[0]]:g} are booked"
        )
    least = (jobs["duration_s"] * jobs["num_gpus"]).where(jobs["status"] == "completed", 0.0).to_numpy(np.float64)
    short = np.flatnonzero(booked < least * (1 - 1e-9))
    if len(short):
        raise CheckError(f"job {jobs['job_id'].iloc[short[0]]} completed with less GPU-time than its work")
    counts = {status: int((jobs["status"] == status).sum()) for status in STATUSES}
    if sum(counts.values()) != len(result.trace) or counts["unfinished"] > 0:
        raise CheckError(f"of {len(result.trace)} jobs, {counts} were counted")


def check_determinism() -> str:
    """The same seeds and actions give the same numbers, however many rows there are and on however many threads."""
    settings = EnvSettings(trace=TRACE, cluster=CLUSTER)
    sizes = (ROWS, ROWS, ROWS // 2)
    batches = [Batch(settings, rows) for rows in sizes]
    batches[1].set_threads(min(2, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    for batch, rows in zip(batches, sizes, strict=True):
        batch.reset(np.arange(rows))
    for step in range(200):
        actions = choose(batches[0].mask, step)
        for batch, rows in zip(batches, sizes, strict=True):
            batch.step(actions[:rows])
            for name in ("obs", "mask", "reward"):
                if not np.array_equal(getattr(batch, name), getattr(batches[0], name)[:rows]):
                    raise CheckError(f"{name} differs between two batches after step {step}")
    batches[1].set_threads(1)
    return f"{ROWS} environments, 200 steps"


def choose(mask: npt.NDArray[np.bool_], step: int) -> npt.NDArray[np.int64]:
    """Actions (B,): commits and, at every other step, the first valid edit of each row."""
    edits = mask[:, 1:].argmax(axis=1) + 1
    can = mask[np.arange(len(mask)), edits]
    return np.where(can, edits, COMMIT) if step % 2 else np.full(len(mask), COMMIT)


def measure_speed(seconds: float) -> str:
    """Rough: benchmarks/ measures better."""
    batch = Batch(EnvSettings(cluster=CLUSTER), 256, SAME_STEP)
    batch.reset(np.arange(256))
    spent, steps = 0.0, 0
    while spent < seconds:
        actions = choose(batch.mask, steps)
        began = time.process_time()
        batch.step(actions)
        spent += time.process_time() - began
        steps += 1
    source, cluster = load_trace(SCENARIOS["rigid"].trace), ClusterSpec.parse(CLUSTER)
    starts = np.arange(0, len(source) - 255, 256)
    taken, jobs = 0.0, 0
    while taken < seconds:
        began = time.process_time()
        simulate_windows(source, cluster, Shortest().order(), SIM, starts, 256)
        taken += time.process_time() - began
        jobs += 256 * len(starts)
    return f"{256 * steps / spent:,.0f} environment steps and {jobs / taken:,.0f} simulated jobs per CPU second"


if __name__ == "__main__":
    sys.exit(main())
