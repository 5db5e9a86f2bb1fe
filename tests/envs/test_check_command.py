"""``python -m envs check``: passes here, and notices what it is there to notice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from envs import __main__ as command
from envs.batch import Batch
from envs.simulate import RunResult, simulate
from envs.spec import ClusterSpec
from traces.load import load_trace


def recorded() -> RunResult:
    trace = load_trace("synthetic-philly?jobs=200")
    return simulate(trace, ClusterSpec.parse("4x4"), command.Shortest(), command.SIM, record=True)


def test_everything_passes(capsys):
    assert command.main(["check", "--speed-s", "0.01"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = shown.out.strip().splitlines()
    assert [line.partition("]")[0] for line in lines[1:]] == [f"[{i}/9" for i in range(1, 10)]
    assert "musher/Cluster-v0" in shown.out
    assert "environment steps and" in lines[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "check"),
        (["inspect"], "invalid choice 'inspect'"),
        (["check", "--speed-s", "0"], "--speed-s must be above 0"),
    ],
)
def test_wrong_arguments_are_one_line(words, message, capsys):
    assert command.main(words) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert len(shown.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (command.CheckError("it leaks"), "check failed: registry: it leaks"),
        (ValueError("no\nway"), "check failed: registry: ValueError: no way"),
    ],
)
def test_a_failure_is_one_line_and_exit_code_1(error, message, monkeypatch, capsys):
    def fail() -> str:
        raise error

    for name in ("compile_environment", "compile_for_python"):
        monkeypatch.setattr(command, name, lambda: "ok")
    monkeypatch.setattr(command, "compile_simulator", lambda jobs: "ok")
    monkeypatch.setattr(command, "check_registry", fail)
    assert command.main(["check"]) == 1
    shown = capsys.readouterr()
    assert shown.err == f"{message}\n"
    assert "failed" in shown.out.splitlines()[-1]


def test_counting_again_finds_nothing_in_a_sound_run():
    result = recorded()
    assert result.jobs["num_preemptions"].sum() > 0  # else little is tested
    command.count_again(result)


def test_a_gpu_given_out_twice_is_found():
    result = recorded()
    intervals = result.intervals.copy()
    last = intervals.groupby("gpu")["start_s"].idxmax().iloc[0]
    intervals.loc[last, "start_s"] = 0.0
    with pytest.raises(command.CheckError, match=r"^GPU 0 is given to job \d+ at [\d.e+]+ s, but another job holds it"):
        command.count_again(replace(result, intervals=intervals))


def test_unbooked_gpu_time_is_found():
    result = recorded()
    lost = result.intervals.drop(index=5)
    job = result.jobs["job_id"].iloc[int(result.intervals["job"].iloc[5])]
    with pytest.raises(command.CheckError, match=f"^job {job} held GPUs for"):
        command.count_again(replace(result, intervals=lost))


def test_a_job_that_did_less_than_its_work_is_found():
    result = recorded()
    jobs = result.jobs.copy()
    jobs.loc[7, "duration_s"] *= 2
    with pytest.raises(command.CheckError, match=f"^job {jobs['job_id'].iloc[7]} completed with less"):
        command.count_again(replace(result, jobs=jobs))


def test_a_job_that_is_lost_is_found():
    result = recorded()
    jobs = result.jobs.copy()
    jobs.loc[3, "status"] = "unfinished"
    with pytest.raises(command.CheckError, match="of 200 jobs"):
        command.count_again(replace(result, jobs=jobs))


def test_chance_is_found(monkeypatch):
    step = Batch.step

    def disturbed(self: Batch, actions) -> None:
        step(self, actions)
        if self.num_envs == command.ROWS // 2:
            self.reward[0] = np.nextafter(self.reward[0], 1.0)

    monkeypatch.setattr(Batch, "step", disturbed)
    with pytest.raises(command.CheckError, match=r"^reward differs between two batches after step 0$"):
        command.check_determinism()
