"""Random small cases with inference tasks beside training, for comparing two simulators job by job.

The training of the cases of random_traces.py (rigid, exact) and random_elastic.py (both kinds, rates irrational), with
tasks of one to four services whose times are multiples of 1/4 s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pandas as pd

from envs.order import ListOrder
from envs.reference_decisions import Chooser
from envs.spec import ClusterSpec, SimConfig
from tests.envs import random_elastic, random_traces
from tests.envs.random_choosers import RandomChooser
from traces.profiles import ModelProfile
from traces.trace import Trace, make_trace

START_UP_S = {"bert": 8.0, "yolov3": 6.0, "ncf": 4.0}  # some of those of traces/services.py


@dataclass(frozen=True)
class InferenceCase:
    """What one run of a simulator needs; ``tuned``: elastic jobs choose their batch."""

    trace: Trace
    cluster: ClusterSpec
    scheduler: ListOrder | Chooser
    config: SimConfig
    profiles: dict[str, ModelProfile]
    tuned: bool


def rigid_case(seed: int) -> InferenceCase:
    """Rigid jobs, fractions among them, under an ordering rule; all times are exact."""
    trace, cluster, order, config = random_traces.random_case(seed)
    return _add_tasks(Random(f"rigid tasks {seed}"), InferenceCase(trace, cluster, order, config, {}, False))


def listed_case(seed: int) -> InferenceCase:
    """Elastic jobs as gangs of their request, and rigid ones, under an ordering rule."""
    case = random_elastic.listed_case(seed)
    return _add_tasks(Random(f"listed tasks {seed}"), InferenceCase(**vars(case)))


def chosen_case(seed: int) -> InferenceCase:
    """Elastic and rigid jobs under random decisions, by counts or by placements."""
    case = random_elastic.chosen_case(seed)
    return _add_tasks(Random(f"chosen tasks {seed}"), InferenceCase(**vars(case)))


def _add_tasks(rng: Random, case: InferenceCase) -> InferenceCase:
    nodes = case.cluster.num_nodes
    reclaim = rng.choice(("ats", "ats", "lyra", "static") if nodes > 1 else ("ats",))
    config = replace(
        case.config.resolve(),  # so that the cases of a compat keep their intervals and placements
        reclaim=reclaim,
        inference_nodes=rng.choice((-1, -1, 1, rng.randint(1, nodes), nodes - 1 or 1)),
        aiss=rng.random() < 0.8,
        protect_times=rng.choice((0.0, 0.25, 0.5, 1.0, 1.0, 2.0)),
        compat="none",
        knowledge=case.config.knowledge,
        node_mtbf_s=0.0,
    )
    training = case.trace.jobs.assign(old_row=np.arange(len(case.trace)))
    tasks = _tasks(rng, training["arrival_s"].to_numpy(), nodes_of_pods(case.cluster, config))
    trace = make_trace(f"{case.trace.name}-{reclaim}", pd.concat([training, tasks], ignore_index=True))
    scheduler = case.scheduler
    if isinstance(scheduler, RandomChooser):
        old = trace.jobs["old_row"].to_dict()
        facts = {row: scheduler.facts[int(old[row])] for row in old if not math.isnan(old[row])}
        scheduler = replace(scheduler, facts=facts)
    return replace(case, trace=trace, config=config, scheduler=scheduler)


def nodes_of_pods(cluster: ClusterSpec, config: SimConfig) -> list[int]:
    """Nodes on which tasks may run."""
    nodes = cluster.num_nodes
    count = nodes // 2 if config.inference_nodes < 0 else config.inference_nodes
    return list(range(nodes))[0 if config.reclaim == "ats" else nodes - count :]


def _tasks(rng: Random, arrivals: Any, nodes: list[int]) -> pd.DataFrame:
    """1-40 tasks, from rare to more than the nodes can serve at once, over the time of the training jobs."""
    count = rng.randint(1, 40)
    longest = rng.choice((2.0, 10.0, 40.0))
    horizon = float(arrivals[-1]) + rng.choice((10.0, 100.0, 400.0))
    services = [_service(rng, i) for i in range(rng.randint(1, 4))]
    # Tasks arrive one by one, or in bursts at few instants, of which some are those of training jobs.
    instants = [_quarter(rng, horizon) for _ in range(rng.choice((count, count, 3)))] + arrivals[:3].tolist()
    rows = [{**rng.choice(services), "arrival_s": rng.choice(instants)} for _ in range(count)]
    table = pd.DataFrame(rows)
    table["duration_s"] = [0.25 + _quarter(rng, longest) for _ in rows]
    table["job_id"] = [f"task-{i}" for i in range(count)]
    return table.assign(kind="inference", num_gpus=1)


def _service(rng: Random, number: int) -> dict[str, Any]:
    """A service with the start-up of its model, or one of its own, seldom none."""
    if rng.random() < 0.5:
        return {"service": f"s{number}", "model": rng.choice(list(START_UP_S)), "start_up_s": math.nan}
    return {"service": f"s{number}", "model": "", "start_up_s": rng.choice((0.0, 0.25, 2.5, 10.0))}


def _quarter(rng: Random, high: float) -> float:
    """A multiple of 1/4 in [0, high]."""
    return rng.randint(0, math.floor(4 * high)) / 4
