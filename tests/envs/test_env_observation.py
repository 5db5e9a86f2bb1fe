"""Every number that an agent sees, computed again from the trace and the record, in float64 and by name."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.actions import NUM_EDITS
from envs.batch import Batch
from envs.env import ClusterEnv
from envs.features import FEATURES
from envs.layout import FREE, RUNNING, WAITING
from envs.observe import fill_observation
from envs.spec import SimConfig
from envs.vector_env import ClusterVectorEnv
from tests.envs.core_support import hand
from tests.envs.env_support import MIXED, PLAYERS, WHOLE, choose_random, devices_of, holdings, mixed_trace, random_env

HOUR = 3600.0
NAMES = {block: [f.name for f in FEATURES if f.block == block] for block in ("cluster", "nodes", "jobs", "occupancy")}


def squash(x: float, c: float) -> float:
    return x / (x + c)


def cluster_block(batch: Batch) -> dict[str, float]:
    s = batch.states[0]
    free = [sum(s.gpu_free_milli[g] == WHOLE for g in node_devices(s, n)) for n in range(int(s.num_nodes))]
    phases = s.phase[: s.num_slots].tolist()
    arrivals = batch.jobs["arrival"][s.job_lo : s.job_hi] - s.origin
    return {
        "free": sum(free) / batch.settings.cluster.num_gpus,
        "largest_block": max(free) / batch.settings.cluster.node_gpus.max(),
        "waiting": squash(phases.count(WAITING), 16),
        "running": squash(phases.count(RUNNING), 16),
        "backlog": squash(s.num_unfinished - len(phases) + phases.count(FREE), 64),
        "to_arrive": (arrivals > s.now).mean(),
        "edits_left": s.edits_left / batch.settings.edit_budget,
        "open": 1,
        "tasks": 0,
    }


def node_devices(s: Any, n: int) -> range:
    return range(int(s.node_first[n]), int(s.node_first[n] + s.node_gpus[n]))


def node_block(batch: Batch, n: int) -> dict[str, float]:
    s, spec = batch.states[0], batch.settings.cluster
    free = sum(s.gpu_free_milli[g] == WHOLE for g in node_devices(s, n))
    return {
        "present": 1,
        "free": free / spec.node_gpus[n],
        "size": squash(spec.node_gpus[n], 8),
        "type": (spec.node_type[n] + 1) / 8,
        "awake": 0,
        "asleep": 0,
    }


def job_block(batch: Batch, j: int) -> dict[str, float]:
    s = batch.states[0]
    if s.phase[j] == FREE:
        return dict.fromkeys(NAMES["jobs"], 0.0)
    job = batch.settings.source.jobs.iloc[int(s.job_lo + s.job_id[j])]
    estimate = batch.jobs["estimate"][s.job_lo + s.job_id[j]]
    held, devices = s.phase[j] == RUNNING, holdings(s).get(j, [])
    age = s.now - (job["arrival_s"] - s.origin)
    waited = s.queueing_delay[j] + (0 if held else s.now - s.waiting_since[j])
    gpus = job["num_gpus"] * job["share_milli"] / 1000
    done = s.done[j] + (max(0.0, s.now - s.anchor[j]) if held else 0.0)
    total = estimate + s.extra_work[j]
    left = max(0.0, total - done) if estimate > 0 else 0.0
    return {
        "present": 1,
        "running": len(devices) > 0,
        "was_running": held,
        "request_share": job["num_gpus"] / batch.settings.cluster.num_gpus,
        "fraction": job["share_milli"] / 1000,
        "known": estimate > 0,
        "progress": min(done / total, 1.0) if estimate > 0 else 0.0,
        "preemptible": job["preemptible"],
        "elastic": 0,
        "held_share": len(devices) / batch.settings.cluster.num_gpus,
        "most_share": min(1, job["num_gpus"] / batch.settings.cluster.num_gpus),
        "yields": 0,
        "request": squash(job["num_gpus"], 8),
        "age": squash(age, HOUR),
        "waited": squash(waited, HOUR),
        "service": squash(gpus * (age - waited), HOUR),  # it held GPUs whenever it did not wait
        "remaining": squash(left, HOUR),
        "remaining_short": squash(left, 60),
        "remaining_gpu_time": squash(left * gpus, HOUR),
        "pause": squash(max(0.0, s.anchor[j] - s.now) if held else 0.0, 60),
        "preemptions": squash(s.num_preemptions[j], 4),
        "rescales": squash(s.num_rescales[j], 4),
        "nodes_held": squash(len({int(s.gpu_node[g]) for g in devices}), 4),
        **{f"goodput_{gpus}": 0 for gpus in (1, 2, 4, 8, 16)},
        "loss": 0,
    }


def occupancy_block(batch: Batch, n: int) -> list[int]:
    s = batch.states[0]
    holder = {g: j for j, devices in holdings(s).items() for g in devices}
    shared = {g for g, j in holder.items() if s.share[j] < WHOLE}
    row = [-3 if g in shared else holder.get(g, -1) for g in node_devices(s, n)]
    return row + [-4] * (batch.layout.gpus_per_node - len(row))


def check_observation(batch: Batch) -> None:
    """Assert that every block of the row equals its recomputation."""
    s, blocks = batch.states[0], batch.layout.split(batch.obs[0])
    rows = {
        "cluster": [cluster_block(batch)],
        "nodes": [node_block(batch, n) for n in range(int(s.num_nodes))],
        "jobs": [job_block(batch, j) for j in range(int(s.num_slots))],
    }
    for block, expected in rows.items():
        assert list(expected[0]) == NAMES[block]
        values = np.array([list(row.values()) for row in expected], np.float64)
        np.testing.assert_allclose(np.atleast_2d(blocks[block]), values, rtol=2e-6, atol=2e-6, err_msg=block)
    assert blocks["occupancy"].tolist() == [occupancy_block(batch, n) for n in range(int(s.num_nodes))]


@given(seed=st.integers(0, 10**6), player=st.sampled_from(["random", "churn"]))
@settings(max_examples=40, deadline=None)
def test_every_column_is_what_its_name_says(seed, player):
    env, rng = random_env(seed), Random(seed)
    low, high = env.layout.bounds()
    check_observation(env.batch)
    for _ in range(40):
        _, _, terminated, truncated, _ = env.step(np.int64(PLAYERS[player](env.batch, rng)))
        row = env.batch.obs[0]
        assert ((low <= row) & (row <= high)).all()
        check_observation(env.batch)
        if terminated or truncated:
            break


@given(seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_a_refreshed_row_equals_one_filled_anew(seed):
    env, rng = random_env(seed), Random(seed)
    full = np.full_like(env.batch.obs[0], np.nan)
    for _ in range(60):
        fill_observation(env.batch.states[0], env.settings.workload.tables, full, env.layout.gpus_per_node)
        assert full.tobytes() == env.batch.obs[0].tobytes()
        if any(env.step(np.int64(choose_random(env.batch, rng)))[2:4]):
            break


def test_an_environment_with_one_slot_keeps_its_bounds():
    env = ClusterEnv(trace=hand([(1, 0, 10)]), cluster="1x1", num_slots=1)
    assert env.reset(seed=0)[0] in env.observation_space


def test_unknown_durations_show_no_trace_of_the_truth():
    rows = []
    for duration in (10.0, 5000.0):
        sim = SimConfig(interval_s=0.0, on_event=True, durations="unknown")
        env = ClusterEnv(trace=hand([(1, 0, duration), (2, 0, 7.0)]), cluster="1x2", sim=sim, num_slots=8)
        env.reset(seed=0)
        rows.append(env.step(np.int64(1))[0]["jobs"])
    assert (rows[0] == rows[1]).all()
    assert (rows[0][:2, NAMES["jobs"].index("known")] == 0).all()


def test_blocks_are_views_of_the_row_in_order():
    env = ClusterEnv(trace=mixed_trace(80), cluster=MIXED, num_slots=8, window_jobs=16)
    flat = ClusterEnv(trace=mixed_trace(80), cluster=MIXED, num_slots=8, window_jobs=16, flat=True)
    blocks, row = env.reset(seed=1)[0], flat.reset(seed=1)[0]
    assert list(blocks) == list(NAMES)
    assert np.concatenate([block.ravel() for block in blocks.values()]).tobytes() == row.tobytes()
    for block in flat.layout.split(row).values():
        assert np.shares_memory(block, row)
    assert env.observation_space.contains(blocks)
    assert flat.observation_space.contains(row)
    assert (row.dtype, row.shape) == (np.float32, flat.observation_space.shape)


def test_the_caller_owns_what_step_returns():
    env = ClusterEnv(trace=mixed_trace(80), cluster=MIXED, num_slots=8, window_jobs=16)
    first, info = env.reset(seed=1)
    kept = {name: block.copy() for name, block in first.items()}, info["action_mask"].copy()
    for _ in range(20):
        env.step(np.int64(choose_random(env.batch, Random(0))))
    assert all((first[name] == kept[0][name]).all() for name in first)
    assert (info["action_mask"] == kept[1]).all()


@pytest.mark.parametrize("flat", [False, True])
def test_a_batch_may_hand_out_its_own_arrays(flat):
    settings = {"trace": mixed_trace(80), "cluster": MIXED, "num_slots": 8, "window_jobs": 16, "flat": flat}
    owned, own = ClusterVectorEnv(2, copy=False, **settings), ClusterVectorEnv(2, copy=True, **settings)
    for envs, shares in ((owned, True), (own, False)):
        observation, info = envs.reset(seed=0)
        for block in [observation] if flat else observation.values():
            assert np.shares_memory(block, envs.batch.obs) is shares
        assert np.shares_memory(info["action_mask"], envs.batch.mask) is shares


@pytest.mark.parametrize(
    ("cluster", "nodes", "width"), [("1x1", 1, 1), ("3x4", 3, 4), (MIXED, 7, 8), ("1x3+2x5:B+1x2", 4, 5)]
)
def test_shapes(cluster, nodes, width):
    env = ClusterEnv(trace=hand([(1, 0, 10)]), cluster=cluster, num_slots=5)
    shapes = {name: block.shape for name, block in env.reset(seed=0)[0].items()}
    assert shapes == {
        "cluster": (len(NAMES["cluster"]),),
        "nodes": (nodes, len(NAMES["nodes"])),
        "jobs": (5, len(NAMES["jobs"])),
        "occupancy": (nodes, width),
    }
    assert env.action_space.n == 1 + 5 * 9


def test_occupancy_by_hand():
    """A gang of 3, a half and a quarter on one device, and a node with fewer places than the widest."""
    trace = hand([(3, 0, 10), (1, 0, 10), (1, 0, 10)], share_milli=[1000, 500, 250])
    env = ClusterEnv(trace=trace, cluster="1x4+1x2", num_slots=4)
    env.reset(seed=0)
    for slot in range(3):
        observation = env.step(np.int64(1 + NUM_EDITS * slot))[0]
    assert observation["occupancy"].tolist() == [[0, 0, 0, -3], [-1, -1, -4, -4]]
    assert devices_of(env.batch.states[0], 1) == devices_of(env.batch.states[0], 2) == [3]
