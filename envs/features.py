"""What an agent sees: one float32 row per environment, described column by column.

The row is four blocks, ``cluster`` (Fc,), ``nodes`` (N, Fn), ``jobs`` (J, Fj) and ``occupancy`` (N, G), and before the
last ``layers`` (J, Fl) in scenario layer-elastic, and ``services`` (V, Fs) where there is inference; the Dict space is
a set of views on it. FEATURES describes every column once: bounds, documentation and the bounds test come from it.
Unbounded quantities are squashed to x / (x + c) in [0, 1). envs/observe.py writes the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from envs.spec import ClusterSpec

LAYER_GPUS = (1, 2, 4, 8)  # GPUs at which an agent sees what freezing gains
NO_DEVICE = -4  # occupancy of a place beyond the node's own devices


class Feature(NamedTuple):
    """One column of the observation."""

    block: str
    name: str
    low: float
    high: float
    meaning: str


FEATURES: tuple[Feature, ...] = (
    Feature("cluster", "free", 0, 1, "wholly free GPUs, share of all"),
    Feature("cluster", "largest_block", 0, 1, "free GPUs of the emptiest node, share of the largest node"),
    Feature("cluster", "waiting", 0, 1, "waiting jobs x, x / (x + 16)"),
    Feature("cluster", "running", 0, 1, "running jobs x, x / (x + 16)"),
    Feature("cluster", "backlog", 0, 1, "arrived jobs without a slot x, x / (x + 64)"),
    Feature("cluster", "to_arrive", 0, 1, "jobs of the window still to arrive, share of all"),
    Feature("cluster", "edits_left", 0, 1, "edits left in this pass, share of the budget"),
    Feature("cluster", "open", 0, 1, "GPUs that training may hold, share of all"),
    Feature("cluster", "tasks", 0, 1, "inference tasks x that wait, x / (x + 16)"),
    Feature("nodes", "present", 0, 1, "1"),
    Feature("nodes", "free", 0, 1, "wholly free GPUs, share of the node"),
    Feature("nodes", "size", 0, 1, "GPUs x of the node, x / (x + 8)"),
    Feature("nodes", "type", 0, 1, "(GPU type + 1) / 8"),
    Feature("nodes", "awake", 0, 1, "GPUs with pods that are awake, share of the node"),
    Feature("nodes", "asleep", 0, 1, "GPUs with sleeping pods that training may take, share of the node"),
    Feature("jobs", "present", 0, 1, "1 if the slot holds a job"),
    Feature("jobs", "running", 0, 1, "1 if it holds GPUs, edits of this pass included"),
    Feature("jobs", "was_running", 0, 1, "1 if it held GPUs before this pass"),
    Feature("jobs", "request_share", 0, 1, "GPUs requested, share of the cluster"),
    Feature("jobs", "fraction", 0, 1, "share of each device requested"),
    Feature("jobs", "known", 0, 1, "1 if its duration is known or estimated"),
    Feature("jobs", "progress", 0, 1, "share of the estimated duration done"),
    Feature("jobs", "preemptible", 0, 1, "1 if its GPUs may be taken away"),
    Feature("jobs", "elastic", 0, 1, "1 if it may hold any number of GPUs up to its most"),
    Feature("jobs", "held_share", 0, 1, "GPUs held, share of the cluster"),
    Feature("jobs", "most_share", 0, 1, "most GPUs it may hold, share of the cluster, at most 1"),
    Feature("jobs", "yields", 0, 1, "1 if inference takes its GPUs before those of jobs without the mark"),
    Feature("jobs", "request", 0, 1, "GPUs requested x, x / (x + 8)"),
    Feature("jobs", "age", 0, 1, "time since arrival x, x / (x + 1 h)"),
    Feature("jobs", "waited", 0, 1, "queueing delay x, x / (x + 1 h)"),
    Feature("jobs", "service", 0, 1, "attained GPU-time x, x / (x + 1 GPU-h)"),
    Feature("jobs", "remaining", 0, 1, "estimated time left x, x / (x + 1 h)"),
    Feature("jobs", "remaining_short", 0, 1, "estimated time left x, x / (x + 1 min)"),
    Feature("jobs", "remaining_gpu_time", 0, 1, "estimated GPU-time left x, x / (x + 1 GPU-h)"),
    Feature("jobs", "pause", 0, 1, "pause left x, x / (x + 1 min)"),
    Feature("jobs", "preemptions", 0, 1, "preemptions x, x / (x + 4)"),
    Feature("jobs", "rescales", 0, 1, "migrations x, x / (x + 4)"),
    Feature("jobs", "nodes_held", 0, 1, "nodes spanned x, x / (x + 4)"),
    Feature("jobs", "goodput_1", 0, 1, "elastic: known goodput on 1 GPU, share x of its work an hour, x / (x + 1)"),
    Feature("jobs", "goodput_2", 0, 1, "elastic: known goodput on 2 GPUs over that on 1 x, x / (x + 2)"),
    Feature("jobs", "goodput_4", 0, 1, "elastic: known goodput on 4 GPUs over that on 1 x, x / (x + 4)"),
    Feature("jobs", "goodput_8", 0, 1, "elastic: known goodput on 8 GPUs over that on 1 x, x / (x + 8)"),
    Feature("jobs", "goodput_16", 0, 1, "elastic: known goodput on 16 GPUs over that on 1 x, x / (x + 16)"),
    Feature("jobs", "loss", 0, 1, "what inference counts as lost by one GPU less (reclaim ats) x, x / (x + 1)"),
    Feature("layers", "frozen", 0, 1, "first modules frozen, share of all, edits of this pass included"),
    Feature("layers", "was_frozen", 0, 1, "the same before this pass"),
    Feature("layers", "front", 0, 1, "first modules that seem to have converged (sim.front), share of all"),
    Feature("layers", "freezable", 0, 1, "most first modules that may be frozen, share of all"),
    Feature("layers", "penalty", 0, 0.95, "share of its speed that the frozen modules seem to cost from now on"),
    *(
        Feature(
            "layers",
            f"{depth}_{gpus}",
            0,
            1,
            f"known goodput with {what} frozen on {gpus} GPU{'s' * (gpus > 1)} over that with none x, x / (x + 1), "
            "less the share that it seems to cost",
        )
        for depth, what in (("speed", "these modules"), ("front_speed", "those up to the front"))
        for gpus in LAYER_GPUS
    ),
    Feature("services", "starting", 0, 1, "pods x that start up, x / (x + 4)"),
    Feature("services", "serving", 0, 1, "pods x that serve a task, x / (x + 4)"),
    Feature("services", "protected", 0, 1, "idle pods x whose GPUs nobody may take, x / (x + 4)"),
    Feature("services", "asleep", 0, 1, "idle pods x whose GPUs may be taken, x / (x + 4)"),
    Feature("services", "waiting", 0, 1, "tasks x that wait, x / (x + 4)"),
    Feature("services", "protection", 0, 1, "longest time x that a pod is still protected, x / (x + 1 min)"),
    Feature("services", "start_up", 0, 1, "start-up x of a pod, x / (x + 10 s)"),
    Feature("services", "since", 0, 1, "time x since a task arrived, x / (x + 1 min)"),
    Feature("services", "recent", 0, 1, "tasks x that arrived lately, each fading to 1 / e in 5 min, x / (x + 16)"),
    Feature(
        "occupancy", "holder", NO_DEVICE, np.inf, "slot of the holder; -1 free, -2 inference, -3 shared, -4 no device"
    ),
)
CLUSTER_COLUMNS = sum(f.block == "cluster" for f in FEATURES)
NODE_COLUMNS = sum(f.block == "nodes" for f in FEATURES)
JOB_COLUMNS = sum(f.block == "jobs" for f in FEATURES)
LAYER_COLUMNS = sum(f.block == "layers" for f in FEATURES)
SERVICE_COLUMNS = sum(f.block == "services" for f in FEATURES)

# A job's last columns are squashed: x / (x + c), with these c. All its columns are written as x / (a x + b), with a = 1
# and b = c there and a = 0 and b = 1 before: the same operation on whole rows, which the compiler vectorises.
SQUASH = (8, 3600, 3600, 3600, 3600, 60, 3600, 60, 4, 4, 4, 1, 2, 4, 8, 16, 1)
GOODPUTS = (2, 4, 8, 16)  # GPUs of four of them
TILE = 16 * JOB_COLUMNS  # numbers in 16 rows, so that tables of a and b need not be as long as the jobs block
SLOPE = np.tile(np.array([0] * (JOB_COLUMNS - len(SQUASH)) + [1] * len(SQUASH), np.float32), 16)
OFFSET = np.tile(np.array([1] * (JOB_COLUMNS - len(SQUASH)) + list(SQUASH), np.float32), 16)


@dataclass(frozen=True)
class ObservationLayout:
    """Where each block lies in a row of J slots, N nodes, at most G GPUs a node and V inference services.

    ``layered``: with the block of layers.
    """

    num_slots: int
    num_nodes: int
    gpus_per_node: int
    num_services: int = 0
    layered: bool = False

    @classmethod
    def of(cls, num_slots: int, cluster: ClusterSpec, num_services: int, layered: bool = False) -> ObservationLayout:
        return cls(num_slots, cluster.num_nodes, int(cluster.node_gpus.max()), num_services, layered)

    @cached_property
    def slices(self) -> dict[str, tuple[int, int, tuple[int, ...]]]:
        """Block name -> (start, stop, shape)."""
        shapes: dict[str, tuple[int, ...]] = {
            "cluster": (CLUSTER_COLUMNS,),
            "nodes": (self.num_nodes, NODE_COLUMNS),
            "jobs": (self.num_slots, JOB_COLUMNS),
            "layers": (self.num_slots, LAYER_COLUMNS),
            "services": (self.num_services, SERVICE_COLUMNS),
            "occupancy": (self.num_nodes, self.gpus_per_node),
        }
        slices, start = {}, 0
        if not self.layered:
            del shapes["layers"]
        if self.num_services == 0:
            del shapes["services"]
        for name, shape in shapes.items():
            stop = start + int(np.prod(shape))
            slices[name] = (start, stop, shape)
            start = stop
        return slices

    @property
    def size(self) -> int:
        """R, the length of the row."""
        return self.slices["occupancy"][1]

    def bounds(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """(R,) float32 lowest and highest value of each place in the row."""
        low, high = np.zeros(self.size, np.float32), np.zeros(self.size, np.float32)
        for name, (start, stop, shape) in self.slices.items():
            columns = [f for f in FEATURES if f.block == name]
            repeats = (stop - start) // len(columns)
            low[start:stop] = np.tile([f.low for f in columns], repeats)
            high[start:stop] = np.tile([self.num_slots - 1 if f.high == np.inf else f.high for f in columns], repeats)
            assert shape[-1] in (len(columns), self.gpus_per_node)
        return low, high

    def flat_space(self) -> spaces.Box:
        """The row as one Box (R,)."""
        return spaces.Box(*self.bounds(), dtype=np.float32)

    def dict_space(self) -> spaces.Dict:
        """The row as a Dict of its blocks."""
        low, high = self.bounds()
        return spaces.Dict(
            {
                name: spaces.Box(low[a:b].reshape(shape), high[a:b].reshape(shape), dtype=np.float32)
                for name, (a, b, shape) in self.slices.items()
            }
        )

    def split(self, row: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.float32]]:
        """Views of the blocks of a row (R,), or of rows (B, R)."""
        lead = row.shape[:-1]
        return {name: row[..., a:b].reshape(*lead, *shape) for name, (a, b, shape) in self.slices.items()}
