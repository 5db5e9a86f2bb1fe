"""What every benchmark does alike: repeat, count CPU seconds, print a table, end with one JSON object.

CPU seconds of this process (all its threads) are counted, not wall time: on a shared machine wall time measures the
neighbours. Of several repeats the median is reported, and the best, which is nearest to an idle machine. Run a
benchmark twice: code compiled in the same process is up to a tenth slower than code loaded from the cache.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

Figures = dict[str, float]  # what --json prints: flat names, such as env_steps_per_cpu_s.rigid.256


@dataclass(frozen=True)
class Timing:
    """CPU seconds of several runs of the same work."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        return min(self.seconds)


def measure(work: Callable[[], object], repeats: int) -> Timing:
    """CPU seconds of each of ``repeats`` calls of ``work``."""
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return Timing(tuple(seconds))


def peak_memory_mb() -> float:
    """Most memory that this process has held so far [MB]."""
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in KiB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def table(title: str, columns: Sequence[str], caption: str) -> Table:
    """An empty table whose first column is text and whose others are numbers."""
    made = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    made.add_column(escape(columns[0]), no_wrap=True)
    for column in columns[1:]:
        made.add_column(escape(column), justify="right")  # [s] would be a tag
    return made


def console() -> Console:
    """Tables as wide as they need where the output is not a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=160)


def print_figures(figures: Figures) -> None:
    """One line of JSON, the last of the output; four digits are more than any machine repeats."""
    print(json.dumps({name: float(f"{value:.4g}") for name, value in figures.items()}))
