"""Quasi-shortest-service-first (Hu et al., "Characterization and Prediction of Deep Learning
Workloads in Large-Scale GPU Datacenters", SC'21, section 4.2).

Orders jobs by predicted GPU-time, duration x GPUs, to minimise mean jct when jobs differ in width;
no preemption, and it stops at the first job that does not fit. What it may know is the prediction:
``--sim.durations estimate`` uses the trace's estimates, or distorts the truth as HeliosArtifact does
for Philly; with ``oracle`` the prediction is perfect and the results table says so.
Departure: Helios ranks jobs that arrive to an empty queue by GPU count; here one rule holds always.
Its two learned estimators are not part of this file: their output belongs in the trace's ``estimate_s``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from envs.order import Key, ListOrder


@dataclass(frozen=True)
class Qssf:
    """Start the job with the least predicted GPU-time; wait for its GPUs if they are not free."""

    name: ClassVar[str] = "qssf"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"
    oracle: ClassVar[tuple[str, ...]] = ("duration",)

    def order(self) -> ListOrder:
        return ListOrder(Key.GPU_TIME)
