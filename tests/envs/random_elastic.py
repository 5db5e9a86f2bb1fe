"""Random small cases with elastic and rigid jobs, for comparing two simulators job by job.

Rates are irrational, so nothing here may hang on a tie: limits and checkpoints are arbitrary floats, jobs whose order
depends on estimates have a model each, and choosers look at no times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from envs.order import Key, ListOrder
from envs.reference_decisions import Chooser
from envs.reference_devices import Devices
from envs.reference_jobs import Job
from envs.spec import ClusterSpec, SimConfig
from tests.envs.random_choosers import JobFacts, RandomChooser
from traces.profiles import ModelProfile, Throughput, TypeProfile, canonical_type
from traces.trace import Trace, make_trace

KEYS = [key for key in Key if key.name != "GIVEN"]
BY_ESTIMATE = (Key.DURATION, Key.REMAINING, Key.REMAINING_GPU_TIME, Key.GPU_TIME)


@dataclass(frozen=True)
class ElasticCase:
    """What one run of a simulator needs; ``tuned``: elastic jobs choose their batch."""

    trace: Trace
    cluster: ClusterSpec
    scheduler: ListOrder | Chooser
    config: SimConfig
    profiles: dict[str, ModelProfile]
    tuned: bool


def listed_case(seed: int) -> ElasticCase:
    """Elastic jobs as gangs of their request, and rigid ones, under an ordering rule."""
    rng = Random(f"listed {seed}")
    order = _order(rng)
    turns = order.preemptive and (order.key == Key.SERVICE or order.promote > 0)
    # Online, estimates are fits.
    config = _config(rng, pollux=0.0 if order.key in BY_ESTIMATE or order.promote > 0 else 0.08, turns=turns)
    if order.promote > 0:
        config = _change(config, rescale_s=0.0)
    cluster = _cluster(rng)
    tuned = config.compat != "pollux" and rng.random() < 0.5
    profiles = _profiles(rng, cluster, rng.randint(2, 16))
    apart = order.key in BY_ESTIMATE
    rule = config.resolve()
    trace = _trace(rng, cluster, rule, profiles, apart=apart, most_rigid=99, fractions=rng.random() < 0.3)
    return ElasticCase(trace, cluster, order, _batch(rng, config, tuned), profiles, tuned)


def chosen_case(seed: int) -> ElasticCase:
    """Elastic and rigid jobs under random decisions by counts, by placements, or by now the one and now the other."""
    rng = Random(f"chosen {seed}")
    config = _config(rng, pollux=0.12, turns=False)
    cluster = _cluster(rng)
    tuned = config.compat != "pollux" and rng.random() < 0.6
    profiles = _profiles(rng, cluster, rng.randint(1, 8))
    rule = config.resolve()
    placed = rng.choice((0.0, 1.0)) if rule.placement == "random" else rng.choice((0.0, 0.0, 1.0, 0.5))
    # A count of several GPUs might find no single node for a rigid job; one of any type is placed across types.
    most_rigid = 1 if placed < 1 and rule.placement == "consolidated" else 99
    trace = _trace(rng, cluster, rule, profiles, apart=False, most_rigid=most_rigid, fractions=False)
    facts = {i: _facts(row, cluster, profiles) for i, row in enumerate(trace.jobs.to_dict("records"))}
    types = tuple(cluster.types[t] for t in cluster.node_type)
    shake = 0.3 if rule.interval_s == 0 else min(0.4, rule.interval_s / 200)
    chooser = RandomChooser(seed, facts, cluster.types, types, rule.placement == "spread", placed, shake)
    return ElasticCase(trace, cluster, chooser, _batch(rng, config, tuned), profiles, tuned)


def _batch(rng: Random, config: SimConfig, tuned: bool) -> SimConfig:
    return _change(config, batch="tuned" if tuned else rng.choice(("fixed", "scheduler")))


def _change(config: SimConfig, **fields: Any) -> SimConfig:
    return SimConfig(**{**vars(config), **fields})


def _facts(row: dict[Any, Any], cluster: ClusterSpec, profiles: dict[str, ModelProfile]) -> JobFacts:
    types = [t for t in cluster.types if row["gpu_type"] in ("", t)]
    if math.isnan(row["duration_s"]):
        types = [t for t in types if canonical_type(t) in profiles[row["model"]].types]
    return JobFacts(tuple(types), bool(row["preemptible"]))


def _cluster(rng: Random) -> ClusterSpec:
    """1-6 nodes of 1-8 GPUs, of no named type, of one or two; t4 is another name of aws."""
    types = rng.choice((("",), ("",), ("aws",), ("t4",), ("aws", "rtx"), ("V100", "rtx")))
    sizes = rng.choice(((1,), (2,), (4,), (4,), (8,), (2, 4), (1, 2, 4, 8)))
    nodes = [(rng.choice(sizes), rng.choice(types)) for _ in range(rng.choice((1, 2, 2, 3, 4, 4, 5, 6)))]
    return ClusterSpec.parse("+".join(f"1x{gpus}" + (f":{gpu_type}" if gpu_type else "") for gpus, gpu_type in nodes))


def _order(rng: Random) -> ListOrder:
    key = rng.choice([*KEYS, Key.REMAINING, Key.QUEUE, Key.QUEUE])
    limits: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    if key in (Key.LEVEL, Key.GITTINS, Key.QUEUE):
        limits = tuple(sorted(rng.uniform(10, 600) for _ in range(rng.randint(0, 3))))
    if key == Key.GITTINS:
        values = tuple(rng.choice((1.0, 2.0, 3.5, 5.0)) for _ in range(len(limits) + 1))
    promote = rng.choice((0.0, 0.0, 1.0)) if key == Key.LEVEL else 0.0
    return ListOrder(key, rng.random() < 0.7, rng.random() < 0.5, limits, values, promote, rng.choice((20.0, 60.0)))


def _config(rng: Random, pollux: float, turns: bool) -> SimConfig:
    """Any settings with which jobs get on: where they take ``turns``, pauses are short and nothing is lost."""
    compat = rng.random() < pollux
    failures = not compat and rng.random() < 0.3
    return SimConfig(
        interval_s=rng.choice((30.0, 60.0)) if compat else rng.choice((0.0, 0.0, 10.0, 32.5, 60.0)),
        on_event=rng.random() < 0.5,
        rescale_cost="constant" if turns else rng.choice(("constant", "restart", "restart", "afe", "afe", "helios")),
        rescale_s=rng.choice((0.0, 0.25) if turns else (0.0, 5.0, 30.0) if compat else (0.0, 5.0, 12.5, 30.0)),
        checkpoint_s=0.0 if turns else rng.choice((0.0, rng.uniform(3, 30))),
        durations=rng.choice(("oracle", "estimate", "unknown")),
        placement=rng.choice(("consolidated",) * 5 + ("emptiest", "spread", "random", "count")),
        knowledge=rng.choice(("profile", "oracle")),
        interference=rng.choice((0.0, 0.25, 0.5)),
        node_mtbf_s=rng.uniform(300, 2000) if failures else 0.0,
        node_mttr_s=rng.uniform(5, 100),
        compat="pollux" if compat else "none",
    )


def _profiles(rng: Random, cluster: ClusterSpec, count: int) -> dict[str, ModelProfile]:
    names = [canonical_type(t) for t in cluster.types]
    return {f"m{i}": synthetic_profile(rng, f"m{i}", names) for i in range(count)}


def synthetic_profile(rng: Random, model: str, types: list[str]) -> ModelProfile:
    """1-5 epochs, gradients at 1-3 batch sizes, a minute to a quarter of an hour on one GPU."""
    first = rng.choice((16, 32, 48, 128))
    most = first * rng.choice((2, 8, 20, 64))
    epochs, measured = rng.randint(1, 5), rng.randint(1, 3)
    batches = np.sort([float(rng.randint(first, most)) for _ in range(measured)])
    batches += np.arange(measured)
    min_local = min(first, rng.choice((1, 4, 13, 16)))
    delay = rng.uniform(5, 60)
    return ModelProfile(
        model=model,
        init_batch=first,
        max_batch=most,
        progress=np.cumsum([rng.uniform(60, 900) / epochs * 8 for _ in range(epochs)]),
        batches=batches,
        grad_sqr=np.array([[rng.uniform(0.1, 2) for _ in range(measured)] for _ in range(epochs)]),
        grad_var=np.array([[rng.choice((0.0, 1.0, 8.0)) * rng.random() for _ in batches] for _ in range(epochs)]),
        iterations=None,
        first_delay_s=delay,
        next_delay_s=delay * rng.uniform(0.1, 0.9),
        types={t: _type_profile(rng, t, min_local, first * rng.choice((1, 2, 4))) for t in types},
    )


def _type_profile(rng: Random, name: str, min_local: int, max_local: int) -> TypeProfile:
    parameters = (rng.uniform(0.02, 0.1), rng.uniform(1e-4, 2e-3), rng.uniform(0.02, 0.3), rng.uniform(0.001, 0.02))
    within = rng.uniform(0.002, 0.05), rng.uniform(1e-4, 5e-3)
    return TypeProfile(name, min_local, max_local, Throughput(*parameters, *within, gamma=rng.uniform(1, 6)))


def _trace(
    rng: Random,
    cluster: ClusterSpec,
    config: SimConfig,
    profiles: dict[str, ModelProfile],
    apart: bool,
    most_rigid: int,
    fractions: bool,
) -> Trace:
    """1-16 jobs; ``apart``: no two of one model. Rigid ones need at most ``most_rigid`` GPUs, if 1 of one type."""
    models = list(profiles)
    rng.shuffle(models)
    rows = []
    for _ in range(len(models) if apart else rng.randint(1, 16)):
        if rng.random() < 0.75:
            model = profiles[models.pop() if apart else rng.choice(models)]
            rows.append(_elastic_row(rng, cluster, config, model))
        else:
            rows.append(_rigid_row(rng, cluster, config, most_rigid, fractions))
    horizon = 150.0 * len(rows) / cluster.num_gpus * rng.choice((0.3, 1.0, 3.0))
    arrivals = sorted(rng.choice((0.0, 50.0)) + round(rng.uniform(0, horizon)) for _ in rows)
    steady = rng.choice((0.0, 0.0, 0.3))
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    columns |= {"arrival_s": arrivals, "preemptible": [rng.random() >= steady for _ in rows]}
    return make_trace("random-elastic", columns)


def _elastic_row(rng: Random, cluster: ClusterSpec, config: SimConfig, model: ModelProfile) -> dict[str, Any]:
    types = [t for t in cluster.types if canonical_type(t) in model.types]
    min_local = min(profile.min_local for profile in model.types.values())
    ceiling = min(64, model.max_batch // min_local)
    widths = [n for n in (1, 1, 1, 2, 2, 3, 4, 6, 8, 12) if n <= ceiling and _fits(cluster, config, types, n)]
    num_gpus = rng.choice(widths)
    least = max(model.init_batch, min_local * num_gpus)
    return {
        "num_gpus": num_gpus,
        "duration_s": math.nan,
        "model": model.model,
        "batch_size": rng.choice((0, rng.randint(least, model.max_batch))),
        "max_gpus": rng.choice((0, 0, num_gpus + rng.randint(0, 4))),
        "gpu_type": "dgx" if rng.random() < 0.03 else rng.choice(types) if rng.random() < 0.3 else "",
        "share_milli": 1000,
        "estimate_s": math.nan,
    }


def _rigid_row(
    rng: Random, cluster: ClusterSpec, config: SimConfig, most_rigid: int, fractions: bool
) -> dict[str, Any]:
    widths = [n for n in (1, 1, 2, 3, 4, 8) if n <= most_rigid and _fits(cluster, config, list(cluster.types), n)]
    num_gpus = rng.choice(widths)
    return {
        "num_gpus": num_gpus,
        "duration_s": rng.randint(0, 1200) / 4,
        "model": rng.choice(("", "whatever")),
        "batch_size": 0,
        "max_gpus": 0,
        "gpu_type": rng.choice(cluster.types) if most_rigid == 1 or rng.random() < 0.2 else "",
        "share_milli": rng.choice((180, 300, 500)) if fractions and num_gpus == 1 else 1000,
        "estimate_s": rng.choice((math.nan, rng.uniform(1, 300))),
    }


def _fits(cluster: ClusterSpec, config: SimConfig, types: list[str], num_gpus: int) -> bool:
    """Whether an empty cluster has room for a job by the placement rule."""
    job = Job(0, 0.0, num_gpus, 1000, 1.0, "", True, 1.0, 1.0)
    return all(Devices(cluster).find_nodes(job, config, 0, t) is not None for t in types)
