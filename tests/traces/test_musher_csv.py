"""Our own CSV gives back exactly what was written."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traces import TraceError, load_trace, make_trace, write_trace

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
SECONDS = st.floats(0, 1e12, allow_nan=False)
JOB = st.fixed_dictionaries(
    {
        "arrival_s": SECONDS,
        "num_gpus": st.integers(1, 1 << 20),
        "duration_s": SECONDS,
        "user": TEXT,
        "deadline_s": st.one_of(st.just(math.nan), st.floats(-1e9, 1e9)),
        "max_gpus": st.integers(0, 64),
        "preemptible": st.booleans(),
        "score": st.floats(allow_nan=False, allow_infinity=False),
        "note": TEXT.map(lambda text: "n" + text),
    }
)
TASK = st.fixed_dictionaries(
    {
        "kind": st.just("inference"),
        "num_gpus": st.just(1),
        "duration_s": st.floats(0, 1e12, exclude_min=True),
        "service": TEXT.map(lambda text: "s" + text),
        "start_up_s": st.one_of(st.just(math.nan), SECONDS),
    }
)
ROW = JOB | st.builds(lambda job, task: job | task, JOB, TASK)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs=st.lists(ROW, min_size=1, max_size=6), provenance=TEXT)
def test_round_trip_is_exact(tmp_path, jobs, provenance):
    provenance = " ".join(provenance.split())
    trace = make_trace("round", pd.DataFrame(jobs), provenance)
    write_trace(trace, tmp_path / "round.csv")
    again = load_trace(tmp_path / "round.csv")
    pd.testing.assert_frame_equal(again.jobs, trace.jobs, check_exact=True)
    assert again.provenance == provenance
    assert again.name == "round"


def test_only_columns_that_say_something_are_written(tmp_path):
    trace = make_trace("t", {"arrival_s": [0.5], "num_gpus": [2], "duration_s": [0.1], "tenant": ["a,b"]})
    write_trace(trace, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == (
        'job_id,kind,arrival_s,num_gpus,duration_s,tenant\n0,training,0.5,2,0.1,"a,b"\n'
    )


def test_minimal_file_with_defaults_comment_and_crlf(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes(
        b"# from a log\r\n\r\narrival_s,num_gpus,duration_s,colour,code\r\n3,1,5,red,007\r\n\r\n1,2,6,,010"
    )
    trace = load_trace(path)
    assert trace.provenance == "from a log"
    assert trace.jobs["job_id"].tolist() == ["1", "0"]
    assert trace.jobs["arrival_s"].tolist() == [1.0, 3.0]
    assert trace.jobs["colour"].tolist() == ["", "red"]
    assert trace.jobs["code"].tolist() == ["010", "007"], "identifiers keep their zeros"


def test_a_first_arrival_after_zero_is_kept(tmp_path):
    path = tmp_path / "late.csv"
    path.write_text("arrival_s,num_gpus,duration_s\n100,1,5\n5000,1,5\n")
    assert load_trace(path).jobs["arrival_s"].tolist() == [100.0, 5000.0]


def test_a_failed_write_leaves_no_file_and_keeps_the_old_one(tmp_path):
    trace = make_trace("t", {"arrival_s": [0.0], "num_gpus": [1], "duration_s": [1.0]})
    with pytest.raises(TraceError, match="cannot be written"):
        write_trace(trace, tmp_path / "absent" / "t.csv")
    with pytest.raises(TraceError, match="cannot be written"):
        write_trace(trace, Path(__file__) / "t.csv")
    (tmp_path / "folder").mkdir()
    with pytest.raises(TraceError, match="cannot be written"):
        write_trace(trace, tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_write_cut_short_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("old")
    trace = make_trace("t", {"arrival_s": [0.0], "num_gpus": [1], "duration_s": [1.0]})

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full_disk)
    with pytest.raises(TraceError, match="No space left"):
        write_trace(trace, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
