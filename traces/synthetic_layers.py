"""The workload of ``synthetic-pollux`` with layers that may be frozen (docs/design/004-layers.md, section 1)."""

from __future__ import annotations

import numpy as np

from traces.freezing import PRESETS
from traces.synthetic_pollux import synthesise_pollux
from traces.trace import Trace, TraceError, make_trace

TUNED, SCRATCH = "finetune", "middle"  # presets of models that are fine-tuned, and of those trained from scratch
FINE_TUNED = ("bert",)


def synthesise_layers(jobs: int = 160, seed: int = 0, mean_gap_s: float = 180.0, preset: str = "") -> Trace:
    """The jobs of ``synthetic-pollux`` with the same parameters, and how their layers converge.

    ``preset``: of all jobs; empty: bert is fine-tuned, every other model trained from scratch. Raises TraceError for a
    parameter out of range.
    """
    name = "synthetic-layers"
    if preset and preset not in PRESETS:
        raise TraceError(f"{name}: preset is {preset!r}, expected one of {', '.join(PRESETS)}")
    elastic = synthesise_pollux(jobs, seed, mean_gap_s)
    by_model = np.where(elastic.jobs["model"].isin(FINE_TUNED), TUNED, SCRATCH)
    rows = elastic.jobs.assign(freezing=preset or by_model)
    return make_trace(name, rows, f"{elastic.provenance}; layers converge as in {preset or 'a preset by model'}")
