"""Elastic jobs against the simulator that came with Pollux: job by job where that is deterministic, else by means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from baselines import BASELINES
from envs.simulate import RunResult, simulate
from envs.spec import ClusterSpec, SimConfig
from traces.load import load_trace
from traces.measured import read_profiles
from traces.profiles import ModelProfile

LOADS = ("0.5", "1.0", "1.5", "2.0")
WORKLOADS = range(1, 9)
MEASURED = (("1.0", 6, "w6"), ("0.5", 5, "w05_5"))  # load, workload, name of our runs of the original


@pytest.fixture(autouse=True)
def few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start with 64 slots, so that workloads of different lengths share the compiled code."""
    monkeypatch.setattr("envs.simulate.FIRST_SLOTS", 64)


@cache
def profiles_of(folder: Path) -> Mapping[str, ModelProfile]:
    return read_profiles(folder)


@cache
def published(shared: Path) -> dict[str, Any]:
    return json.loads((shared / "reference/pollux_sia/osdi21_published_results.json").read_text())


def play(shared: Path, policy: str, load: str, workload: int, record: bool = False, **sim: float) -> RunResult:
    folder = "workloads" if load == "1.0" else f"workloads-{load}"
    trace = load_trace(shared / f"data/traces/pollux_osdi21/{folder}/workload-{workload}.csv")
    profiles = profiles_of(shared / "data/profiles/pollux_osdi21")
    config = SimConfig(compat="pollux", **sim)
    return simulate(trace, ClusterSpec.parse("16x4"), BASELINES[policy](), config, record=record, profiles=profiles)


def by_job(result: RunResult, values: Mapping[str, float | None]) -> np.ndarray:
    """(jobs,) float64: values by job in the order of the trace; None, for a job that never restarted, is 0."""
    return np.array([values[job] or 0 for job in result.jobs["job_id"]], np.float64)


def theirs(shared: Path, policy: str, load: str, workload: int) -> Mapping[str, float]:
    return published(shared)[f"results-jobload/{policy}-{load}"]["jcts"][f"workload-{workload}"]


def mean_jct(shared: Path, policy: str, load: str, workload: int, **sim: float) -> float:
    return play(shared, policy, load, workload, **sim).metrics()["mean_jct_s"]


@pytest.mark.parametrize("policy", ["tiresias", "optimus"])
@pytest.mark.parametrize(("load", "workload"), [("1.0", 6), ("0.5", 5)])
def test_jct_of_every_job(shared: Path, policy: str, load: str, workload: int) -> None:
    """The issue asks for 0.3 % in the mean and 95 % of jobs within 1 %; it is every job to the second."""
    result = play(shared, policy, load, workload)
    wanted = by_job(result, theirs(shared, policy, load, workload))
    jct = result.jobs["jct_s"].to_numpy()
    assert jct.mean() == pytest.approx(wanted.mean(), rel=0.003)
    assert (np.abs(jct - wanted) <= 0.01 * wanted).mean() >= 0.95
    assert np.abs(jct - wanted).max() < 0.5


@pytest.mark.parametrize("policy", ["tiresias", "optimus"])
@pytest.mark.parametrize("load", LOADS)
def test_mean_jct_of_every_workload(shared: Path, policy: str, load: str) -> None:
    for workload in WORKLOADS:
        wanted = np.mean(list(theirs(shared, policy, load, workload).values()))
        assert mean_jct(shared, policy, load, workload) == pytest.approx(wanted, rel=0.01), workload


@pytest.mark.parametrize("policy", ["tiresias", "optimus"])
@pytest.mark.parametrize(("load", "workload", "name"), MEASURED)
def test_restarts_and_gpu_time_of_every_job(shared: Path, policy: str, load: str, workload: int, name: str) -> None:
    """A restart of theirs is a resumption or a rescale of ours; theirs hold GPUs to the end of the 60 s round."""
    run = json.loads((shared / f"reference/pollux_sia/osdi_{policy}_{name}.json").read_text())
    result = play(shared, policy, load, workload, record=True)
    jobs = result.jobs
    assert jobs["jct_s"].to_numpy() == pytest.approx(by_job(result, run["jcts"]), abs=0.5)
    restarts = jobs["num_rescales"] + jobs["num_preemptions"]
    assert restarts.tolist() == by_job(result, run["restarts_by_job"]).tolist()
    assert restarts.sum() == run["restarts_total"]
    rounds = np.ceil(result.intervals["end_s"] / 60 - 1e-6) - result.intervals["start_s"] / 60
    held: pd.Series = (60 * rounds).groupby(result.intervals["job"]).sum()
    assert held.sort_index().to_numpy() == pytest.approx(by_job(result, run["gpu_seconds_by_job"]), abs=1e-3)


def test_pollux_on_one_workload(shared: Path) -> None:
    """Its search is random: published is one run, 976.8 s."""
    wanted = np.mean(list(theirs(shared, "pollux", "0.5", 5).values()))
    assert mean_jct(shared, "pollux", "0.5", 5) == pytest.approx(wanted, rel=0.06)


def test_pollux_in_long_rounds(shared: Path) -> None:
    """Rounds of 480 s: 2684 s are published, 2668 s we measured."""
    wanted = published(shared)["results-period/pollux-8m"]["avgs"]["workload-1"]
    assert mean_jct(shared, "pollux", "1.0", 1, interval_s=480.0) == pytest.approx(wanted, rel=0.06)


@pytest.mark.slow
@pytest.mark.parametrize(("load", "tolerance"), [("0.5", 0.06), ("1.0", 0.04), ("1.5", 0.06), ("2.0", 0.06)])
def test_pollux_at_every_load(shared: Path, load: str, tolerance: float) -> None:
    """Mean over 8 workloads: 1534, 2751, 3685 and 5289 s are published."""
    wanted = published(shared)[f"results-jobload/pollux-{load}"]["mean_of_workload_means"]
    ours = np.mean([mean_jct(shared, "pollux", load, workload) for workload in WORKLOADS])
    assert ours == pytest.approx(wanted, rel=tolerance)
