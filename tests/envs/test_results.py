"""From outcomes to tables: ranking, repetitions that are copies, paired comparisons, atomic files."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from envs.leaderboard import format_estimate, format_number, make_leaderboard, print_leaderboard
from envs.metrics import METRICS
from envs.results import (
    IQM,
    Outcome,
    Policy,
    best_baseline,
    compare,
    join_runs,
    make_tables,
    policies,
    rank,
    summarise,
    summary_frame,
    write_atomically,
    write_json,
)
from envs.statistics import Estimate

NOTHING = pd.DataFrame()


def outcome(policy, window, seed, jct, published=True, oracle=(), decision=0.0):
    values = {metric.name: 1.0 for metric in METRICS}
    values |= {"mean_jct_s": jct, "decision_time_ms": decision}
    return Outcome(Policy(policy, "fixed", oracle, published), window, seed, values, NOTHING, NOTHING, NOTHING)


def outcomes(**jcts):
    """One policy a keyword, one window a value."""
    return [outcome(name, w, 0, jct) for name, values in jcts.items() for w, jct in enumerate(values)]


def test_best_first_and_unknown_last():
    tables = make_tables(outcomes(slow=[9.0, 5.0], none=[np.nan, np.nan], fast=[1.0, 2.0], tie=[2.0, 1.0]))
    assert rank(tables) == ["fast", "tie", "slow", "none"]


def test_same_results_for_every_seed_are_one_repetition():
    """Decision times differ from run to run even then."""
    same = [outcome("same", w, s, jct=w + 1.0, decision=s) for w in range(3) for s in range(4)]
    varied = [outcome("varied", w, s, jct=w + s + 1.0) for w in range(3) for s in range(4)]
    tables = make_tables([*same, *varied])
    assert tables["same"]["mean_jct_s"].tolist() == [[1], [2], [3]]
    assert tables["varied"]["mean_jct_s"].shape == (3, 4)
    assert summarise(tables)["same"]["mean_jct_s"].n == 3


def test_summary_is_long_and_holds_the_iqm():
    summary = summary_frame(summarise(make_tables(outcomes(a=[1.0, 2.0, 3.0, 100.0, 4.0]))))
    assert list(summary.columns) == ["policy", "metric", "mean", "ci_low", "ci_high", "n"]
    cells = summary.set_index("metric")
    assert cells.loc["mean_jct_s", "mean"] == 22
    assert cells.loc[IQM, "mean"] == 3  # one of five is cut at each end: the mean of 2, 3, 4
    assert set(summary["metric"]) == {metric.name for metric in METRICS} | {IQM}


def test_comparison_is_paired_by_window():
    tables = make_tables(outcomes(a=[11.0, 101.0, 1001.0, 51.0, 6.0], b=[10.0, 100.0, 1000.0, 50.0, 5.0]))
    found = {d.metric: d for d in compare(tables, ["b", "b"])}
    jct = found["mean_jct_s"]
    assert (jct.policy, jct.reference) == ("a", "b")
    assert jct.gap == Estimate(1.0, 1.0, 1.0, 5)
    assert jct.win_rate == 0
    assert "decision_time_ms" not in found
    assert "num_submitted" not in found


def test_best_baseline_is_a_published_one():
    runs = [outcome("mine", 0, 0, 1.0, published=False), outcome("srtf", 0, 0, 2.0), outcome("fifo", 0, 0, 3.0)]
    assert best_baseline(make_tables(runs), policies(runs)) == "srtf"
    assert best_baseline(make_tables(runs[:1]), policies(runs[:1])) is None


def test_oracle_use_in_any_window_is_shown():
    runs = [outcome("gittins", 0, 0, 1.0, oracle=("distribution",)), outcome("gittins", 1, 0, 1.0)]
    assert policies(runs)[0].oracle == ("distribution",)


def test_runs_are_joined_below_each_other():
    runs = outcomes(a=[1.0], b=[2.0])
    for run, jct in zip(runs, (1.0, 2.0), strict=True):
        object.__setattr__(run, "jobs", pd.DataFrame({"jct_s": [jct]}))
    joined = join_runs(runs, "jobs")
    assert joined.to_dict("list") == {"policy": ["a", "b"], "window": [0, 0], "seed": [0, 0], "jct_s": [1.0, 2.0]}
    assert list(runs[0].jobs.columns) == ["jct_s"]


def board_of(runs, references):
    tables = make_tables(runs)
    return make_leaderboard(summarise(tables), compare(tables, references), tables, policies(runs))


def test_table_without_intervals_says_why():
    board = board_of(outcomes(a=[1.0], b=[2.0]), ["b"])
    assert not any("[" in cell for row in board.rows for cell in row)
    assert "IQM [s]" not in board.headings
    assert any("Fewer than 5 give no interval" in note for note in board.notes)
    assert any("1 completed + 1 failed + 1 rejected + 1 unfinished = 1 submitted" in note for note in board.notes)


def test_table_with_intervals_marks_what_excludes_zero():
    board = board_of(outcomes(a=[1.0, 2.0, 3.0, 4.0, 5.0], b=[2.0, 3.0, 4.0, 5.0, 6.0]), ["b"])
    cells = dict(zip(board.headings, board.rows[0], strict=True))
    assert cells["policy"] == "a"
    assert cells["jct vs b"].startswith("-25.0 % [")  # 3 against 4
    assert cells["jct vs b"].endswith("]*")
    assert cells["IQM [s]"] == "3"


def test_rescales_have_a_column_where_there_are_any():
    runs = [outcome("a", 0, 0, 1.0), outcome("b", 0, 0, 2.0)]
    runs[0].metrics["num_rescales"] = runs[1].metrics["num_rescales"] = 0.0
    assert "rescales" not in board_of(runs, ["b"]).headings
    runs[1].metrics["num_rescales"] = 7.0
    board = board_of(runs, ["b"])
    assert [dict(zip(board.headings, row, strict=True))["rescales"] for row in board.rows] == ["0", "7"]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_narrow_terminal_loses_columns_not_digits(width):
    runs = outcomes(a=[10001.0, 10002.0, 10003.0, 10004.0, 10005.0], b=[20001.0, 20002.0, 20003.0, 20004.0, 20005.0])
    board = board_of(runs, ["b", "a"])
    console = Console(width=width, file=io.StringIO())
    print_leaderboard(board, console)
    table = console.file.getvalue().split("Repetitions")[0]
    assert "…" not in table
    assert "10,003 [10,002, 10,004]" in table
    assert ("preemptions" in table) == (width == 200)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.nan, ""),
        (0.0, "0"),
        (12345.678, "12,346"),
        (178.4167, "178.4"),
        (12.345, "12.35"),
        (0.5791, "0.579"),
        (60.0, "60"),
    ],
)
def test_numbers_have_about_four_digits(value, text):
    assert format_number(value) == text


def test_estimates_show_bounds_only_if_they_exist():
    assert format_estimate(Estimate(10.0, np.nan, np.nan, 3)) == "10"
    assert format_estimate(Estimate(10.0, 8.0, 12.5, 9)) == "10 [8, 12.50]"


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "new" / "table.csv"
    write_atomically(path, lambda partial: partial.write_text("old"))

    def fail(partial):
        partial.write_text("half")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_json_has_no_nan(tmp_path):
    write_json(tmp_path / "a.json", {"x": [1, None]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": [1, None]}
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"x": float("nan")})


def test_inference_has_columns_where_there_are_tasks():
    runs = [outcome("a", 0, 0, 1.0), outcome("b", 0, 0, 2.0)]
    for run in runs:
        run.metrics["mean_latency_s"] = run.metrics["slo_violations"] = np.nan
    assert not {"latency [s]", "late tasks"} & set(board_of(runs, ["b"]).headings)
    runs[0].metrics.update(mean_latency_s=8.25, slo_violations=0.125)
    cells = [dict(zip(board.headings, row, strict=True)) for board in [board_of(runs, ["b"])] for row in board.rows]
    assert [(row["latency [s]"], row["late tasks"]) for row in cells] == [("8.250", "0.125"), ("", "")]
