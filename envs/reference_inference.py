"""Inference tasks and pods of the slow reference simulator, and whose GPUs a cold start takes.

Written from docs/design/003-inference.md, sections 1-4 (not 6, ``compat deepboot``), and 006-full.md alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from envs.reference_devices import Devices, Pod
from envs.reference_jobs import WHOLE, Job
from envs.spec import SimConfig
from traces.services import start_up_times
from traces.trace import Trace


@dataclass
class Task:
    """A request to a service, served by one device."""

    job_id: int  # row of the trace
    service: str
    arrival_s: float
    duration_s: float
    start_up_s: float
    status: str = "unarrived"  # then waiting, served or completed
    first_start_s: float = math.nan
    finish_s: float = math.nan
    queueing_delay_s: float = 0.0
    service_gpu_s: float = 0.0
    paused_gpu_s: float = 0.0
    num_rescales: int = 0
    num_preemptions: int = 0
    warm: int = 0

    def serve(self, now: float, start_up_s: float) -> None:
        self.status, self.first_start_s = "served", now
        self.queueing_delay_s = now - self.arrival_s
        self.paused_gpu_s = start_up_s

    def run(self, now: float, slowness: float) -> None:
        """Begin to run on a device on which everything takes ``slowness`` times as long."""
        run_s = self.duration_s * slowness
        self.finish_s, self.service_gpu_s = now + run_s, self.paused_gpu_s + run_s


def read_tasks(trace: Trace) -> dict[int, Task]:
    """Inference tasks by row of the trace."""
    columns = trace.jobs[["kind", "service", "arrival_s", "duration_s"]].assign(start_up_s=start_up_times(trace))
    return {
        row: Task(row, *values)
        for row, (kind, *values) in enumerate(columns.itertuples(index=False, name=None))
        if kind == "inference"
    }


class Inference:
    """Tasks, and the pods on ``devices`` that serve them beside training ``jobs``.

    ``slowness(device)``: how many times as long a task takes that begins to run there now.
    """

    def __init__(
        self, trace: Trace, devices: Devices, jobs: list[Job], config: SimConfig, slowness: Callable[[int], float]
    ) -> None:
        self.tasks, self.devices, self.config, self.slowness = read_tasks(trace), devices, config, slowness
        self.jobs = {job.job_id: job for job in jobs}
        self.births = 0
        self.pod_gpu_s = dict.fromkeys(("start", "running", "protect", "sleep"), 0.0)  # [GPU-s] in each state

    def waiting(self) -> list[Task]:
        """In order of arrival."""
        return [task for task in self.tasks.values() if task.status == "waiting"]

    def is_over(self) -> bool:
        return all(task.status == "completed" for task in self.tasks.values())

    # Section 2: events
    def next_events(self) -> Iterator[float]:
        yield from (task.arrival_s for task in self.tasks.values() if task.status == "unarrived")
        yield from (pod.until for pod in self.devices.pods.values())

    def count_time(self, seconds: float) -> None:
        for pod in self.devices.pods.values():
            self.pod_gpu_s[pod.state] += seconds

    def admit(self, now: float) -> None:
        for task in self.tasks.values():
            if task.status == "unarrived" and task.arrival_s <= now:
                task.status = "waiting"

    def change_pods(self, now: float) -> bool:
        """Bring pods up to date; whether one ended or fell asleep."""
        happened = False
        for device in sorted(self.devices.pods):
            while device in self.devices.pods and self.devices.pods[device].until <= now:
                happened |= self.change_pod(device)
        return happened

    def change_pod(self, device: int) -> bool:
        """What a pod is next; whether it ended or fell asleep."""
        pod, times = self.devices.pods[device], self.config.protect_times
        if pod.state == "start":
            self.run_task(device, pod.task, pod.until)
            return False
        if pod.state == "running":
            self.tasks[pod.task].status = "completed"
            if self.config.aiss:
                pod.state = "protect"
                pod.until += min(30 * times + 15 * times * pod.hits, 120 * times)
                return False
            del self.devices.pods[device]
        else:
            pod.state, pod.until, pod.hits = "sleep", math.inf, 0
        node = self.devices.node_of[device]
        pods = [self.devices.pods.get(d) for d in self.devices.on_node[node]]
        if all(pod is None or pod.state == "sleep" for pod in pods):
            self.devices.reserved.discard(node)
        return True

    def run_task(self, device: int, job_id: int, now: float) -> None:
        pod, task = self.devices.pods[device], self.tasks[job_id]
        task.run(now, self.slowness(device))
        pod.state, pod.until, pod.task = "running", task.finish_s, job_id

    # Section 3: serving
    def hit(self, now: float) -> None:
        """Serve tasks by warm pods."""
        for task in self.waiting():
            pods = {d: p for d, p in self.devices.pods.items() if p.service == task.service and p.is_warm()}
            if pods:
                device = min(pods, key=lambda d: (-pods[d].hits, pods[d].born))
                pod = pods[device]
                pod.hits = 0 if pod.state == "sleep" else pod.hits + 1
                task.serve(now, 0.0)
                task.warm = 1
                self.run_task(device, task.job_id, now)

    def start(self, now: float) -> None:
        """Serve tasks by new pods, as long as there are devices for them."""
        order = sorted(range(len(self.devices.sizes)), key=lambda node: (self.training_gpus(node), node))
        for task in self.waiting():
            device = self.ats(now, order) if self.config.reclaim == "ats" else self.lyra()
            if device is None:
                break
            task.serve(now, task.start_up_s)
            self.devices.pods[device] = Pod(task.service, self.births, task.job_id, now + task.start_up_s)
            self.births += 1

    def training_gpus(self, node: int) -> int:
        return sum(WHOLE in self.devices.holders[d].values() for d in self.devices.on_node[node])

    def ats(self, now: float, order: list[int]) -> int | None:
        """The device of a cold start; if training held it, it does not any more."""
        for free_on in (self.devices.empty_on, self.devices.asleep_on):
            found = [device for node in order for device in free_on(node)[:1]]
            if found:
                return found[0]
        losers = [job for job in self.jobs.values() if job.devices and job.preemptible and job.share_milli == WHOLE]
        victims = [(job, node) for job in losers for node in self.devices.nodes_of(job)]
        if not victims:
            return None
        job, node = min(victims, key=lambda v: (self.loss(*v), v[0].service_at(now), v[0].job_id, v[1]))
        held = [d for d in job.devices if self.devices.node_of[d] == node]
        if job.training is None:
            self.devices.take_back(job)
            return min(held)
        self.devices.take_back_on(job, max(held))
        return max(held)

    def loss(self, job: Job, node: int) -> float:
        """What training loses if a job gives up a device of a node, in fair shares of the job's goodput.

        Less where the job straggles anyway (006, section 2).
        """
        if job.training is None:
            return job.pace
        nodes = self.devices.nodes_of(job)
        left = nodes - Counter([node])
        return (self.value(job, nodes) - self.value(job, left)) * job.pace

    def value(self, job: Job, nodes: Counter[int]) -> float:
        training, gpu_type = job.present_training, self.devices.type_of[self.devices.node_of[job.devices[0]]]
        if training is None or not nodes:
            return 0.0
        gpus = sum(len(self.devices.open_on(node)) for node in range(len(self.devices.sizes)))
        active = sum(job.status == "active" for job in self.jobs.values())
        fair = min(max(1, math.ceil(gpus / active)), job.max_gpus)
        own = training.known_goodput(gpu_type, nodes.total(), len(nodes) > 1, job.epoch)
        return own / training.known_goodput(gpu_type, fair, fair > training.node_gpus[gpu_type], job.epoch)

    def inference_nodes(self) -> list[int]:
        """Where pods live under ``lyra`` and ``static``."""
        count = len(self.devices.sizes)
        given = self.config.inference_nodes
        return list(range(count))[count - (count // 2 if given < 0 else min(given, count)) :]

    def lyra(self) -> int | None:
        """The device of a cold start; its node is reserved, and training has left it."""
        ready = [node for node in self.inference_nodes() if self.may_be_reserved(node)]
        empty = [node for node in ready if self.devices.empty_on(node)]
        asleep = [node for node in ready if self.devices.asleep_on(node)]
        lent = [node for node in ready if self.training_gpus(node)]
        if empty:
            node = min(empty, key=self.training_gpus)
            device = self.devices.empty_on(node)[0]
        elif asleep:
            node = asleep[0]
            device = self.devices.asleep_on(node)[0]
        elif lent:
            node = min(lent, key=self.training_gpus)
            device = next(d for d in self.devices.on_node[node] if self.devices.holders[d])
        else:
            return None
        for job in self.jobs_on(node):
            own = [d for d in job.devices if self.devices.node_of[d] == node]
            if job.training is None:
                self.devices.take_back(job)
            else:
                self.devices.take_back_on(job, *own)
        self.devices.reserved.add(node)
        return device

    def jobs_on(self, node: int) -> list[Job]:
        ids = {i for d in self.devices.on_node[node] for i in self.devices.holders[d]}
        return [self.jobs[i] for i in sorted(ids)]

    def may_be_reserved(self, node: int) -> bool:
        """Whether all jobs on a node may be made to leave it."""
        return all(job.preemptible and job.share_milli == WHOLE for job in self.jobs_on(node))
