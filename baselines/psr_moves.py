"""What PSR-H does about jobs that run: re-batching, then migration (shared/design/stragglers.md, 4.2, step 6)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from baselines.foresight import Foresight
from baselines.losses import Losses, flagged_nodes
from baselines.psr_score import Weights, score_all
from baselines.room import Bools, Floats, Ints, Room
from envs.layout import SYNC_MODES
from envs.view import ClusterView

LB_BSP, SYNCHRONOUS = SYNC_MODES.index("lb-bsp"), SYNC_MODES.index("synchronous")
MOST_MOVES = 2  # in a pass
PAYS = 2.0  # a move must be expected to save this many times its pause


class Wish(NamedTuple):
    """A job that may be better off elsewhere, all (n,)."""

    slots: Ints
    now: Floats  # risk where it is, as expected and as observed
    owed: Bools  # whether it has lost on flagged nodes what moving costs
    hopes: Floats  # GPU-time that it could gain at most [GPU-s]


def migrate(view: ClusterView, room: Room, foresight: Foresight, losses: Losses, weights: Weights) -> None:
    """Move at most MOST_MOVES jobs in ``room``, those first that have most to gain."""
    wish = find_wishes(view, room, foresight, losses)
    moved = 0
    for i in np.argsort(-wish.hopes, kind="stable"):
        if moved == MOST_MOVES or wish.hopes[i] <= 0:
            return
        slot = int(wish.slots[i])
        row = better_place(view, room, foresight, weights, slot, float(wish.now[i]), bool(wish.owed[i]))
        if row is not None:
            room.drop(slot)
            room.put(slot, row)
            moved += 1


def find_wishes(view: ClusterView, room: Room, foresight: Foresight, losses: Losses) -> Wish:
    """The jobs that may move; those that gain nothing even on perfect nodes have no hopes."""
    slots = room.movable()
    seen, rows = view.stragglers, room.rows[slots]
    comm, left_s = seen.comm_share[slots], foresight.left_s[slots]
    static = slowest_held(view, room, slots)
    now = (1.0 - comm) * static + foresight.present(slots, rows)
    flagged = losses.on_flagged[slots]
    owed = flagged.any(axis=1) & (losses.of(slots) >= view.config.rescale_s)
    # Iterations are seen to take (1 - w) f + w c; risk is without the w of a link of usual speed.
    now[owed] = np.maximum(now[owed], seen.slowdown(slots[owed]) - comm[owed])
    gains = left_s * (now - (1.0 - comm) * seen.gpu_speed.min())
    pays = (owed & (gains > 0)) | (gains > PAYS * view.config.rescale_s)
    pays &= ~may_rebatch(view, room)[slots] | ~flagged[:, 0] | flagged[:, 1]
    return Wish(slots, now, owed, np.where(pays, gains * rows.sum(axis=1), 0.0))


def better_place(
    view: ClusterView, room: Room, foresight: Foresight, weights: Weights, slot: int, now: float, owed: bool
) -> Ints | None:
    """(N,) [GPUs] where job ``slot`` had better be than where it is at a risk of ``now``; None: nowhere."""
    without = room.lifted(slot)
    ask = without.ask(slot, int(room.rows[slot].sum()))
    if ask is not None and owed:
        ask = ask.only(~flagged_nodes(view, ask.several))
    if ask is None or not ask.possible():
        return None
    scored = score_all(view, foresight, without, ask, weights)
    best = scored.best()
    gain = (now - float(scored.risk[best])) * float(foresight.left_s[slot])
    pays = gain > (0.0 if owed else PAYS * view.config.rescale_s)
    return scored.rows[best] if pays and (scored.rows[best] != room.rows[slot]).any() else None


def slowest_held(view: ClusterView, room: Room, slots: Ints) -> Floats:
    """(n,) static slowness of the slowest GPU that each of ``slots`` (n,) holds."""
    seen = view.stragglers
    held = np.flatnonzero(room.holder >= 0)
    slowest = np.zeros(view.num_slots)
    np.maximum.at(slowest, room.holder[held], seen.gpu_speed[held, seen.speed_class[room.holder[held]]])
    return slowest[slots]


def may_rebatch(view: ClusterView, room: Room) -> Bools:
    """(J,) whether a job waits for its slowest worker and could divide its samples by speed instead."""
    able: Bools = (room.rows.sum(axis=1) > 1) & (view.stragglers.sync == SYNCHRONOUS)
    return able


def rebatch(view: ClusterView, room: Room, losses: Losses) -> Ints:
    """(J,) modes of jobs that stay: LB-BSP on nodes flagged for compute alone, then as before; -1: no change."""
    usual = SYNC_MODES.index(view.config.sync)
    modes = np.full(view.num_slots, -1, np.int64)
    stay = view.running & (room.rows == room.before).all(axis=1)
    flagged = losses.on_flagged
    slots = np.flatnonzero(stay & may_rebatch(view, room) & flagged[:, 0] & ~flagged[:, 1])
    modes[slots[losses.of(slots) >= view.config.resync_s]] = LB_BSP
    running = room.rows.any(axis=1)
    again = running & (view.stragglers.sync == LB_BSP) & ~(stay & flagged[:, 0])
    modes[again] = usual
    return modes
