"""The workload of the straggler study: what its docstring says of load, sizes, run times, models and shares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import expon, kstest, lognorm, spearmanr, uniform

from traces import TraceError, load_trace
from traces.sensitivity import MEASURED
from traces.synthetic_stragglers import MEAN_S, _mix, synthesise_stragglers

NAME = "synthetic-stragglers"
TIMES = lognorm(1.0, scale=7200.0)


def test_the_mean_run_time_by_integration():
    """P(run time > t) integrated: 1 up to the shortest of 600 s, 0 from the longest of 43,200 s on."""
    assert 600 + quad(TIMES.sf, 600, 43_200)[0] == pytest.approx(MEAN_S, abs=1)


def test_the_toy_of_the_page_finishes_as_many_jobs():
    """Load 0.6 of 256 GPUs, 221 jobs finished in 4 days; those of the last 190 minutes are not. Within 3 %."""
    sizes, shares = _mix(0.4, 256)
    assert shares.sum() == pytest.approx(1)
    assert sizes @ shares == pytest.approx(0.6 * 5.25 + 0.4 * 46.4)
    jobs_a_minute = 0.6 * 256 / (sizes @ shares * MEAN_S / 60)
    assert jobs_a_minute * (5760 - 190) == pytest.approx(221, rel=0.03)


@pytest.mark.parametrize("parameters", [{}, {"load": 0.9, "multi": 0.1}, {"gpus": 64, "multi": 1.0}, {"jobs": 2000}])
def test_the_load_is_what_was_asked(parameters):
    """Mean of 16 seeds, each the work over the GPU time until the last arrival.

    The margins are stratified, so that what varies is which size meets which run time: the variance of the sum is
    jobs x var(size) x var(run time). Sizes have a CV of up to 1.5, run times one of 0.83: 1.25 / sqrt(16 jobs).
    """
    traces = [synthesise_stragglers(seed=seed, **parameters) for seed in range(16)]
    gpus = parameters.get("gpus", 256)
    loads = [
        (trace.jobs["num_gpus"] * trace.jobs["duration_s"]).sum() / (gpus * trace.jobs["arrival_s"].max())
        for trace in traces
    ]
    jobs = len(traces[0])
    assert np.mean(loads) == pytest.approx(parameters.get("load", 0.6), rel=3 * 1.25 / (16 * jobs) ** 0.5 + 1 / jobs)


def test_four_days_bring_224_jobs():
    """Mean of 8 seeds within three standard errors, sqrt(224 / 8)."""
    arrivals = [synthesise_stragglers(1000, seed).jobs["arrival_s"] for seed in range(8)]
    assert np.mean([(times < 4 * 86_400).sum() for times in arrivals]) == pytest.approx(224, abs=16)


def test_gaps_are_exponential():
    arrivals = synthesise_stragglers(2000, 1).jobs["arrival_s"].to_numpy()
    gaps = np.diff(arrivals)
    assert kstest(gaps, expon(scale=gaps.mean()).cdf).pvalue > 1e-3
    assert kstest(arrivals, uniform(0, arrivals[-1]).cdf).pvalue > 1e-3


def test_sizes_are_the_stated_mix():
    """Stratified: a count differs from its share by less than two jobs."""
    counts = synthesise_stragglers(1000).jobs["num_gpus"].value_counts()
    expected = {1: 90, 2: 90, 4: 120, 8: 300, 16: 80, 32: 100, 64: 220}
    assert set(counts.index) == set(expected)
    for size, count in expected.items():
        assert abs(counts[size] - count) < 2, size


@pytest.mark.parametrize(("multi", "several"), [(0.0, 0), (0.3, 300), (1.0, 1000)])
def test_multi_is_the_share_of_jobs_on_several_nodes(multi, several):
    assert (synthesise_stragglers(1000, multi=multi).jobs["num_gpus"] > 8).sum() == pytest.approx(several, abs=1)


def test_no_job_asks_for_more_than_there_is():
    assert set(synthesise_stragglers(gpus=32).jobs["num_gpus"]) == {1, 2, 4, 8, 16, 32}
    jobs = synthesise_stragglers(1000, gpus=16).jobs
    assert (jobs["num_gpus"] == 16).sum() == pytest.approx(400, abs=1)


def test_run_times_are_a_cut_lognormal_whatever_the_size():
    jobs = synthesise_stragglers(4000, 2).jobs
    times = jobs["duration_s"]
    assert (times.min(), times.max()) == (600, 43_200)
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        assert times.quantile(share) == pytest.approx(TIMES.ppf(share), rel=0.01)
    assert (times == 43_200).mean() == pytest.approx(TIMES.sf(43_200), abs=0.001)
    assert abs(spearmanr(jobs["num_gpus"], times).statistic) < 0.06  # 4 / sqrt(4000)


def test_models_are_equally_frequent_and_shares_uniform():
    jobs = synthesise_stragglers(2000).jobs
    counts = jobs["sensitivity"].value_counts()
    assert set(counts.index) == set(MEASURED)
    assert counts.between(198, 202).all()
    assert kstest(jobs["comm_share"], uniform(0.05, 0.45).cdf).pvalue > 1e-3


def test_shares_may_be_left_to_the_models():
    ours, usual = (load_trace(f"{NAME}?seed=3,comm={comm}").jobs for comm in ("model", "uniform"))
    assert ours["comm_share"].isna().all()
    assert ours.drop(columns="comm_share").equals(usual.drop(columns="comm_share"))


def test_a_seed_has_its_run_times_models_and_shares_at_any_load_and_mix():
    first, other = synthesise_stragglers(seed=5).jobs, synthesise_stragglers(seed=5, load=0.9, multi=0.1, gpus=64).jobs
    for column in ("duration_s", "sensitivity", "comm_share"):
        assert first[column].equals(other[column])
    assert not first["num_gpus"].equals(other["num_gpus"])


def test_a_seed_is_a_trace():
    first, same, other = (load_trace(f"{NAME}?seed={seed}").jobs for seed in (7, 7, 8))
    assert first.equals(same)
    for column in ("arrival_s", "num_gpus", "duration_s", "sensitivity", "comm_share"):
        assert first[column].tolist() != other[column].tolist()


@pytest.mark.parametrize("jobs", [1, 2, 20])
def test_short_traces(jobs):
    assert len(synthesise_stragglers(jobs)) == jobs


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"jobs": 0}, "jobs is 0, expected 1 to"),
        ({"seed": -1}, "seed is -1, expected a whole number"),
        ({"load": 0.0}, "load is 0, expected a number above 0"),
        ({"load": float("nan")}, "load is nan, expected a number above 0"),
        ({"gpus": 8}, "gpus is 8, expected 16 to"),
        ({"multi": 1.2}, "multi is 1.2, expected a share from 0 to 1"),
        ({"comm": "usual"}, "comm is 'usual', expected one of uniform, model"),
    ],
)
def test_parameters_out_of_range_are_named(arguments, message):
    with pytest.raises(TraceError, match=f"^{NAME}: {message}"):
        synthesise_stragglers(**arguments)
