"""The mask with inference, by an oracle of its own: every valid action works, no other does; devices are conserved."""

from __future__ import annotations

from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.actions import COMMIT, NUM_EDITS, Edit
from envs.applying import SimulatorError
from envs.env import ClusterEnv
from envs.layout import FREE, POD_PROTECT, POD_SLEEP
from envs.spec import SimConfig
from tests.envs.colocated_support import (
    DROP,
    KEEP,
    TRIALS,
    any_case,
    cases,
    check_conservation,
    choose_any,
    choose_working,
    env_of,
    hand_env,
    is_service_edit,
    num_services,
    service_action,
)
from tests.envs.elastic_env_support import MORE, edit
from tests.envs.env_support import WHOLE, holdings, state_bytes
from tests.envs.test_elastic_env import valid_elastic
from tests.envs.test_env_mask import valid_edits as valid_rigid

# --- the oracle ---


def spec_of_training(env: ClusterEnv) -> Any:
    """The cluster that training may ever use: under static, inference nodes are of no type."""
    spec, sim = env.settings.cluster, env.settings.sim
    node_type, node_gpus = spec.node_type, spec.node_gpus
    if sim.reclaim == "static":
        first = spec.num_nodes - sim.count_inference_nodes(spec)
        node_type[first:], node_gpus[first:] = -9, 0
    return SimpleNamespace(types=spec.types, node_type=node_type, node_gpus=node_gpus)


def feasible(env: ClusterEnv) -> list[int]:
    """Every action that should be valid."""
    s, found, owned = env.batch.states[0], [COMMIT], holdings(env.batch.states[0])
    spec, sim = spec_of_training(env), env.settings.sim
    for j in np.flatnonzero(s.phase[: s.num_slots] != FREE).tolist():
        devices = owned.get(j, [])
        if s.klass[j] >= 0:
            edits = valid_elastic(s, spec, j, devices)
        else:
            edits = valid_rigid(s, spec, sim.placement, j, devices)
        if sim.reclaim == "ats" and not s.pinned[j] and s.share[j] == WHOLE:
            edits = {*edits, Edit.YIELDS}
        found += [1 + j * NUM_EDITS + e for e in edits]
    until = s.now + 120 * sim.protect_times
    for v in range(num_services(env)):
        own = [g for g in range(int(s.num_gpus)) if s.pod_service[g] == v]
        idle = [g for g in own if s.pod_state[g] in (POD_PROTECT, POD_SLEEP)]
        rests = [s.now if s.pod_state[g] == POD_SLEEP else s.pod_until[g] for g in idle]
        found += [service_action(env.batch, v, KEEP)] if any(end < until for end in rests) else []
        found += [service_action(env.batch, v, DROP)] if idle else []
    return sorted(found)


@given(seed=st.integers(0, 10**6), choose=st.sampled_from([choose_any, choose_working]))
@settings(max_examples=50, **TRIALS)
def test_the_mask_is_the_oracle_and_devices_are_conserved(seed: int, choose: Any):
    """Guards fill_mask() and every counter that pods, marks and edits change, after any sequence of valid actions."""
    env, rng = env_of(any_case(seed), seed), Random(seed)
    for _ in range(40):
        check_conservation(env)
        assert np.flatnonzero(env.action_masks()).tolist() == feasible(env)
        if any(env.step(np.int64(choose(env.batch, rng)))[2:4]):
            break


def test_a_wide_job_under_static_looks_at_trainings_nodes_alone():
    """Guards the short cut of the mask: 8 GPUs fit on inference's node, but training's largest has 4."""
    sim = SimConfig(interval_s=10.0, rescale_s=0.0, reclaim="static", inference_nodes=1)
    env = hand_env([(8, 0, 50.0)], [("s", 500, 2)], "2x4+1x8", sim)
    assert np.flatnonzero(env.action_masks()).tolist() == [COMMIT, 1 + MORE]
    edit(env, (0, MORE))
    assert env.batch.states[0].num_nodes_held[0] == 2


# --- effects ---


def picture(env: ClusterEnv) -> dict[str, Any]:
    """What edits change, by name."""
    s = env.batch.states[0]
    live = s.phase[: s.num_slots] != FREE
    pods = [(int(s.pod_state[g]), float(s.pod_until[g])) for g in range(int(s.num_gpus)) if s.pod_state[g]]
    held = {name: np.where(live, s[name][: s.num_slots], 0).tolist() for name in ("gpus", "node_hash")}
    return {"pods": pods, "yields": np.where(live, s.yields[: s.num_slots], 0).tolist(), **held}


def check_effect(env: ClusterEnv, action: int) -> str:
    """Assert that a valid edit changes what it is for, and nothing that it is not for; its kind."""
    before, now, left = picture(env), float(env.batch.states[0].now), int(env.batch.states[0].edits_left)
    reward = env.step(np.int64(action))[1]
    after = picture(env)
    assert (env.batch.states[0].now, env.batch.states[0].edits_left) == (now, left - 1)
    changed = {name for name in after if after[name] != before[name]}
    if is_service_edit(env.batch, action):
        assert changed == {"pods"}
        keep = (action - service_action(env.batch, 0, KEEP)) % 2 == 0
        assert (len(after["pods"]) == len(before["pods"])) is keep
        return "keep" if keep else "drop"
    assert reward == 0.0
    if (action - 1) % NUM_EDITS == Edit.YIELDS:
        assert changed == {"yields"}
        return "yields"
    assert "yields" not in changed
    assert {"gpus", "node_hash"} & changed
    assert len(after["pods"]) <= len(before["pods"])  # training may have taken the devices of sleeping ones
    return "takes a sleeping pod's" if "pods" in changed else "job"


def check_every_action(env: ClusterEnv) -> Counter[str]:
    """Try every action on the present state: valid ones work, the others raise and change nothing."""
    snapshot, before, mask, seen = env.snapshot(), state_bytes(env.batch), env.action_masks(), Counter()
    for action in np.flatnonzero(mask)[1:]:
        seen[check_effect(env, int(action))] += 1
        check_conservation(env)
        env.restore(snapshot)
        assert state_bytes(env.batch) == before
    for action in (*np.flatnonzero(~mask), -1, len(mask)):
        with pytest.raises(SimulatorError, match=f"action {action} is not valid"):
            env.step(np.int64(action))
    assert state_bytes(env.batch) == before
    return seen


def test_every_valid_action_changes_something_and_no_other_is_accepted():
    seen: Counter[str] = Counter()
    for reclaim in ("ats", "lyra", "static"):
        for seed, case in cases(8, reclaim):
            env, rng = env_of(case, seed), Random(seed)
            for _ in range(5):
                if any(any(env.step(np.int64(choose_working(env.batch, rng)))[2:4]) for _ in range(12)):
                    break
                seen += check_every_action(env)
    wanted = ("keep", "drop", "yields", "job", "takes a sleeping pod's")
    assert {name: seen[name] for name in wanted if seen[name] < 5} == {}
