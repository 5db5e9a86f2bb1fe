"""Benchmarks print what they promise and time the right thing; how fast anything is, is not tested."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from benchmarks import elastic_replay, env_speed, replay_speed
from benchmarks.elastic_replay import NODE_GPUS, drawn_jobs, fit_all, time_runs
from benchmarks.learner_speed import Nothing, train_once
from benchmarks.measure import Timing
from benchmarks.random_play import SEED, draw, record, replay_single, replay_vector
from envs.actions import COMMIT
from envs.env import ClusterEnv
from envs.vector_env import ClusterVectorEnv

QUICK = "--json --batch 2 --seconds 0.01 --repeats 1"
SMALL = {"trace": "synthetic-philly?jobs=300", "cluster": "16x4", "num_slots": 64, "window_jobs": 16}


def last_figures(text: str) -> dict[str, float]:
    return json.loads(text.strip().splitlines()[-1])


def test_env_speed_ends_with_flat_figures(capsys):
    flags = f"{QUICK} --scenarios rigid --learner-envs 4 --rollout-steps 4"
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


def test_elastic_jobs_are_measured_in_three_ways(capsys):
    flags = f"{QUICK} --scenarios elastic --online-batch 2 --weights-batch 2 --learner-envs 0"
    assert env_speed.main(flags.split()) == 0
    out = capsys.readouterr().out
    figures = last_figures(out)
    assert "synthetic-pollux" in out
    assert all(math.isfinite(value) and value > 0 for value in figures.values())
    for name in ("steps_per_cpu_s.elastic.2", "steps_per_cpu_s.elastic.single", "steps_per_cpu_s.elastic-online.2"):
        assert figures[f"env_{name}"] == min(figures[f"env_{name}.commit10"], figures[f"env_{name}.commit50"])
    # A pass is a knapsack and at least one event.
    assert figures["env_passes_per_cpu_s.elastic-weights.2"] <= figures["events_per_cpu_s.elastic-weights.2.commit100"]
    assert "env_steps_per_cpu_s.elastic-weights.2" not in figures


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


def test_replay_speed_of_elastic_jobs_tells_decisions_from_the_simulator(capsys):
    flags = "--json --trace synthetic-pollux?jobs=8 --repeats 1 --elastic-schedulers tiresias afs"
    assert replay_speed.main(flags.split()) == 0
    out = capsys.readouterr().out
    figures = last_figures(out)
    assert "synthetic-pollux, 8 jobs" in out
    for name in ("tiresias.pollux", "afs.pollux"):
        assert figures[f"jobs_per_cpu_s.{name}"] == pytest.approx(8 / figures[f"cpu_s.{name}"], rel=2e-3)
    assert 0 < figures["decision_s.afs.pollux"] + figures["simulator_s.afs.pollux"] < figures["cpu_s.afs.pollux"]
    assert "decision_s.tiresias.pollux" not in figures
    assert figures["fit_us.20"] > 0
    assert not any("philly" in name for name in figures)


def test_points_to_fit_are_different_places_of_a_job():
    jobs = drawn_jobs(20)
    for points in jobs:
        nodes, gpus, local, grad, step = points.T
        assert len({tuple(place) for place in points[:, :3]}) == 20
        assert ((nodes <= gpus) & (gpus <= nodes * NODE_GPUS) & (local > 0)).all()
        assert (grad > 0).all()
        assert (step > 0).all()
    before = [points.copy() for points in jobs]
    fit_all(jobs)
    np.testing.assert_array_equal(jobs, before)


def test_long_runs_are_not_repeated(monkeypatch):
    calls = []
    monkeypatch.setattr(elastic_replay, "LONG_S", 0.0)
    assert time_runs(lambda: calls.append(1), 5) == []
    monkeypatch.setattr(elastic_replay, "LONG_S", 1e9)
    runs = time_runs(lambda: calls.append(1), 5)
    assert len(runs) == 5
    assert len(calls) == 7  # one each compiles
    assert [run.cpu_s for run in runs] == sorted(run.cpu_s for run in runs)


def test_without_json_there_is_no_json(capsys):
    flags = "--trace synthetic-philly?jobs=200 --window-jobs 128 --repeats 1 --clusters 16x4"
    assert replay_speed.main(flags.split()) == 0
    assert "{" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("main", "flags", "message"),
    [
        (env_speed.main, "--batch 0", "every --*batch must be at least 1"),
        (env_speed.main, "--scenarios elastics", "unknown scenario 'elastics'; known are rigid"),
        (env_speed.main, "--seconds 0", "--seconds must be above 0"),
        (replay_speed.main, "--schedulers lifo", "unknown scheduler 'lifo'"),
        (replay_speed.main, "--elastic-schedulers lifo", "unknown scheduler 'lifo'"),
        (replay_speed.main, "--elastic-schedulers safe-front", "unknown scheduler 'safe-front'"),
        (replay_speed.main, "--trace synthetic-pollux?jobs=2 --profiles absent", "absent"),
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


def test_weights_are_recorded_and_replayed_as_passes():
    settings = SMALL | {"scenario": "elastic", "trace": "synthetic-pollux?jobs=40", "action": "weights"}
    env = ClusterVectorEnv(2, **settings)
    recording = record(env, 1.0, 0.002)
    steps, rows, slots = recording.actions.shape
    assert (rows, slots) == (2, 64)
    assert (recording.num_steps, recording.commits) == (2 * steps, 1.0)
    recorded = env.batch.obs.copy()
    env.reset(seed=SEED)
    replay_vector(env, recording)()
    np.testing.assert_array_equal(env.batch.obs, recorded)


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
