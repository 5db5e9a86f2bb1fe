"""Start-up times of services: from the row, else from the model, one for each service."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces import TraceError, make_trace
from traces.profiles import load_profiles
from traces.services import START_UP_S, start_up_times


def trace_of(*tasks, training=0):
    """A trace of ``training`` jobs, then tasks given as (service, model, start_up_s)."""
    rows = [("training", "", "", np.nan)] * training + [("inference", *task) for task in tasks]
    kind, service, model, start_up = zip(*rows, strict=True)
    columns = {"kind": kind, "service": service, "model": model, "start_up_s": start_up}
    numbers = {"arrival_s": np.arange(float(len(rows))), "num_gpus": [1] * len(rows), "duration_s": [1.0] * len(rows)}
    return make_trace("t", {**{name: list(cells) for name, cells in columns.items()}, **numbers})


def test_the_models_are_those_with_a_profile():
    assert set(START_UP_S) == set(load_profiles())


def test_a_row_says_it_or_else_its_model():
    trace = trace_of(("a", "bert", np.nan), ("b", "ncf", np.nan), ("c", "ncf", 0.0), ("d", "", 2.5), training=1)
    times = start_up_times(trace)
    assert times.dtype == np.float64
    assert np.isnan(times[0])
    assert times[1:].tolist() == [8.0, 4.0, 0.0, 2.5]


def test_training_alone_has_none():
    assert np.isnan(start_up_times(trace_of(training=3))).tolist() == [True] * 3


def test_rows_of_one_service_may_say_it_in_either_way():
    assert start_up_times(trace_of(("a", "bert", np.nan), ("a", "bert", 8.0), ("a", "", 8.0))).tolist() == [8.0] * 3


@pytest.mark.parametrize("model", ["", "gpt"])
def test_a_task_without_start_up_is_named(model):
    with pytest.raises(TraceError) as error:
        start_up_times(trace_of(("a", "bert", np.nan), ("b", model, np.nan), training=2))
    assert str(error.value) == (
        f"trace t, job 3: start_up_s is missing, and model {model!r} has no start-up time "
        "(known: bert, cifar10, imagenet, yolov3, deepspeech2, ncf)"
    )


def test_two_start_ups_of_one_service_are_named():
    with pytest.raises(TraceError) as error:
        start_up_times(trace_of(("b", "ncf", np.nan), ("a", "bert", np.nan), ("b", "ncf", np.nan), ("a", "bert", 5.0)))
    assert str(error.value) == "trace t, job 3: start_up_s is 5, but 8 for job 1 of the same service a"


def test_models_of_one_service_must_start_alike():
    assert start_up_times(trace_of(("a", "yolov3", np.nan), ("a", "imagenet", np.nan))).tolist() == [6.0, 6.0]
    with pytest.raises(TraceError, match="job 1: start_up_s is 4, but 6 for job 0 of the same service a"):
        start_up_times(trace_of(("a", "yolov3", np.nan), ("a", "ncf", np.nan)))


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["ncf", "bert", "other"]), st.sampled_from([np.nan, 4.0])),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 2),
)
def test_times_are_those_of_a_plain_loop_or_an_error(tasks, training):
    expected, of_service, agrees = [], {}, True
    for service, model, given_s in tasks:
        time_s = given_s if given_s == 4.0 else START_UP_S.get(model)
        agrees &= time_s is not None and of_service.setdefault(service, time_s) == time_s
        expected.append(time_s)
    trace = trace_of(*tasks, training=training)
    if agrees:
        assert start_up_times(trace)[training:].tolist() == expected
    else:
        with pytest.raises(TraceError, match=r"^trace t, job \d: start_up_s is "):
            start_up_times(trace)
