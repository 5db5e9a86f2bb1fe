"""Each rule of docs/design/006-full.md by hand, in the compiled core and in the reference."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from envs.order import set_order
from envs.rng import Purpose, uniform
from envs.scheduler import Decision
from envs.simulate import Run, simulate
from envs.spec import ClusterSpec
from envs.straggler_load import gpu_hazard_share, load_of, tenants_of
from envs.straggler_presets import CPU, GPU, IO, NET
from envs.view import ClusterView
from tests.envs.core_support import External, finish_list
from tests.envs.elastic_core_support import SPEED, linear
from tests.envs.full_support import play_both, slowed
from tests.envs.straggler_support import CALM, FIFO, moves
from tests.envs.test_layers_core import PROFILES, SEED, ends, frozen_rate, one_job
from tests.envs.watched_reference import Over, Watched, rows
from traces.freezing import Freezing, shares
from traces.profiles import TypeProfile
from traces.trace import Trace, make_trace

EVER = math.inf
EVENTS = replace(CALM, interval_s=0.0)
FIXED, SAMPLE, SYNC = shares("cifar10", 5, Freezing())  # what depth 5 leaves of a step
HALF = 0.5  # the penalty of 5 of 10 modules that never were active


def elastic(*gpus: int, presets: tuple[str, ...] = ("conservative",), tasks: tuple[Any, ...] = ()) -> Trace:
    """Elastic jobs of the model cifar10 at 0 s, and tasks (arrival, duration) of one service that start up in 4 s."""
    jobs = pd.DataFrame({"num_gpus": gpus, "freezing": presets}).assign(arrival_s=0.0, model="cifar10")
    after = pd.DataFrame(tasks, columns=["arrival_s", "duration_s"]).astype(float)
    after = after.assign(kind="inference", num_gpus=1, service="s", start_up_s=4.0)
    return make_trace("hand", pd.concat([jobs, after], ignore_index=True) if tasks else jobs)


# --- 1. frozen layers and stragglers ---


def test_a_slow_link_is_felt_as_the_depth_has_it() -> None:
    """On two nodes a step is 1/2 s of gradients and 1/2 s of communication; what depth 5 leaves of both."""
    shown = []
    for depth, sample, sync, penalty in ((0, 1.0, 1.0, 0.0), (5, SAMPLE, SYNC, HALF)):
        step = 0.5 * sample + 0.5 * sync
        pace = 1 / (1 + 0.5 * sync / step * (3 - 1))
        finish = 100 * step / (1 - penalty) / pace
        shown.append(pace)
        chooser = moves(t0={0: (2, (1, 1), depth)})
        for got in play_both(elastic(2), "2x1", chooser, {(NET, 0): (3.0, EVER)}, profiles=PROFILES):
            assert got["finish_s"][0] == pytest.approx(finish, rel=1e-9)
            assert got["lost_gpu_s"][0] == pytest.approx(2 * finish * (1 - pace), rel=1e-9)
            assert got["slowed_s"][0] == pytest.approx(finish, rel=1e-9)
    assert shown[0] != pytest.approx(shown[1], abs=0.01)


def test_a_change_of_depth_is_a_change_of_pace() -> None:
    """20 s at depth 0, then five modules are frozen, without a pause."""
    omegas = [0.5 * sync / (0.5 * sample + 0.5 * sync) for sample, sync in ((1.0, 1.0), (SAMPLE, SYNC))]
    paces = [1 / (1 + 2 * omega) for omega in omegas]
    done = 20 * paces[0]
    penalty = np.maximum(0, 1 - done / 100 / ends()[:5]).sum() / 10
    finish = 20 + (100 - done) * (0.5 * SAMPLE + 0.5 * SYNC) / (1 - penalty) / paces[1]
    chooser, slow = moves(t0={0: (2, (1, 1))}, t20={0: (2, (1, 1), 5)}), {(NET, 1): (3.0, EVER)}
    config = replace(CALM, freeze_s=0.0)
    for got in play_both(elastic(2), "2x1", chooser, slow, config=config, profiles=PROFILES, seed=SEED):
        assert got["finish_s"][0] == pytest.approx(finish, rel=1e-9)


def test_the_rate_is_a_product() -> None:
    """Depth 5, half lost to interference with a rigid job on both nodes, the penalty 1/2, and CPUs of node 1 at 2."""
    trace = make_trace(
        "hand",
        {
            "num_gpus": [2, 2],
            "arrival_s": [0, 0],
            "duration_s": [math.nan, 5000],
            "model": ["cifar10", ""],
            "freezing": ["conservative", ""],
        },
    )
    chooser = moves(t0={0: (2, (1, 1), 5), 1: (2, (1, 1))})
    config = replace(CALM, interference=0.5)
    step = 0.5 * SAMPLE + 0.5 * SYNC
    pace = 1 / (1 + (0.5 * SAMPLE / step) * (2 - 1))
    for got in play_both(trace, "2x2", chooser, {(CPU, 1): (2.0, EVER)}, config=config, profiles=PROFILES):
        assert got["finish_s"][0] == pytest.approx(100 / (1 / step * 0.5 * (1 - HALF) * pace), rel=1e-9)


def test_penalty_and_residual_go_by_progress() -> None:
    """All at half the speed: 40 s to progress 0.2, a pause of 3 s, 37 s with five modules frozen, and another pause."""
    frozen = 37 * frozen_rate(0.2) / 2
    active = np.where(np.arange(10) < 5, 1 - frozen / 100, 1.0)
    chooser = moves(t0={0: (1, None)}, t40={0: (1, None, 5)}, t80={0: (1, None, 0)})
    for got in play_both(one_job(), "1x1", chooser, {(CPU, 0): (2.0, EVER)}, profiles=PROFILES, seed=SEED):
        assert got["finish_s"][0] == pytest.approx(83 + 2 * (80 - frozen), rel=1e-9)
        assert got["residual"][0] == pytest.approx(np.maximum(0, 1 - active / ends()).mean(), rel=1e-9)


@pytest.mark.parametrize(("freeze_s", "resync_s"), [(3.0, 5.0), (7.0, 5.0)])
def test_a_change_of_depth_and_of_mode_is_one_pause(freeze_s: float, resync_s: float) -> None:
    config = replace(CALM, freeze_s=freeze_s, resync_s=resync_s)
    chooser = moves(t0={0: (1, None)}, t20={0: (1, None, 5, "drop")})
    for got in play_both(one_job(), "1x1", chooser, {}, config=config, profiles=PROFILES, seed=SEED):
        assert got["paused_gpu_s"][0] == max(freeze_s, resync_s)
        assert got["finish_s"][0] == pytest.approx(20 + max(freeze_s, resync_s) + 80 / frozen_rate(0.2), rel=1e-9)
        assert (got["depth_changes"][0], got["num_rescales"][0]) == (1, 0)


# --- 2. inference and stragglers ---

# At 41 s one pod sleeps (5 + 30), one is protected (30 + 30), one runs, one starts; on devices 0 to 3 of 8.
AWAKE = rows([], [("a", 0, 1), ("b", 25, 1), ("c", 30, 50), ("d", 38, 50)])


def at_41(trace: Trace, cluster: str, hot: float, **fields: Any) -> tuple[Any, Watched]:
    """A cluster of the core and a run of the reference at 41 s, backgrounds all hot or all calm."""
    config, spec = replace(EVENTS, **fields), ClusterSpec.parse(cluster)
    core = Run(trace, spec, config, 0)
    set_order(core.states, FIFO)
    core.start()
    finish_list(core, until=41.0)
    core.states["hot_share"] = hot
    reference = Watched(trace, spec, FIFO, config, 0)
    reference.until = 40.0
    with pytest.raises(Over):
        reference.play()
    assert reference.stragglers is not None
    for background in reference.stragglers.backgrounds.values():
        background.hot_share = hot
    return core.states[0], reference


def loads(trace: Trace, cluster: str, node: int = 0, hot: float = 0.0, **fields: Any) -> list[tuple[float, ...]]:
    """U of CPU, NET and IO and the tenants of a node at 41 s."""
    s, reference = at_41(trace, cluster, hot, **fields)
    found = reference.stragglers
    assert found is not None
    ours = tuple(float(load_of(s, node, kind)) for kind in (CPU, NET, IO))
    theirs = tuple(found.load(kind, node, reference.now) for kind in (CPU, NET, IO))
    return [
        (*ours, int(tenants_of(s, node, CPU))),
        (*theirs, found.tenants(CPU, node, reference.now)),
    ]


def test_awake_pods_are_load_and_one_tenant() -> None:
    three = 0.2 + 3 * 0.4 / 8
    for got in loads(AWAKE, "1x8"):
        assert got == pytest.approx((three, 0.2, three, 1))
    for got in loads(AWAKE, "1x8", hot=1.0):
        assert got == pytest.approx((three + 0.7, 0.9, three + 0.7, 2))
    for got in loads(AWAKE, "1x8", straggler_load=False):
        assert got == pytest.approx((0.2, 0.2, 0.2, 0))
    job = rows([(2, 0, 99.0)], [("a", 0, 1), ("b", 25, 1), ("c", 30, 50), ("d", 38, 50)])
    for got in loads(job, "1x8"):
        assert got == pytest.approx((three + 2 * 0.4 / 8, 0.2, three + 2 * 0.4 / 8, 2))


@pytest.mark.parametrize("on", [True, False])
def test_devices_of_awake_pods_are_held(on: bool) -> None:
    s, reference = at_41(AWAKE, "1x8", 0.0, straggler_load=on)
    found = reference.stragglers
    assert found is not None
    held = [d for d, pod in reference.devices.pods.items() if pod.state != "sleep"]
    assert len(held) == 3
    assert len(reference.devices.pods) == 4
    for device in range(8):
        chance = 1.0 if on and device in held else 1 / 1.5
        assert gpu_hazard_share(s, device) == pytest.approx(chance)
        assert found.chance(found.components[GPU, device], reference.now) == pytest.approx(chance)


def test_empty_devices_of_reserved_nodes_are_neither_load_nor_held() -> None:
    trace = rows([], [("a", 0, 90), ("a", 200, 1)])
    for got in loads(trace, "2x4", node=1, reclaim="lyra"):
        assert got == pytest.approx((0.3, 0.2, 0.3, 1))
    s, reference = at_41(trace, "2x4", 0.0, reclaim="lyra")
    assert reference.devices.reserved == {1}
    found = reference.stragglers
    assert found is not None
    for device in range(8):
        chance = 1.0 if device == 4 else 1 / 1.5
        assert gpu_hazard_share(s, device) == pytest.approx(chance)
        assert found.chance(found.components[GPU, device], reference.now) == pytest.approx(chance)


@pytest.mark.parametrize(
    ("end", "runs"),
    [(3.0, 5.0), (4.0, 5.0), (6.0, 5 * 2 * 1.5), (EVER, 5 * 2 * 1.5)],
)
def test_a_task_runs_as_slow_as_its_device_is_when_it_begins(end: float, runs: float) -> None:
    """Its start-up of 4 s is never slower, and what ends at 6 s matters to the end; links and storage never do."""
    slow = {(CPU, 0): (2.0, end), (GPU, 0): (1.5, end), (NET, 0): (4.0, end), (IO, 0): (4.0, end)}
    trace, config = rows([], [("s", 0, 5), ("s", 25, 1)]), replace(EVENTS, straggler_io=True)
    for got in play_both(trace, "1x1", FIFO, slow, config=config):
        assert got["finish_s"].tolist() == [4 + runs, 25 + (3 if end == EVER else 1)]
        assert got["service_gpu_s"].tolist() == [4 + runs, 3 if end == EVER else 1]
        assert got["paused_gpu_s"].tolist() == [4, 0]
        assert got["warm"].tolist() == [0, 1]


def test_a_task_runs_at_the_speed_of_its_device_for_good() -> None:
    """Class compute-bound: exp(.026 z), as its device is no outlier and its node not degraded."""
    config, seed = replace(EVENTS, gpu_variability=True), 4

    def normal(index: int) -> float:
        a, b = (uniform(seed, int(Purpose.VARIABILITY), index, i) for i in range(2))
        return math.sqrt(-2 * math.log(1 - a)) * math.cos(2 * math.pi * b)

    assert uniform(seed, int(Purpose.VARIABILITY), 1, 2) > 0.03
    assert uniform(seed, int(Purpose.VARIABILITY), 0, 2) > 0.005
    speed = math.exp(0.026 * (math.sqrt(0.26) * normal(0) + math.sqrt(0.74) * normal(1)))
    assert abs(speed - 1) > 1e-3
    for got in play_both(rows([], [("s", 0, 500)]), "1x1", FIFO, {}, config=config, seed=seed):
        assert got["finish_s"].tolist() == [pytest.approx(4 + 500 * speed, rel=1e-12)]


def test_rigid_jobs_yield_by_their_pace() -> None:
    """Both lose 1, and the first yields; but the second, at half its speed, loses 1/2."""
    trace = rows([(1, 0, 100.0), (1, 0, 100.0)], [("s", 5, 1)])
    for slow, taken in (({}, [1, 0]), ({(GPU, 1): (2.0, EVER)}, [0, 1]), ({(GPU, 0): (0.5, EVER)}, [0, 1])):
        for got in play_both(trace, "2x1", FIFO, slow, config=EVENTS):
            assert got["num_preemptions"].tolist() == [*taken, 0]


def test_an_elastic_job_yields_by_its_loss_and_its_pace() -> None:
    """Its second GPU is worth 1/2 in fair shares of 2, the rigid job 1, both times their pace.

    At 50 s, when the pod sleeps, both have all back.
    """
    trace = rows([(2, 0, None), (2, 0, 100.0)], [("s", 5, 1)], comm_share=[math.nan, 0.0])
    both = {0: (2, (2, 0)), 1: (2, (0, 2))}
    chooser, profiles = moves(t0=both, t50=both), {"m": linear(1000)}
    for of_first, of_second, first in ((1, 1, True), (1, 4, False), (4, 4, True), (1, 1.9, True), (1, 2.1, False)):
        slow = {(GPU, 0): (of_first, EVER), (CPU, 1): (of_second, EVER)}
        for got in play_both(trace, "2x2", chooser, slow, profiles=profiles):
            assert (got["num_rescales"][0], got["num_preemptions"][1]) == ((2, 0) if first else (0, 1))


def test_whole_servers_and_idle_devices_are_taken_whatever_their_pace() -> None:
    """Of nodes 1 and 2, lent to a job each, the first; and of two idle nodes the first, slow as it is."""
    trace = rows([(1, 0, 100.0)] * 3, [("s", 5, 1)])
    config = replace(EVENTS, reclaim="lyra", inference_nodes=2)
    for device in (1, 2):
        for got in play_both(trace, "3x1", FIFO, {(GPU, device): (3.0, EVER)}, config=config):
            assert got["num_preemptions"].tolist() == [0, 1, 0, 0]
    for reclaim in ("ats", "static"):
        config = replace(EVENTS, reclaim=reclaim, inference_nodes=2)
        for got in play_both(rows([], [("s", 5, 1)]), "2x1", FIFO, {(GPU, 0): (3.0, EVER)}, config=config):
            assert got["finish_s"].tolist() == [5 + 4 + 3]


def test_a_job_left_on_one_node_feels_no_link() -> None:
    """Half its speed for 20 s on two nodes, of which inference takes the first: as usual on the other."""
    trace = elastic(2, presets=("",), tasks=((20, 1),))
    chooser = moves(t0={0: (2, (1, 1))})
    for got in play_both(trace, "2x1", chooser, {(NET, 1): (3.0, EVER)}, profiles=PROFILES):
        assert got["finish_s"][0] == pytest.approx(20 + 100 - 20 / 2, rel=1e-9)
        assert got["lost_gpu_s"][0] == pytest.approx(20 * 2 / 2, rel=1e-9)
        assert (got["slowed_s"][0], got["num_rescales"][0]) == (20, 1)


def test_a_job_that_loses_its_slow_device_is_as_fast_as_the_others() -> None:
    """Inference takes the highest device, the slow one: 2 iterations a second at half the speed, then 1 at all."""
    trace = elastic(2, presets=("",), tasks=((20, 1),))
    chooser = moves(t0={0: (2, (2,))})
    for got in play_both(trace, "1x2", chooser, {(GPU, 1): (2.0, EVER)}, profiles=PROFILES):
        assert got["finish_s"][0] == pytest.approx(20 + 100 - 20 * 2 / 2, rel=1e-9)
        assert got["straggling_gpu_s"][0] == pytest.approx(20, rel=1e-9)


# --- 3. inference and frozen layers ---


def test_the_loss_is_that_at_the_present_depth() -> None:
    """Two jobs of 2 GPUs on a node each, the second frozen at depth 5; a fair share is 2 GPUs.

    On 2 GPUs a step is 1/2 s of gradients and 1/4 s of synchronisation, on one 1 s of gradients. Depth 5 leaves less of
    the gradients than of the synchronisation: the second job loses less with its second GPU. It keeps its depth.
    """
    sync = 0.25
    speed = TypeProfile("aws", 1, 16, replace(SPEED, alpha_r=sync))
    losses = [1 - (0.5 * sample + sync * left) / sample for sample, left in ((1.0, 1.0), (SAMPLE, SYNC))]
    assert losses[1] < losses[0] - 0.01
    trace = elastic(2, 2, presets=("conservative", "conservative"), tasks=((20, 1),))
    chooser = moves(t0={0: (2, (2, 0), 0), 1: (2, (0, 2), 5)})
    before, after = (1 - HALF) / (0.5 * SAMPLE + sync * SYNC), (1 - HALF) / SAMPLE
    for got in play_both(
        trace, "2x2", chooser, {}, profiles={"cifar10": linear(100, name="cifar10", types={"aws": speed})}
    ):
        assert got["num_rescales"].tolist() == [0, 1, 0]
        assert got["finish_s"][1] == pytest.approx(20 + (100 - 20 * before) / after, rel=1e-9)
        assert got["depth_changes"].tolist() == [0, 1, 0]


def test_a_job_that_loses_all_keeps_its_depth() -> None:
    """Frozen from the start, stopped at 20 s, until the pod sleeps at 55 s; resumed at 60 s without a word of depth."""
    trace = elastic(1, tasks=((20, 1),))
    chooser = moves(t0={0: (1, None, 5)}, t60={0: (1, None)})
    rate = (1 - HALF) / SAMPLE
    for got in play_both(trace, "1x1", chooser, {}, profiles=PROFILES):
        assert got["finish_s"][0] == pytest.approx(60 + 100 / rate - 20, rel=1e-9)
        assert (got["num_preemptions"][0], got["depth_changes"][0]) == (1, 1)


# --- 4. what schedulers know ---


def test_what_is_known_is_known_without_stragglers() -> None:
    """A job at a third of its speed: its goodput, its estimate and the time left of its work are as if it were not."""
    shown: dict[float, list[Any]] = {}

    def decide(view: ClusterView) -> Decision:
        gpus = np.ones(view.num_slots, np.int64)
        slots = view.slots
        if view.now == 30:
            known = view.goodput(slots), view.estimate[slots], view.remaining[slots]
            shown[severity] = [np.array(values, np.float64) for values in known]
        gpus[np.setdiff1d(np.arange(view.num_slots), slots)] = 0
        return Decision(gpus)

    trace = one_job("", num_gpus=[1])
    for severity in (1.0, 3.0):
        with slowed({(CPU, 0): (severity, EVER)}):
            simulate(trace, ClusterSpec.parse("1x1"), External(decide), CALM, profiles=PROFILES)
    (goodput, estimate, left), (slow_goodput, slow_estimate, slow_left) = shown[1.0], shown[3.0]
    assert np.array_equal(goodput, slow_goodput)
    assert np.array_equal(estimate, slow_estimate)
    assert left == pytest.approx(estimate * 0.7)
    assert slow_left == pytest.approx(estimate * 0.9)
