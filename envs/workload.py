"""The job table: a trace in the form that the compiled core reads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from envs.layout import JOB_DTYPE, RESULT_DTYPE, make_state
from envs.placement import fits_empty
from envs.rng import helios_estimate
from envs.spec import MAX_TYPES, ClusterSpec, SimConfig
from traces.trace import Trace, TraceError

NO_SUCH_TYPE = MAX_TYPES  # a required type that no node has: the job is rejected at arrival


def job_table(trace: Trace, cluster: ClusterSpec, config: SimConfig, seed: int) -> np.recarray:
    """(n,) JOB_DTYPE rows of a trace of rigid training jobs, in arrival order.

    Raises :class:`TraceError` naming the first job that is not rigid.
    """
    jobs = trace.jobs
    for row in np.flatnonzero((jobs["kind"] != "training") | jobs["duration_s"].isna()):
        job = jobs.iloc[row]
        what = "an inference task" if job["kind"] != "training" else f"an elastic job of model {job['model']}"
        raise TraceError(f"trace {trace.name}, job {job['job_id']}: {what} cannot be simulated yet, only rigid jobs")
    table = np.zeros(len(jobs), JOB_DTYPE).view(np.recarray)
    table["arrival"] = jobs["arrival_s"]
    table["work"] = jobs["duration_s"]
    table["deadline"] = jobs["deadline_s"]
    table["num_gpus"] = jobs["num_gpus"]
    table["share_milli"] = jobs["share_milli"]
    table["pinned"] = ~jobs["preemptible"].to_numpy()
    codes, names = pd.factorize(jobs["gpu_type"])
    table["gpu_type"] = np.array([_type_code(name, cluster) for name in names])[codes]
    table["tenant"] = pd.factorize(jobs["tenant"])[0]
    table["model"] = -1
    table["estimate"] = _estimates(trace, config, seed)
    table["fits"] = _fits(table, cluster, config)
    return table


def _fits(table: np.recarray, cluster: ClusterSpec, config: SimConfig) -> npt.NDArray[np.bool_]:
    """Whether each job could run on the empty cluster."""
    states = make_state(1, 1, cluster, config)
    s = states[0]
    # One number a shape: a share is at most 1000, a type code lies between -1 and MAX_TYPES.
    shapes = (table["num_gpus"] * 1024 + table["share_milli"]) * 16 + table["gpu_type"] + 1
    which, distinct = pd.factorize(shapes)
    found = []
    for shape in distinct:
        s.request[0], s.share[0], s.gpu_type[0] = shape >> 14, shape >> 4 & 1023, (shape & 15) - 1
        found.append(fits_empty(s, 0, s.placement_rule))
    return np.array(found, np.bool_)[which]


def _type_code(name: str, cluster: ClusterSpec) -> int:
    if name == "":
        return -1
    return cluster.types.index(name) if name in cluster.types else NO_SUCH_TYPE


def _estimates(trace: Trace, config: SimConfig, seed: int) -> npt.NDArray[np.float64]:
    """What schedulers know of each duration; 0: nothing."""
    truth = trace.jobs["duration_s"].to_numpy(np.float64)
    if config.durations == "oracle":
        return truth
    if config.durations == "unknown":
        return np.zeros(len(truth))
    given = trace.jobs["estimate_s"].to_numpy(np.float64)
    guesses = np.array([helios_estimate(seed, row, float(d)) for row, d in enumerate(truth, trace.first_row)])
    return np.where(np.isnan(given), guesses, given)


def empty_results(shape: tuple[int, ...]) -> np.recarray:
    """Result rows of jobs that have not finished."""
    results = np.zeros(shape, RESULT_DTYPE).view(np.recarray)
    for column in ("first_start", "finish", "queueing_delay"):
        results[column] = np.nan
    return results
