"""The synthetic Pollux workload against the published ones, and against the limits of the models it names."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from traces import TraceError, load_trace
from traces.profiles import load_profiles
from traces.synthetic_pollux import DAY_S, HOURS, MODELS, synthesise_pollux

NAME = "synthetic-pollux"


@pytest.fixture(scope="module")
def published(shared):
    """All jobs of the 8 workloads at each of the four loads, with the load and the workload they are of."""
    folder = shared / "data" / "traces" / "pollux_osdi21"
    tables = []
    for load in ("workloads-0.5", "workloads", "workloads-1.5", "workloads-2.0"):
        files = sorted((folder / load).glob("*.csv"))
        assert len(files) == 8
        tables += [load_trace(path).jobs.assign(load=load, file=path.stem) for path in files]
    return pd.concat(tables)


def test_the_table_of_models_is_the_published_one(published):
    assert len(published) == 8 * (80 + 160 + 240 + 320)
    usual = published[published["load"] == "workloads"]
    shares = 100 * usual["model"].value_counts(normalize=True)
    assert set(shares.index) == set(MODELS)
    for model, requests in MODELS.items():
        assert requests.share == pytest.approx(shares[model], abs=0.06)
        jobs = published[published["model"] == model]
        counts = 100 * jobs.groupby(["num_gpus", "batch_size"]).size() / len(jobs)
        assert set(counts.index) == {(gpus, batch) for gpus, batch, _ in requests.choices}
        for gpus, batch, share in requests.choices:
            assert share == pytest.approx(counts[gpus, batch], abs=0.7), model


def test_the_hours_are_the_published_ones(published):
    hours = np.bincount((published["arrival_s"] // 3600).astype(int), minlength=8)
    assert hours / hours.mean() == pytest.approx(HOURS, abs=0.006)


def test_generated_days_look_like_the_published_ones(published):
    """Averages over 8 days; bands of about two standard errors of the published averages."""
    days = {file: jobs for file, jobs in published[published["load"] == "workloads"].groupby("file")}
    ours = [load_trace(f"{NAME}?seed={seed}").jobs for seed in range(8)]

    def average(tables, quantity):
        return np.mean([quantity(jobs) for jobs in tables])

    for quantity, band in (
        (lambda jobs: jobs["num_gpus"].mean(), 0.3),
        (lambda jobs: len(jobs), 0),
        (lambda jobs: jobs["arrival_s"].max() / 3600, 0.2),
        (lambda jobs: jobs["arrival_s"].diff().std() / jobs["arrival_s"].diff().mean(), 0.15),
        (lambda jobs: jobs["arrival_s"].between(5 * 3600, 6 * 3600).mean(), 0.02),
    ):
        assert average(ours, quantity) == pytest.approx(average(days.values(), quantity), abs=band)


def test_requests_keep_the_limits_of_the_models():
    jobs = load_trace(f"{NAME}?jobs=2000").jobs
    assert jobs["duration_s"].isna().all()
    profiles = load_profiles()
    for model, rows in jobs.groupby("model"):
        profile = profiles[model]
        on_t4 = profile.types["aws"]
        assert (rows["batch_size"] >= profile.init_batch).all()
        assert (rows["batch_size"] <= profile.max_batch).all()
        assert (rows["batch_size"] / rows["num_gpus"] >= on_t4.min_local).all()


@pytest.mark.parametrize("seed", range(3))
def test_every_trace_has_its_share_of_each_model(seed):
    """Stratified: a count differs from its share by less than two jobs, imagenet's 3.2 of 160 too."""
    counts = load_trace(f"{NAME}?seed={seed}").jobs["model"].value_counts()
    for model, requests in MODELS.items():
        assert abs(counts[model] - 1.6 * requests.share) < 2, model


def test_models_are_in_random_order():
    """Neighbours are of one model as often as chance has it: the sum of squared shares."""
    models = load_trace(f"{NAME}?jobs=20000").jobs["model"].to_numpy()
    chance = sum((requests.share / 100) ** 2 for requests in MODELS.values())
    assert (models[1:] == models[:-1]).mean() == pytest.approx(chance, abs=0.015)


def test_a_long_trace_repeats_the_day_at_the_same_load():
    arrivals = load_trace(f"{NAME}?jobs=16000").jobs["arrival_s"].to_numpy()
    assert arrivals[-1] / 16_000 == pytest.approx(180, rel=0.01)
    hours = np.bincount((arrivals % DAY_S // 3600).astype(int), minlength=8)
    assert hours / hours.mean() == pytest.approx(HOURS, rel=0.1)
    days = np.bincount((arrivals // DAY_S).astype(int))[:100]
    # Poisson: 160 jobs a day, give or take sqrt(160).
    assert days.mean() == pytest.approx(160, rel=0.01)
    assert 9 < days.std() < 17


def test_the_gap_sets_the_load():
    """320 jobs at 90 s fill the same day twice as densely."""
    dense = load_trace(f"{NAME}?jobs=320,mean_gap_s=90").jobs["arrival_s"]
    assert 0.9 * DAY_S < dense.max() <= DAY_S
    assert dense.min() >= 1
    assert (dense == dense.round()).all()


def test_a_seed_is_a_trace():
    first, same, other = (load_trace(f"{NAME}?seed={seed}").jobs for seed in (7, 7, 8))
    assert first.equals(same)
    for column in ("arrival_s", "model", "num_gpus"):
        assert first[column].tolist() != other[column].tolist()


@pytest.mark.parametrize("jobs", [1, 2, 20])
def test_short_traces(jobs):
    assert len(synthesise_pollux(jobs)) == jobs


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"jobs": 0}, "jobs is 0, expected 1 to"),
        ({"seed": -1}, "seed is -1, expected a whole number"),
        ({"mean_gap_s": 0.0}, "mean_gap_s is 0, expected a time above 0"),
    ],
)
def test_parameters_out_of_range_are_named(arguments, message):
    with pytest.raises(TraceError, match=f"{NAME}: {message}"):
        synthesise_pollux(**arguments)
