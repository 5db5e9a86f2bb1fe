"""Burn-in runs for the calibration of straggler probabilities: what is seen at every turn, and what then happens."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from envs.dynamics import FINISHED, REACHED
from envs.jit import jit
from envs.list_run import run_list
from envs.order import Key, ListOrder, set_order
from envs.simulate import Run
from envs.spec import ClusterSpec, SimConfig
from envs.straggler_odds import GRACE_S
from envs.straggler_presets import GPU, HORIZONS_S, NET, TURN_S
from envs.straggler_sight import COMPUTE, NETWORK, look
from traces.synthetic_stragglers import synthesise_stragglers

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
CLUSTER = ClusterSpec.parse("32x8")
NO_LIMIT = 1 << 60
TURNS, EPISODES = 0, 1  # counters of watch()


@dataclass
class Readings:
    """What was seen at K turns of a run, and what then happened; causes and horizons as in envs/straggler_sight.py."""

    p: Floats  # (K, N, 2, 2) as seen
    load: Floats  # (K, N, 2) measured
    happened: Flags  # (K, N, 2, 2) straggling within the horizon, as p defines it
    began: Flags  # (K, N, 2) an episode within the longer horizon


@jit
def write_readings(s, p, load):  # type: ignore[no-untyped-def]
    """Copy the present readings to ``p`` (N, 2, 2) and ``load`` (N, 2): by element, since no memory is allocated."""
    for n in range(s.num_nodes):
        for cause in range(2):
            load[n, cause] = s.node_load[n, cause]
            for h in range(2):
                p[n, cause, h] = s.seen_p[n, cause, h]


@jit
def watch(s, w, results, log, p, load, episodes, counts):  # type: ignore[no-untyped-def]
    """Run to the end, as advance() returns, writing readings, episodes and how many there are of each.

    ``p`` (K, N, 2, 2), ``load`` (K, N, 2), ``episodes`` (M, 3) component, onset and end; ``counts`` (2,) int64. Both
    end where there is no more room.
    """
    used = GPU * s.num_nodes + s.num_gpus
    while counts[TURNS] < p.shape[0] and counts[EPISODES] + used < episodes.shape[0]:
        turn = counts[TURNS]
        code = run_list(s, w, results, log, min(turn * TURN_S, s.next_straggle), NO_LIMIT)
        if code != REACHED:
            return code
        for c in range(used):
            if s.onset[c] == s.now:
                row = episodes[counts[EPISODES]]
                row[0], row[1], row[2] = c, s.now, s.comp_next[c]
                counts[EPISODES] += 1
        if s.now >= turn * TURN_S:
            look(s)
            write_readings(s, p[turn], load[turn])
            counts[TURNS] += 1
    return FINISHED


def burn_in(config: SimConfig, seed: int, turns: int, jobs: int) -> Readings:
    """Readings of up to ``turns`` turns while ``jobs`` synthetic jobs run first come first served."""
    run = Run(synthesise_stragglers(jobs=jobs, seed=seed), CLUSTER, config, seed)
    set_order(run.states, ListOrder(Key.ARRIVAL))
    run.start()
    p, load = np.zeros((turns, CLUSTER.num_nodes, 2, 2)), np.zeros((turns, CLUSTER.num_nodes, 2))
    episodes, counts = np.zeros((100 * turns, 3)), np.zeros(2, np.int64)
    while watch(run.states[0], run.tables, run.results, run.log, p, load, episodes, counts) != FINISHED:
        run.resolve_stop("fifo")
    kept = int(counts[TURNS]) - math.ceil(HORIZONS_S[1] / TURN_S)
    node = np.repeat(np.arange(CLUSTER.num_nodes), CLUSTER.node_gpus)
    happened, began = what_happened(episodes[: counts[EPISODES]], kept, node)
    return Readings(p[:kept], load[:kept], happened, began)


def what_happened(episodes: Floats, turns: int, node_of: npt.NDArray[np.int64]) -> tuple[Flags, Flags]:
    """``happened`` and ``began`` of readings at ``turns`` turns, whose longer horizon is over; ``node_of`` each GPU."""
    nodes = int(node_of[-1]) + 1
    happened, began = np.zeros((turns, nodes, 2, 2), bool), np.zeros((turns, nodes, 2), bool)
    for c, start, end in zip(episodes[:, 0].astype(int), episodes[:, 1], episodes[:, 2], strict=True):
        wide = c < GPU * nodes
        node = c // GPU if wide else node_of[c - GPU * nodes]
        cause = NETWORK if wide and c % GPU == NET else COMPUTE
        for h, horizon in enumerate(HORIZONS_S):
            happened[_turns(start - horizon, max(start, end - GRACE_S)), node, cause, h] = True
        began[_turns(start - HORIZONS_S[1], start), node, cause] = True
    return happened, began


def _turns(start: float, end: float) -> slice:
    """Turns whose time t is start <= t < end."""
    return slice(max(0, math.ceil(start / TURN_S)), max(0, math.ceil(end / TURN_S)))
