"""Shared by the tests of elastic jobs in the reference: a model with simple speeds, scripted decisions, runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from envs.reference import simulate_reference
from envs.reference_decisions import Chooser, Seen
from envs.reference_training import Training
from envs.spec import ClusterSpec, SimConfig
from traces.profiles import ModelProfile, Throughput, TypeProfile
from traces.trace import Trace, make_trace

NAN = math.nan
FREE = SimConfig(interval_s=10.0, rescale_s=0.0)
EVENTS = SimConfig(interval_s=0.0, rescale_s=0.0)
# Seconds of a step: local / 8 on one GPU, 1/2 more on several of one node, 3/2 more on several nodes.
SPEED = Throughput(alpha_c=0.0, beta_c=0.125, alpha_n=1.5, beta_n=0.0, alpha_r=0.5, beta_r=0.0, gamma=1.0)


def model(
    *ends: float, worth: Sequence[bool] | bool = True, speed: Throughput = SPEED, types: str = "aws", **fields: Any
) -> ModelProfile:
    """A model of M0 = 8 whose epochs end at ``ends``; ``worth``: a sample of a large batch is worth as much as of M0.

    (A worthless epoch's iterations gain 1 at any batch.) With batch 8 and 1 GPU, or 2 of a node, the rate is 1
    iteration a second; on 2 nodes it is 1/2.
    """
    worths = np.resize(np.asarray(worth, np.float64), len(ends))[:, None]
    default = ModelProfile(
        model="m",
        init_batch=8,
        max_batch=100,
        progress=np.array(ends, np.float64),
        batches=np.array([8.0]),
        grad_sqr=1 - worths,
        grad_var=worths,
        iterations=None,
        first_delay_s=30.0,
        next_delay_s=6.0,
        types={t: TypeProfile(t, 2, 32, speed) for t in types.split()},
    )
    return replace(default, **fields)


def training(profile: ModelProfile, batch: int = 0, num_gpus: int = 1, tuned: bool = False, **fields: Any) -> Training:
    return Training(profile, fields.get("known", profile), num_gpus, batch, tuned, {"aws": 4})


def jobs(*rows: tuple[str, int, float], **columns: Any) -> Trace:
    """Jobs (model, num_gpus, arrival)."""
    models, gpus, arrivals = zip(*rows, strict=True)
    table = {"model": models, "num_gpus": gpus, "arrival_s": arrivals, "duration_s": [NAN] * len(rows)}
    return make_trace("hand", {**table, **columns})


def script(**moves: dict[int, Any]) -> Chooser:
    """Follow {time: {job: GPUs, or GPUs of each node}}, times written t10; between them everybody stays."""

    def choose(now: float, index: int, seen: list[Seen], nodes: list[int]) -> dict[int, Any]:
        wanted = {job.job_id: (job.gpus, job.placement) for job in seen if job.gpus}
        move = moves.get(f"t{now:g}")
        if move is None:
            return wanted
        rows = {i: (sum(row), row) if isinstance(row, tuple) else (row, None) for i, row in move.items()}
        return {i: rows.get(i) or wanted[i] for i in {*rows, *wanted}}

    return choose


def counts(**moves: dict[int, int]) -> Chooser:
    """The same by counts alone."""

    def choose(now: float, index: int, seen: list[Seen], nodes: list[int]) -> dict[int, Any]:
        return {job.job_id: (moves.get(f"t{now:g}", {}).get(job.job_id, job.gpus), None) for job in seen}

    return choose


def play(
    trace: Trace, cluster: str, scheduler: Any, config: SimConfig, profile: ModelProfile, **others: Any
) -> dict[str, list[Any]]:
    profiles = others.pop("profiles", {"m": profile})
    return simulate_reference(trace, ClusterSpec.parse(cluster), scheduler, config, profiles=profiles, **others)
