"""What an agent sees of inference, computed again from the trace, the pods and its own edits, by name."""

from __future__ import annotations

import math
from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.actions import NUM_EDITS, Edit
from envs.env import ClusterEnv
from envs.features import FEATURES
from envs.layout import FREE, NO_POD, POD_PROTECT, POD_RUNNING, POD_SLEEP, POD_START
from envs.observe import fill_observation
from envs.view import ClusterView
from tests.envs.colocated_support import (
    AWAKE,
    COMMIT,
    KEEP,
    TRIALS,
    any_case,
    cases,
    choose_any,
    choose_working,
    env_of,
    hand_env,
    is_service_edit,
    num_services,
    task_rows,
    tend,
    waiting_tasks,
)
from tests.envs.elastic_env_support import MORE, commit, edit
from tests.envs.env_support import WHOLE, holdings
from tests.envs.test_elastic_observation import expected_job
from tests.envs.test_inference_choice import loss
from traces.services import start_up_times

NAMES = {block: [f.name for f in FEATURES if f.block == block] for block in ("cluster", "nodes", "jobs", "services")}
NEAR = {"rtol": 2e-6, "atol": 2e-6}


def squash(x: float, c: float) -> float:
    return x / (x + c)


def devices_on(s: Any, n: int) -> range:
    return range(int(s.node_first[n]), int(s.node_first[n] + s.node_gpus[n]))


def may_take(s: Any, g: int) -> bool:
    """Whether training may hold the device: no pod is awake on it, and its node is not inference's alone."""
    return s.pod_state[g] not in AWAKE and not s.node_reserved[s.gpu_node[g]]


def is_free(s: Any, g: int, held: set[int]) -> bool:
    return may_take(s, g) and g not in held


def cluster_block(env: ClusterEnv) -> dict[str, float]:
    s, gpus = env.batch.states[0], range(env.settings.cluster.num_gpus)
    held = {g for devices in holdings(s).values() for g in devices}
    free = [sum(is_free(s, g, held) for g in devices_on(s, n)) for n in range(int(s.num_nodes))]
    return {
        "free": sum(free) / len(gpus),
        "largest_block": max(free) / env.settings.cluster.node_gpus.max(),
        "open": sum(may_take(s, g) for g in gpus) / len(gpus),
        "tasks": squash(len(waiting_tasks(env.batch)), 16),
    }


def node_block(env: ClusterEnv, n: int) -> dict[str, float]:
    s, own = env.batch.states[0], devices_on(env.batch.states[0], n)
    held = {g for devices in holdings(s).values() for g in devices}
    return {
        "free": sum(is_free(s, g, held) for g in own) / len(own),
        "awake": sum(s.pod_state[g] in AWAKE for g in own) / len(own),
        "asleep": sum(s.pod_state[g] == POD_SLEEP and may_take(s, g) for g in own) / len(own),
    }


def job_block(env: ClusterEnv, view: ClusterView, j: int, marked: set[int]) -> dict[str, float]:
    """Columns of a job; ``marked``: jobs whose mark has been flipped an odd number of times."""
    s, devices = env.batch.states[0], holdings(env.batch.states[0]).get(j, [])
    least = 0.0
    if num_services(env) > 0 and env.settings.sim.reclaim == "ats" and s.share[j] == WHOLE and devices:
        least = max(0.0, min(loss(s, view, j, n) for n in {int(s.gpu_node[g]) for g in devices}))
    found = {"yields": float(int(s.job_id[j]) in marked), "loss": squash(least, 1)}
    return found if env.settings.sim.knowledge == "online" else {**found, **expected_job(env, view, j)}


def service_block(env: ClusterEnv, v: int) -> dict[str, float]:
    batch, s, jobs = env.batch, env.batch.states[0], env.settings.source.jobs
    own = [g for g in range(int(s.num_gpus)) if s.pod_state[g] != NO_POD and s.pod_service[g] == v]
    count = Counter(int(s.pod_state[g]) for g in own)
    name = list(dict.fromkeys(jobs["service"][jobs["kind"] == "inference"]))[v]  # in order of first arrival
    rows, arrivals = task_rows(batch)
    ages = s.now - arrivals[(jobs["service"].iloc[rows] == name).to_numpy()]
    start_up = start_up_times(env.settings.source)[(jobs["service"] == name).to_numpy()][0]
    rest = max((float(s.pod_until[g]) - s.now for g in own if s.pod_state[g] == POD_PROTECT), default=0.0)
    return {
        "starting": squash(count[POD_START], 4),
        "serving": squash(count[POD_RUNNING], 4),
        "protected": squash(count[POD_PROTECT], 4),
        "asleep": squash(count[POD_SLEEP], 4),
        "waiting": squash(sum(jobs["service"].iloc[row] == name for row in waiting_tasks(batch)), 4),
        "protection": squash(rest, 60),
        "start_up": squash(start_up, 10),
        "since": squash(ages.min(), 60) if len(ages) else 1.0,
        "recent": squash(sum(math.exp(-age / 300) for age in ages), 16),
    }


def occupancy_block(env: ClusterEnv, n: int) -> list[int]:
    s, row = env.batch.states[0], []
    holder = {g: -3 if s.share[j] < WHOLE else j for j, devices in holdings(s).items() for g in devices}
    for g in devices_on(s, n):
        row.append(holder.get(g, -2 if s.pod_state[g] != NO_POD or s.node_reserved[n] else -1))
    return row + [-4] * (env.layout.gpus_per_node - len(row))


def check_observation(env: ClusterEnv, marked: set[int]) -> None:
    """Assert that every column that inference has or changes equals its recomputation, within its bounds."""
    s, row = env.batch.states[0], env.batch.obs[0]
    view = ClusterView(env.batch.states, env.settings.cluster, env.settings.sim, env.settings.workload)
    low, high = env.layout.bounds()
    assert ((low <= row) & (row <= high)).all()
    blocks = env.layout.split(row)
    rows = {"cluster": {0: cluster_block(env)}, "nodes": {n: node_block(env, n) for n in range(int(s.num_nodes))}}
    rows["jobs"] = {int(j): job_block(env, view, int(j), marked) for j in view.slots}
    rows["services"] = {v: service_block(env, v) for v in range(num_services(env))}
    for block, expected in rows.items():
        for at, want in expected.items():
            got = np.atleast_2d(blocks[block])[at]
            got = {name: float(got[NAMES[block].index(name)]) for name in want}
            np.testing.assert_allclose(list(got.values()), list(want.values()), err_msg=f"{block} {at} {got}", **NEAR)
    assert not blocks["jobs"][s.phase[: s.num_slots] == FREE].any()
    assert blocks["occupancy"].tolist() == [occupancy_block(env, n) for n in range(int(s.num_nodes))]


def flip(env: ClusterEnv, marked: set[int], action: int) -> None:
    """Follow the marks that actions make."""
    if action != COMMIT and not is_service_edit(env.batch, action) and (action - 1) % NUM_EDITS == Edit.YIELDS:
        marked ^= {int(env.batch.states[0].job_id[(action - 1) // NUM_EDITS])}


def wander(env: ClusterEnv, choose: Any, seed: int, steps: int) -> None:
    """Check what is shown after each of some steps, and that an edit leaves what a full look would show."""
    marked: set[int] = set()
    rng, full = Random(seed), np.full_like(env.batch.obs[0], np.nan)
    for _ in range(steps):
        check_observation(env, marked)
        fill_observation(env.batch.states[0], env.settings.workload.tables, full, env.layout.gpus_per_node)
        assert full.tobytes() == env.batch.obs[0].tobytes()
        action = choose(env.batch, rng)
        flip(env, marked, action)
        if any(env.step(np.int64(action))[2:4]):
            break


@pytest.mark.parametrize("reclaim", ["ats", "lyra", "static"])
@pytest.mark.parametrize("aiss", [True, False])
def test_columns_mean_what_they_say_under_every_rule(reclaim: str, aiss: bool):
    """Every new column, after random edits, on elastic, rigid and fractional jobs."""
    for seed, case in cases(5, reclaim):
        wander(env_of(case, seed, sim={"aiss": aiss}), choose_working, seed, 35)


@given(seed=st.integers(0, 10**6), choose=st.sampled_from([choose_any, choose_working]))
@settings(max_examples=25, **TRIALS)
def test_columns_mean_what_they_say(seed: int, choose: Any):
    wander(env_of(any_case(seed), seed), choose, seed, 30)


def test_losses_of_jobs_known_by_their_runs():
    """Knowledge online: the loss is by the fits, of a job never seen by counts alone."""
    for seed, case in cases(4, "ats"):
        env = env_of(case, seed, sim={"knowledge": "online"})
        wander(env, choose_working, seed, 30)


# --- by hand ---


def columns(env: ClusterEnv, block: str, at: int = 0) -> dict[str, float]:
    values = np.atleast_2d(env.layout.split(env.batch.obs[0])[block])[at]
    return dict(zip(NAMES[block], values.tolist(), strict=True))


def test_services_by_hand():
    """At 40: s's pod asleep since 37, t's serves its task of 30; kept to 160. u has not been heard of."""
    tasks = [("s", 1, 2), ("t", 30, 100), ("t", 31, 2), ("t", 32, 2), ("u", 900, 1)]
    env = hand_env([(1, 0, None), (1, 0, 5000.0)], tasks, "1x3", columns={"preemptible": [False, False]})
    edit(env, (0, MORE))
    edit(env, (1, MORE))
    assert columns(env, "services", 0) == pytest.approx(
        {**dict.fromkeys(NAMES["services"], 0.0), "since": 1, "start_up": 4 / 14}
    )
    commit(env)
    assert env.batch.states[0].now == 40
    # s's device, protected until 37, then went to a task of t of 30; the other two of t wait for it.
    assert columns(env, "services", 0)["asleep"] == 0
    of_t = {"starting": 1 / 5, "waiting": 2 / 6, "since": 8 / 68, "start_up": 4 / 14, "serving": 0}
    shown = columns(env, "services", 1)
    assert {name: shown[name] for name in of_t} == pytest.approx(of_t)
    recent = sum(math.exp(-age / 300) for age in (10, 9, 8))
    assert shown["recent"] == pytest.approx(recent / (recent + 16))
    assert columns(env, "services", 2)["since"] == 1
    cluster = columns(env, "cluster")
    assert (cluster["open"], cluster["tasks"]) == pytest.approx((2 / 3, 2 / 18))
    assert columns(env, "nodes")["awake"] == pytest.approx(1 / 3)
    assert env.layout.split(env.batch.obs[0])["occupancy"].tolist() == [[0, 1, -2]]


def test_an_edit_of_a_service_is_seen_at_once():
    env = hand_env([(1, 0, None)], [("s", 1, 2)], "1x2")
    edit(env, (0, MORE))
    assert commit(env) == 40
    assert (columns(env, "nodes")["asleep"], columns(env, "cluster")["open"]) == (0.5, 1)
    assert columns(env, "services")["asleep"] == pytest.approx(1 / 5)
    tend(env, 0, KEEP)
    shown = columns(env, "services")
    assert (shown["asleep"], shown["protected"], shown["protection"]) == pytest.approx((0, 1 / 5, 120 / 180))
    assert (columns(env, "nodes")["awake"], columns(env, "nodes")["asleep"]) == (0.5, 0)
    assert columns(env, "cluster")["open"] == 0.5
    assert columns(env, "cluster")["edits_left"] == pytest.approx(63 / 64)


def test_without_inference_there_is_no_block_and_nothing_to_see():
    env = hand_env([(1, 0, None), (2, 0, 90.0)], [], "1x4")
    edit(env, (0, MORE), (0, MORE), (1, MORE))
    assert list(env.layout.slices) == ["cluster", "nodes", "jobs", "occupancy"]
    assert "services" not in env.observation_space.spaces
    assert columns(env, "jobs", 0)["held_share"] == 0.5
    for j in range(6):
        assert (columns(env, "jobs", j)["yields"], columns(env, "jobs", j)["loss"]) == (0, 0)
    assert (columns(env, "nodes")["awake"], columns(env, "nodes")["asleep"]) == (0, 0)
    assert (columns(env, "cluster")["open"], columns(env, "cluster")["tasks"]) == (1, 0)


def test_shapes_and_order_of_the_blocks():
    """V = 3: the services come before the occupancy, and two actions each after those of the slots."""
    env = hand_env([(1, 0, None)], [("s", 1, 2), ("t", 2, 2), ("u", 3, 2)], "2x4")
    shapes = {name: space.shape for name, space in env.observation_space.spaces.items()}
    assert list(env.layout.slices) == ["cluster", "nodes", "jobs", "services", "occupancy"]
    assert shapes["services"] == (3, 9)
    assert shapes["occupancy"] == (2, 4)
    assert env.layout.slices["services"][1] == env.layout.slices["occupancy"][0] == env.layout.size - 8
    assert env.action_space.n == len(env.action_masks()) == 1 + 9 * 6 + 2 * 3
