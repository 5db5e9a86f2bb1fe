"""How a run of docs/stragglers.md is made, and what is kept of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from baselines.policy import make_baseline
from docs.straggler_study.runs import Probe
from docs.validation_runs import Run
from docs.validation_store import recall_as
from envs.simulate import Progress, RunResult, simulate
from envs.spec import ClusterSpec
from traces.load import load_trace
from traces.trace import Trace, make_trace

SIZES = ("1", "2-8", "9-64", "more")  # GPUs
LARGEST = (1, 8, 64)  # of all sizes but the last
COMM_SHARE = 0.4  # of a probe, as in the fit
FAR = 1.5  # how often its run time a probe must take to count as far slowed


@dataclass(frozen=True)
class Outcome:
    """What is kept of a run.

    Mean, 95th and 99th percentile of jct, mean queueing delay and makespan [s]. ``loss`` and ``straggling``: metrics
    straggler_loss and straggling_share; ``slowed``: share of the time that jobs ran, pauses left out, at less than
    1 / 1.1 of their speed. ``slowdown``: that time over the run time of the trace, mean and 99th percentile over jobs.
    ``moves``: changes of devices and preemptions. By class of size, those that there are: number of jobs, mean jct [s],
    mean run slowdown, straggler loss. CPU seconds.
    """

    mean_s: float
    p95_s: float
    p99_s: float
    queueing_s: float
    makespan_s: float
    loss: float
    straggling: float
    slowed: float
    slowdown: float
    p99_slowdown: float
    moves: float
    paused_gpu_h: float
    gpu_h: float
    utilisation: float
    cpu_s: float
    by_size: dict[str, dict[str, float]] = field(default_factory=dict)
    same_code: bool = field(default=True, compare=False)


@dataclass(frozen=True)
class Probed:
    """What is kept of probes: how many; shares slowed by more than 10 % at some time, and beyond FAR over all; by how
    much the jct of those slowed at some time exceeds their run time, on average, relative; CPU seconds."""

    count: int
    hit: float
    excess: float
    far: float
    cpu_s: float
    same_code: bool = field(default=True, compare=False)


def execute(run: Run, on_jobs: Progress | None = None) -> Outcome | Probed:
    """Run it."""
    if isinstance(run, Probe):
        return run_probes(run)
    cluster, scheduler = ClusterSpec.parse(run.cluster), make_baseline(run.policy)
    result = simulate(_load(run.trace), cluster, scheduler, run.sim, seed=run.seed, progress=on_jobs)
    return make_outcome(run, result)


def recall(folder: Path, run: Run, keep: bool = False) -> Outcome | Probed | None:
    """The result of a run or of probes, None if there is none that counts (docs/validation_store.py)."""
    if isinstance(run, Probe):
        return recall_as(Probed, folder, run, keep)
    return recall_as(Outcome, folder, run, keep)


@lru_cache(maxsize=2)
def _load(name: str) -> Trace:
    return load_trace(name)


def make_outcome(run: Run, result: RunResult) -> Outcome:
    """What is kept of it; RuntimeError names a job that was not completed."""
    for name in result.jobs["job_id"][result.jobs["jct_s"].isna()]:
        raise RuntimeError(f"run {run.label}: job {name} was not completed")
    jobs, found = result.jobs.assign(running_s=running_s(result.jobs)), result.metrics()
    slowdown = jobs["running_s"] / jobs["duration_s"]
    return Outcome(
        mean_s=found["mean_jct_s"],
        p95_s=float(jobs["jct_s"].quantile(0.95)),
        p99_s=found["p99_jct_s"],
        queueing_s=found["mean_queueing_delay_s"],
        makespan_s=found["makespan_s"],
        loss=found["straggler_loss"],
        straggling=found["straggling_share"],
        slowed=float(jobs["slowed_s"].sum() / jobs["running_s"].sum()),
        slowdown=float(slowdown.mean()),
        p99_slowdown=float(slowdown.quantile(0.99)),
        moves=found["num_rescales"] + found["num_preemptions"],
        paused_gpu_h=found["paused_gpu_s"] / 3600,
        gpu_h=float(jobs["service_gpu_s"].sum() / 3600),
        utilisation=found["utilisation_allocated"],
        cpu_s=round(result.elapsed_s, 3),
        by_size=by_size(jobs.assign(slowdown=slowdown)),
    )


def running_s(jobs: pd.DataFrame) -> pd.Series:
    """Time with GPUs but for pauses [s], of rigid jobs, whose number of GPUs is the same whenever they have some."""
    return (jobs["jct_s"] - jobs["queueing_delay_s"]) * (1 - jobs["paused_gpu_s"] / jobs["service_gpu_s"])


def by_size(jobs: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Number, mean jct [s], mean run slowdown and straggler loss of jobs by class of size."""
    classes = np.array(SIZES)[np.searchsorted(LARGEST, jobs["num_gpus"])]
    found = {}
    for size, rows in jobs.groupby(classes):
        held = float((rows["service_gpu_s"] - rows["paused_gpu_s"]).sum())
        found[str(size)] = {
            "jobs": float(len(rows)),
            "mean_s": float(rows["jct_s"].mean()),
            "slowdown": float(rows["slowdown"].mean()),
            "loss": float(rows["lost_gpu_s"].sum()) / held,
        }
    return found


def run_probes(run: Probe) -> Probed:
    """One job after the other, each with a seed of its own."""
    columns = {"job_id": ["probe"], "arrival_s": [0.0], "num_gpus": [run.gpus], "duration_s": [60 * run.minutes]}
    trace = make_trace("probe", {**columns, "comm_share": [COMM_SHARE]})
    cluster, scheduler, start = ClusterSpec.parse(run.cluster), make_baseline(run.policy), time.process_time()
    rows = [simulate(trace, cluster, scheduler, run.sim, seed=seed).jobs for seed in range(run.count)]
    jobs = pd.concat(rows, ignore_index=True)
    longer, hit = jobs["jct_s"] / jobs["duration_s"], jobs["slowed_s"] > 0
    return Probed(
        count=run.count,
        hit=float(hit.mean()),
        excess=float(longer[hit].mean() - 1) if hit.any() else 0.0,
        far=float((longer > FAR).mean()),
        cpu_s=round(time.process_time() - start, 3),
    )
