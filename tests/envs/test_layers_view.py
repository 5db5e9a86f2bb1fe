"""What schedulers see of layers: the front and its noise, the penalty they expect, speeds at a depth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from envs.scheduler import Decision
from envs.simulate import simulate
from envs.spec import ClusterSpec, SimConfig
from envs.view import ClusterView
from tests.envs.core_support import External
from tests.envs.elastic_core_support import linear
from tests.envs.test_layers_core import ONE_GPU, PROFILES, SEED, ends, one_job
from traces.convergence import Convergence, module_ends
from traces.freezing import PRESETS, freeze, layers_of
from traces.profiles import load_profiles
from traces.trace import make_trace

EVERY_10 = SimConfig(interval_s=10.0, rescale_s=0.0, freeze_s=0.0, front="exact")
MOVES = {40: 1, 60: 6, 70: 4}  # by time: depth


def look(config: SimConfig, moves: dict[float, int], see: Any, seed: int = SEED, preset: str = "middle") -> list[Any]:
    """What ``see(view)`` gives at every pass of a job alone on one GPU that is frozen by a script."""
    seen = []

    def decide(view: ClusterView) -> Decision:
        seen.append(see(view))
        gpus, depth = np.array(view.gpus), np.full(view.num_slots, -1)
        gpus[view.slots], depth[view.slots] = 1, moves.get(view.now, -1)
        return Decision(gpus, depth=depth)

    simulate(one_job(preset), ONE_GPU, External(decide), config, seed=seed, profiles=PROFILES)
    return seen


def follow(progress: list[float], moves: dict[float, int], ends: np.ndarray) -> list[Convergence]:
    """The slow definition of the job's modules at every pass, each 10 s after the one before."""
    states, depth, before = [], 0, 0.0
    model = Convergence(ends)
    for k, now in enumerate(progress):
        model.advance(now - before, depth)
        before = now
        states.append(Convergence(ends))
        states[-1].active[:] = model.active
        depth = moves.get(10.0 * k, depth)
    return states


def test_the_front_is_that_of_the_slow_definition() -> None:
    seen = look(EVERY_10, MOVES, lambda view: (view.elastic_progress[view.slots][0], view.front(view.slots)[0]))
    first, last = PRESETS["middle"].first, PRESETS["middle"].last
    scale = ends()  # of preset conservative, 0.5 to 1, with the same draws
    true_ends = module_ends(scale[0] / 0.5 * first, scale[-1] * last, 1.0, 10)
    deepest = layers_of("cifar10")[1].max_frozen
    expected = [state.front(0.02, deepest) for state in follow([p for p, _ in seen], MOVES, true_ends)]
    assert [front for _, front in seen] == expected
    assert len(set(expected)) >= 4, expected


def test_the_penalty_expected_is_that_of_the_usual_ends() -> None:
    depths = np.arange(10)
    seen = look(
        EVERY_10,
        MOVES,
        lambda view: (view.elastic_progress[view.slots][0], view.penalty(np.repeat(view.slots, 10), depths)),
    )
    usual = module_ends(*PRESETS["middle"][:3], 10)
    for (_, penalty), state in zip(seen, follow([p for p, _ in seen], MOVES, usual), strict=True):
        assert penalty == pytest.approx([state.penalty(depth) for depth in depths], abs=1e-12)
    assert max(penalty[9] for _, penalty in seen) == pytest.approx(0.9)


def test_noise_of_the_front() -> None:
    """One measurement a turn, the same for every scheduler; standard deviation 0.05 of the modules before rounding."""
    noisy = SimConfig(interval_s=1.0, rescale_s=0.0)
    moves = {40.0: 4}
    seen, exact = (
        [np.array(look(config, moves, lambda view: view.front(np.repeat(view.slots, 2)), seed)) for seed in range(30)]
        for config in (noisy, SimConfig(interval_s=1.0, rescale_s=0.0, front="exact"))
    )
    errors = []
    for with_noise, without in zip(seen, exact, strict=True):
        assert (with_noise[:, 0] == with_noise[:, 1]).all()
        inside = (without[:, 0] > 1) & (without[:, 0] < 8)
        errors.append((with_noise - without)[inside, 0])
    found = np.concatenate(errors)
    assert len(found) > 1000
    # N(0, 0.5) rounded: 0 with probability 0.6827, +-1 with 0.3146 in all, +-2 with 0.0027
    assert abs(found.mean()) < 0.05
    assert (found == 0).mean() == pytest.approx(0.683, abs=0.04)
    assert (np.abs(found) == 2).mean() < 0.01


def test_one_reading_lasts_a_minute_where_passes_follow_events() -> None:
    """Passes at arrivals every 7 s."""
    others = 40
    trace = make_trace(
        "hand",
        {
            "num_gpus": 1,
            "arrival_s": 7.0 * np.arange(others + 1),
            "duration_s": [math.nan, *[1.0] * others],
            "model": ["cifar10", *[""] * others],
            "freezing": ["middle", *[""] * others],
        },
    )
    readings: dict[int, set[int]] = {}

    def decide(view: ClusterView) -> Decision:
        gpus = np.zeros(view.num_slots, np.int64)
        gpus[view.slots[:1]] = 1
        if (view.job_id[view.slots[:1]] == 0).any():
            readings.setdefault(int(view.now // 60), set()).add(int(view.front(view.slots[:1])[0]))
        return Decision(gpus)

    profiles = {"cifar10": linear(2000, name="cifar10")}  # 14 % of it is done by then, and its layers still move
    simulate(trace, ONE_GPU, External(decide), SimConfig(interval_s=0.0), seed=SEED, profiles=profiles)
    assert sorted(readings)[:5] == [0, 1, 2, 3, 4]
    assert all(len(readings[turn]) == 1 for turn in range(5))


@pytest.mark.parametrize("model", ["bert", "yolov3"])
def test_speeds_at_a_depth_are_those_of_the_frozen_profile(model: str) -> None:
    """As if the whole run were one of a model with such throughput parameters and memory."""
    cluster, depths = ClusterSpec.parse("4x4"), (0, 1, 5, 9)

    def speeds(preset: str, profiles: Any, depths: tuple[int, ...]) -> list[np.ndarray]:
        trace = make_trace(
            "hand",
            {"num_gpus": [2], "arrival_s": [0], "duration_s": [math.nan], "model": [model], "freezing": [preset]},
        )
        found: list[np.ndarray] = []

        def decide(view: ClusterView) -> Decision:
            if not found:
                found.extend(view.goodput(view.slots, depth=depth)[0] for depth in depths)
            gpus = np.zeros(view.num_slots, np.int64)
            gpus[view.slots] = view.max_gpus[view.slots]
            return Decision(gpus)

        config = SimConfig(knowledge="oracle")
        simulate(trace, cluster, External(decide), config, profiles=profiles)
        return found

    shipped = load_profiles()
    for depth, got in zip(depths, speeds("middle", shipped, depths), strict=True):
        profile = freeze(shipped[model], depth)
        assert got.tolist() == speeds("", {**shipped, model: profile}, (0,))[0].tolist()
        assert got.max() > 0
