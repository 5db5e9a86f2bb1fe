"""Workloads of the Pollux, Sia and DeepBoot simulators: elastic training jobs, and DeepBoot's inference tasks.

``name,time,application,num_replicas,batch_size``, to which DeepBoot adds ``duration`` and ``num_task``. A training job
has no run time: it ends when its application's model has converged, so ``application`` becomes the model profile and
``duration_s`` stays unknown (-1 and 4.0 in DeepBoot's training rows are fillers). An inference task,
``infer-<model>-<k>``, runs for ``duration`` seconds in a pod of its service, which is the whole application name.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from traces.table import Table, unique_ids
from traces.trace import Trace, TraceError, make_trace

REQUIRED = ("name", "time", "application", "num_replicas", "batch_size")
SERVICE = re.compile(r"infer-(.+)-\d+")


def detect(header: list[str]) -> bool:
    return set(REQUIRED) <= set(header)


def read(table: Table, name: str) -> Trace:
    """Read a workload; ``num_task`` of DeepBoot is kept as written (-1 on training rows)."""
    table.require(REQUIRED)
    table, skipped = table.without_cpu_jobs("num_replicas")
    job_id, notes = unique_ids(table.columns["name"])
    application = table.columns["application"]
    services = [SERVICE.fullmatch(app) for app in application]
    columns = {
        "job_id": job_id,
        "kind": ["inference" if service else "training" for service in services],
        "arrival_s": table.times("time"),
        "num_gpus": table.columns["num_replicas"],
        "duration_s": _durations(table, np.array([service is not None for service in services])),
        "model": [service[1] if service else app for service, app in zip(services, application, strict=True)],
        "batch_size": table.columns["batch_size"],
        "service": [service[0] if service else "" for service in services],
        **table.others((*REQUIRED, "duration")),
    }
    return make_trace(name, columns, f"Pollux-style workload {table.path.name}", skipped, notes, table.where)


def _durations(table: Table, inference: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """(rows,) float64 [s]: the run time of inference tasks, NaN for training jobs."""
    durations = np.full(len(table), np.nan)
    if inference.any():
        if "duration" not in table.columns:
            row = int(np.flatnonzero(inference)[0])
            raise TraceError(f"{table.where(row)}: an inference task needs a duration, but there is no such column")
        durations[inference] = table.keep(inference).times("duration")
    return durations
