"""What a run is judged by: the columns of its job table and the metrics computed from them.

Both tables are data: the CSV writers, the results table, the report and the documentation are
derived from :data:`JOB_COLUMNS` and :data:`METRICS`. Means and percentiles are over completed
training jobs; jobs that did not complete are counted beside them, never dropped silently, and
inference tasks have metrics of their own. A group without jobs gives NaN, which prints as an empty cell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

if TYPE_CHECKING:
    from envs.simulate import RunResult

Floats = npt.NDArray[np.float64]

STATUSES = ("completed", "failed", "rejected", "unfinished")


class JobColumn(NamedTuple):
    """One column of a run's job table."""

    name: str
    dtype: str
    unit: str
    meaning: str


JOB_COLUMNS: tuple[JobColumn, ...] = (
    JobColumn("job_id", "str", "", "identifier in the trace"),
    JobColumn("kind", "str", "", "training or inference"),
    JobColumn("model", "str", "", "model profile; empty: none"),
    JobColumn("user", "str", "", "submitting user"),
    JobColumn("arrival_s", "float64", "s", "arrival"),
    JobColumn("first_start_s", "float64", "s", "first time it held GPUs; NaN: never"),
    JobColumn("finish_s", "float64", "s", "completion; NaN: not completed"),
    JobColumn("jct_s", "float64", "s", "finish - arrival; NaN: not completed"),
    JobColumn("queueing_delay_s", "float64", "s", "all time without GPUs while unfinished"),
    JobColumn("service_gpu_s", "float64", "GPU-s", "GPUs x time held, pauses included"),
    JobColumn("num_rescales", "int64", "", "changes of GPU count or nodes while running"),
    JobColumn("num_preemptions", "int64", "", "times all GPUs were taken away"),
    JobColumn("status", "str", "", "completed, rejected, failed or unfinished"),
    JobColumn("trace_status", "str", "", "final status in the source trace"),
    JobColumn("tenant", "str", "", "virtual cluster or team"),
    JobColumn("deadline_s", "float64", "s", "absolute deadline; NaN: none"),
    JobColumn("num_gpus", "int64", "GPUs", "GPUs requested"),
    JobColumn("share_milli", "int64", "1/1000 GPU", "share of one device"),
    JobColumn("duration_s", "float64", "s", "run time at num_gpus without pauses"),
    JobColumn("isolated_s", "float64", "s", "run time alone at num_gpus and the requested batch, without pauses"),
    JobColumn("paused_gpu_s", "float64", "GPU-s", "GPUs x time held in pauses; of an inference task, start-up"),
    JobColumn("service", "str", "", "inference service of an inference task"),
    JobColumn("freezing", "str", "", "preset of how its layers converge; empty: they are never frozen"),
    JobColumn("residual", "float64", "", "share of its layers' convergence that the job lacked when it ended"),
    JobColumn("depth_changes", "int64", "", "changes of the number of frozen layers"),
    JobColumn("lost_gpu_s", "float64", "GPU-s", "GPU-time held outside pauses that stragglers cost"),
    JobColumn("straggling_gpu_s", "float64", "GPU-s", "GPU-time of its workers while they straggled"),
    JobColumn("slowed_s", "float64", "s", "time run at less than 1 / 1.1 of its speed without stragglers"),
    JobColumn("warm", "bool", "", "whether an inference task found a warm pod"),
)


def request_gpus(jobs: pd.DataFrame) -> Floats:
    """(jobs,) float64 [GPUs]: ``num_gpus`` x ``share_milli`` / 1000."""
    return np.asarray(jobs["num_gpus"] * jobs["share_milli"] / 1000, dtype=np.float64)


def _completed(result: RunResult) -> pd.DataFrame:
    jobs = result.jobs
    return jobs[(jobs["kind"] == "training") & (jobs["status"] == "completed")]


def _training(result: RunResult) -> pd.DataFrame:
    return result.jobs[result.jobs["kind"] == "training"]


def _tasks(result: RunResult) -> pd.DataFrame:
    """Inference tasks that completed."""
    jobs = result.jobs
    return jobs[(jobs["kind"] == "inference") & (jobs["status"] == "completed")]


def _latency(result: RunResult) -> Floats:
    """(tasks,) float64 [s]: wait + start-up + run time."""
    return np.asarray(_tasks(result)["jct_s"], np.float64)


def _late(result: RunResult) -> Floats:
    """(tasks,) float64: 1 for a task that waited and started up longer than the objective, else 0."""
    tasks = _tasks(result)
    late = tasks["queueing_delay_s"] + tasks["paused_gpu_s"] > result.config.slo_s
    return np.asarray(late, dtype=np.float64)


def _residual(result: RunResult) -> Floats:
    """(jobs,) float64: what the layers of completed jobs lack, where they may be frozen."""
    jobs = _completed(result)
    return np.asarray(jobs["residual"][jobs["freezing"] != ""], np.float64)


def _of_running(result: RunResult, name: str) -> float:
    """A column of GPU-time over the GPU-time that completed jobs held outside pauses; NaN where nothing straggles."""
    if result.config.stragglers == "none":
        return np.nan
    jobs = _completed(result)
    held = float((jobs["service_gpu_s"] - jobs["paused_gpu_s"]).sum())
    return float(jobs[name].sum()) / held if held > 0 else np.nan


def _pods(result: RunResult, *states: str) -> float:
    """GPU-time of pods in some states [GPU-s]; NaN without inference."""
    return sum(result.pod_gpu_s[state] for state in states) if result.pod_gpu_s else np.nan


def mean(values: Floats) -> float:
    """Mean without NaN entries; NaN of nothing."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else np.nan


def percentile(values: Floats, q: float) -> float:
    """``q``-th percentile (linear) without NaN entries; NaN of nothing."""
    known = values[~np.isnan(values)]
    return float(np.percentile(known, q)) if known.size else np.nan


def _column(result: RunResult, name: str) -> Floats:
    return np.asarray(_completed(result)[name], dtype=np.float64)


def slowdown(jobs: pd.DataFrame) -> Floats:
    """(jobs,) float64: jct / isolated run time. NaN for a run time of 0, where the ratio means nothing."""
    alone = jobs["isolated_s"].to_numpy(np.float64)
    return np.asarray(jobs["jct_s"] / np.where(alone > 0, alone, np.nan), dtype=np.float64)


def mean_in_system(arrival: Floats, finish: Floats) -> Floats:
    """(jobs,) float64: jobs in the system, itself included, averaged over each job's own life.

    The number in the system is a step function; its integral is linear between events, so
    interpolating the integral at arrival and finish is exact. 1 for a life of length 0.
    """
    times = np.concatenate([arrival, finish])
    order = np.argsort(times, kind="stable")
    steps = np.repeat([1.0, -1.0], len(arrival))[order]
    times = times[order]
    integral = np.concatenate([[0.0], np.cumsum(np.cumsum(steps)[:-1] * np.diff(times))])
    life = finish - arrival
    area = np.interp(finish, times, integral) - np.interp(arrival, times, integral)
    return np.where(life > 0, area / np.where(life > 0, life, 1.0), 1.0)


def finish_time_fairness(jobs: pd.DataFrame, num_gpus: int) -> Floats:
    """(jobs,) float64: rho of each completed job, jct / isolated jct; NaN for a run time of 0.

    Isolated means alone on a 1/M share of the cluster (Themis, NSDI'20, section 4), M being the
    number of unfinished jobs averaged over the job's life. A rigid job that needs k GPUs and owns
    C/M of them runs the fraction C / (M k) of the time (Gavel, OSDI'20, "isolated" policy), so
    isolated jct = run time x max(1, k M / C). Above 1: it was served worse than by partitioning. An elastic
    job is taken as one of its request.
    """
    if jobs.empty:
        return np.empty(0)
    arrival = jobs["arrival_s"].to_numpy(np.float64)
    finish = jobs["finish_s"].to_numpy(np.float64)
    contention = request_gpus(jobs) * mean_in_system(arrival, finish) / num_gpus
    return slowdown(jobs) / np.maximum(1.0, contention)


def makespan(jobs: pd.DataFrame) -> float:
    """Last finish - first arrival [s]; NaN when nothing finished."""
    last = jobs["finish_s"].max()
    return float(last - jobs["arrival_s"].min()) if not jobs.empty else np.nan


def _fairness(result: RunResult) -> Floats:
    return finish_time_fairness(_completed(result), result.cluster.num_gpus)


def _capacity(result: RunResult) -> float:
    """GPU-seconds between the first arrival and the last finish; NaN when there are none."""
    span = makespan(_training(result))
    return result.cluster.num_gpus * span if span > 0 else np.nan


def _useful(result: RunResult) -> float:
    """GPU-seconds that completed rigid jobs need without pauses and lost work, and that elastic ones held unpaused."""
    jobs = _completed(result)
    needed = (request_gpus(jobs) * jobs["duration_s"]).fillna(jobs["service_gpu_s"] - jobs["paused_gpu_s"])
    return float(needed.sum())


def _total(result: RunResult, name: str) -> float:
    return float(_training(result)[name].sum())


def _count(result: RunResult, status: str) -> float:
    return float((_training(result)["status"] == status).sum())


class Metric(NamedTuple):
    """One number about a run: its name, unit, which direction is better, and its meaning."""

    name: str
    unit: str
    better: Literal["lower", "higher", ""]
    meaning: str
    compute: Callable[[RunResult], float]


METRICS: tuple[Metric, ...] = (
    Metric("mean_jct_s", "s", "lower", "mean job completion time", lambda r: mean(_column(r, "jct_s"))),
    Metric("median_jct_s", "s", "lower", "median jct", lambda r: percentile(_column(r, "jct_s"), 50)),
    Metric("p90_jct_s", "s", "lower", "90th percentile of jct", lambda r: percentile(_column(r, "jct_s"), 90)),
    Metric("p99_jct_s", "s", "lower", "99th percentile of jct", lambda r: percentile(_column(r, "jct_s"), 99)),
    Metric(
        "mean_queueing_delay_s",
        "s",
        "lower",
        "mean time without GPUs, re-queues included",
        lambda r: mean(_column(r, "queueing_delay_s")),
    ),
    Metric("makespan_s", "s", "lower", "last finish - first arrival", lambda r: makespan(_training(r))),
    Metric("mean_slowdown", "", "lower", "mean of jct / isolated run time", lambda r: mean(slowdown(_completed(r)))),
    Metric(
        "p99_slowdown", "", "lower", "99th percentile of slowdown", lambda r: percentile(slowdown(_completed(r)), 99)
    ),
    Metric(
        "finish_time_fairness",
        "",
        "lower",
        "mean rho: jct / jct on an equal share of the cluster",
        lambda r: mean(_fairness(r)),
    ),
    Metric("p99_finish_time_fairness", "", "lower", "99th percentile of rho", lambda r: percentile(_fairness(r), 99)),
    Metric(
        "utilisation_allocated",
        "",
        "higher",
        "GPU-time held / capacity, from first arrival to last finish",
        lambda r: _total(r, "service_gpu_s") / _capacity(r),
    ),
    Metric(
        "utilisation_useful",
        "",
        "higher",
        "GPU-time of completed jobs without pauses and lost work / capacity",
        lambda r: _useful(r) / _capacity(r),
    ),
    Metric("num_rescales", "", "lower", "migrations and changes of GPU count", lambda r: _total(r, "num_rescales")),
    Metric("num_preemptions", "", "lower", "times a job lost all its GPUs", lambda r: _total(r, "num_preemptions")),
    Metric("paused_gpu_s", "GPU-s", "lower", "GPU-time held in pauses", lambda r: _total(r, "paused_gpu_s")),
    Metric("decision_time_ms", "ms", "lower", "mean CPU time of a decision", lambda r: mean(r.decision_s) * 1e3),
    Metric("num_completed", "", "higher", "training jobs completed", lambda r: _count(r, "completed")),
    Metric("num_failed", "", "lower", "training jobs failed", lambda r: _count(r, "failed")),
    Metric("num_rejected", "", "lower", "training jobs that can never fit", lambda r: _count(r, "rejected")),
    Metric("num_unfinished", "", "lower", "training jobs left unfinished", lambda r: _count(r, "unfinished")),
    Metric("num_submitted", "", "", "training jobs submitted", lambda r: float(len(_training(r)))),
    Metric("mean_latency_s", "s", "lower", "mean latency of inference tasks", lambda r: mean(_latency(r))),
    Metric("median_latency_s", "s", "lower", "median latency", lambda r: percentile(_latency(r), 50)),
    Metric("p95_latency_s", "s", "lower", "95th percentile of latency", lambda r: percentile(_latency(r), 95)),
    Metric("p99_latency_s", "s", "lower", "99th percentile of latency", lambda r: percentile(_latency(r), 99)),
    Metric("slo_violations", "", "lower", "share of tasks served later than their objective", lambda r: mean(_late(r))),
    Metric(
        "warm_share",
        "",
        "higher",
        "share of tasks that found a warm pod",
        lambda r: mean(np.asarray(_tasks(r)["warm"], np.float64)),
    ),
    Metric("pod_start_gpu_s", "GPU-s", "lower", "GPU-time of pods starting up", lambda r: _pods(r, "start")),
    Metric("pod_running_gpu_s", "GPU-s", "", "GPU-time of pods serving tasks", lambda r: _pods(r, "running")),
    Metric(
        "pod_protect_gpu_s", "GPU-s", "lower", "GPU-time of idle pods that are protected", lambda r: _pods(r, "protect")
    ),
    Metric("pod_sleep_gpu_s", "GPU-s", "", "GPU-time of idle pods that training may have", lambda r: _pods(r, "sleep")),
    Metric(
        "gpus_taken",
        "",
        "lower",
        "times inference took a GPU from training",
        lambda r: float(r.gpus_taken) if r.pod_gpu_s else np.nan,
    ),
    Metric("mean_residual", "", "lower", "mean of what the layers of jobs lack", lambda r: mean(_residual(r))),
    Metric("max_residual", "", "lower", "most that the layers of a job lack", lambda r: percentile(_residual(r), 100)),
    Metric(
        "straggler_loss",
        "",
        "lower",
        "share of the GPU-time held outside pauses that stragglers cost",
        lambda r: _of_running(r, "lost_gpu_s"),
    ),
    Metric(
        "straggling_share",
        "",
        "lower",
        "share of that time in which the worker took 1.2 times as long as its job's fastest",
        lambda r: _of_running(r, "straggling_gpu_s"),
    ),
)


def compute_metrics(result: RunResult) -> dict[str, float]:
    """Every metric of :data:`METRICS` by name.

    Raises ``ValueError`` when a job's status is none of :data:`STATUSES`, so that completed +
    failed + rejected + unfinished = submitted always holds, and when a job has a negative jct.
    """
    unknown = set(result.jobs["status"]) - set(STATUSES)
    if unknown:
        raise ValueError(f"job status {sorted(unknown)[0]!r} is none of {', '.join(STATUSES)}")
    early = result.jobs.loc[result.jobs["jct_s"] < 0, "job_id"]
    if len(early):
        raise ValueError(f"job {early.iloc[0]} finished before it arrived")
    return {metric.name: metric.compute(result) for metric in METRICS}
