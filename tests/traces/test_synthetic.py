"""Synthetic Philly reaches the published statistics, for several seeds, within the bands written here."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from traces import GENERATORS, load_trace, statistics
from traces.arrivals import HOURS, WEEKDAYS, operational_time, wall_time

SEEDS = (0, 1, 2)
# name: (value aimed at, relative band)
AIMS = {
    "synthetic-philly": {
        "mean_gpus": (1.30, 0.02),
        "single_gpu_share": (0.9317, 0.001),
        "p10_duration_s": (61, 0.05),
        "p50_duration_s": (1144, 0.05),
        "p90_duration_s": (11_265, 0.12),
        "p99_duration_s": (254_758, 0.12),
        "mean_duration_s": (13_136, 0.08),
        "gpu_time_per_job": (42_811, 0.17),
    },
    "synthetic-philly-dense": {
        "mean_gpus": (1.928, 0.02),
        "p50_duration_s": (874, 0.05),
        "mean_duration_s": (18_006, 0.08),
        "gpu_time_per_job": (61_039, 0.12),
    },
}
STATUSES = {
    "synthetic-philly": {"Pass": (0.693, 0.445), "Killed": (0.135, 0.377), "Failed": (0.172, 0.178)},
    "synthetic-philly-dense": {"Pass": (0.604, 0.321), "Killed": (0.090, 0.294), "Failed": (0.305, 0.386)},
}


@pytest.fixture(
    scope="module", params=[(name, seed) for name in AIMS for seed in SEEDS], ids=lambda p: f"{p[0]}-{p[1]}"
)
def sample(request):
    name, seed = request.param
    return name, load_trace(f"{name}?seed={seed}")


def test_sizes_and_durations(sample):
    name, trace = sample
    facts = statistics(trace)
    facts["gpu_time_per_job"] = facts["gpu_time_s"] / facts["jobs"]
    for quantity, (aim, band) in AIMS[name].items():
        assert facts[quantity] == pytest.approx(aim, rel=band), quantity
    assert facts["max_duration_s"] <= 4_628_226
    # Weakly positive: large jobs are longer at the median, with much overlap.
    assert 0.05 < spearmanr(trace.jobs["num_gpus"], trace.jobs["duration_s"]).statistic < 0.25


def test_arrivals_are_bursty(sample):
    _, trace = sample
    facts = statistics(trace)
    assert facts["mean_gap_s"] == pytest.approx(100, rel=0.1)
    assert 5 < facts["median_gap_s"] < 12
    assert facts["zero_gap_share"] == pytest.approx(0.081, abs=0.015)
    assert 10 < facts["cv_gap"] < 15.5
    assert 90 < facts["dispersion"] < 220
    assert trace.jobs["arrival_s"].iloc[0] > 0


def test_statuses_by_jobs_and_by_gpu_time(sample):
    name, trace = sample
    work = trace.jobs["num_gpus"] * trace.jobs["duration_s"]
    for status, (of_jobs, of_work) in STATUSES[name].items():
        rows = trace.jobs["status"] == status
        assert rows.mean() == pytest.approx(of_jobs, abs=0.02)
        # Five hundred jobs carry nine tenths of the GPU-time, so this share scatters.
        assert work[rows].sum() / work.sum() == pytest.approx(of_work, abs=0.2)


def test_tenants_are_skewed_and_come_in_runs(sample):
    name, trace = sample
    tenants = trace.jobs["tenant"]
    shares = tenants.value_counts(normalize=True)
    if name == "synthetic-philly":
        assert shares.iloc[:4].tolist() == pytest.approx([0.501, 0.196, 0.121, 0.090], abs=0.01)
        assert shares.index[0] == "6214e9"
        multi = trace.jobs["num_gpus"] > 1
        assert multi[tenants == "6214e9"].mean() == pytest.approx(0.009, abs=0.003)
        assert multi[tenants == "ee9e8c"].mean() == pytest.approx(0.605, abs=0.05)
    same = (tenants.to_numpy()[1:] == tenants.to_numpy()[:-1]).mean()
    assert same > (shares**2).sum() + 0.1, "more often the tenant of the job before than by chance"


def test_shares_of_gpu_time_by_size(sample):
    _, trace = sample
    work = (trace.jobs["num_gpus"] * trace.jobs["duration_s"]).groupby(trace.jobs["num_gpus"]).sum()
    shares = 100 * work / work.sum()
    assert shares[[1, 2, 4, 8]].tolist() == pytest.approx([18.1, 3.2, 16.7, 48.4], abs=4)


def test_status_shares_of_gpu_time_hold_on_average():
    for name, aims in STATUSES.items():
        shares = []
        for seed in range(10):
            jobs = load_trace(f"{name}?jobs=20000,seed={seed}").jobs
            work = jobs["num_gpus"] * jobs["duration_s"]
            shares.append([work[jobs["status"] == status].sum() / work.sum() for status in aims])
        assert np.mean(shares, axis=0) == pytest.approx([of_work for _, of_work in aims.values()], abs=0.05)


@pytest.mark.parametrize("name", [name for name in GENERATORS if "philly" in name])
def test_a_seed_is_a_trace(name):
    first, same = (load_trace(f"{name}?jobs=500,seed=7") for _ in range(2))
    assert first.jobs.equals(same.jobs)
    other = load_trace(f"{name}?jobs=500,seed=8")
    for column in ("arrival_s", "duration_s", "tenant"):
        assert first.jobs[column].tolist() != other.jobs[column].tolist()


@pytest.mark.parametrize("jobs", [1, 2, 3, 20])
def test_short_traces(jobs):
    trace = load_trace(f"synthetic-philly?jobs={jobs}")
    assert len(trace) == jobs
    assert (trace.jobs["duration_s"] >= 1).all()


def test_the_mean_gap_sets_the_load():
    loads = [statistics(load_trace(f"synthetic-philly?mean_gap_s={gap}"))["mean_gap_s"] for gap in (25.5, 400)]
    assert loads[0] == pytest.approx(25.5, rel=0.12)
    assert loads[1] == pytest.approx(400, rel=0.12)


def test_arrivals_follow_the_hours_and_days_of_philly():
    arrivals = load_trace("synthetic-philly?jobs=200000").jobs["arrival_s"].to_numpy()
    # Bursts and holes of a day and more blur the shares, so the profiles are compared as a whole.
    hours = np.bincount((arrivals // 3600).astype(int) % 24, minlength=24)
    days = np.bincount((arrivals // 86400).astype(int) % 7, minlength=7)
    assert spearmanr(hours, HOURS).statistic > 0.8
    assert np.corrcoef(days, WEEKDAYS)[0, 1] > 0.8


def test_the_operational_clock_is_inverted_and_periodic():
    wall = np.linspace(0, 3 * 7 * 86400, 1000)
    assert wall_time(operational_time(wall)) == pytest.approx(wall)
    week = 7 * 86400.0
    assert operational_time(np.array([week, 2 * week])) == pytest.approx([week, 2 * week])
    # Friday 7-8 h has 20.6 % x 8.7 % of a week's arrivals; the shares of the hours add up to 97.4 %.
    edge = 4 * 86400.0 + 7 * 3600.0
    hour = np.diff(operational_time(np.array([edge, edge + 3600.0])))[0] / week
    assert hour == pytest.approx(0.206 * 0.087 / (sum(HOURS) / 100), rel=1e-3)
