"""A workload trace: one validated, typed table of jobs.

Every reader and generator returns a :class:`Trace`; the simulator reads nothing else. The columns
are described once, in :data:`COLUMNS`, from which validation, CSV writing and the documentation
are derived.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from traces.sensitivity import SENSITIVITIES, what_is_unknown

Split = Literal["all", "train", "validation", "test"]

# Shares of the jobs, in arrival order: a policy is trained on the past and tested on the future.
SPLIT_BOUNDS: dict[str, tuple[float, float]] = {
    "all": (0.0, 1.0),
    "train": (0.0, 0.6),
    "validation": (0.6, 0.8),
    "test": (0.8, 1.0),
}


class TraceError(ValueError):
    """Input that cannot be read as a trace; the message is one sentence naming row and field."""


class Column(NamedTuple):
    """One column of a trace: its name, dtype, unit, the value that means "missing", and meaning."""

    name: str
    dtype: str
    unit: str
    missing: object  # None: the column is required
    meaning: str


COLUMNS: tuple[Column, ...] = (
    Column("job_id", "str", "", None, "identifier in the source, unique"),
    Column("kind", "str", "", "training", "training or inference"),
    Column("arrival_s", "float64", "s", None, "submission time, non-decreasing, >= 0"),
    Column("num_gpus", "int64", "GPUs", None, "GPUs requested, >= 1"),
    Column("duration_s", "float64", "s", np.nan, "run time at num_gpus, >= 0; NaN: unknown"),
    Column("share_milli", "int64", "1/1000 GPU", 1000, "share of one device; < 1000 needs 1 GPU"),
    Column("model", "str", "", "", "model profile"),
    Column("batch_size", "int64", "samples", 0, "requested batch size; 0: the model's default"),
    Column("max_gpus", "int64", "GPUs", 0, "most GPUs an elastic job may hold; 0: no limit"),
    Column("freezing", "str", "", "", "preset of how an elastic job's layers converge; empty: none is ever frozen"),
    Column("comm_share", "float64", "", np.nan, "share of a rigid job's iteration that is communication; NaN: usual"),
    Column("sensitivity", "str", "", "", "row of traces/sensitivity.py: what slows it down; empty: by its model"),
    Column("service", "str", "", "", "inference service of an inference task"),
    Column("start_up_s", "float64", "s", np.nan, "start-up of a new pod of a task's service; NaN: its model's"),
    Column("user", "str", "", "", "submitting user"),
    Column("tenant", "str", "", "", "virtual cluster or team"),
    Column("deadline_s", "float64", "s", np.nan, "absolute deadline; NaN: none"),
    Column("gpu_type", "str", "", "", "required GPU type; empty: any one type"),
    Column("estimate_s", "float64", "s", np.nan, "user's or predictor's duration; NaN: unknown"),
    Column("preemptible", "bool", "", True, "whether a scheduler may take its GPUs away"),
    Column("status", "str", "", "", "final status in the source (Pass, Killed, ...)"),
)


@dataclass(frozen=True)
class Trace:
    """Jobs in arrival order; equal arrivals keep the order of the source.

    ``jobs`` has every column of :data:`COLUMNS` (missing ones filled with their ``missing`` value)
    followed by any others the source had. ``skipped`` counts source rows left out, by reason;
    ``notes`` counts rows that were kept but changed, by what was done. ``first_row``: the job of the
    whole trace that a window begins with.
    """

    name: str
    jobs: pd.DataFrame
    provenance: str = ""
    skipped: dict[str, int] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)
    first_row: int = 0

    def __len__(self) -> int:
        return len(self.jobs)

    @cached_property
    def job_rows(self) -> npt.NDArray[np.int64]:
        """Rows that windows and splits count: training jobs, or in a trace without any all rows."""
        training = np.flatnonzero(self.jobs["kind"] == "training")
        return training if len(training) else np.arange(len(self))

    def count_jobs(self, start: int, stop: int) -> int:
        """Jobs, as windows count them, among rows ``start`` .. ``stop - 1``."""
        low, high = np.searchsorted(self.job_rows, (start, stop))
        return int(high - low)

    def window_stop(self, start: int, length: int) -> int:
        """One past the last row of the window of ``length`` jobs that begins at row ``start``."""
        following = int(np.searchsorted(self.job_rows, start)) + length
        return int(self.job_rows[following]) if following < len(self.job_rows) else len(self)

    def window(self, start: int, length: int) -> Trace:
        """Rows from ``start`` on, times shifted so that the first arrives at 0.

        ``length`` training jobs and the inference tasks that arrive before the next one; in a trace without training
        jobs, tasks.
        """
        if length < 1 or start < 0 or start >= len(self):
            raise TraceError(f"window {start}:{length} lies outside trace {self.name} of {len(self)} jobs")
        jobs = self.jobs.iloc[start : self.window_stop(start, length)].reset_index(drop=True).copy()
        origin = float(jobs["arrival_s"].iloc[0])
        jobs["arrival_s"] -= origin
        jobs["deadline_s"] -= origin
        return replace(self, name=f"{self.name}[{start}:{length}]", jobs=jobs, first_row=self.first_row + start)

    def split_range(self, split: Split) -> tuple[int, int]:
        """First and one-past-last row of a split (by arrival order of its jobs, so by time)."""
        rows = np.append(self.job_rows, len(self))
        rows[0] = 0
        lo, hi = SPLIT_BOUNDS[split]
        return int(rows[round(lo * len(self.job_rows))]), int(rows[round(hi * len(self.job_rows))])

    def possible_starts(self, length: int, split: Split = "all") -> npt.NDArray[np.int64]:
        """(starts,) int64 rows of the jobs that a window of ``length`` jobs inside a split may begin with."""
        lo, hi = self.split_range(split)
        rows = self.job_rows[(self.job_rows >= lo) & (self.job_rows < hi)]
        if len(rows) < length:
            raise TraceError(
                f"the {split} split of trace {self.name} has {len(rows)} jobs, fewer than one window of {length}"
            )
        return rows[: len(rows) - length + 1]

    def window_starts(self, count: int, length: int, split: Split = "all") -> list[int]:
        """Starts of ``count`` windows of ``length`` jobs, evenly spaced inside a split."""
        starts = self.possible_starts(length, split)
        first = int(np.searchsorted(self.job_rows, starts[0]))
        return [int(self.job_rows[round(x)]) for x in np.linspace(first, first + len(starts) - 1, count)]


def make_trace(
    name: str,
    columns: dict[str, Any] | pd.DataFrame,
    provenance: str = "",
    skipped: dict[str, int] | None = None,
    notes: dict[str, int] | None = None,
    where: Callable[[int], str] | None = None,
) -> Trace:
    """Build a validated :class:`Trace`: fill missing columns, set dtypes, sort stably by arrival.

    Cells may be text, as read from a CSV; empty text is a missing value. Raises :class:`TraceError` naming the first
    row and field at fault: ``where(row)`` describes a row (0-based, in the order given), such as by its line in a file.
    """
    describe = where or (lambda row: f"trace {name}, row {row}")
    table = pd.DataFrame(columns).reset_index(drop=True)
    if len(table) == 0:
        raise TraceError(f"trace {name} has no jobs")
    if "job_id" not in table:
        table.insert(0, "job_id", [str(i) for i in range(len(table))])
    known = [_typed(describe, name, table, column) for column in COLUMNS]
    extra = table[[c for c in table.columns if c not in {k.name for k in COLUMNS}]]
    jobs = pd.concat([*known, extra], axis=1)
    _validate(describe, jobs)
    jobs = jobs.sort_values("arrival_s", kind="stable").reset_index(drop=True)
    return Trace(name, jobs, provenance, dict(skipped or {}), dict(notes or {}))


EXPECTED = {"int64": "a whole number", "float64": "a number", "bool": "true or false", "str": "text"}


def _typed(where: Callable[[int], str], name: str, table: pd.DataFrame, column: Column) -> pd.Series[Any]:
    """The column with its dtype; missing cells take the column's missing value."""
    if column.name not in table:
        if column.missing is None:
            raise TraceError(f"trace {name} has no column {column.name}")
        return pd.Series([column.missing] * len(table), name=column.name, dtype=column.dtype)
    cells = table[column.name]
    if column.missing is not None:
        absent = cells.isna()
        if not pd.api.types.is_numeric_dtype(cells):
            absent |= cells == ""
        if absent.any():
            cells = cells.astype(object).mask(absent, column.missing)
    values: list[Any] | np.ndarray[Any, Any]
    try:
        values = cells.to_numpy() if cells.dtype == column.dtype else [_cell(v, column.dtype) for v in cells]
    except (ValueError, TypeError, OverflowError, KeyError):
        row = next(row for row, value in enumerate(cells) if not _readable(value, column.dtype))
        expected = EXPECTED[column.dtype]
        raise TraceError(f"{where(row)}: {column.name} is {str(cells.iloc[row])!r}, expected {expected}") from None
    return pd.Series(values, name=column.name, dtype=column.dtype)


def _cell(value: Any, dtype: str) -> object:
    """One cell as the dtype's Python type; float() rounds correctly, which pandas' own reading of text does not."""
    if dtype == "float64":
        return float(value)
    if dtype == "int64":
        whole = int(float(value)) if isinstance(value, str) else int(value)
        if whole != float(value) or not -(2**63) <= whole < 2**63:
            raise ValueError
        return whole
    if dtype == "bool":
        return {"true": True, "1": True, "false": False, "0": False}[str(value).lower()]
    if pd.isna(value) or value == "":
        return ""
    return str(value)


def _readable(value: Any, dtype: str) -> bool:
    try:
        _cell(value, dtype)
    except (ValueError, TypeError, OverflowError, KeyError):
        return False
    return True


Rule = tuple[str, "pd.Series[bool]", str]  # column, where it is broken, what it must be


def _validate(where: Callable[[int], str], jobs: pd.DataFrame) -> None:
    """Rules that every row keeps; the first broken one is named."""
    training = jobs["kind"] == "training"
    rules: tuple[Rule, ...] = (
        ("job_id", jobs["job_id"].isna() | (jobs["job_id"] == ""), "is empty"),
        ("kind", ~jobs["kind"].isin(("training", "inference")), "must be training or inference"),
        ("arrival_s", ~np.isfinite(jobs["arrival_s"]) | (jobs["arrival_s"] < 0), "must be a finite time >= 0"),
        ("num_gpus", (jobs["num_gpus"] < 1) | (jobs["num_gpus"] > 1 << 20), "must lie between 1 and 1048576"),
        ("duration_s", (jobs["duration_s"] < 0) | np.isinf(jobs["duration_s"]), "must be a finite time >= 0"),
        (
            "duration_s",
            jobs["duration_s"].isna() & training & (jobs["model"] == ""),
            "is missing and no model is given",
        ),
        ("share_milli", (jobs["share_milli"] < 1) | (jobs["share_milli"] > 1000), "must lie between 1 and 1000"),
        ("share_milli", (jobs["share_milli"] < 1000) & (jobs["num_gpus"] != 1), "below 1000 needs num_gpus 1"),
        *((name, jobs[name] < 0, "must be >= 0") for name in ("batch_size", "max_gpus", "estimate_s")),
        *_inference_rules(jobs, ~training, jobs["start_up_s"]),
        *_straggler_rules(jobs, ~training, jobs["comm_share"]),
        ("job_id", jobs["job_id"].duplicated(), "occurs twice"),
    )
    for column, broken, rule in rules:
        if broken.any():
            row = int(np.flatnonzero(broken)[0])
            value = "" if rule.startswith("is ") else jobs[column].iloc[row]
            raise TraceError(f"{where(row)}: {' '.join(f'{column} {value} {rule}'.split())}")


def _inference_rules(jobs: pd.DataFrame, task: pd.Series[bool], start_up: pd.Series[float]) -> tuple[Rule, ...]:
    """A task is one request to a named service, served by one whole GPU of any type; training has no service."""
    return (
        ("service", task & (jobs["service"] == ""), "is empty, but an inference task needs one"),
        ("duration_s", task & jobs["duration_s"].isna(), "is missing, but an inference task needs one"),
        ("duration_s", task & (jobs["duration_s"] == 0), "must be > 0 for an inference task"),
        ("num_gpus", task & (jobs["num_gpus"] != 1), "must be 1 for an inference task"),
        ("share_milli", task & (jobs["share_milli"] != 1000), "must be 1000 for an inference task"),
        ("gpu_type", task & (jobs["gpu_type"] != ""), "must be empty for an inference task"),
        ("start_up_s", (start_up < 0) | np.isinf(start_up), "must be a finite time >= 0"),
        ("service", ~task & (jobs["service"] != ""), "must be empty for a training job"),
        ("start_up_s", ~task & start_up.notna(), "must be empty for a training job"),
    )


def _straggler_rules(jobs: pd.DataFrame, task: pd.Series[bool], share: pd.Series[float]) -> tuple[Rule, ...]:
    """What slows a training job, and how much; how much an elastic job communicates follows from its profile."""
    elastic = ~task & jobs["duration_s"].isna()
    unknown = ~jobs["sensitivity"].isin(("", *SENSITIVITIES))
    wrong = what_is_unknown(jobs["sensitivity"][unknown].iloc[0]) if unknown.any() else ""
    return (
        ("comm_share", task & share.notna(), "must be empty for an inference task"),
        ("sensitivity", task & (jobs["sensitivity"] != ""), "must be empty for an inference task"),
        ("comm_share", elastic & share.notna(), "must be empty for an elastic job (one without duration_s)"),
        ("comm_share", (share < 0) | (share >= 1), "must be at least 0 and below 1"),
        ("sensitivity", unknown, wrong),
    )
