"""The study of training that borrows the GPUs of inference: its runs, its arithmetic, its page and its command."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from baselines.policy import make_baseline
from docs import sharing, sharing_runs, sharing_store, validation_store
from docs.sharing_curves import at_violations, equalise, gains, values, versus_confined, versus_deepboot
from docs.sharing_findings import bullets, change, measured_findings, percent, sweep_findings
from docs.sharing_page import make_page
from docs.sharing_plots import draw_all
from docs.sharing_runs import (
    LARGEST,
    LOADS,
    MODES,
    PROTECT,
    SCHEDULERS,
    SEEDS,
    STRETCHES,
    WORKLOADS,
    Study,
    all_runs,
    measured_run,
    sweep_run,
)
from docs.sharing_store import Outcome, execute, make_outcome, workload
from docs.sharing_text import TEXTS
from docs.validation_store import digest, recall_as, store
from envs.simulate import simulate
from envs.spec import ClusterSpec
from traces.load import load_trace

TINY = Study(
    "tiny",
    "tiresias",
    "synthetic-colocated?jobs=4,mean_gap_s=60,load=0.5,gpus=2,mean_duration_s=10",
    sharing_runs.config(),
    cluster="2x4",
    without=LARGEST,
)
NOTHING = Outcome({"a": 100.0}, {"a": 1}, 0.1, 0.5, 6.0, 0, {}, 1.0)


def outcome(jct_s, violations=0.1, **changes):
    """Nine small jobs and one large one, three times as long."""
    jct_by_model = {"cifar10": jct_s, LARGEST: 3 * jct_s}
    return replace(NOTHING, jct_s=jct_by_model, jobs={"cifar10": 9, LARGEST: 1}, violations=violations, **changes)


def rows(text, *starts):
    """Cells of the rows of a page that begin with these cells."""
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [row for row in found if tuple(row[: len(starts)]) == starts]


def test_every_run_is_there_once():
    runs = all_runs()
    assert len({run.label for run in runs}) == len(set(runs)) == len(runs)
    sweep = {(run.policy, run.trace, run.without, run.sim) for run in runs if run.profiles is None}
    assert len(sweep) == 4 * 5 * 2 * (5 * 4 + 2)
    for load in (0.1, 0.2, 0.4, 0.6):
        for seed in range(5):
            trace = f"synthetic-colocated?load={load},seed={seed},mean_duration_s=10"
            for policy in ("deepboot", "tiresias", "tiresias?thresholds=57600", "afs", "lyra"):
                for without in ("", "imagenet"):
                    for protect in (0.0, 0.25, 1.0, 16.0):
                        assert (policy, trace, without, sharing_runs.config(protect_times=protect)) in sweep
    measured = [run for run in runs if run.profiles]
    assert len(measured) == 5 * 5 * 2 * 5
    assert all_runs(measured=False) == [run for run in runs if not run.profiles]


def test_runs_are_set_as_the_page_says():
    sims = {mode: measured_run("afs", mode).sim for mode in MODES}
    assert {mode: (sim.reclaim, sim.inference_nodes, sim.protect_times) for mode, sim in sims.items()} == {
        "confined": ("static", -1, 1.0),
        "shared": ("ats", -1, 1.0),
        "protected": ("ats", -1, 16.0),
        "two nodes": ("static", 2, 1.0),
        "alone": ("ats", -1, 1.0),
    }
    assert [mode for mode in MODES if not measured_run("afs", mode).tasks] == ["alone"]
    for run in all_runs():
        sim = run.sim
        assert (sim.compat, sim.rescale_cost, sim.interval_s, sim.slo_s, sim.aiss) == ("none", "afe", 60.0, 5.0, True)
    assert sweep_run("lyra", 0.1, 0, rule="lyra").sim.reclaim == "lyra"
    shown = ", ".join(f"{p:g}" for p in sorted(PROTECT)[:-1]) + f" and {max(PROTECT):g}"
    assert f"`--sim.protect-times` {shown}" in " ".join(TEXTS["sweep"].split())


def test_the_load_that_the_page_names(shared):
    tasks = workload(measured_run("afs", "shared")).jobs.query("kind == 'inference'")
    assert len(tasks) == 3200
    assert tasks["duration_s"].sum() / tasks["arrival_s"].max() == pytest.approx(0.3, abs=0.05)


def test_traces_are_changed_as_asked():
    whole = workload(replace(TINY, trace=TINY.trace.replace("jobs=4", "jobs=100"), without="")).jobs
    less = workload(replace(TINY, trace=TINY.trace.replace("jobs=4", "jobs=100"), tasks=False, stretch=1.5)).jobs
    training = whole[(whole["kind"] == "training") & (whole["model"] != LARGEST)]
    assert 0 < len(training) < 100
    assert less["job_id"].tolist() == training["job_id"].tolist()
    assert less["arrival_s"].tolist() == (1.5 * training["arrival_s"]).tolist()
    both = workload(replace(TINY, trace=TINY.trace.replace("jobs=4", "jobs=100"))).jobs
    assert (both["kind"] == "inference").sum() == (whole["kind"] == "inference").sum() > 0
    assert ((both["model"] == LARGEST) & (both["kind"] == "inference")).any()  # tasks of that model stay


def test_no_request_is_larger_than_half_of_the_cluster():
    run = sweep_run("afs", 0.1, 0)
    asked = load_trace(run.trace).jobs["num_gpus"]
    assert asked.max() == 48
    assert workload(run).jobs["num_gpus"].tolist() == asked.clip(upper=32).tolist()


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (0.01, (200.0, True)),
        (0.1, (100.0, True)),
        (10**-2.5, (260.0, True)),  # halfway between 0.001 and 0.01
        (10**-1.25, (125.0, True)),  # three quarters of the way from 0.01 to 0.1
        (0.2, (100.0, False)),
        (0.0005, (320.0, False)),
        (np.nan, (np.nan, False)),
    ],
)
def test_a_curve_is_read_between_its_points(wanted, expected):
    jct, reached = at_violations(np.array([0.1, 0.001, 0.01]), np.array([100.0, 320.0, 200.0]), wanted)
    assert jct == pytest.approx(expected[0], nan_ok=True)
    assert reached == expected[1]


def test_no_violations_at_all_are_the_least_share():
    violations, jct_s = np.array([0.0, 1e-3]), np.array([300.0, 100.0])
    assert at_violations(violations, jct_s, 1e-4) == (pytest.approx(200.0), True)
    assert at_violations(violations, jct_s, 0.0) == (pytest.approx(300.0), True)
    assert np.isnan(at_violations(np.array([np.nan, 0.1]), jct_s, 0.1)[0])


def known(factors):
    """Results of every run: deepboot 100 s in part A and B, others by a factor; violations halve with each protection.

    In part A, borrowing takes half of the time, and 4 % more at 2 nodes. All violate twice as much as tiresias does.
    """

    def find(run: Study):
        name = next(name for name, policy in SCHEDULERS.items() if policy == run.policy)
        if run.profiles:
            base = 1.0 if "confined" in run.label else 0.52 if "two-nodes" in run.label else 0.5
            return outcome(100 * base * factors[name] * run.stretch, violations=0.2)
        level = sorted(PROTECT).index(run.sim.protect_times)
        jct_s = (100 + 10 * level) * factors[name] * (1.0 + 0.01 * run.seed) * (1 + ("static" in run.label))
        trace = int(run.trace.partition("seed=")[2][0])
        violations = 0.4 / 2**level / (2 if name == "tiresias" else 1)
        return outcome(jct_s * (1 + trace / 100), violations)

    return {run: find(run) for run in all_runs()}


EVEN = {"deepboot": 1.0, "tiresias": 1.0, "tiresias-16h": 2.0, "afs": 0.9, "lyra": 3.0}


def test_equal_violations_are_not_equal_settings():
    find = known(EVEN).get
    # tiresias violates half as much, so it is read one step of protection lower: 110 s instead of 120 s.
    same, equal = versus_deepboot(find, "tiresias", 0.2, "")
    assert (same.value, equal.value) == (pytest.approx(0.0), pytest.approx(110 / 120 - 1))
    assert equal.ci_low == pytest.approx(equal.value)  # the same ratio in every seed
    level = equalise(find, "tiresias", 0.2, "")
    assert level.jct_s[:, 0] == pytest.approx([110 * 1.2 * (1 + k / 100) for k in SEEDS])  # 9 jobs, and one of 3 times
    assert level.reached.all()
    assert versus_deepboot(find, "afs", 0.2, "")[1].value == pytest.approx(-0.1)
    assert values(find, "violations", "afs", 0.2, "", (0.0, 16.0))[0].tolist() == [0.4, 0.05]


def test_borrowing_is_compared_at_the_violations_of_confined():
    results = known(EVEN)
    # Confined takes 240 s x 1.2 and violates as a borrower does at protection 1, which takes 120 s x 1.2.
    assert versus_confined(results.get, 0.4, "", None).value == pytest.approx(-0.5)
    assert versus_confined(results.get, 0.4, "", 16.0).value == pytest.approx(130 / 240 - 1)
    for run, found in results.items():
        if run.sim.reclaim == "static" and not run.profiles:
            results[run] = replace(found, violations=found.violations / 2)  # as at protection 16
    assert versus_confined(results.get, 0.4, "", None).value == pytest.approx(130 / 240 - 1)
    (row,) = rows(make_page(results), "all jobs, 40 %", "294")  # 240 s x 1.2, times 1.02 on average over seeds
    assert row[2:7] == [
        "5 %",
        "-50.0 % (-50.0 to -50.0); 10 %",
        "-45.8 % (-45.8 to -45.8); 5 %",
        "-45.8 % (-45.8 to -45.8)",
        "5 of 5",
    ]


def test_curves_that_end_early_are_told():
    results = known(EVEN)
    for run, found in results.items():
        if run.policy == "lyra":
            results[run] = replace(found, violations=found.violations / 100)
    level = equalise(results.get, "lyra", 0.1, "")
    assert not level.reached.any()
    assert level.jct_s[0, 0] == pytest.approx(100 * 3 * 1.2)  # the end with the most violations
    text = " ".join(sweep_findings(results.get))
    assert re.search(r"`lyra` at `deepboot`'s violations: .*? In 40 of 40 cases its curve does not get there\.", text)


def test_findings_follow_the_numbers():
    text = list(measured_findings(known(EVEN).get))
    assert "-50.0 % (-50.0 to -50.0)" in text[0]
    assert text[0].endswith("At least 38 % lower holds in all of them.")
    assert "-48.0 %, which is 96 % of what borrowing gets: most of the gain" in text[3]
    worse = known(EVEN)
    for run in worse:
        if run.profiles and run.policy == "deepboot" and "-shared" in run.label:
            worse[run] = outcome(70.0 if run.stretch != 1 else 60.0, 0.2)
    text = list(measured_findings(worse.get))
    assert "(-40.0 to -29.9)" in text[0]
    assert text[0].endswith("At least 38 % lower holds in 1 of them.")
    assert gains(worse.get, "deepboot", "shared", "")[0] == pytest.approx(-0.4)
    text = " ".join(sweep_findings(known(EVEN).get))
    assert "clearly higher in 8, clearly lower in 0" in text.partition("`tiresias-16h` at")[2]
    assert "clearly higher in 0, clearly lower in 8" in text.partition("`afs` at")[2]


def test_largest_jobs_can_be_left_out_of_the_mean():
    assert outcome(100.0).mean == 120.0
    assert outcome(100.0).mean_without(LARGEST) == 100.0


def test_the_page_has_every_cell():
    text = make_page(known(EVEN))
    assert len(text.splitlines()) < 250
    assert max(len(line) for line in text.splitlines() if line[:1] not in "|!") <= 120
    assert rows(text, "results")[0][1] == f"{len(all_runs())} of {len(all_runs())} runs have one"
    (row,) = rows(text, "all jobs", "`afs`")
    assert row[2:] == [
        "108",
        "-50.0 % (-50.0 to -50.0)",
        "-50.0 % (-50.0 to -50.0)",
        "-48.0 % (-48.0 to -48.0)",
        row[4],
    ]
    assert len(rows(text, "", "`afs`")) == len(LOADS) * len(WORKLOADS)
    assert "–" not in {cell for row in rows(text) for cell in row}


def test_missing_results_are_dashes_and_find_nothing():
    text = make_page(dict.fromkeys(all_runs()))
    assert text.count("Not all of its runs have a result.") == 2
    assert {cell for row in rows(text, "", "`afs`") for cell in row[2:]} == {"–", "0 of 5"}


def test_plots_are_drawn_with_and_without_results():
    for results in (known(EVEN), dict.fromkeys(all_runs())):
        plots = draw_all(results.get)
        assert sorted(plots) == ["curves", "equal", "measured"]
        assert all(f"(sharing/{stem}.png)" in make_page(results) for stem in plots)
        assert all(png.startswith(b"\x89PNG") for png in plots.values())


def test_text_of_numbers():
    assert [change(x) for x in (-0.4567, 0.0, np.nan)] == ["-45.7 %", "+0.0 %", "–"]
    assert [percent(x) for x in (0.3606, 0.00344, 0.1, np.nan)] == ["36 %", "0.34 %", "10 %", "–"]
    lines = bullets(iter(["so many of them are 10 % " * 20])).splitlines()
    assert len(lines) > 1
    assert not any(line.strip().startswith("%") for line in lines)


def test_a_small_run():
    result = simulate(workload(TINY), ClusterSpec.parse(TINY.cluster), make_baseline("tiresias"), TINY.sim)
    found, metrics = execute(TINY), result.metrics()
    assert sum(found.jobs.values()) == 4
    assert found.mean == pytest.approx(metrics["mean_jct_s"])
    assert found.violations == metrics["slo_violations"] > 0
    assert (found.warm, found.latency_s) == (metrics["warm_share"], metrics["mean_latency_s"])
    assert found.pod_gpu_h["running"] == pytest.approx(metrics["pod_running_gpu_s"] / 3600)
    result.jobs.loc[0, "jct_s"] = np.nan
    with pytest.raises(RuntimeError, match=r"tiny: job .* was not completed"):
        make_outcome(TINY, result)


def test_a_result_counts_for_its_settings_and_code(tmp_path, monkeypatch):
    mine = replace(NOTHING, violations=0.25)
    store(tmp_path, TINY, mine)
    assert recall_as(Outcome, tmp_path, TINY) == mine
    assert recall_as(Outcome, tmp_path, replace(TINY, stretch=1.1)) is None
    assert len({digest(replace(TINY, trace=f"synthetic-colocated?seed={seed}")) for seed in SEEDS}) == len(SEEDS)
    plain = validation_store._code
    changed = sharing_store.__file__
    monkeypatch.setattr(validation_store, "_code", lambda path: plain(path) + "x" * (str(path) == changed))
    digest.cache_clear()
    assert recall_as(Outcome, tmp_path, TINY) is None
    assert not recall_as(Outcome, tmp_path, TINY, keep=True).same_code
    digest.cache_clear()


def test_the_command_goes_on_after_ctrl_c(tmp_path, monkeypatch, capsys):
    wanted = [sweep_run("afs", 0.1, seed) for seed in SEEDS]
    calls = []

    def run_one(run, _):
        calls.append(run)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return NOTHING

    monkeypatch.setattr(sharing, "execute", run_one)
    monkeypatch.setattr(sharing, "draw_all", lambda _: {"curves": b"drawn"})
    arguments = ["--only", "load0.1-afs-ats-p1-s", "--folder", str(tmp_path)]
    assert sharing.main(arguments) == 130
    assert "goes on from there" in capsys.readouterr().err
    assert calls == wanted[:3]
    assert sharing.main(arguments) == 0
    assert calls[3:] == wanted[2:]
    assert rows((tmp_path / "sharing.md").read_text(), "results")[0][1] == f"5 of {len(all_runs())} runs have one"
    assert (tmp_path / "sharing" / "curves.png").read_bytes() == b"drawn"
    assert sharing.main([*arguments, "--report"]) == 0
    assert len(calls) == 6
    assert sharing.main(["--jobs", "0"]) == 2


def test_arrivals_are_stretched_both_ways():
    assert STRETCHES[0] == 1.0
    assert sum(STRETCHES) == pytest.approx(len(STRETCHES))
