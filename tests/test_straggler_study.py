"""The study of stragglers: its runs, its arithmetic, its page and its command."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from docs.straggler_study import __main__ as command
from docs.straggler_study.compare import (
    change,
    gained,
    headroom,
    of_oracle,
    of_size,
    passing,
    recovered,
    recovered_passing,
)
from docs.straggler_study.findings import findings
from docs.straggler_study.page import make_page
from docs.straggler_study.plots import draw_all
from docs.straggler_study.runs import (
    ABLATION_SEEDS,
    BACKUP,
    FREE,
    NODE_BY_NODE,
    OBLIVIOUS,
    ORACLE,
    PLACING,
    PSR,
    REACTING,
    SEEDS,
    SHUFFLED,
    STATIC,
    SWEEP_SEEDS,
    SWEPT,
    Case,
    Probe,
    all_runs,
    probe,
    probes,
    study_run,
)
from docs.straggler_study.store import SIZES, Outcome, Probed, by_size, execute, recall, running_s
from docs.validation_store import store

TINY = replace(study_run(Case("fifo"), 1), policy="fifo", trace="synthetic-stragglers?jobs=20,seed=1,gpus=32")
TINY = replace(TINY, label="tiny", cluster="4x8")
GOOD = {OBLIVIOUS: 0.1, PSR: 0.04, PLACING: 0.06, SHUFFLED: 0.085, NODE_BY_NODE: 0.12}  # loss by rule
ORACLE_LOSS, BLIND = 0.03, 0.03  # the second: more, where no probabilities are seen
PROBED = (("A: 3000 of 1 x 4", 80), ("A: 1500 of 4 x 2", 300), ("C: 200 of 64 x 8", 1440))


def outcome(loss, jct_s=1000.0):
    sizes = {size: {"jobs": 3.0, "mean_s": jct_s, "slowdown": 1 + loss, "loss": loss} for size in SIZES[:-1]}
    figures = {"moves": 7.0, "paused_gpu_h": 8.0, "gpu_h": 9.0, "utilisation": 0.6, "cpu_s": 0.5}
    times = dict.fromkeys(("mean_s", "p95_s", "p99_s", "queueing_s", "makespan_s"), jct_s)
    ratios = {"straggling": loss, "slowed": loss, "slowdown": 1 + loss, "p99_slowdown": 1 + 2 * loss}
    return Outcome(**times, **ratios, **figures, loss=loss, by_size=sizes)


def results(losses, jcts=None, oracle=ORACLE_LOSS):
    """All runs by the rule's loss and mean jct [s], each seed 1 % and 10 s more than the one before."""
    found = {}
    for run in all_runs():
        if isinstance(run, Probe):
            found[run] = Probed(200, 0.5, 0.2, 0.1, 1.0)
            continue
        name, mark, query = run.policy.partition("?")
        rule = name.partition(":")[0] + mark + query
        known = {"oracle": oracle, "none": losses.get(rule, 0.08) + BLIND}
        loss = known.get(run.sim.straggler_obs, losses.get(rule, 0.08))
        loss *= 0.2 if run.sim.straggler_rate == 0 else 1
        found[run] = outcome(loss * (1 + run.seed / 100), (jcts or {}).get(rule, 1000.0) + 10 * run.seed)
    return found


def rows(text, *starts):
    """Cells of the rows of a page that begin with these cells."""
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [row for row in found if tuple(row[: len(starts)]) == starts]


def sentence(found, start, preset="A"):
    """The only finding of a preset with ``start`` in it."""
    (one,) = [text for text in findings(found.get) if text.startswith(f"**{preset}.**") and start in text]
    return one


def test_every_run_is_there_once():
    runs = all_runs()
    assert len({run.label for run in runs}) == len(set(runs)) == len(runs)
    main = [run for run in runs if run.trace == "synthetic-stragglers?jobs=224,seed=19"]
    assert {run.seed for run in main} == {19}
    for preset in ("shared", "contention"):
        usual = [run for run in main if run.sim.stragglers == preset and run.sim.straggler_rate == 1]
        named = {"static-aware", "avoid-slow", "reactive", "avoid-reactive", "quarantine", "wrangler", "lb-bsp", "drop"}
        named |= {"asynchronous", NODE_BY_NODE, OBLIVIOUS, PSR}
        queries = {"psr:fifo?react=false", "psr:fifo?react=false,shuffle=true"}
        assert {run.policy for run in usual} == {f"{name}:fifo" for name in named} | queries
        assert [run.policy for run in usual if run.sim.sync == "backup"] == ["oblivious:fifo"]
        assert [run.policy for run in usual if run.sim.straggler_obs == "oracle"] == ["psr:fifo"]
        calm = {run.policy for run in main if run.sim.stragglers == preset and run.sim.straggler_rate == 0}
        assert {"oblivious:fifo", "psr:fifo"} <= calm
    assert {(r.cluster, r.sim.interval_s, r.sim.on_event, r.sim.rescale_s) for r in main} == {("32x8", 300, True, 180)}


def test_seeds_of_the_parts():
    runs = [run for run in all_runs() if not isinstance(run, Probe)]
    assert {run.seed for run in runs if "w_ext=0" in run.policy} == set(ABLATION_SEEDS)
    assert {run.seed for run in runs if run.sim.sight_noise == 3} == set(ABLATION_SEEDS)
    assert {run.seed for run in runs if run.policy.endswith(":srtf")} == set(SWEEP_SEEDS)
    assert {run.seed for run in runs if run.sim.stragglers == "contention" and "multi=0.2" in run.trace} == set(
        SWEEP_SEEDS
    )
    first = [run.seed for run in runs if run.policy == "drop:fifo"]
    assert first == sorted(first)
    assert len(set(first)) == len(SEEDS)


def test_the_world_of_oblivious_placement():
    assert Case(PSR, "B", ORACLE).base == Case(OBLIVIOUS, "B")
    assert Case(OBLIVIOUS, "B", BACKUP).base == Case(OBLIVIOUS, "B")
    assert Case(PSR, "A", "rate 2").base == Case(OBLIVIOUS, "A", "rate 2")
    assert Case(PSR, "A", "host las").base.policy == "oblivious:las"
    assert set(SWEPT["B"]) < set(SWEPT["A"])


def test_comparisons():
    found = results(GOOD, {PSR: 900.0}).get
    psr = Case(PSR)
    assert recovered(found, psr).value == pytest.approx(0.6)
    assert recovered(found, psr).ci_low <= 0.6 <= recovered(found, psr).ci_high
    assert gained(found, psr, Case(PLACING)).value == pytest.approx(0.2)
    assert of_oracle(found, "A", "loss").value == pytest.approx(0.6 / 0.7)
    assert change(found, psr).value == pytest.approx(900 / 1095 + 95 / 1095 - 1)
    assert passing(found, psr)[0, 0] == pytest.approx(0.8 * 0.04)
    assert recovered_passing(found, psr).value == pytest.approx(0.6)
    assert of_size(found, psr, "2-8", "loss") == pytest.approx(0.04 * 1.095)
    assert np.isnan(of_size(found, psr, "more", "loss"))
    assert recovered(found, Case(REACTING)).n == len(ABLATION_SEEDS)
    assert headroom(found, "A", "mean_s").value == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("start", "changes", "verdict"),
    [
        ("of the straggler loss of oblivious", {}, True),
        ("of the straggler loss of oblivious", {PSR: 0.06}, False),
        ("of the straggler loss of oblivious", {PSR: 0.11}, False),
        ("That it adds to it", {}, True),
        ("That it adds to it", {PLACING: 0.035}, False),
        ("That shuffling loses it", {}, True),
        ("That shuffling loses it", {SHUFFLED: 0.05}, False),
        ("recovers less than psr", {}, True),
        ("recovers less than psr", {NODE_BY_NODE: 0.03}, False),
        ("That psr beats it", {}, True),
        ("That psr beats it", {"quarantine": 0.01}, False),
        ("In 15 other worlds", {}, True),
        ("In 15 other worlds", {PSR: 0.2}, False),
    ],
)
def test_verdicts_follow_the_losses(start, changes, verdict):
    text = sentence(results(GOOD | changes), start)
    assert (" holds" in text.split("That ")[1] and "does not hold" not in text.split("That ")[1]) is verdict


@pytest.mark.parametrize(("jct_s", "verdicts"), [(900, (True, True)), (1000, (True, False)), (1005, (False, False))])
def test_the_verdicts_on_mean_jct(jct_s, verdicts):
    parts = sentence(results(GOOD, {PSR: jct_s}), "mean jct is not worse").split("that mean jct", 1)[-1].split(";")
    assert tuple("does not hold" not in part for part in parts[-2:]) == verdicts
    calm = sentence(results(GOOD, {PSR: 1000.0 + 2 * (jct_s - 1000)}), "at most 1 % worse")
    assert "does not hold" not in calm
    calm = sentence(results(GOOD, {PSR: 1020.0}), "at most 1 % worse")
    assert "does not hold" in calm


def test_a_gap_is_given_only_where_there_is_one():
    assert "Oracle gap" in sentence(results(GOOD, {PSR: 900.0}), "racle gap")
    assert "No oracle gap" in sentence(results(GOOD), "racle gap")


def test_a_page_of_results_and_one_of_none():
    found = results(GOOD, {PSR: 900.0})
    page = make_page(found)
    assert [row[2] for row in rows(page, "`psr:fifo`")[:1]] == ["60.0 % (60.0 to 60.0)"]
    assert rows(page, "results")[0][1] == f"{len(found)} of {len(found)} runs have one"
    assert [row[1] for row in rows(page, "C: 200 of 64 x 8 GPUs, 1440 min")] == ["50.0 % ± 3.5 %"]
    fits = [rows(page, f"{probed} GPUs, {minutes} min")[0][3] for probed, minutes in PROBED]
    assert fits == ["**no** (1 to 2.2 %)", "**no** (33 to 42 %)", "yes (49 to 69 %)"]
    assert rows(page, "hazard of a GPU [1/h]")[0][1:] == ["0.0005", "0.001", "0.0001"]
    assert page.count("\n* **A.**") == page.count("\n* **B.**") == 14
    assert "nan" not in re.findall(r"\w+", page)
    assert "–" not in page
    nothing = dict.fromkeys(all_runs())
    empty = make_page(nothing)
    assert "No run has a result." in empty
    assert "nan" not in re.findall(r"\w+", empty)
    for every in (found, nothing):
        assert all(png.startswith(b"\x89PNG") for png in draw_all(every.get).values())


def test_a_run_and_what_is_kept_of_it(tmp_path):
    kept = execute(TINY)
    assert isinstance(kept, Outcome)
    assert sum(size["jobs"] for size in kept.by_size.values()) == 20
    assert kept.mean_s < kept.p95_s <= kept.p99_s
    assert 0 < kept.loss < 1
    assert kept.slowdown > 1
    total = sum(size["jobs"] * size["mean_s"] for size in kept.by_size.values())
    assert total / 20 == pytest.approx(kept.mean_s)
    store(tmp_path, TINY, kept)
    assert recall(tmp_path, TINY) == kept
    assert recall(tmp_path, replace(TINY, seed=2)) is None


def test_without_stragglers_nothing_is_lost():
    calm = replace(TINY, sim=replace(TINY.sim, straggler_rate=0.0, gpu_variability=False))
    kept = execute(calm)
    assert (kept.loss, kept.slowed) == (0, 0)
    assert (kept.slowdown, kept.p99_slowdown) == pytest.approx((1, 1))


def test_running_time_and_classes_of_size():
    jobs = pd.DataFrame(
        {
            "num_gpus": [1, 2, 8, 9, 64, 65],
            "jct_s": 1000.0,
            "queueing_delay_s": 200.0,
            "service_gpu_s": [800.0 * n for n in (1, 2, 8, 9, 64, 65)],
            "paused_gpu_s": [80.0 * n for n in (1, 2, 8, 9, 64, 65)],
            "lost_gpu_s": [72.0 * n for n in (1, 2, 8, 9, 64, 65)],
            "slowdown": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        }
    )
    assert running_s(jobs).tolist() == pytest.approx([720.0] * 6)
    found = by_size(jobs)
    assert {size: each["slowdown"] for size, each in found.items()} == {"1": 1.0, "2-8": 2.5, "9-64": 4.5, "more": 6.0}
    assert all(each["loss"] == pytest.approx(0.1) for each in found.values())


def test_probes(tmp_path):
    """B straggles far more than A; a probe of less time is another one."""
    few = [probe(preset, nodes=4, node_gpus=2, minutes=300.0, count=60) for preset in ("A", "B")]
    usual, stress = map(execute, few)
    assert isinstance(usual, Probed)
    assert 0.15 < usual.hit < 0.65
    assert stress.hit > usual.hit + 0.2
    assert stress.excess > usual.excess > 0.02
    store(tmp_path, few[0], usual)
    assert recall(tmp_path, few[0]) == usual
    assert recall(tmp_path, replace(few[0], minutes=10.0)) is None
    assert [run.sim.stragglers for run in probes()] == ["shared", "shared", "dedicated"]


def test_the_command_goes_on_after_ctrl_c(tmp_path, monkeypatch, capsys):
    wanted = [run for run in all_runs() if "B-quarantine" in run.label]
    calls = []

    def run_one(run, _):
        calls.append(run)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return outcome(0.1)

    monkeypatch.setattr(command, "execute", run_one)
    monkeypatch.setattr(command, "draw_all", lambda _: {"recovered": b"drawn"})
    arguments = ["--only", "B-quarantine", "--folder", str(tmp_path)]
    assert command.main(arguments) == 130
    assert "goes on from there" in capsys.readouterr().err
    assert calls == wanted[:3]
    assert command.main(arguments) == 0
    assert calls[3:] == wanted[2:]
    assert (tmp_path / "stragglers" / "recovered.png").read_bytes() == b"drawn"
    assert command.main([*arguments, "--report"]) == 0
    assert len(calls) == len(wanted) + 1


def test_unknown_results_are_not_numbers():
    nothing = dict.fromkeys(all_runs())
    for case in (Case(PSR), Case(PSR, "B", FREE), Case(PSR, "A", STATIC)):
        assert np.isnan(recovered(nothing.get, case).value)
    assert np.isnan(of_oracle(nothing.get, "A", "loss").value)
    assert list(findings(nothing.get)) == []
