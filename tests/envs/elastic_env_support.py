"""Shared by the tests of the environment with elastic jobs: random and small ones, edits by hand."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from envs.actions import COMMIT, NUM_EDITS, Edit
from envs.env import ClusterEnv
from envs.features import FEATURES
from envs.spec import SimConfig
from envs.view import ClusterView
from tests.envs.elastic_core_support import jobs, linear
from traces.trace import Trace

MORE, LESS, PACK, SPREAD = Edit.MORE, Edit.LESS, Edit.PLACE_PACKED, Edit.PLACE_SPREAD
FIXED = SimConfig(interval_s=20.0, rescale_s=0.0, batch="fixed")
EXACT = {"rel": 1e-9, "abs": 1e-9}
NAMES = [f.name for f in FEATURES if f.block == "jobs"]
PLACEMENTS = ("consolidated", "consolidated", "emptiest", "spread", "count")
CLUSTERS = ("1x8", "3x4", "1x4+2x2", "1x3:aws+2x4:rtx", "2x2:rtx+1x8:aws+1x2:rtx")


def elastic_env(seed: int, **given: Any) -> ClusterEnv:
    """A reset environment on a random small workload of both kinds; the whole trace is the window."""
    rng = Random(f"elastic env {seed}")
    cluster = rng.choice(CLUSTERS)
    types = {"aws", *(part.partition(":")[2] or "aws" for part in cluster.split("+"))}
    pick = ["", "", "", *(types if ":" in cluster else ())]
    rows = [
        (rng.choice((1, 1, 2, 3)), 15.0 * rng.randint(0, 12), 70.0 if rng.random() < 0.3 else None) for _ in range(9)
    ]
    rows.sort(key=lambda row: row[1])
    columns = {
        "model": ["" if row[2] else rng.choice("mn") for row in rows],
        "preemptible": [rng.random() < 0.75 for _ in rows],
        "gpu_type": [rng.choice(pick) for _ in rows],
        "max_gpus": [0 if row[2] or rng.random() < 0.6 else row[0] + rng.randint(0, 4) for row in rows],
    }
    names = " ".join(sorted(types))
    models = linear(30, 150, types=names), linear(400, name="n", worth=False, types=names)
    sim = SimConfig(
        interval_s=rng.choice((0.0, 20.0)),
        rescale_cost=rng.choice(("constant", "restart", "afe")),
        rescale_s=5.0,
        checkpoint_s=rng.choice((0.0, 25.0)),
        placement=rng.choice(PLACEMENTS),
        interference=rng.choice((0.0, 0.5)),
        node_mtbf_s=rng.choice((0.0, 0.0, 300.0)),
        node_mttr_s=40.0,
        batch=rng.choice(("fixed", "tuned")),
    )
    world = {"trace": jobs(*rows, **columns), "cluster": cluster, "sim": sim, "profiles": {m.model: m for m in models}}
    env = ClusterEnv(**{"scenario": "elastic", "num_slots": rng.choice((3, 12)), "window_jobs": 9, **world, **given})
    env.reset(seed=seed)
    return env


def small(trace: Trace, cluster: str = "1x8", sim: SimConfig = FIXED, **given: Any) -> ClusterEnv:
    """A reset environment whose slots are the jobs of a trace; model m has epochs that end at 30 and 90."""
    base = {"scenario": "elastic", "num_slots": 6, "profiles": {"m": linear(30, 90)}, "horizon_s": 1e6}
    env = ClusterEnv(**{**base, "trace": trace, "cluster": cluster, "sim": sim, **given})
    env.reset(seed=0)
    return env


def edit(env: ClusterEnv, *edits: tuple[int, Edit]) -> None:
    """Apply (slot, edit) pairs; none of them takes time or is paid for."""
    for slot, what in edits:
        now = float(env.batch.states[0].now)
        assert env.step(np.int64(1 + NUM_EDITS * slot + what))[1] == 0.0
        assert env.batch.states[0].now == now


def commit(env: ClusterEnv) -> float:
    """Commit; the time of the next pass."""
    env.step(np.int64(COMMIT))
    return float(env.batch.states[0].now)


def held(env: ClusterEnv, slot: int = 0) -> list[int]:
    """GPUs of a slot by node, edits of this pass included."""
    return list(
        ClusterView(env.batch.states, env.settings.cluster, env.settings.sim, env.settings.workload).placement()[slot]
    )


SCENARIO = {
    "scenario": "elastic",
    "trace": "synthetic-pollux?jobs=30",
    "num_slots": 8,
    "window_jobs": 10,
    "split": "all",
}
