"""The numbers that describe a workload: what to look at before scheduling it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from traces.trace import Trace

DURATION_QUANTILES = (0.1, 0.5, 0.9, 0.99)


def kinds(trace: Trace) -> list[str]:
    """Kinds of work in the trace, training first; they are never described together."""
    return [kind for kind in ("training", "inference") if (trace.jobs["kind"] == kind).any()]


def statistics(trace: Trace, kind: str = "training") -> dict[str, float]:
    """Statistics of the jobs of one kind; NaN where there is nothing to compute from.

    ``cv_gap`` is the standard deviation over the mean of the gaps between arrivals, ``dispersion`` the variance over
    the mean of hourly counts. Durations and GPU-time are of the jobs with a known duration, ``known_durations``.
    """
    jobs = trace.jobs[trace.jobs["kind"] == kind]
    arrivals = jobs["arrival_s"].to_numpy()
    gaps = np.diff(arrivals)
    hourly = np.bincount((arrivals // 3600).astype(np.int64)) if len(jobs) else np.zeros(1)
    gpus = gpus_of(jobs)
    durations = jobs["duration_s"].dropna()
    return {
        "jobs": len(jobs),
        "span_s": float(arrivals[-1] - arrivals[0]) if len(jobs) else np.nan,
        "mean_gpus": float(gpus.mean()),
        "single_gpu_share": float((gpus <= 1).mean()),
        "mean_gap_s": float(gaps.mean()) if len(gaps) else np.nan,
        "median_gap_s": float(np.median(gaps)) if len(gaps) else np.nan,
        "zero_gap_share": float((gaps == 0).mean()) if len(gaps) else np.nan,
        "cv_gap": float(gaps.std() / gaps.mean()) if gaps.any() else np.nan,
        "dispersion": float(hourly.var() / hourly.mean()) if hourly.any() else np.nan,
        "known_durations": len(durations),
        "mean_duration_s": float(durations.mean()),
        **{f"p{100 * q:g}_duration_s": float(durations.quantile(q)) for q in DURATION_QUANTILES},
        "max_duration_s": float(durations.max()),
        "gpu_time_s": float((gpus * jobs["duration_s"]).sum()),
    }


def gpus_of(jobs: pd.DataFrame) -> pd.Series[float]:
    """(jobs,) float64: GPUs that each job holds, a share of one device counted as that share."""
    return jobs["num_gpus"] * jobs["share_milli"] / 1000


def offered_load(trace: Trace, cluster_gpus: int) -> float:
    """GPU-time of all jobs with a known duration, over the GPU-time of the cluster from first to last arrival.

    Above 1 the queue grows as long as jobs arrive. Infinite if all jobs arrive at once.
    """
    work = float((gpus_of(trace.jobs) * trace.jobs["duration_s"]).sum())
    span = float(trace.jobs["arrival_s"].iloc[-1] - trace.jobs["arrival_s"].iloc[0])
    return work / (cluster_gpus * span) if span > 0 else np.inf


def shares(trace: Trace, column: str) -> pd.DataFrame:
    """Jobs, share of the jobs and share of the known GPU-time for each value of a column, most jobs first.

    Rows are the values; columns ``jobs`` (int64), ``job_share`` and ``gpu_time_share`` (float64, 0..1).
    """
    jobs = trace.jobs
    work = (gpus_of(jobs) * jobs["duration_s"]).groupby(jobs[column]).sum()
    table = jobs[column].value_counts().rename("jobs").to_frame()
    table["job_share"] = table["jobs"] / len(jobs)
    table["gpu_time_share"] = (work / work.sum()).reindex(table.index)
    return table
