"""The workload of everything together: training and tasks of one generator, presets of another."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.load import load_trace
from traces.musher_csv import write_trace
from traces.synthetic_full import synthesise_full
from traces.synthetic_inference import synthesise_colocated
from traces.synthetic_layers import synthesise_layers
from traces.trace import TraceError


@settings(max_examples=10, deadline=None)
@given(
    jobs=st.integers(5, 40),
    seed=st.integers(0, 2**40),
    mean_gap_s=st.floats(60, 240),
    preset=st.sampled_from(("", "egeria", "finetune")),
)
def test_rows_and_presets_are_those_of_two_generators(jobs, seed, mean_gap_s, preset):
    trace = synthesise_full(jobs, seed, mean_gap_s, load=0.05, preset=preset)
    colocated = synthesise_colocated(jobs, seed, mean_gap_s, load=0.05)
    pd.testing.assert_frame_equal(trace.jobs.drop(columns="freezing"), colocated.jobs.drop(columns="freezing"))
    training = trace.jobs[trace.jobs["kind"] == "training"].reset_index(drop=True)
    pd.testing.assert_frame_equal(training, synthesise_layers(jobs, seed, mean_gap_s, preset).jobs)
    assert set(trace.jobs["freezing"][trace.jobs["kind"] == "inference"]) == {""}


def test_every_parameter_is_passed_on():
    """Each of synthetic-colocated changes its trace, and the same way."""
    others = {
        "jobs": 12,
        "seed": 4,
        "mean_gap_s": 100.0,
        "hours": 0.7,
        "load": 0.02,
        "pattern": "bursty",
        "services": 3,
        "gpus": 8,
        "durations": "exponential",
        "mean_duration_s": 9.0,
    }
    usual = synthesise_full(jobs=10).jobs
    for name, value in others.items():
        given = {"jobs": 10, name: value}
        jobs = synthesise_full(**given).jobs
        assert not jobs.equals(usual), name
        assert jobs.drop(columns="freezing").equals(synthesise_colocated(**given).jobs.drop(columns="freezing")), name


def test_it_is_built_in_and_written_and_read_back(tmp_path):
    trace = load_trace("synthetic-full?jobs=10,load=0.02,preset=conservative")
    assert set(trace.jobs["freezing"]) == {"conservative", ""}
    write_trace(trace, tmp_path / "full.csv")
    again = load_trace(tmp_path / "full.csv")
    pd.testing.assert_frame_equal(again.jobs, trace.jobs)
    for part in (
        "synthetic-pollux with jobs=10",
        "synthetic-inference with",
        "load=0.02",
        "converge as in conservative",
    ):
        assert part in again.provenance


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"preset": "deep"}, "preset is 'deep', expected one of conservative, middle, "),
        ({"load": -0.1}, "synthetic-inference: load is -0.1, expected a number above 0"),
        ({"jobs": 0}, "synthetic-pollux: jobs is 0, expected 1 to"),
    ],
)
def test_parameters_out_of_range_are_named(parameters, message):
    with pytest.raises(TraceError, match=message):
        synthesise_full(**parameters)
