"""The batch as SB3 sees it: same-step ends, truncation, masks from one array, infos made only where needed."""

from __future__ import annotations

import tracemalloc

import gymnasium
import numpy as np
import pytest
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor

from agents.network import NetworkConfig
from agents.sb3_policy import MaskableClusterPolicy
from agents.sb3_vec_env import ClusterSB3VecEnv
from envs.actions import num_actions
from envs.batch import Batch
from envs.env import ClusterEnv
from envs.vector_env import ClusterVectorEnv
from tests.agents.samples import draw_valid, small_settings

FIELDS = ("trace", "cluster", "num_slots", "window_jobs", "edit_budget", "horizon_s")


def make_env(num_envs: int = 6, seed: int = 3, **changes: object) -> ClusterSB3VecEnv:
    env = ClusterSB3VecEnv(Batch(small_settings(**changes), num_envs))
    env.seed(seed)
    return env


def row_seeds(env: ClusterSB3VecEnv) -> np.ndarray:
    return np.asarray(env._seeds, np.int64)


@pytest.mark.parametrize("horizon_s", [None, 4000.0], ids=["terminated", "truncated"])
def test_steps_equal_those_of_the_gymnasium_vector_env(horizon_s):
    """Observations, rewards, ends, last observations and metrics, over several episodes of every row."""
    env = make_env(horizon_s=horizon_s)
    theirs = ClusterVectorEnv(6, autoreset_mode="SameStep", flat=True, **{
        name: getattr(env.batch.settings, name) for name in FIELDS
    })  # fmt: skip
    expected, _ = theirs.reset(seed=row_seeds(env))
    obs = env.reset()
    rng, ends, truncations = np.random.default_rng(0), 0, 0
    for _ in range(700):
        np.testing.assert_array_equal(obs, expected)
        np.testing.assert_array_equal(env.action_masks(), theirs.action_masks())
        actions = draw_valid(env.action_masks(), rng)
        obs, reward, done, infos = env.step(actions)
        expected, their_reward, terminated, truncated, their_infos = theirs.step(actions)
        np.testing.assert_array_equal(reward, their_reward.astype(np.float32))
        np.testing.assert_array_equal(done, terminated | truncated)
        for row in np.flatnonzero(done):
            np.testing.assert_array_equal(infos[row]["terminal_observation"], their_infos["final_obs"][row])
            assert infos[row]["TimeLimit.truncated"] == truncated[row]
            assert (
                infos[row]["episode_metrics"]["num_completed"] == their_infos["episode_metrics"]["num_completed"][row]
            )
        ends, truncations = ends + int(done.sum()), truncations + int(truncated.sum())
    assert ends > 12
    assert (truncations > 0) == (horizon_s is not None)


def test_the_last_observation_is_of_the_old_episode_and_the_next_is_the_first_of_the_new():
    env = make_env(num_envs=1)
    env.reset()
    rng, done = np.random.default_rng(1), np.array([False])
    while not done[0]:
        obs, _, done, infos = env.step(draw_valid(env.action_masks(), rng))
    last = env.batch.layout.split(infos[0]["terminal_observation"])
    first = env.batch.layout.split(obs[0])
    assert last["jobs"][:, 0].sum() == 0, "every job is done"
    assert last["cluster"][0] == 1.0, "every GPU is free"
    assert first["jobs"][:, 0].sum() >= 1, "the first job has arrived"


def test_episode_info_sums_the_rewards():
    env = make_env()
    env.reset()
    rng, returns, lengths = np.random.default_rng(2), np.zeros(6), np.zeros(6, int)
    checked = 0
    for _ in range(400):
        _, reward, done, infos = env.step(draw_valid(env.action_masks(), rng))
        returns, lengths = returns + reward, lengths + 1
        for row in np.flatnonzero(done):
            episode = infos[row]["episode"]
            assert episode["r"] == pytest.approx(returns[row], rel=1e-5)
            assert episode["l"] == lengths[row]
            returns[row], lengths[row], checked = 0.0, 0, checked + 1
        assert all(not infos[row] for row in np.flatnonzero(~done))
    assert checked > 6


def test_what_a_step_returned_is_not_changed_by_the_next():
    """SB3 stores the observation before a step only after that step."""
    env = make_env()
    obs = env.reset()
    kept, rng = obs.copy(), np.random.default_rng(3)
    for _ in range(50):
        new, reward, done, _ = env.step(draw_valid(env.action_masks(), rng))
        np.testing.assert_array_equal(obs, kept)
        snapshot = (new.copy(), reward.copy(), done.copy())
        env.step(draw_valid(env.action_masks(), rng))
        for now, then in zip((new, reward, done), snapshot, strict=True):
            np.testing.assert_array_equal(now, then)
        obs = new
        kept = obs.copy()


def test_masks_come_from_one_array():
    env = make_env()
    env.reset()
    assert is_masking_supported(env)
    assert env.env_method("action_masks") is env.batch.mask
    np.testing.assert_array_equal(get_action_masks(env), env.batch.mask)
    np.testing.assert_array_equal(env.env_method("action_masks", indices=[4, 1]), env.batch.mask[[4, 1]])
    assert get_action_masks(env).dtype == np.bool_


def test_the_mask_is_that_of_the_state_that_is_stepped():
    """200,000 decisions in which an invalid action would raise."""
    env = make_env(num_envs=200)
    env.reset()
    rng = np.random.default_rng(4)
    for _ in range(1000):
        obs, *_ = env.step(draw_valid(env.action_masks(), rng))
        assert np.isfinite(obs).all()


def test_seeds_of_different_runs_share_no_row():
    env = make_env(num_envs=4)
    seeds = [set(map(int, row_seeds(env)))]
    for seed in (4, 5):
        env.seed(seed)
        seeds.append(set(map(int, row_seeds(env))))
    assert len(set.union(*seeds)) == 12


def test_snapshot_and_restore():
    env = make_env()
    env.reset()
    rng = np.random.default_rng(5)
    for _ in range(137):
        env.step(draw_valid(env.action_masks(), rng))
    saved = env.snapshot()
    state = rng.bit_generator.state

    def play() -> list[np.ndarray]:
        rng.bit_generator.state = state
        steps = [env.step(draw_valid(env.action_masks(), rng)) for _ in range(150)]
        returns = [np.array([info["episode"]["r"] for info in infos if info]) for *_, infos in steps]
        return [array for *arrays, _ in steps for array in arrays] + returns

    first = play()
    env.restore(saved)
    for a, b in zip(first, play(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_long_stepping_keeps_no_memory():
    """Nothing grows with the number of steps, so the speed does not fall either."""
    env = make_env(num_envs=16)
    env.reset()
    rng = np.random.default_rng(6)

    def play() -> None:
        for _ in range(500):
            env.step(draw_valid(env.action_masks(), rng))
        assert len(env.take_finished()) > 0

    play()
    tracemalloc.start()
    play()
    before, _ = tracemalloc.get_traced_memory()
    play()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 64_000, "bytes kept by 8,000 decisions"


def test_sb3_wrappers_take_it():
    env = VecMonitor(make_env())
    model = MaskablePPO(
        MaskableClusterPolicy, env, n_steps=64, batch_size=64, n_epochs=1, seed=0, device="cpu",
        policy_kwargs={"layout": env.unwrapped.batch.layout, "network": NetworkConfig(width=16)},
    )  # fmt: skip
    model.learn(64 * 6 * 2)
    assert len(model.ep_info_buffer) > 0


@pytest.mark.parametrize("wrapper", [DummyVecEnv, SubprocVecEnv])
def test_sb3s_own_vector_envs_find_the_masks_of_single_environments(wrapper):
    settings = {"trace": "toy-five-jobs", "cluster": "1x1", "num_slots": 8, "flat": True}
    env = wrapper(
        [lambda: ClusterEnv(**settings)] * 2
        if wrapper is SubprocVecEnv
        else [lambda: ClusterEnv(**settings) for _ in range(2)]
    )
    try:
        env.seed(0)
        env.reset()
        masks = get_action_masks(env)
        assert masks.shape == (2, num_actions(8, 0))
        assert masks[:, 0].all()
        env.step(masks[:, 1:].argmax(axis=1) + 1)
        assert (get_action_masks(env) != masks).any()
    finally:
        env.close()


def test_what_clusters_do_not_have_is_an_attribute_error():
    env = make_env()
    with pytest.raises(AttributeError, match="no method fly"):
        env.env_method("fly")
    with pytest.raises(AttributeError, match="cannot be set"):
        env.set_attr("seed", 1)
    assert env.get_attr("num_envs", indices=2) == [6]
    assert env.env_is_wrapped(gymnasium.Wrapper) == [False] * 6
