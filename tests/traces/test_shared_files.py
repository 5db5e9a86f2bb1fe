"""The real files, against the statistics in the design page on traces (shared/design/traces.md)."""

from __future__ import annotations

import numpy as np
import pytest

from traces import TraceError, load_trace, statistics
from traces.services import START_UP_S, start_up_times


@pytest.fixture(scope="module")
def folder(shared):
    return shared / "data" / "traces"


def test_philly_flat_file(folder):
    trace = load_trace(folder / "philly" / "philly_flat_full.csv")
    jobs, facts = trace.jobs, statistics(trace)
    assert len(trace) == 82_247
    assert trace.skipped == {}
    assert facts["mean_gpus"] == pytest.approx(1.30, abs=0.005)
    assert facts["single_gpu_share"] == pytest.approx(0.9317, abs=5e-5)
    assert jobs["duration_s"].quantile([0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99]).round().tolist() == pytest.approx(
        [61, 115, 1144, 2932, 11265, 43646, 254758], abs=1
    )
    assert facts["mean_duration_s"] == pytest.approx(13_136, abs=1)
    assert facts["max_duration_s"] == 4_628_226
    assert facts["mean_gap_s"] == pytest.approx(114, abs=0.5)
    assert facts["median_gap_s"] == 8
    assert facts["zero_gap_share"] == pytest.approx(0.081, abs=5e-4)
    assert facts["cv_gap"] == pytest.approx(15.1, abs=0.05)
    assert jobs["tenant"].nunique() == 15
    assert (jobs["tenant"] == "6214e9").mean() == pytest.approx(0.501, abs=5e-4)
    assert jobs["job_id"].is_unique
    work = (jobs["num_gpus"] * jobs["duration_s"]).groupby(jobs["num_gpus"]).sum()
    assert (100 * work / work.sum())[[1, 4, 8, 16]].tolist() == pytest.approx([18.1, 16.7, 48.4, 11.5], abs=0.05)
    # The row that a loader must keep as it is: 53.6 days on 8 GPUs (3.18).
    assert jobs["num_gpus"].iloc[int(jobs["duration_s"].argmax())] == 8


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("head5000", 5000),
        ("exact_duplicate_rows", None),
        ("outliers", None),
        ("dst_window_2017-11-04_06", None),
    ],
)
def test_philly_excerpts_lose_no_row(folder, name, rows):
    path = folder / "philly" / f"philly_flat_sia.{name}.csv"
    lines = [line for line in path.read_text().splitlines()[1:] if line]
    assert len(load_trace(path)) == len(lines)
    assert rows in (None, len(lines))


def test_tiresias_jobs(folder):
    trace = load_trace(folder / "tiresias" / "60_job.csv")
    assert len(trace) == 60
    assert trace.jobs.iloc[1][["num_gpus", "arrival_s", "duration_s", "iterations"]].tolist() == [8, 30, 147, 133]
    again = load_trace(folder / "tiresias" / "tf_job.csv")
    assert again.jobs["job_id"].tolist() == ["10", "10~2"]


@pytest.mark.parametrize("name", ["yarn-gput1000.csv", "n32g4.csv", "cluster_spec.csv"])
def test_files_beside_the_traces_are_no_traces(folder, name):
    with pytest.raises(TraceError, match="which no reader knows"):
        load_trace(folder / "tiresias" / name)


def test_chronus_is_not_taken_for_tiresias(folder):
    path = folder / "philly" / "chronus_trace_job_Philly_SLO.zero_gpu_rows.csv"
    with pytest.raises(TraceError, match="which no reader knows"):
        load_trace(path)
    with pytest.raises(TraceError, match="all 205 rows ask for 0 GPUs"):
        load_trace(path, fmt="tiresias")


POLLUX = {"workloads-0.5": 80, "workloads": 160, "workloads-1.5": 240, "workloads-2.0": 320, "workloads-realistic": 160}


@pytest.mark.parametrize(("name", "rows"), POLLUX.items())
def test_pollux_workloads(folder, name, rows):
    paths = sorted((folder / "pollux_osdi21" / name).glob("*.csv"))
    assert len(paths) == 8
    for path in paths:
        trace = load_trace(path)
        facts = statistics(trace)
        assert len(trace) == rows
        assert trace.jobs["arrival_s"].iloc[0] > 0
        # 174 s for 160 jobs in 8 hours, and in proportion for the others.
        assert facts["mean_gap_s"] == pytest.approx(174 * 160 / rows, rel=0.07), path
        assert trace.jobs["duration_s"].isna().all()


def test_pollux_workload_1_by_application(folder):
    jobs = load_trace(folder / "pollux_osdi21" / "workloads" / "workload-1.csv").jobs
    counts = jobs["num_gpus"].value_counts().to_dict()
    assert counts == {1: 68, 12: 26, 6: 22, 16: 19, 8: 18, 4: 3, 32: 3, 24: 1}
    hourly = np.bincount((jobs["arrival_s"] // 3600).astype(int))
    assert hourly.tolist() == [22, 15, 10, 21, 27, 33, 16, 16]


@pytest.mark.parametrize(("name", "files", "rows"), [("philly", 8, 160), ("saturn", 10, 160), ("newtrace", 1, 960)])
def test_sia_workloads(folder, name, files, rows):
    paths = sorted((folder / "sia" / name).glob("*.csv"))
    assert len(paths) == files
    for path in paths:
        trace = load_trace(path)
        assert len(trace) == rows
        assert statistics(trace)["mean_gap_s"] == pytest.approx(174, rel=0.05), path


def test_sia_newtrace_keeps_fractions_of_a_second(folder):
    assert load_trace(folder / "sia" / "newtrace" / "workload-1.csv").jobs["arrival_s"][0] == 487.661836


@pytest.mark.parametrize(
    ("name", "tasks", "gap_s", "longest_s", "services"), [("small", 3200, 17.3, 9, 6), ("middle", 16_000, 3.46, 19, 18)]
)
def test_deepboot_mixed_workloads(folder, name, tasks, gap_s, longest_s, services):
    trace = load_trace(folder / "deepboot" / f"{name}.csv")
    jobs, facts = trace.jobs, statistics(trace, "inference")
    inference = jobs["kind"] == "inference"
    assert (len(trace), inference.sum()) == (tasks + 160, tasks)
    assert facts["mean_gap_s"] == pytest.approx(gap_s, abs=0.01)
    assert facts["cv_gap"] == pytest.approx(1.0, abs=0.03)
    durations = jobs.loc[inference, "duration_s"]
    assert (durations.min(), durations.max()) == (1, longest_s)
    assert jobs.loc[inference, "service"].nunique() == services
    # Training rows are those of Pollux's first workload, row for row (their duration is a filler).
    pollux = load_trace(folder / "pollux_osdi21" / "workloads" / "workload-1.csv").jobs
    training = jobs[~inference].reset_index(drop=True)
    for column in ("arrival_s", "model", "num_gpus"):
        assert training[column].tolist() == pollux[column].tolist()
    assert training["duration_s"].isna().all()


@pytest.mark.parametrize("name", ["small", "middle"])
def test_every_deepboot_task_has_a_start_up(folder, name):
    trace = load_trace(folder / "deepboot" / f"{name}.csv")
    times = start_up_times(trace)
    tasks = trace.jobs["kind"] == "inference"
    assert np.isnan(times[~tasks]).all()
    by_model = {model: set(times[tasks & (trace.jobs["model"] == model)]) for model in START_UP_S}
    assert by_model == {"bert": {8}, "cifar10": {6}, "imagenet": {6}, "yolov3": {6}, "deepspeech2": {4}, "ncf": {4}}


def test_deepboot_training_alone(folder):
    trace = load_trace(folder / "deepboot" / "pure_train.csv")
    assert len(trace) == 160
    assert trace.jobs["duration_s"].isna().all()


def test_deepboot_tasks_that_share_a_second_all_arrive(folder):
    jobs = load_trace(folder / "deepboot" / "middle.csv").jobs
    assert jobs["arrival_s"].duplicated().sum() == 2155
    assert len(jobs) == 16_160
