"""The contract of a trace: types, missing values, order, and errors that name row and field."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from traces import COLUMNS, TraceError, make_trace

ROWS = {"arrival_s": [5.0, 1.0, 5.0], "num_gpus": [1, 2, 4], "duration_s": [10.0, 20.0, 30.0]}


def test_missing_columns_are_filled_with_their_dtype():
    jobs = make_trace("t", ROWS).jobs
    for column in COLUMNS:
        assert str(jobs[column.name].dtype) == column.dtype, column.name
    assert jobs["kind"].tolist() == ["training"] * 3
    assert jobs["share_milli"].tolist() == [1000] * 3
    assert jobs["deadline_s"].isna().all()
    assert jobs["start_up_s"].isna().all()


def test_jobs_are_sorted_by_arrival_and_ties_keep_their_order():
    jobs = make_trace("t", ROWS).jobs
    assert jobs["num_gpus"].tolist() == [2, 1, 4]
    assert jobs["job_id"].tolist() == ["1", "0", "2"]


def test_text_cells_are_read_and_empty_ones_are_missing():
    columns = {
        "arrival_s": ["0.1", "2e3"],
        "num_gpus": ["1", "1"],
        "duration_s": ["0.30000000000000004", "7"],
        "kind": ["", "inference"],
        "service": ["", "s"],
        "start_up_s": ["", "2.5"],
        "share_milli": ["250", ""],
        "preemptible": ["false", ""],
        "estimate_s": ["", "9"],
    }
    jobs = make_trace("t", columns).jobs
    assert jobs["duration_s"].tolist() == [0.1 + 0.2, 7.0]
    assert jobs["kind"].tolist() == ["training", "inference"]
    assert jobs["share_milli"].tolist() == [250, 1000]
    assert np.isnan(jobs["start_up_s"][0])
    assert jobs["start_up_s"][1] == 2.5
    assert jobs["preemptible"].tolist() == [False, True]
    assert np.isnan(jobs["estimate_s"][0])
    assert jobs["estimate_s"][1] == 9.0


def test_unknown_columns_follow_ours():
    jobs = make_trace("t", {**ROWS, "iterations": [7, 8, 9]}).jobs
    assert jobs.columns[-1] == "iterations"
    assert jobs["iterations"].tolist() == [8, 7, 9]


@pytest.mark.parametrize(
    ("column", "cells", "message"),
    [
        ("arrival_s", [0.0, -1.0, 2.0], "row 1: arrival_s -1.0 must be a finite time >= 0"),
        ("arrival_s", [0.0, 1.0, np.inf], "row 2: arrival_s inf must be"),
        ("arrival_s", [0.0, "x", "y"], "row 1: arrival_s is 'x', expected a number"),
        ("num_gpus", [1, 0, 1], "row 1: num_gpus 0 must lie between 1"),
        ("num_gpus", ["1", "1", "1.5"], "row 2: num_gpus is '1.5', expected a whole number"),
        ("num_gpus", ["1", "1e30", "1"], "row 1: num_gpus is '1e30', expected a whole number"),
        ("num_gpus", ["", "1", "1"], "row 0: num_gpus is '', expected a whole number"),
        ("duration_s", [1.0, -1.0, 2.0], "row 1: duration_s -1.0 must be"),
        ("duration_s", [1.0, 1.0, np.nan], "row 2: duration_s is missing and no model is given"),
        ("kind", ["training", "train", "x"], "row 1: kind train must be training or inference"),
        ("share_milli", [1000, 1000, 500], "row 2: share_milli 500 below 1000 needs num_gpus 1"),
        ("share_milli", [1001, 1000, 1000], "row 0: share_milli 1001 must lie"),
        ("preemptible", ["yes", "true", ""], "row 0: preemptible is 'yes', expected true or false"),
        ("job_id", ["a", "b", "a"], "row 2: job_id a occurs twice"),
        ("job_id", ["a", "", "c"], "row 1: job_id is empty"),
        ("max_gpus", [0, -1, 8], "row 1: max_gpus -1 must be >= 0"),
        ("batch_size", ["", "64", "-1"], "row 2: batch_size -1 must be >= 0"),
        ("estimate_s", [1.0, 2.0, -3.0], "row 2: estimate_s -3.0 must be >= 0"),
    ],
)
def test_errors_name_row_field_and_value(column, cells, message):
    with pytest.raises(TraceError) as error:
        make_trace("t", {**ROWS, column: cells})
    assert message in str(error.value)


MIXED = {
    "arrival_s": [0.0, 1.0, 2.0],
    "kind": ["training", "inference", "inference"],
    "num_gpus": [4, 1, 1],
    "duration_s": [10.0, 2.0, 3.0],
    "service": ["", "infer-bert-1", "infer-bert-1"],
}


def test_inference_tasks_beside_training_jobs():
    jobs = make_trace("t", {**MIXED, "start_up_s": [np.nan, 0.0, 8.5]}).jobs
    assert jobs["service"].tolist() == MIXED["service"]
    assert jobs["start_up_s"].tolist()[1:] == [0.0, 8.5]
    names = [column.name for column in COLUMNS]
    assert names.index("start_up_s") == names.index("service") + 1


@pytest.mark.parametrize(
    ("column", "cells", "message"),
    [
        ("service", ["", "s", ""], "row 2: service is empty, but an inference task needs one"),
        ("service", ["", "", "s"], "row 1: service is empty, but an inference task needs one"),
        ("service", ["s", "s", "s"], "row 0: service s must be empty for a training job"),
        ("duration_s", [10.0, np.nan, 1.0], "row 1: duration_s is missing, but an inference task needs one"),
        ("duration_s", [10.0, "", 1.0], "row 1: duration_s is missing, but an inference task needs one"),
        ("duration_s", [0.0, 1.0, 0.0], "row 2: duration_s 0.0 must be > 0 for an inference task"),
        ("duration_s", [0.0, -1.0, 1.0], "row 1: duration_s -1.0 must be a finite time >= 0"),
        ("num_gpus", [4, 1, 2], "row 2: num_gpus 2 must be 1 for an inference task"),
        ("share_milli", [1000, 500, 1000], "row 1: share_milli 500 must be 1000 for an inference task"),
        ("gpu_type", ["v100", "", "t4"], "row 2: gpu_type t4 must be empty for an inference task"),
        ("start_up_s", ["", "-0.5", ""], "row 1: start_up_s -0.5 must be a finite time >= 0"),
        ("start_up_s", ["", "", "inf"], "row 2: start_up_s inf must be a finite time >= 0"),
        ("start_up_s", ["", "fast", ""], "row 1: start_up_s is 'fast', expected a number"),
        ("start_up_s", [6.0, 6.0, 6.0], "row 0: start_up_s 6.0 must be empty for a training job"),
        ("comm_share", [0.2, np.nan, 0.2], "row 2: comm_share 0.2 must be empty for an inference task"),
        ("sensitivity", ["lstm", "lstm", ""], "row 1: sensitivity lstm must be empty for an inference task"),
    ],
)
def test_errors_of_inference_tasks_name_row_field_and_value(column, cells, message):
    with pytest.raises(TraceError) as error:
        make_trace("t", {**MIXED, column: cells})
    assert str(error.value) == f"trace t, {message}"


def test_what_slows_jobs_may_be_given():
    """The middle row is elastic: it may name a sensitivity of its own."""
    columns = {**ROWS, "duration_s": ["10", "", "30"], "model": ["", "bert", ""]}
    jobs = make_trace("t", {**columns, "comm_share": ["0", "", "0.99"], "sensitivity": ["lstm", "vision", ""]}).jobs
    assert jobs["comm_share"].tolist()[1:] == [0.0, 0.99]
    assert np.isnan(jobs["comm_share"][0])
    assert jobs["sensitivity"].tolist() == ["vision", "lstm", ""]


@pytest.mark.parametrize(
    ("column", "cells", "message"),
    [
        ("comm_share", [0.5, -0.1, 1.5], "row 1: comm_share -0.1 must be at least 0 and below 1"),
        ("comm_share", ["", "1", ""], "row 1: comm_share 1.0 must be at least 0 and below 1"),
        ("comm_share", ["", "", "inf"], "row 2: comm_share inf must be at least 0 and below 1"),
        ("comm_share", ["", "much", ""], "row 1: comm_share is 'much', expected a number"),
        (
            "sensitivity",
            ["vision", "visoin", "x"],
            "row 1: sensitivity visoin has no row in traces/sensitivity.py (did",
        ),
    ],
)
def test_errors_of_what_slows_jobs_name_row_field_and_value(column, cells, message):
    with pytest.raises(TraceError) as error:
        make_trace("t", {**ROWS, column: cells})
    assert str(error.value).startswith(f"trace t, {message}")


def test_an_elastic_job_has_no_share_of_communication_of_its_own():
    columns = {**ROWS, "duration_s": [10.0, np.nan, np.nan], "model": "bert", "comm_share": [0.2, np.nan, 0.3]}
    with pytest.raises(TraceError, match=r"^trace t, row 2: comm_share 0\.3 must be empty for an elastic job \(one w"):
        make_trace("t", columns)


def test_no_jobs_and_absent_columns_are_errors():
    with pytest.raises(TraceError, match="trace t has no jobs"):
        make_trace("t", pd.DataFrame({"arrival_s": [], "num_gpus": []}))
    with pytest.raises(TraceError, match="trace t has no column num_gpus"):
        make_trace("t", {"arrival_s": [0.0]})


def test_window_starts_at_zero_and_moves_deadlines():
    trace = make_trace("t", {**ROWS, "deadline_s": [105.0, 101.0, np.nan]})
    window = trace.window(1, 2)
    assert window.jobs["arrival_s"].tolist() == [0.0, 0.0]
    assert window.jobs["deadline_s"][0] == 100.0
    assert trace.jobs["arrival_s"].tolist() == [1.0, 5.0, 5.0], "the trace itself is unchanged"
    with pytest.raises(TraceError, match="lies outside"):
        trace.window(3, 1)


def test_windows_count_training_jobs_and_take_along_their_tasks():
    """Rows are task, job, task, task, job, job, task: the tasks before the first job are the first split's."""
    kinds = ["inference", "training", "inference", "inference", "training", "training", "inference"]
    task = np.array([kind == "inference" for kind in kinds])
    columns = {"arrival_s": np.arange(7.0), "num_gpus": 1, "duration_s": 2.0, "kind": kinds}
    trace = make_trace("t", pd.DataFrame(columns).assign(service=np.where(task, "s", "")))
    assert trace.job_rows.tolist() == [1, 4, 5]
    assert [trace.window_stop(start, 1) for start in range(7)] == [4, 4, 5, 5, 5, 7, 7]
    assert trace.window(1, 2).jobs["arrival_s"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert [trace.count_jobs(0, stop) for stop in range(8)] == [0, 0, 1, 1, 1, 2, 3, 3]
    assert [trace.split_range(split) for split in ("train", "validation", "test")] == [(0, 5), (5, 5), (5, 7)]
    assert trace.window_starts(2, 2) == [1, 4]
    with pytest.raises(TraceError, match="the train split of trace t has 2 jobs, fewer than one window of 3"):
        trace.window_starts(1, 3, "train")


def test_splits_cover_all_jobs_once_and_windows_stay_inside():
    trace = make_trace("t", {"arrival_s": np.arange(50.0), "num_gpus": [1] * 50, "duration_s": [1.0] * 50})
    ranges = [trace.split_range(split) for split in ("train", "validation", "test")]
    assert ranges == [(0, 30), (30, 40), (40, 50)]
    assert trace.window_starts(2, 6, "test") == [40, 44]
    assert trace.window_starts(3, 9, "test") == [40, 40, 41]  # 40.5 is nearer to an even number
    starts = trace.window_starts(3, 4, "test")
    assert starts == [40, 43, 46]
    with pytest.raises(TraceError, match="the test split of trace t has 10 jobs"):
        trace.window_starts(1, 11, "test")
