"""Shared by the tests of the environment: workloads, players of episodes, and a recount of the devices."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import numpy as np

from envs.actions import COMMIT, NUM_EDITS, Edit
from envs.batch import Batch
from envs.env import ClusterEnv
from envs.layout import FREE, HOLDER_NONE, HOLDER_SHARED
from envs.registration import register
from envs.spec import SimConfig
from tests.envs.core_support import devices_of
from tests.envs.random_traces import random_case
from traces.trace import Trace, make_trace

register()

ID = "musher/Cluster-v0"
MIXED = "3x4:A+2x8:B+2x2:A"  # 7 nodes, 32 GPUs, two types
WHOLE = 1000
EVENTS = SimConfig(interval_s=0.0, on_event=True)
TOO_WIDE = 40  # GPUs: more than MIXED has

Choose = Callable[[Batch, Random], int]


def mixed_trace(count: int = 150, seed: int = 0, rejects: bool = True) -> Trace:
    """Bursts of jobs for MIXED: fractions, types, multi-node gangs, pinned, rejected and zero-length jobs."""
    rng = np.random.default_rng(seed)
    widths = rng.choice([1, 1, 1, 1, 2, 2, 2, 3, 4, 4, 6, 8, 12, 16, TOO_WIDE if rejects else 1], count)
    gaps = np.where(rng.random(count) < 0.5, 0.0, rng.exponential(200.0, count))
    columns = {
        "arrival_s": np.cumsum(gaps) + 50.0,
        "num_gpus": widths,
        "duration_s": np.where(rng.random(count) < 0.05, 0.0, rng.exponential(600.0, count)),
        "share_milli": np.where((widths == 1) & (rng.random(count) < 0.5), rng.integers(1, 1000, count), WHOLE),
        "gpu_type": rng.choice(["", "", "A", "B"], count),
        "preemptible": rng.random(count) < 0.8,
    }
    return make_trace(f"mixed-{seed}", columns)


def random_env(seed: int, **settings: Any) -> ClusterEnv:
    """An environment on a random small workload, cluster and configuration, reset; the whole trace is the window."""
    trace, cluster, _, config = random_case(seed)
    given = {"num_slots": Random(seed).choice((2, 7, 40)), "split": "all", "window_jobs": len(trace)}
    env = ClusterEnv(**{"trace": trace, "cluster": cluster, "sim": config, **given, **settings})
    env.reset(seed=seed)
    return env


# --- players: (batch of one, random numbers) -> action ---


def choose_random(batch: Batch, rng: Random) -> int:
    """Any valid action; every fifth time commit, so that time passes."""
    return COMMIT if rng.random() < 0.2 else int(rng.choice(np.flatnonzero(batch.mask[0])))


def choose_greedy(batch: Batch, rng: Random) -> int:
    """Start the waiting job with the least estimate that fits, the oldest of equals; else commit. Preempts nobody."""
    s = batch.states[0]
    fits = [j for j in range(int(s.num_slots)) if batch.mask[0, 1 + j * NUM_EDITS + Edit.MORE]]
    if not fits:
        return COMMIT
    return 1 + NUM_EDITS * min(fits, key=lambda j: (s.estimate[j], s.job_id[j])) + Edit.MORE


def choose_idle(batch: Batch, rng: Random) -> int:
    """Do nothing, ever."""
    return COMMIT


def choose_churn(batch: Batch, rng: Random) -> int:
    """Greedy, but some decisions stop or move a running job, or end the pass early."""
    others = [a for a in np.flatnonzero(batch.mask[0]) if a != COMMIT and (a - 1) % NUM_EDITS != Edit.MORE]
    if others and rng.random() < 0.25:
        return int(rng.choice(others))
    return COMMIT if rng.random() < 0.1 else choose_greedy(batch, rng)


PLAYERS: dict[str, Choose] = {
    "random": choose_random,
    "greedy": choose_greedy,
    "idle": choose_idle,
    "churn": choose_churn,
}


class Played(NamedTuple):
    """What an episode brought: rewards of every step, how it ended, and the last info."""

    rewards: list[float]
    terminated: bool
    truncated: bool
    info: dict[str, Any]


def play(env: ClusterEnv, choose: Choose, seed: int = 0, max_steps: int = 50_000) -> Played:
    """Play a reset environment to the end of its episode."""
    rng, rewards = Random(seed), []
    for _ in range(max_steps):
        _, reward, terminated, truncated, info = env.step(np.int64(choose(env.batch, rng)))
        rewards.append(reward)
        if terminated or truncated:
            return Played(rewards, terminated, truncated, info)
    raise AssertionError(f"the episode does not end within {max_steps} steps")


def random_actions(rng: np.random.Generator, mask: np.ndarray, commit: float = 0.2) -> np.ndarray:
    """(B,) int64: a uniformly drawn valid action of each row of a mask (B, A), or commit."""
    counts = mask.sum(axis=1)
    valid = np.flatnonzero(mask) % mask.shape[1]
    drawn = valid[np.cumsum(counts) - counts + rng.integers(counts)]
    return np.where(rng.random(len(mask)) < commit, COMMIT, drawn)


# --- the record ---


def state_bytes(batch: Batch) -> bytes:
    """Everything that an action may change, as bytes."""
    return b"".join(array.tobytes() for array in (batch.states, batch.results, batch.obs, batch.mask))


def holdings(s: Any) -> dict[int, list[int]]:
    """Devices of each slot that holds some, edits of the present pass included."""
    slots = (j for j in range(int(s.num_slots)) if s.phase[j] != FREE)
    return {j: devices for j in slots if (devices := devices_of(s, j))}


def check_devices(s: Any) -> None:
    """Assert, inside a pass too, that no device is given out twice and all counters equal a recount."""
    held = holdings(s)
    for g in range(int(s.num_gpus)):
        owners = [j for j, devices in held.items() if g in devices]
        assert s.gpu_free_milli[g] == WHOLE - sum(s.share[j] for j in owners) >= 0
        whole = [j for j in owners if s.share[j] == WHOLE]
        assert s.gpu_holder[g] == (whole[0] if whole else HOLDER_SHARED if owners else HOLDER_NONE)
    idle = s.gpu_free_milli[: s.num_gpus] == WHOLE
    nodes = s.gpu_node[: s.num_gpus][idle]
    assert np.bincount(nodes, minlength=s.num_nodes).tolist() == s.node_free[: s.num_nodes].tolist()
    types = np.bincount(s.node_type[nodes], minlength=s.num_types)
    assert types.tolist() == s.type_free[: s.num_types].tolist()
    for j in np.flatnonzero(s.phase[: s.num_slots] != FREE):
        devices = held.get(j, [])
        on = {int(s.gpu_node[g]) for g in devices}
        assert s.gpus[j] == len(set(devices)) == (s.request[j] if devices else 0)
        assert s.num_nodes_held[j] == len(on)
        assert len({int(s.node_type[n]) for n in on}) <= 1
        assert not devices or s.gpu_type[j] in (-1, int(s.node_type[min(on)]))
