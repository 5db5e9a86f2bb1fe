"""How a run of docs/sharing.md is made, and what is kept of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from baselines.policy import make_baseline
from docs.sharing_runs import Study
from docs.validation_runs import SHARED
from docs.validation_store import read_shared
from envs.simulate import Progress, RunResult, simulate
from envs.spec import ClusterSpec
from traces.generators import is_built_in
from traces.load import load_trace
from traces.trace import Trace


@dataclass(frozen=True)
class Outcome:
    """What is kept of a run.

    By model: mean jct of its training jobs [s] and their number. Of inference tasks: share that waited and started up
    longer than the objective, share that found a warm pod, mean latency [s]; NaN without tasks. ``taken``: times that
    inference took a GPU from training. ``pod_gpu_h``: GPU-hours of pods by state. CPU seconds.
    """

    jct_s: dict[str, float]
    jobs: dict[str, int]
    violations: float
    warm: float
    latency_s: float
    taken: int
    pod_gpu_h: dict[str, float]
    cpu_s: float
    same_code: bool = field(default=True, compare=False)

    @property
    def mean(self) -> float:
        """Mean jct of training jobs [s]."""
        return self.mean_without("")

    def mean_without(self, model: str) -> float:
        """The same of the jobs of other models only; NaN: there are none."""
        names = [name for name in self.jobs if name != model]
        total = sum(self.jct_s[name] * self.jobs[name] for name in names)
        return total / sum(self.jobs[name] for name in names) if names else float("nan")


def execute(run: Study, on_jobs: Progress | None = None) -> Outcome:
    """Run it."""
    cluster, profiles = ClusterSpec.parse(run.cluster), read_shared(run.profiles)
    scheduler = make_baseline(run.policy)
    result = simulate(workload(run), cluster, scheduler, run.sim, seed=run.seed, progress=on_jobs, profiles=profiles)
    return make_outcome(run, result)


def workload(run: Study) -> Trace:
    """The trace of a run, changed as it says.

    Requests are cut to half of the cluster: larger ones would be rejected where training is confined to that.
    """
    trace, half = _load(run.trace), ClusterSpec.parse(run.cluster).num_gpus // 2
    jobs, training = trace.jobs, trace.jobs["kind"] == "training"
    kept = jobs[(training & (jobs["model"] != run.without)) | (~training & run.tasks)]
    kept = kept.assign(arrival_s=kept["arrival_s"] * run.stretch, num_gpus=kept["num_gpus"].clip(upper=half))
    return replace(trace, jobs=kept.reset_index(drop=True))


@lru_cache(maxsize=2)
def _load(name: str) -> Trace:
    return load_trace(name if is_built_in(name) else SHARED / name)


def make_outcome(run: Study, result: RunResult) -> Outcome:
    """What is kept of it; RuntimeError names a job that was not completed."""
    for name in result.jobs["job_id"][result.jobs["jct_s"].isna()]:
        raise RuntimeError(f"run {run.label}: job {name} was not completed")
    jobs, tasks = (result.jobs[result.jobs["kind"] == kind] for kind in ("training", "inference"))
    by_model = jobs.groupby("model")["jct_s"]
    late = tasks["queueing_delay_s"] + tasks["paused_gpu_s"] > run.sim.slo_s
    return Outcome(
        jct_s={str(model): float(mean) for model, mean in by_model.mean().items()},
        jobs={str(model): int(count) for model, count in by_model.count().items()},
        violations=float(late.mean()) if len(tasks) else np.nan,
        warm=float(tasks["warm"].mean()) if len(tasks) else np.nan,
        latency_s=float(tasks["jct_s"].mean()) if len(tasks) else np.nan,
        taken=result.gpus_taken,
        pod_gpu_h={state: seconds / 3600 for state, seconds in result.pod_gpu_s.items()},
        cpu_s=round(result.elapsed_s, 3),
    )
