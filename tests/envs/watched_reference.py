"""The reference simulator with inference, looked at after every event, and small traces for it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pandas as pd

from envs.order import Key, ListOrder
from envs.reference import Run
from envs.reference_jobs import WHOLE
from envs.spec import ClusterSpec, SimConfig
from tests.envs.elastic_support import EVENTS, model
from traces.profiles import Throughput
from traces.trace import Trace, make_trace

FIFO = ListOrder(Key.ARRIVAL)
# One iteration a second and GPU of a node; on several nodes 9/8 with 3 GPUs, 1 with 2.
LINEAR = model(
    1000, speed=Throughput(alpha_c=0.0, beta_c=0.125, alpha_n=0.5, beta_n=0.125, alpha_r=0.0, beta_r=0.0, gamma=1.0)
)


class Over(Exception):  # noqa: N818
    """The time to be looked at is over."""


class Watched(Run):
    """A run that remembers who held what after serving, and keeps count of devices."""

    def __init__(self, *args: Any, **others: Any) -> None:
        super().__init__(*args, **others)
        self.jobs_at: dict[float, dict[int, list[int]]] = {}
        self.pods_at: dict[float, dict[int, str]] = {}
        self.passes_at: list[float] = []
        self.counted: Counter[str] = Counter()  # [GPU-s] in each state of a device
        self.since, self.states = 0.0, Counter[str]()
        self.until = math.inf

    def serve(self) -> bool:
        happened = super().serve()
        self.jobs_at[self.now] = {job.job_id: sorted(job.devices) for job in self.running()}
        self.pods_at[self.now] = {device: pod.service for device, pod in self.devices.pods.items()}
        return happened

    def schedule(self) -> None:
        super().schedule()
        self.passes_at.append(self.now)

    def next_events(self) -> Any:
        """Between events nothing is done but this: look whether all is as it should be."""
        self.look()
        assert len(self.jobs_at) < 5000
        if self.now > self.until:
            raise Over
        return super().next_events()

    def look(self) -> None:
        pods, holders = self.devices.pods, self.devices.holders
        for state, number in self.states.items():
            self.counted[state] += number * (max(self.now, 0.0) - self.since)
        held = {device for device, own in enumerate(holders) if own}
        assert not held & pods.keys(), "a device holds a pod and a job"
        assert all(sum(own.values()) <= WHOLE for own in holders)
        for job in self.jobs:
            assert all(holders[d][job.job_id] == job.share_milli for d in job.devices)
            assert not {self.devices.node_of[d] for d in job.devices} & self.devices.reserved
            assert not {self.devices.node_of[d] for d in job.devices} & self.devices.inference_part
        served = [task.job_id for task in self.inference.tasks.values() if task.status == "served"]
        assert served == sorted(pod.task for pod in pods.values() if not pod.is_warm()), "a task runs without a device"
        self.states = Counter(pod.state for pod in pods.values())
        self.states |= Counter(job=len(held), free=len(holders) - len(held | pods.keys()))
        self.since = max(self.now, 0.0)


def rows(training: Sequence[tuple[Any, ...]], tasks: Sequence[tuple[str, float, float]], **columns: Any) -> Trace:
    """Training jobs (GPUs, arrival, duration or None: elastic) and tasks (service, arrival, duration) that start up
    in 4 s.

    In order of arrival, training first; ``columns`` are those of training.
    """
    first = pd.DataFrame(training, columns=["num_gpus", "arrival_s", "duration_s"]).assign(**columns)
    first["model"] = ["m" if d is None else "" for _, _, d in training]
    after = pd.DataFrame(tasks, columns=["service", "arrival_s", "duration_s"])
    after = after.assign(kind="inference", num_gpus=1, start_up_s=4.0)
    return make_trace("hand", pd.concat([first.astype({"duration_s": float}), after], ignore_index=True))


def play(
    trace: Trace, cluster: str, scheduler: Any = FIFO, config: SimConfig = EVENTS, until: float = math.inf
) -> Watched:
    run = Watched(trace, ClusterSpec.parse(cluster), scheduler, config, 0, {"m": LINEAR})
    run.until = until
    with suppress(Over):
        run.play()
        run.look()
    return run


def jobs(run: Run, *names: str) -> list[Any]:
    return [tuple(getattr(job, name) for name in names) if names[1:] else getattr(job, names[0]) for job in run.jobs]


def tasks(run: Run, *names: str) -> list[Any]:
    found = run.inference.tasks.values()
    return [tuple(getattr(task, name) for name in names) if names[1:] else getattr(task, names[0]) for task in found]
