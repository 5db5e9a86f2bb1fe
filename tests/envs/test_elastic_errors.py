"""What users get wrong about elastic jobs is answered with one sentence that names the row and the field."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evaluate
from envs.env import ClusterEnv
from envs.order import Key, ListOrder
from envs.settings import EnvSettings
from envs.spec import SCENARIOS, ClusterSpec, SimConfig, SpecError
from envs.workload import make_workload
from tests.envs.elastic_core_support import EVERY_10, jobs, linear, play
from traces.profiles import load_profiles
from traces.trace import TraceError

HEADER = "job_id,arrival_s,num_gpus,model,batch_size,max_gpus,share_milli,gpu_type"
GOOD_ROW = "a,0,2,bert,48,,,"


def refusal(*rows: tuple[int, float, float | None], cluster: str = "2x4", tuned: bool = False, **columns: Any) -> str:
    """Why the second job (the first is well) makes a workload impossible."""
    trace = jobs((1, 0, None), *rows, **columns)
    with pytest.raises(TraceError) as caught:
        make_workload(trace, ClusterSpec.parse(cluster), SimConfig(), 0, tuned, {"m": linear(9), "n": linear(9)})
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("row", "columns", "text"),
    [
        ((1, 0, None), {"model": ["m", "mm"]}, "job 1: model 'mm' has no profile (did you mean m?); known: m, n"),
        ((1, 0, None), {"model": ["m", "xyz"]}, "job 1: model 'xyz' has no profile; known: m, n"),
        (
            (1, 0, None),
            {"batch_size": [0, 4]},
            "job 1: batch_size 4 of model m must lie between 8 and 64",
        ),
        ((1, 0, None), {"batch_size": [0, 65]}, "job 1: batch_size 65 of model m must lie between 8 and 64"),
        (
            (9, 0, None),
            {"batch_size": [0, 8]},
            "job 1: num_gpus 9 is more than a batch of 8 in parts of at least 1 allows (8)",
        ),
        ((3, 0, None), {"max_gpus": [0, 2]}, "job 1: num_gpus 3 is more than its max_gpus allows (2)"),
        ((65, 0, None), {}, "job 1: num_gpus 65 is more than"),
        (
            (1, 0, None),
            {"share_milli": [1000, 500]},
            "job 1: share_milli must be 1000, since an elastic job holds whole",
        ),
    ],
)
def test_jobs(row: Any, columns: dict[str, Any], text: str):
    assert refusal(row, **columns).startswith(f"trace hand, {text}")


def test_the_job_is_named_by_its_id():
    assert refusal((1, 0, None), model=["m", "x"], job_id=["first", "second"]).startswith(
        "trace hand, job second: model"
    )


def test_a_gpu_type_without_a_profile():
    text = "trace hand, job 0: model m has no profile of GPU type 'tpu'; it has aws"
    assert refusal((1, 0, None), cluster="2x4+1x2:tpu") == text
    # Names in other spellings are known.
    for name in ("aws", "T4", "t4"):
        make_workload(jobs((1, 0, None)), ClusterSpec.parse(f"1x4:{name}"), SimConfig(), 0, False, {"m": linear(9)})


def test_a_type_that_the_cluster_lacks_is_rejected_not_refused():
    result = play(jobs((1, 0, None), gpu_type=["rtx"]), "1x4:aws", ListOrder(Key.ARRIVAL), EVERY_10, linear(9))
    assert result.jobs["status"].tolist() == ["rejected"]


def test_tuned_jobs_may_ask_for_what_the_largest_batch_allows():
    trace = jobs((20, 0, None), batch_size=[8])
    arguments = (trace, ClusterSpec.parse("8x4"), SimConfig(), 0)
    with pytest.raises(TraceError, match=r"num_gpus 20 is more than a batch of 8 in parts of at least 1 allows \(8\)"):
        make_workload(*arguments, False, {"m": linear(9)})
    assert make_workload(*arguments, True, {"m": linear(9)}).jobs["max_gpus"].tolist() == [64]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"scenario": "elastics"}, "unknown scenario 'elastics'; known: " + ", ".join(SCENARIOS)),
        ({"action": "weight"}, "unknown action 'weight'; known: edits, weights"),
    ],
)
def test_settings(wrong: dict[str, Any], text: str):
    with pytest.raises(SpecError) as caught:
        EnvSettings(**wrong)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"interference": 1.0}, "sim.interference must lie in [0, 1), not 1.0"),
        ({"interference": -0.1}, "sim.interference must lie in [0, 1), not -0.1"),
        ({"node_mtbf_s": -1.0}, "sim.node_mtbf_s must be a finite time >= 0, not -1.0"),
        ({"node_mttr_s": np.inf}, "sim.node_mttr_s must be a finite time >= 0, not inf"),
    ],
)
def test_simulator_settings(wrong: dict[str, Any], text: str):
    with pytest.raises(SpecError) as caught:
        replace(SimConfig(), **wrong)
    assert str(caught.value) == text


def test_an_environment_names_the_job_too():
    trace = jobs((1, 0, None), model=["bret"])
    with pytest.raises(TraceError, match=r"job 0: model 'bret' has no profile \(did you mean bert\?\); known: bert"):
        ClusterEnv(scenario="elastic", trace=trace)


# --- evaluate.py ---


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_trace(*rows: str) -> None:
    Path("jobs.csv").write_text("\n".join([HEADER, GOOD_ROW, *rows]) + "\n")


def fails(capsys: pytest.CaptureFixture[str], text: str = "") -> str:
    """The one sentence on stderr with which evaluate.py ends."""
    common = "--scenario elastic --trace jobs.csv --trace-format musher --cluster 2x4 --policies fifo --out eval "
    assert evaluate.main((common + text).split()) == 2
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if not line.startswith(("Compiling", "⠋")) and line.strip()]
    errors = [line for line in lines if line.startswith("evaluate.py: ")]
    assert errors == lines[-1:]
    assert "Traceback" not in printed.err
    return errors[0].removeprefix("evaluate.py: ")


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("b,1,2,bart,48,,,", "trace jobs, job b: model 'bart' has no profile (did you mean bert?); known: bert, "),
        ("b,1,2,bert,9,,,", "trace jobs, job b: batch_size 9 of model bert must lie between 12 and 384"),
        (
            "b,1,13,bert,48,,,",
            "trace jobs, job b: num_gpus 13 is more than a batch of 48 in parts of at least 4 allows (12)",
        ),
        ("b,1,1,bert,48,,500,", "trace jobs, job b: share_milli must be 1000"),
        ("b,1,1,,,,,", "duration_s"),
        ("b,1,x,bert,48,,,", "num_gpus"),
    ],
)
def test_rows_of_a_trace(folder: Path, capsys: pytest.CaptureFixture[str], row: str, text: str):
    write_trace(row)
    assert text in fails(capsys)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ("--cluster 2x4:tpu", "job a: model bert has no profile of GPU type 'tpu'; it has aws, "),
        ("--sim.knowledge all", "invalid choice 'all'"),
        ("--sim.batch big", "invalid choice 'big'"),
        ("--sim.rescale-cost free", "invalid choice 'free'"),
        ("--sim.interference 1", "sim.interference must lie in [0, 1), not 1.0"),
        ("--sim.node-mtbf-s -1", "sim.node_mtbf_s must be a finite time >= 0, not -1"),
        ("--profiles nowhere", "nowhere"),
    ],
)
def test_flags(folder: Path, capsys: pytest.CaptureFixture[str], flags: str, text: str):
    write_trace()
    assert text in fails(capsys, flags)


def test_an_unknown_scenario(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert evaluate.main(["--scenario", "elastik"]) == 2
    error = capsys.readouterr().err
    assert error == f"evaluate.py: unknown scenario 'elastik'; known are {', '.join(SCENARIOS)}\n"


def copy_profiles(shared: Path, folder: Path) -> Path:
    """A folder of one's own with the measurements of bert."""
    shutil.copytree(shared / "data" / "profiles" / "pollux_osdi21" / "bert", folder / "mine" / "bert")
    return folder / "mine" / "bert"


def test_a_folder_of_profiles_without_the_model(folder: Path, shared: Path, capsys: pytest.CaptureFixture[str]):
    copy_profiles(shared, folder)
    write_trace("b,1,2,cifar10,1024,,,")
    assert fails(capsys, "--profiles mine") == "trace jobs, job b: model 'cifar10' has no profile; known: bert"


def test_a_folder_of_profiles_without_a_column(folder: Path, shared: Path, capsys: pytest.CaptureFixture[str]):
    path = copy_profiles(shared, folder) / "placements.csv"
    path.write_text(path.read_text().replace("sync_time", "sink_time", 1))
    write_trace()
    text = fails(capsys, "--profiles mine")
    assert "placements.csv" in text
    assert "sync_time" in text


def test_a_folder_of_profiles_with_a_bad_cell(folder: Path, shared: Path, capsys: pytest.CaptureFixture[str]):
    path = copy_profiles(shared, folder) / "scalability.csv"
    lines = path.read_text().splitlines()
    at = lines[0].split(",").index("step_time")
    cells = lines[3].split(",")
    cells[at] = "fast"
    path.write_text("\n".join([*lines[:3], ",".join(cells), *lines[4:]]) + "\n")
    write_trace()
    text = fails(capsys, "--profiles mine")
    assert "scalability.csv" in text
    assert "line 4" in text
    assert "step_time" in text
    assert "'fast'" in text


@pytest.mark.parametrize("name", ["placements.csv", "scalability.csv", "validation-384.csv"])
def test_a_folder_of_profiles_without_a_file(folder: Path, shared: Path, capsys: pytest.CaptureFixture[str], name: str):
    path = copy_profiles(shared, folder)
    for file in path.glob("validation-*.csv") if name.startswith("val") else [path / name]:
        file.unlink()
    write_trace()
    assert f"has no file {name.replace('384', '<total batch>')}" in fails(capsys, "--profiles mine")


def test_good_profiles_are_used_and_noted(folder: Path, shared: Path):
    copy_profiles(shared, folder)
    write_trace()
    common = "--scenario elastic --trace jobs.csv --cluster 2x4 --policies fifo --out eval --profiles mine"
    assert evaluate.main(common.split()) == 0
    assert json.loads(Path("eval/config.json").read_text())["arguments"]["profiles"] == "mine"
    assert set(load_profiles()) > {"bert"}
