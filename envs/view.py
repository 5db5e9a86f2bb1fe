"""What a scheduler sees: :class:`ClusterView`; what it answers is in envs/scheduler.py.

The view is read-only. Columns are arrays over job slots (J,) or nodes (N,); ``view.slots`` lists
the slots in use. Columns whose name starts with ``oracle_`` hold what no real scheduler knows; a
scheduler that reads one says so in its documentation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from envs.freezing import seen_front, seen_penalty
from envs.layout import FREE, MAX_REPLICAS, RUNNING, WAITING
from envs.online import write_goodput
from envs.order import ListOrder
from envs.scheduler import Decision
from envs.spec import ClusterSpec, SimConfig
from envs.straggler_view import StragglerView
from envs.tables import FITTED_SHAPES
from envs.trials import held_by_node, rank_slots, try_list
from envs.workload import Workload

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class ClusterView:
    """Read-only picture of one cluster at a scheduling pass."""

    def __init__(
        self, states: np.recarray, cluster: ClusterSpec, config: SimConfig, workload: Workload, seed: int = 0
    ) -> None:
        self._states = states
        self._s = states[0]
        self.cluster = cluster
        self.config = config
        self.seed = seed
        self._workload = workload
        self._known: set[int] = set()
        self.arrivals: tuple[int, ...] = ()
        self.exits: tuple[int, ...] = ()

    def refresh(self, states: np.recarray) -> None:
        """Point at ``states`` and list the jobs that arrived or left since the last pass."""
        self._states, self._s = states, states[0]
        present = {int(self._s.job_id[j]) for j in self.slots}
        self.arrivals = tuple(sorted(present - self._known))
        self.exits = tuple(sorted(self._known - present))
        self._known = present

    def _slots(self, name: str) -> npt.NDArray[Any]:
        column: npt.NDArray[Any] = self._states[name][0][: self.num_slots]
        column = column.view()
        column.flags.writeable = False
        return column

    def _flags(self, column: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        return column

    def _nodes(self, name: str) -> Ints:
        column: Ints = self._states[name][0][: int(self._s.num_nodes)].view()
        column.flags.writeable = False
        return column

    @property
    def now(self) -> float:
        """Time since the start of the window [s]."""
        return float(self._s.now)

    @property
    def num_slots(self) -> int:
        """J, the number of job slots."""
        return int(self._s.num_slots)

    @property
    def slots(self) -> Ints:
        """Slots in use, in order of arrival."""
        used = np.flatnonzero(self._slots("phase") != FREE)
        return used[np.argsort(self._slots("job_id")[used], kind="stable")]

    @property
    def job_id(self) -> Ints:
        """(J,) row of the job in the trace; -1: free slot."""
        return self._slots("job_id")

    @property
    def waiting(self) -> npt.NDArray[np.bool_]:
        """(J,) whether the job holds no GPUs."""
        return self._flags(self._slots("phase") == WAITING)

    @property
    def running(self) -> npt.NDArray[np.bool_]:
        """(J,) whether the job holds GPUs (it may be paused)."""
        return self._flags(self._slots("phase") == RUNNING)

    @property
    def num_gpus(self) -> Ints:
        """(J,) [GPUs] requested."""
        return self._slots("request")

    @property
    def share_milli(self) -> Ints:
        """(J,) [1/1000 GPU] share of each device requested."""
        return self._slots("share")

    @property
    def gpu_type(self) -> Ints:
        """(J,) index into ``cluster.types`` that the job requires; -1: any single type."""
        return self._slots("gpu_type")

    @property
    def device(self) -> Ints:
        """(J,) a device that the job holds, of a share of one that device; -1: none."""
        return self._slots("first_gpu")

    @property
    def gpus(self) -> Ints:
        """(J,) [GPUs] held."""
        return np.where(self._slots("phase") == FREE, 0, self._slots("gpus"))

    @property
    def preemptible(self) -> npt.NDArray[np.bool_]:
        """(J,) whether GPUs may be taken away."""
        return self._flags(self._slots("pinned") == 0)

    @property
    def arrival(self) -> Floats:
        """(J,) [s]."""
        return self._slots("arrival")

    @property
    def first_start(self) -> Floats:
        """(J,) [s]; NaN: not yet."""
        return self._slots("first_start")

    @property
    def service(self) -> Floats:
        """(J,) [GPU-s] attained, pauses included."""
        held = self._slots("gpus") * self._slots("share") / 1000 * (self.now - self._slots("held_since"))
        service: Floats = self._slots("service") + np.where(self.running, held, 0.0)
        return service

    @property
    def queueing_delay(self) -> Floats:
        """(J,) [s] waited so far."""
        waited = self.now - self._slots("waiting_since")
        delay: Floats = self._slots("queueing_delay") + np.where(self.waiting, waited, 0.0)
        return delay

    @property
    def estimate(self) -> Floats:
        """(J,) [s] duration as far as ``config.durations`` lets a scheduler know it; 0: unknown."""
        return self._slots("estimate")

    @property
    def remaining(self) -> Floats:
        """(J,) [s] of the estimate not yet done, of an elastic job as at its request; 0: unknown or overdue."""
        left: Floats = self._slots("estimate") + self._slots("extra_work") - self._done
        share: Floats = self._slots("estimate") * (1.0 - self.elastic_progress)
        return np.maximum(0.0, np.where(self.elastic, share, left))

    @property
    def oracle_remaining(self) -> Floats:
        """(J,) [s] true work left of rigid jobs."""
        left: Floats = self._slots("work") - self._done
        return np.where(self.elastic, np.nan, left)

    @property
    def _done(self) -> Floats:
        with np.errstate(invalid="ignore"):
            progress = np.where(self.running, np.maximum(0.0, self.now - self._slots("anchor")), 0.0)
        done: Floats = self._slots("done") + self._slots("rate") * progress
        return done

    @property
    def elastic(self) -> npt.NDArray[np.bool_]:
        """(J,) whether the job has a model profile and may hold any number of GPUs up to ``max_gpus``."""
        return self._flags((self._slots("klass") >= 0) & (self._slots("phase") != FREE))

    @property
    def max_gpus(self) -> Ints:
        """(J,) [GPUs] most that the job may hold."""
        column: Ints = self._slots("max_gpus")
        return column

    @property
    def age(self) -> Floats:
        """(J,) [s] since arrival."""
        age: Floats = self.now - self._slots("arrival")
        return age

    @property
    def profiled(self) -> Ints:
        """(J,) [GPUs] most that the job has been observed on; without ``knowledge online`` all that it may hold."""
        column: Ints = self._slots("profiled" if self.config.knowledge == "online" else "max_gpus")
        return column

    @property
    def num_rescales(self) -> Ints:
        """(J,) changes of GPUs while running."""
        column: Ints = self._slots("num_rescales")
        return column

    @property
    def num_restarts(self) -> Ints:
        """(J,) changes of GPUs after the first start, resumptions included."""
        starts: Ints = self._slots("num_starts")
        return np.maximum(0, starts - 1)

    @property
    def elastic_progress(self) -> Floats:
        """(J,) share of the statistical work done; 0 for rigid jobs."""
        with np.errstate(divide="ignore", invalid="ignore"):
            share: Floats = np.where(self.elastic, self._done / self._slots("work"), 0.0)
        return share

    @property
    def elastic_remaining(self) -> Floats:
        """(J,) [iterations at the initial batch] statistical work left of elastic jobs; 0 for rigid ones."""
        left: Floats = np.where(self.elastic, self._slots("work") - self._done, 0.0)
        return left

    @property
    def modules(self) -> Ints:
        """(J,) modules of jobs whose layers may be frozen; 0: they may not."""
        return self._slots("modules").astype(np.int64)

    @property
    def max_depth(self) -> Ints:
        """(J,) most first modules that may be frozen."""
        return self._slots("max_depth").astype(np.int64)

    @property
    def depth(self) -> Ints:
        """(J,) first modules that are frozen."""
        return self._slots("depth").astype(np.int64)

    def front(self, slots: npt.ArrayLike) -> Ints:
        """(n,) first modules of slots (n,) that seem to have converged, as ``config.front`` says."""
        wanted = np.asarray(slots, np.int64)
        return np.array([seen_front(self._s, slot) for slot in wanted], np.int64)

    def penalty(self, slots: npt.ArrayLike, depth: npt.ArrayLike) -> Floats:
        """(n,) share of speed that ``depth`` (n,) frozen modules of slots (n,) would seem to cost from now on.

        From the progress that each module has been active for, if modules converge when they usually do.
        """
        wanted = zip(*np.broadcast_arrays(np.asarray(slots, np.int64), depth), strict=True)
        return np.array([seen_penalty(self._s, self._workload.tables, j, k) for j, k in wanted], np.float64)

    def goodput(self, slots: npt.ArrayLike, widest: npt.ArrayLike = MAX_REPLICAS, depth: npt.ArrayLike = 0) -> Floats:
        """(n, 2, 65) [iterations at the initial batch per s] of elastic slots (n,), by ``config.knowledge``.

        ``depth`` (n,): first modules frozen, their penalty not counted.

        By one node (0) or several (1) and GPUs, on the job's GPU type or the first. 0: not possible, or beyond
        ``widest`` (n,) [GPUs], which saves time where speeds are fitted (``knowledge online``).
        """
        wanted, w = np.asarray(slots, np.int64), self._workload.tables
        most = np.minimum(np.minimum(self._slots("max_gpus")[wanted], MAX_REPLICAS), widest)
        types = self._known_types(wanted)
        found = np.zeros((len(wanted), 2, MAX_REPLICAS + 1))
        if self.config.knowledge == "online":
            for row, slot in enumerate(wanted):
                write_goodput(self._s, w, slot, types[row], most[row], found[row])
            return found
        of = w.classes[self._slots("klass")[wanted]]
        epoch = np.asarray(depth) * of["epochs"] + self._slots("epoch")[wanted]
        first = of["known_at"] + epoch * of["known_shapes"] + types * FITTED_SHAPES
        known = w.floats[first[:, None] + np.arange(FITTED_SHAPES)].reshape(found.shape)
        return np.where(np.arange(MAX_REPLICAS + 1) <= most[:, None, None], known, 0.0)

    def _known_types(self, slots: Ints) -> Ints:
        """(n,) GPU type that each job holds or must have, else the first."""
        first = self._slots("first_gpu")[slots]
        held = self._nodes("node_type")[self._states["gpu_node"][0][np.maximum(first, 0)]]
        types: Ints = np.where(first >= 0, held, np.maximum(self._slots("gpu_type")[slots], 0))
        return types

    def oracle_iteration_s(self, slots: npt.ArrayLike) -> Floats:
        """(n, 65) [s] true time of an iteration of elastic slots (n,) by GPUs, on as few nodes as possible.

        Of the requested batch; inf where that is not possible.
        """
        wanted = np.asarray(slots, np.int64)
        seconds = self._workload.iteration_s[self._slots("klass")[wanted]]
        return np.where(np.arange(MAX_REPLICAS + 1) <= self._slots("max_gpus")[wanted][:, None], seconds, np.inf)

    def oracle_sample_s(self, slots: npt.ArrayLike) -> Floats:
        """(n, 65) [s] as :meth:`oracle_iteration_s`, but for a sample, and for more GPUs than ``max_gpus`` too.

        An iteration takes more samples than the batch has where that cannot be divided evenly.
        """
        seconds: Floats = self._workload.sample_s[self._slots("klass")[np.asarray(slots, np.int64)]]
        return seconds

    def oracle_iterations_left(self, slots: npt.ArrayLike) -> Floats:
        """(n,) iterations of the requested batch that elastic slots (n,) need to finish.

        Under ``compat pollux`` those of the present epoch do not count, and a job in its last has one left.
        """
        wanted = np.asarray(slots, np.int64)
        at = self._slots("klass")[wanted], self._slots("epoch")[wanted]
        whole = self._workload.whole_iterations[at]
        if self.config.as_pollux:
            return np.where(
                self._slots("epoch")[wanted] < self._workload.tables.classes["epochs"][at[0]] - 1, whole, 1.0
            )
        ends = self._slots("target")[wanted]
        starts = np.where(at[1] > 0, self._workload.tables.floats[self._progress_at(wanted) - 1], 0.0)
        share = (ends - self._done[wanted]) / (ends - starts)
        left: Floats = whole + share * self._workload.epoch_iterations[at]
        return left

    def _progress_at(self, slots: Ints) -> Ints:
        """(n,) place of the present epoch in the table of progress."""
        places: Ints = (
            self._workload.tables.classes["progress_at"][self._slots("klass")[slots]] + self._slots("epoch")[slots]
        )
        return places

    @property
    def node_gpus(self) -> Ints:
        """(N,) [GPUs] of each node."""
        return self._nodes("node_gpus")

    @property
    def node_free(self) -> Ints:
        """(N,) [GPUs] wholly free on each node."""
        return self._nodes("node_free")

    @property
    def node_type(self) -> Ints:
        """(N,) index into ``cluster.types``."""
        return self._nodes("node_type")

    @property
    def open_gpus(self) -> int:
        """GPUs that training may hold, held ones included: those of nodes that are up and not inference's."""
        return int(self._states["type_up"][0].sum())

    @property
    def node_pods(self) -> Ints:
        """(N,) pods of inference services on each node that are awake."""
        return self._nodes("node_pods")

    @property
    def gpu_holder(self) -> Ints:
        """(D,) slot that holds each device; -1: nobody; other negative numbers: HOLDER_ in envs/layout.py."""
        column: Ints = self._states["gpu_holder"][0][: int(self._s.num_gpus)].view()
        column.flags.writeable = False
        return column

    @property
    def stragglers(self) -> StragglerView:
        """What is seen of stragglers; SpecError if there are none."""
        return StragglerView(self._states, self.config)

    @property
    def num_queued(self) -> int:
        """Inference tasks that wait for a device."""
        return int(self._s.num_queued)

    def placement(self) -> npt.NDArray[np.int16]:
        """(J, N) int16 [GPUs] held by each slot on each node."""
        return held_by_node(self._s)

    def ranked(self, order: ListOrder) -> Ints:
        """(n,) slots in use, running ones too, as a list scheduler of ``order`` would take them now.

        Levels, and what else depends on the past, are those of the rule that the cluster runs by.
        """
        return rank_slots(self._states, self.slots, order)

    def pack(self, slots: npt.ArrayLike, *, preempt: bool = False, backfill: bool = True) -> Decision:
        """The decision of a list scheduler that takes jobs in the order ``slots``.

        Without ``preempt`` running jobs stay; with it they compete at their place in ``slots`` (those
        not named come last) and may be evicted by jobs before them. ``backfill``: go on behind a
        job that does not fit. Placement is consolidated unless ``preempt`` is off.
        """
        return try_list(self._states, self.slots, np.asarray(slots, np.int64), preempt, backfill)
