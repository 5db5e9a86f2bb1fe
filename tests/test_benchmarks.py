"""Benchmarks print what they promise and time the right thing; how fast anything is, is not tested."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from benchmarks import env_speed, replay_speed
from benchmarks.learner_speed import Nothing, train_once
from benchmarks.measure import Timing
from benchmarks.random_play import SEED, draw, record, replay_single, replay_vector
from envs.actions import COMMIT
from envs.env import ClusterEnv
from envs.vector_env import ClusterVectorEnv

SMALL = {"trace": "synthetic-philly?jobs=300", "cluster": "16x4", "num_slots": 64, "window_jobs": 16}


def last_figures(text: str) -> dict[str, float]:
    return json.loads(text.strip().splitlines()[-1])


def test_env_speed_ends_with_flat_figures(capsys):
    flags = "--json --batch 2 --seconds 0.01 --repeats 1 --learner-envs 4 --rollout-steps 4"
    assert env_speed.main(flags.split()) == 0
    out = capsys.readouterr().out
    figures = last_figures(out)
    assert "Environment steps per CPU second: rigid" in out
    assert all(isinstance(value, float) and math.isfinite(value) and value > 0 for value in figures.values())
    for size in ("2", "2.copy", "single", "single.flat", "single.make", "single.make.flat"):
        name = f"env_steps_per_cpu_s.rigid.{size}"
        assert figures[name] == min(figures[f"{name}.commit10"], figures[f"{name}.commit50"])
    fps, idle = figures["learner_fps.rigid.4"], figures["learner_fps_nothing.rigid.4"]
    assert figures["learner_fps_share.rigid.4"] == pytest.approx(fps / idle, rel=2e-3)
    assert figures["memory_bytes_per_env.rigid"] > 64 * 19 * 4  # the jobs block of an observation alone


def test_replay_speed_ends_with_flat_figures_and_names_the_trace(capsys):
    flags = "--json --trace synthetic-philly?jobs=200 --clusters 16x4 8x8 --window-jobs 128 --repeats 1"
    assert replay_speed.main([*flags.split(), "--schedulers", "fifo", "srtf"]) == 0
    out = capsys.readouterr().out
    figures = last_figures(out)
    assert "synthetic-philly, 200 jobs" in out
    for name in ("fifo", "srtf"):
        speeds = [figures[f"jobs_per_cpu_s.{name}.philly.{cluster}"] for cluster in ("16x4", "8x8")]
        assert figures[f"jobs_per_cpu_s.{name}.philly"] == min(speeds)
        assert figures[f"jobs_per_cpu_s.{name}.windows128"] <= figures[f"jobs_per_cpu_s.{name}.windows128.best"]
    assert "jobs_per_cpu_s.tiresias.philly" not in figures


def test_without_json_there_is_no_json(capsys):
    flags = "--trace synthetic-philly?jobs=200 --window-jobs 128 --repeats 1 --clusters 16x4"
    assert replay_speed.main(flags.split()) == 0
    assert "{" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("main", "flags", "message"),
    [
        (env_speed.main, "--batch 0", "--batch must be at least 1"),
        (env_speed.main, "--scenarios elastics", "unknown scenario 'elastics'; known are rigid"),
        (env_speed.main, "--seconds 0", "--seconds must be above 0"),
        (replay_speed.main, "--schedulers lifo", "unknown scheduler 'lifo'"),
        (replay_speed.main, "--trace absent.csv", "absent.csv does not exist"),
        (replay_speed.main, "--clusters 16by4", "'16by4' is not NODESxGPUS"),
        (replay_speed.main, "--trace toy-packing --window-jobs 1000 --clusters 16x4", "fewer than one window of 1000"),
    ],
)
def test_what_cannot_be_used_is_one_line(main, flags, message, capsys):
    assert main(flags.split()) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert len(shown.err.splitlines()) == 1


def test_timing():
    timing = Timing((3.0, 1.0, 8.0))
    assert (timing.median, timing.best) == (3.0, 1.0)


def test_draws_follow_the_mask_and_the_share():
    rng = np.random.default_rng(1)
    mask = np.zeros((3, 9), np.bool_)
    mask[:, COMMIT] = True
    mask[0, [3, 5, 8]] = True
    mask[2, 1] = True
    drawn = np.array([draw(mask, 0.25, rng) for _ in range(4000)])
    assert set(drawn[:, 0]) == {COMMIT, 3, 5, 8}
    assert set(drawn[:, 1]) == {COMMIT}  # there is no choice
    assert set(drawn[:, 2]) == {COMMIT, 1}
    # 0.25 +- 0.03 is more than four standard deviations of 4000 draws.
    assert np.abs((drawn[:, [0, 2]] == COMMIT).mean(axis=0) - 0.25).max() < 0.03
    assert np.abs([(drawn[:, 0] == edit).mean() - 0.25 for edit in (3, 5, 8)]).max() < 0.03


def test_what_was_recorded_can_be_replayed_on_any_environment_of_that_size():
    recording = record(ClusterVectorEnv(3, **SMALL), 0.5, 0.02)
    assert recording.actions.shape[1] == 3
    last = []
    for copy in (True, False):
        env = ClusterVectorEnv(3, copy=copy, flat=True, **SMALL)
        env.reset(seed=SEED)
        replay_vector(env, recording)()  # raises on an action that is not valid
        last.append(env.batch.obs.copy())
    np.testing.assert_array_equal(*last)


def test_events_and_episodes_are_counted_through_resets():
    env = ClusterEnv(**SMALL)
    recording = record(env, 1.0, 0.02)
    assert recording.commits == 1.0
    env.reset(seed=SEED)
    events, episodes, before = 0, 0, int(env.batch.states["num_events"][0])
    for action in recording.actions[:, 0]:
        _, _, terminated, truncated, _ = env.step(action)
        events += int(env.batch.states["num_events"][0]) - before
        if terminated or truncated:
            episodes += 1
            env.reset()
        before = int(env.batch.states["num_events"][0])
    # The recording counts what each reset runs through, up to the first pass, as well.
    assert recording.episodes == episodes > 0
    assert events <= recording.events <= events + 2 * episodes
    replay_single(env, recording)


def test_nothing_shows_what_the_learner_saw():
    from agents.config import PPOConfig, TrainConfig
    from agents.trainer import make_model
    from envs.settings import EnvSettings

    model = make_model(TrainConfig(num_envs=3, ppo=PPOConfig(rollout_steps=4)), EnvSettings(**SMALL))
    batch = model.get_env().batch
    seen = []
    step = batch.step

    def watch(actions):
        seen.append((batch.obs.copy(), batch.mask.copy()))
        step(actions)

    batch.step = watch
    train_once(model, 12)
    nothing = Nothing(batch)
    nothing.show(model)
    shown = [(nothing.reset(), nothing.env_method("action_masks"))]
    for _ in range(3):
        obs, reward, done, _ = nothing.step(np.zeros(3, np.int64))
        assert not reward.any()
        assert not done.any()
        shown.append((obs, np.array(nothing.action_masks())))
    for (obs, mask), (obs_seen, mask_seen) in zip(shown, seen, strict=True):
        np.testing.assert_array_equal(obs, obs_seen)
        np.testing.assert_array_equal(mask, mask_seen)
