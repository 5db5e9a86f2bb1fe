"""The comparison with published simulators: its page, its verdicts, and what is kept of runs."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from docs import validation, validation_page, validation_store
from docs.validation_deepboot import deepboot
from docs.validation_osdi import fixed_requests, measured, pollux, studies
from docs.validation_others import run_name, tiresias
from docs.validation_runs import MEASURED, VARIANTS, Run, all_runs, deepboot_run, knowledge_run, osdi_run, simulator_run
from docs.validation_store import Result, digest, recall, store
from docs.validation_tables import difference, published, reference, verdict
from docs.validation_tiny import tiny_helios, tiny_tiresias
from docs.validation_units import units

pytestmark = pytest.mark.usefixtures("shared")
PAGE = validation.PAGE
ONE = osdi_run("tiresias", "0.5", 5)


def result_of(jct_s, **changes):
    return replace(Result(jct_s, dict.fromkeys(jct_s, 0), 1.0, 10, 2.0), **changes)


def perfect(run: Run) -> Result | None:
    """What the authors' files say; nothing where they say nothing."""
    load, k = re.search(r"-(\d\.\d)-w(\d)", run.label).groups() if "-w" in run.label else ("", "")
    policy = run.policy.partition("?")[0]
    if run.sim.compat == "pollux" and run.sim.interval_s == 60 and not run.sim.interference:
        return result_of(published(f"results-jobload/{policy}-{load}")["jcts"][f"workload-{k}"])
    return None


def rows(text, *starts):
    """Cells of the rows of a page that begin with these cells."""
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [row for row in found if tuple(row[: len(starts)]) == starts]


def test_results_that_are_theirs_are_equal():
    text = fixed_requests(perfect)
    for policy in ("tiresias", "optimus"):
        for load in ("0.5", "1.0", "1.5", "2.0"):
            (row,) = rows(text, policy, load)
            assert row[5:] == ["0", "0 %", "equal", "100 %", "100 %"]
    (row,) = rows(text, "1.0", "6")
    assert row[2:4] == ["3469.69", "3469.69"]


def test_one_job_that_is_late_shows():
    def late(run):
        result = perfect(run)
        if run != ONE:
            return result
        first = next(iter(result.jct_s))
        return replace(result, jct_s=result.jct_s | {first: result.jct_s[first] + 1000})

    row = rows(fixed_requests(late), "tiresias", "0.5")[0]
    assert row[-3:] == ["outside", "99.8 %", "99.8 %"]  # one of 640; the tolerance is 0
    assert rows(fixed_requests(perfect), "tiresias", "0.5")[0][-3] == "equal"


@pytest.mark.parametrize(("factor", "expected"), [(1.0, "within"), (1.039, "within"), (1.041, "outside")])
def test_pollux_is_judged_by_its_mean(factor, expected):
    def scaled(run):
        result = perfect(run)
        return result and replace(result, jct_s={job: factor * jct for job, jct in result.jct_s.items()})

    (row,) = [row for row in rows(pollux(scaled), "1.0") if len(row) == 8 and row[-1] in ("within", "outside")]
    assert row[-2:] == ["4 %", expected]
    assert rows(studies(scaled), "60 s")[0][-1] == "within"


def test_missing_results_are_dashes_and_do_not_count():
    def some(run):
        return perfect(run) if "-w1" in run.label and run.seed == 0 else None

    (row,) = [row for row in rows(pollux(some), "1.0") if len(row) == 8 and "runs" in row[3]]
    assert row[1:] == ["–", "–", "2088.8 (1 of 16 runs)", "2088.8", "0", "4 %", "within"]
    nothing = fixed_requests(lambda _: None) + measured(lambda _: None) + pollux(lambda _: None)
    assert not {"equal", "within", "outside"} & {cell for row in rows(nothing) for cell in row}


def test_restarts_are_compared():
    def with_restarts(change):
        def known(run):
            if run != osdi_run("tiresias", "1.0", 6):
                return None
            theirs = reference("pollux_sia/osdi_tiresias_w6.json")
            restarts = {job: count or 0 for job, count in theirs["restarts_by_job"].items()}
            first = next(iter(restarts))
            restarts[first] += change
            return result_of(theirs["jcts"], restarts=restarts, round_gpu_h=theirs["gpu_hours_total"])

        return rows(measured(known), "tiresias", "1.0", "6")[0][-1]

    assert with_restarts(0) == "equal"
    assert with_restarts(1) == "outside"


def test_the_tiresias_simulator_is_compared_by_job():
    theirs = reference("tiresias/60_job/60_job__n2g4__sjf__count.json")
    jct_s = {str(job["job_id"]): float(job["JCT"]) for job in theirs["jobs"]}
    text = tiresias(lambda run: result_of(jct_s) if run == simulator_run("60_job__n2g4", "sjf") else None)
    (row,) = rows(text, "60_job", "2x4", "sjf = `smallest`")
    assert row[3:7] == ["725.700", "725.700", "0", "100 %"]
    assert row[9] == "equal"


def as_deepboot(run: Run) -> Result | None:
    """What the original's file of this run says."""
    theirs = reference(f"deepboot/{run.label.removeprefix('deepboot-').removesuffix('-own')}.json")
    jobs, tasks = ({j["name"]: j for j in theirs["jobs"] if j["inference"] == kind} for kind in (False, True))
    return result_of(
        {name: job["jct"] for name, job in jobs.items()},
        restarts={name: job["num_restarts"] for name, job in jobs.items()},
        first_start_s=dict.fromkeys(jobs, 7.0),
        waited_s={name: job["jct"] - job["run_time"] - job["total_delay"] for name, job in jobs.items()},
        latency_s={name: job["jct"] for name, job in tasks.items()},
        num_warm=theirs["infer_cache_hits"],
        num_taken=theirs["events"].get("train_gpus_taken_by_infer", 0),
    )


def test_deepboot_runs_that_are_theirs_are_equal():
    text = deepboot(as_deepboot)
    alone, beside = rows(text, "`dp_pure_train_AISS1_AFE1_n8`")[0], rows(text, "`dp_small_AISS1_AFE1_P8`")[:2]
    assert alone[1:] == ["4105.9", "4105.9", "0", "6 %", "equal", "100 %", "4105.9", "0"]
    assert beside[0][-4:] == ["equal", "100 %", "2382.6", "0"]
    assert beside[1][1:] == ["5.20 / 5.20", "0", "96.0 % / 96.0 %", "100 / 100", "0", "within", "5.20", "0"]
    verdicts = [row[5] for row in rows(text) if len(row) == 9 and row[4] in ("2 %", "5 %", "6 %")]
    assert verdicts == ["equal"] * 25
    assert "jobs differ" not in text


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda r: {"num_taken": 29}, "GPUs taken"),
        (lambda r: {"num_warm": r.num_warm + 97}, "warm hits"),
        (lambda r: {"latency_s": {task: 1.031 * x for task, x in r.latency_s.items()}}, "latency"),
        (lambda r: {"jct_s": {job: 1.021 * x for job, x in r.jct_s.items()}}, ""),
    ],
    ids=["taken", "warm", "latency", "jct"],
)
def test_deepboot_runs_that_differ_are_outside(change, cause):
    name = "tiresias_small_AISS1_AFE0"

    def changed(run):
        result = as_deepboot(run)
        return replace(result, **change(result)) if run == deepboot_run(name) else result

    text = deepboot(changed)
    training, inference = rows(text, f"`{name}`")[:2]
    assert training[5] == ("equal" if cause else "outside")
    assert inference[6] == (f"outside: {cause}" if cause else "within")
    # Histories of exactly this run: of the jobs whose jct differs, the first to arrive.
    shown = rows(text, "cifar10-0", "107")
    assert text.count("jobs differ") == 1
    assert [row[2:] for row in shown] == ([] if cause else [["7", "13 / 13", "947 / 967", "0 / 0"]])


def test_missing_deepboot_runs_are_dashes():
    text = deepboot(lambda _: None)
    cells = {cell.partition(":")[0] for row in rows(text) for cell in row}
    assert not {"equal", "within", "outside"} & cells


def test_deepboot_runs_are_made_as_named():
    lent = deepboot_run("dp_small_AISS1_AFE0_ARYL1").sim
    long = deepboot_run("dp_small_AISS1_AFE1_P8").sim
    alone = deepboot_run("tiresias_pure_train_AISS1_AFE0_n8")
    assert [s.reclaim for s in (lent, long, deepboot_run("afs_small_AISS0_AFE0").sim)] == ["lyra", "ats", "lyra"]
    assert [s.protect_times for s in (lent, long)] == [1.0, 8.0]
    assert [s.rescale_cost for s in (lent, long)] == ["restart", "afe"]
    assert not deepboot_run("aryl_small_AISS0_AFE0").sim.aiss
    assert (alone.cluster, alone.sim.placement, lent.placement) == ("8x4", "emptiest", "consolidated")
    assert replace(deepboot_run("afs_small_AISS0_AFE0", own=True).sim, compat="deepboot") == (
        deepboot_run("afs_small_AISS0_AFE0").sim
    )


def test_small_cases():
    tiresias_cases, helios_cases = tiny_tiresias(), tiny_helios()
    equal = [
        [case.apart_s == 0 and case.preemptions_equal for case in cases] for cases in (tiresias_cases, helios_cases)
    ]
    assert [sum(some) for some in equal] == [22, 12]
    assert all(case.cause for case in tiresias_cases + helios_cases if case.apart_s)
    assert [unit for unit in units() if not unit.worst <= unit.tolerance] == []


def test_the_tool_runs_what_is_missing_and_writes_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("envs.simulate.FIRST_SLOTS", 64)
    monkeypatch.setattr(validation_page, "SECTIONS", (fixed_requests, pollux))
    arguments = ["--quick", "--only", ONE.label, "--folder", str(tmp_path)]
    assert validation.main(arguments) == 0
    assert "validation.md written" in capsys.readouterr().out
    text = (tmp_path / "validation.md").read_text()
    (row,) = rows(text, "tiresias", "0.5")
    assert row[2:] == ["640", "1425.4 (1 of 8 runs)", "1425.4", "0", "0 %", "equal", "100 %", "100 %"]
    assert rows(text, "results")[0][1] == f"1 of {len(all_runs())} runs have a result"
    assert {"date", "commit", "command", "seeds", "machine", "versions"} <= {row[0] for row in rows(text)}
    monkeypatch.setattr(validation, "execute", lambda *_: pytest.fail("it has a result"))
    assert validation.main(arguments) == 0
    assert not PAGE.exists() or PAGE.read_text() != text


def test_ctrl_c_keeps_what_has_ended(tmp_path, monkeypatch, capsys):
    wanted = [run for run in all_runs() if run.label.startswith("tiresias-0.5-")]
    calls = []

    def execute(run, _):
        calls.append(run)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return result_of({"a": 1.0})

    monkeypatch.setattr(validation, "execute", execute)
    monkeypatch.setattr(validation, "make_page", lambda _: "")
    arguments = ["--only", "tiresias-0.5-", "--folder", str(tmp_path)]
    assert validation.main(arguments) == 130
    assert "goes on from there" in capsys.readouterr().err
    assert calls == wanted[:3]
    assert validation.main(arguments) == 0
    assert calls[3:] == wanted[2:]


def test_a_result_counts_for_its_settings_and_code(tmp_path, monkeypatch):
    mine = result_of({"a": 1.0, "b": 2.0})
    store(tmp_path, ONE, mine)
    assert recall(tmp_path, ONE) == mine
    assert recall(tmp_path, ONE).mean == 1.5
    assert recall(tmp_path, replace(ONE, seed=1)) is None
    assert recall(tmp_path, osdi_run("tiresias", "0.5", 6)) is None
    monkeypatch.setattr(validation_store, "digest", lambda _: "other code")
    assert recall(tmp_path, ONE) is None
    assert recall(tmp_path, ONE, keep=True) == mine
    assert not recall(tmp_path, ONE, keep=True).same_code
    (tmp_path / f"{ONE.label}.json").write_text("{")
    assert recall(tmp_path, ONE, keep=True) is None


def test_only_code_that_may_move_a_jct_counts(tmp_path):
    source = tmp_path / "a.py"

    def code(text):
        source.write_text(text)
        validation_store._code.cache_clear()
        return validation_store._code(source)

    plain = code("def f(x):\n    return x + 1\n")
    assert code('"""Text."""\ndef f(x):\n    """More."""\n    return x + 1  # why\n') == plain
    assert code("def f(x):\n    return x + 2\n") != plain
    validation_store._code.cache_clear()
    used = validation_store._closure(("envs.simulate", "baselines.pollux"))
    assert {"envs.dynamics", "envs.online_fit", "baselines.nsga2", "traces.profiles"} <= used
    assert not {"envs.metrics", "baselines.afs"} & used
    assert digest(knowledge_run("fitted", "fifo", 1)) != digest(knowledge_run("measured", "fifo", 1))


def test_runs_are_named_once_and_cover_the_study():
    runs = all_runs()
    assert len({run.label for run in runs}) == len(runs)
    assert len(all_runs(studies=False)) < len(runs)
    assert [run_name("pollux-1.0-w3-s0-every-30s"), run_name("a-fifo")] == [
        ("pollux-1.0-w*-s0-every-30s", 3),
        ("a-fifo", 1),
    ]
    own = [run for run in runs if run.sim.compat == "none" and "pollux_osdi21" in run.trace]
    kinds = {(run.profiles == MEASURED, run.sim.knowledge) for run in own}
    assert kinds == {(profiles == MEASURED, knowledge) for profiles, knowledge in VARIANTS.values()}


def test_figures():
    assert difference(1.0, 1.0) == "0"
    assert difference(102.0, 100.0) == "+2.00%"
    assert difference(np.nan, 100.0) == "–"
    assert [verdict(105.9, 100.0, 0.06), verdict(93.9, 100.0, 0.06), verdict(np.nan, 1.0, 1.0)] == [
        "within",
        "outside",
        "–",
    ]


def test_the_page_names_every_run():
    named = {row[0].strip("`"): row[1:9] for row in rows(PAGE.read_text()) if row[0].startswith("`")}
    for series, workload in map(run_name, (run.label for run in all_runs())):
        assert named[series][workload - 1], (series, workload)
