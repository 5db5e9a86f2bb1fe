"""The workload of ``synthetic-colocated`` whose jobs have layers that may be frozen (docs/design/006-full.md)."""

from __future__ import annotations

from traces.synthetic_inference import synthesise_colocated
from traces.synthetic_layers import synthesise_layers
from traces.trace import Trace, make_trace

NAME = "synthetic-full"


def synthesise_full(
    jobs: int = 160,
    seed: int = 0,
    mean_gap_s: float = 180.0,
    hours: float = 0.0,
    load: float = 0.1,
    pattern: str = "poisson",
    services: int = 6,
    gpus: int = 32,
    durations: str = "uniform",
    mean_duration_s: float = 5.0,
    preset: str = "",
) -> Trace:
    """The rows of ``synthetic-colocated`` with the same parameters; how layers converge: as ``synthetic-layers``.

    ``preset``: of all training jobs; empty: bert is fine-tuned, every other model trained from scratch. Raises
    TraceError for a parameter out of range.
    """
    layers = synthesise_layers(jobs, seed, mean_gap_s, preset)
    both = synthesise_colocated(
        jobs, seed, mean_gap_s, hours, load, pattern, services, gpus, durations, mean_duration_s
    )
    freezing = both.jobs["job_id"].map(layers.jobs.set_index("job_id")["freezing"]).fillna("")
    convergence = layers.provenance.rpartition("; ")[2]
    return make_trace(NAME, both.jobs.assign(freezing=freezing), f"{both.provenance}; {convergence}")
