"""With job edits alone, the environment with inference is simulate() under a scheduler that decides the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pandas as pd
import pytest

from envs.actions import COMMIT, NUM_EDITS, Edit
from envs.batch import Batch
from envs.env import ClusterEnv
from envs.layout import FREE, POD_STATES
from envs.metrics import JOB_COLUMNS
from envs.order import Key, ListOrder
from envs.rollout import rollout
from envs.scheduler import Decision
from envs.simulate import RunResult, inference_accounts, simulate
from envs.trials import held_by_node
from envs.view import ClusterView
from tests.envs.colocated_support import KEEP, cases, env_of, hand_env, service_action
from tests.envs.core_support import External, Listed
from tests.envs.env_support import PLAYERS, WHOLE, choose_idle, play
from tests.envs.random_inference import InferenceCase, rigid_case
from tests.envs.test_inference_properties import check_all, without_moments
from tests.envs.test_rollout import Shortest
from traces.trace import Trace

NAMES = [column.name for column in JOB_COLUMNS]
NUMBERS = [column.name for column in JOB_COLUMNS if column.dtype in ("float64", "int64")]
SHORTEST = Listed(ListOrder(Key.REMAINING, backfill=True))  # a job that inference preempted has less left

Decisions = dict[float, dict[int, tuple[int, ...]]]  # time -> job -> GPUs of each node


# --- the same decisions in both ---


def one_edit(batch: Batch, rng: Random) -> int:
    """One edit of a job whose devices are whole, mostly a start; marks are left alone. 0: none is valid."""
    s = batch.states[0]
    last = service_action(batch, 0, KEEP)
    # To stop all jobs is not for simulate(): nothing would ever happen there.
    spared = (Edit.YIELDS, Edit.LESS) if s.num_running == 1 else (Edit.YIELDS,)
    valid = [int(a) for a in np.flatnonzero(batch.mask[0][:last])[1:] if (a - 1) % NUM_EDITS not in spared]
    starts = [a for a in valid if s.gpus[(a - 1) // NUM_EDITS] == 0]
    if starts and (rng.random() < 0.7 or s.num_running == 0):
        return rng.choice(starts)
    return rng.choice(valid) if valid and s.num_passes < 60 else COMMIT


def decide(env: ClusterEnv, seed: int) -> Decisions:
    """Play an episode with at most one edit a pass; who holds what at the end of each."""
    rng, found, over = Random(seed), {}, False
    while not over:
        action = one_edit(env.batch, rng)
        if action != COMMIT:
            env.step(np.int64(action))
        s = env.batch.states[0]
        held = held_by_node(s)
        live = np.flatnonzero(s.phase[: s.num_slots] != FREE)
        found[float(s.now)] = {int(s.job_id[j]): tuple(held[j].tolist()) for j in live}
        over = any(env.step(np.int64(COMMIT))[2:4])
    return found


def follow(decisions: Decisions) -> External:
    """The scheduler that decides so; at passes that the environment skips, everybody keeps what he has."""

    def allocate(view: ClusterView) -> Decision:
        placement = view.placement().astype(np.int64)
        if view.now in decisions:
            for j in view.slots:
                placement[j] = decisions[view.now][int(view.job_id[j])]
        return Decision(placement.sum(axis=1), placement)

    return External(allocate)


def scripted_case(case: InferenceCase) -> InferenceCase:
    """No fractions, whose device a placement does not name, and no jobs of no time; all start on any nodes."""
    case = without_moments(case)
    jobs = case.trace.jobs.assign(share_milli=WHOLE)
    config = replace(case.config, batch="tuned" if case.tuned else "fixed")
    return replace(case, trace=replace(case.trace, jobs=jobs), config=config)


def check_same(env: ClusterEnv, trace: Trace, case: InferenceCase, decisions: Decisions) -> RunResult:
    """Assert that simulate() on ``trace`` brings the episode's job table and accounts; its result."""
    run = simulate(trace, case.cluster, follow(decisions), case.config, profiles=case.profiles)
    table = env.batch.episode_jobs(0)
    pd.testing.assert_frame_equal(table[NAMES].drop(columns=NUMBERS), run.jobs[NAMES].drop(columns=NUMBERS))
    pd.testing.assert_frame_equal(table[NUMBERS], run.jobs[NUMBERS], check_exact=True)
    pod_gpu_s, taken = inference_accounts(env.batch.states[0])
    assert taken == run.gpus_taken
    none = dict.fromkeys(POD_STATES[1:], 0.0)  # of a window without tasks, of a trace with some
    assert pod_gpu_s == pytest.approx(run.pod_gpu_s or none, rel=1e-12, abs=1e-9)
    return run


@pytest.mark.parametrize("reclaim", ["ats", "lyra", "static"])
def test_an_episode_is_a_run_under_the_same_decisions(reclaim: str):
    """Rows of training jobs and of tasks, pods' time and devices taken, edit by edit; windows begin anywhere."""
    seen: Counter[str] = Counter()
    for seed, case in cases(22, reclaim):
        case, rng = scripted_case(case), Random(f"window {seed}")
        length = rng.choice((2, 4, 16))
        env = env_of(case, seed, num_slots=20, window_jobs=length, horizon_s=1e6)
        start = rng.randrange(len(case.trace)) if env.settings.length == length else 0
        env.reset(seed=0, options={"window": start})
        window = case.trace.window(start, env.settings.length)
        run = check_same(env, window, case, decide(env, seed))
        task = run.jobs["kind"] == "inference"
        seen += Counter(
            {
                "tasks": int(task.sum()),
                "warm": int(run.jobs["warm"].sum()),
                "part": len(window) < len(case.trace),
                "taken": run.gpus_taken > 0,
                "rescaled": bool(run.jobs["num_rescales"][~task].any()),
            }
        )
    least = {"tasks": 20, "warm": 3, "part": 3, "rescaled": 3, "taken": 0 if reclaim == "static" else 3}
    assert {name: seen[name] for name in least if seen[name] < least[name]} == {}


# --- through rollout() ---


def apart(case: InferenceCase) -> InferenceCase:
    """The case with durations of its rigid jobs that differ, also in float32, and under a plain clock."""
    jobs = case.trace.jobs
    training = (jobs["kind"] == "training").to_numpy()
    rng = np.random.default_rng(len(jobs))
    duration = jobs["duration_s"].to_numpy().copy()
    duration[training] = 7.0 * (1 + rng.permutation(int(training.sum())))
    config = replace(case.config, durations="oracle", batch="fixed")
    trace = replace(case.trace, jobs=jobs.assign(duration_s=duration))
    return replace(case, trace=trace.window(0, len(trace)), config=config)


@pytest.mark.parametrize("reclaim", ["ats", "lyra", "static"])
def test_a_greedy_rollout_is_the_list_scheduler_and_keeps_every_rule(reclaim: str):
    """Bit for bit, fractions included; and the log of the rollout keeps the rules that every run keeps."""
    seen: Counter[str] = Counter()
    for _, case in cases(16, reclaim, rigid_case):
        case = apart(case)
        learned = rollout(case.trace, case.cluster, case.config, Shortest(), record=True)
        listed = simulate(case.trace, case.cluster, SHORTEST, case.config)
        pd.testing.assert_frame_equal(learned.jobs[NAMES], listed.jobs[NAMES], check_exact=True)
        assert learned.gpus_taken == listed.gpus_taken
        assert learned.pod_gpu_s == pytest.approx(listed.pod_gpu_s, rel=1e-12, abs=1e-9)
        assert learned.num_events == listed.num_events
        # An episode that is over when it begins, because all jobs are rejected, still ends by a commit.
        over = (listed.jobs["status"][listed.jobs["kind"] == "training"] == "rejected").all()
        assert learned.num_passes == listed.num_passes + over
        seen += check_all(learned)
    assert seen["warm"] >= 3


# --- ends ---


def test_truncation_closes_every_account():
    """A horizon at 50: one task is served, one starts up, one waits; only training jobs count as unfinished."""
    tasks = [("s", 1, 2), ("t", 48, 2), ("u", 49, 2)]
    env = hand_env([(1, 0, 900.0), (1, 0, 900.0)], tasks, "1x2", horizon_s=50.0, columns={"preemptible": [False, True]})
    env.step(np.int64(1))
    played = play(env, choose_idle)
    assert played.truncated
    s = env.batch.states[0]
    assert s.now == 50
    # s: 4 s of start, 2 of service, 30 of protection; asleep from 37 until t takes its device at 48.
    assert inference_accounts(s) == ({"start": 4 + 2, "running": 2, "protect": 30, "sleep": 11}, 0)
    table = env.batch.episode_jobs(0)
    assert table["status"].tolist() == ["unfinished", "unfinished", "completed", "unfinished", "unfinished"]
    metrics = played.info["episode_metrics"]
    assert (metrics["num_unfinished"], metrics["num_completed"], metrics["num_rejected"]) == (2, 0, 0)
    assert (metrics["mean_latency_s"], metrics["slo_violations"], metrics["warm_share"]) == (6, 0, 0)
    assert np.isnan(metrics["mean_jct_s"])


def test_no_episode_shows_warm_hits_of_another():
    """Guards clear_results(): the third episode writes over the rows of the first, where a task was warm."""
    env = hand_env(
        [(1, 0, 90.0), (1, 200, 5.0), (1, 201, 5.0), (1, 202, 5.0)],
        [("s", 1, 2), ("s", 10, 2), ("s", 300, 2)],
        "1x4",
        window_jobs=3,
        split="all",
    )
    for window in (0, 3, 3):
        env.reset(options={"window": window})
        play(env, PLAYERS["greedy"])
        if window == 0:
            assert env.batch.episode_jobs(0)["warm"].tolist() == [False, False, True, False, False]
    assert not env.batch.episode_jobs(0)["warm"].any()


# --- time that no job decides ---


def test_the_horizon_leaves_time_for_tasks() -> None:
    """A task that keeps the only GPU for longer than the jobs run must not make a truncation of every schedule."""
    env, over = hand_env([(1, 1.0, 10.0)], [("a", 0.0, 400.0)], "1x1", horizon_s=None), False
    while not over:
        starts = env.action_masks()[1 + Edit.MORE]
        _, _, terminated, truncated, info = env.step(1 + Edit.MORE if starts else COMMIT)
        over = terminated or truncated
    assert terminated
    assert (info["episode_metrics"]["num_unfinished"], info["episode_metrics"]["num_completed"]) == (0, 1)


def test_a_task_is_served_although_the_agent_idles() -> None:
    """A GPU that an edit has freed goes to the waiting task at the next time the clock shows, if no event is sooner."""
    columns = {"share_milli": [500, 1000]}  # of a GPU that jobs share inference takes nothing
    env = hand_env([(1, 0.0, 500.0), (1, 18.0, 500.0)], [("a", 15.0, 5.0)], "1x1", columns=columns)
    env.step(1 + Edit.MORE)
    while env.batch.states[0].now < 20.0:
        env.step(COMMIT)
    assert env.batch.states[0].num_queued == 1
    env.step(1 + Edit.LESS)
    env.step(COMMIT)
    assert (env.batch.states[0].now, env.batch.states[0].num_queued) == (30.0, 0)
