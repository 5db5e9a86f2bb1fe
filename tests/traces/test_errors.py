"""Input that cannot be read: one sentence that names what is at fault."""

from __future__ import annotations

import pytest

from traces import READERS, TraceError, load_trace

OURS = "job_id,kind,arrival_s,num_gpus,duration_s\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,vc\n"
TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
SLOWED = OURS.replace("\n", ",comm_share,sensitivity\n")
POLLUX = "name,time,application,num_replicas,batch_size\n"
DEEPBOOT = "name,time,application,num_replicas,batch_size,duration\n"


@pytest.fixture
def failure(tmp_path):
    """The message with which loading a file of these bytes fails, without the path."""

    def message(data, **options):
        path = tmp_path / "bad.csv"
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        with pytest.raises(TraceError) as error:
            load_trace(path, **options)
        assert "\n" not in str(error.value)
        assert "bad" in str(error.value)
        return str(error.value).replace(str(path), "FILE")

    return message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "FILE is empty"),
        ("\n \n", "FILE is empty"),
        ("# only a comment", "FILE is empty"),
        (OURS, "FILE has a header but no rows"),
        (OURS + "\n\n", "FILE has a header but no rows"),
        (b"\x1f\x8b\x08\x00\x00", "FILE is a binary file, expected CSV text"),
        (b"arrival_s,num_gpus\n\xff,1\n", "FILE is not UTF-8 text (byte 19), expected CSV text"),
        (OURS + "a,,0,1\n", "FILE, line 2: 4 fields, but the header has 5"),
        ("# note\n" + OURS + "\na,,0,1,5,6\n", "FILE, line 4: 6 fields, but the header has 5"),
        (OURS + 'a,,0,1,"5\n', "FILE, line 2: not a CSV row"),
        ("arrival_s,num_gpus,num_gpus\n1,1,1\n", "FILE: the header has num_gpus twice"),
        ("arrival_s,num_gpus,\n1,1,1\n", "FILE: the header has an empty name"),
        (OURS + "a,,0,1,5\nb,,x,1,5\n", "FILE, line 3: arrival_s is 'x', expected a number"),
        ("# note\n" + OURS + "\na,,0,1,5\nb,,-1,1,5\n", "FILE, line 5: arrival_s -1.0 must be a finite time >= 0"),
        (OURS + "a,,0,1,-5\n", "FILE, line 2: duration_s -5.0 must be"),
        (OURS + "a,,0,1,\n", "FILE, line 2: duration_s is missing and no model is given"),
        (OURS + "a,,0,-1,5\n", "FILE, line 2: num_gpus -1 must lie between 1"),
        (OURS + "a,,0,1.5,5\n", "FILE, line 2: num_gpus is '1.5', expected a whole number"),
        (OURS + "a,,0,,5\n", "FILE, line 2: num_gpus is '', expected a number"),
        (OURS + "a,,0,0,5\n", "FILE has no GPU jobs: all 1 rows ask for 0 GPUs"),
        (OURS + "a,,0,1,5\na,,1,1,5\n", "FILE, line 3: job_id a occurs twice"),
        (OURS + "a,batch,0,1,5\n", "FILE, line 2: kind batch must be training or inference"),
        (OURS + "a,inference,0,1,5\n", "FILE, line 2: service is empty, but an inference task needs one"),
        (OURS + "a,,0,1,5\n\nb,inference,0,1,\n", "FILE, line 4: service is empty"),
        (SLOWED + "a,,0,1,5,0.2,\nb,,0,1,5,2,\n", "FILE, line 3: comm_share 2.0 must be at least 0 and below 1"),
        (
            SLOWED + "a,,0,1,5,,lstm\nb,,0,1,5,,resnet\n",
            "FILE, line 3: sensitivity resnet has no row in traces/sensitivity.py (did you mean resnet56?); known: ",
        ),
        (PHILLY + "2017-10-09 07:01:55,-3,1,3,a\n", "FILE, line 2: duration is -3, expected a time >= 0"),
        (PHILLY + "2017-10-09 07:01:55,,1,3,a\n", "FILE, line 2: duration is '', expected a number"),
        (
            PHILLY + "2017-10-09 07:01:55 PDT,3,1,3,a\n",
            "FILE, line 2: timestamp is '2017-10-09 07:01:55 PDT', expected",
        ),
        (PHILLY + "None,3,1,3,a\n", "FILE, line 2: timestamp is 'None', expected a time like"),
        (PHILLY + "2017-10-09 07:01:55,3,-2,3,a\n", "FILE, line 2: num_gpus -2 must lie"),
        (TIRESIAS + "0,1,-792,1,m,5,1\n", "FILE, line 2: submit_time is -792, expected a time >= 0"),
        (TIRESIAS + "0,1,0,1,m,inf,1\n", "FILE, line 2: duration is 'inf', expected a number"),
        (TIRESIAS + "0,1,0,1,m,5,1\n1,two,0,1,m,5,1\n", "FILE, line 3: num_gpu is 'two', expected a number"),
        (POLLUX + "a,-1,bert,4,12\n", "FILE, line 2: time is -1, expected a time >= 0"),
        (POLLUX + "a,1,bert,4,big\n", "FILE, line 2: batch_size is 'big', expected a whole number"),
        (
            DEEPBOOT + "a,1,bert,4,12,-1\ni,2,infer-ncf-1,1,1,-1.0\n",
            "FILE, line 3: duration is -1.0, expected a time >= 0",
        ),
        (DEEPBOOT + "a,1,bert,4,12,-1\ni,2,infer-ncf-1,1,1,0\n", "FILE, line 3: duration_s 0.0 must be > 0 for an"),
        (DEEPBOOT + "i,2,infer-ncf-1,1,1,\n", "FILE, line 2: duration is '', expected a number"),
        (DEEPBOOT + "i,2,infer-ncf-1,2,1,5\n", "FILE, line 2: num_gpus 2 must be 1 for an inference task"),
    ],
)
def test_bad_content(failure, data, message):
    assert failure(data).startswith(message)


def test_unknown_header_lists_the_known_ones(failure):
    message = failure("duration\n121\n")
    assert message.startswith("FILE has the header duration, which no reader knows")
    for name, reader in READERS.items():
        assert f"{name}: {reader.header}" in message


def test_a_forced_format_names_the_column_it_misses(failure):
    assert failure(OURS + "a,,0,1,5\n", fmt="philly") == (
        "FILE has no column timestamp, only job_id, kind, arrival_s, num_gpus, duration_s"
    )


def test_unknown_format_name(tmp_path):
    with pytest.raises(TraceError, match="unknown trace format 'swf'; known: musher, tiresias, philly, pollux"):
        load_trace(tmp_path / "any.csv", fmt="swf")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(TraceError, match=r"absent\.csv does not exist"):
        load_trace(tmp_path / "absent.csv")
    with pytest.raises(TraceError, match="is a folder, expected a trace file"):
        load_trace(tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("synthetic-phily", "did you mean synthetic-philly?"),
        ("nonsense", "built in: synthetic-philly, synthetic-philly-dense, synthetic-pollux, "),
        ("synthetic-philly?job=3", "synthetic-philly has no parameter 'job'; it takes jobs, seed, mean_gap_s"),
        ("synthetic-philly?jobs", "synthetic-philly: jobs is '', expected a whole number"),
        ("synthetic-philly?jobs=1.5", "synthetic-philly: jobs is '1.5', expected a whole number"),
        ("synthetic-philly?jobs=0", "synthetic-philly: jobs is 0, expected 1 to 10000000"),
        ("synthetic-philly?seed=-1", "synthetic-philly: seed is -1, expected a whole number >= 0"),
        ("synthetic-philly?mean_gap_s=0", "synthetic-philly: mean_gap_s is 0, expected a time above 0"),
        ("synthetic-philly?mean_gap_s=nan", "synthetic-philly: mean_gap_s is nan, expected a time above 0"),
        ("toy-two-jobs?jobs=3", "toy-two-jobs takes no parameters"),
    ],
)
def test_built_in_workloads(source, message):
    with pytest.raises(TraceError) as error:
        load_trace(source)
    assert message in str(error.value)


def test_a_format_cannot_be_forced_on_a_built_in_workload():
    with pytest.raises(TraceError, match="toy-two-jobs is a built-in workload"):
        load_trace("toy-two-jobs", fmt="philly")
