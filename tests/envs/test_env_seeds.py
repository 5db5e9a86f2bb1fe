"""Reproducibility: the same seed gives the same bytes, whatever the batch, the threads or the past."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numba
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from envs.batch import MANUAL, NEXT_STEP, SAME_STEP, Batch
from envs.env import ClusterEnv
from envs.settings import EnvSettings
from envs.spec import SimConfig
from envs.vector_env import ClusterVectorEnv
from tests.envs.env_support import MIXED, choose_random, mixed_trace, play, random_actions, state_bytes
from traces.trace import Trace

TRACE = mixed_trace(300)
# Random placement reads the seed at every start; windows are drawn from it.
WORLD = {
    "trace": TRACE,
    "cluster": MIXED,
    "num_slots": 8,
    "window_jobs": 10,
    "sim": SimConfig(interval_s=0.0, placement="random"),
    "horizon_s": 3000.0,
}


def steps_of(env: ClusterEnv, seed: int | None, count: int = 200) -> Iterator[tuple[bytes, float, bool, bool]]:
    """Reset, then random actions; the observation, reward and ends of each step. Resets at the end of an episode."""
    rng = Random(0 if seed is None else seed)
    observation, _ = env.reset(seed=seed)
    yield observation.tobytes(), 0.0, False, False
    for _ in range(count):
        observation, reward, terminated, truncated, _ = env.step(np.int64(choose_random(env.batch, rng)))
        yield observation.tobytes(), reward, terminated, truncated
        if terminated or truncated:
            yield env.reset()[0].tobytes(), 0.0, False, False


def test_same_seed_same_bytes():
    first, second = (list(steps_of(ClusterEnv(flat=True, **WORLD), 7)) for _ in range(2))
    assert first == second
    assert first != list(steps_of(ClusterEnv(flat=True, **WORLD), 8))


def test_reset_equals_a_fresh_environment():
    used = ClusterEnv(flat=True, **WORLD)
    used.reset(seed=1, options={"window": 33})
    for _ in range(57):
        used.step(np.int64(choose_random(used.batch, Random(2))))
    fresh = ClusterEnv(flat=True, **WORLD)
    assert list(steps_of(used, 7)) == list(steps_of(fresh, 7))
    used.reset(seed=3)
    fresh.reset(seed=3)
    assert used.batch.mask.tobytes() == fresh.batch.mask.tobytes()
    assert used.batch.states["gpus"].tobytes() == fresh.batch.states["gpus"].tobytes()


def windows(env: ClusterEnv, count: int, seed: int | None) -> list[int]:
    """Windows of ``count`` episodes in a row."""
    env.reset(seed=seed)
    found = [int(env.batch.states[0].window)]
    while len(found) < count:
        env.reset()
        found.append(int(env.batch.states[0].window))
    return found


def test_reset_without_a_seed_continues_the_stream():
    env = ClusterEnv(**WORLD)
    drawn = windows(env, 20, seed=4)
    assert len(set(drawn)) > 10
    assert windows(env, 20, seed=4) == drawn
    assert windows(env, 20, seed=5) != drawn
    assert windows(env, 20, seed=None) != drawn


def test_environments_that_never_got_a_seed_differ():
    assert windows(ClusterEnv(**WORLD), 8, None) != windows(ClusterEnv(**WORLD), 8, None)
    first, second = ClusterVectorEnv(8, **WORLD), ClusterVectorEnv(8, **WORLD)
    first.reset()
    second.reset()
    assert (first.batch.states["seed"] != second.batch.states["seed"]).any()
    assert len(set(first.batch.states["seed"].tolist())) == 8


def test_windows_lie_in_their_split_and_splits_do_not_overlap():
    seen = {}
    for split in ("train", "validation", "test"):
        lo, hi = TRACE.split_range(split)
        starts = EnvSettings(split=split, **WORLD).windows
        assert (starts.min(), starts.max() + 10) == (lo, hi)
        env = ClusterEnv(split=split, **WORLD)
        drawn = windows(env, 300, seed=0)
        assert set(drawn) <= set(starts.tolist())
        assert len(set(drawn)) > len(starts) / 3
        seen[split] = {job for start in drawn for job in range(start, start + 10)}
    assert not seen["train"] & seen["validation"]
    assert not seen["train"] & seen["test"]
    assert not seen["validation"] & seen["test"]


def test_a_window_can_be_chosen():
    env = ClusterEnv(**WORLD)
    env.reset(seed=0, options={"window": 123})
    s = env.batch.states[0]
    assert (s.window, s.job_lo, s.job_hi) == (123, 123, 133)
    assert s.origin == TRACE.jobs["arrival_s"][123]
    assert (env.batch.jobs["num_gpus"][123:133] == TRACE.jobs["num_gpus"][123:133]).all()
    play(env, choose_random)
    shown = env.batch.episode_jobs(0)
    assert shown["job_id"].tolist() == TRACE.jobs["job_id"][123:133].tolist()
    assert shown["arrival_s"][0] == 0.0


def test_a_trace_of_at_most_one_window_is_one_window_in_every_split():
    trace = Trace("short", TRACE.jobs.iloc[:10])
    for split in ("train", "validation", "test", "all"):
        assert EnvSettings(**{**WORLD, "trace": trace}, split=split).windows.tolist() == [0]


# --- rows of a batch ---


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_row_is_the_environment_with_its_seed(mode):
    """Observation, reward, mask and ends of every row, over several episodes each."""
    rows, rng = 5, np.random.default_rng(0)
    envs = ClusterVectorEnv(rows, autoreset_mode=mode, flat=True, **WORLD)
    singles = [ClusterEnv(flat=True, **WORLD) for _ in range(rows)]
    observation, info = envs.reset(seed=100)
    for b, env in enumerate(singles):
        assert env.reset(seed=100 + b)[0].tobytes() == observation[b].tobytes()
    over, ends = np.zeros(rows, bool), 0
    for _ in range(400):
        if mode == AutoresetMode.DISABLED and over.any():
            observation, info = envs.reset(options={"reset_mask": over})
            for b in np.flatnonzero(over):
                assert singles[b].reset()[0].tobytes() == observation[b].tobytes()
            over[:] = False
        actions = random_actions(rng, info["action_mask"])
        observation, reward, terminated, truncated, info = envs.step(actions)
        for b, env in enumerate(singles):
            # NEXT_STEP: the step after the end was the reset.
            expected = (env.reset()[0], 0.0, False, False) if over[b] else env.step(actions[b])[:4]
            if mode == AutoresetMode.SAME_STEP and any(expected[2:]):
                assert info["final_obs"][b].tobytes() == expected[0].tobytes()
                expected = (env.reset()[0], *expected[1:])
            assert observation[b].tobytes() == expected[0].tobytes()
            assert (reward[b], terminated[b], truncated[b]) == expected[1:]
            assert (info["action_mask"][b] == env.action_masks()).all()
        over = (terminated | truncated) & (mode != AutoresetMode.SAME_STEP)
        ends += int((terminated | truncated).sum())
    assert ends > 3 * rows


def outputs(rows: int, autoreset: int, threads: int, steps: int, chunk: slice) -> bytes:
    """What the rows of ``chunk`` of a batch of ``rows`` say over some steps; each row draws its own actions."""
    batch = Batch(EnvSettings(**WORLD), rows, autoreset)
    batch.set_threads(threads)
    batch.reset(np.arange(rows))
    players = [Random(b) for b in range(rows)]
    said = []
    for _ in range(steps):
        actions = [rng.choice(np.flatnonzero(batch.mask[b])) for b, rng in enumerate(players)]
        batch.step(np.array(actions, np.int64))
        arrays = (batch.obs, batch.reward, batch.mask, batch.terminated, batch.truncated, batch.final_obs)
        said.append(b"".join(array[chunk].tobytes() for array in arrays))
    return b"".join(said) + batch.states[chunk].tobytes()


def test_the_size_of_the_batch_does_not_matter():
    assert outputs(1, SAME_STEP, 1, 150, slice(0, 1)) == outputs(9, SAME_STEP, 1, 150, slice(0, 1))
    assert outputs(4, NEXT_STEP, 1, 150, slice(0, 4)) == outputs(9, NEXT_STEP, 1, 150, slice(0, 4))


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="needs two cores")
@pytest.mark.parametrize("autoreset", [SAME_STEP, NEXT_STEP, MANUAL])
def test_the_number_of_threads_does_not_matter(autoreset):
    steps = 150 if autoreset != MANUAL else 20
    one, two = (outputs(16, autoreset, threads, steps, slice(None)) for threads in (1, 2))
    numba.set_num_threads(1)
    assert one == two


# --- snapshots ---


@pytest.mark.parametrize("seed", range(4))
def test_a_snapshot_replays_identically(seed):
    env, rng = ClusterEnv(flat=True, **WORLD), Random(seed)
    env.reset(seed=seed)
    for _ in range(rng.randrange(40)):
        env.step(np.int64(choose_random(env.batch, rng)))
    snapshot, before, rewards = env.snapshot(), state_bytes(env.batch), []
    for i in (1, 2, 1):
        rewards.append(play(env, choose_random, seed=i).rewards)
        observation, info = env.restore(snapshot)
        assert state_bytes(env.batch) == before
        assert observation.tobytes() == env.batch.obs[0].tobytes()
        assert (info["action_mask"] == env.action_masks()).all()
    assert rewards[0] == rewards[2] != rewards[1]


def test_a_snapshot_moves_to_another_environment():
    env, other = ClusterEnv(flat=True, **WORLD), ClusterEnv(flat=True, **WORLD)
    env.reset(seed=1)
    for _ in range(30):
        env.step(np.int64(choose_random(env.batch, Random(1))))
    other.reset(seed=9)
    other.restore(env.snapshot())
    assert play(env, choose_random).rewards == play(other, choose_random).rewards
