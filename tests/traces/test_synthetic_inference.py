"""Synthetic inference tasks: the load that was asked for, the stated patterns of arrival, services and durations."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import expon, kstest, uniform

from traces import TraceError, load_trace, offered_load, statistics
from traces.services import START_UP_S, start_up_times
from traces.synthetic_inference import BURST_RATE, CALM_RATE, DURATIONS, PATTERNS, _bursts, synthesise_inference

NAME = "synthetic-inference"


def load_of(trace, gpus, hours):
    return trace.jobs["duration_s"].sum() / (gpus * hours * 3600)


@pytest.mark.parametrize("durations", DURATIONS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_offered_load_is_what_was_asked(pattern, durations):
    """Mean of 8 seeds of 8 hours, some 18,432 tasks each, within 4 standard errors.

    Variance of a Poisson sum over its mean squared: (1 + cv^2) / tasks; cv^2 of uniform 1..9 s is 0.21, of exponential
    1. Bursts add that of the time in them, 2 x 60^2 x 240^2 / 300^3 s a second, times the rates' difference squared.
    """
    loads = [load_of(synthesise_inference(8, seed, 0.1, pattern, durations=durations), 32, 8) for seed in range(8)]
    variance = (1.21 if durations == "uniform" else 2.0) / 18_432
    if pattern == "bursty":
        variance += 2 * 60**2 * 240**2 / 300**3 * (BURST_RATE - CALM_RATE) ** 2 / 28_800
    assert np.mean(loads) == pytest.approx(0.1, rel=4 * (variance / 8) ** 0.5)
    # And they scatter by chance: of 8 samples the standard deviation is within a factor of 2 in 98 of 100 cases.
    assert 0.5 < np.std(loads, ddof=1) / 0.1 / variance**0.5 < 2


@pytest.mark.parametrize(
    ("parameters", "tasks"),
    [
        ({"load": 0.2}, 36_864),
        ({"gpus": 64}, 36_864),
        ({"hours": 4.0}, 9_216),
        ({"mean_duration_s": 10.0}, 9_216),
        ({"mean_duration_s": 10.0, "durations": "exponential", "pattern": "diurnal", "hours": 30.0}, 34_560),
    ],
)
def test_what_sets_the_rate(parameters, tasks):
    """Tasks: load x gpus / mean_duration_s x time, by default 0.1 x 32 / 5 s x 28,800 s = 18,432."""
    trace = synthesise_inference(**parameters)
    assert abs(len(trace) - tasks) < 4 * tasks**0.5
    assert load_of(trace, parameters.get("gpus", 32), parameters.get("hours", 8)) == pytest.approx(
        parameters.get("load", 0.1), rel=0.04
    )


def test_poisson_gaps_are_exponential():
    arrivals = synthesise_inference(seed=3).jobs["arrival_s"].to_numpy()
    assert kstest(np.diff(arrivals), expon(scale=5 / 3.2).cdf).pvalue > 1e-3
    assert kstest(arrivals, uniform(0, 8 * 3600).cdf).pvalue > 1e-3


def test_bursts_have_the_stated_rates_and_lengths():
    wall, clock = _bursts(np.random.Generator(np.random.PCG64(1)), 3e6)
    assert (wall[0], wall[-1], clock[0]) == (0.0, 3e6, 0.0)
    lasts, rates = np.diff(wall), np.diff(clock) / np.diff(wall)
    burst = np.isclose(rates, BURST_RATE)
    assert (burst | np.isclose(rates, CALM_RATE)).all()
    assert (burst[1:] != burst[:-1]).all()
    # 10,000 of each: a standard error of 1 %.
    assert kstest(lasts[burst][:-1], expon(scale=60).cdf).pvalue > 1e-3
    assert kstest(lasts[~burst][:-1], expon(scale=240).cdf).pvalue > 1e-3
    assert clock[-1] / wall[-1] == pytest.approx(1, rel=0.03)


def test_the_first_state_is_a_burst_as_often_as_any_instant_is():
    rates = []
    for seed in range(1000):
        _, clock = _bursts(np.random.Generator(np.random.PCG64(seed)), 1e-3)
        rates.append(clock[-1] / 1e-3)
    assert np.mean(np.isclose(rates, BURST_RATE)) == pytest.approx(0.2, abs=4 * (0.2 * 0.8 / 1000) ** 0.5)


def test_bursty_counts_disperse_as_the_process_does():
    """The rate has variance 0.16 x 2.5^2 (mean 1) and forgets within 48 s: 1 / (1/60 + 1/240).

    Hourly counts of mean rate 0.064 /s: 1 + 2 x 0.16 x 6.25 x 48 x 0.064 = 7.1.
    """
    bursty, poisson = (synthesise_inference(600, 0, 0.01, pattern) for pattern in ("bursty", "poisson"))
    # 600 hours: the standard error of a variance is sqrt(2 / 600) = 6 %.
    assert statistics(bursty, "inference")["dispersion"] == pytest.approx(7.1, rel=0.2)
    assert statistics(poisson, "inference")["dispersion"] == pytest.approx(1, rel=0.2)


def test_diurnal_hours_follow_the_stated_wave():
    arrivals = synthesise_inference(240, 5, 0.01, "diurnal").jobs["arrival_s"].to_numpy()
    counts = np.bincount((arrivals % 86_400 // 3600).astype(int), minlength=24)
    # Mean of 1 - 0.8 cos(2 pi t / 24 h) over each hour, and 10 days at 0.064 tasks a second.
    edges = 2 * np.pi * np.arange(25) / 24
    wave = 1 - 0.8 * np.diff(np.sin(edges)) / (edges[1] - edges[0])
    expected = 36_000 * 0.064 * wave
    assert (np.abs(counts - expected) < 4 * np.sqrt(expected)).all()


@pytest.mark.parametrize(("mean_s", "highest"), [(5, 9), (10, 19), (15, 29)])
def test_uniform_durations_are_those_of_deepboot(mean_s, highest):
    durations = synthesise_inference(mean_duration_s=mean_s).jobs["duration_s"]
    assert kstest(durations, uniform(1, highest - 1).cdf).pvalue > 1e-3
    assert (durations % 1 != 0).all()


def test_exponential_durations():
    durations = synthesise_inference(durations="exponential").jobs["duration_s"]
    assert kstest(durations, expon(scale=5).cdf).pvalue > 1e-3
    # With a mean of 1 s, 1 in 1,000 would be below 1 ms.
    shortest = synthesise_inference(durations="exponential", mean_duration_s=1.0).jobs["duration_s"].min()
    assert shortest == 0.001


@pytest.mark.parametrize(("services", "versions"), [(6, 1), (18, 3), (30, 5)])
def test_services_are_named_as_in_deepboot(services, versions):
    jobs = synthesise_inference(services=services).jobs
    expected = {f"infer-{model}-{v}" for model in START_UP_S for v in range(1, versions + 1)}
    assert set(jobs["service"]) == expected
    tasks = jobs["service"].value_counts()
    mean = len(jobs) / services
    assert (np.abs(tasks - mean) < 4 * mean**0.5).all(), "each with equal chance"


def test_few_services_have_models_by_chance():
    dealt = [frozenset(synthesise_inference(1, seed, services=2).jobs["model"]) for seed in range(20)]
    assert {len(models) for models in dealt} == {2}
    assert len(set(dealt)) > 5
    seven = synthesise_inference(services=7).jobs.groupby("model")["service"].nunique()
    assert sorted(seven) == [1, 1, 1, 1, 1, 2]


@settings(max_examples=30, deadline=None)
@given(
    hours=st.floats(0.2, 3.0),
    seed=st.integers(0, 2**40),
    load=st.floats(0.02, 0.2),
    pattern=st.sampled_from(PATTERNS),
    services=st.integers(1, 64),
    gpus=st.integers(8, 64),
    durations=st.sampled_from(DURATIONS),
    mean_duration_s=st.floats(1.0, 5.0),
)
def test_every_trace_is_sorted_inside_its_hours_and_can_be_served(**parameters):
    trace = synthesise_inference(**parameters)
    jobs = trace.jobs
    arrivals = jobs["arrival_s"].to_numpy()
    assert (np.diff(arrivals) >= 0).all()
    assert arrivals[0] >= 0
    assert arrivals[-1] < parameters["hours"] * 3600
    assert (jobs["kind"] == "inference").all()
    assert (jobs["duration_s"] > 0).all()
    assert jobs["service"].nunique() <= parameters["services"]
    assert jobs.groupby("service")["model"].nunique().eq(1).all()
    assert start_up_times(trace).tolist() == [START_UP_S[model] for model in jobs["model"]]
    pd.testing.assert_frame_equal(synthesise_inference(**parameters).jobs, jobs)


def test_another_seed_is_another_trace():
    first, other = (synthesise_inference(seed=seed).jobs for seed in (7, 8))
    for column in ("arrival_s", "duration_s", "service"):
        assert first[column].tolist()[:50] != other[column].tolist()[:50]


@pytest.mark.parametrize(("file", "load", "services", "mean_s"), [("small", 0.009, 6, 5), ("middle", 0.09, 18, 10)])
def test_deepboot_workloads_are_what_the_table_says(shared, file, load, services, mean_s):
    published = load_trace(shared / "data" / "traces" / "deepboot" / f"{file}.csv")
    assert offered_load(published, 32) == pytest.approx(load, rel=0.02)
    ours = statistics(synthesise_inference(15.4, 0, load, "poisson", services, mean_duration_s=mean_s), "inference")
    theirs = statistics(published, "inference")
    # 3,200 tasks: 1.8 % is one standard error.
    for quantity, band in (("jobs", 0.06), ("mean_gap_s", 0.06), ("mean_duration_s", 0.04), ("cv_gap", 0.06)):
        assert ours[quantity] == pytest.approx(theirs[quantity], rel=band), quantity


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hours": 0.0}, "hours is 0, expected a time above 0 and up to 100000"),
        ({"hours": float("nan")}, "hours is nan, expected a time above 0"),
        ({"seed": -1}, "seed is -1, expected a whole number >= 0"),
        ({"load": 0.0}, "load is 0, expected a number above 0 and up to 100"),
        ({"load": float("inf")}, "load is inf, expected a number above 0"),
        ({"pattern": "steady"}, "pattern is 'steady', expected one of poisson, bursty, diurnal"),
        ({"services": 0}, "services is 0, expected 1 to 64"),
        ({"services": 65}, "services is 65, expected 1 to 64"),
        ({"gpus": 0}, "gpus is 0, expected 1 to 1048576"),
        ({"durations": "fixed"}, "durations is 'fixed', expected one of uniform, exponential"),
        ({"mean_duration_s": 0.9}, "mean_duration_s is 0.9, expected a time from 1 to below 1e7"),
        ({"hours": 1e5, "load": 1.0}, "hours, load and gpus ask for 2304000000 tasks, expected at most 10000000"),
    ],
)
def test_parameters_out_of_range_are_named(parameters, message):
    with pytest.raises(TraceError) as error:
        synthesise_inference(**parameters)
    assert str(error.value).startswith(f"{NAME}: {message}")


def test_a_trace_without_a_task_is_an_error():
    with pytest.raises(TraceError, match="trace synthetic-inference has no jobs"):
        synthesise_inference(hours=1e-6)
