"""The tables of ``python -m traces info``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from traces.summary import kinds, offered_load, shares, statistics
from traces.trace import Trace

MOST_ROWS = 12

# What the jobs of a kind are divided by; every inference task has one GPU.
DIVISIONS: dict[str, tuple[str, ...]] = {
    "training": ("num_gpus", "tenant", "status", "model"),
    "inference": ("tenant", "status", "model", "service"),
}

# Name of a statistic, how it is called in the table, and its format.
QUANTITIES: tuple[tuple[str, str, str], ...] = (
    ("jobs", "jobs", ",.0f"),
    ("span_s", "first to last arrival [s]", ",.0f"),
    ("mean_gpus", "mean GPUs", ".2f"),
    ("single_gpu_share", "jobs of at most one GPU", ".1%"),
    ("known_durations", "jobs with a known duration", ",.0f"),
    ("p10_duration_s", "duration p10 [s]", ",.0f"),
    ("p50_duration_s", "duration p50 [s]", ",.0f"),
    ("p90_duration_s", "duration p90 [s]", ",.0f"),
    ("p99_duration_s", "duration p99 [s]", ",.0f"),
    ("max_duration_s", "longest duration [s]", ",.0f"),
    ("mean_duration_s", "mean duration [s]", ",.0f"),
    ("gpu_time_s", "GPU-time [GPU-s]", ",.0f"),
    ("mean_gap_s", "mean gap of arrivals [s]", ",.2f"),
    ("median_gap_s", "median gap [s]", ",.2f"),
    ("zero_gap_share", "gaps of zero", ".1%"),
    ("cv_gap", "CV of gaps", ".2f"),
    ("dispersion", "dispersion index of hourly arrivals", ".1f"),
)


def print_report(console: Console, trace: Trace, cluster_gpus: int | None = None) -> None:
    """Print statistics and divisions of each kind of work, the offered load, and rows left out or changed."""
    console.print(Text(f"{trace.name}: {len(trace)} jobs. {trace.provenance}"))
    console.print(_statistics(trace))
    for kind in kinds(trace):
        part = replace(trace, jobs=trace.jobs[trace.jobs["kind"] == kind])
        for column in DIVISIONS[kind]:
            if (part.jobs[column] != "").any():
                label = "GPUs" if column == "num_gpus" else column
                console.print(_shares(part, column, f"{label} ({kind})" if len(kinds(trace)) > 1 else label))
    if cluster_gpus is not None:
        load = offered_load(trace, cluster_gpus)
        console.print(f"offered load on {cluster_gpus} GPUs: {load:.3f} (jobs of known duration)", highlight=False)
    for title, counts in (("rows left out", trace.skipped), ("rows changed", trace.notes)):
        console.print(_counts(title, counts) if counts else f"{title}: none", highlight=False)


def _statistics(trace: Trace) -> Table:
    columns = {kind: statistics(trace, kind) for kind in kinds(trace)}
    table = _table("quantity", *columns)
    for name, label, form in QUANTITIES:
        # NaN (nothing to compute from) is the one value that differs from itself.
        table.add_row(Text(label), *(format(c[name], form) if c[name] == c[name] else "-" for c in columns.values()))
    return table


def _shares(trace: Trace, column: str, label: str) -> Table:
    rows = shares(trace, column)
    table = _table(label, "jobs", "% of jobs", "% of GPU-time")
    parts = [(str(value), rows.iloc[number : number + 1]) for number, value in enumerate(rows.index[:MOST_ROWS])]
    if len(rows) > MOST_ROWS:
        parts.append((f"{len(rows) - MOST_ROWS} others", rows.iloc[MOST_ROWS:]))
    for name, part in parts:
        jobs, job_share, work = (float(part[key].sum()) for key in ("jobs", "job_share", "gpu_time_share"))
        known = part["gpu_time_share"].notna().any()
        table.add_row(
            Text(name or "(none)"), f"{jobs:,.0f}", f"{100 * job_share:.2f}", f"{100 * work:.2f}" if known else "-"
        )
    return table


def _counts(title: str, counts: Mapping[str, int]) -> Table:
    table = _table(title, "rows")
    for reason, count in counts.items():
        table.add_row(Text(reason), f"{count:,}")
    return table


def _table(first: str, *rest: str) -> Table:
    table = Table(first)
    for name in rest:
        table.add_column(name, justify="right")
    return table
