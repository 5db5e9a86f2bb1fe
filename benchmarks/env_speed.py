"""Speed of the environments: ``python -m benchmarks.env_speed [--json]``.

Masked random play with two shares of commits, since a commit costs an event and an edit does not; the plain figure
(``env_steps_per_cpu_s.rigid.256``) is the lower of the two. Everything is compiled and played once before the clock
runs, and actions are replayed (see benchmarks/random_play.py), so only the environment is timed. Elastic jobs are
measured two more ways: where schedulers know only what each job has run in (``elastic-online``), and with log-weights
as actions, which are counted in passes (``env_passes_per_cpu_s.elastic-weights.64``). Jobs with layers are measured
beside scenario elastic on their trace, which has neither the block of layers nor edits of depth
(``layer_share.256``: the lower share of its speed that is left, over equal numbers of steps in turn).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numba
import numpy as np

from benchmarks.measure import Figures, Timing, console, measure, peak_memory_mb, print_figures, table
from benchmarks.random_play import SEED, Recording, record, replay_single, replay_vector
from envs.batch import Batch
from envs.env import ClusterEnv
from envs.registration import register
from envs.settings import EnvSettings
from envs.spec import SCENARIOS, SpecError
from envs.vector_env import ClusterVectorEnv
from traces.command_line import UsageError, parse_arguments, run
from traces.trace import TraceError

COMMIT_SHARES = (0.1, 0.5)
COLUMNS = (
    "environment", "rows", "commits asked", "commits", "steps/s", "best", "ns/step", "events/s", "steps", "episodes",
)  # fmt: skip
NUM_SLOTS, WINDOW_JOBS, CLUSTER = 64, 64, "16x4"


@dataclass(frozen=True)
class Arguments:
    """Print environment steps per CPU second, by scenario and batch size, and what a learner feels of it."""

    scenarios: tuple[str, ...] = tuple(SCENARIOS)
    """Scenarios to measure."""
    batch: tuple[int, ...] = (1, 16, 256)
    """Numbers of environments stepped at once."""
    online_batch: int = 256
    """Environments of elastic jobs of which schedulers know only their runs."""
    weights_batch: int = 64
    """Environments whose actions are log-weights of elastic jobs."""
    seconds: float = 0.3
    """CPU seconds of a repeat, about."""
    repeats: int = 3
    """Repeats, of which the median and the best are printed."""
    threads: int = 1
    """Threads that step a batch; their CPU seconds add up."""
    learner_envs: int = 256
    """Environments of the learner; 0: leave it out."""
    rollout_steps: int = 32
    """Decisions of each of them between updates."""
    json: bool = False
    """End with one line of JSON."""

    def __post_init__(self) -> None:
        if min(self.repeats, self.threads, self.rollout_steps, *self.batch, self.online_batch, self.weights_batch) < 1:
            raise UsageError("--repeats, --threads, --rollout-steps and every --*batch must be at least 1")
        if not self.seconds > 0 or self.learner_envs < 0:
            raise UsageError("--seconds must be above 0 and --learner-envs at least 0")
        for name in self.scenarios:
            if name not in SCENARIOS:
                raise UsageError(f"unknown scenario {name!r}; known are {', '.join(SCENARIOS)}")


@dataclass(frozen=True)
class Row:
    """One environment with one share of commits."""

    key: str  # of the figures: scenario, size and kind
    unit: str  # what they count: steps or passes
    what: str
    commit_share: float
    recording: Recording
    timing: Timing

    @property
    def steps_per_s(self) -> float:
        return self.recording.num_steps / self.timing.median


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, 2 for arguments that cannot be used, 130 for Ctrl-C."""
    prog = "python -m benchmarks.env_speed"
    return run(prog, lambda: benchmark(parse_arguments(Arguments, prog, argv, __doc__)), SpecError, TraceError)


def benchmark(arguments: Arguments) -> None:
    """Measure and print everything."""
    register()
    figures: Figures = {}
    for scenario in arguments.scenarios:
        rows = measure_scenario(scenario, arguments)
        print_rows(scenario, rows, arguments)
        figures |= speeds(rows)
        if SCENARIOS[scenario].freezes:
            figures |= measure_beside_elastic(scenario, arguments)
        figures[f"memory_bytes_per_env.{scenario}"] = bytes_per_env(scenario)
        if arguments.learner_envs:
            figures |= measure_learners(scenario, arguments)
    figures["peak_memory_mb"] = peak_memory_mb()
    console().print(f"Peak memory {figures['peak_memory_mb']:.0f} MB")
    if arguments.json:
        print_figures(figures)


def scenario_settings(scenario: str) -> dict[str, Any]:
    """What an environment of the scenario is made from, its trace loaded once."""
    return {
        "scenario": scenario, "trace": EnvSettings(scenario).source, "cluster": CLUSTER,
        "num_slots": NUM_SLOTS, "window_jobs": WINDOW_JOBS,
    }  # fmt: skip


def measure_scenario(scenario: str, arguments: Arguments) -> list[Row]:
    """Every kind of environment with both shares of commits."""
    settings = scenario_settings(scenario)
    rows = []
    for size in arguments.batch:
        rows += measure_batch(f"{scenario}.{size}", size, settings, arguments)
    rows += measure_single(f"{scenario}.single", settings, arguments)
    return rows + measure_variants(settings, arguments) if scenario == "elastic" else rows


def measure_batch(key: str, size: int, settings: dict[str, Any], arguments: Arguments) -> list[Row]:
    """A vector environment that hands out its own arrays, and one that hands out copies."""
    made = {
        suffix: ClusterVectorEnv(size, copy=bool(suffix), threads=arguments.threads, **settings)
        for suffix in ("", ".copy")
    }
    rows = []
    for share in COMMIT_SHARES:
        record(made[""], share, 0.0)  # compiles
        recording = record(made[""], share, arguments.seconds)
        for suffix, env in made.items():
            timing = repeat(env, replay_vector(env, recording), arguments.repeats)
            what = "vector, copies" if suffix else "vector"
            rows.append(Row(key + suffix, "steps", what, share, recording, timing))
    return rows


def measure_variants(settings: dict[str, Any], arguments: Arguments) -> list[Row]:
    """Elastic jobs whose speed is known from their runs only, and passes decided by log-weights."""
    online = settings | {"sim": replace(SCENARIOS[settings["scenario"]].sim, knowledge="online")}
    weights = settings | {"action": "weights"}
    rows = []
    for name, unit, size, varied, shares in (
        ("online", "steps", arguments.online_batch, online, COMMIT_SHARES),
        ("weights", "passes", arguments.weights_batch, weights, (1.0,)),
    ):
        env = ClusterVectorEnv(size, copy=False, threads=arguments.threads, **varied)
        for share in shares:
            record(env, share, 0.0)  # compiles
            recording = record(env, share, arguments.seconds)
            timing = repeat(env, replay_vector(env, recording), arguments.repeats)
            rows.append(Row(f"elastic-{name}.{size}", unit, f"vector, {name}", share, recording, timing))
    return rows


def measure_beside_elastic(scenario: str, arguments: Arguments) -> Figures:
    """Share of the speed of scenario elastic on the same trace that is left where layers are seen and frozen."""
    size, settings = max(arguments.batch), scenario_settings(scenario)
    envs = [
        ClusterVectorEnv(size, copy=False, threads=arguments.threads, **settings | {"scenario": name})
        for name in ("elastic", scenario)
    ]
    shown = table(
        f"Environment steps per CPU second: {scenario} beside elastic on the same trace",
        ("commits asked", "elastic", scenario, "share"),
        f"vector, {size} rows; equal numbers of steps, in turn; median of {arguments.repeats}",
    )
    figures: Figures = {}
    for share in COMMIT_SHARES:
        record(envs[0], share, 0.0), record(envs[1], share, 0.0)  # compiles
        recordings = [record(envs[0], share, arguments.seconds)]
        recordings.append(record(envs[1], share, 0.0, len(recordings[0].actions)))
        replays = [replay_vector(env, recording) for env, recording in zip(envs, recordings, strict=True)]
        seconds = np.array([[repeat(e, r, 1).median for e, r in zip(envs, replays, strict=True)]
                            for _ in range(arguments.repeats)])  # fmt: skip
        left = float(np.median(seconds[:, 0] / seconds[:, 1]))
        speed = recordings[0].num_steps / np.median(seconds, axis=0)
        shown.add_row(f"{share:.0%}", f"{speed[0]:,.0f}", f"{speed[1]:,.0f}", f"{left:.3f}")
        figures[f"layer_share.{size}.commit{100 * share:.0f}"] = left
        figures[f"layer_share.{size}"] = min(left, figures.get(f"layer_share.{size}", np.inf))
    console().print(shown)
    return figures


def measure_single(key: str, settings: dict[str, Any], arguments: Arguments) -> list[Row]:
    """A single environment: itself and as ``gymnasium.make`` wraps it, each with Dict and with flat observations."""
    rows = []
    for suffix, flat in (("", False), (".flat", True)):
        bare = ClusterEnv(flat=flat, **settings)
        wrapped = gymnasium.make("musher/Cluster-v0", flat=flat, **settings)
        for share in COMMIT_SHARES:
            record(bare, share, 0.0)  # compiles
            recording = record(bare, share, arguments.seconds)
            for name, what, env in (("", "Env", bare), (".make", "gymnasium.make", wrapped)):
                timing = repeat(env, replay_single(env, recording), arguments.repeats)
                label = what + (", flat" if flat else "")
                rows.append(Row(key + name + suffix, "steps", label, share, recording, timing))
    return rows


def repeat(env: Any, replay: Callable[[], None], repeats: int) -> Timing:
    """Time ``replay`` from the recording's seeds on, several times, after one time unmeasured."""
    seconds: list[float] = []
    for i in range(repeats + 1):
        env.reset(seed=SEED)
        timing = measure(replay, 1)
        seconds += timing.seconds if i else ()
    return Timing(tuple(seconds))


def speeds(rows: Sequence[Row]) -> Figures:
    """Steps or passes per CPU second: of each share of commits, and the lowest as the plain figure."""
    figures: Figures = {}
    for row in rows:
        name = f"env_{row.unit}_per_cpu_s.{row.key}"
        commits = f"commit{100 * row.commit_share:.0f}"
        figures[name] = min(row.steps_per_s, figures.get(name, np.inf))
        figures[f"{name}.{commits}"] = row.steps_per_s
        figures[f"events_per_cpu_s.{row.key}.{commits}"] = row.recording.events / row.timing.median
    return figures


def bytes_per_env(scenario: str) -> int:
    """Memory of each row of a batch: records, results, observations and mask; job tables are shared."""
    return sum(value.nbytes for value in Batch(EnvSettings(**scenario_settings(scenario)), 1).snapshot().values())


def print_rows(scenario: str, rows: Sequence[Row], arguments: Arguments) -> None:
    """The table of one scenario."""
    shown = table(
        f"Environment steps per CPU second: {scenario}",
        COLUMNS,
        f"{SCENARIOS[scenario].trace}, windows of {WINDOW_JOBS} jobs, {NUM_SLOTS} slots, {CLUSTER}; whole observation "
        f"and mask; median of {arguments.repeats}; threads: {arguments.threads}; numba {numba.__version__}",
    )
    for row in rows:
        took = row.recording
        shown.add_row(
            row.what,
            str(took.actions.shape[1]),
            f"{row.commit_share:.0%}",
            f"{took.commits:.0%}",
            f"{row.steps_per_s:,.0f}",
            f"{took.num_steps / row.timing.best:,.0f}",
            f"{1e9 / row.steps_per_s:,.0f}",
            f"{took.events / row.timing.median:,.0f}",
            f"{took.num_steps:,}",
            f"{took.episodes:,}",
        )
    console().print(shown)


def measure_learners(scenario: str, arguments: Arguments) -> Figures:
    """Decisions per CPU second of MaskablePPO on clusters and on nothing."""
    import torch

    from benchmarks.learner_speed import measure_learner  # torch takes seconds to import

    torch.set_num_threads(1)
    settings = EnvSettings(**scenario_settings(scenario))
    size = arguments.learner_envs
    speed = measure_learner(settings, size, arguments.rollout_steps, arguments.repeats)
    rates = {name: speed.decisions / getattr(speed, name).median for name in ("clusters", "nothing")}
    shown = table(
        f"MaskablePPO, decisions per CPU second: {scenario}",
        ("environments", "clusters", "a do-nothing environment", "share"),
        f"whole rollouts and updates of {speed.decisions:,} decisions, in turn; median of {arguments.repeats}",
    )
    shown.add_row(str(size), f"{rates['clusters']:,.0f}", f"{rates['nothing']:,.0f}", f"{speed.share:.3f}")
    console().print(shown)
    return {
        f"learner_fps.{scenario}.{size}": rates["clusters"],
        f"learner_fps_nothing.{scenario}.{size}": rates["nothing"],
        f"learner_fps_share.{scenario}.{size}": speed.share,
    }


if __name__ == "__main__":
    sys.exit(main())
