"""Training beside inference: the rows of the two generators, merged by arrival."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces import TraceError, load_trace, write_trace
from traces.services import start_up_times
from traces.synthetic_inference import PATTERNS, synthesise_colocated, synthesise_inference
from traces.synthetic_pollux import synthesise_pollux


def of_kind(trace, kind):
    return trace.jobs[trace.jobs["kind"] == kind].reset_index(drop=True)


@settings(max_examples=15, deadline=None)
@given(
    jobs=st.integers(5, 40),
    seed=st.integers(0, 2**40),
    mean_gap_s=st.floats(60, 240),
    load=st.floats(0.02, 0.1),
    pattern=st.sampled_from(PATTERNS),
    services=st.integers(1, 12),
)
def test_rows_are_those_of_the_two_generators(jobs, seed, mean_gap_s, load, pattern, services):
    trace = synthesise_colocated(jobs, seed, mean_gap_s, load=load, pattern=pattern, services=services)
    pd.testing.assert_frame_equal(of_kind(trace, "training"), synthesise_pollux(jobs, seed, mean_gap_s).jobs)
    tasks = synthesise_inference(jobs * mean_gap_s / 3600, seed, load, pattern, services)
    pd.testing.assert_frame_equal(of_kind(trace, "inference"), tasks.jobs)
    assert len(trace) == jobs + len(tasks)
    assert (np.diff(trace.jobs["arrival_s"]) >= 0).all()
    assert trace.jobs["job_id"].is_unique


def test_both_kinds_arrive_over_the_same_time():
    trace = synthesise_colocated()
    ends = [of_kind(trace, kind)["arrival_s"].iloc[-1] for kind in ("training", "inference")]
    assert ends == pytest.approx([8 * 3600] * 2, rel=0.05)


def test_hours_of_inference_may_be_given():
    trace = synthesise_colocated(jobs=20, hours=3.0)
    pd.testing.assert_frame_equal(of_kind(trace, "inference"), synthesise_inference(3.0).jobs)
    assert of_kind(trace, "training")["arrival_s"].max() < 3600 * 1.5


def test_arrivals_of_the_two_kinds_are_unrelated():
    """Hourly counts of one seed are no more alike than those of two; a shared stream would give equal quantiles."""
    training, tasks = (of_kind(synthesise_colocated(jobs=1000), kind) for kind in ("training", "inference"))
    hours = [np.bincount((jobs["arrival_s"] // 3600).astype(int), minlength=51)[:50] for jobs in (training, tasks)]
    assert abs(np.corrcoef(hours)[0, 1]) < 4 / 50**0.5


def test_it_is_written_and_read_back(tmp_path):
    trace = synthesise_colocated(jobs=10, load=0.02)
    write_trace(trace, tmp_path / "mixed.csv")
    again = load_trace(tmp_path / "mixed.csv")
    pd.testing.assert_frame_equal(again.jobs, trace.jobs)
    assert again.provenance == trace.provenance
    assert "synthetic-pollux with jobs=10" in again.provenance
    assert "load=0.02" in again.provenance
    assert np.isfinite(start_up_times(again)).sum() == len(trace) - 10


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"jobs": 0}, "synthetic-pollux: jobs is 0, expected 1 to"),
        ({"hours": -1.0}, "synthetic-inference: hours is -1, expected a time above 0"),
        ({"load": -0.1}, "synthetic-inference: load is -0.1, expected a number above 0"),
    ],
)
def test_parameters_out_of_range_are_named(parameters, message):
    with pytest.raises(TraceError, match=message):
        synthesise_colocated(**parameters)
