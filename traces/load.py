"""One door to every trace: a file in any format we read, or a built-in workload by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from traces.generators import build, is_built_in, unknown
from traces.readers import read_file
from traces.trace import Trace, TraceError


def load_trace(source: str | Path, fmt: str | None = None, max_duration_s: float | None = None) -> Trace:
    """Load a trace.

    ``source`` is a built-in workload (``synthetic-philly?jobs=20000,seed=3``) or else a file; ``fmt`` forces one of
    READERS on a file instead of detecting it. Longer durations than ``max_duration_s`` [s] are cut to it, and the notes
    count them; the default keeps every duration. Raises TraceError, one sentence, for anything it cannot load.
    """
    text = str(source)
    if is_built_in(text):
        if fmt is not None:
            raise TraceError(f"{text.partition('?')[0]} is a built-in workload, so it has no file format to force")
        trace = build(text)
    elif _looks_like_a_name(text) and not Path(text).exists():
        raise TraceError(f"there is no such file, and {unknown(text.partition('?')[0])}")
    else:
        trace = read_file(Path(source), fmt)
    return trace if max_duration_s is None else cap_durations(trace, max_duration_s)


def cap_durations(trace: Trace, max_duration_s: float) -> Trace:
    """The trace with longer durations cut to ``max_duration_s`` [s] (> 0) and their number noted."""
    if not 0 < max_duration_s < np.inf:
        raise TraceError(f"max_duration_s is {max_duration_s:g}, expected a time above 0")
    durations = trace.jobs["duration_s"]
    longer = int((durations > max_duration_s).sum())
    if longer == 0:
        return trace
    jobs = trace.jobs.assign(duration_s=durations.clip(upper=max_duration_s))
    return replace(trace, jobs=jobs, notes={**trace.notes, f"duration cut to {max_duration_s:g} s": longer})


def _looks_like_a_name(text: str) -> bool:
    """Names of workloads have no folder and no suffix."""
    return "/" not in text and "\\" not in text and "." not in text.partition("?")[0]
