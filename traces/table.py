"""The text table behind every CSV reader: cells, and where in the file each row came from.

Rows keep their line numbers, so that an error names the line a user sees in an editor. Blank lines are skipped, a last
line without a line end counts, and CRLF is read like LF. Nothing is sorted or dropped here.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from traces.trace import COLUMNS, TraceError


@dataclass(frozen=True)
class Table:
    """Cells of a CSV file as text, column by column.

    ``rows`` are the 0-based numbers of the kept rows in the file, ``lines`` their 1-based line numbers; ``comment`` is
    the text of the lines starting with ``#`` before the header, without the mark.
    """

    path: Path
    columns: dict[str, list[str]]
    rows: list[int]
    lines: list[int]
    comment: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def header(self) -> list[str]:
        return list(self.columns)

    def where(self, row: int) -> str:
        """How an error names a kept row."""
        return f"{self.path}, line {self.lines[row]}"

    def require(self, names: Iterable[str]) -> None:
        """Raise TraceError naming the first column of ``names`` that the file lacks."""
        for name in names:
            if name not in self.columns:
                raise TraceError(f"{self.path} has no column {name}, only {', '.join(self.columns)}")

    def numbers(self, name: str) -> npt.NDArray[np.float64]:
        """A column as (rows,) float64; TraceError for the first cell that is not a finite number."""
        cells = self.columns[name]
        try:
            values = np.array([float(cell) for cell in cells], np.float64)
        except ValueError:
            values = np.array([_float_or_nan(cell) for cell in cells], np.float64)
        broken = np.flatnonzero(~np.isfinite(values))
        if len(broken):
            row = int(broken[0])
            raise TraceError(f"{self.where(row)}: {name} is {cells[row]!r}, expected a number")
        return values

    def times(self, name: str) -> npt.NDArray[np.float64]:
        """A column of seconds, (rows,) float64 >= 0; TraceError for the first negative one."""
        values = self.numbers(name)
        broken = np.flatnonzero(values < 0)
        if len(broken):
            row = int(broken[0])
            raise TraceError(f"{self.where(row)}: {name} is {self.columns[name][row]}, expected a time >= 0")
        return values

    def keep(self, mask: npt.NDArray[np.bool_]) -> Table:
        """The rows where ``mask`` (rows,) is true."""
        kept = np.flatnonzero(mask).tolist()
        columns = {name: [cells[i] for i in kept] for name, cells in self.columns.items()}
        return replace(self, columns=columns, rows=[self.rows[i] for i in kept], lines=[self.lines[i] for i in kept])

    def without_cpu_jobs(self, name: str) -> tuple[Table, dict[str, int]]:
        """Leave out rows that ask for 0 GPUs (jobs of CPUs only) and count them by reason.

        Raises TraceError if none is left. A negative or broken count is an error, never a CPU job.
        """
        cpu_only = self.numbers(name) == 0
        count = int(cpu_only.sum())
        if count == 0:
            return self, {}
        if count == len(self):
            raise TraceError(f"{self.path} has no GPU jobs: all {count} rows ask for 0 GPUs")
        return self.keep(~cpu_only), {"asks for 0 GPUs": count}

    def others(self, used: Iterable[str]) -> dict[str, list[int] | list[float] | list[str]]:
        """Columns not in ``used``; those named like a column of ours get the prefix ``source_``."""
        ours = {column.name for column in COLUMNS}
        rest = [name for name in self.columns if name not in set(used)]
        return {f"source_{name}" if name in ours else name: natural(self.columns[name]) for name in rest}


def natural(cells: list[str]) -> list[int] | list[float] | list[str]:
    """Cells as int or float where writing these numbers gives the same text back, else as they are.

    Empty cells of a float column become NaN. Identifiers such as ``007`` stay text.
    """
    try:
        whole = [int(cell) for cell in cells]
        if all(str(number) == cell for number, cell in zip(whole, cells, strict=True)):
            return whole
    except ValueError:
        pass
    try:
        numbers = [float(cell) if cell else float("nan") for cell in cells]
    except ValueError:
        return cells
    same = all(not cell or repr(number) == cell for number, cell in zip(numbers, cells, strict=True))
    return numbers if same and any(cells) else cells


def unique_ids(cells: list[str]) -> tuple[list[str], dict[str, int]]:
    """Identifiers made unique: the second ``x`` becomes ``x~2``; and a note that counts the changed ones."""
    taken, count, out = set(cells), dict.fromkeys(cells, 0), []
    for cell in cells:
        count[cell] += 1
        name = cell
        while count[cell] > 1 and (name := f"{cell}~{count[cell]}") in taken:
            count[cell] += 1
        taken.add(name)
        out.append(name)
    changed = len(cells) - len(count)
    return out, {"repeated job id made unique": changed} if changed else {}


def read_table(path: Path) -> Table:
    """Read a comma-separated UTF-8 file with a header; TraceError for anything else."""
    text = _text(path)
    start, comment = 0, []
    while text.startswith("#", start):
        end = text.find("\n", start) + 1 or len(text)
        comment.append(text[start + 1 : end].strip())
        start = end
    skipped = len(comment)
    reader = csv.reader(io.StringIO(text[start:], newline=""), strict=True)
    cells, lines = [], []
    before = skipped
    try:
        for row in reader:
            if len(row) > 1 or "".join(row).strip():
                cells.append(row)
                lines.append(before + 1)
            before = skipped + reader.line_num
    except csv.Error as error:
        raise TraceError(f"{path}, line {skipped + reader.line_num}: not a CSV row ({error})") from None
    if not cells:
        raise TraceError(f"{path} is empty")
    header = _header(path, cells[0])
    for row, line in zip(cells[1:], lines[1:], strict=True):
        if len(row) != len(header):
            raise TraceError(f"{path}, line {line}: {len(row)} fields, but the header has {len(header)}")
    if len(cells) == 1:
        raise TraceError(f"{path} has a header but no rows")
    columns = dict(zip(header, map(list, zip(*cells[1:], strict=True)), strict=True))
    return Table(path, columns, list(range(len(cells) - 1)), lines[1:], " ".join(comment))


def _header(path: Path, row: list[str]) -> list[str]:
    header = [cell.strip() for cell in row]
    for name in header:
        if not name or header.count(name) > 1:
            raise TraceError(f"{path}: the header has {'an empty name' if not name else f'{name} twice'}")
    return header


def _text(path: Path) -> str:
    """The file's text; errors for a folder, a missing or unreadable file and one that is not text."""
    if path.is_dir():
        raise TraceError(f"{path} is a folder, expected a trace file")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise TraceError(f"{path} does not exist") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from None
    if b"\0" in data:
        raise TraceError(f"{path} is a binary file, expected CSV text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is not UTF-8 text (byte {error.start}), expected CSV text") from None


def _float_or_nan(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")
