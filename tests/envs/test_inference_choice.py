"""Whose device a cold start gets, against enumeration in plain Python of all that the contract lets it choose from.

States are those of random cases in the middle of a run (docs/design/003-inference.md, section 3).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from envs.layout import HOLDER_SHARED, LOG_DTYPE, NO_POD, POD_SLEEP
from envs.order import ListOrder
from envs.reclaim import choose_any, choose_server, count_training, find_cheapest
from envs.simulate import Run
from envs.spec import SimConfig
from envs.view import ClusterView
from tests.envs.core_support import WHOLE, finish_list
from tests.envs.elastic_core_support import jobs, linear, open_run
from tests.envs.random_inference import listed_case, rigid_case

NO_LOG = np.zeros(0, LOG_DTYPE).view(np.recarray)
MOMENTS = (20.0, 75.0, 150.0, 300.0, 700.0)


def moments(make: Any, seeds: range, reclaim: tuple[str, ...]) -> Iterator[tuple[Run, ClusterView]]:
    """Runs of random cases under their ordering rules, at moments on their way."""
    for seed in seeds:
        case = make(seed)
        if case.config.reclaim not in reclaim:
            continue
        assert isinstance(case.scheduler, ListOrder)
        config = replace(case.config, knowledge="profile" if seed % 2 else "oracle")
        run, view = open_run(case.trace, case.cluster, config, case.profiles, case.scheduler, tuned=case.tuned)
        for until in MOMENTS:
            if finish_list(run, until):
                break
            view.refresh(run.states)
            yield run, view


def on_node(s: Any, n: int) -> range:
    return range(int(s.node_first[n]), int(s.node_first[n] + s.node_gpus[n]))


def held(s: Any, n: int) -> list[int]:
    """Devices of a node that whole-device jobs hold."""
    return [g for g in on_node(s, n) if s.gpu_holder[g] >= 0]


def empty(s: Any, n: int) -> list[int]:
    """Devices of a node on which nothing is, and those kept for inference."""
    reserved = bool(s.node_reserved[n])
    return [g for g in on_node(s, n) if s.pod_state[g] == NO_POD and (reserved or s.gpu_free_milli[g] == WHOLE)]


def asleep(s: Any, n: int) -> list[int]:
    """Devices of the sleeping pods of a node, the pod born first first."""
    return sorted((g for g in on_node(s, n) if s.pod_state[g] == POD_SLEEP), key=lambda g: s.pod_born[g])


def loss(s: Any, view: ClusterView, j: int, n: int) -> float:
    """What a job loses by one device less on a node, or by all of them if it is rigid."""
    if not view.elastic[j]:
        return 1.0
    known = view.goodput([j])[0]
    nodes = Counter(int(s.gpu_node[g]) for g in range(s.num_gpus) if s.gpu_holder[g] == j)
    left = nodes - Counter([n])
    fair = min(max(1, math.ceil(view.open_gpus / len(view.slots))), int(view.max_gpus[j]))
    gpu_type = int(s.node_type[n])
    largest = max(int(s.node_gpus[m]) for m in range(s.num_nodes) if s.node_type[m] == gpu_type)
    base = known[int(fair > largest), fair]
    if base == 0:
        return 1 / fair
    after = known[int(len(left) > 1), left.total()] if left else 0.0
    return float((known[int(len(nodes) > 1), nodes.total()] - after) / base)


def cheapest(s: Any, view: ClusterView) -> tuple[int, int]:
    """(slot, node) with the least loss; ties: least attained service, first to arrive, lowest node."""
    pairs = {(int(s.gpu_holder[g]), n) for n in range(s.num_nodes) for g in held(s, n)}
    found = [
        (loss(s, view, j, n), float(view.service[j]), int(view.job_id[j]), n, j)
        for j, n in pairs
        if view.preemptible[j]
    ]
    if not found:
        return -1, -1
    *_, node, slot = min(found)
    return slot, node


def ats_choice(s: Any, view: ClusterView) -> tuple[str, int, int]:
    """(what is taken, device, slot that loses it)."""
    order = sorted(range(s.num_nodes), key=lambda n: (len(held(s, n)), n))
    for name, found in (("empty", empty), ("asleep", asleep)):
        devices = [g for n in order for g in found(s, n)[:1]]
        if devices:
            return name, devices[0], -1
    j, n = cheapest(s, view)
    if j < 0:
        return "none", -1, -1
    own = [g for g in on_node(s, n) if s.gpu_holder[g] == j]
    return ("elastic", max(own), j) if view.elastic[j] else ("rigid", min(own), j)


def lyra_choice(s: Any) -> tuple[str, int, int]:
    """(what is taken, device, its node)."""
    nodes = range(int(s.inference_first), int(s.num_nodes))
    ready = [
        n
        for n in nodes
        if s.node_reserved[n]
        or not any(
            s.gpu_holder[g] == HOLDER_SHARED or (g in held(s, n) and s.pinned[s.gpu_holder[g]]) for g in on_node(s, n)
        )
    ]
    by_training = sorted(ready, key=lambda n: (len(held(s, n)), n))
    for name, order, found in (
        ("empty", by_training, empty),
        ("asleep", ready, asleep),
        ("training", by_training, held),
    ):
        devices = [g for n in order for g in found(s, n)[:1]]
        if devices:
            return name, devices[0], int(s.gpu_node[devices[0]])
    return "none", -1, -1


@pytest.mark.parametrize("make", [rigid_case, listed_case])
def test_the_cheapest_device_of_training(make: Any) -> None:
    chosen: Counter[str] = Counter()
    for run, view in moments(make, range(90), ("ats",)):
        s = run.states[0]
        want = cheapest(s, view)
        assert find_cheapest(s, run.tables) == want, (run.trace.jobs, view.now)
        rivals = len({int(s.gpu_holder[g]) for n in range(s.num_nodes) for g in held(s, n)})
        chosen["none" if want[0] < 0 else "alone" if rivals == 1 else "among several"] += 1
    assert min(chosen[name] for name in ("none", "alone", "among several")) >= 5


@pytest.mark.parametrize("make", [rigid_case, listed_case])
def test_the_order_of_ats(make: Any) -> None:
    chosen: Counter[str] = Counter()
    for run, view in moments(make, range(90), ("ats",)):
        trial = run.states.copy().view(np.recarray)
        s = trial[0]
        count_training(s)
        name, device, loser = ats_choice(s, ClusterView(trial, run.cluster, run.config, run.workload))
        before = np.array(s.gpus)
        assert choose_any(s, run.tables, NO_LOG) == device, (name, view.now)
        lost = before - s.gpus
        if loser >= 0:
            assert lost[loser] == (1 if view.elastic[loser] else before[loser])
            lost[loser] = 0
        assert not lost.any()
        chosen[name] += 1
    wanted = ["empty", "asleep", "none", "elastic" if make is listed_case else "rigid"]
    assert [name for name in wanted if chosen[name] < 3] == []


@pytest.mark.parametrize("make", [rigid_case, listed_case])
def test_the_server_of_lyra(make: Any) -> None:
    chosen: Counter[str] = Counter()
    for run, view in moments(make, range(130), ("lyra", "static")):
        trial = run.states.copy().view(np.recarray)
        s = trial[0]
        name, device, node = lyra_choice(s)
        losers = {int(s.gpu_holder[g]): len(held(s, node)) for g in held(s, node)} if node >= 0 else {}
        own = {j: sum(s.gpu_holder[g] == j for g in held(s, node)) for j in losers}
        before = np.array(s.gpus)
        assert choose_server(s, NO_LOG) == device, (name, view.now)
        chosen[name, run.config.reclaim] += 1
        if node >= 0:
            assert s.node_reserved[node]
            assert held(s, node) == []
        lost = np.flatnonzero(before - s.gpus)
        assert set(lost.tolist()) == set(losers)
        for j in losers:
            assert before[j] - s.gpus[j] == (own[j] if view.elastic[j] else before[j])
    wanted = [(name, "lyra") for name in ("empty", "asleep", "training", "none")] + [("empty", "static")]
    assert [name for name in wanted if chosen[name] < 3] == []
    assert chosen["training", "static"] == 0


def stand(*rows: tuple[int, float, float | None], cluster: str, until: float) -> tuple[Any, Run]:
    """A hand-made state: the jobs of ``rows`` run as gangs; a task is to come, so that there are pods."""
    columns = {"kind": ("training", "inference"), "service": ("", "s"), "start_up_s": (math.nan, 4.0)}
    trace = jobs(*rows, (1, 500, 1.0), **{name: [a] * len(rows) + [b] for name, (a, b) in columns.items()})
    run, _ = open_run(trace, cluster, SimConfig(interval_s=0.0, rescale_s=0.0), {"m": linear(4000.0)})
    assert not finish_list(run, until)
    return run.states[0], run


@pytest.mark.parametrize(
    ("rows", "cluster", "victim"),
    [
        # Four GPUs for two jobs: each loses 1 / 2 by one less. The second has 10 GPU-s, the first 40.
        ([(2, 0, None), (2, 15, None)], "1x4", (1, 0)),
        # The same with equal service: the first to arrive.
        ([(2, 0, None), (2, 0, None)], "1x4", (0, 0)),
        # A rigid job loses 1, an elastic one with a single GPU of a fair share of 2 only 1 / 2.
        ([(1, 0, 900.0), (1, 0, None)], "1x4", (1, 0)),
        # Two rigid jobs: the one with less attained service, though it is the wider one.
        ([(1, 0, 900.0), (2, 16, 900.0)], "1x4", (1, 0)),
        # A job that loses the same on either of its nodes: the lowest.
        ([(4, 0, None)], "2x2", (0, 0)),
    ],
)
def test_worked_by_hand(rows: Any, cluster: str, victim: tuple[int, int]) -> None:
    s, run = stand(*rows, cluster=cluster, until=20.0)
    slot, node = find_cheapest(s, run.tables)
    assert (int(s.job_id[slot]), node) == victim
