"""Random small cases with everything in them: elastic and frozen jobs, inference, stragglers.

The training of random_stragglers.py, some of it with layers that may be frozen as in random_layers.py, and the tasks
of random_inference.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from envs.order import ListOrder
from envs.reference_decisions import Seen
from envs.spec import ClusterSpec, SimConfig
from tests.envs.random_inference import InferenceCase, _add_tasks
from tests.envs.random_layers import DepthChooser, _other_speed
from tests.envs.random_stragglers import MODES, SyncChooser, straggler_case
from traces.freezing import LAYERS, PRESETS
from traces.profiles import ModelProfile
from traces.trace import Trace


@dataclass(frozen=True)
class FullChooser:
    """The answers of one chooser, with the depths and the ways to wait that two others add to them.

    ``together``: the chance that a job which gets another depth gets another way to wait too.
    """

    depths: DepthChooser
    modes: SyncChooser
    together: float

    def __call__(self, now: float, index: int, jobs: list[Seen], nodes: list[int]) -> dict[int, Any]:
        rng = Random(f"together {self.depths.inner.seed} {index}")
        deep, waits = self.depths(now, index, jobs, nodes), self.modes(now, index, jobs, nodes)
        answer: dict[int, Any] = {}
        for i, (gpus, placement, *others) in waits.items():
            depth, mode = deep.get(i, ())[2:], tuple(others[1:])
            if depth and self.modes.shake > 0 and rng.random() < self.together:
                mode = (rng.choice(MODES),)
            answer[i] = (gpus, placement, *(depth or (None,)), *mode) if mode else (gpus, placement, *depth)
        return answer


@dataclass(frozen=True)
class FullCase:
    """What one run of a simulator needs; ``known``: the profiles that schedulers and tuning go by."""

    trace: Trace
    cluster: ClusterSpec
    scheduler: ListOrder | FullChooser
    config: SimConfig
    profiles: dict[str, ModelProfile]
    known: dict[str, ModelProfile]
    tuned: bool


def full_case(seed: int) -> FullCase:
    """Jobs of every kind and tasks on 1-4 nodes: half of the cases in an order, the others under random decisions."""
    rng = Random(f"full {seed}")
    base = straggler_case(seed)
    shake = 0.0
    training = InferenceCase(base.trace, base.cluster, _plain(base.scheduler), base.config, base.profiles, base.tuned)
    if isinstance(base.scheduler, SyncChooser):
        shake = base.scheduler.shake
    case = _add_tasks(rng, training)
    config = replace(
        case.config,
        ddp=rng.choice(("rebuilt", "plain")),
        activation_cache=rng.random() < 0.5,
        most_residual=rng.choice((1.0, 0.05)),
        freeze_s=rng.choice((0.0, 3.0)),
        straggler_rate=case.config.straggler_rate * rng.choice((1.0, 1.0, 10.0)),  # links that are calm straggle seldom
    )
    elastic = (case.trace.jobs["kind"] == "training") & case.trace.jobs["duration_s"].isna()
    layered = elastic & case.trace.jobs["model"].isin(list(LAYERS))
    case.trace.jobs["freezing"] = [rng.choice(("", *PRESETS, *PRESETS)) if own else "" for own in layered]
    scheduler: Any = case.scheduler
    if not isinstance(scheduler, ListOrder):
        scheduler = FullChooser(DepthChooser(scheduler, 0.6), SyncChooser(scheduler, shake), 0.3)
    profiles = {name: _other_speed(rng, model) for name, model in case.profiles.items()}
    known = profiles if config.knowledge == "oracle" else case.profiles
    return FullCase(case.trace, case.cluster, scheduler, config, profiles, known, case.tuned)


def _plain(scheduler: ListOrder | SyncChooser) -> Any:
    """A scheduler that says only who gets what."""
    return scheduler if isinstance(scheduler, ListOrder) else scheduler.inner
