"""The environment and simulate() are the same simulator: a greedy player equals the compiled list scheduler."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.actions import COMMIT, NUM_EDITS, Edit
from envs.env import ClusterEnv
from envs.features import FEATURES
from envs.order import Key, ListOrder
from envs.rollout import Policy, rollout
from envs.simulate import RunResult, simulate, simulate_windows
from envs.spec import ClusterSpec, SimConfig
from tests.envs.core_support import Listed, hand
from tests.envs.env_support import EVENTS, MIXED, TOO_WIDE, choose_greedy, mixed_trace, play, random_env
from traces.trace import Trace, make_trace

SHORTEST = Listed(ListOrder(Key.DURATION, backfill=True))
COLUMNS = [f.name for f in FEATURES if f.block == "jobs"]
CONFIGS = [
    EVENTS,
    SimConfig(interval_s=45.0),
    SimConfig(interval_s=60.0, on_event=True, placement="spread"),
    SimConfig(interval_s=0.0, placement="count", durations="unknown"),
    SimConfig(interval_s=0.0, placement="random", durations="estimate"),
]


class Shortest:
    """Start the waiting job with the least estimated remaining time that fits, as far as the observation tells."""

    name = "shortest"

    def __init__(self, num_slots: int = 64, edit_budget: int = 64) -> None:
        self.num_slots, self.edit_budget = num_slots, edit_budget

    def act(self, obs, mask, layout):
        starts = mask[:, 1 + Edit.MORE :: NUM_EDITS][:, : self.num_slots]  # edits of services come behind
        left = np.where(starts, layout.split(obs)["jobs"][..., COLUMNS.index("remaining_short")], np.inf)
        return np.where(starts.any(axis=1), 1 + NUM_EDITS * left.argmin(axis=1) + Edit.MORE, COMMIT)


class Idle(Shortest):
    """Never start anything."""

    name = "idle"

    def act(self, obs, mask, layout):
        return np.full(len(obs), COMMIT)


def no_ties(trace: Trace) -> Trace:
    """The trace with durations that differ, also in float32: then an order by duration is the same to all."""
    rng = np.random.default_rng(0)
    return make_trace("no-ties", trace.jobs.assign(duration_s=3.0 * (1 + rng.permutation(len(trace)))))


# --- through the mask ---


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.interval_s:g}-{c.placement}-{c.durations}")
def test_greedy_episodes_are_the_list_scheduler_on_every_window(config):
    trace, cluster = mixed_trace(400, seed=3), ClusterSpec.parse(MIXED)
    starts = np.random.default_rng(1).integers(0, 340, 6)
    expected = simulate_windows(trace, cluster, SHORTEST.rule, config, starts, 60)
    env = ClusterEnv(trace=trace, cluster=cluster, sim=config, window_jobs=60, horizon_s=1e8)
    for row, start in zip(expected, starts, strict=True):
        env.reset(seed=0, options={"window": int(start)})
        assert play(env, choose_greedy).terminated
        assert env.batch.episode_results(0)[1].tobytes() == row.tobytes()


@given(seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_greedy_episodes_are_the_list_scheduler_on_random_cases(seed):
    env = random_env(seed, num_slots=40, horizon_s=1e8)
    settings = env.settings
    result = simulate_windows(settings.source, settings.cluster, SHORTEST.rule, settings.sim, [0], settings.length, 0)
    env.reset(seed=0)
    assert play(env, choose_greedy).terminated
    assert env.batch.episode_results(0)[1].tobytes() == result[0].tobytes()


# --- through rollout() ---


def both(trace: Trace, cluster: str, config: SimConfig) -> tuple[RunResult, RunResult]:
    spec = ClusterSpec.parse(cluster)
    return rollout(trace, spec, config, Shortest(), record=True), simulate(trace, spec, SHORTEST, config, record=True)


def in_order(intervals: pd.DataFrame) -> pd.DataFrame:
    return intervals.sort_values(["gpu", "start_s", "job"], ignore_index=True)


@pytest.mark.parametrize("config", [EVENTS, SimConfig(interval_s=30.0), SimConfig(interval_s=0.0, placement="spread")])
def test_a_rollout_is_a_run_of_the_simulator(config):
    trace = no_ties(mixed_trace(60, seed=5).window(0, 60))
    learned, listed = both(trace, MIXED, config)
    pd.testing.assert_frame_equal(learned.jobs, listed.jobs, check_exact=True)
    pd.testing.assert_frame_equal(in_order(learned.intervals), in_order(listed.intervals), check_exact=True)
    assert (learned.num_events, learned.num_passes) == (listed.num_events, listed.num_passes)
    assert (learned.jobs["status"] == "rejected").sum() == (trace.jobs["num_gpus"] == TOO_WIDE).sum() > 0
    ours, theirs = learned.metrics(), listed.metrics()
    for metric in ours.keys() - {"decision_time_ms"}:
        assert ours[metric] == pytest.approx(theirs[metric], rel=0, abs=0, nan_ok=True), metric


def test_intervals_are_counted_on_the_clock_of_the_trace():
    learned, listed = both(hand([(1, 50, 10)]), "1x1", SimConfig(interval_s=60.0))
    assert learned.jobs["first_start_s"].tolist() == listed.jobs["first_start_s"].tolist() == [60]


def test_recorded_intervals_are_consistent_with_the_jobs():
    trace = mixed_trace(200, seed=6)
    result = rollout(trace, ClusterSpec.parse(MIXED), EVENTS, Shortest(num_slots=16), record=True)
    jobs, intervals = result.jobs, result.intervals
    assert set(jobs["status"]) == {"completed", "rejected"}
    share = jobs["share_milli"].to_numpy()[intervals["job"]] / 1000
    held = (intervals["end_s"] - intervals["start_s"]) * share
    service = held.groupby(intervals["job"]).sum().reindex(range(len(jobs)), fill_value=0.0)
    np.testing.assert_allclose(service, jobs["service_gpu_s"].fillna(0.0), rtol=1e-9, atol=1e-6)
    spans = intervals.groupby("job").agg(start=("start_s", "min"), end=("end_s", "max"))
    started = jobs.loc[spans.index]
    np.testing.assert_allclose(spans["start"], started["first_start_s"], rtol=1e-12)
    np.testing.assert_allclose(spans["end"], started["finish_s"], rtol=1e-12)
    for _, on_gpu in in_order(intervals[share == 1]).groupby("gpu"):
        assert (on_gpu["start_s"].to_numpy()[1:] >= on_gpu["end_s"].to_numpy()[:-1] - 1e-9).all()
    edges = pd.concat(
        [
            pd.DataFrame({"gpu": intervals["gpu"], "t": intervals["start_s"], "change": share, "order": 1}),
            pd.DataFrame({"gpu": intervals["gpu"], "t": intervals["end_s"], "change": -share, "order": 0}),
        ]
    ).sort_values(["gpu", "t", "order"])
    assert edges.groupby("gpu")["change"].cumsum().max() <= 1 + 1e-9


def test_a_full_log_of_intervals_is_emptied_on_the_way():
    """8,300 gangs of 8: 66,400 intervals, more than the log holds; one after the other, 10 s each."""
    count = 8300
    trace = hand([(8, 10.0 * i, 10.0) for i in range(count)])
    result = rollout(trace, ClusterSpec.parse("1x8"), EVENTS, Shortest(num_slots=8), record=True)
    assert result.jobs["jct_s"].sum() == pytest.approx(10.0 * count, rel=1e-12)
    assert len(result.intervals) == 8 * count
    assert (result.intervals["end_s"] - result.intervals["start_s"]).sum() == pytest.approx(80.0 * count, rel=1e-12)


def test_times_are_those_of_the_trace():
    trace = hand([(1, 100, 10), (1, 105, 20)])
    result = rollout(trace, ClusterSpec.parse("1x1"), EVENTS, Shortest(), record=True)
    assert result.jobs["first_start_s"].tolist() == result.intervals["start_s"].tolist() == [100, 110]
    assert result.jobs["finish_s"].tolist() == result.intervals["end_s"].tolist() == [110, 130]
    assert result.jobs["jct_s"].tolist() == [10, 25]


def test_a_backlog_is_first_come_first_served():
    """Two slots on one GPU: the short job 3 is seen only when job 0 has left, and then runs before job 1."""
    trace = hand([(1, 0, 10), (1, 0, 50), (1, 0, 40), (1, 0, 1)])
    result = rollout(trace, ClusterSpec.parse("1x1"), EVENTS, Shortest(num_slots=2))
    # 0 and 1 are visible: 0 runs. Then 1 and 2: 2 runs. Then 1 and 3: 3 runs.
    assert result.jobs["finish_s"].tolist() == [10, 101, 50, 51]


@pytest.mark.parametrize("edit_budget", [1, 3])
def test_a_small_budget_only_splits_passes(edit_budget):
    """Starts beyond the budget wait for the next event."""
    trace = hand([(1, 0, 10)] * 4 + [(1, 3, 10)])
    result = rollout(trace, ClusterSpec.parse("1x8"), EVENTS, Shortest(edit_budget=edit_budget))
    starts = sorted(result.jobs["first_start_s"])
    assert starts == ([0, 3, 10, 13, 20] if edit_budget == 1 else [0, 0, 0, 3, 3])


def test_one_decision_time_for_every_pass_of_the_agent():
    trace = hand([(1, 0, 10), (1, 0, 30), (1, 20, 10)])  # the completion at 10 s is a pass without a waiting job
    result = rollout(trace, ClusterSpec.parse("1x2"), EVENTS, Shortest())
    assert len(result.decision_s) == 2
    assert (result.decision_s >= 0).all()
    assert result.decision_s.sum() <= result.elapsed_s
    assert (result.scheduler, result.seed) == ("shortest", 0)


def test_jobs_that_never_ran_are_unfinished():
    result = rollout(hand([(1, 0, 10), (3, 1, 10)]), ClusterSpec.parse("1x2"), EVENTS, Idle())
    assert result.jobs["status"].tolist() == ["unfinished", "rejected"]
    assert result.jobs["finish_s"].isna().all()
    metrics = result.metrics()
    assert (metrics["num_unfinished"], metrics["num_rejected"], metrics["num_completed"]) == (1, 1, 0)


def test_progress_is_told():
    told = []
    trace = hand([(1, 10.0 * i, 10.0) for i in range(1500)])
    rollout(trace, ClusterSpec.parse("1x1"), EVENTS, Shortest(), progress=lambda done, of: told.append((done, of)))
    assert told == [(500, 1500), (1000, 1500), (1500, 1500)]  # two decisions a job


def test_what_counts_as_a_policy():
    assert isinstance(Shortest(), Policy)
    assert not isinstance(SHORTEST, Policy)
