"""Small hand-made files in each foreign format, with the dirty rows that public traces have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traces import READERS, TraceError, load_trace

PHILLY = "timestamp,duration,num_gpus,gpu_time,vc\n"
TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
POLLUX = "name,time,application,num_replicas,batch_size\n"
DEEPBOOT = "name,time,application,num_replicas,batch_size,duration,num_task\n"


@pytest.fixture
def load(tmp_path):
    """Write text to a file and load it."""

    def write_and_load(text, **options):
        path = tmp_path / "input.csv"
        path.write_bytes(text.encode())
        return load_trace(path, **options)

    return write_and_load


def test_philly_rows_unsorted_blank_and_duplicate(load):
    text = PHILLY + (
        "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
        "2017-09-25 05:56:53,164.0,1,164.0,6214e9\n"
        "\n"
        "2017-09-25 05:56:53,164.0,1,164.0,6214e9\n"
        "2017-09-25 05:56:54,9.0,12,108.0,ee9e8c\n\n"
    )
    trace = load(text)
    assert trace.jobs["job_id"].tolist() == ["1", "2", "3", "0"], "row numbers in the file; equal rows are two jobs"
    # 14 days and 1:05:02 later
    assert trace.jobs["arrival_s"].tolist() == [0.0, 0.0, 1.0, 14 * 86400 + 3902.0]
    assert trace.jobs["num_gpus"].tolist() == [1, 1, 12, 1]
    assert trace.jobs["tenant"].tolist() == ["6214e9", "6214e9", "ee9e8c", "11cb48"]
    assert trace.jobs["gpu_time"].tolist() == [164.0, 164.0, 108.0, 66.0]
    assert "2017-09-25 05:56:53" in trace.provenance


def test_philly_times_are_wall_time_across_the_end_of_summer_time(load):
    rows = "2017-11-05 00:30:00,1,1,1,a\n2017-11-05 01:30:00,1,1,1,a\n2017-11-05 03:30:00,1,1,1,a\n"
    trace = load(PHILLY.replace("vc", "cluster") + rows)
    assert trace.jobs["arrival_s"].tolist() == [0.0, 3600.0, 3 * 3600.0]


def test_philly_huge_durations_are_kept_unless_capped(load):
    text = PHILLY + "2017-09-19 16:09:13,4628226.0,8,37025808.0,7f04ca\n2017-09-19 16:09:14,172800,1,172800,a\n"
    trace = load(text)
    assert trace.jobs["duration_s"].tolist() == [4628226.0, 172800.0]
    assert trace.notes == {}
    capped = load(text, max_duration_s=172_800)
    assert capped.jobs["duration_s"].tolist() == [172800.0, 172800.0]
    assert capped.notes == {"duration cut to 172800 s": 1}
    with pytest.raises(TraceError, match="max_duration_s is 0"):
        load(text, max_duration_s=0)


def test_cpu_jobs_are_left_out_and_counted(load):
    text = PHILLY + "2017-09-19 16:00:00,5,0,0,a\n2017-09-19 16:00:10,5,2,10,a\n2017-09-19 16:00:30,5,1,5,a\n"
    trace = load(text)
    assert trace.skipped == {"asks for 0 GPUs": 1}
    assert trace.jobs["arrival_s"].tolist() == [0.0, 20.0], "second 0 is the first job that is kept"
    assert trace.jobs["job_id"].tolist() == ["1", "2"]
    with pytest.raises(TraceError, match="has no GPU jobs: all 1 rows ask for 0 GPUs"):
        load(PHILLY + "2017-09-19 16:00:00,5,0,0,a\n")


def test_tiresias_with_crlf_and_labels(load):
    trace = load((TIRESIAS + "0,1,0,606,vgg19,164,30\n1,8,30,133,vgg11,147,23\n").replace("\n", "\r\n"))
    assert trace.jobs["num_gpus"].tolist() == [1, 8]
    assert trace.jobs["model_name"].tolist() == ["vgg19", "vgg11"]
    assert (trace.jobs["model"] == "").all(), "rigid jobs have no profile of ours"
    assert trace.jobs["iterations"].tolist() == [606, 133]
    assert trace.jobs["interval"].tolist() == [30, 23]


def test_tiresias_variant_with_repeated_ids(load):
    header = "job_id,num_gpu,submit_time,start_time,duration,model_size,aggr_interval,model_name,model_scale\n"
    rows = "10,12,11,14,20,400,0,vgg19,1\n10~2,1,12,14,5,400,0,vgg19,1\n10,12,11,14,20,400,0,vgg19,1"
    trace = load(header + rows)
    assert trace.jobs["job_id"].tolist() == ["10", "10~3", "10~2"]
    assert trace.notes == {"repeated job id made unique": 1}
    assert trace.jobs["model_size"].tolist() == [400] * 3


def test_pollux_rows_become_elastic_jobs(load):
    trace = load(POLLUX + "cifar10-0,487.661836,cifar10,6,2048\nbert-0,110,bert,12,384\n")
    assert trace.jobs["job_id"].tolist() == ["bert-0", "cifar10-0"]
    assert trace.jobs["model"].tolist() == ["bert", "cifar10"]
    assert trace.jobs["num_gpus"].tolist() == [12, 6]
    assert trace.jobs["batch_size"].tolist() == [384, 2048]
    assert trace.jobs["arrival_s"].tolist() == [110.0, 487.661836]
    assert trace.jobs["duration_s"].isna().all()


def test_deepboot_mixes_inference_and_training(load):
    rows = "inference-yolov3-1,3,infer-yolov3-1,1,1,8.0,1847\ncifar10-0,107,cifar10,6,2048,4.0,-1\n"
    trace = load(DEEPBOOT + rows + "cifar10-1,107,cifar10,6,2048,-1.0,-1\n")
    assert trace.jobs["kind"].tolist() == ["inference", "training", "training"]
    assert trace.jobs["service"].tolist() == ["infer-yolov3-1", "", ""]
    assert trace.jobs["model"].tolist() == ["yolov3", "cifar10", "cifar10"]
    assert trace.jobs["duration_s"][0] == 8.0
    assert trace.jobs["duration_s"][1:].isna().all(), "4.0 and -1.0 are fillers, not run times"
    assert trace.jobs["num_task"].tolist() == [1847, -1, -1]
    with pytest.raises(TraceError, match="line 2: duration is -1, expected a time >= 0"):
        load(DEEPBOOT + "i,3,infer-bert-1,1,1,-1,5\n")
    with pytest.raises(TraceError, match=r"line 2: duration_s 0\.0 must be > 0 for an inference task"):
        load(DEEPBOOT + "i,3,infer-bert-1,1,1,0,5\n")
    with pytest.raises(TraceError, match="line 3: an inference task needs a duration"):
        load(POLLUX + "c,1,cifar10,1,128\ni,3,infer-bert-1,1,1\n")


def test_a_column_named_like_ours_does_not_become_ours(load):
    trace = load(PHILLY.replace("gpu_time", "status") + "2017-09-19 16:00:00,5,1,odd,a\n")
    assert trace.jobs["status"].tolist() == [""]
    assert trace.jobs["source_status"].tolist() == ["odd"]


def test_equal_times_keep_the_order_of_the_file(load):
    rows = "".join(f"{i},1,{7 if i % 2 else 5},1,m,{i},1\n" for i in range(40))
    jobs = load(TIRESIAS + rows).jobs
    assert jobs["job_id"].tolist() == [str(i) for i in (*range(0, 40, 2), *range(1, 40, 2))]


def test_inference_tasks_in_our_own_format(load):
    text = "arrival_s,num_gpus,duration_s,kind,service,model,start_up_s\n"
    jobs = load(text + "0,4,9,,,,\n1,1,0.5,inference,chat,,12.5\n2,1,3,inference,infer-bert-1,bert,\n").jobs
    assert jobs["kind"].tolist() == ["training", "inference", "inference"]
    assert jobs["service"].tolist() == ["", "chat", "infer-bert-1"]
    assert jobs["start_up_s"][1] == 12.5
    assert jobs["start_up_s"].isna().tolist() == [True, False, True]


def test_a_start_up_in_a_foreign_file_is_not_ours(load):
    jobs = load(POLLUX.replace("\n", ",start_up_s\n") + "bert-0,110,bert,12,384,7\n").jobs
    assert jobs["start_up_s"].isna().all()
    assert jobs["source_start_up_s"].tolist() == [7]


ROWS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(1, 16), st.integers(1, 10**5)), min_size=1, max_size=12, unique=True
)
LINES = {
    "musher": ("arrival_s,num_gpus,duration_s,job_id\n", "{t},{g},{d},{i}"),
    "tiresias": (TIRESIAS, "{i},{g},{t},1,m,{d},1"),
    "philly": (PHILLY, "{when},{d},{g},0,{i}"),
    "pollux": (DEEPBOOT, "{i},{t},infer-bert-{g},1,1,{d},1"),
}


@pytest.mark.parametrize("fmt", list(READERS))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, order=st.randoms(use_true_random=False))
def test_a_shuffled_file_is_the_same_workload(load, fmt, rows, order):
    """Same jobs at the same times, in order of time; only jobs that arrive at one instant may change places."""
    header, form = LINES[fmt]
    lines = []
    for i, (t, g, d) in enumerate(sorted(rows)):
        when = str(np.datetime64("2017-10-01T00:00:00") + t).replace("T", " ")
        lines.append(form.format(t=t, g=g, d=d, i=f"j{i}", when=when))
    ordered = load(header + "\n".join(lines))
    order.shuffle(lines)
    shuffled = load(header + "\n".join(lines))
    assert np.all(np.diff(shuffled.jobs["arrival_s"]) >= 0)
    label = "tenant" if fmt == "philly" else "job_id"
    columns = [label, "kind", "arrival_s", "num_gpus", "duration_s"]
    by_label = [trace.jobs[columns].sort_values(label, ignore_index=True) for trace in (ordered, shuffled)]
    assert by_label[0].equals(by_label[1])
    assert len(shuffled) == len(rows)
