"""What an agent sees of elastic jobs."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.env import ClusterEnv
from envs.features import FEATURES
from envs.layout import RUNNING
from envs.observe import fill_observation
from envs.view import ClusterView
from tests.envs.elastic_core_support import jobs
from tests.envs.elastic_env_support import (
    MORE,
    NAMES,
    edit,
    elastic_env,
    held,
    small,
)
from tests.envs.env_support import choose_random

OPEN = [f.name for f in FEATURES if f.block == "cluster"].index("open")  # and behind it the tasks that wait


def expected_job(env: ClusterEnv, view: ClusterView, j: int) -> dict[str, float]:
    """The columns that elastic jobs have or change, computed from the view."""
    s, spec = env.batch.states[0], env.settings.cluster
    gpus = sum(held(env, j))
    found = {"elastic": float(view.elastic[j]), "held_share": gpus / spec.num_gpus, "running": float(gpus > 0)}
    found["most_share"] = min(1.0, view.max_gpus[j] / spec.num_gpus)
    if not view.elastic[j]:
        return {**found, **{f"goodput_{n}": 0.0 for n in (1, 2, 4, 8, 16)}}
    nodes = np.flatnonzero(held(env, j))
    known, t = view.goodput([j])[0], int(spec.node_type[nodes[0]]) if len(nodes) else max(0, int(s.gpu_type[j]))
    largest = int(spec.node_gpus[spec.node_type == t].max())
    speed = {n: float(known[int(n > largest), n]) for n in (1, 2, 4, 8, 16)}
    hourly = speed[1] * 3600 / float(s.work[j])
    found["goodput_1"] = hourly / (hourly + 1)
    for n in (2, 4, 8, 16):
        found[f"goodput_{n}"] = speed[n] / speed[1] / (speed[n] / speed[1] + n)
    share = float(view.elastic_progress[j])
    left = float(view.estimate[j]) * (1 - share)
    attained = (
        float(view.service[j])
        if s.phase[j] != RUNNING
        else float(s.service[j] + s.held_gpus[j] * (s.now - s.held_since[j]))
    )
    return {
        **found,
        "known": 1.0,
        "progress": share,
        "remaining": left / (left + 3600),
        "service": attained / (attained + 3600),
        "pause": (p := max(0.0, s.anchor[j] - s.now) if s.phase[j] == RUNNING else 0.0) / (p + 60),
        "rescales": s.num_rescales[j] / (s.num_rescales[j] + 4),
    }


@given(seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
def test_columns_mean_what_they_say_and_a_refreshed_row_equals_a_new_one(seed: int):
    env, rng = elastic_env(seed), Random(seed)
    low, high = env.layout.bounds()
    full = np.full_like(env.batch.obs[0], np.nan)
    for _ in range(40):
        row = env.batch.obs[0]
        assert ((low <= row) & (row <= high)).all()
        fill_observation(env.batch.states[0], env.settings.workload.tables, full, env.layout.gpus_per_node)
        assert full.tobytes() == row.tobytes()
        view = ClusterView(env.batch.states, env.settings.cluster, env.settings.sim, env.settings.workload)
        block = env.layout.split(row)["jobs"]
        assert not block[:, [NAMES.index("yields"), NAMES.index("loss")]].any()  # there is no inference
        s = env.batch.states[0]
        up = (s.node_gpus * (1 - s.node_down))[: s.num_nodes].sum()
        assert env.layout.split(row)["cluster"][[OPEN, OPEN + 1]].tolist() == [np.float32(up / s.num_gpus), 0]
        for j in view.slots:
            want = expected_job(env, view, int(j))
            got = {name: block[j, NAMES.index(name)] for name in want}
            assert got == pytest.approx(want, rel=2e-6, abs=2e-6)
        if any(env.step(np.int64(choose_random(env.batch, rng)))[2:4]):
            break


def test_goodput_columns_by_hand():
    env = small(jobs((1, 0, None)), "2x4")
    row = dict(zip(NAMES, env.layout.split(env.batch.obs[0])["jobs"][0].tolist(), strict=True))
    # 1, 2 and 4 GPUs of a node, 8 of two: 1 / (1/8 + 1/2 + 6/8) a second; 16 are more than a batch of 8 allows.
    want = {
        "goodput_1": 40 / 41,
        "goodput_2": 0.5,
        "goodput_4": 0.5,
        "goodput_8": (8 / 11) / (8 / 11 + 8),
        "goodput_16": 0,
    }
    assert {name: row[name] for name in want} == pytest.approx(want, rel=1e-6)
    assert (row["elastic"], row["most_share"], row["held_share"], row["request_share"]) == (1, 1, 0, 0.125)
    edit(env, (0, MORE), (0, MORE))
    assert env.layout.split(env.batch.obs[0])["jobs"][0, NAMES.index("held_share")] == 0.25
