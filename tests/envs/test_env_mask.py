"""The mask: exactly the feasible actions, by an oracle of its own, and every one of them works."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.actions import COMMIT, EDITS, NUM_EDITS, Edit
from envs.applying import SimulatorError
from envs.env import ClusterEnv
from envs.layout import FREE, RUNNING
from envs.spec import ClusterSpec
from tests.envs.core_support import hand
from tests.envs.env_support import (
    MIXED,
    PLAYERS,
    WHOLE,
    check_devices,
    choose_random,
    holdings,
    mixed_trace,
    random_env,
    state_bytes,
)

Free = dict[int, int]  # node -> wholly free devices


# --- the oracle ---


def free_devices(s: Any, also: list[int]) -> Free:
    """Free devices of each node, those of ``also`` counted as free."""
    idle = {g for g in range(int(s.num_gpus)) if s.gpu_free_milli[g] == WHOLE} | set(also)
    return {n: sum(int(s.gpu_node[g]) == n for g in idle) for n in range(int(s.num_nodes))}


def nodes_to_pack(spec: ClusterSpec, free: Free, k: int, gpu_type: int) -> int:
    """Nodes that ``k`` devices of a type take under strict consolidation; 0: no such placement."""
    free = {n: count for n, count in free.items() if spec.node_type[n] == gpu_type}
    taken = 0
    if k > max((spec.node_gpus[n] for n in free), default=0):
        for n in sorted((n for n in free if free[n] == spec.node_gpus[n]), key=lambda n: -free[n]):
            if free[n] > k:
                break
            k -= free.pop(n)
            taken += 1
    if k == 0:
        return taken
    return taken + 1 if any(count >= k for count in free.values()) else 0


def can_start(s: Any, spec: ClusterSpec, placement: str, j: int) -> bool:
    k, required = int(s.request[j]), int(s.gpu_type[j])
    types = [t for t in range(len(spec.types)) if required in (-1, t)]
    if s.share[j] < WHOLE:
        allowed = (g for g in range(int(s.num_gpus)) if s.node_type[s.gpu_node[g]] in types)
        return any(s.gpu_free_milli[g] >= s.share[j] for g in allowed)
    free = free_devices(s, [])
    if placement != "consolidated":
        return any(sum(free[n] for n in free if spec.node_type[n] == t) >= k for t in types)
    sizes = [int(spec.node_gpus[n]) for n in free if spec.node_type[n] in types]
    if k <= max(sizes, default=0):
        return any(free[n] >= k for n in free if spec.node_type[n] in types)
    return any(nodes_to_pack(spec, free, k, t) > 0 for t in types)


def valid_edits(s: Any, spec: ClusterSpec, placement: str, j: int, devices: list[int]) -> set[Edit]:
    """What may be done to slot ``j``, which holds ``devices``."""
    if not devices:
        return {Edit.MORE} if can_start(s, spec, placement, j) else set()
    # A pinned job cannot be stopped, unless it was started in this very pass.
    valid = set() if s.pinned[j] and s.phase[j] == RUNNING else {Edit.LESS}
    nodes = {int(s.gpu_node[g]) for g in devices}
    gpu_type, k = int(spec.node_type[min(nodes)]), len(devices)
    if 0 < nodes_to_pack(spec, free_devices(s, devices), k, gpu_type) < len(nodes):
        valid.add(Edit.PLACE_PACKED)
    others = (n for n, count in free_devices(s, []).items() if count and spec.node_type[n] == gpu_type)
    if len(nodes) < k and set(others) - nodes:
        valid.add(Edit.PLACE_SPREAD)
    return valid


def feasible(env: ClusterEnv) -> list[int]:
    """Every action that should be valid."""
    s, found, held = env.batch.states[0], [COMMIT], holdings(env.batch.states[0])
    for j in range(int(s.num_slots)):
        if s.phase[j] != FREE:
            edits = valid_edits(s, env.settings.cluster, env.settings.sim.placement, j, held.get(j, []))
            found += [1 + j * NUM_EDITS + edit for edit in edits]
    return sorted(found)


def name_of(action: int) -> str:
    return "commit" if action == COMMIT else f"{EDITS[(action - 1) % NUM_EDITS][0]} {(action - 1) // NUM_EDITS}"


# --- the properties ---


@given(seed=st.integers(0, 10**6), player=st.sampled_from(["random", "churn"]))
@settings(max_examples=60, deadline=None)
def test_the_mask_is_the_oracle_and_devices_are_conserved(seed, player):
    env, rng = random_env(seed), Random(seed)
    for _ in range(40):
        check_devices(env.batch.states[0])
        valid = np.flatnonzero(env.action_masks())
        assert [name_of(a) for a in valid] == [name_of(a) for a in feasible(env)]
        if any(env.step(np.int64(PLAYERS[player](env.batch, rng)))[2:4]):
            break
    check_devices(env.batch.states[0])


def check_effect(env: ClusterEnv, action: int) -> None:
    """Assert that a valid action does what it says."""
    s, (j, edit) = env.batch.states[0], divmod(action - 1, NUM_EDITS)
    nodes, now = int(s.num_nodes_held[j]), float(s.now)
    reward = env.step(np.int64(action))[1]
    if action == COMMIT:
        assert s.num_touched == 0
        return
    assert (reward, s.now) == (0.0, now)
    assert s.gpus[j] == (0 if edit == Edit.LESS else s.request[j])
    if edit == Edit.PLACE_PACKED:
        assert s.num_nodes_held[j] < nodes


def check_every_action(env: ClusterEnv) -> None:
    """Try every action on the present state: valid ones work, the others raise and change nothing."""
    snapshot, before, mask = env.snapshot(), state_bytes(env.batch), env.action_masks()
    for action in np.flatnonzero(mask):
        check_effect(env, int(action))
        check_devices(env.batch.states[0])
        env.restore(snapshot)
        assert state_bytes(env.batch) == before
    for action in (*np.flatnonzero(~mask), -1, len(mask)):
        with pytest.raises(SimulatorError, match=f"action {action} is not valid"):
            env.step(np.int64(action))
        assert state_bytes(env.batch) == before


@pytest.mark.parametrize("seed", range(12))
def test_valid_actions_work_and_invalid_ones_change_nothing(seed):
    # A budget no edit exhausts, so that no edit commits.
    env, rng = random_env(seed, edit_budget=10**6), Random(seed)
    for _ in range(6):
        check_every_action(env)
        for _ in range(8):
            if any(env.step(np.int64(choose_random(env.batch, rng)))[2:4]):
                return


def test_every_action_of_64_slots():
    env, rng = ClusterEnv(trace=mixed_trace(), cluster=MIXED, num_slots=64, edit_budget=1000), Random(0)
    env.reset(seed=0)
    for _ in range(3):
        check_every_action(env)
        for _ in range(60):
            env.step(np.int64(choose_random(env.batch, rng)))


def test_place_spread_uses_more_nodes():
    env = ClusterEnv(trace=hand([(3, 0, 10)]), cluster="1x8+2x2", num_slots=2)
    env.reset(seed=0)
    env.step(np.int64(1 + Edit.MORE))
    env.step(np.int64(1 + Edit.PLACE_SPREAD))
    assert env.batch.states[0].num_nodes_held[0] == 3


# --- commit is always valid, and the other corner cases ---


def test_only_commit_is_valid_when_nothing_can_be_done():
    """A full cluster of pinned jobs with more jobs waiting; and a window that is over before it began."""
    full = ClusterEnv(
        trace=hand([(1, 0, 10), (1, 0, 10), (1, 0, 10)], preemptible=[False] * 3), cluster="1x2", num_slots=2
    )
    full.reset(seed=0)
    full.step(np.int64(1))
    full.step(np.int64(1 + NUM_EDITS))
    assert {name_of(a) for a in np.flatnonzero(full.action_masks())} == {"commit", "less 0", "less 1"}
    longer = ClusterEnv(trace=hand([(2, 0, 10), (1, 1, 10)], preemptible=[False, True]), cluster="1x2", num_slots=2)
    longer.reset(seed=0)
    longer.step(np.int64(1))
    _, _, _, _, info = longer.step(np.int64(COMMIT))
    assert np.flatnonzero(info["action_mask"]).tolist() == [COMMIT]
    over = ClusterEnv(trace=hand([(3, 0, 10)]), cluster="1x2", num_slots=2)
    assert np.flatnonzero(over.reset(seed=0)[1]["action_mask"]).tolist() == [COMMIT]
    assert over.step(np.int64(COMMIT))[2]


@pytest.mark.parametrize("player", PLAYERS)
def test_commit_is_valid_at_every_step(player):
    for seed in range(8):
        env, rng = random_env(seed), Random(seed)
        for _ in range(150):
            assert env.action_masks()[COMMIT]
            if any(env.step(np.int64(PLAYERS[player](env.batch, rng)))[2:4]):
                break


def test_an_invalid_action_may_count_as_commit():
    trace = hand([(1, 0, 10), (1, 0, 20), (2, 3, 5)])
    strict = ClusterEnv(trace=trace, cluster="1x2", num_slots=4)
    lax = ClusterEnv(trace=trace, cluster="1x2", num_slots=4, on_invalid="commit")
    strict.reset(seed=0)
    lax.reset(seed=0)
    for valid, invalid in ((1, 1), (COMMIT, 1 + Edit.FREEZE), (COMMIT, 10**6), (COMMIT, -1)):
        _, reward, *ends, _ = strict.step(np.int64(valid))
        _, same, *same_ends, _ = lax.step(np.int64(invalid))
        assert (reward, ends) == (same, same_ends)
        assert state_bytes(strict.batch) == state_bytes(lax.batch)
