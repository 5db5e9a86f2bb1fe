"""The compiled simulator under ``compat deepboot`` against runs of DeepBoot's: job by job where it is deterministic."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from baselines import BASELINES
from envs.simulate import RunResult, simulate
from envs.spec import ClusterSpec, SimConfig
from traces.load import load_trace
from traces.measured import read_profiles
from traces.profiles import ModelProfile
from traces.trace import Trace

AFE = {"rescale_cost": "afe"}
LENT = {"reclaim": "lyra"}


@cache
def inputs(shared: Path, name: str) -> tuple[Trace, dict[str, ModelProfile]]:
    return load_trace(shared / f"data/traces/deepboot/{name}.csv"), read_profiles(shared / "data/profiles/deepboot")


def play(shared: Path, trace: str, policy: str, cluster: str = "16x4", **settings: Any) -> RunResult:
    placement = "emptiest" if policy in ("tiresias", "optimus") else "consolidated"
    config = SimConfig(compat="deepboot", **{"rescale_cost": "restart", "placement": placement} | settings)
    jobs, profiles = inputs(shared, trace)
    return simulate(jobs, ClusterSpec.parse(cluster), BASELINES[policy](), config, profiles=profiles)


def read(shared: Path, name: str) -> dict[str, Any]:
    return json.loads((shared / f"reference/deepboot/{name}.json").read_text())


def rows_of(result: RunResult, kind: str) -> pd.DataFrame:
    return result.jobs[result.jobs["kind"] == kind].set_index("job_id")


def restarts(result: RunResult) -> dict[str, int]:
    """Times that each training job was placed after its first start."""
    jobs = rows_of(result, "training")
    return (jobs["num_rescales"] + jobs["num_preemptions"]).to_dict()


def apart(result: RunResult, theirs: dict[str, Any], kind: str) -> dict[str, tuple[float, float]]:
    """Jobs of a kind whose jct is not theirs to the second: ours and theirs [s]."""
    wanted = {job["name"]: job["jct"] for job in theirs["jobs"] if job["inference"] == (kind == "inference")}
    ours = rows_of(result, kind)["jct_s"].to_dict()
    assert ours.keys() == wanted.keys()
    return {job: (ours[job], wanted[job]) for job in wanted if not abs(ours[job] - wanted[job]) < 0.5}


def assert_tasks_are_equal(result: RunResult, theirs: dict[str, Any]) -> None:
    """Each task has theirs' latency and finds a warm pod where theirs does."""
    warm = {job["name"]: job["use_cache"] for job in theirs["jobs"] if job["inference"]}
    assert sum(warm.values()) > 1000
    assert apart(result, theirs, "inference") == {}
    assert rows_of(result, "inference")["warm"].astype(bool).to_dict() == warm


@pytest.mark.parametrize(
    ("policy", "cluster"),
    [("tiresias", "8x4"), ("tiresias", "16x4"), ("optimus", "8x4"), ("optimus", "16x4"), ("afs", "16x4")],
)
def test_training_alone_is_equal_to_the_second(shared: Path, policy: str, cluster: str) -> None:
    theirs = read(shared, f"{policy}_pure_train_AISS1_AFE0_n{cluster.partition('x')[0]}")
    assert len(theirs["jobs"]) == 160
    assert apart(play(shared, "pure_train", policy, cluster), theirs, "training") == {}


@pytest.mark.parametrize(("policy", "settings"), [("tiresias", {}), ("afs", LENT)])
def test_training_beside_inference_without_warm_pods_is_equal_to_the_second(
    shared: Path, policy: str, settings: dict[str, Any]
) -> None:
    """Under afs also how often each job was placed anew: where pods stand, order and strips decide that (Q8, Q9)."""
    theirs = read(shared, f"{policy}_small_AISS0_AFE0")
    result = play(shared, "small", policy, aiss=False, **settings)
    assert (len(rows_of(result, "training")), len(rows_of(result, "inference"))) == (160, 3200)
    assert apart(result, theirs, "training") == {}
    assert apart(result, theirs, "inference") == {}
    assert result.gpus_taken == theirs["events"]["train_gpus_taken_by_infer"]
    assert restarts(result) == {job["name"]: job["num_restarts"] for job in theirs["jobs"] if not job["inference"]}


def test_jobs_of_aryl_are_equal_until_it_is_chaotic(shared: Path) -> None:
    """All 48 jobs that end in the first 60,000 s; the next ends at 76,139 s, when ties of its knapsack differ."""
    theirs = {job["name"]: job for job in read(shared, "aryl_small_AISS0_AFE0")["jobs"]}
    result = play(shared, "small", "lyra", aiss=False, **LENT)
    jobs = rows_of(result, "training")
    ended = [job for job in jobs.index if theirs[job]["completion_time"] < 60_000]
    assert len(ended) == 48
    assert [theirs[job]["jct"] for job in ended] == pytest.approx(jobs.loc[ended, "jct_s"].tolist(), abs=0.5)
    assert [theirs[job]["num_restarts"] for job in ended] == [restarts(result)[job] for job in ended]


@pytest.mark.parametrize(
    ("name", "policy", "settings"),
    [
        ("afs_small_AISS1_AFE1", "afs", AFE),
        ("aryl_small_AISS1_AFE0", "lyra", {}),
        ("aryl_small_AISS1_AFE1", "lyra", AFE),
    ],
)
def test_tasks_beside_warm_pods_on_loaned_nodes_are_equal_to_the_second(
    shared: Path, name: str, policy: str, settings: dict[str, Any]
) -> None:
    """Training need not be equal, but what it leaves to inference is."""
    theirs, result = read(shared, name), play(shared, "small", policy, **LENT, **settings)
    assert_tasks_are_equal(result, theirs)
    assert result.gpus_taken == theirs["events"]["train_gpus_taken_by_infer"]


@pytest.mark.parametrize(("name", "settings"), [("AISS1_AFE0", {}), ("AISS1_AFE1", AFE)])
def test_training_beside_warm_pods_is_equal_to_the_second(shared: Path, name: str, settings: dict[str, Any]) -> None:
    theirs, result = read(shared, f"tiresias_small_{name}"), play(shared, "small", "tiresias", **settings)
    assert apart(result, theirs, "training") == {}
    assert_tasks_are_equal(result, theirs)
    assert result.gpus_taken == theirs["events"]["train_gpus_taken_by_infer"]


def test_tasks_that_begin_in_a_pass_are_equal_to_the_second(shared: Path) -> None:
    theirs, result = read(shared, "optimus_small_AISS0_AFE0"), play(shared, "small", "optimus", **LENT, aiss=False)
    in_pass = [job for job in theirs["jobs"] if job["inference"] and job["submission_time"] % 60 == 0]
    assert len(in_pass) > 50
    assert apart(result, theirs, "inference") == {}
    assert len(apart(result, theirs, "training")) < 10


@pytest.mark.parametrize(
    ("name", "policy", "settings", "tolerance"),
    [
        ("optimus_small_AISS0_AFE0", "optimus", LENT | {"aiss": False}, 0.02),
        ("optimus_small_AISS1_AFE1", "optimus", LENT | AFE, 0.02),
        ("afs_small_AISS1_AFE1", "afs", LENT | AFE, 0.02),
        ("aryl_small_AISS0_AFE0", "lyra", LENT | {"aiss": False}, 0.05),
        ("aryl_small_AISS1_AFE0", "lyra", LENT, 0.05),
        ("aryl_small_AISS1_AFE1", "lyra", LENT | AFE, 0.05),
        ("dp_small_AISS1_AFE0", "deepboot", {}, 0.06),
        ("dp_small_AISS1_AFE1", "deepboot", AFE, 0.06),
        ("dp_small_AISS1_AFE0_ARYL1", "deepboot", LENT, 0.06),
        ("dp_small_AISS1_AFE1_P8", "deepboot", AFE | {"protect_times": 8.0}, 0.06),
    ],
)
def test_training_beside_inference_is_near(
    shared: Path, name: str, policy: str, settings: dict[str, Any], tolerance: float
) -> None:
    theirs, result = read(shared, name), play(shared, "small", policy, **settings)
    jobs, tasks = rows_of(result, "training"), rows_of(result, "inference")
    assert jobs["jct_s"].mean() == pytest.approx(theirs["jct_train"]["mean"], rel=tolerance)
    assert tasks["jct_s"].mean() == pytest.approx(theirs["jct_infer"]["mean"], rel=0.03)
    assert tasks["warm"].mean() == pytest.approx(theirs["infer_cache_hits"] / len(tasks), abs=0.03)
    assert result.gpus_taken == pytest.approx(theirs["events"]["train_gpus_taken_by_infer"], rel=0.1)
