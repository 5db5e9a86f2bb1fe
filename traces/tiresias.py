"""Jobs of the Tiresias simulator (Gu et al., NSDI 2019), such as its ``60_job.csv``.

``job_id,num_gpu,submit_time,iterations,model_name,duration,interval``; the older ``tf_job.csv`` has ``start_time`` and
``model_size`` instead of ``iterations``. Times are seconds. The jobs are rigid and run for ``duration`` whatever the
placement, so the model's name is only a label: it stays in ``model_name`` and never becomes a model profile. Chronus
adds columns to this header; its files are not detected, since their times are not known to be in seconds.
"""

from __future__ import annotations

from traces.table import Table, unique_ids
from traces.trace import Trace, make_trace

REQUIRED = ("job_id", "num_gpu", "submit_time", "model_name", "duration")
OPTIONAL = ("iterations", "interval", "start_time", "model_size", "aggr_interval", "model_scale")


def detect(header: list[str]) -> bool:
    return set(REQUIRED) <= set(header) <= set(REQUIRED + OPTIONAL)


def read(table: Table, name: str) -> Trace:
    """Read a table of Tiresias jobs; repeated job ids are made unique and counted in the notes."""
    table.require(REQUIRED)
    table, skipped = table.without_cpu_jobs("num_gpu")
    job_id, notes = unique_ids(table.columns["job_id"])
    columns = {
        "job_id": job_id,
        "arrival_s": table.times("submit_time"),
        "num_gpus": table.columns["num_gpu"],
        "duration_s": table.times("duration"),
        **table.others(("job_id", "num_gpu", "submit_time", "duration")),
    }
    return make_trace(name, columns, f"Tiresias jobs of {table.path.name}", skipped, notes, table.where)
