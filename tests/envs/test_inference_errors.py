"""What users get wrong about inference is answered with one sentence that names the row and the field."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import evaluate
from envs.simulate import simulate
from envs.spec import ClusterSpec, SimConfig, SpecError
from tests.envs.core_support import Listed
from tests.envs.elastic_core_support import ARRIVAL
from traces.load import load_trace
from traces.trace import Trace, TraceError, make_trace

TASK: dict[str, Any] = {
    "job_id": "task", "kind": "inference", "arrival_s": 3.0, "num_gpus": 1, "duration_s": 2.0, "share_milli": 1000,
    "model": "bert", "service": "s", "start_up_s": math.nan, "gpu_type": "",
}  # fmt: skip
JOB = TASK | {"job_id": "job", "kind": "training", "model": "", "service": ""}
WRONG_ROWS = [
    ({"service": ""}, "service is empty, but an inference task needs one"),
    ({"duration_s": -2.0}, "duration_s -2.0 must be a finite time >= 0"),
    ({"duration_s": math.inf}, "duration_s inf must be a finite time >= 0"),
    ({"duration_s": 0.0}, "duration_s 0.0 must be > 0 for an inference task"),
    ({"duration_s": math.nan}, "duration_s is missing, but an inference task needs one"),
    ({"num_gpus": 2}, "num_gpus 2 must be 1 for an inference task"),
    ({"share_milli": 500}, "share_milli 500 must be 1000 for an inference task"),
    ({"gpu_type": "aws"}, "gpu_type aws must be empty for an inference task"),
    ({"start_up_s": -1.0}, "start_up_s -1.0 must be a finite time >= 0"),
    ({"start_up_s": math.inf}, "start_up_s inf must be a finite time >= 0"),
    ({"kind": "serving"}, "kind serving must be training or inference"),
    ({"kind": "training"}, "service s must be empty for a training job"),
    ({"kind": "training", "service": "", "start_up_s": 4.0}, "start_up_s 4.0 must be empty for a training job"),
]


def trace_of(*rows: dict[str, Any]) -> Trace:
    """A trace of these rows after a good training job."""
    return make_trace("mine", {name: [row[name] for row in (JOB, *rows)] for name in TASK})


def task(number: int, **fields: Any) -> dict[str, Any]:
    return TASK | {"job_id": f"task-{number}"} | fields


def refusal(trace: Trace, cluster: str = "2x2", **config: Any) -> str:
    """Why a trace cannot be simulated."""
    with pytest.raises((TraceError, SpecError)) as caught:
        simulate(trace, ClusterSpec.parse(cluster), Listed(ARRIVAL), SimConfig(**config))
    text = str(caught.value)
    assert "\n" not in text
    return text


# --- rows ---


@pytest.mark.parametrize(("wrong", "text"), WRONG_ROWS)
def test_rows(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(TraceError) as caught:
        trace_of(task(1), TASK | wrong)
    assert str(caught.value) == f"trace mine, row 2: {text}"


@pytest.mark.parametrize(("wrong", "text"), WRONG_ROWS)
def test_lines_of_a_file(tmp_path: Path, wrong: dict[str, Any], text: str) -> None:
    """A comment, the header and two good rows come first."""
    path = tmp_path / "jobs.csv"
    rows = [[str(row[name]).replace("nan", "") for name in TASK] for row in (JOB, task(1), TASK | wrong)]
    path.write_text("\n".join(["# by hand", ",".join(TASK), *map(",".join, rows)]) + "\n")
    with pytest.raises(TraceError) as caught:
        load_trace(path)
    assert str(caught.value) == f"{path}, line 5: {text}"


def test_cells_that_are_no_numbers(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    head = "job_id,kind,arrival_s,num_gpus,duration_s,service,start_up_s\n"
    for row, text in (
        ("a,inference,0,1,soon,s,4", "duration_s is 'soon', expected a number"),
        ("a,inference,0,1,2,s,quick", "start_up_s is 'quick', expected a number"),
    ):
        path.write_text(head + row + "\n")
        with pytest.raises(TraceError) as caught:
            load_trace(path)
        assert str(caught.value) == f"{path}, line 2: {text}"


# --- services ---


def test_a_service_without_a_start_up_time() -> None:
    text = refusal(trace_of(task(1), task(2, model="gpt", service="t")))
    assert text.startswith(
        "trace mine, job task-2: start_up_s is missing, and model 'gpt' has no start-up time (known: bert, "
    )


def test_a_service_with_two_start_up_times() -> None:
    text = refusal(trace_of(task(1), task(2, start_up_s=3.0)))
    assert text == "trace mine, job task-2: start_up_s is 3, but 8 for job task-1 of the same service s"


def test_too_many_services() -> None:
    most = [task(i, service=f"s{i}") for i in range(64)]
    result = simulate(trace_of(*most), ClusterSpec.parse("2x2"), Listed(ARRIVAL), SimConfig())
    assert (result.jobs["status"] == "completed").all()
    text = refusal(trace_of(*most, task(64, service="s64")))
    assert text == "trace mine has 65 inference services, at most 64 are possible"


# --- settings ---


@pytest.mark.parametrize(
    ("cluster", "config", "text"),
    [
        ("1x4", {"reclaim": "lyra"}, "sim.reclaim lyra leaves inference no node to run on"),
        ("4x4", {"reclaim": "static", "inference_nodes": 0}, "sim.reclaim static leaves inference no node to run on"),
        (
            "2x2",
            {"reclaim": "lyra", "inference_nodes": 3},
            "sim.inference_nodes is 3, but cluster 2x2 has 2 nodes",
        ),
        (
            "2x2",
            {"node_mtbf_s": 3600.0},
            "sim.node_mtbf_s must be 0 with inference tasks, whose pods on failed nodes are not modelled",
        ),
        ("2x2", {"inference_nodes": -2}, "sim.inference_nodes must be -1 or a number of nodes, not -2"),
        ("2x2", {"protect_times": -0.5}, "sim.protect_times must be a finite number >= 0, not -0.5"),
        ("2x2", {"protect_times": math.inf}, "sim.protect_times must be a finite number >= 0, not inf"),
        ("2x2", {"slo_s": -1.0}, "sim.slo_s must be a finite time >= 0, not -1.0"),
    ],
)
def test_settings(cluster: str, config: dict[str, Any], text: str) -> None:
    assert refusal(trace_of(TASK), cluster, **config) == text


def test_settings_that_only_inference_needs() -> None:
    """Without tasks a cluster of one node may be shared by any rule, and nodes may fail."""
    for config in (SimConfig(reclaim="lyra"), SimConfig(node_mtbf_s=3600.0)):
        result = simulate(trace_of(), ClusterSpec.parse("1x4"), Listed(ARRIVAL), config)
        assert result.jobs["status"].tolist() == ["completed"]


# --- evaluate.py ---


@pytest.mark.parametrize(
    ("row", "flags", "text"),
    [
        ("b,inference,1,1,2,bert,,", "", "jobs.csv, line 3: service is empty, but an inference task needs one"),
        ("b,inference,1,1,2,gpt,s,", "", "trace jobs, job b: start_up_s is missing, and model 'gpt' has no"),
        ("b,inference,1,1,2,bert,s,", "--sim.reclaim lyra --cluster 1x4", "sim.reclaim lyra leaves inference no node"),
        ("b,inference,1,1,2,bert,s,", "--sim.inference-nodes 9", "sim.inference_nodes is 9, but cluster 2x4 has 2"),
        ("b,inference,1,1,2,bert,s,", "--sim.node-mtbf-s 9", "sim.node_mtbf_s must be 0 with inference tasks"),
    ],
)
def test_evaluate(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    row: str,
    flags: str,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    head = "job_id,kind,arrival_s,num_gpus,duration_s,model,service,start_up_s"
    Path("jobs.csv").write_text(f"{head}\na,training,0,1,5,,,\n{row}\n")
    command = f"--trace jobs.csv --cluster 2x4 --policies fifo --out eval {flags}"
    assert evaluate.main(command.split()) == 2
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    assert [line for line in printed.splitlines() if line.startswith(f"evaluate.py: {text}")], printed
