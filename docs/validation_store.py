"""How a run of docs/validation.md is made, and where its result is kept.

A result is one JSON file. It counts as long as the run's settings, its trace, its profiles and the code that decides
when its jobs end are what they were; comments, docstrings and code that no job's end depends on may change.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from baselines import BASELINES
from baselines.policy import make_baseline
from docs.validation_runs import ROOT, SHARED, Run
from envs.simulate import RunResult, simulate
from envs.spec import ClusterSpec, SimConfig
from traces.generators import is_built_in
from traces.load import load_trace
from traces.measured import read_profiles
from traces.profiles import ModelProfile
from traces.trace import Trace

R = TypeVar("R")

# Says what a run came to, not how it went.
NO_MATTER = {"envs.metrics", "envs.provenance"}


@dataclass(frozen=True)
class Result:
    """What is kept of a run.

    By training job: jct [s], number of restarts, first start [s] and time without GPUs [s]. GPU-hours counted in whole
    rounds; CPU seconds. By inference task: latency [s]; how many found a warm pod; GPUs they took from training.
    """

    jct_s: dict[str, float]
    restarts: dict[str, int]
    round_gpu_h: float
    passes: int
    cpu_s: float
    first_start_s: dict[str, float] = field(default_factory=dict)
    waited_s: dict[str, float] = field(default_factory=dict)
    latency_s: dict[str, float] = field(default_factory=dict)
    num_warm: int = 0
    num_taken: int = 0
    same_code: bool = field(default=True, compare=False)

    @property
    def mean(self) -> float:
        """Mean jct of training jobs [s]."""
        return float(np.mean(list(self.jct_s.values())))

    @property
    def mean_latency(self) -> float:
        """Mean latency of inference tasks [s]."""
        return float(np.mean(list(self.latency_s.values())))


def execute(run: Run, on_jobs: Callable[[int, int], None] | None = None) -> Result:
    """Run it; only what comes after the code is loaded counts as CPU seconds."""
    trace = load_trace(SHARED / run.trace)
    cluster, profiles = ClusterSpec.parse(run.cluster), read_shared(run.profiles)
    _load_code(run, trace)
    result = simulate(
        trace,
        cluster,
        make_baseline(run.policy),
        run.sim,
        seed=run.seed,
        record=True,
        progress=on_jobs,
        profiles=profiles,
    )
    return make_result(run, result)


def make_result(run: Run, result: RunResult) -> Result:
    """What is kept of it; RuntimeError names a job that was not completed."""
    for name in result.jobs["job_id"][result.jobs["jct_s"].isna()]:
        raise RuntimeError(f"run {run.label}: job {name} was not completed")
    rows = result.jobs.assign(restarts=result.jobs["num_rescales"] + result.jobs["num_preemptions"])
    jobs, tasks = rows[rows["kind"] == "training"], rows[rows["kind"] == "inference"]
    return Result(
        jct_s=_by_job(jobs, "jct_s"),
        restarts=_by_job(jobs, "restarts"),
        round_gpu_h=round_gpu_hours(result),
        passes=result.num_passes,
        cpu_s=round(result.elapsed_s, 3),
        first_start_s=_by_job(jobs, "first_start_s"),
        waited_s=_by_job(jobs, "queueing_delay_s"),
        latency_s=_by_job(tasks, "jct_s"),
        num_warm=int(tasks["warm"].sum()),
        num_taken=result.gpus_taken,
    )


def _by_job(rows: pd.DataFrame, column: str) -> dict[str, Any]:
    return dict(zip(rows["job_id"].tolist(), rows[column].tolist(), strict=True))


def round_gpu_hours(result: RunResult) -> float:
    """GPU-hours as round-based simulators count them: whoever holds a GPU holds it to the end of the round."""
    held, step = result.intervals, result.config.interval_s
    if step == 0:
        return float((held["end_s"] - held["start_s"]).sum()) / 3600
    return float((np.ceil(held["end_s"] / step - 1e-6) - held["start_s"] / step).sum()) * step / 3600


def _load_code(run: Run, trace: Trace) -> None:
    """Compile or load what runs of this policy and number of jobs need, by one such run with little search."""
    key = (run.policy, len(trace), run.cluster, run.sim, run.profiles)
    if key in _loaded:
        return
    quick = "pollux?generations=2,population=10" if run.policy.startswith("pollux") else run.policy
    cluster, profiles = ClusterSpec.parse(run.cluster), read_shared(run.profiles)
    simulate(trace, cluster, make_baseline(quick), run.sim, record=True, profiles=profiles)
    _loaded.add(key)


_loaded: set[tuple[object, ...]] = set()


@cache
def read_shared(folder: str | None) -> Mapping[str, ModelProfile] | None:
    """Profiles in a folder of measured data; None: the shipped ones."""
    return None if folder is None else read_profiles(SHARED / folder)


def store(folder: Path, run: Run, result: Any) -> None:
    """Write a result, a dataclass with ``same_code``, whole or not at all."""
    kept = asdict(result)
    del kept["same_code"]
    path = folder / f"{run.label}.json"
    path.with_suffix(".part").write_text(json.dumps({"run": asdict(run), "digest": digest(run), **kept}))
    path.with_suffix(".part").replace(path)


def recall(folder: Path, run: Run, keep: bool = False) -> Result | None:
    """The result of a run; None if there is none, or none of this code and data. ``keep``: of older code will do."""
    return recall_as(Result, folder, run, keep)


def recall_as(kind: Callable[..., R], folder: Path, run: Run, keep: bool = False) -> R | None:
    """:func:`recall` of what a study keeps of its runs."""
    current = digest(run)  # first, so that a file edited while runs go on is not taken for the one that they use
    try:
        kept = json.loads((folder / f"{run.label}.json").read_text())
    except (OSError, ValueError):
        return None
    same, settings = kept.pop("digest") == current, kept.pop("run")
    settings["sim"] = asdict(SimConfig()) | settings["sim"]  # a setting that is newer than the result was not changed
    if settings != json.loads(json.dumps(asdict(run))) or not (same or keep):
        return None
    return kind(**kept, same_code=same)


@cache
def digest(run: Run) -> str:
    """Of the code that decides when the jobs of a run end, and of what it reads."""
    found = hashlib.sha256()
    policies = (BASELINES[name].__module__ for name in run.policy.partition("?")[0].split(":"))
    for module in sorted(_closure(("envs.simulate", "traces.measured", *policies, *run.code))):
        found.update(_code(_file(module)).encode())
    for name in filter(None, (run.trace, run.profiles)):
        found.update(name.encode() if is_built_in(name) else _data(name))
    if run.profiles is None or run.sim.knowledge == "profile":
        found.update((ROOT / "traces/model_profiles.json").read_bytes())
    return found.hexdigest()[:16]


def _closure(starts: tuple[str, ...]) -> set[str]:
    """Modules of ours that ``starts`` import, and they themselves."""
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        module = waiting.pop()
        if module not in found | NO_MATTER and _file(module).exists():
            found.add(module)
            waiting += _imports(module)
    return found


def _file(module: str) -> Path:
    return ROOT / f"{module.replace('.', '/')}.py"


@cache
def _imports(module: str) -> tuple[str, ...]:
    text = _file(module).read_text()
    return tuple(re.findall(r"^\s*from ((?:envs|traces|baselines)\.\w+) import", text, re.MULTILINE))


@cache
def _code(path: Path) -> str:
    """A source file without its comments and docstrings."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


@cache
def _data(name: str) -> bytes:
    """Digest of a file, or of the CSV files of a folder."""
    path, found = SHARED / name, hashlib.sha256()
    for file in sorted(path.rglob("*.csv")) if path.is_dir() else [path]:
        found.update(file.read_bytes())
    return found.digest()
