"""Frozen layers in the compiled core: against the slow reference on random cases, and by hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

from envs.applying import SimulatorError
from envs.order import Key, ListOrder
from envs.reference import LAYER_OUTPUT, simulate_reference
from envs.reference_decisions import Seen
from envs.rng import Purpose, uniform
from envs.scheduler import Decision
from envs.simulate import simulate
from envs.spec import ClusterSpec, SimConfig
from envs.view import ClusterView
from tests.envs.core_support import External, Listed
from tests.envs.elastic_core_support import linear
from tests.envs.random_layers import LayeredCase, layered_case
from tests.envs.test_core_elastic import NUMBERS, compare, follow
from traces.freezing import Freezing, shares
from traces.trace import Trace, TraceError, make_trace

SEED = 3
ONE_GPU = ClusterSpec.parse("1x1")
EVERY_10 = SimConfig(interval_s=10.0, rescale_s=0.0)
PROFILES = {"cifar10": linear(100, name="cifar10")}  # one iteration a second on one GPU, 10 modules
Depths = Mapping[float, tuple[int, int]]  # by time: GPUs, and a depth or -1

# --- against the reference ---


def agree(seed: int) -> tuple[LayeredCase, pd.DataFrame]:
    """A random case and the core's job table, which equals the reference's."""
    case = layered_case(seed)
    with patch("envs.workload.load_profiles", lambda: case.known):
        return case, compare(case, seed, [*NUMBERS, *LAYER_OUTPUT])


def count_features(seen: Counter[Any], case: LayeredCase, jobs: pd.DataFrame) -> None:
    """Add up what a case exercises."""
    for name in ("ddp", "activation_cache", "most_residual", "freeze_s", "rescale_cost", "knowledge"):
        seen[name, getattr(case.config, name)] += 1
    for name in ("checkpoint_s", "interference", "node_mtbf_s"):
        seen[name] += getattr(case.config, name) > 0
    seen["tuned", case.tuned] += 1
    frozen = jobs["depth_changes"] > 0
    for name in ("num_preemptions", "num_rescales", "residual"):
        seen["frozen", name] += int((jobs[name][frozen] > 0).sum())
    for preset in jobs["freezing"][frozen]:
        seen["preset", preset] += 1
    seen["plain elastic"] += int((jobs["duration_s"].isna() & (jobs["freezing"] == "")).sum())
    seen["rigid"] += int(jobs["duration_s"].notna().sum())
    if case.config.most_residual < 1:
        seen["trained on"] += int(np.isclose(jobs["residual"], case.config.most_residual, rtol=1e-6).sum())


WANTED = [
    *(("ddp", value) for value in ("rebuilt", "plain")),
    *((name, value) for name in ("activation_cache", "tuned") for value in (False, True)),
    *(("most_residual", value) for value in (1.0, 0.05)),
    *(("freeze_s", value) for value in (0.0, 3.0)),
    *(("rescale_cost", value) for value in ("constant", "restart", "afe", "helios")),
    *(("knowledge", value) for value in ("profile", "oracle")),
    *(("frozen", name) for name in ("num_preemptions", "num_rescales", "residual")),
    *(("preset", name) for name in ("conservative", "middle", "egeria", "finetune")),
    "checkpoint_s",
    "interference",
    "node_mtbf_s",
    "rigid",
    "plain elastic",
    "trained on",
]


def compare_many(seeds: range) -> None:
    seen: Counter[Any] = Counter()
    for seed in seeds:
        count_features(seen, *agree(seed))
    assert [feature for feature in WANTED if seen[feature] < 5] == []


def test_core_equals_reference() -> None:
    compare_many(range(60))


@pytest.mark.slow
def test_core_equals_reference_in_many_cases() -> None:
    compare_many(range(1000))


# --- nothing frozen ---


@pytest.mark.parametrize("listed", [False, True])
def test_presets_of_jobs_that_are_never_frozen_change_nothing(listed: bool) -> None:
    order = ListOrder(Key.REMAINING, preemptive=True, backfill=True)
    preset_jobs = 0
    for seed in range(20):
        case = layered_case(seed)
        preset_jobs += int((case.trace.jobs["freezing"] != "").sum())
        plain = replace(case.trace, jobs=case.trace.jobs.assign(freezing=""))
        config = replace(case.config, most_residual=1.0)
        both = [
            simulate(
                trace,
                case.cluster,
                Listed(order) if listed else follow(case.scheduler.inner),
                config,
                seed=seed,
                profiles=case.profiles,
            ).jobs.drop(columns=["freezing", "residual"])
            for trace in (case.trace, plain)
        ]
        assert both[0].equals(both[1]), seed
    assert preset_jobs > 50


# --- by hand ---


def one_job(preset: str = "conservative", **columns: Any) -> Trace:
    table = {"num_gpus": [1], "arrival_s": [0], "duration_s": [math.nan], "model": ["cifar10"], "freezing": [preset]}
    return make_trace("hand", {**table, **columns})


def scripted(moves: Depths) -> External:
    """The core's scheduler that follows a script for all jobs; in between everything stays."""

    def decide(view: ClusterView) -> Decision:
        gpus, depth = np.array(view.gpus), np.full(view.num_slots, -1)
        if view.now in moves:
            gpus[view.slots], depth[view.slots] = moves[view.now]
        return Decision(gpus, depth=depth)

    return External(decide)


def play_both(moves: Depths, config: SimConfig) -> list[dict[str, float]]:
    """Numbers of the one job in the core and in the reference."""

    def choose(now: float, index: int, seen: list[Seen], nodes: list[int]) -> dict[int, Any]:
        gpus, depth = moves.get(now, (seen[0].gpus, -1))
        return {0: (gpus, None, None if depth < 0 else depth)}

    core = simulate(one_job(), ONE_GPU, scripted(moves), config, seed=SEED, profiles=PROFILES).jobs.iloc[0]
    reference = simulate_reference(one_job(), ONE_GPU, choose, config, SEED, PROFILES)
    names = [*NUMBERS, *LAYER_OUTPUT]
    return [{name: float(core[name]) for name in names}, {name: float(reference[name][0]) for name in names}]


def ends() -> np.ndarray:
    """(10,) progress at which the modules of the job have converged: 0.5 to 1, each end 20 % earlier or later."""
    first, last = (x * (0.8 + 0.4 * uniform(SEED, Purpose.FREEZING, 0, i)) for i, x in enumerate((0.5, 1.0)))
    return first + (last - first) * np.arange(10) / 9


def frozen_rate(progress: float) -> float:
    """Iterations a second with five modules frozen at that progress: a quicker step, less the penalty."""
    penalty = np.maximum(0, 1 - progress / ends()[:5]).sum() / 10
    return (1 - penalty) / shares("cifar10", 5, Freezing())[1]


def test_one_job_frozen_for_a_while() -> None:
    """20 s of progress, a pause of 3 s, 17 s with five modules frozen, another pause, and the rest as at first."""
    frozen = 17 * frozen_rate(0.2)
    finish = 43 + (80 - frozen)
    active = np.where(np.arange(10) < 5, 1 - frozen / 100, 1.0)
    for got in play_both({0: (1, -1), 20: (1, 5), 40: (1, 0)}, EVERY_10):
        assert got["finish_s"] == pytest.approx(finish, rel=1e-12)
        assert got["service_gpu_s"] == pytest.approx(finish, rel=1e-12)
        assert got["residual"] == pytest.approx(np.maximum(0, 1 - active / ends()).mean(), rel=1e-9)
        assert (got["paused_gpu_s"], got["depth_changes"]) == (6, 2)
        assert (got["num_rescales"], got["num_preemptions"]) == (0, 0)


def test_a_job_that_lacks_too_much_trains_on() -> None:
    """Frozen from progress 0.2 on; at the end so much more, at depth 0, that 0.1 is left."""
    active = np.where(np.arange(10) < 5, 0.2, 1.0)
    low, high = 0.0, 2.0
    for _ in range(80):
        more = (low + high) / 2
        enough = np.maximum(0, 1 - (active + more) / ends()).mean() <= 0.1
        low, high = (low, more) if enough else (more, high)
    for got in play_both({0: (1, -1), 20: (1, 5)}, replace(EVERY_10, most_residual=0.1)):
        assert got["finish_s"] == pytest.approx(23 + 80 / frozen_rate(0.2) + 100 * high, rel=1e-9)
        assert got["residual"] == pytest.approx(0.1, rel=1e-9)
        assert got["depth_changes"] == 2


def test_a_change_of_depth_saves_at_the_end_of_its_pause() -> None:
    """Frozen at 20, saved at 23 and then every 10 s: stopped at 30 it goes back to 20, and pauses for nothing more."""
    config = replace(EVERY_10, checkpoint_s=10.0)
    for got in play_both({0: (1, -1), 20: (1, 5), 30: (0, -1), 100: (1, 0)}, config):
        assert got["finish_s"] == pytest.approx(180, rel=1e-12)
        assert (got["paused_gpu_s"], got["depth_changes"], got["num_preemptions"]) == (3, 2, 1)


def test_a_change_inside_a_pause_only_lengthens_it() -> None:
    for moved, pause in ((10, 32), (30, 33)):
        config = replace(EVERY_10, rescale_s=32.0)
        for got in play_both({0: (1, -1), moved: (1, 5), 100: (1, 0)}, config):
            assert got["paused_gpu_s"] == pause + 3
            assert got["depth_changes"] == 2


def test_the_depth_that_comes_with_a_start_counts() -> None:
    for got in play_both({0: (0, 5), 10: (1, 0)}, EVERY_10):
        assert (got["depth_changes"], got["finish_s"]) == (0, 110)


@pytest.mark.parametrize("listed", [False, True])
def test_without_freezing_late_layers_are_waited_for(listed: bool) -> None:
    """Seeds at which the last module converges beyond progress 1: the job trains until it has; other seeds: to 1."""
    beyond = 0
    for seed in range(8):
        last = 0.8 + 0.4 * uniform(seed, Purpose.FREEZING, 0, 1)
        scheduler = Listed(ListOrder(Key.ARRIVAL)) if listed else scripted({0: (1, -1)})
        config = replace(EVERY_10, most_residual=0.0)
        job = simulate(one_job(), ONE_GPU, scheduler, config, seed=seed, profiles=PROFILES).jobs.iloc[0]
        assert job["finish_s"] == pytest.approx(100 * max(1.0, last), rel=1e-12)
        assert job["residual"] == pytest.approx(0, abs=1e-12)
        beyond += last > 1
    assert 2 <= beyond <= 6


# --- bad input ---


@pytest.mark.parametrize(
    ("trace", "config", "message"),
    [
        (one_job("deep"), EVERY_10, r"trace hand, job 0: freezing 'deep' is not a preset \(known: conservative, "),
        (
            one_job(duration_s=[5.0]),
            EVERY_10,
            "trace hand, job 0: freezing must be empty, since the job is not elastic",
        ),
        (one_job(), replace(EVERY_10, knowledge="online"), "trace hand, job 0: freezing must be empty with .* online"),
        (one_job(model=["other"]), EVERY_10, "trace hand, job 0: the layers of model 'other' are not known"),
    ],
)
def test_presets_that_mean_nothing(trace: Trace, config: SimConfig, message: str) -> None:
    profiles = {**PROFILES, "other": linear(100, name="other")}
    with pytest.raises(TraceError, match=message):
        simulate(trace, ONE_GPU, scripted({0: (1, -1)}), config, profiles=profiles)


@pytest.mark.parametrize(("preset", "depth"), [("conservative", 10), ("", 1)])
def test_a_depth_beyond_the_layers(preset: str, depth: int) -> None:
    with pytest.raises(SimulatorError, match=rf"^scheduler mine at 0 s, job 0: depth {depth} is more than its layers"):
        simulate(one_job(preset), ONE_GPU, scripted({0: (1, depth)}), EVERY_10, profiles=PROFILES)
