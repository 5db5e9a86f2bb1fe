"""``python -m traces``: what it prints, writes and returns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from traces import PUBLISHED, READERS, TOYS, load_trace
from traces.__main__ import main

PHILLY = "timestamp,duration,num_gpus,gpu_time,vc\n2017-09-19 16:00:00,5,0,0,a\n2017-09-19 16:00:10,50,2,100,[b]\n"


@pytest.fixture
def philly(tmp_path):
    path = tmp_path / "philly.csv"
    path.write_text(PHILLY + "2017-09-19 16:00:30,7,4,28,c\n")
    return str(path)


def test_info_prints_the_main_numbers(philly, capsys):
    assert main(["info", philly, "--cluster-gpus", "8"]) == 0
    out = capsys.readouterr().out
    # GPU-time 2 x 50 + 4 x 7 = 128 GPU-s over 8 GPUs for 20 s
    assert "offered load on 8 GPUs: 0.800" in out
    assert "asks for 0 GPUs" in out
    assert "[b]" in out
    for quantity in ("mean GPUs", "duration p50 [s]", "CV of gaps", "% of GPU-time", "tenant"):
        assert quantity in out


def test_info_separates_training_from_inference(tmp_path, capsys):
    path = tmp_path / "mixed.csv"
    path.write_text(
        "name,time,application,num_replicas,batch_size,duration\na,0,bert,4,12,-1\nb,1,infer-bert-1,1,1,8\n"
    )
    assert main(["info", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    header = next(line for line in lines if "quantity" in line)
    assert header.index("training") < header.index("inference")
    for title in ("GPUs (training)", "model (training)", "model (inference)", "service (inference)"):
        at = next(number for number, line in enumerate(lines) if title in line)
        # One job of each kind, so each division has one row, which is all of that kind.
        assert "100.00" in lines[at + 2], title
        assert lines[at + 3].startswith("└"), title


def test_convert_writes_our_format_and_says_what_changed(philly, tmp_path, capsys):
    out = tmp_path / "out.csv"
    assert main(["convert", philly, str(out), "--max-duration-s", "10"]) == 0
    assert "2 jobs; 1 rows left out: asks for 0 GPUs; 1 rows changed: duration cut to 10 s" in capsys.readouterr().out
    trace = load_trace(out)
    assert trace.jobs["duration_s"].tolist() == [10.0, 7.0]
    assert "asks for 0 GPUs" in trace.provenance
    assert load_trace(philly).jobs["tenant"].equals(trace.jobs["tenant"])


def test_generate_takes_parameters_from_flags_and_name(tmp_path):
    out = tmp_path / "out.csv"
    assert main(["generate", "synthetic-philly?seed=4", str(out), "--jobs", "50", "--mean-gap-s", "7.5"]) == 0
    assert load_trace(out).jobs.equals(load_trace("synthetic-philly?jobs=50,seed=4,mean_gap_s=7.5").jobs)
    assert main(["generate", "toy-packing", str(out)]) == 0
    assert load_trace(out).jobs.equals(TOYS["toy-packing"].trace.jobs)


def test_list_names_everything(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    for name in (*READERS, *TOYS, *PUBLISHED, "synthetic-philly-dense"):
        assert name in out


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_fetch_gives_directions(name, capsys):
    assert main(["fetch", name]) == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    entry = PUBLISHED[name]
    for text in (entry.where, entry.licence, entry.files):
        assert text in out
    assert entry.reader == "" or entry.reader in READERS


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "Expected one of {info, convert, generate, list, fetch, fit, profile-layers, measure-freezing}"),
        (["inform"], "inform"),
        (["info"], "PATH|NAME"),
        (["info", "x", "--cluster-gpus", "many"], "--cluster-gpus"),
        (["info", "x", "--bogus"], "--bogus"),
        (["info", "toy-packing", "--cluster-gpus", "0"], "cluster_gpus is 0, expected at least 1"),
        (["info", "absent.csv"], "absent.csv does not exist"),
        (["info", "toy-pack"], "did you mean toy-packing?"),
        (["convert", "toy-packing", "absent/out.csv"], "absent/out.csv cannot be written"),
        (["generate", "toy-packing", "out.csv", "--jobs", "3"], "toy-packing takes no parameters"),
        (["generate", "mine.csv", "out.csv"], "'mine.csv' is not a built-in workload"),
        (["fetch", "phily"], "did you mean philly?"),
    ],
)
def test_errors_are_one_line_and_code_2(arguments, reason, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert reason in captured.err
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("python -m traces: ")
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_returns_130(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("traces.__main__.load_trace", interrupted)
    assert main(["info", "toy-packing"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_as_a_process_outside_the_test(tmp_path):
    root = Path(__file__).resolve().parents[2]
    bad = subprocess.run(
        [sys.executable, "-m", "traces", "info", str(tmp_path)], cwd=root, capture_output=True, text=True, check=False
    )
    assert bad.returncode == 2
    assert bad.stderr == f"python -m traces: {tmp_path} is a folder, expected a trace file\n"
