"""The environment against the checkers of Gymnasium and Stable-Baselines3, and through its registered id."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.env_checker import check_env as check_for_sb3

from envs.env import ClusterEnv
from envs.registration import MAX_EPISODE_STEPS
from envs.vector_env import ClusterVectorEnv
from tests.envs.env_support import ID, MIXED, mixed_trace

ROOT = Path(__file__).resolve().parents[2]
# The checkers draw actions without looking at the mask.
SMALL = {"trace": mixed_trace(80), "cluster": MIXED, "num_slots": 8, "window_jobs": 16, "on_invalid": "commit"}


@pytest.fixture(autouse=True)
def no_window(monkeypatch):
    """render_mode="human" draws on a canvas that needs no display, and so warns."""
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "pause", lambda seconds: None)
    yield
    plt.close("all")


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("render_mode", [None, "rgb_array"])
def test_gymnasium_has_no_complaint(flat, render_mode):
    env = gymnasium.make(ID, flat=flat, render_mode=render_mode, **SMALL)
    check_env(env.unwrapped)  # renders in every mode too, because the environment has a spec


@pytest.mark.parametrize("render_mode", [None, "rgb_array"])
def test_sb3_has_no_complaint_about_the_flat_space(render_mode):
    check_for_sb3(ClusterEnv(flat=True, render_mode=render_mode, **SMALL), skip_render_check=False)


def test_sb3_only_finds_the_blocks_of_the_dict_space_unusual():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_for_sb3(ClusterEnv(**SMALL))
    assert {str(w.message).partition(" (")[0] for w in caught} == {
        f"Your observation {block} has an unconventional shape" for block in ("nodes", "jobs", "occupancy")
    }


@pytest.mark.parametrize("flat", [False, True])
def test_the_passive_checker_watches_an_episode_in_silence(flat):
    env = gymnasium.make(ID, flat=flat, **{**SMALL, "on_invalid": "raise"})
    _, info = env.reset(seed=3)
    rng, ended = np.random.default_rng(3), False
    while not ended:
        valid = np.flatnonzero(info["action_mask"])
        _, _, terminated, truncated, info = env.step(rng.choice(valid))
        ended = terminated or truncated
    assert info["episode_metrics"]["num_completed"] > 0


def test_sb3_contrib_finds_the_mask():
    env = ClusterEnv(flat=True, **SMALL)
    _, info = env.reset(seed=0)
    assert is_masking_supported(env)
    mask = get_action_masks(env)
    assert mask.dtype == np.bool_
    assert mask.shape == (env.action_space.n,)
    assert (mask == info["action_mask"]).all()


def test_spec():
    spec = gymnasium.spec(ID)
    assert (spec.namespace, spec.name, spec.version) == ("musher", "Cluster", 0)
    assert spec.max_episode_steps == MAX_EPISODE_STEPS
    assert not spec.nondeterministic
    env = gymnasium.make(ID, **SMALL)
    assert env.spec.kwargs["num_slots"] == 8
    assert isinstance(gymnasium.make(env.spec).unwrapped, ClusterEnv)


@pytest.mark.parametrize("mode", [None, "vector_entry_point"])
def test_make_vec_builds_the_batch(mode):
    envs = gymnasium.make_vec(ID, num_envs=3, vectorization_mode=mode, flat=True, **SMALL)
    assert isinstance(envs.unwrapped, ClusterVectorEnv)
    observation, _ = envs.reset(seed=0)
    assert observation in envs.observation_space


def test_vector_wrappers_of_gymnasium_read_the_infos():
    envs = DictInfoToList(RecordEpisodeStatistics(ClusterVectorEnv(3, flat=True, **SMALL)))
    envs.reset(seed=0)
    infos = [{}] * 3
    while not any("episode" in info for info in infos):
        infos = envs.step(np.zeros(3, np.int64))[4]
    ended = next(info for info in infos if "episode" in info)
    assert ended["episode"]["l"] > 1
    assert ended["episode_metrics"]["num_completed"] + ended["episode_metrics"]["num_unfinished"] > 0
    assert all(info["action_mask"][0] for info in infos)


def test_the_id_works_in_another_process_and_folder_with_the_same_numbers(tmp_path):
    script = (
        "import gymnasium, gymnasium_musher; gymnasium_musher.register()\n"
        f"env = gymnasium.make({ID!r}, trace='toy-packing', cluster='2x8', num_slots=16, flat=True)\n"
        "print(env.reset(seed=5)[0].tobytes().hex())"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    here = ClusterEnv(trace="toy-packing", cluster="2x8", num_slots=16, flat=True)
    assert done.stdout.strip() == here.reset(seed=5)[0].tobytes().hex()
    assert done.stderr == ""


def test_the_id_can_name_the_module_that_registers_it(monkeypatch):
    monkeypatch.delitem(gymnasium.registry, ID)
    monkeypatch.delitem(sys.modules, "gymnasium_musher", raising=False)
    assert isinstance(gymnasium.make(f"gymnasium_musher:{ID}", **SMALL).unwrapped, ClusterEnv)
