"""The one table an evaluation prints: policies best first, the same cells for terminal and report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from envs.results import IQM, RANKED_BY, Policy, Tables
from envs.statistics import MIN_REPETITIONS

NUMBERS = (  # metric, heading
    ("p99_jct_s", "p99 jct [s]"),
    ("mean_queueing_delay_s", "queueing [s]"),
    ("makespan_s", "makespan [s]"),
    ("mean_slowdown", "slowdown"),
    ("finish_time_fairness", "rho"),
    ("utilisation_allocated", "utilisation"),
    ("num_preemptions", "preemptions"),
)
# Left out first when the terminal is too narrow for all columns.
SPARE = ("rho", "slowdown", "makespan [s]", "IQM [s]", "batch", "preemptions", "utilisation", "queueing [s]", "p99 jct [s]")


@dataclass(frozen=True)
class Leaderboard:
    """Headings, rows of cells (text) and notes below the table."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def make_leaderboard(
    summary: pd.DataFrame, differences: pd.DataFrame, tables: Tables, policies: Sequence[Policy]
) -> Leaderboard:
    """Cells from ``summarise`` and ``compare``; one column of differences for each reference in the latter."""
    facts = {policy.name: policy for policy in policies}
    cells = summary.set_index(["policy", "metric"])
    order = list(dict.fromkeys(summary["policy"]))
    references = list(dict.fromkeys(differences["reference"]))
    repeated = bool((summary["n"] > 1).any())
    interval = bool(summary["ci_low"].notna().any())
    headings = ["policy", "mean jct [s]" + (", 95 % interval" if interval else "")]
    headings += ["IQM [s]"] if repeated else []
    headings += [heading for _, heading in NUMBERS]
    headings += [f"jct vs {reference}" for reference in references]
    headings += ["batch", "reads"]
    rows = []
    for name in order:
        mean = cells.loc[(name, RANKED_BY)]
        row = [name, format_interval(mean["mean"], mean["ci_low"], mean["ci_high"])]
        row += [format_number(float(cells.loc[(name, IQM), "mean"]))] if repeated else []
        row += [format_number(float(cells.loc[(name, metric), "mean"])) for metric, _ in NUMBERS]
        row += [_relative(name, reference, differences, cells) for reference in references]
        row += [facts[name].batch, ", ".join(facts[name].oracle)]
        rows.append(tuple(row))
    return Leaderboard(tuple(headings), tuple(rows), _notes(summary, tables, policies))


def print_leaderboard(board: Leaderboard, console: Console) -> None:
    """Print the table, without its least important columns where they do not fit, and the notes."""
    shown = list(board.headings)
    for spare in (None, *SPARE):
        shown = [heading for heading in shown if heading != spare]
        table = _table(board, shown)
        if console.measure(table, options=console.options.update(max_width=10_000)).maximum <= console.width:
            break
    console.print(table)
    for note in board.notes:
        console.print(Text(note), soft_wrap=True)


def format_number(value: float) -> str:
    """About four digits, thousands separated; NaN is empty."""
    if np.isnan(value):
        return ""
    size = abs(value)
    digits = 0 if size >= 1000 or value == int(value) else 1 if size >= 100 else 2 if size >= 10 else 3
    return f"{value:,.{digits}f}"


def format_interval(value: float, low: float, high: float) -> str:
    """``value [low, high]``, or the value alone where there is no interval."""
    return format_number(value) + ("" if np.isnan(low) else f" [{format_number(low)}, {format_number(high)}]")


def _table(board: Leaderboard, shown: Sequence[str]) -> Table:
    table = Table(header_style="bold", pad_edge=False)
    for heading in shown:
        text = heading in ("policy", "batch", "reads")
        table.add_column(heading, justify="left" if text else "right", no_wrap=True)
    for row in board.rows:
        cells = dict(zip(board.headings, row, strict=True))
        table.add_row(*(Text(cells[heading]) for heading in shown))
    return table


def _relative(name: str, reference: str, differences: pd.DataFrame, cells: pd.DataFrame) -> str:
    """Paired difference of mean jct as a percentage of the reference's; * where its interval excludes 0."""
    rows = differences.query("policy == @name and reference == @reference and metric == @RANKED_BY")
    base = float(cells.loc[(reference, RANKED_BY), "mean"])
    if rows.empty or not base > 0:
        return ""
    gap, low, high = (float(rows.iloc[0][column]) / base * 100 for column in ("difference", "ci_low", "ci_high"))
    if np.isnan(gap):
        return ""
    interval = "" if np.isnan(low) else f" [{low:+.1f}, {high:+.1f}]" + ("*" if low > 0 or high < 0 else " ")
    return f"{gap:+.1f} %{interval}"


def _notes(summary: pd.DataFrame, tables: Tables, policies: Sequence[Policy]) -> tuple[str, ...]:
    n = summary.loc[summary["metric"] == RANKED_BY, "n"]
    count = str(n.min()) if n.min() == n.max() else f"{n.min()} to {n.max()}"
    if n.min() < MIN_REPETITIONS:
        notes = [f"Repetitions: {count}. Fewer than {MIN_REPETITIONS} give no interval; use --windows or --seeds."]
    else:
        notes = [f"Repetitions: {count}. * the paired difference's interval excludes 0; negative is better."]
    if any(policy.oracle for policy in policies):
        notes.append('Policies with an entry under "reads" know true quantities that no real scheduler has.')
    groups: dict[str, list[str]] = {}
    for name, table in tables.items():
        parts = [f"{_sum(table, status)} {status}" for status in ("completed", "failed", "rejected", "unfinished")]
        groups.setdefault(f"{' + '.join(parts)} = {_sum(table, 'submitted')} submitted", []).append(name)
    for line, names in groups.items():
        notes.append(f"Jobs ({'every policy' if len(groups) == 1 else ', '.join(names)}): {line}.")
    return tuple(notes)


def _sum(table: dict[str, np.ndarray], status: str) -> int:
    return int(table[f"num_{status}"].sum())
