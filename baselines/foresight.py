"""How much slower stragglers are expected to make a job at each node (shared/design/stragglers.md, 3.5 and 4.2).

From the probability p that a node and cause straggle within h minutes its hazard is l = -ln(1 - p) / h a minute, of
h = 10 or 60, whichever is nearer to the job's horizon H = min(60, time left). Of H, starting from normal, it is slow
for the share

    pi = q (1 - (1 - exp(-a H)) / (a H)),  a = l + 1/m,  q = l / a

m being the usual length of episodes, and the job's excess time there is e = pi x (how much it feels the cause) x (the
preset's mean excess of severity). What is slow now has a p near 1, so a large hazard. Compute is a mixture of a node's
CPUs, its storage (where it straggles) and its GPUs, weighed by how often each begins to be slow with the usual share of
hot background; jobs feel a slow GPU with factor 1. Of the preset a scheduler is taken to know the table, but not
``--sim.straggler-severity`` or ``-rate``.

p is of the load as it is. A job adds d = 0.4 kappa_cpu of a node's CPUs, and on several nodes 0.5 omega of its link,
times the share of the node's devices that it takes, which raises the hazard by

    rate x (sigma((U + d - theta) / w) - sigma((U - theta) / w))

of CPUs and links; that of CPUs is 0 unless two share the node, other users of a hot background and inference among
them. It raises it for the job, and for those that are there already: *harm*. U is what was measured at the beginning of
a turn of 300 s less the demand of jobs at that time, plus that of now. Rates are those of the preset, times how often
nodes seem to straggle in all by p over how often they should by that law: so that where nothing straggles in spite of
the preset nobody is afraid of load.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from baselines.room import Bools, Floats, Ints, Room
from envs.rng import Purpose, uniform
from envs.straggler_presets import CALM, CPU_DEMAND, HORIZONS_S, HOT, NET_DEMAND, THETA, TURN_S, WIDTH, Cause
from envs.view import ClusterView

HORIZONS = np.array(HORIZONS_S) / 60.0  # [min]
SURE = 1.0 - 1e-6
LEAST_LEFT_S = 600.0  # time left of a job of which nothing is known
LEAST_HAZARD = 1e-3  # an hour: where so little straggles nothing can be told
MOST_INTENSITY = 2.0


class Added(NamedTuple):
    """What a job would meet and do at each node, all (C, N): excess of its compute and link times, harm to others."""

    compute: Floats
    network: Floats
    harm: Floats


class Foresight:
    """What is seen at a pass, and what it means to each job. ``shuffle``: with probabilities of other nodes."""

    def __init__(self, shuffle: bool = False) -> None:
        self._shuffle = shuffle
        self._turn = -1

    def look(self, view: ClusterView, room: Room) -> None:
        """Read what is to be seen at a pass."""
        seen, turn = view.stragglers, int(view.now // TURN_S)
        self._view, self._preset = view, seen.preset
        self._kappa, self._comm = seen.sensitivity, seen.comm_share
        p = np.clip(seen.p, 0.0, SURE)
        self._hazard: Floats = -np.log1p(-p) / HORIZONS  # (N, 2, 2) [1/min]
        if self._shuffle:
            order = [uniform(view.seed, Purpose.PLACEMENT, -1 - n, turn) for n in range(len(p))]
            self._hazard = self._hazard[np.argsort(order)]
        if turn != self._turn:
            self._turn = turn
            self._background: Floats = np.maximum(0.0, seen.load - self._demand(room))
        self.left_s = time_left(view)
        self._means, self._weights = self._mixture(view)
        self._intensity = self._seen_intensity(room, p[:, :, 1])

    def _seen_intensity(self, room: Room, p: Floats) -> Floats:
        """(2,) by cause: how often nodes straggle by ``p`` (N, 2) within an hour, over how often they should."""
        should = 1.0 - np.exp(-60.0 * np.stack(self._onsets(room, 2), axis=1))
        hazard = -np.log1p(-np.stack([p.mean(axis=0), should.mean(axis=0)]))
        ratio: Floats = (hazard[0] + LEAST_HAZARD) / (hazard[1] + LEAST_HAZARD)
        return np.minimum(ratio, MOST_INTENSITY)

    def _mixture(self, view: ClusterView) -> tuple[Floats, Floats]:
        """Usual minutes (2,) of an episode by cause, and weights (4,) of CPU, NET, IO, GPU within theirs."""
        causes = self._preset.causes
        often = np.array([cause.least_rate + cause.hot_rate * cause.hot_share for cause in causes])
        often[3] = causes[3].least_rate * view.node_gpus.mean()
        often *= [1.0, 1.0, float(view.config.straggler_io), 1.0]
        minutes = np.array([cause.mean_min for cause in causes])
        weights = often / max(1e-12, often[[0, 2, 3]].sum())
        weights[1] = 1.0
        return np.array([weights[[0, 2, 3]] @ minutes[[0, 2, 3]], minutes[1]]), weights

    def feels(self, slots: Ints) -> Floats:
        """(n, 2) excess of iterations' compute and link times of ``slots`` (n,) while a node is slow, by cause."""
        excess = np.array([cause.excess for cause in self._preset.causes])
        factor = np.ones((len(slots), 4))
        factor[:, :3] = self._kappa[slots]
        factor *= self._weights * excess
        return np.stack([factor[:, [0, 2, 3]].sum(axis=1), factor[:, 1]], axis=1)

    def present(self, slots: Ints, rows: Ints) -> Floats:
        """(n,) expected excess of iterations of running ``slots`` (n,) where they are, ``rows`` (n, N)."""
        minutes = horizon(self.left_s[slots])
        hazard = self._hazard[:, :, nearest(minutes)].transpose(2, 0, 1)
        excess = slow_share(hazard, self._means, minutes[:, None, None]) * self.feels(slots)[:, None, :]
        sums = (excess * (rows > 0)[:, :, None]).sum(axis=1)
        comm = self._comm[slots]
        several = (rows > 0).sum(axis=1) > 1
        felt: Floats = (1.0 - comm) * sums[:, 0] + comm * several * sums[:, 1]
        return np.minimum(self.cap, felt)

    @property
    def cap(self) -> float:
        """Most excess that a severity can be."""
        cap: float = self._preset.most_severe - 1.0
        return cap

    def added(self, slot: int, room: Room, rows: Ints, several: Bools) -> Added:
        """What job ``slot``, which holds nothing in ``room``, would meet and do there by taking ``rows`` (C, N).

        ``several`` (C,): whether a placement spans nodes.
        """
        comm = self._comm[slot]
        size = rows * (room.share[slot] / 1000.0) / room.node_gpus
        extra = self._extra(room, CPU_DEMAND * self._kappa[slot, 0] * size, NET_DEMAND * comm * size, several)
        minutes = horizon(self.left_s[[slot]])
        hazard = self._hazard[:, :, nearest(minutes)[0]]
        feels = self.feels(np.array([slot]))[0]
        excess = [slow_share(hazard[:, c] + extra[c], self._means[c], minutes[0]) * feels[c] for c in range(2)]
        return Added(excess[0] * (rows > 0), excess[1] * (rows > 0), self._harm(room, extra) * (rows > 0))

    def _extra(self, room: Room, cpu: Floats, net: Floats, several: Bools) -> tuple[Floats, Floats]:
        """(C, N) hazards [1/min] of CPUs and links that demands (C, N) add."""
        before, after = self._onsets(room, 2), self._onsets(room, 1, cpu, net)
        more = [np.maximum(0.0, after[c] - before[c]) * self._intensity[c] for c in range(2)]
        return more[0], np.where(several[:, None], more[1], 0.0)

    def _onsets(self, room: Room, tenants: int, cpu: Floats | float = 0.0, net: Floats | float = 0.0) -> list[Floats]:
        """Hazards [1/min] of CPUs and of links by the preset where demands (C, N) come on top; both (N,) or (C, N).

        That of CPUs is 0 where there are fewer than ``tenants`` already.
        """
        load = self._background + self._demand(room)
        hot = self._background[:, 0] > (HOT + CALM) / 2
        shared = (room.rows > 0).sum(axis=0) + hot + (self._view.node_pods > 0) >= tenants
        causes = self._preset.causes
        return [np.where(shared, onset_rate(causes[0], load[:, 0] + cpu), 0.0), onset_rate(causes[1], load[:, 1] + net)]

    def _harm(self, room: Room, extra: tuple[Floats, Floats]) -> Floats:
        """(C, N) excess of iterations of all jobs at each node that ``extra`` hazards (C, N) cause, over an hour."""
        jobs = np.flatnonzero(room.rows.any(axis=1))
        there = room.rows[jobs] > 0
        comm = self._comm[jobs]
        several = there.sum(axis=1) > 1
        felt = [((1.0 - comm) * self._kappa[jobs, 0]) @ there, (comm * several * self._kappa[jobs, 1]) @ there]
        harm = np.zeros_like(extra[0])
        for c in range(2):
            usual = self._hazard[:, c, 1]
            cause = self._preset.causes[c]
            more = slow_share(usual + extra[c], cause.mean_min, HORIZONS[1])
            harm += (more - slow_share(usual, cause.mean_min, HORIZONS[1])) * felt[c] * cause.excess
        return harm

    def _demand(self, room: Room) -> Floats:
        """(N, 2) load of CPUs and links that jobs and awake pods make at each node."""
        jobs = np.flatnonzero(room.rows.any(axis=1))
        rows = room.rows[jobs]
        share = room.share[jobs] / 1000.0
        several = (rows > 0).sum(axis=1) > 1
        each = np.stack([CPU_DEMAND * self._kappa[jobs, 0], NET_DEMAND * self._comm[jobs] * several]) * share
        load = each @ rows
        load[0] += CPU_DEMAND * self._view.node_pods
        return (load / room.node_gpus).T


def onset_rate(cause: Cause, load: Floats) -> Floats:
    """(...) hazards [1/min] of components with ``load`` (...)."""
    rate: Floats = (cause.least_rate + cause.hot_rate / (1.0 + np.exp((THETA - load) / WIDTH))) / 60.0
    return rate


def slow_share(hazard: Floats, mean_min: Floats | float, minutes: Floats | float) -> Floats:
    """(...) share of the next ``minutes`` that something normal now is slow; ``hazard`` [1/min] (...)."""
    turnover = hazard + 1.0 / np.asarray(mean_min)
    spent = turnover * minutes
    share: Floats = hazard / turnover * (1.0 + np.expm1(-spent) / spent)
    return share


def horizon(left_s: Floats) -> Floats:
    """(n,) [min] for which it matters where a job is, with ``left_s`` (n,) to go."""
    return np.clip(left_s / 60.0, 1.0, HORIZONS[1])


def nearest(minutes: Floats) -> Ints:
    """(n,) which of HORIZONS is nearest, by ratio."""
    longer: Bools = minutes > np.sqrt(HORIZONS.prod())
    return longer.astype(np.int64)


def time_left(view: ClusterView) -> Floats:
    """(J,) [s] that each job may still run; where its estimate says nothing, as long again as it has, or 10 min."""
    held = view.num_gpus * view.share_milli / 1000.0
    attained = view.service / np.maximum(held, 1e-9)
    return np.where(view.remaining > 0, view.remaining, np.maximum(attained, LEAST_LEFT_S))
