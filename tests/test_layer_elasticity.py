"""The study of layer elasticity: its runs, its arithmetic, its page and its command."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from docs.layer_elasticity import __main__ as command
from docs.layer_elasticity.compare import Case, best_base, excess, mean_excess, most_excess, versus_base, versus_host
from docs.layer_elasticity.findings import findings
from docs.layer_elasticity.page import make_page
from docs.layer_elasticity.plots import draw_all
from docs.layer_elasticity.runs import BASES, BY_HOST, HOSTS, SEEDS, TRAPS, UNFROZEN, all_runs, study_run
from docs.layer_elasticity.store import Outcome, execute
from docs.validation_runs import Run
from docs.validation_store import recall_as, store
from envs.spec import SimConfig
from traces.freezing import PRESETS
from traces.load import load_trace
from traces.synthetic_pollux import MODELS

TINY = Run(
    "tiny",
    "icefrog:elastic-srtf",
    "synthetic-layers?jobs=4,seed=1,mean_gap_s=600",
    SimConfig(interval_s=60.0, rescale_cost="restart"),
    "12x4",
)


def outcome(jct_s, residual=0.0, **changes):
    """Every model has 10 jobs; ncf jobs lack ten times as much as others."""
    lacks = {model: residual * (10 if model == "ncf" else 1) for model in MODELS}
    same = dict.fromkeys(MODELS, float(jct_s))
    return replace(Outcome(same, dict.fromkeys(MODELS, 10), lacks, lacks, jct_s, jct_s, 1.0, 2.0, 3.0, 0.5), **changes)


def rows(text, *starts):
    """Cells of the rows of a page that begin with these cells."""
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [row for row in found if tuple(row[: len(starts)]) == starts]


def results(jct_s, residual):
    """All runs by the policy's figures, each seed 10 s longer than the one before."""
    found = {}
    for run in all_runs():
        name = run.policy.partition("?")[0]
        found[run] = outcome(jct_s.get(name, 200.0) + 10 * run.seed, residual.get(name, 0.001))
    return found


def test_every_run_is_there_once():
    runs = all_runs()
    assert len({run.label for run in runs}) == len(set(runs)) == len(runs)
    headline = [run for run in runs if run.trace == "synthetic-layers?jobs=160,seed=3" and run.sim.front == "noisy"]
    usual = {run.policy for run in headline if run.sim.ddp == "rebuilt" and run.sim.activation_cache}
    hosted = {"icefrog", "safe-front", "pipetransformer", "freezeout"}
    assert {*BASES, *UNFROZEN, *BY_HOST, *TRAPS, *(f"{name}:{host}" for name in hosted for host in HOSTS)} <= usual
    assert {f"{policy}?margin=0" for policy in BY_HOST} <= usual
    assert sum(run.sim.front == "exact" for run in runs) == len(BY_HOST) * len(SEEDS)
    assert sum(run.sim.ddp == "plain" for run in runs) == len(BY_HOST) * len(SEEDS)
    for preset in PRESETS:
        assert {run.policy for run in runs if f"preset={preset}" in run.trace} == {*HOSTS, *BY_HOST}
    assert {run.cluster for run in runs} == {"12x4"}


def test_the_mix_is_the_one_fixed_before():
    jobs = load_trace(study_run("pollux", 2).trace).jobs
    assert len(jobs) == 160
    assert set(jobs["freezing"][jobs["model"] == "bert"]) == {"finetune"}
    assert set(jobs["freezing"][jobs["model"] != "bert"]) == {"middle"}
    jobs = load_trace(study_run("pollux", 2, preset="egeria").trace).jobs
    assert set(jobs["freezing"]) == {"egeria"}


def test_comparisons():
    found = results({"optimus": 150.0, "icefrog:pollux": 90.0}, {"icefrog:pollux": 0.003})
    case = Case("icefrog:pollux")
    assert best_base(found.get).policy == "optimus"
    assert versus_base(found.get, case).value == pytest.approx(110 / 170 - 1)
    assert versus_host(found.get, case).value == pytest.approx(110 / 220 - 1)
    assert excess(found.get, case)["ncf"] == pytest.approx(0.02)
    assert most_excess(found.get, case) == pytest.approx(0.02)
    assert mean_excess(found.get, case) == pytest.approx(0.002 * 15 / 6)
    assert Case("icefrog:pollux?margin=0", "exact", "middle").unfrozen() == Case("pollux", preset="middle")


@pytest.mark.parametrize(
    ("jct_s", "residual", "verdict"), [(100, 0.002, True), (100, 0.004, False), (160, 0.002, False)]
)
def test_the_headline_is_judged_by_gain_and_excess(jct_s, residual, verdict):
    found = results({"icefrog:pollux": jct_s}, {"icefrog:pollux": residual})
    sentence = next(findings(found.get))
    assert ("holds" in sentence and "does not hold" not in sentence) is verdict


def test_a_page_of_results_and_one_of_none():
    page = make_page(results({"icefrog:pollux": 90.0}, {"icefrog:pollux": 0.003}))
    assert rows(page, "`icefrog:pollux`")[0][1] == "110"
    assert rows(page, "results")[0][1] == f"{len(all_runs())} of {len(all_runs())} runs have one"
    assert page.count("\n* ") >= 12
    assert "nan" not in page
    empty = make_page(dict.fromkeys(all_runs()))
    assert "No run has a result." in empty
    assert "nan" not in empty
    assert all(png.startswith(b"\x89PNG") for png in draw_all(results({}, {}).get).values())
    assert all(png.startswith(b"\x89PNG") for png in draw_all(dict.fromkeys(all_runs()).get).values())


def test_a_run_and_what_is_kept_of_it(tmp_path):
    kept = execute(TINY)
    assert sum(kept.jobs.values()) == 4
    assert kept.depth_changes > 0
    assert 0 <= kept.mean_residual < 0.2
    assert kept.gpu_h > 0
    store(tmp_path, TINY, kept)
    assert recall_as(Outcome, tmp_path, TINY) == kept
    assert recall_as(Outcome, tmp_path, replace(TINY, policy="icefrog:pollux")) is None


def test_the_command_goes_on_after_ctrl_c(tmp_path, monkeypatch, capsys):
    wanted = [run for run in all_runs() if "freezeout-pollux" in run.label]
    calls = []

    def run_one(run, _):
        calls.append(run)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return outcome(100.0)

    monkeypatch.setattr(command, "execute", run_one)
    monkeypatch.setattr(command, "draw_all", lambda _: {"gain": b"drawn"})
    arguments = ["--only", "freezeout-pollux", "--folder", str(tmp_path)]
    assert command.main(arguments) == 130
    assert "goes on from there" in capsys.readouterr().err
    assert calls == wanted[:3]
    assert command.main(arguments) == 0
    assert calls[3:] == wanted[2:]
    assert (tmp_path / "layer-elasticity" / "gain.png").read_bytes() == b"drawn"
    assert command.main([*arguments, "--report"]) == 0
    assert len(calls) == 6


def test_unknown_results_are_not_numbers():
    nothing = dict.fromkeys(all_runs())
    assert np.isnan(versus_base(nothing.get, Case("icefrog:pollux")).value)
    assert np.isnan(most_excess(nothing.get, Case("icefrog:pollux")))
