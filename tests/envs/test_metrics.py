"""Metrics of a hand-worked run, empty groups, and the identity of the counts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from envs.metrics import (
    JOB_COLUMNS,
    METRICS,
    STATUSES,
    compute_metrics,
    finish_time_fairness,
    mean_in_system,
)
from envs.order import Key, ListOrder
from envs.simulate import simulate
from envs.spec import ClusterSpec, SimConfig
from envs.timeline import make_timeline
from traces.load import load_trace

CLUSTER = ClusterSpec.parse("1x2")


def job_table(**columns):
    """Rows of JOB_COLUMNS; columns that are not given are empty or 0."""
    n = len(next(iter(columns.values())))
    empty = {"str": "", "int64": 0, "float64": np.nan, "bool": False}
    table = {c.name: pd.Series([empty[c.dtype]] * n, dtype=c.dtype) for c in JOB_COLUMNS}
    table["kind"] = pd.Series(["training"] * n)
    table["share_milli"] = pd.Series([1000] * n)
    jobs = pd.DataFrame({**table, **columns})
    return jobs.assign(jct_s=jobs["finish_s"] - jobs["arrival_s"], isolated_s=jobs["duration_s"])


def metrics(jobs, decision_s=(), pod_gpu_s=None, gpus_taken=0):
    return compute_metrics(
        SimpleNamespace(
            jobs=jobs,
            cluster=CLUSTER,
            config=SimConfig(),
            decision_s=np.array(decision_s, dtype=float),
            pod_gpu_s=pod_gpu_s or {},
            gpus_taken=gpus_taken,
        )
    )


# Two GPUs. Job 0 holds both 0-10; job 1 (one GPU, 10 s) runs 10-22 with a pause of 2 s; job 2 is too wide.
HAND = job_table(
    status=["completed", "completed", "rejected"],
    num_gpus=[2, 1, 4],
    arrival_s=[0.0, 2.0, 3.0],
    finish_s=[10.0, 22.0, np.nan],
    duration_s=[10.0, 10.0, 5.0],
    queueing_delay_s=[0.0, 8.0, np.nan],
    service_gpu_s=[20.0, 12.0, 0.0],
    paused_gpu_s=[0.0, 2.0, 0.0],
    num_preemptions=[0, 1, 0],
)

EXPECTED = {
    "mean_jct_s": 15.0,  # (10 + 20) / 2
    "median_jct_s": 15.0,
    "p90_jct_s": 19.0,  # 10 + 0.9 x 10
    "p99_jct_s": 19.9,
    "mean_queueing_delay_s": 4.0,
    "makespan_s": 22.0,
    "mean_slowdown": 1.5,  # (1 + 2) / 2
    "p99_slowdown": 1.99,
    # In the system: 1 during 0-2, 2 during 2-10, 1 during 10-22. Job 0: M = (2 + 16) / 10 = 1.8, isolated
    # 10 x max(1, 2 x 1.8 / 2) = 18, rho 10/18. Job 1: M = (16 + 12) / 20 = 1.4, 10 x max(1, 0.7) = 10, rho 2.
    "finish_time_fairness": (10 / 18 + 2) / 2,
    "p99_finish_time_fairness": 10 / 18 + 0.99 * (2 - 10 / 18),
    "utilisation_allocated": 32 / 44,
    "utilisation_useful": 30 / 44,
    "num_rescales": 0,
    "num_preemptions": 1,
    "paused_gpu_s": 2.0,
    "decision_time_ms": 2.0,
    "num_completed": 2,
    "num_failed": 0,
    "num_rejected": 1,
    "num_unfinished": 0,
    "num_submitted": 3,
}
# Three tasks of 5 s: two cold ones, with a start-up of 6 s and, after a wait of 5 s, again; one warm.
TASKS = job_table(
    status=["completed"] * 3,
    num_gpus=[1, 1, 1],
    arrival_s=[0.0, 1.0, 2.0],
    finish_s=[11.0, 17.0, 7.0],
    duration_s=[5.0, 5.0, 5.0],
    queueing_delay_s=[0.0, 5.0, 0.0],
    paused_gpu_s=[6.0, 6.0, 0.0],
    warm=[False, False, True],
).assign(kind="inference")
PODS = {"start": 12.0, "running": 15.0, "protect": 40.0, "sleep": 3.0}
EXPECTED_OF_TASKS = {
    "mean_latency_s": 32 / 3,  # (11 + 16 + 5) / 3
    "median_latency_s": 11.0,
    "p95_latency_s": 15.5,  # 11 + 0.9 x 5
    "p99_latency_s": 15.9,
    "slo_violations": 1 / 3,  # 11 s is more than 10 s, 6 s is not
    "warm_share": 1 / 3,
    "pod_start_gpu_s": 12.0,
    "pod_running_gpu_s": 15.0,
    "pod_protect_gpu_s": 40.0,
    "pod_sleep_gpu_s": 3.0,
    "gpus_taken": 2,
}
NO_TASKS = dict.fromkeys(EXPECTED_OF_TASKS, np.nan)
LACKS = {"mean_residual": 0.2, "max_residual": 0.3}  # of jobs with layers that completed
STRAGGLING = ("straggler_loss", "straggling_share")  # nothing straggles here
NO_LACKS = dict.fromkeys([*LACKS, *STRAGGLING], np.nan)


def test_hand_worked_run():
    assert metrics(HAND, decision_s=[0.001, 0.003]) == pytest.approx(EXPECTED | NO_TASKS | NO_LACKS, nan_ok=True)
    assert [*EXPECTED, *NO_TASKS, *NO_LACKS] == [metric.name for metric in METRICS]


def test_inference_is_not_averaged_with_training():
    both = pd.concat([HAND, TASKS], ignore_index=True)
    found = metrics(both, decision_s=[0.002], pod_gpu_s=PODS, gpus_taken=2)
    assert found == pytest.approx(EXPECTED | EXPECTED_OF_TASKS | NO_LACKS, nan_ok=True)


def test_what_layers_lack_is_of_completed_jobs_that_have_them():
    jobs = job_table(
        status=["completed", "completed", "completed", "failed"],
        num_gpus=[1] * 4,
        arrival_s=[0.0] * 4,
        finish_s=[10.0, 10.0, 10.0, np.nan],
        duration_s=[10.0] * 4,
        freezing=["middle", "middle", "", "middle"],
        residual=[0.1, 0.3, 0.0, 0.9],
    )
    found = metrics(jobs)
    assert {name: found[name] for name in LACKS} == pytest.approx(LACKS)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "jobs", [HAND.head(0), HAND.tail(1), HAND.assign(kind="inference")], ids=["0", "rejected", "inference"]
)
def test_empty_groups_are_nan_and_never_a_crash(jobs):
    found = metrics(jobs[jobs["kind"] == "training"])
    assert found == pytest.approx(metrics(jobs) | {name: found[name] for name in NO_TASKS}, nan_ok=True)
    for metric in METRICS:
        counted = metric.name.startswith("num_") or metric.name == "paused_gpu_s"
        assert np.isnan(found[metric.name]) != counted


def test_durations_of_zero_have_no_slowdown_but_a_jct():
    jobs = HAND.head(2).assign(duration_s=[0.0, 10.0], isolated_s=[0.0, 10.0])
    found = metrics(jobs)
    assert found["mean_slowdown"] == 2
    assert found["finish_time_fairness"] == 2
    assert found["mean_jct_s"] == 15


def test_counts_add_up_and_an_unknown_status_is_refused():
    jobs = job_table(
        status=list(STATUSES), arrival_s=[0.0] * 4, finish_s=[1.0, np.nan, np.nan, np.nan], num_gpus=[1] * 4
    )
    found = metrics(jobs)
    assert sum(found[f"num_{status}"] for status in STATUSES) == found["num_submitted"] == 4
    with pytest.raises(ValueError, match="status 'lost'"):
        metrics(jobs.assign(status="lost"))


def test_a_negative_jct_is_refused():
    jobs = HAND.assign(job_id=["a", "b", "c"], jct_s=[10.0, -1.0, np.nan])
    with pytest.raises(ValueError, match="job b finished before it arrived"):
        metrics(jobs)


def test_shares_of_a_gpu_count_as_shares():
    # rho of a job with half a GPU: M = 1, 0.5 x 1 / 2 < 1.
    jobs = HAND.head(1).assign(num_gpus=1, share_milli=500)
    assert metrics(jobs)["utilisation_useful"] == pytest.approx(0.5 * 10 / 20)


def test_mean_in_system_by_integration_of_many_lives():
    generator = np.random.default_rng(0)
    arrival = np.sort(generator.integers(0, 50, 40)).astype(float)
    finish = arrival + generator.integers(0, 30, 40)
    found = mean_in_system(arrival, finish)
    for a, f, value in zip(arrival, finish, found, strict=True):
        middles = np.arange(a, f) + 0.5  # times are whole seconds, so the count is constant in between
        expected = np.mean([np.sum((arrival <= t) & (finish > t)) for t in middles]) if f > a else 1.0
        assert value == pytest.approx(expected)


def test_equal_jobs_that_share_equally_have_rho_one():
    """Eight 1-GPU jobs on two GPUs in perfect time slices: all end at 4 x their duration."""
    jobs = job_table(
        status=["completed"] * 8, num_gpus=[1] * 8, arrival_s=[0.0] * 8, finish_s=[40.0] * 8, duration_s=[10.0] * 8
    )
    assert finish_time_fairness(jobs, num_gpus=2) == pytest.approx(np.ones(8))


def test_utilisation_agrees_with_the_timeline():
    """GPU-time from the job table and from who held which GPU when are the same number."""
    srtf = SimpleNamespace(name="srtf", batch="fixed", order=lambda: ListOrder(Key.REMAINING, preemptive=True))
    trace = load_trace("synthetic-philly?jobs=80,seed=4,mean_gap_s=30")
    result = simulate(trace, ClusterSpec.parse("2x8"), srtf, SimConfig(interval_s=0.0), record=True)
    line = make_timeline(result.jobs, result.intervals)
    busy = float((line["busy_gpus"][:-1] * np.diff(line["time_s"])).sum())
    waiting = float((line["queued"][:-1] * np.diff(line["time_s"])).sum())
    found = result.metrics()
    assert busy / (16 * found["makespan_s"]) == pytest.approx(found["utilisation_allocated"], rel=1e-9)
    assert waiting == pytest.approx(result.jobs["queueing_delay_s"].sum(), rel=1e-9)
    assert line["busy_gpus"].max() <= 16
