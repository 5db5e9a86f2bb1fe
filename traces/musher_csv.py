"""Our own trace CSV: the one format that keeps everything a :class:`~traces.trace.Trace` holds.

``job_id,kind,arrival_s,num_gpus,duration_s``, then the other columns of :data:`~traces.trace.COLUMNS` that say
anything, then the source's own. Missing values are empty. A first line starting with ``#`` carries the provenance.
Numbers are written so that reading gives the same number back, bit for bit. Line breaks in the provenance become
spaces.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import pandas as pd

from traces.table import Table
from traces.trace import COLUMNS, Column, Trace, TraceError, make_trace

ALWAYS = ("job_id", "kind", "arrival_s", "num_gpus", "duration_s")


def detect(header: list[str]) -> bool:
    return {"arrival_s", "num_gpus"} <= set(header)


def read(table: Table, name: str) -> Trace:
    """Read a table of our own format; columns that are not ours are kept. CPU jobs (0 GPUs) are left out."""
    table.require(("arrival_s", "num_gpus"))
    table, skipped = table.without_cpu_jobs("num_gpus")
    ours = [column.name for column in COLUMNS if column.name in table.columns]
    columns = {**{column: table.columns[column] for column in ours}, **table.others(ours)}
    return make_trace(name, columns, table.comment, skipped, where=table.where)


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace as our own CSV, whole or not at all (to a temporary file beside it, then renamed).

    Raises TraceError if the file cannot be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    columns = {name: _cells(trace.jobs[name], missing) for name, missing in _written(trace)}
    try:
        with temporary.open("x", encoding="utf-8", newline="") as file:
            if trace.provenance:
                file.write(f"# {' '.join(trace.provenance.split())}\n")
            for row in (columns, *zip(*columns.values(), strict=True)):
                file.write(",".join(map(_quoted, row)) + "\n")
        os.replace(temporary, path)
    except OSError as error:
        raise TraceError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):  # after a rename, or where the folder is none, there is nothing to remove
            temporary.unlink()


def _quoted(cell: str) -> str:
    """A CSV field. Python's csv.writer does not quote a lone carriage return, which its reader takes for a line end."""
    return '"' + cell.replace('"', '""') + '"' if re.search(r'[,"\r\n]', cell) else cell


def _written(trace: Trace) -> list[tuple[str, object]]:
    """Columns to write and the value of each that is written as an empty cell."""
    known = [(c.name, c.missing) for c in COLUMNS if c.name in ALWAYS or _says_anything(trace, c)]
    ours = {column.name for column in COLUMNS}
    return known + [(name, None) for name in trace.jobs.columns if name not in ours]


def _says_anything(trace: Trace, column: Column) -> bool:
    values = trace.jobs[column.name]
    return bool((values.notna() & (values != column.missing)).any())


def _cells(values: pd.Series, missing: object) -> list[str]:
    """Text of each cell; ``repr`` of a float is the shortest text that reads back as the same number."""
    absent = values.isna() | (values == missing) if missing not in (None, "training") else values.isna()
    return ["" if empty else str(value) for value, empty in zip(values.tolist(), absent, strict=True)]
