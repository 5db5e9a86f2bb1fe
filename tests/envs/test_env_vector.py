"""The batch as a Gymnasium vector environment: autoreset modes, against Gymnasium's own SyncVectorEnv."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envs.env import ClusterEnv
from envs.spec import SpecError
from envs.vector_env import ClusterVectorEnv
from tests.envs.core_support import hand
from tests.envs.env_support import EVENTS, MIXED, mixed_trace, random_actions

ROWS = 6
WORLD = {"trace": mixed_trace(300), "cluster": MIXED, "num_slots": 8, "window_jobs": 10, "horizon_s": 3000.0}
# One job of 10 s on one GPU: start it, commit, and the episode is over with return -1.
TINY = {"trace": hand([(1, 0, 10)]), "cluster": "1x1", "sim": EVENTS, "num_slots": 2, "flat": True}
START, COMMIT = 1, 0


def make(mode: AutoresetMode, rows: int = ROWS, **settings: Any) -> ClusterVectorEnv:
    return ClusterVectorEnv(rows, autoreset_mode=mode, **{**WORLD, **settings})


def sync(mode: AutoresetMode, rows: int = ROWS, **settings: Any) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: ClusterEnv(**{**WORLD, **settings})] * rows, autoreset_mode=mode)


def same(a: Any, b: Any) -> bool:
    """Whether two observations, Dict or flat, are equal."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
    return np.array_equal(a, b)


def same_metrics(ours: dict[str, Any], theirs: dict[str, Any], rows: np.ndarray) -> bool:
    return all(np.array_equal(ours[name][rows], theirs[name][rows], equal_nan=True) for name in theirs)


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("objective", ["jct", "p99_slowdown"])
def test_the_same_as_gymnasiums_vector_of_single_environments(mode, flat, objective):
    ours, theirs = make(mode, flat=flat, objective=objective), sync(mode, flat=flat, objective=objective)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"] == mode
    (observation, info), (expected, expected_info) = ours.reset(seed=11), theirs.reset(seed=11)
    assert same(observation, expected)
    rng, ends, over = np.random.default_rng(0), 0, np.zeros(ROWS, bool)
    for _ in range(300):
        if mode == AutoresetMode.DISABLED and over.any():
            observation, info = ours.reset(options={"reset_mask": over})
            expected, _ = theirs.reset(options={"reset_mask": over})
            assert same(observation, expected)
        actions = random_actions(rng, info["action_mask"])
        observation, *outcome, info = ours.step(actions)
        expected, *expected_outcome, expected_info = theirs.step(actions)
        assert same(observation, expected)
        assert observation in ours.observation_space
        for a, b in zip(outcome, expected_outcome, strict=True):
            assert (a.dtype, a.tolist()) == (b.dtype, b.tolist())
        assert (info["action_mask"] == expected_info["action_mask"]).all()
        over = outcome[1] | outcome[2]
        ends += over.sum()
        if over.any():
            check_ends(mode, info, expected_info, over)
    assert ends > 2 * ROWS


def check_ends(mode: AutoresetMode, info: dict[str, Any], expected: dict[str, Any], over: np.ndarray) -> None:
    """Assert that what is said of finished rows is what Gymnasium says of them."""
    if mode == AutoresetMode.SAME_STEP:
        for b in np.flatnonzero(over):
            assert same(info["final_obs"][b], expected["final_obs"][b])
        assert [info["final_obs"][b] for b in np.flatnonzero(~over)] == [None] * int((~over).sum())
        for name in ("_final_obs", "_final_info"):
            assert info[name].tolist() == expected[name].tolist() == over.tolist()
        info, expected = info["final_info"], expected["final_info"]
    else:
        assert "final_obs" not in info
    assert info["_episode_metrics"].tolist() == expected["_episode_metrics"].tolist() == over.tolist()
    assert same_metrics(info["episode_metrics"], expected["episode_metrics"], over)


# --- the modes by hand, on an episode of two steps ---


def test_next_step():
    """The step after the end ignores its action and shows the next episode; other rows go on."""
    envs = make(AutoresetMode.NEXT_STEP, 2, **TINY)
    first, _ = envs.reset(seed=0)
    envs.step(np.array([START, COMMIT]))
    last, reward, terminated, _, info = envs.step(np.array([COMMIT, START]))
    assert (reward.tolist(), terminated.tolist()) == ([-1.0, 0.0], [True, False])
    assert info["_episode_metrics"].tolist() == [True, False]
    assert info["episode_metrics"]["mean_jct_s"].tolist() == [10.0, 0.0]
    assert not np.array_equal(last[0], first[0])
    again, reward, terminated, truncated, info = envs.step(np.array([10**9, COMMIT]))  # no such action: ignored
    assert (reward.tolist(), terminated.tolist()) == ([0.0, -1.0], [False, True])
    assert not truncated.any()
    assert np.array_equal(again[0], first[0])
    assert info["action_mask"][0, START]


def test_same_step():
    """The step that ends an episode shows the first observation of the next; the last one is in the info."""
    envs = make(AutoresetMode.SAME_STEP, 2, **TINY)
    first, _ = envs.reset(seed=0)
    envs.step(np.array([START, COMMIT]))
    observation, reward, terminated, _, info = envs.step(np.array([COMMIT, START]))
    assert (reward.tolist(), terminated.tolist()) == ([-1.0, 0.0], [True, False])
    assert np.array_equal(observation[0], first[0])
    assert info["_final_obs"].tolist() == [True, False]
    last = envs.layout.split(info["final_obs"][0])
    assert last["jobs"][:, 0].sum() == 0
    assert info["final_obs"][1] is None
    assert info["final_info"]["episode_metrics"]["num_completed"].tolist() == [1.0, 0.0]
    assert info["action_mask"][0, START]
    envs.step(np.array([START, COMMIT]))
    assert envs.step(np.array([COMMIT, COMMIT]))[2].tolist() == [True, False]


def test_disabled():
    """Nothing is reset until the caller says which rows."""
    envs = make(AutoresetMode.DISABLED, 3, **TINY)
    first, _ = envs.reset(seed=0)
    envs.step(np.array([START, START, COMMIT]))
    last, _, terminated, _, info = envs.step(np.array([COMMIT, COMMIT, START]))
    assert terminated.tolist() == [True, True, False]
    assert "final_obs" not in info
    observation, info = envs.reset(options={"reset_mask": np.array([True, False, False])})
    assert np.array_equal(observation[0], first[0])
    assert np.array_equal(observation[1:], last[1:])
    assert info["action_mask"][:, START].tolist() == [True, False, False]
    assert envs.batch.terminated.tolist() == [False, True, False]


def test_the_reset_mask_must_have_one_entry_a_row():
    envs = make(AutoresetMode.DISABLED, 3, **TINY)
    envs.reset(seed=0)
    with pytest.raises(SpecError, match=r"reset_mask has shape \(2,\), expected \(3,\)"):
        envs.reset(options={"reset_mask": np.array([True, False])})


def test_seeds_may_be_a_list():
    observation, _ = make(AutoresetMode.NEXT_STEP, 3, flat=True).reset(seed=[5, 900, 5])
    assert np.array_equal(observation[0], observation[2])
    single = ClusterEnv(flat=True, **WORLD)
    for row, seed in zip(observation, (5, 900, 5), strict=True):
        assert np.array_equal(row, single.reset(seed=seed)[0])


def test_every_row_may_have_its_window():
    envs = make(AutoresetMode.DISABLED, 3)
    envs.reset(seed=0, options={"window": [3, -1, 40]})
    assert envs.batch.states["window"][[0, 2]].tolist() == [3, 40]


def test_the_modes_may_be_given_by_value():
    assert make("SameStep", 1).autoreset_mode == AutoresetMode.SAME_STEP


def test_an_invalid_action_names_the_row():
    envs = make(AutoresetMode.NEXT_STEP, 3, **TINY)
    envs.reset(seed=0)
    with pytest.raises(RuntimeError, match="environment 1: action 2 is not valid now"):
        envs.step(np.array([COMMIT, 2, COMMIT]))


def test_a_reset_has_no_reward():
    envs = make(AutoresetMode.DISABLED, 2, **TINY)
    envs.reset(seed=0)
    envs.step(np.array([START, START]))
    envs.step(np.array([COMMIT, COMMIT]))
    assert not envs.reset()[1].get("reward_terms", {"jct": np.zeros(2)})["jct"].any()


def test_next_step_with_windows_that_are_over_at_once():
    """Both jobs are rejected at arrival: every episode ends at its first step."""
    empty = {**TINY, "trace": hand([(2, 0, 10), (2, 0, 10)])}
    ours, theirs = (build(AutoresetMode.NEXT_STEP, 2, **empty) for build in (make, sync))
    ours.reset(seed=0)
    theirs.reset(seed=0)
    for _ in range(5):
        assert ours.step(np.zeros(2, np.int64))[2].tolist() == theirs.step(np.zeros(2, np.int64))[2].tolist()


def test_a_window_outside_the_trace_is_an_error():
    with pytest.raises(SpecError, match="window 300 lies outside the trace of 300 jobs"):
        make(AutoresetMode.NEXT_STEP, 2).reset(seed=0, options={"window": 300})


def test_too_few_actions_are_an_error():
    envs = make(AutoresetMode.NEXT_STEP, 3, on_invalid="commit")
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="shape"):
        envs.step(np.zeros(2, np.int64))
