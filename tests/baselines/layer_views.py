"""Stand-ins for a ClusterView with jobs whose layers may be frozen, and the text of every policy."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from baselines import BASELINES
from baselines.hosts import Freezing, Hosted
from envs.scheduler import Decision

HOST = {True: "elastic-srtf", False: "fifo"}  # of what freezes layers, and of what chooses devices
EVERY_POLICY = [
    f"{name}:{HOST[issubclass(cls, Freezing)]}" if issubclass(cls, Hosted) else name for name, cls in BASELINES.items()
]


class Gives:
    """A host that gives what it is told."""

    name = "gives"
    batch = "tuned"
    oracle = ("secrets",)

    def __init__(self, gpus, placement=None):
        self.decision = Decision(np.asarray(gpus), None if placement is None else np.asarray(placement))

    def reset(self, view): ...

    def allocate(self, view):
        return self.decision


def layer_view(jobs, *, now=0.0, interval_s=60.0, freeze_s=3.0, node_gpus=(4, 4)):
    """A view of ``jobs``, dicts of what differs from a job of 10 modules that runs on GPU 0 of node 0.

    ``modules``, ``depth``, ``front``, ``progress``, ``left``, ``held`` by node; ``speed``: effective progress by depth
    and ``penalty`` of it, at every number of GPUs. Jobs lie in descending slots, and slot 0 is not in use.
    """
    count = len(jobs)
    jobs = [{**DEFAULTS, "job_id": i, **job} for i, job in enumerate(jobs)]
    by_slot = [None, *jobs[::-1]]

    def column(name, dtype):
        return np.array([job[name] if job else 0 for job in by_slot], dtype)

    held = np.array([job["held"] if job else [0] * len(node_gpus) for job in by_slot])
    modules = column("modules", np.int64)

    def penalty(slots, depth):
        return np.array([by_slot[j]["penalty"][k] for j, k in zip(slots, depth, strict=True)])

    def goodput(slots, depth):
        table = np.zeros((len(slots), 2, 65))
        for row, (j, k) in enumerate(zip(slots, depth, strict=True)):
            table[row] = by_slot[j]["speed"][k] / (1 - by_slot[j]["penalty"][k])
            table[row, 1] *= by_slot[j]["far"][k]
        return table

    return SimpleNamespace(
        now=now,
        slots=np.arange(count, 0, -1),
        num_slots=count + 1,
        job_id=np.array([job["job_id"] if job else -1 for job in by_slot]),
        modules=modules,
        max_depth=np.floor(0.9 * modules).astype(np.int64),
        depth=column("depth", np.int64),
        gpus=held.sum(axis=1),
        node_gpus=np.array(node_gpus),
        elastic_progress=column("progress", np.float64),
        elastic_remaining=column("left", np.float64),
        config=SimpleNamespace(interval_s=interval_s, freeze_s=freeze_s),
        placement=lambda: held,
        front=lambda slots: np.array([by_slot[j]["front"] for j in slots], np.int64),
        penalty=penalty,
        goodput=goodput,
    )


DEFAULTS = {
    "modules": 10,
    "depth": 0,
    "front": 0,
    "progress": 0.0,
    "left": 1000.0,
    "held": (1, 0),
    "speed": 1.0 + 0.1 * np.arange(10),
    "penalty": np.zeros(10),
    "far": np.ones(10),
}


def depths(scheduler, view):
    """Depths by job of a decision for ``view``, as a list; -1: none is given."""
    decision = scheduler.allocate(view)
    assert decision.depth[0] == -1, "the slot that is not in use"
    return decision.depth[view.slots].tolist()
