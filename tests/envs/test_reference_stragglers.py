"""What makes workers slow, in the reference: episodes, backgrounds, load, speeds of GPUs; nothing without any of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from envs.order import Key, ListOrder
from envs.reference import Run, simulate_reference
from envs.reference_devices import Devices
from envs.reference_stragglers import Background, Component, Stragglers
from envs.spec import ClusterSpec, SimConfig
from envs.straggler_presets import CPU, GPU, IO, NET, STRAGGLER_PRESETS, Cause
from tests.envs.elastic_support import jobs
from tests.envs.random_stragglers import SyncChooser, straggler_case
from tests.envs.straggler_support import CALM, accounts, begin, play, rigid

SHARED = SimConfig(stragglers="shared")

# Episodes


def episodes(config: SimConfig, count: int, seed: int, chance: float, **cause: float) -> Iterator[tuple[float, ...]]:
    """Begin, end and severity of the episodes of one component whose candidates are onsets with ``chance``."""
    usual = STRAGGLER_PRESETS[config.stragglers].net
    component = Component(NET, 0, 0, Cause(**{**vars(usual), **cause}), 1.0, config, seed)
    while count:
        begin = component.next_at
        if component.settle(chance):
            yield begin, component.next_at, component.severity
            assert component.settle(chance)
            assert component.severity == 1
            count -= 1


@pytest.mark.parametrize("times", ["lognormal", "exponential"])
@pytest.mark.parametrize("chance", [1.0, 0.3])
def test_share_of_time_that_a_component_is_slow(times: Any, chance: float) -> None:
    """nu / (nu + 1 / m) within 5 %, the hazard nu held fast: 20,000 episodes, of which the error is below 1 %."""
    config = replace(SHARED, stragglers="contention", straggler_times=times)
    log = np.array([*episodes(config, 20_000, 1, chance)])
    frailty = Component(NET, 0, 0, Cause(0.0, 3600.0, 0.0, 1.0, 1.0, 1.0, 1.0), 1.0, config, 1).rate
    nu, mean_h = frailty * chance * 3.02, 24 / 60
    share = (log[:, 1] - log[:, 0]).sum() / log[-1, 1]
    assert share == pytest.approx(nu / (nu + 1 / mean_h), rel=0.05)
    lengths = log[:, 1] - log[:, 0]
    assert lengths.min() == pytest.approx(30, rel=1e-6)
    assert lengths.max() == pytest.approx(36000, rel=1e-6) or times == "exponential"
    assert lengths.mean() == pytest.approx(24 * 60, rel=0.05)


def test_severities() -> None:
    """Mean excess 1.8 x 0.5 before they are cut to 8."""
    excess = np.array([*episodes(replace(SHARED, straggler_severity=0.5), 20_000, 0, 1.0)])[:, 2] - 1
    assert excess.mean() == pytest.approx(0.9, rel=0.02)
    assert np.log(excess).std() == pytest.approx(0.6, rel=0.02)
    assert max(s for *_, s in episodes(replace(SHARED, straggler_severity=9.0), 500, 0, 1.0)) == 8
    assert max(s for *_, s in episodes(replace(SHARED, stragglers="dedicated"), 5000, 0, 1.0)) == 12


def test_frailties_have_mean_1_and_variance_half() -> None:
    cause = Cause(0.0, 3600.0, 0.0, 1.0, 1.0, 1.0, 1.0)  # one candidate a second
    rates = [Component(kind, 0, i, cause, 1.0, SHARED, 0).rate for i in range(5000) for kind in (CPU, NET, IO, GPU)]
    assert np.mean(rates) == pytest.approx(1, rel=0.02)
    assert np.var(rates) == pytest.approx(0.5, rel=0.05)
    assert len(set(rates)) == len(rates)
    assert Component(NET, 0, 3, cause, 10.0, replace(SHARED, straggler_rate=2.0), 0).rate == 20 * rates[4 * 3 + NET]


def test_candidates_come_at_their_rate_whatever_becomes_of_them() -> None:
    """The same times of candidates at every chance: an episode only uses some up."""
    cause = STRAGGLER_PRESETS["shared"].cpu
    never = Component(CPU, 0, 0, cause, 1.0, replace(SHARED, straggler_rate=10.0), 0)
    gaps = []
    for _ in range(5000):
        before = never.at
        assert not never.settle(0.0)
        gaps.append(never.at - before)
    assert np.mean(gaps) == pytest.approx(1 / never.rate, rel=0.05)
    always = Component(CPU, 0, 0, cause, 1.0, replace(SHARED, straggler_rate=10.0), 0)
    times = np.cumsum([Component(CPU, 0, 0, cause, 1.0, replace(SHARED, straggler_rate=10.0), 0).at, *gaps])
    for _ in range(100):
        assert always.settle(1.0)
        assert always.at == pytest.approx(times[always.candidate], rel=1e-12)
        assert times[always.candidate - 1] <= always.end < always.at
        assert always.settle(1.0)


@pytest.mark.parametrize("config", [replace(SHARED, straggler_rate=0.0), replace(SHARED, straggler_severity=0.0)])
def test_components_that_never_straggle(config: SimConfig) -> None:
    run = begin(rigid((1, 0, 9)), "2x2", config=replace(config, gpu_variability=False))
    assert run.stragglers is not None
    assert run.stragglers.first().next_at == math.inf
    dedicated = begin(rigid((1, 0, 9)), "2x2", config=replace(SHARED, stragglers="dedicated", straggler_io=True))
    assert dedicated.stragglers is not None
    rates = Counter(c.kind for c in dedicated.stragglers.components.values() if c.rate > 0)
    assert rates == {NET: 2, GPU: 4}


# Background and load


def test_background() -> None:
    """5,000 epochs: a quarter hot, mean 12 h; an epoch lasts from its begin to its end."""
    background = Background(NET, 3, 0.25, 12.0, 0)
    hot = [background.is_hot(60.0 * minute) for minute in range(60 * 12 * 5000)]
    assert np.mean(hot) == pytest.approx(0.25, abs=0.025)
    assert background.epoch == pytest.approx(5000, rel=0.05)
    end = Background(NET, 3, 0.25, 12.0, 0)
    end.is_hot(0.0)
    assert [(end.is_hot(at), end.epoch)[1] for at in (math.nextafter(end.until, 0), end.until)] == [0, 1]


def filled(config: SimConfig, hot: float = 0.0) -> Stragglers:
    """Two nodes of 4: job 0 on devices 0 and 4, jobs 1 (a quarter) and 2 (half) on device 1; backgrounds all hot or
    all calm.
    """
    trace = rigid(
        (2, 0, 9), (1, 0, 9), (1, 0, 9), share_milli=[1000, 250, 500], sensitivity=["language", "vision", "speech"]
    )
    run = begin(trace, "2x4", config=config)
    for job, devices in zip(run.jobs, ([0, 4], [1], [1]), strict=True):
        run.devices.give(job, devices)
    assert run.stragglers is not None
    for background in run.stragglers.backgrounds.values():
        background.hot_share = hot
    return run.stragglers


def test_load() -> None:
    found = filled(SHARED)
    assert found.load(CPU, 0, 0.0) == pytest.approx(0.2 + 0.4 / 4 * (0.2 + 0.25 * 1 + 0.5 * 0.8))
    assert found.load(IO, 0, 0.0) == pytest.approx(0.2 + 0.4 / 4 * (0.2 + 0.25 * 1 + 0.5 * 0.2))
    assert found.load(NET, 0, 0.0) == pytest.approx(0.2 + 0.5 / 4 * 0.5)  # only job 0 is on several nodes
    assert found.load(CPU, 1, 0.0) == pytest.approx(0.2 + 0.4 / 4 * 0.2)
    assert filled(SHARED, hot=1.0).load(NET, 1, 0.0) == pytest.approx(0.9 + 0.5 / 4 * 0.5)
    found = filled(replace(SHARED, sync="asynchronous"))
    assert found.load(CPU, 1, 0.0) == pytest.approx(0.2 + 1.3 * 0.4 / 4 * 0.2)
    assert found.load(NET, 1, 0.0) == pytest.approx(0.2 + 1.3 * 0.5 / 4 * 0.5)
    assert filled(replace(SHARED, straggler_load=False)).load(NET, 0, 0.0) == 0.2


def test_chance_of_an_onset() -> None:
    config = replace(SHARED, straggler_io=True)
    found = filled(config)

    def chance(kind: int, index: int) -> float:
        return found.chance(found.components[kind, index], 0.0)

    def by_load(least: float, hot: float, load: float) -> float:
        return (least + hot / (1 + math.exp(-(load - 0.8) / 0.05))) / (least + hot)

    assert chance(CPU, 0) == pytest.approx(by_load(0.002, 8, 0.285))
    assert chance(NET, 1) == pytest.approx(by_load(0.002, 2, 0.2625))
    assert (chance(CPU, 1), chance(IO, 1)) == (0, 0)  # one job there
    assert (chance(GPU, 1), chance(GPU, 4)) == (1, 1)
    assert chance(GPU, 2) == pytest.approx(1 / 1.5)
    found = filled(config, hot=1.0)  # and now two tenants
    assert chance(CPU, 1) == pytest.approx(by_load(0.002, 8, 0.92))
    found = filled(replace(config, straggler_load=False), hot=1.0)
    assert chance(CPU, 1) == chance(CPU, 0) == pytest.approx(by_load(0.002, 8, 0.9))
    assert chance(GPU, 1) == pytest.approx(1 / 1.5)
    found = filled(replace(config, straggler_load=False))
    assert chance(CPU, 0) == 0  # whoever is there


def test_load_of_an_elastic_job_is_that_of_its_batch() -> None:
    """2 of 2 nodes' GPUs, one on each: an iteration of batch 8 is 1/2 s and 3/2 s of communication."""
    run = begin(jobs(("m", 2, 0)), "2x2")
    run.devices.give(run.jobs[0], [0, 2])
    run.jobs[0].where = ("", (1, 1))
    assert run.stragglers is not None
    assert run.stragglers.load(NET, 0, 0.0) - run.stragglers.load(CPU, 1, 0.0) == pytest.approx(
        0.5 * 0.75 / 2 - 0.4 / 2
    )


# Speeds for good


@pytest.fixture(scope="module")
def speeds() -> np.ndarray:
    """(6,000, 3) by device and class; two devices a node."""
    return _speeds(SHARED)


def _speeds(config: SimConfig) -> np.ndarray:
    found = Stragglers(Devices(ClusterSpec.parse("3000x2")), [], config, 5)
    return np.array([[found.speed(device, of) for of in range(3)] for device in range(6000)])


def test_speeds_of_devices(speeds: np.ndarray) -> None:
    """The logarithms are .026 z + a, .009 z + .4 a and .002 z, of degraded nodes ln 1.1 more."""
    compute, attention, memory = np.log(speeds).T
    more = np.where(memory > 0.05, math.log(1.1), 0.0)
    z = (memory - more) / 0.002
    a = compute - more - 0.026 * z
    assert attention - more == pytest.approx(0.009 * z + 0.4 * a, abs=1e-12)
    assert (z.mean(), z.std()) == (pytest.approx(0, abs=0.05), pytest.approx(1, rel=0.05))
    slow = np.isclose(a, math.log(1.12), atol=1e-12)
    assert a[~slow] == pytest.approx(0, abs=1e-12)
    assert slow.mean() == pytest.approx(0.03, abs=0.006)
    assert (more > 0).mean() == pytest.approx(0.005, abs=0.003)


def test_devices_of_a_node_are_alike(speeds: np.ndarray) -> None:
    logs = np.log(speeds[:, 2]).reshape(-1, 2)
    logs = logs[(logs < 0.05).all(axis=1)]
    assert np.corrcoef(logs.T)[0, 1] == pytest.approx(0.26, abs=0.05)


def test_broken_devices_of_contention_and_no_differences() -> None:
    logs = np.log(_speeds(replace(SHARED, stragglers="contention")))
    assert (logs[:, 0] > 0.6).mean() == pytest.approx(0.01, abs=0.004)
    assert (_speeds(replace(SHARED, gpu_variability=False)) == 1).all()


def test_fast_devices_lose_less_than_nothing() -> None:
    config = replace(CALM, gpu_variability=True)
    run = begin(rigid((1, 0, 100), comm_share=0.0), "1x1", config=config)
    assert run.stragglers is not None
    speed = run.stragglers.speed(0, 0)
    run.play()
    assert accounts(run)[:2] == pytest.approx((100 * speed, 100 * speed - 100), rel=1e-12)


def test_degraded_nodes_have_ten_times_the_rate() -> None:
    found = Stragglers(Devices(ClusterSpec.parse("1000x1")), [], SHARED, 0)
    degraded = [node for node in range(1000) if found.is_degraded(node)]
    plain = Stragglers(Devices(ClusterSpec.parse("1000x1")), [], replace(SHARED, gpu_variability=False), 0)
    ratios = [found.components[GPU, n].rate / plain.components[GPU, n].rate for n in range(1000)]
    assert {n: r for n, r in enumerate(ratios) if r != 1} == {n: pytest.approx(10, rel=1e-12) for n in degraded}
    assert 1 <= len(degraded) <= 12


# Whole runs


def test_without_stragglers_nothing_changes() -> None:
    """Rate 0 and equal GPUs: every number as with ``none``."""
    for seed in range(40):
        case = straggler_case(seed)
        scheduler = case.scheduler.inner if isinstance(case.scheduler, SyncChooser) else case.scheduler
        config = replace(case.config, straggler_rate=0.0, gpu_variability=False, sync="synchronous")
        runs = [
            simulate_reference(case.trace, case.cluster, scheduler, how, seed, case.profiles, case.tuned)
            for how in (config, replace(config, stragglers="none"))
        ]
        assert repr(runs[0]) == repr(runs[1])


def history(run: Run) -> list[tuple[float, int, int, float]]:
    """Every onset and end of a whole run: time, kind, index, severity."""
    found, stragglers = [], run.stragglers
    assert stragglers is not None
    settle = stragglers.settle

    def settle_and_note(component: Component) -> bool:
        time = component.next_at
        changed = settle(component)
        if changed:
            found.append((time, component.kind, component.index, component.severity))
        return changed

    stragglers.settle = settle_and_note  # type: ignore[method-assign]
    run.play()
    return found


@pytest.mark.parametrize("load", [False, True])
def test_what_happens_is_the_same_under_every_scheduler_unless_load_counts(load: bool) -> None:
    config = replace(CALM, stragglers="contention", straggler_rate=1000.0, straggler_load=load, straggler_io=True)
    trace = rigid((2, 0, 2e4), (1, 0, 1e4), (4, 0, 2e4), (3, 0, 5e3), (6, 0, 2e3))
    orders = (ListOrder(Key.ARRIVAL), ListOrder(Key.DURATION, preemptive=True))
    first, second = (history(begin(trace, "2x4", order, config)) for order in orders)
    both = min(len(first), len(second))
    assert both > 100
    assert len({kind for _, kind, *_ in first}) == 4
    assert (first[:both] == second[:both]) is not load


def test_what_happens_asks_for_no_pass() -> None:
    """One pass at the arrival and one at an end, whatever goes on between."""
    asked = []

    def choose(now: float, index: int, seen: list[Any], nodes: list[int]) -> dict[int, Any]:
        asked.append(now)
        return {job.job_id: (job.request, None) for job in seen}

    config = replace(CALM, interval_s=0.0)
    changes = {(GPU, 0): [(1.0 * at, 1 + at % 2) for at in range(1, 90)]}
    run = play(rigid((1, 0, 50), (1, 0, 1), comm_share=0.0), "1x2", changes, choose, config)
    assert asked == [0, 1]
    assert (
        accounts(run)[0] == 66.5
    )  # full speed for a second, half speed for a second, and so on: 50 = 1 + 32 x 1.5 + .5 + .5
