"""Random small cases in which workers straggle a lot, for comparing two simulators job by job.

Times are arbitrary floats: how fast a job runs is irrational, so nothing here may hang on a tie.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Any

from envs.order import ListOrder
from envs.reference_decisions import Seen
from envs.spec import ClusterSpec, SimConfig
from tests.envs.random_choosers import RandomChooser
from tests.envs.random_elastic import (
    BY_ESTIMATE,
    _batch,
    _change,
    _config,
    _elastic_row,
    _facts,
    _order,
    _rigid_row,
    synthetic_profile,
)
from traces.profiles import ModelProfile, canonical_type
from traces.sensitivity import OF_MODEL, SENSITIVITIES
from traces.trace import Trace, make_trace

MODES = ("synchronous", "drop", "asynchronous", "grouped", "lb-bsp")  # that a job may change to


@dataclass(frozen=True)
class SyncChooser:
    """Another chooser's answers, and now and then (``shake``) another way to wait, for jobs without GPUs too."""

    inner: RandomChooser
    shake: float

    def __call__(self, now: float, index: int, jobs: list[Seen], nodes: list[int]) -> dict[int, Any]:
        rng = Random(f"modes {self.inner.seed} {index}")
        answer: dict[int, Any] = dict(self.inner(now, index, jobs, nodes))
        for job in jobs:
            if rng.random() < self.shake:
                answer[job.job_id] = *answer.get(job.job_id, (0, None)), None, rng.choice(MODES)
        return answer


@dataclass(frozen=True)
class StragglerCase:
    """What one run of a simulator needs; ``tuned``: elastic jobs choose their batch."""

    trace: Trace
    cluster: ClusterSpec
    scheduler: ListOrder | SyncChooser
    config: SimConfig
    profiles: dict[str, ModelProfile]
    tuned: bool


def straggler_case(seed: int) -> StragglerCase:
    """Rigid and elastic jobs on 1-4 nodes: half of the cases in an order, the others under random decisions."""
    rng = Random(f"stragglers {seed}")
    order = _order(rng) if rng.random() < 0.5 else None
    turns = order is not None and order.preemptive and (order.key.name == "SERVICE" or order.promote > 0)
    config = _change(_config(rng, pollux=0.0, turns=turns), **_straggling(rng))
    if order is not None and order.promote > 0:
        config = _change(config, rescale_s=0.0)
    cluster = _small_cluster(rng)
    tuned = rng.random() < 0.5
    names = rng.sample([*OF_MODEL, "other", "another"], rng.randint(1, 8))
    types = [canonical_type(t) for t in cluster.types]
    profiles = {name: synthetic_profile(rng, name, types) for name in names}
    placed = rng.choice((0.0, 1.0)) if config.placement == "random" else rng.choice((0.0, 1.0, 1.0, 0.5))
    narrow = order is None and placed < 1 and config.placement == "consolidated"
    trace = _trace(rng, cluster, config, profiles, order, 1 if narrow else 99)
    scheduler = order or _chooser(rng, seed, trace, cluster, config, profiles, placed)
    return StragglerCase(trace, cluster, scheduler, _batch(rng, config, tuned), profiles, tuned)


def _straggling(rng: Random) -> dict[str, Any]:
    return {
        "stragglers": rng.choice(("shared", "contention", "contention", "dedicated")),
        "straggler_rate": rng.choice((0.0, 1.0, 30.0, 300.0, 300.0, 300.0, 300.0, 1000.0)),
        "straggler_load": rng.random() < 0.7,
        "straggler_times": rng.choice(("lognormal", "exponential")),
        "straggler_severity": rng.choice((1.0, 1.0, 0.5, 3.0)),
        "straggler_io": rng.random() < 0.5,
        "gpu_variability": rng.random() < 0.6,
        "sync": rng.choice(("synchronous", "synchronous", "backup", *MODES)),
        "resync_s": rng.choice((0.0, 5.0)),
    }


def _small_cluster(rng: Random) -> ClusterSpec:
    """Like those of random_elastic, but smaller and rarely of one GPU a node."""
    types = rng.choice((("",), ("",), ("aws",), ("aws", "rtx")))
    sizes = rng.choice(((1,), (2,), (4,), (4,), (8,), (8,), (2, 4), (1, 2, 4, 8)))
    nodes = [(rng.choice(sizes), rng.choice(types)) for _ in range(rng.choice((1, 2, 2, 3, 4, 4)))]
    return ClusterSpec.parse("+".join(f"1x{gpus}" + (f":{gpu_type}" if gpu_type else "") for gpus, gpu_type in nodes))


def _trace(
    rng: Random,
    cluster: ClusterSpec,
    config: SimConfig,
    profiles: dict[str, ModelProfile],
    order: ListOrder | None,
    most_rigid: int,
) -> Trace:
    """1-12 jobs, elastic ones of a model each where an order reads estimates."""
    apart = order is not None and order.key in BY_ESTIMATE
    fractions = order is not None and rng.random() < 0.6
    share_rigid = rng.choice((0.0, 0.4, 0.4, 1.0))
    models, rows = list(profiles), []
    for _ in range(rng.randint(1, 12)):
        if models and rng.random() >= share_rigid:
            name = models.pop() if apart else rng.choice(models)
            row = _elastic_row(rng, cluster, config, profiles[name])
        else:
            row = _rigid_row(rng, cluster, config, most_rigid, fractions)
            row["duration_s"] = 0.0 if rng.random() < 0.05 else rng.uniform(10, rng.choice((300, 2000)))
            kind = rng.random()
            if fractions and kind < 0.4:
                row |= {"num_gpus": 1, "share_milli": rng.choice((180, 300, 500))}
            elif row["share_milli"] == 1000 and most_rigid > 8 and kind < 0.8:
                row["num_gpus"] = rng.choice((8, 8, 10, 21))  # those that have backup workers
        share = rng.choice((math.nan, 0.0, rng.random(), rng.random()))
        row["comm_share"] = math.nan if math.isnan(row["duration_s"]) else share
        row["sensitivity"] = rng.choice(("", "", *SENSITIVITIES))
        rows.append(row)
    horizon = 300.0 * len(rows) / cluster.num_gpus * rng.choice((0.3, 1.0, 3.0))
    steady = rng.choice((0.0, 0.0, 0.3))
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    columns["arrival_s"] = sorted(rng.choice((0.0, 50.0)) + rng.uniform(0, horizon) for _ in rows)
    columns["preemptible"] = [rng.random() >= steady for _ in rows]
    return make_trace("random-stragglers", columns)


def _chooser(
    rng: Random,
    seed: int,
    trace: Trace,
    cluster: ClusterSpec,
    config: SimConfig,
    profiles: dict[str, ModelProfile],
    placed: float,
) -> SyncChooser:
    facts = {i: _facts(row, cluster, profiles) for i, row in enumerate(trace.jobs.to_dict("records"))}
    types = tuple(cluster.types[t] for t in cluster.node_type)
    shake = 0.3 if config.interval_s == 0 else min(0.4, config.interval_s / 200)
    inner = RandomChooser(seed, facts, cluster.types, types, config.placement == "spread", placed, shake)
    return SyncChooser(inner, 0.0 if config.sync == "backup" else shake)
