"""What an agent sees: one float32 row per environment, described column by column.

The row is four blocks, ``cluster`` (Fc,), ``nodes`` (N, Fn), ``jobs`` (J, Fj) and ``occupancy`` (N, G);
the Dict space is a set of views on it. FEATURES describes every column once: bounds, documentation
and the bounds test come from it. Unbounded quantities are squashed to x / (x + c) in [0, 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from envs.jit import jit, jit_inline
from envs.layout import RUNNING
from envs.online import fitted_goodput
from envs.rates import known_rate
from envs.spec import MAX_TYPES, ClusterSpec
from envs.tables import FITTED_SHAPES

# Tells the compiler that an index is not negative: else each access checks for Python's wrap-around.
NOT_NEGATIVE = 0x7FFFFFFF
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
    Feature("nodes", "present", 0, 1, "1"),
    Feature("nodes", "free", 0, 1, "wholly free GPUs, share of the node"),
    Feature("nodes", "size", 0, 1, "GPUs x of the node, x / (x + 8)"),
    Feature("nodes", "type", 0, 1, "(GPU type + 1) / 8"),
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
    Feature(
        "occupancy", "holder", NO_DEVICE, np.inf, "slot of the holder; -1 free, -2 inference, -3 shared, -4 no device"
    ),
)
CLUSTER_COLUMNS = sum(f.block == "cluster" for f in FEATURES)
NODE_COLUMNS = sum(f.block == "nodes" for f in FEATURES)
JOB_COLUMNS = sum(f.block == "jobs" for f in FEATURES)

# A job's last columns are squashed: x / (x + c), with these c. All its columns are written as x / (a x + b), with a = 1
# and b = c there and a = 0 and b = 1 before: the same operation on whole rows, which the compiler vectorises.
SQUASH = (8, 3600, 3600, 3600, 3600, 60, 3600, 60, 4, 4, 4, 1, 2, 4, 8, 16)
GOODPUTS = (2, 4, 8, 16)  # GPUs of the last columns
TILE = 16 * JOB_COLUMNS  # numbers in 16 rows, so that tables of a and b need not be as long as the jobs block
SLOPE = np.tile(np.array([0] * (JOB_COLUMNS - len(SQUASH)) + [1] * len(SQUASH), np.float32), 16)
OFFSET = np.tile(np.array([1] * (JOB_COLUMNS - len(SQUASH)) + list(SQUASH), np.float32), 16)


@dataclass(frozen=True)
class ObservationLayout:
    """Where each block lies in the row of an environment with J slots, N nodes and at most G GPUs a node."""

    num_slots: int
    num_nodes: int
    gpus_per_node: int

    @classmethod
    def of(cls, num_slots: int, cluster: ClusterSpec) -> ObservationLayout:
        return cls(num_slots, cluster.num_nodes, int(cluster.node_gpus.max()))

    @cached_property
    def slices(self) -> dict[str, tuple[int, int, tuple[int, ...]]]:
        """Block name -> (start, stop, shape)."""
        shapes: dict[str, tuple[int, ...]] = {
            "cluster": (CLUSTER_COLUMNS,),
            "nodes": (self.num_nodes, NODE_COLUMNS),
            "jobs": (self.num_slots, JOB_COLUMNS),
            "occupancy": (self.num_nodes, self.gpus_per_node),
        }
        slices, start = {}, 0
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


@jit
def squash(x, c):
    """x / (x + c): 0 at 0, 1/2 at c, below 1."""
    return x / (x + c)


@jit
def write_cluster(s, row):
    """Write the cluster block."""
    free = most = largest = 0
    for n in range(s.num_nodes):
        free += s.node_free[n]
        most = max(most, s.node_free[n])
        largest = max(largest, s.node_gpus[n])
    row[0] = free / s.num_gpus
    row[1] = most / largest
    row[2] = squash(s.num_waiting, 16.0)
    row[3] = squash(s.num_running, 16.0)
    row[4] = squash(s.num_unfinished - s.num_waiting - s.num_running, 64.0)
    row[5] = (s.job_hi - s.next_job) / max(1, s.job_hi - s.job_lo)
    row[6] = s.edits_left / s.edit_budget


@jit
def write_nodes(s, row, first):
    """Write the nodes block, which starts at ``row[first]``."""
    size, squashed = 0, 0.0
    for n in range(s.num_nodes):
        at = (first + n * NODE_COLUMNS) & NOT_NEGATIVE
        if s.node_gpus[n] != size:
            size = s.node_gpus[n]
            squashed = squash(size, 8.0)
        row[at] = 1.0
        row[at + 1] = s.node_free[n] / size
        row[at + 2] = squashed
        row[at + 3] = (s.node_type[n] + 1) / MAX_TYPES


@jit
def write_free(s, row, first):
    """Write the only column of the nodes block that an edit changes."""
    for n in range(s.num_nodes):
        row[(first + n * NODE_COLUMNS + 1) & NOT_NEGATIVE] = s.node_free[n] / s.node_gpus[n]


@jit
def write_occupancy(s, row, first, width):
    """Write the occupancy block: ``width`` places a node."""
    if s.num_nodes * width == s.num_gpus:  # equal nodes: devices are numbered as places are
        block = row[first : first + s.num_gpus]
        for g in range(block.shape[0]):
            block[g] = s.gpu_holder[g]
        return
    for n in range(s.num_nodes):
        at = (first + n * width) & NOT_NEGATIVE
        for i in range(s.node_gpus[n]):
            row[at + i] = s.gpu_holder[s.node_first[n] + i]
        for i in range(s.node_gpus[n], width):
            row[at + i] = NO_DEVICE


@jit_inline
def write_job(s, w, j, row, at):
    """Write the row of slot ``j``'s job, which starts at ``row[at]``, its last columns not yet squashed."""
    done, service, waited, pause = s.done[j], s.service[j], s.queueing_delay[j], 0.0
    if s.phase[j] == RUNNING:
        done += s.rate[j] * max(0.0, s.now - s.anchor[j])
        pause = max(0.0, s.anchor[j] - s.now)
        service += s.demand[j] * (s.now - s.held_since[j])
    else:
        waited += s.now - s.waiting_since[j]
    known = s.estimate[j] > 0
    elastic = s.klass[j] >= 0
    total = s.estimate[j] + s.extra_work[j]
    left = 0.0
    if known:
        left = max(0.0, s.estimate[j] * (1.0 - done / s.work[j]) if elastic else total - done)
    row[at] = 1.0
    row[at + 1] = s.gpus[j] > 0
    row[at + 2] = s.held_gpus[j] > 0
    row[at + 3] = s.request[j] / s.num_gpus
    row[at + 4] = s.share[j] * 0.001
    row[at + 5] = known
    row[at + 6] = 1.0 - left / total if known else 0.0
    row[at + 7] = 1 - s.pinned[j]
    row[at + 8] = elastic
    row[at + 9] = s.gpus[j] / s.num_gpus
    row[at + 10] = min(1.0, s.max_gpus[j] / s.num_gpus)
    row[at + 11] = s.request[j]
    row[at + 12] = s.now - s.arrival[j]
    row[at + 13] = waited
    row[at + 14] = service
    row[at + 15] = left
    row[at + 16] = left
    row[at + 17] = left * s.request[j] * s.share[j] * 0.001
    row[at + 18] = pause
    row[at + 19] = s.num_preemptions[j]
    row[at + 20] = s.num_rescales[j]
    row[at + 21] = s.num_nodes_held[j]
    if elastic:
        write_goodputs(s, w, j, row, at + 22)


@jit
def known_goodput(s, w, j, t, gpus):
    """What schedulers know of slot ``j``'s goodput on ``gpus`` GPUs of type ``t``, packed [work/s]; 0: impossible."""
    if gpus > s.max_gpus[j]:
        return 0.0
    several = 1 if gpus > s.max_node_gpus[t] else 0
    if s.online:
        return fitted_goodput(s, w, j, t, several, gpus)
    return known_rate(w, s.klass[j], s.epoch[j], t, several, gpus)


@jit_inline
def write_goodputs(s, w, j, row, at):
    """Write the last columns of elastic slot ``j``: goodput on 1, 2, 4, 8, 16 GPUs, not yet squashed."""
    t = max(0, s.gpu_type[j])
    if s.gpus[j] > 0:
        t = s.node_type[s.gpu_node[s.first_gpu[j]]]
    if s.online:
        write_fitted(s, w, j, t, row, at)
        return
    table = w.classes[s.klass[j]]
    first = table.known_at + s.epoch[j] * table.known_shapes + t * FITTED_SHAPES
    alone = w.floats[first + 1]
    row[at] = alone * 3600.0 / s.work[j]
    scale = 1.0 / alone
    for i in range(len(GOODPUTS)):
        gpus = GOODPUTS[i]
        place = first + gpus + (FITTED_SHAPES // 2 if gpus > s.max_node_gpus[t] else 0)
        row[at + 1 + i] = w.floats[place] * scale if gpus <= s.max_gpus[j] else 0.0


@jit
def write_fitted(s, w, j, t, row, at):
    """The same columns by the fit of slot ``j``'s own runs, on GPUs of type ``t``; 0: not observed yet."""
    alone = known_goodput(s, w, j, t, 1)
    row[at] = alone * 3600.0 / s.work[j]
    for i in range(len(GOODPUTS)):
        row[at + 1 + i] = known_goodput(s, w, j, t, GOODPUTS[i]) / alone if alone > 0 else 0.0


@jit
def squash_rows(row, first, stop):
    """Squash the job rows that lie in ``row[first:stop]``."""
    for tile in range(first, stop, TILE):
        part = row[tile : min(stop, tile + TILE)]
        for i in range(part.shape[0]):
            part[i] = part[i] / (SLOPE[i] * part[i] + OFFSET[i])


@jit
def write_jobs(s, w, row, jobs, slots, count):
    """Write the rows of the first ``count`` of ``slots``; the jobs block starts at ``row[jobs]``. The last slot."""
    last = -1
    for i in range(count):
        j = slots[i]
        last = max(last, j)
        write_job(s, w, j, row, (jobs + j * JOB_COLUMNS) & NOT_NEGATIVE)
    return last


@jit
def fill_observation(s, w, row, width):
    """Write the whole row (R,) float32; ``width`` is the layout's GPUs per node."""
    jobs = CLUSTER_COLUMNS + s.num_nodes * NODE_COLUMNS
    end = jobs + s.num_slots * JOB_COLUMNS
    write_cluster(s, row)
    write_nodes(s, row, CLUSTER_COLUMNS)
    block = row[jobs:end]
    for i in range(block.shape[0]):
        block[i] = 0.0
    last = write_jobs(s, w, row, jobs, s.waiting, s.num_waiting)
    last = max(last, write_jobs(s, w, row, jobs, s.running, s.num_running))
    squash_rows(row, jobs, jobs + (last + 1) * JOB_COLUMNS)
    write_occupancy(s, row, end, width)


@jit
def refresh_observation(s, w, row, width, j):
    """Bring the row up to date after an edit of slot ``j``, which takes no time."""
    jobs = CLUSTER_COLUMNS + s.num_nodes * NODE_COLUMNS
    at = (jobs + j * JOB_COLUMNS) & NOT_NEGATIVE
    write_cluster(s, row)
    write_free(s, row, CLUSTER_COLUMNS)
    write_job(s, w, j, row, at)
    squash_rows(row, at, at + JOB_COLUMNS)
    write_occupancy(s, row, jobs + s.num_slots * JOB_COLUMNS, width)
