"""The one table an evaluation prints: policies best first, the same cells for terminal and report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from envs.results import IQM, RANKED_BY, Difference, Estimates, Policy, Tables
from envs.statistics import MIN_REPETITIONS, Estimate

NUMBERS: tuple[tuple[str, str], ...] = (  # metric, heading
    ("p99_jct_s", "p99 jct [s]"),
    ("mean_queueing_delay_s", "queueing [s]"),
    ("makespan_s", "makespan [s]"),
    ("mean_slowdown", "slowdown"),
    ("finish_time_fairness", "rho"),
    ("utilisation_allocated", "utilisation"),
    ("num_preemptions", "preemptions"),
    ("num_rescales", "rescales"),
)
TASK_NUMBERS = (  # of inference tasks, where there are any
    ("mean_latency_s", "latency [s]"),
    ("slo_violations", "late tasks"),
)
LAYER_NUMBERS = (("mean_residual", "residual"),)  # of jobs whose layers may be frozen, where there are any
# Left out first when the terminal is too narrow for all columns.
SPARE = (
    "rho",
    "slowdown",
    "makespan [s]",
    "IQM [s]",
    "batch",
    "rescales",
    "preemptions",
    "utilisation",
    "queueing [s]",
)
SPARE_LAST = ("p99 jct [s]", "reads", "latency [s]")
TEXT = ("policy", "batch", "reads")  # read from the left, unlike numbers


@dataclass(frozen=True)
class Leaderboard:
    """Headings, rows of cells (text) and notes below the table."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def make_leaderboard(
    estimates: Estimates, differences: Sequence[Difference], tables: Tables, policies: Sequence[Policy]
) -> Leaderboard:
    """Cells from ``summarise`` and ``compare``; one column of differences for each reference in the latter."""
    facts = {policy.name: policy for policy in policies}
    references = list(dict.fromkeys(d.reference for d in differences))
    ratios = {(d.policy, d.reference): d.ratio for d in differences if d.metric == RANKED_BY}
    repeated = any(metrics[RANKED_BY].n > 1 for metrics in estimates.values())
    rescaled = any(metrics["num_rescales"].value > 0 for metrics in estimates.values())
    numbers = NUMBERS if rescaled else NUMBERS[:-1]
    if any(not np.isnan(metrics["mean_latency_s"].value) for metrics in estimates.values()):
        numbers += TASK_NUMBERS
    if any(not np.isnan(metrics["mean_residual"].value) for metrics in estimates.values()):
        numbers += LAYER_NUMBERS
    headings = ["policy", "mean jct [s]"]
    headings += ["IQM [s]"] * repeated
    headings += [heading for _, heading in numbers]
    headings += [f"jct vs {reference}" for reference in references]
    headings += ["batch", "reads"]
    rows = []
    for name, metrics in estimates.items():
        row = [name, format_estimate(metrics[RANKED_BY])]
        row += [format_number(metrics[IQM].value)] * repeated
        row += [format_number(metrics[metric].value) for metric, _ in numbers]
        row += [_relative(ratios.get((name, r))) for r in references]
        row += [facts[name].batch, ", ".join(facts[name].oracle)]
        rows.append(tuple(row))
    return Leaderboard(tuple(headings), tuple(rows), _notes(estimates, tables, policies))


def print_leaderboard(board: Leaderboard, console: Console) -> None:
    """Print the table, without its least important columns where they do not fit, and the notes."""
    shown = list(board.headings)
    references = [heading for heading in shown if heading.startswith("jct vs ")]
    for spare in (None, *SPARE, *references[1:], *SPARE_LAST, *references[:1]):
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


def format_estimate(estimate: Estimate) -> str:
    """``value [low, high]``, or the value alone where there is no interval."""
    low, high = format_number(estimate.ci_low), format_number(estimate.ci_high)
    return format_number(estimate.value) + (f" [{low}, {high}]" if low else "")


def _table(board: Leaderboard, shown: Sequence[str]) -> Table:
    table = Table(header_style="bold", box=SIMPLE_HEAD)
    for heading in shown:
        table.add_column(Text(heading), justify="left" if heading in TEXT else "right", no_wrap=True)
    for row in board.rows:
        cells = dict(zip(board.headings, row, strict=True))
        table.add_row(*(Text(cells[heading]) for heading in shown))
    return table


def _relative(ratio: Estimate | None) -> str:
    """A paired relative difference in percent; * where its interval excludes 0."""
    if ratio is None or np.isnan(ratio.value):
        return ""
    value, low, high = (x * 100 for x in ratio[:3])
    interval = "" if np.isnan(low) else f" [{low:+.1f}, {high:+.1f}]" + ("*" if ratio.excludes_zero else " ")
    return f"{value:+.1f} %{interval}"


def _notes(estimates: Estimates, tables: Tables, policies: Sequence[Policy]) -> tuple[str, ...]:
    repetitions = [metrics[RANKED_BY].n for metrics in estimates.values()]
    fewest, most = min(repetitions), max(repetitions)
    count = str(most) if fewest == most else f"{fewest} to {most}"
    if fewest < MIN_REPETITIONS:
        notes = [f"Repetitions: {count}. Fewer than {MIN_REPETITIONS} give no interval; use --windows or --seeds."]
    else:
        notes = [f"Repetitions: {count}. Brackets: 95 % intervals. * a paired difference whose interval excludes 0."]
    if any(policy.oracle for policy in policies):
        notes.append('Policies with an entry under "reads" know true quantities that no real scheduler has.')
    groups: dict[str, list[str]] = {}
    for name, table in tables.items():
        parts = [f"{_sum(table, status)} {status}" for status in ("completed", "failed", "rejected", "unfinished")]
        groups.setdefault(f"{' + '.join(parts)} = {_sum(table, 'submitted')} submitted", []).append(name)
    for line, names in groups.items():
        notes.append(f"Jobs ({'every policy' if len(groups) == 1 else ', '.join(names)}): {line}.")
    return tuple(notes)


def _sum(table: dict[str, npt.NDArray[np.float64]], status: str) -> int:
    return int(table[f"num_{status}"].sum())
