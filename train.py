"""Train a scheduler by reinforcement learning, and say how to compare it with published ones.

python train.py --scenario rigid --trace synthetic-philly --algo maskable-ppo --steps 200000 --seed 0 --out runs/x
python train.py ... --out runs/x --resume           # the same flags; goes on from the last checkpoint
tensorboard --logdir runs/x                         # validation against the best baseline, Gantt, speed

Training, validation and test windows are disjoint in time: the agent learns on the first 60 % of the trace,
the best checkpoint is chosen on the next 20 %, and evaluate.py --split test judges on the rest.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agents.checkpoint import CheckpointError
from agents.config import TrainConfig, TrainError
from agents.trainer import Run, Trained, train
from agents.validation import WORDS, Validator, judge, measure_of
from baselines.policy import make_baseline, prepare
from envs.applying import SimulatorError
from envs.jit import COMPILING, is_compiled
from envs.scheduler import ListScheduler
from envs.settings import EnvSettings
from envs.simulate import simulate
from envs.spec import SCENARIOS, Scenario, SimConfig, SpecError, find_scenario
from traces.command_line import parse_arguments, run
from traces.load import load_trace
from traces.profiles import ProfileError
from traces.trace import TraceError

# Of a scenario's baselines those worth a run beside the agent's: quick, and no variants of each other.
COMPARED = (
    "fifo",
    "srtf",
    "tiresias",
    "optimus",
    "afs",
    "elastic-srtf",
    "icefrog:elastic-srtf",
    "lyra",
    "deepboot",
)
INPUT_ERRORS = (TraceError, ProfileError, SpecError, SimulatorError, TrainError, CheckpointError, OSError)


@dataclass(frozen=True)
class Arguments:
    """Train a scheduler by reinforcement learning."""

    scenario: str = "rigid"
    """Named defaults of --trace, --cluster, --objective and --sim.*."""
    trace: str = ""
    """A trace file in any supported format, or a built-in workload such as synthetic-philly?jobs=500."""
    trace_format: str | None = None
    """Format of the trace file, where it is not to be detected."""
    cluster: str = ""
    """Nodes x GPUs[:type], joined with + for mixed clusters."""
    out: Path = Path("runs/train")
    """Folder of the run."""
    resume: bool = False
    """Go on with the run in --out."""
    num_slots: int = 128
    """Jobs the agent sees at once; the others wait first come, first served."""
    window_jobs: int = 256
    """Jobs of an episode, which starts on an empty cluster."""
    edit_budget: int = 64
    """Edits of one scheduling pass at most."""
    profiles: Path | None = None
    """Folder of measured model profiles for elastic jobs, instead of the shipped ones."""
    objective: str = "jct"
    """What the reward measures: jct, jct_slo, jct_residual, makespan, p99_slowdown or finish_time_fairness."""
    slo_penalty_s: float = 60.0
    """What an inference task that is late costs, in seconds of a training job's JCT (objective jct_slo)."""
    residual_penalty: float = 10.0
    """What a job costs that completes with nothing converged, in its run times alone (objective jct_residual)."""
    train: Annotated[TrainConfig, tyro.conf.arg(name="")] = field(default_factory=TrainConfig)
    sim: SimConfig = field(default_factory=SimConfig)
    """Settings of the simulator."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0, 2 for input that cannot be used (one line on stderr), 130 for Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    interrupted = "interrupted; --resume goes on from the last checkpoint"
    return run("train.py", lambda: train_and_report(words), *INPUT_ERRORS, interrupted=interrupted)


def train_and_report(words: Sequence[str]) -> None:
    """The command typed as ``words``."""
    defaults = make_defaults(find_scenario(words))
    arguments = parse_arguments(Arguments, "train.py", words, default=defaults)
    report(arguments, run_training(arguments, words))


def make_defaults(scenario: Scenario) -> Arguments:
    return Arguments(
        scenario=scenario.name,
        trace=scenario.trace,
        cluster=scenario.cluster,
        sim=scenario.sim,
        objective=scenario.objective,
    )


def run_training(arguments: Arguments, words: Sequence[str]) -> Trained:
    """Train with a progress bar on stderr."""
    console = Console(stderr=True)
    if not is_compiled():
        console.print(COMPILING)
    settings = environment_of(arguments)
    measure = WORDS[measure_of(settings.objective)]
    name, value = best_baseline(settings, arguments.train)
    console.print(f"On the validation windows the best baseline is {name}, {measure} {value:,.0f} s.", soft_wrap=True)
    run = Run(arguments.train, settings, arguments.out, shlex.join(["python", "train.py", *words]), {name: value})
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("decisions"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("training", total=arguments.train.steps)
        shown: float | None = None

        def on_progress(decisions: int, best: float | None) -> None:
            nonlocal shown
            progress.update(bar, completed=decisions)
            if best != shown:
                shown = best
                said = f"{decisions:>9,} decisions: {measure} {best:,.0f} s on the validation windows"
                progress.print(said, soft_wrap=True)

        return train(run, arguments.resume, on_progress)


def environment_of(arguments: Arguments) -> EnvSettings:
    return EnvSettings(
        scenario=arguments.scenario,
        trace=load_trace(arguments.trace, arguments.trace_format),
        cluster=arguments.cluster,
        sim=arguments.sim,
        num_slots=arguments.num_slots,
        window_jobs=arguments.window_jobs,
        profiles=arguments.profiles,
        objective=arguments.objective,
        slo_penalty_s=arguments.slo_penalty_s,
        residual_penalty=arguments.residual_penalty,
        edit_budget=arguments.edit_budget,
    )


def best_baseline(settings: EnvSettings, config: TrainConfig) -> tuple[str, float]:
    """Baseline with the lowest measure [s] on the agent's validation windows, and that measure."""
    validator = Validator(settings, config.validation_windows, config.seed)
    trace, means = settings.source, {}
    for name in SCENARIOS[settings.scenario].baselines:
        runs = []
        for start in validator.starts.tolist():
            scheduler = cast(ListScheduler, prepare(make_baseline(name), trace.jobs, start))
            window = trace.window(start, settings.length)
            result = simulate(
                window, settings.cluster, scheduler, settings.sim, seed=config.seed, profiles=settings.models
            )
            runs.append(judge(result, settings)[validator.measure])
        means[name] = float(np.mean(runs))
    best = min(means, key=means.__getitem__)
    return best, means[best]


def report(arguments: Arguments, trained: Trained) -> None:
    """Print what training came to, and the command that judges it on jobs nothing has seen."""
    console = Console()
    best = "no validation window was finished"
    if trained.best_s is not None:
        measure = WORDS[measure_of(arguments.objective)]
        best = f"best {measure} {trained.best_s:,.0f} s on the validation windows"
    console.print(f"{trained.decisions:,} decisions, {best}. Compare it with published schedulers:", soft_wrap=True)
    flags = {"scenario": arguments.scenario, "trace": arguments.trace, "cluster": arguments.cluster}
    baselines = (name for name in SCENARIOS[arguments.scenario].baselines if name in COMPARED)
    words = ["--policies", *baselines, str(arguments.out)]
    words += [word for name, value in flags.items() for word in (f"--{name}", value)]
    words += ["--profiles", str(arguments.profiles)] if arguments.profiles is not None else []
    words += changed_settings(arguments)
    if trained.has_test_windows:
        words += ["--windows", "5", "--window-jobs", str(arguments.window_jobs), "--split", "test"]
    words += ["--out", str(arguments.out / "evaluation")]
    console.print(shlex.join(["python", "evaluate.py", *words]), soft_wrap=True, highlight=False)


def changed_settings(arguments: Arguments) -> list[str]:
    """The ``--sim.*`` flags that differ from the scenario's, as evaluate.py takes them."""
    words = []
    default = SCENARIOS[arguments.scenario].sim
    for name, value in asdict(arguments.sim).items():
        flag = name.replace("_", "-")
        if value != getattr(default, name):
            words += (
                [f"--sim.{flag}" if value else f"--sim.no-{flag}"]
                if isinstance(value, bool)
                else [f"--sim.{flag}", str(value)]
            )
    return words


if __name__ == "__main__":
    sys.exit(main())
