"""Compare schedulers on the same jobs: one table, best first, and a folder of results.

python evaluate.py --policies fifo srtf tiresias runs/x --trace synthetic-philly --cluster 16x4 --out runs/eval
python evaluate.py --trace philly.csv --windows 20 --split test --jobs 2

Every policy meets the same jobs and the same random numbers. Repetitions are windows x seeds; intervals are
95 % bootstrap intervals over them. See --help for all flags, and README.md for policies of your own.
"""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from baselines.parameters import PolicyError
from baselines.policy import AnyPolicy, is_published, make_policy, oracle_use, prepare, uses_seed
from envs.applying import SimulatorError
from envs.engine import Engine, EngineError, run_tasks
from envs.evaluation import Evaluation, make_folder, write_evaluation
from envs.jit import COMPILING, is_compiled
from envs.leaderboard import print_leaderboard
from envs.plots import clip_for_gantt
from envs.provenance import git_commit, trace_sha256, versions
from envs.results import Outcome, Policy
from envs.rollout import Policy as LearnedPolicy
from envs.rollout import rollout
from envs.scheduler import ListScheduler, Scheduler
from envs.simulate import simulate
from envs.spec import ClusterSpec, Scenario, SimConfig, SpecError, find_scenario
from envs.timeline import make_timeline
from traces.command_line import UsageError, parse_arguments, run
from traces.load import load_trace
from traces.measured import read_profiles
from traces.profiles import ProfileError
from traces.trace import Split, Trace, TraceError

INPUT_ERRORS = (TraceError, ProfileError, SpecError, PolicyError, SimulatorError, EngineError, OSError)
PRETRAINED = Path(__file__).resolve().parent / "agents" / "pretrained"


@dataclass(frozen=True)
class Arguments:
    """Compare schedulers on the same jobs and random numbers."""

    policies: tuple[str, ...] = ()
    """NAME[:HOST][?key=value,...] of a baseline, a run folder of train.py, pretrained:NAME, or module:Class of your
    own."""
    scenario: str = "rigid"
    """Named defaults of --trace, --cluster and --sim.*."""
    trace: str = ""
    """A trace file in any supported format, or a built-in workload such as synthetic-philly?jobs=500."""
    trace_format: str | None = None
    """Format of the trace file, where it is not to be detected."""
    cluster: str = ""
    """Nodes x GPUs[:type], joined with + for mixed clusters."""
    seeds: int = 1
    """Random seeds 0, 1, ...; a policy without randomness is run once."""
    out: Path = Path("runs/eval")
    """Folder of the results."""
    jobs: int = 1
    """Processes."""
    engine: Engine = "local"
    """Where runs happen: this machine, or the Ray cluster of RAY_ADDRESS."""
    window: str | None = None
    """START:LENGTH, one part of the trace: its first row, and its jobs; inference tasks among them do not count."""
    windows: int | None = None
    """Number of evenly spaced parts of the trace; none of these three: the whole split is one window."""
    window_jobs: int = 256
    """Jobs in each of --windows; inference tasks among them do not count."""
    split: Split = "all"
    """Part of the trace, by time."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where learned policies compute."""
    profiles: Path | None = None
    """Folder of measured model profiles for elastic jobs, instead of the shipped ones."""
    sim: SimConfig = field(default_factory=SimConfig)
    """Settings of the simulator."""

    def __post_init__(self) -> None:
        for name in ("seeds", "jobs", "window_jobs"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(self, name)}")


class Task(NamedTuple):
    """One run."""

    policy: str
    window: int
    seed: int
    draw: bool  # whether its Gantt chart is wanted


@dataclass(frozen=True)
class Context:
    """What all runs share."""

    trace: Trace
    cluster: ClusterSpec
    sim: SimConfig
    windows: tuple[tuple[int, int], ...]  # first job, number of jobs
    device: str
    profiles: Path | None

    def jobs_of(self, window: int) -> Trace:
        start, length = self.windows[window]
        whole = start == 0 and self.trace.window_stop(start, length) == len(self.trace)
        return self.trace if whole else self.trace.window(start, length)

    def count_rows(self, window: int) -> int:
        """Training jobs and inference tasks."""
        start, length = self.windows[window]
        return self.trace.window_stop(start, length) - start


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0, 2 for input that cannot be used (one line on stderr), 130 for Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    return run("evaluate.py", lambda: evaluate_and_print(words), *INPUT_ERRORS)


def evaluate_and_print(words: Sequence[str]) -> None:
    """The command typed as ``words``."""
    defaults = make_defaults(find_scenario(words))
    evaluation = evaluate(parse_arguments(Arguments, "evaluate.py", words, default=defaults), words)
    console = Console() if sys.stdout.isatty() else Console(width=200)
    print_leaderboard(evaluation.board, console)
    console.print(f"Results: {evaluation.folder}/  (report.html, summary.csv, jobs.csv, timeline.csv, plots/)")


def make_defaults(scenario: Scenario) -> Arguments:
    return Arguments(
        policies=scenario.baselines,
        scenario=scenario.name,
        trace=scenario.trace,
        cluster=scenario.cluster,
        sim=scenario.sim,
    )


def evaluate(arguments: Arguments, words: Sequence[str]) -> Evaluation:
    """Run everything that ``arguments`` (typed as ``words``) ask for, and write the results."""
    context = make_context(arguments)
    tasks = make_tasks(arguments, context)
    make_folder(arguments.out)
    outcomes = run_all(context, tasks, arguments)
    return write_evaluation(arguments.out, outcomes, context.cluster, describe(arguments, words, context))


def make_context(arguments: Arguments) -> Context:
    trace = load_trace(arguments.trace, arguments.trace_format)
    windows = choose_windows(arguments, trace)
    if arguments.profiles is not None:
        read_profiles(arguments.profiles)  # finds mistakes before hours of work
    cluster = ClusterSpec.parse(arguments.cluster)
    return Context(trace, cluster, arguments.sim, windows, arguments.device, arguments.profiles)


def choose_windows(arguments: Arguments, trace: Trace) -> tuple[tuple[int, int], ...]:
    """First job and length of each window."""
    if arguments.window is not None:
        start, colon, length = arguments.window.partition(":")
        if arguments.windows is not None or arguments.split != "all":
            raise UsageError("--window names one part of the trace, so it goes with neither --windows nor --split")
        if not (colon and start.isdecimal() and length.isdecimal()):
            raise UsageError(f"--window must be START:LENGTH in jobs, such as 0:256, not {arguments.window!r}")
        first = int(start)
        stop = first + len(trace.window(first, int(length)))
        return ((first, trace.count_jobs(first, stop)),)
    if arguments.windows is not None:
        if arguments.windows < 1:
            raise UsageError(f"--windows must be at least 1, not {arguments.windows}")
        starts = trace.window_starts(arguments.windows, arguments.window_jobs, arguments.split)
        return tuple((start, arguments.window_jobs) for start in starts)
    low, high = trace.split_range(arguments.split)
    if low == high:
        raise UsageError(f"the {arguments.split} split of trace {trace.name} has no jobs")
    return ((low, trace.count_jobs(low, high)),)


def make_tasks(arguments: Arguments, context: Context) -> list[Task]:
    """All runs; building every policy first finds mistakes before hours of work."""
    if not arguments.policies:
        raise UsageError("--policies names no policy")
    tasks = []
    for i, text in enumerate(arguments.policies):
        if text in arguments.policies[:i]:
            raise UsageError(f"--policies names {text} twice")
        with blame(text):
            scheduler = prepare(find_policy(text, context.device), context.trace.jobs, context.windows[0][0])
            seeds = arguments.seeds if uses_seed(scheduler, context.sim) else 1
        for window in range(len(context.windows)):
            tasks += [Task(text, window, seed, draw=seed == 0) for seed in range(seeds)]
    return tasks


def find_policy(text: str, device: str) -> AnyPolicy:
    def load_run(folder: Path) -> AnyPolicy:
        from agents.checkpoint import CheckpointError  # imports torch, which baselines can do without
        from agents.policy import load_policy

        try:
            return load_policy(folder, device)
        except CheckpointError as error:
            raise PolicyError(str(error)) from None

    return make_policy(text, load_run, PRETRAINED)


@contextmanager
def blame(text: str) -> Iterator[None]:
    """Name the policy, file and line of an exception in a user's scheduler; baselines' bugs are ours to see."""
    try:
        yield
    except INPUT_ERRORS:
        raise
    except Exception as error:
        if is_published(text):
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise PolicyError(
            f"policy {text} raised {type(error).__name__}: {error} ({place.filename}, line {place.lineno})"
        ) from error


def run_all(context: Context, tasks: Sequence[Task], arguments: Arguments) -> list[Outcome]:
    """All outcomes in the order of ``tasks``, with a progress bar in jobs on stderr."""
    sizes = [context.count_rows(task.window) for task in tasks]
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    if not is_compiled():
        console.print(COMPILING)
    with Progress(*columns, TextColumn("jobs"), TimeElapsedColumn(), console=console) as progress:
        bar = progress.add_task("simulating", total=sum(sizes))
        done = 0

        def on_done(task: Task) -> None:
            nonlocal done
            done += context.count_rows(task.window)
            progress.update(bar, completed=done)

        def on_jobs(finished: int, _: int) -> None:
            progress.update(bar, completed=done + finished)

        here = arguments.engine == "local" and arguments.jobs == 1
        work = partial(run_one, on_jobs=on_jobs) if here else run_one
        return run_tasks(work, context, tasks, arguments.jobs, arguments.engine, on_done)


def run_one(context: Context, task: Task, on_jobs: Callable[[int, int], None] | None = None) -> Outcome:
    """One policy on one window with one seed."""
    window = context.jobs_of(task.window)
    with blame(task.policy):
        found = find_policy(task.policy, context.device)
        scheduler = prepare(found, context.trace.jobs, context.windows[task.window][0])
        profiles = None if context.profiles is None else read_profiles(context.profiles)
        options: dict[str, Any] = {"seed": task.seed, "record": True, "progress": on_jobs, "profiles": profiles}
        if isinstance(scheduler, LearnedPolicy):
            result = rollout(window, context.cluster, context.sim, scheduler, **options)
        else:
            result = simulate(
                window, context.cluster, cast(Scheduler | ListScheduler, scheduler), context.sim, **options
            )
    oracle = oracle_use(scheduler, context.sim)
    return Outcome(
        Policy(task.policy, scheduler.batch, oracle, is_published(task.policy)),
        task.window,
        task.seed,
        result.metrics(),
        result.jobs,
        make_timeline(result.jobs, result.intervals),
        clip_for_gantt(window, result.intervals if task.draw else result.intervals.head(0)),
    )


def describe(arguments: Arguments, words: Sequence[str], context: Context) -> dict[str, Any]:
    """Everything needed to run this again."""
    trace = context.trace
    return {
        "command": shlex.join(["python", "evaluate.py", *words]),
        "arguments": {**asdict(arguments), "out": str(arguments.out), "profiles": _text(arguments.profiles)},
        "sim": asdict(context.sim.resolve()),
        "cluster": {"text": str(context.cluster), "num_gpus": context.cluster.num_gpus},
        "trace": {"name": trace.name, "jobs": len(trace), "provenance": trace.provenance, "notes": trace.notes,
                  "sha256": trace_sha256(trace)},
        "windows": [{"start": start, "jobs": length} for start, length in context.windows],
        "seeds": list(range(arguments.seeds)),
        "versions": versions(),
        "git_commit": git_commit(),
    }  # fmt: skip


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


if __name__ == "__main__":
    sys.exit(main())
