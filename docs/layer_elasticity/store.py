"""How a run of docs/layer-elasticity.md is made, and what is kept of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from baselines.policy import make_baseline
from docs.validation_runs import Run
from envs.simulate import Progress, RunResult, simulate
from envs.spec import ClusterSpec
from traces.load import load_trace
from traces.trace import Trace


@dataclass(frozen=True)
class Outcome:
    """What is kept of a run.

    By model: mean jct [s], number of jobs, mean and largest residual. 90th percentile of jct and makespan [s];
    GPU-hours held; changes of depth and rescales a job; CPU seconds.
    """

    jct_s: dict[str, float]
    jobs: dict[str, int]
    residual: dict[str, float]
    most_residual: dict[str, float]
    p90_s: float
    makespan_s: float
    gpu_h: float
    depth_changes: float
    rescales: float
    cpu_s: float
    same_code: bool = field(default=True, compare=False)

    @property
    def mean(self) -> float:
        """Mean jct [s]."""
        return self._over_jobs(self.jct_s)

    @property
    def mean_residual(self) -> float:
        return self._over_jobs(self.residual)

    def _over_jobs(self, values: dict[str, float]) -> float:
        return sum(values[model] * count for model, count in self.jobs.items()) / sum(self.jobs.values())


def execute(run: Run, on_jobs: Progress | None = None) -> Outcome:
    """Run it."""
    cluster, scheduler = ClusterSpec.parse(run.cluster), make_baseline(run.policy)
    result = simulate(_load(run.trace), cluster, scheduler, run.sim, seed=run.seed, progress=on_jobs)
    return make_outcome(run, result)


@lru_cache(maxsize=2)
def _load(name: str) -> Trace:
    return load_trace(name)


def make_outcome(run: Run, result: RunResult) -> Outcome:
    """What is kept of it; RuntimeError names a job that was not completed."""
    jobs = result.jobs
    for name in jobs["job_id"][jobs["jct_s"].isna()]:
        raise RuntimeError(f"run {run.label}: job {name} was not completed")
    models = jobs.groupby("model")

    def by_model(column: str, statistic: str) -> dict[str, float]:
        return {str(model): float(value) for model, value in models[column].agg(statistic).items()}

    return Outcome(
        jct_s=by_model("jct_s", "mean"),
        jobs={str(model): len(rows) for model, rows in models},
        residual=by_model("residual", "mean"),
        most_residual=by_model("residual", "max"),
        p90_s=float(jobs["jct_s"].quantile(0.9)),
        makespan_s=float(jobs["finish_s"].max() - jobs["arrival_s"].min()),
        gpu_h=float(jobs["service_gpu_s"].sum() / 3600),
        depth_changes=float(jobs["depth_changes"].mean()),
        rescales=float((jobs["num_rescales"] + jobs["num_preemptions"]).mean()),
        cpu_s=round(result.elapsed_s, 3),
    )
