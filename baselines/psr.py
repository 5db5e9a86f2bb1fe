"""PSR-H: placement by the straggling that is to be expected, and moves away from it; after Shen and Zhang, CCGrid'25.

The text of "Deep Learning Training Job Scheduling for Proactive Straggler Reduction" is not public. This is a
reconstruction by heuristics (shared/design/stragglers.md, section 4.2), from the abstract, from the group's earlier
code (SAS, STAR) and otherwise ours; it claims none of the paper's results. The host says who runs, so that no gain is
one of ordering. Then:

1. For each job that gets devices, candidates are scored whole (psr_score.py) by the excess time that the seen
   probabilities let it expect (foresight.py), static speeds of GPUs, fragmentation and the harm done to jobs that are
   there. The least score wins, the oblivious choice among equals.
2. It waits up to two rounds (of ``--sim.interval-s``, or 60 s) if all devices being free would spare it more than
   ``gain`` of its time, and that, times half its time left, outweighs the wait until such a place is free, of the job
   and of those that it keeps back.
3. A job of several GPUs on nodes flagged for compute alone is re-batched (LB-BSP) once it has lost what that costs, and
   made synchronous again when the flag has gone.
4. Every ``migrate_every_s``, at most two jobs move, those first that gain most GPU-time: where the risk now less that
   there, times the time left, exceeds twice the pause; or off flagged nodes where the loss since the last move has
   reached the pause (ski rental) and other nodes promise less than what is observed; and not before re-batching if that
   could help.

Departures from section 4.2: instead of five forecast steps the present load and the two horizons of p; instead of
k-means over them, parts of the nodes by risk; the wait of those kept back counts; the pause is ``--sim.rescale-s``.
Jobs that must not be preempted stay.
It knows probabilities by ``--sim.straggler-obs``, measured loads, flags, observed iteration times, profiled speeds, the
preset, and remaining times as ``--sim.durations`` lets it; a job of unknown time left is taken to run as long again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from baselines.foresight import Foresight
from baselines.losses import Losses
from baselines.placing import Placing, place
from baselines.psr_moves import migrate, rebatch
from baselines.psr_score import Scored, Weights, score_all
from baselines.room import Ask, Floats, Ints, Room
from envs.view import ClusterView

ROUNDS = 2  # that a job may be made to wait
ROUND_S = 60.0  # without an interval


@dataclass
class Psr(Placing):
    """Place jobs whole where least straggling is to be expected, and move them when that pays."""

    w_frag: float = 0.05
    """Weight of a further node, or of a node's worth of GPUs left free beside a job."""
    w_ext: float = 1.0
    """Weight of the harm done to jobs that are there; 0: the ablation without."""
    gain: float = 0.1
    """Excess time, relative, for whose sake a job may wait; inf: none does."""
    migrate_every_s: float = 300.0
    """Time between two looks at the jobs that run [s]."""
    placement: bool = True
    """Place by score; else obliviously."""
    migration: bool = True
    """Move jobs that run."""
    react: bool = True
    """Move and re-batch jobs that run; false: neither."""
    shuffle: bool = False
    """See the probabilities of other nodes, drawn anew every turn: what that leaves of the gain is not theirs."""

    rule: ClassVar[str] = "psr"

    def __post_init__(self) -> None:
        for name in ("w_frag", "w_ext"):
            if not 0 <= getattr(self, name) < inf:
                raise ValueError(f"{name} must be a finite number >= 0, not {getattr(self, name)}")
        if not self.gain >= 0:
            raise ValueError(f"gain must be a number >= 0, not {self.gain}")
        if not 0 <= self.migrate_every_s < inf:
            raise ValueError(f"migrate_every_s must be a finite time >= 0, not {self.migrate_every_s}")

    @property
    def oracle(self) -> tuple[str, ...]:
        return (*super().oracle, "straggler_p")

    def reset(self, view: ClusterView) -> None:
        super().reset(view)
        self._foresight, self._losses = Foresight(self.shuffle), Losses()
        self._since: dict[int, float] = {}  # when each job that is made to wait could first have started [s]
        self._next_look = 0.0

    def watch(self, view: ClusterView, room: Room) -> None:
        self._foresight.look(view, room)
        self._losses.read(view, room)
        waiting = set(view.job_id[view.waiting].tolist())
        self._since = {job: time for job, time in self._since.items() if job in waiting}

    def pick(self, view: ClusterView, room: Room, ask: Ask) -> Ints | None:
        if not self.placement:
            return place(view, ask)
        scored = score_all(view, self._foresight, room, ask, self._weights)
        best = scored.best()
        return None if self._defers(view, room, ask, float(scored.risk[best])) else scored.rows[best]

    @property
    def _weights(self) -> Weights:
        return Weights(self.w_frag, self.w_ext)

    def _defers(self, view: ClusterView, room: Room, ask: Ask, risk: float) -> bool:
        """Whether a job that would run at ``risk`` had better wait for another place."""
        job = int(view.job_id[ask.slot])
        round_s = view.config.interval_s or ROUND_S
        if view.running[ask.slot] or view.now - self._since.get(job, view.now) >= ROUNDS * round_s:
            return False
        least = (1.0 - view.stragglers.comm_share[ask.slot]) * view.stragglers.gpu_speed.min()
        if risk - least <= self.gain:  # no placement at all could be so much better
            return False
        space = room.emptied()
        wider = space.ask(ask.slot, ask.gpus, apart=ask.several)
        if wider is None:
            return False
        ideal = score_all(view, self._foresight, space, wider, self._weights)
        waits = self._worth_waiting(room, ideal, risk, float(self._foresight.left_s[ask.slot]))
        if waits:
            self._since.setdefault(job, view.now)
        return waits

    def _worth_waiting(self, room: Room, ideal: Scored, risk: float, left_s: float) -> bool:
        spared = risk - ideal.risk
        return any(
            0.0 < wait_for(room, ideal.rows[i], self._foresight.left_s) * (1 + self._behind) < left_s * spared[i] / 2
            for i in np.flatnonzero(spared > self.gain)
        )

    def move(self, view: ClusterView, room: Room) -> None:
        if not (self.react and self.migration) or view.now < self._next_look:
            return
        self._next_look = view.now + self.migrate_every_s
        migrate(view, room, self._foresight, self._losses, self._weights)

    def modes(self, view: ClusterView, room: Room) -> Ints | None:
        return rebatch(view, room, self._losses) if self.react else None


def wait_for(room: Room, row: Ints, left_s: Floats) -> float:
    """[s] until ``row`` (N,) [GPUs] is free if jobs that run end when they are expected to; inf: not then."""
    longest = 0.0
    for n in np.flatnonzero(row > room.free):
        jobs = np.flatnonzero(room.rows[:, n])
        jobs = jobs[np.argsort(left_s[jobs], kind="stable")]
        enough = np.flatnonzero(room.free[n] + np.cumsum(room.rows[jobs, n]) >= row[n])
        longest = max(longest, float(left_s[jobs[enough[0]]]) if len(enough) else inf)
    return longest
