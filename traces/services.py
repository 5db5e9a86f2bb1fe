"""How long a new pod of an inference service starts up before it serves its first task.

A pod loads its model once; later tasks of the service find it warm. The times are the constants of DeepBoot's simulator
(Chen et al., TPDS 2023), which has one for each of the models of Pollux's workloads.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traces.trace import Trace, TraceError

START_UP_S: dict[str, float] = {
    "bert": 8.0,
    "cifar10": 6.0,
    "imagenet": 6.0,
    "yolov3": 6.0,
    "deepspeech2": 4.0,
    "ncf": 4.0,
}


def start_up_times(trace: Trace) -> npt.NDArray[np.float64]:
    """Start-up time of each row, (jobs,) float64 [s]: as the row says, else by its model; NaN for training jobs.

    Raises TraceError, naming job and field, for a task with neither, and for one whose time is not that of the first
    task of its service.
    """
    jobs = trace.jobs
    tasks = np.flatnonzero(jobs["kind"] == "inference")
    given, model = jobs["start_up_s"].iloc[tasks], jobs["model"].iloc[tasks]
    task_s = given.fillna(model.map(START_UP_S)).to_numpy(np.float64)
    for task in np.flatnonzero(np.isnan(task_s)):
        raise TraceError(
            f"{_where(trace, tasks[task])}: start_up_s is missing, and model {model.iloc[task]!r} has no start-up time "
            f"(known: {', '.join(START_UP_S)})"
        )
    service = jobs["service"].iloc[tasks]
    _, first, number = np.unique(service.to_numpy(object), return_index=True, return_inverse=True)
    for task in np.flatnonzero(task_s != task_s[first[number]]):
        other = first[number[task]]
        raise TraceError(
            f"{_where(trace, tasks[task])}: start_up_s is {task_s[task]:g}, but {task_s[other]:g} for job "
            f"{jobs['job_id'].iloc[tasks[other]]} of the same service {service.iloc[task]}"
        )
    times = np.full(len(jobs), np.nan)
    times[tasks] = task_s
    return times


def _where(trace: Trace, row: int) -> str:
    return f"trace {trace.name}, job {trace.jobs['job_id'].iloc[row]}"
