"""Pollux: co-adaptive scheduling for goodput (Qiao et al., OSDI'21, sections 4.2 and 4.3).

At every pass a genetic search (genetic.py) looks for the placement of all jobs that maximises a power
mean of their speed-ups over a fair share; p = -1, the harmonic mean, favours the jobs that are worst off:

    u_j = speedup_j(nodes, GPUs) nodes / GPUs of the cluster, speedup = goodput / goodput(fair_K, one node)
    fair_K = ceil(GPUs of the cluster / jobs)

Where a job's row differs from what it holds, u_j is multiplied by max(age - restarts R, 0) / (age + R),
with R the assumed delay of a restart. A job may use at most twice the GPUs that it has run on
(knowledge online); before its first run its speed-up is GPUs / fair_K.
It knows each job's goodput as far as the simulator lets it, its age and its service; never how much work
is left. It changes allocations only at passes, so it is meant to run at an interval (60 s in the paper).
Departures: this is the policy of the authors' simulator (artefact branch), not the later open-source
scheduler, which maximises a plain sum. The search starts from the final first front of the pass before,
as theirs does, and from the placement as it is. Cluster autoscaling is not modelled. Rigid jobs, which
Pollux does not have, are gangs with a speed-up of 1 at their request; since growth by a GPU at a time
never builds a gang on several nodes, the search is offered one placement of each that waits. GPU types:
all are searched together as if equally fast, and a job keeps the type of which it drew most GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from baselines.genetic import Problem, search
from baselines.nsga2 import Floats, Ints, Matrix, Words
from baselines.parameters import PolicyError
from envs.scheduler import Decision
from envs.view import ClusterView

FLOOR = 1e-3  # added to each u, so that a job without GPUs does not make the mean 0


@dataclass
class Pollux:
    """Maximise the power mean of speed-ups over all placements by a genetic search at every pass."""

    generations: int = 100
    """Generations of a search, the initial population included."""
    population: int = 100
    """Members of the population."""
    avoid_interference: bool = True
    """At most one job that spans several nodes on any node."""
    power: float = -1.0
    """p of the mean of speed-ups: 1 is efficient, 0 the geometric mean, lower is fairer."""
    restart_s: float = 30.0
    """Delay of a restart that the policy assumes [s]."""

    name: ClassVar[str] = "pollux"
    batch: ClassVar[Literal["fixed", "tuned"]] = "tuned"
    oracle: ClassVar[tuple[str, ...]] = ()
    stochastic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.generations < 2 or self.population < 2:
            raise ValueError("generations and population must be at least 2")
        if not np.isfinite(self.power):
            raise ValueError(f"power must be a finite number, not {self.power}")
        if not 0 < self.restart_s < np.inf:
            raise ValueError(f"restart_s must be a finite number > 0, not {self.restart_s}")

    def reset(self, view: ClusterView) -> None:
        self._front: Matrix = np.zeros((0, 0, len(view.node_gpus)), np.int16)  # (F, J, N) of the pass before
        self._job_ids: Ints = np.zeros(0, np.int64)  # (J,) of its rows
        self._random: Words = np.array([view.seed], np.int64).astype(np.uint64)

    def allocate(self, view: ClusterView) -> Decision:
        """Raises :class:`PolicyError` for a job that asks for a share of a GPU."""
        for j in view.slots[view.share_milli[view.slots] < 1000]:
            raise PolicyError(f"pollux gives whole GPUs, but job {view.job_id[j]} asks for a share of one")
        placement = np.zeros((view.num_slots, len(view.node_gpus)), np.int16)
        jobs = precedence(view)
        if len(jobs):
            problem = self.make_problem(view, jobs)
            initial = np.concatenate([problem.base[None], place_gangs(problem), self._adapt(view.job_id[jobs])])
            best, self._front = search(
                problem, initial[: 2 * self.population], self.population, self.generations, self._random
            )
            self._job_ids = view.job_id[jobs].copy()
            placement[jobs] = best
        return Decision(placement.sum(axis=1, dtype=np.int64), placement)

    def make_problem(self, view: ClusterView, jobs: Ints) -> Problem:
        """What the search is to solve for the slots ``jobs`` (J,), in that order."""
        base = view.placement()[jobs]
        held = base.sum(axis=1, dtype=np.int64)
        pinned = (held > 0) & ~view.preemptible[jobs]
        gang = np.where(view.elastic[jobs], 0, view.num_gpus[jobs])
        most = np.where(view.elastic[jobs], most_gpus(view, jobs), gang)
        room = view.node_free + base.sum(axis=0)  # of a node that is down: 0
        speedups = speedup_table(view, jobs, int(room.sum()))
        u = speedups * np.count_nonzero(room) / max(int(room.sum()), 1)
        age = view.age[jobs]
        factor = np.maximum(age - view.num_restarts[jobs] * self.restart_s, 0.0) / (age + self.restart_s)
        u = np.stack([u, u * factor[:, None, None]], axis=1)
        return Problem(
            base=base,
            room=room.astype(np.int16),
            node_type=view.node_type.astype(np.int64),
            least=gang,
            most=most,
            terms=np.log(np.maximum(u, FLOOR)) if self.power == 0 else (u + FLOOR) ** self.power,
            speedups=speedups,
            num_pinned=int(pinned.sum()),
            num_types=int(view.node_type.max()) + 1,
            power=float(self.power),  # not int, for which the search would be compiled anew
            avoid_interference=self.avoid_interference,
        )

    def _adapt(self, job_ids: Ints) -> Matrix:
        """(F, J, N) the last first front with rows for these jobs, zero for new ones."""
        adapted = np.zeros((len(self._front), len(job_ids), self._front.shape[2]), np.int16)
        _, new, old = np.intersect1d(job_ids, self._job_ids, return_indices=True)
        adapted[:, new] = self._front[:, old]
        return adapted


def precedence(view: ClusterView) -> Ints:
    """Slots in use (J,): jobs that cannot be preempted and run, then by attained service, then by arrival."""
    jobs = view.slots
    pinned = (view.gpus[jobs] > 0) & ~view.preemptible[jobs]
    return jobs[np.lexsort((view.arrival[jobs], view.service[jobs], ~pinned))]


def most_gpus(view: ClusterView, jobs: Ints) -> Ints:
    """(J,) [GPUs] that elastic jobs may get: under knowledge online at most twice what they have run on."""
    most = np.minimum(view.max_gpus[jobs], 64)
    if view.config.knowledge == "online":
        most = np.minimum(most, np.maximum(2 * view.profiled[jobs], 1))
    return np.asarray(most, np.int64)


def speedup_table(view: ClusterView, jobs: Ints, total_gpus: int) -> Floats:
    """(J, 2, K + 1) float64 speed-up over the fair share: [job, one node or several, GPUs].

    The fair share is taken on one node even where it exceeds a node, as in the paper's simulator; a job
    that cannot run on as many GPUs is compared with the most that it can.
    """
    elastic = view.elastic[jobs]
    goodput = view.goodput(jobs[elastic])
    fair = -(-total_gpus // len(jobs))
    width = max(goodput.shape[2], int(view.num_gpus[jobs].max()) + 1)
    table = np.zeros((len(jobs), 2, width))
    table[elastic, :, : goodput.shape[2]] = goodput
    for row, j in enumerate(jobs):
        if not elastic[row]:
            table[row, :, view.num_gpus[j]] = 1.0
        elif view.config.knowledge == "online" and view.profiled[j] == 0:
            table[row] = np.arange(width) / max(fair, 1)
        else:
            possible = table[row, 0, : fair + 1]
            base = possible[possible > 0][-1:]
            table[row] = table[row] / base if base.size else 0.0
    return table


def place_gangs(problem: Problem) -> Matrix:
    """(G, J, N) for each rigid job that waits and fits: it is placed, elastic jobs shrink to make room."""
    rigid = problem.least > 0
    fixed = rigid | (np.arange(len(rigid)) < problem.num_pinned)
    found = []
    for j in np.flatnonzero(rigid & (problem.base.sum(axis=1) == 0)):
        free = problem.room - problem.base[fixed].sum(axis=0)
        for kind in range(problem.num_types):
            row = _pack(np.where(problem.node_type == kind, free, 0), int(problem.least[j]))
            if row.sum() == problem.least[j]:
                x = problem.base.copy()
                x[j] = row
                left = free - row
                for i in np.flatnonzero(~fixed):
                    x[i] = np.minimum(x[i], left)
                    left = left - x[i]
                found.append(x)
                break
    return np.array(found, np.int16).reshape(-1, *problem.base.shape)


def _pack(free: npt.NDArray[np.signedinteger], wanted: int) -> npt.NDArray[np.int64]:
    """(N,) [GPUs] of ``wanted`` on the nodes with most free (N,), ties lowest; all that is free if too little."""
    order = np.argsort(-free, kind="stable")
    row = np.zeros(len(free), np.int64)
    row[order] = np.diff(np.minimum(np.cumsum(free[order]), wanted), prepend=0)
    return row
