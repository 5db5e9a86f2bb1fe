"""Shared by the tests of the environment with inference: random and small ones, edits by hand, a recount of devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pandas as pd

from envs.actions import COMMIT, NUM_EDITS, Edit
from envs.batch import Batch
from envs.env import ClusterEnv
from envs.layout import (
    COMPLETED,
    FREE,
    HOLDER_INFERENCE,
    HOLDER_NONE,
    HOLDER_SHARED,
    NO_POD,
    POD_PROTECT,
    POD_RUNNING,
    POD_SLEEP,
    POD_START,
)
from envs.service_edits import NUM_SERVICE_EDITS, ServiceEdit
from envs.spec import SimConfig
from tests.envs.elastic_core_support import linear
from tests.envs.env_support import WHOLE, holdings
from tests.envs.random_inference import InferenceCase, listed_case, nodes_of_pods, rigid_case
from traces.trace import Trace, make_trace

KEEP, DROP = ServiceEdit.KEEP, ServiceEdit.DROP
AWAKE = (POD_START, POD_RUNNING, POD_PROTECT)
SOON = SimConfig(interval_s=10.0, rescale_s=0.0, batch="fixed")  # passes every 10 s, no pauses
TRIALS = {"deadline": None, "derandomize": True, "database": None}  # of hypothesis
START_UP_S = 4.0

Task = tuple[str, float, float]
Training = tuple[int, float, float | None]


# --- random environments ---


def env_of(case: InferenceCase, seed: int, **given: Any) -> ClusterEnv:
    """A reset environment on a random case; the whole trace is the window. ``sim``: fields of SimConfig to change."""
    sim = {"batch": "tuned" if case.tuned else "fixed", **given.pop("sim", {})}
    settings = {
        "trace": case.trace,
        "cluster": case.cluster,
        "sim": replace(case.config, **sim),
        "profiles": case.profiles,
        "num_slots": Random(seed).choice((3, 12)),
        "window_jobs": len(case.trace),
        "split": "all",
        "edit_budget": 1000,
    }
    env = ClusterEnv(**{**settings, **given})
    env.reset(seed=seed)
    return env


def cases(count: int, reclaim: str = "", make: Callable[[int], InferenceCase] = listed_case) -> Iterator[Any]:
    """(seed, case) of the first random cases under one rule of reclaiming, or under any."""
    seed = 0
    while count > 0:
        case = make(seed)
        if reclaim in ("", case.config.reclaim):
            yield seed, case
            count -= 1
        seed += 1


def any_case(seed: int) -> InferenceCase:
    """Elastic and rigid jobs, fractions among them, or rigid ones alone."""
    return rigid_case(seed) if seed % 4 == 3 else listed_case(seed)


def choose_any(batch: Batch, rng: Random) -> int:
    """Any valid action, edits of services as often as those of jobs; now and then commit, so that time passes."""
    valid, first = np.flatnonzero(batch.mask[0])[1:], service_action(batch, 0, KEEP)
    kinds = [part for part in (valid[valid < first], valid[valid >= first]) if len(part)]
    if not kinds or rng.random() < 0.3:
        return COMMIT
    return int(rng.choice(rng.choice(kinds)))


def choose_working(batch: Batch, rng: Random) -> int:
    """As choose_any(), but whatever waits and fits starts at once, so that the episode gets on."""
    s = batch.states[0]
    starts = [j for j in range(int(s.num_slots)) if batch.mask[0, 1 + j * NUM_EDITS] and s.gpus[j] == 0]
    if starts and rng.random() < 0.8:
        return 1 + rng.choice(starts) * NUM_EDITS + Edit.MORE
    return COMMIT if rng.random() < 0.5 else choose_any(batch, rng)


# --- by hand ---


def colocated(training: list[Training], tasks: list[Task], start_up_s: float = START_UP_S, **columns: Any) -> Trace:
    """Training jobs (num_gpus, arrival_s, duration_s; none: elastic, of the model m) and tasks (service, ...).

    ``columns`` are those of training jobs. Of what arrives together training comes first.
    """
    table = pd.DataFrame(training, columns=["num_gpus", "arrival_s", "duration_s"]).assign(kind="training", **columns)
    table["model"] = np.where(table["duration_s"].isna(), "m", "")
    rows = pd.DataFrame(tasks, columns=["service", "arrival_s", "duration_s"])
    rows = rows.assign(kind="inference", num_gpus=1, start_up_s=start_up_s, model="")
    parts = [part for part in (table, rows) if len(part)]
    joined = pd.concat(parts, ignore_index=True)
    joined["duration_s"] = joined["duration_s"].astype(float)
    if "preemptible" in joined:
        joined["preemptible"] = joined["preemptible"].fillna(True).astype(bool)
    return make_trace("hand", joined.drop(columns=[] if "service" in joined else ["service"], errors="ignore"))


def hand_env(
    training: list[Training], tasks: list[Task], cluster: str = "1x4", sim: SimConfig = SOON, **given: Any
) -> ClusterEnv:
    """A reset environment whose slots are the training jobs, as long as none leaves before another arrives.

    Model m has epochs that end at 400 and 4000. ``columns``: of training jobs.
    """
    trace = colocated(training, tasks, **given.pop("columns", {}))
    base = {"num_slots": 6, "profiles": {"m": linear(400, 4000)}, "horizon_s": 1e6, "reward_scale": 1.0}
    env = ClusterEnv(**{**base, "trace": trace, "cluster": cluster, "sim": sim, **given})
    env.reset(seed=0)
    return env


def service_action(batch: Batch, service: int, what: ServiceEdit) -> int:
    """The action of an edit of a service, by the contract."""
    return 1 + 9 * batch.settings.num_slots + 2 * service + int(what)


def is_valid(env: ClusterEnv, service: int, what: ServiceEdit) -> bool:
    return bool(env.action_masks()[service_action(env.batch, service, what)])


def tend(env: ClusterEnv, service: int, what: ServiceEdit) -> None:
    """Make an edit of a service, which takes no time."""
    now, left = float(env.batch.states[0].now), int(env.batch.states[0].edits_left)
    env.step(np.int64(service_action(env.batch, service, what)))
    assert (env.batch.states[0].now, env.batch.states[0].edits_left) == (now, left - 1)


def pods(env: ClusterEnv) -> dict[int, tuple[int, int]]:
    """(service, state) of the pod on each device that has one."""
    s = env.batch.states[0]
    found = [g for g in range(int(s.num_gpus)) if s.pod_state[g] != NO_POD]
    return {g: (int(s.pod_service[g]), int(s.pod_state[g])) for g in found}


def open_gpus(env: ClusterEnv) -> tuple[int, list[int]]:
    """GPUs that training may hold, of a cluster of one type, and those of each node that it may take."""
    s = env.batch.states[0]
    return int(s.type_up[0]), s.node_free[: s.num_nodes].tolist()


def is_service_edit(batch: Batch, action: int) -> bool:
    return action > batch.settings.num_slots * NUM_EDITS


def num_services(env: ClusterEnv) -> int:
    """V, from the size of the action space."""
    return (len(env.batch.mask[0]) - 1 - env.settings.num_slots * NUM_EDITS) // NUM_SERVICE_EDITS


# --- what the record should say ---


def task_rows(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the job table of all tasks of the window that have arrived, and when [s]."""
    s = batch.states[0]
    rows = np.arange(int(s.job_lo), int(s.job_hi))
    arrival = batch.settings.source.jobs["arrival_s"].to_numpy()[rows] - float(s.origin)
    kept = (batch.settings.source.jobs["kind"].to_numpy()[rows] == "inference") & (arrival <= s.now)
    return rows[kept], arrival[kept]


def waiting_tasks(batch: Batch) -> list[int]:
    """Rows of the tasks that have arrived, are not completed and are served by no pod."""
    s, results = batch.states[0], batch.episode_results(0)[1]
    served = {int(s.pod_task[g]) for g in range(int(s.num_gpus)) if s.pod_state[g] in (POD_START, POD_RUNNING)}
    rows, _ = task_rows(batch)
    return [int(r) for r in rows if r not in served and results["status"][r - int(s.job_lo)] != COMPLETED]


def check_conservation(env: ClusterEnv) -> None:
    """Assert that every device is training's, a pod's, free or kept for inference, and that all counters say so."""
    s, held = env.batch.states[0], holdings(env.batch.states[0])
    gpus, nodes = range(int(s.num_gpus)), range(int(s.num_nodes))
    allowed = nodes_of_pods(env.settings.cluster, env.settings.sim)
    is_open = []
    for g in gpus:
        owners, state, n = [j for j, devices in held.items() if g in devices], int(s.pod_state[g]), int(s.gpu_node[g])
        closed = state in AWAKE or bool(s.node_reserved[n])
        assert not (owners and (state != NO_POD or closed)), f"device {g} is training's and inference's"
        assert state == NO_POD or n in allowed
        assert s.gpu_free_milli[g] == (0 if closed else WHOLE - sum(s.share[j] for j in owners)) >= 0
        whole = [j for j in owners if s.share[j] == WHOLE]
        assert whole in ([], owners[:1])
        assert not whole or len(owners) == 1
        of_pod = HOLDER_INFERENCE if closed or state == POD_SLEEP else HOLDER_NONE
        assert s.gpu_holder[g] == (whole[0] if whole else HOLDER_SHARED if owners else of_pod)
        is_open.append(not closed)
    free = [g for g in gpus if s.gpu_free_milli[g] == WHOLE]
    check_counts(s, is_open, free)
    for n in nodes:
        own = [int(s.pod_state[g]) for g in gpus if s.gpu_node[g] == n]
        assert s.node_pods[n] == sum(state in AWAKE for state in own)
        assert s.node_asleep[n] == (0 if s.node_reserved[n] else own.count(POD_SLEEP))
        rule = env.settings.sim.reclaim
        if s.node_reserved[n] or rule == "static":
            assert s.node_reserved[n] == (n in allowed and rule != "ats")
        assert rule != "lyra" or not s.node_reserved[n] or s.node_pods[n] > 0
    waiting = waiting_tasks(env.batch)
    assert s.num_queued == s.queue_len[: s.num_services].sum() == len(waiting)
    assert s.next_pod <= min((s.pod_until[g] for g in gpus if s.pod_state[g] in AWAKE), default=np.inf)


def check_counts(s: Any, is_open: list[bool], free: list[int]) -> None:
    """Assert that the counters of nodes, types and slots are those of the devices."""
    nodes = s.gpu_node[: s.num_gpus]
    types = s.node_type[nodes]
    for t in range(int(s.num_types)):
        assert s.type_free[t] == sum(types[g] == t for g in free)
        assert s.type_up[t] == sum(types[g] == t for g, is_one in enumerate(is_open) if is_one)
    assert [sum(nodes[g] == n for g in free) for n in range(int(s.num_nodes))] == s.node_free[: s.num_nodes].tolist()
    for j in np.flatnonzero(s.phase[: s.num_slots] != FREE):
        devices = holdings(s).get(int(j), [])
        assert s.gpus[j] == len(set(devices)) == len(devices)
        assert s.num_nodes_held[j] == len({int(nodes[g]) for g in devices})
        assert len({int(types[g]) for g in devices}) <= 1
