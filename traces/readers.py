"""Which reader reads which file: by its header, or by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from traces import musher_csv, philly, pollux, tiresias
from traces.table import Table, read_table
from traces.trace import Trace, TraceError


class Reader(NamedTuple):
    """One file format: whether a header is of it, and how to read a table with that header."""

    detect: Callable[[list[str]], bool]
    read: Callable[[Table, str], Trace]
    header: str
    about: str


READERS: dict[str, Reader] = {
    "musher": Reader(
        musher_csv.detect,
        musher_csv.read,
        "job_id,kind,arrival_s,num_gpus,duration_s",
        "our own trace CSV, written by convert and generate",
    ),
    "tiresias": Reader(
        tiresias.detect,
        tiresias.read,
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval",
        "rigid jobs of the Tiresias simulator",
    ),
    "philly": Reader(
        philly.detect,
        philly.read,
        "timestamp,duration,num_gpus,gpu_time,vc",
        "flat form of Microsoft's Philly trace",
    ),
    "pollux": Reader(
        pollux.detect,
        pollux.read,
        "name,time,application,num_replicas,batch_size",
        "elastic workloads of Pollux, Sia and DeepBoot",
    ),
}


def read_file(path: Path, fmt: str | None = None) -> Trace:
    """Read a trace file; ``fmt`` names one of READERS, else the header decides. TraceError if none fits."""
    if fmt is not None and fmt not in READERS:
        raise TraceError(f"unknown trace format {fmt!r}; known: {', '.join(READERS)}")
    table = read_table(path)
    name = fmt or next((name for name, reader in READERS.items() if reader.detect(table.header)), None)
    if name is None:
        known = "; ".join(f"{name}: {reader.header}" for name, reader in READERS.items())
        raise TraceError(f"{path} has the header {','.join(table.header)[:120]}, which no reader knows ({known})")
    return READERS[name].read(table, path.stem)
