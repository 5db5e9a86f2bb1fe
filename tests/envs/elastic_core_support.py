"""Shared by the tests of elastic jobs in the core: a model whose rates are exact, scripted schedulers, runs by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from envs.order import Key, ListOrder, set_order
from envs.scheduler import Decision
from envs.simulate import Run, RunResult, simulate
from envs.spec import ClusterSpec, SimConfig
from envs.view import ClusterView
from tests.envs.core_support import External, Listed
from traces.profiles import ModelProfile, Throughput, TypeProfile
from traces.trace import Trace, make_trace

Answer = int | tuple[int, ...]  # GPUs, or GPUs of each node
Moves = Mapping[float, Mapping[int, Answer]]

EVERY_10 = SimConfig(interval_s=10.0, rescale_s=0.0)
AT_EVENTS = SimConfig(interval_s=0.0, rescale_s=0.0)
ARRIVAL = ListOrder(Key.ARRIVAL)
# Seconds of a step: local / 8 within a node, and (gpus - 2) / 8 + 1 / 2 more on several nodes.
SPEED = Throughput(alpha_c=0.0, beta_c=0.125, alpha_n=0.5, beta_n=0.125, alpha_r=0.0, beta_r=0.0, gamma=1.0)


def linear(
    *ends: float,
    name: str = "m",
    worth: Sequence[bool] | bool = True,
    types: str | dict[str, TypeProfile] = "aws",
    **fields: Any,
) -> ModelProfile:
    """A model of M0 = 8 whose epochs end at ``ends``.

    ``worth``: samples of a large batch are worth as much as those of M0, else an iteration is worth 1 at any batch.
    With the batch 8 it runs at 1, 2, 4 or 8 iterations a second on so many GPUs of a node, and at 1 on 2 or 4 GPUs
    of several nodes. With 16 on one GPU (two micro-batches of 8) an iteration takes 2 s.
    """
    worths = np.resize(np.asarray(worth, np.float64), len(ends))[:, None]
    given: dict[str, Any] = {
        "model": name,
        "init_batch": 8,
        "max_batch": 64,
        "progress": np.array(ends, np.float64),
        "batches": np.array([8.0]),
        "grad_sqr": 1 - worths,
        "grad_var": worths,
        "iterations": None,
        "first_delay_s": 32.0,
        "next_delay_s": 8.0,
        "types": types if isinstance(types, dict) else {t: TypeProfile(t, 1, 16, SPEED) for t in types.split()},
    }
    return ModelProfile(**{**given, **fields})


def jobs(*rows: tuple[int, float, float | None], **columns: Any) -> Trace:
    """Jobs (num_gpus, arrival_s, duration_s); those without a duration are elastic, of the model m."""
    gpus, arrivals, durations = zip(*rows, strict=True)
    table = {
        "num_gpus": gpus,
        "arrival_s": arrivals,
        "duration_s": [math.nan if d is None else d for d in durations],
        "model": ["m" if d is None else "" for d in durations],
    }
    return make_trace("hand", {**table, **columns})


def follow(moves: Moves) -> External:
    """At each time named, jobs get what is named; everybody else keeps what he has. Counts go where the rule says."""

    def decide(view: ClusterView) -> Decision:
        gpus, placement, placed = np.array(view.gpus), view.placement().astype(np.int64), False
        slots = {int(view.job_id[j]): j for j in view.slots}
        for job, answer in moves.get(view.now, {}).items():
            gpus[slots[job]] = np.sum(answer)
            placed |= isinstance(answer, tuple)
            placement[slots[job]] = answer if isinstance(answer, tuple) else 0
        return Decision(gpus, placement if placed else None)

    return External(decide)


def play(
    trace: Trace,
    cluster: str,
    scheduler: Moves | ListOrder | External,
    config: SimConfig,
    *models: ModelProfile,
    **options: Any,
) -> RunResult:
    """A whole run under a script, a decision function or an ordering rule."""
    if isinstance(scheduler, ListOrder):
        chosen: Any = Listed(scheduler)
    else:
        chosen = scheduler if isinstance(scheduler, External) else follow(scheduler)
    profiles = {m.model: m for m in models}
    return simulate(trace, ClusterSpec.parse(cluster), chosen, config, profiles=profiles, **options)


def open_run(
    trace: Trace,
    cluster: str | ClusterSpec,
    config: SimConfig,
    profiles: Mapping[str, ModelProfile],
    order: ListOrder = ARRIVAL,
    **options: Any,
) -> tuple[Run, ClusterView]:
    """A run at time 0, to be moved by hand, and its view; ``options``: seed, record, tuned."""
    spec = cluster if isinstance(cluster, ClusterSpec) else ClusterSpec.parse(cluster)
    run = Run(trace, spec, config, **{"seed": 0, "profiles": profiles, **options})
    set_order(run.states, order)
    run.start()
    return run, ClusterView(run.states, run.cluster, run.config, run.workload)


def column(result: RunResult, name: str) -> list[Any]:
    """A column of the job table."""
    return list(result.jobs[name].tolist())
