"""Random small cases with jobs whose layers are frozen at random, for comparing two simulators job by job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from envs.reference_decisions import Seen
from envs.spec import ClusterSpec, SimConfig
from tests.envs.random_choosers import RandomChooser
from tests.envs.random_elastic import _batch, _change, _cluster, _config, _facts, _trace
from traces.freezing import LAYERS, PRESETS
from traces.profiles import ModelProfile, load_profiles
from traces.trace import Trace


@dataclass(frozen=True)
class DepthChooser:
    """Another chooser's answers, and now and then (``shake``) a random depth for a job that gets GPUs."""

    inner: RandomChooser
    shake: float

    def __call__(self, now: float, index: int, jobs: list[Seen], nodes: list[int]) -> dict[int, Any]:
        rng = Random(f"depths {self.inner.seed} {index}")
        answer: dict[int, Any] = dict(self.inner(now, index, jobs, nodes))
        for job in jobs:
            gpus, placement = answer.get(job.job_id, (0, None))
            if gpus and job.deepest and rng.random() < self.shake:
                answer[job.job_id] = gpus, placement, rng.randint(0, job.deepest)
        return answer


@dataclass(frozen=True)
class LayeredCase:
    """What one run of a simulator needs; ``known``: the profiles that schedulers and tuning go by."""

    trace: Trace
    cluster: ClusterSpec
    scheduler: DepthChooser
    config: SimConfig
    profiles: dict[str, ModelProfile]
    known: dict[str, ModelProfile]
    tuned: bool


def layered_case(seed: int) -> LayeredCase:
    """Elastic jobs of the shipped models, most with a preset, and rigid ones, under random decisions and depths."""
    rng = Random(f"layers {seed}")
    config = _change(
        _config(rng, pollux=0.0, turns=False),
        ddp=rng.choice(("rebuilt", "plain")),
        activation_cache=rng.random() < 0.5,
        most_residual=rng.choice((1.0, 0.05)),
        freeze_s=rng.choice((0.0, 3.0)),
    )
    cluster = _cluster(rng)
    tuned = rng.random() < 0.5
    known = {name: _short(rng, model) for name, model in load_profiles().items() if name in LAYERS}
    profiles = {name: _other_speed(rng, model) for name, model in known.items()}
    placed = rng.choice((0.0, 1.0)) if config.placement == "random" else rng.choice((0.0, 0.0, 1.0, 0.5))
    most_rigid = 1 if placed < 1 and config.placement == "consolidated" else 99
    trace = _trace(rng, cluster, config, profiles, apart=False, most_rigid=most_rigid, fractions=False)
    elastic = trace.jobs["duration_s"].isna()
    trace.jobs["freezing"] = [rng.choice(("", *PRESETS)) if own else "" for own in elastic]
    facts = {i: _facts(row, cluster, profiles) for i, row in enumerate(trace.jobs.to_dict("records"))}
    types = tuple(cluster.types[t] for t in cluster.node_type)
    shake = 0.3 if config.interval_s == 0 else min(0.4, config.interval_s / 200)
    inner = RandomChooser(seed, facts, cluster.types, types, config.placement == "spread", placed, shake)
    if config.knowledge == "oracle":
        known = profiles
    return LayeredCase(
        trace, cluster, DepthChooser(inner, 2 * shake), _batch(rng, config, tuned), profiles, known, tuned
    )


def _short(rng: Random, model: ModelProfile) -> ModelProfile:
    """The first epochs of a model, worth a minute to a quarter of an hour on one GPU."""
    epochs = min(rng.randint(1, 5), len(model.progress))
    speed = model.types["aws"].throughput
    rate = 1 / float(speed.times(False, 1, model.init_batch)[1])
    ends = np.cumsum([rng.uniform(60, 900) / epochs * rate for _ in range(epochs)])
    return replace(model, progress=ends, grad_sqr=model.grad_sqr[:epochs], grad_var=model.grad_var[:epochs])


def _other_speed(rng: Random, model: ModelProfile) -> ModelProfile:
    """The same model with steps up to 30 % shorter or longer."""
    types = {}
    for name, of in model.types.items():
        speed = of.throughput
        factors = [rng.uniform(0.7, 1.3) for _ in range(6)]
        types[name] = replace(
            of,
            throughput=replace(
                speed,
                alpha_c=speed.alpha_c * factors[0],
                beta_c=speed.beta_c * factors[1],
                alpha_n=speed.alpha_n * factors[2],
                beta_n=speed.beta_n * factors[3],
                alpha_r=speed.alpha_r * factors[4],
                beta_r=speed.beta_r * factors[5],
            ),
        )
    return replace(model, types=types)
