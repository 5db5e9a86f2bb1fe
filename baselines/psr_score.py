"""Candidate placements of a job and their scores: steps 3 and 4 of PSR-H, shared/design/stragglers.md, section 4.2.

    risk(P) = (1 - w) max v + min(cap, sum over n in P of (1 - w) e_n,compute + [|P| > 1] w e_n,network)
    score(P) = risk(P) + w_frag frag(P) + w_ext harm(P)

w: the job's share of communication; v: static slowness of the GPUs that it would take; e and harm: foresight.py;
frag(P): nodes beyond the first plus the GPUs that P leaves free on its nodes, over those of the largest node. That sums
are over the whole placement matters: a rule that looks at nodes one by one spreads jobs over many (section 4.5 there).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from baselines.foresight import Foresight
from baselines.placing import gather, place
from baselines.room import WHOLE, Ask, Floats, Ints, Room
from envs.view import ClusterView

TRADES = (0.0, 0.05, 0.1, 0.2, 0.4, 1.0, 9.0)  # of a node's used share against its risk
PARTS = 5


class Scored(NamedTuple):
    """Candidates (C, N) [GPUs], and (C,) what each is expected to cost."""

    rows: Ints
    risk: Floats
    score: Floats

    def best(self) -> int:
        """The least score; of equals the one on the fewest nodes, then the first."""
        ties = np.flatnonzero(self.score <= self.score.min() + 1e-12)
        return int(ties[(self.rows[ties] > 0).sum(axis=1).argmin()])


class Weights(NamedTuple):
    """Of fragmentation and of the harm done to others."""

    frag: float
    ext: float


def score_all(view: ClusterView, foresight: Foresight, room: Room, ask: Ask, weights: Weights) -> Scored:
    """Candidates for ``ask`` in ``room`` with their scores, the oblivious one first."""
    risk = node_risk(view, foresight, room, ask)
    oblivious = place(view, ask)
    assert oblivious is not None, "whoever asks has room"
    rows = np.vstack([oblivious, several_rows(ask, risk, room) if ask.several else single_rows(ask)])
    nodes = (rows > 0).sum(axis=1)
    met = foresight.added(ask.slot, room, rows, nodes > 1)
    comm = view.stragglers.comm_share[ask.slot]
    excess = (1.0 - comm) * met.compute.sum(axis=1) + comm * (nodes > 1) * met.network.sum(axis=1)
    total = (1.0 - comm) * room.slowest(ask, rows) + np.minimum(foresight.cap, excess)
    frag = nodes - 1 + unused(ask, room, rows) / room.node_gpus.max()
    return Scored(rows, total, total + weights.frag * frag + weights.ext * met.harm.sum(axis=1))


def node_risk(view: ClusterView, foresight: Foresight, room: Room, ask: Ask) -> Floats:
    """(N,) what each node alone would add to a job's iterations, if it took there all that it can."""
    most = np.minimum(ask.left, ask.gpus)
    met = foresight.added(ask.slot, room, most[None], np.array([ask.several]))
    comm = view.stragglers.comm_share[ask.slot]
    static = (1.0 - comm) * (room.slowest(ask, np.diag(most)) - 1.0)
    risk: Floats = static + (1.0 - comm) * met.compute[0] + comm * ask.several * met.network[0]
    return risk


def single_rows(ask: Ask) -> Ints:
    """(C, N) each node with room for all of a job."""
    nodes = np.flatnonzero(ask.left > 0)
    rows = np.zeros((len(nodes), len(ask.left)), np.int64)
    rows[np.arange(len(nodes)), nodes] = ask.gpus
    return rows


def several_rows(ask: Ask, risk: Floats, room: Room) -> Ints:
    """(C, N) nodes in order of risk + trade x used share, and the emptiest of the least risky fifth, two fifths ..."""
    used = 1.0 - ask.left / room.node_gpus
    rows = [fill(ask, np.argsort(risk + trade * used, kind="stable")) for trade in TRADES]
    nodes = np.flatnonzero(ask.left > 0)
    nodes = nodes[np.argsort(risk[nodes], kind="stable")]
    for part in range(1, PARTS + 1):
        some = np.isin(np.arange(len(ask.left)), nodes[: -(-len(nodes) * part // PARTS)])
        if ask.only(some).possible():
            row = np.zeros_like(ask.left)
            gather(ask.only(some), np.zeros_like(ask.left), float, row)
            rows.append(row)
    return np.array(rows)


def fill(ask: Ask, order: Ints) -> Ints:
    """(N,) all that nodes have in ``order``, one after the other."""
    row, left = np.zeros_like(ask.left), ask.left[order]
    row[order] = np.clip(ask.gpus - (np.cumsum(left) - left), 0, left)
    return row


def unused(ask: Ask, room: Room, rows: Ints) -> Floats:
    """(C,) [GPUs] that placements (C, N) leave free on their nodes; of a share of a device what is free of that."""
    each = ask.left / WHOLE if room.share[ask.slot] < WHOLE else room.free - rows
    total: Floats = np.where(rows > 0, each, 0.0).sum(axis=1)
    return total
