"""The picture of a cluster: its shape, what it shows, and that it follows the state."""

from __future__ import annotations

from random import Random

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from envs.actions import NUM_EDITS
from envs.env import ClusterEnv
from envs.render import PAST_S, _draw, _intervals
from tests.envs.core_support import hand
from tests.envs.env_support import ID, MIXED, PLAYERS, mixed_trace

WORLD = {"trace": mixed_trace(300), "cluster": MIXED, "num_slots": 16, "window_jobs": 60, "render_mode": "rgb_array"}


def walk(env: ClusterEnv, steps: int, seed: int = 0) -> None:
    rng = Random(seed)
    for _ in range(steps):
        env.step(np.int64(PLAYERS["churn"](env.batch, rng)))


def begun(steps: int = 0) -> ClusterEnv:
    env = ClusterEnv(**WORLD)
    env.reset(seed=0, options={"window": 0})
    walk(env, steps)
    return env


def test_a_picture_is_an_rgb_array_through_gymnasium(tmp_path):
    env = gymnasium.make(ID, **WORLD)
    env.reset(seed=0)
    walk(env.unwrapped, 80)
    picture = env.render()
    assert (picture.dtype, picture.shape) == (np.uint8, (360, 640, 3))
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20
    plt.imsave(tmp_path / "cluster.png", picture)
    assert (plt.imread(tmp_path / "cluster.png").shape[:2]) == (360, 640)


def test_the_picture_follows_the_state():
    env = begun()
    pictures = [env.render()]
    assert (env.render() == pictures[0]).all()
    for steps in (10, 30):
        walk(env, steps)
        pictures.append(env.render())
    assert (pictures[0] != pictures[1]).any()
    assert (pictures[1] != pictures[2]).any()


def test_rendering_changes_nothing():
    shown, blind = begun(30), ClusterEnv(**{**WORLD, "render_mode": None})
    blind.reset(seed=0, options={"window": 0})
    walk(blind, 30)
    shown.render()
    assert shown.batch.obs.tobytes() == blind.batch.obs.tobytes()
    walk(shown, 30, seed=1)
    walk(blind, 30, seed=1)
    assert shown.batch.obs.tobytes() == blind.batch.obs.tobytes()


def test_every_holder_has_a_bar_by_hand():
    """A gang on GPUs 0 and 1 until 10 s, then one job on GPU 0 that still runs at 15 s."""
    env = ClusterEnv(
        trace=hand([(2, 0, 10), (1, 0, 50), (2, 15, 5)]), cluster="1x2", num_slots=4, render_mode="rgb_array"
    )
    env.reset(seed=0)
    for action in (1, 0, 1 + NUM_EDITS, 0):
        env.step(np.int64(action))
    bars = _intervals(env.batch)[["gpu", "job", "start_s", "end_s"]].to_numpy().tolist()
    assert sorted(bars) == [[0, 0, 0, 10], [0, 1, 10, 15], [1, 0, 0, 10]]
    figure = Figure()
    _draw(figure, env.batch, _intervals(env.batch))
    assert figure.axes[0].get_title() == "1 running on 1 of 2 GPUs, 1 waiting, 0 in the backlog, 1 of 3 completed"


def test_fractions_that_still_run_are_drawn():
    trace = hand([(1, 0, 50), (1, 0, 50), (1, 5, 50)], share_milli=[500, 500, 1000])
    env = ClusterEnv(trace=trace, cluster="1x1", num_slots=4, render_mode="rgb_array")
    env.reset(seed=0)
    for action in (1, 1 + NUM_EDITS, 0):
        env.step(np.int64(action))
    assert sorted(_intervals(env.batch)["job"]) == [0, 1]


def test_a_new_episode_begins_with_an_empty_chart():
    env = begun(60)
    env.batch.drain_log()  # as when the log is full
    env.reset(seed=1)
    assert _intervals(env.batch).empty


def test_a_restored_snapshot_has_its_own_past():
    env = begun(60)
    snapshot, before = env.snapshot(), _intervals(env.batch)
    env.reset(seed=5)
    walk(env, 60, seed=5)
    env.restore(snapshot)
    pd.testing.assert_frame_equal(_intervals(env.batch), before)


def test_only_the_last_hours_are_drawn():
    """At ten hours the only job that ran so far, of 100 s, lies before the left edge."""
    now = 10 * 3600.0
    env = ClusterEnv(trace=hand([(1, 0, 100), (1, now, 100)]), cluster="1x2", num_slots=4, render_mode="rgb_array")
    env.reset(seed=0)
    env.step(np.int64(1))
    env.step(np.int64(0))
    figure = Figure()
    _draw(figure, env.batch, _intervals(env.batch))
    assert env.batch.states[0].now == now
    assert figure.axes[0].get_xlim()[0] == (now - PAST_S) / 3600
    assert figure.axes[0].get_xlabel() == "time [h]"
    assert len(figure.axes[0].patches) == 0
    assert len(_intervals(env.batch)) == 1


def test_human_mode_draws_in_a_window_at_every_step(monkeypatch):
    pauses = []
    monkeypatch.setattr(plt, "pause", pauses.append)  # the canvas of the tests has no window
    env = ClusterEnv(**{**WORLD, "render_mode": "human"})
    env.reset(seed=0)
    walk(env, 3)
    assert len(pauses) == 3
    assert env.render() is None
    (axes,) = plt.figure("musher").axes
    assert "running" in axes.get_title()
    plt.close("all")
