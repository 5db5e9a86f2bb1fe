"""The flat form of the Philly trace (Jeon et al., USENIX ATC 2019): one row a job, as the Sia artefact has it.

``timestamp,duration,num_gpus,gpu_time,vc``; the last column is called ``cluster`` in some copies. Timestamps are the
cluster's local wall time without a zone (US Pacific), read as written: differences across the end of daylight saving
time, 2017-11-05 02:00, are one hour short. Rows are not in order of time, and equal rows are different jobs of a sweep,
so that nothing is dropped; a job's id is its row number in the file, from 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from traces.table import Table
from traces.trace import Trace, TraceError, make_trace

REQUIRED = ("timestamp", "duration", "num_gpus")
TENANT = ("vc", "cluster")
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"


def detect(header: list[str]) -> bool:
    return set(REQUIRED) <= set(header) and any(name in header for name in TENANT)


def read(table: Table, name: str) -> Trace:
    """Read flat Philly rows; ``arrival_s`` counts from the first arrival, whose wall time the provenance gives."""
    table.require(REQUIRED)
    table, skipped = table.without_cpu_jobs("num_gpus")
    wall = _wall_times(table, "timestamp")
    tenant = next((column for column in TENANT if column in table.columns), None)
    columns = {
        "job_id": [str(row) for row in table.rows],
        "arrival_s": (wall - wall.min()) / np.timedelta64(1, "s"),
        "num_gpus": table.columns["num_gpus"],
        "duration_s": table.times("duration"),
        "tenant": table.columns[tenant] if tenant else "",
        **table.others((*REQUIRED, tenant or "")),
    }
    first = pd.Timestamp(wall.min()).strftime(TIME_FORMAT)
    provenance = f"Philly jobs of {table.path.name}; second 0 is {first}, local wall time"
    return make_trace(name, columns, provenance, skipped, where=table.where)


def _wall_times(table: Table, column: str) -> npt.NDArray[np.datetime64]:
    """(rows,) datetime64 wall times; TraceError for the first cell that is not ``YYYY-MM-DD HH:MM:SS``."""
    cells = pd.Series(table.columns[column])
    wall = pd.to_datetime(cells, format=TIME_FORMAT, errors="coerce")
    broken = np.flatnonzero(wall.isna())
    if len(broken):
        row = int(broken[0])
        raise TraceError(f"{table.where(row)}: {column} is {cells[row]!r}, expected a time like 2017-10-09 07:01:55")
    return wall.to_numpy()
