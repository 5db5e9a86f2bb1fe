"""Large numbers, full capacities and shapes at the edge of what a record holds."""

from __future__ import annotations

from itertools import combinations_with_replacement
from random import Random
from typing import Any

import numpy as np
import pytest

from envs.devices import node_mix
from envs.dynamics import FINISHED, STOPPED
from envs.layout import NODE_BUCKETS, SLOT_BUCKETS, bucket, node_bucket
from envs.list_run import run_list
from envs.order import MAX_LIMITS, Key, ListOrder
from envs.simulate import simulate
from envs.spec import ClusterSpec, SimConfig, SpecError
from tests.envs.core_support import EVENTS, Listed, begin, finish_list, hand, spans
from tests.envs.random_traces import random_case
from tests.envs.test_core_differential import compare
from traces.trace import Trace, make_trace

FIFO, SRTF = ListOrder(Key.ARRIVAL), ListOrder(Key.REMAINING, preemptive=True)
SIXTEEN = ClusterSpec.parse("4x4")
# A multiple of every interval and quantum of random_traces.py, 49 years.
LATER = 1560.0 * 1_000_000


def burst(count: int, duration_s: Any, **columns: Any) -> Trace:
    """``count`` jobs of one GPU that arrive at 5 s."""
    return make_trace(
        "burst", {"arrival_s": np.full(count, 5.0), "num_gpus": 1, "duration_s": duration_s * np.ones(count), **columns}
    )


def mixed(count: int, widths: tuple[int, ...], types: tuple[str, ...] = ("",)) -> Trace:
    """``count`` jobs within 100 s."""
    rng = Random(count)
    columns = {
        "arrival_s": sorted(rng.uniform(0, 100) for _ in range(count)),
        "num_gpus": [rng.choice(widths) for _ in range(count)],
        "duration_s": [rng.uniform(1, 100) for _ in range(count)],
        "gpu_type": [rng.choice(types) for _ in range(count)],
    }
    return make_trace("mixed", columns)


def test_a_schedule_fifty_years_later_is_the_same() -> None:
    for seed in range(120):
        trace, cluster, order, config = random_case(seed)
        now = simulate(trace, cluster, Listed(order), config, seed=seed).jobs
        trace.jobs["arrival_s"] += LATER
        later = simulate(trace, cluster, Listed(order), config, seed=seed).jobs
        for column in ("jct_s", "queueing_delay_s", "service_gpu_s", "paused_gpu_s", "num_preemptions"):
            # Times of 2e9 s are stored to 2.4e-7 s.
            np.testing.assert_allclose(later[column], now[column], atol=1e-4, err_msg=f"seed {seed}, {column}")


def test_durations_from_nanoseconds_to_the_age_of_the_earth() -> None:
    jobs = [(1, 0, 1e-9), (1, 0, 1e17), (1, 1e9, 1e-9), (1, 1e9, 1.0)]
    # At 1e9 s, 1e-9 s is nothing; job 3 is done before the long job goes on.
    result = simulate(hand(jobs), ClusterSpec.parse("1x1"), Listed(SRTF), SimConfig(interval_s=0.0, rescale_s=0.0))
    assert spans(result) == [(0, 1e-9), (1e-9, 1e17 + 1.0), (1e9, 1e9), (1e9, 1e9 + 1)]


@pytest.mark.parametrize("count", [64, 250])
def test_equal_arrivals_all_run(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr("envs.simulate.FIRST_SLOTS", 16)
    durations = np.random.default_rng(0).permutation(count) + 1.0
    jobs = simulate(burst(count, durations), ClusterSpec.parse("1x1"), Listed(SRTF), EVENTS).jobs
    # The k-th shortest of durations 1, 2, ... waits for 1 + 2 + ... + k - 1 seconds.
    assert (jobs["queueing_delay_s"] == durations * (durations - 1) / 2).all()


@pytest.mark.slow
@pytest.mark.parametrize("order", [FIFO, SRTF], ids=["fifo", "srtf"])
def test_a_hundred_thousand_equal_arrivals(order: ListOrder) -> None:
    """Minutes of compilation: the record grows through every capacity of slots."""
    result = simulate(burst(100_000, 1.0), SIXTEEN, Listed(order), EVENTS)
    assert result.metrics()["num_completed"] == 100_000
    assert result.metrics()["makespan_s"] == 100_000 / 16


@pytest.mark.parametrize("order", [FIFO, SRTF], ids=["fifo", "srtf"])
def test_many_jobs_without_work_are_no_stall(order: ListOrder) -> None:
    """One after another on one GPU, all at one instant: a round of events each."""
    result = simulate(burst(200, 0.0), ClusterSpec.parse("1x1"), Listed(order), EVENTS)
    assert spans(result) == [(5.0, 5.0)] * 200


def test_many_jobs_without_work_in_the_backlog_are_no_stall() -> None:
    run = begin(burst(200, 0.0), ClusterSpec.parse("1x1"), FIFO, EVENTS, slots=4)
    run.states["backlog_allowed"] = 1
    assert finish_list(run), f"status {run.states[0].status}"


def test_turns_that_only_pause_are_a_stall() -> None:
    """Least attained service on an interval of 10 s with pauses of 30 s: nobody ever works."""
    run = begin(hand([(1, 0, 100), (1, 0, 100)]), ClusterSpec.parse("1x1"), las(), SimConfig(interval_s=10.0))
    assert run_list(run.states[0], run.tables, run.results, run.log, np.inf, 20_000) in (FINISHED, STOPPED)


def las() -> ListOrder:
    return ListOrder(Key.SERVICE, preemptive=True)


@pytest.mark.parametrize("order", [FIFO, SRTF, las()], ids=["fifo", "srtf", "las"])
@pytest.mark.parametrize("cluster", ["1x1", "1x128", "16x8", "2x60+1x8", "14x1+1x114"])
def test_full_capacities_of_nodes_and_slots(cluster: str, order: ListOrder) -> None:
    """64 jobs and 128 devices fill the smallest record; a node may have more than 8 devices."""
    spec = ClusterSpec.parse(cluster)
    config = SimConfig(interval_s=0.0, rescale_s=1.0)
    trace = mixed(64, (1, 2, 8, 60, spec.num_gpus))
    jobs = compare((trace, spec, order, config), seed=0)
    assert (jobs["status"] == "completed").sum() > 10


@pytest.mark.parametrize("placement", ["consolidated", "spread", "count"])
def test_eight_gpu_types(placement: Any) -> None:
    types = tuple("ABCDEFGH")
    spec = ClusterSpec.parse("+".join(f"2x2:{t}" for t in types))
    trace = mixed(60, (1, 2, 3, 4), ("", "", *types))
    compare((trace, spec, SRTF, SimConfig(interval_s=0.0, placement=placement)), seed=0)


@pytest.mark.parametrize("key", [Key.LEVEL, Key.GITTINS])
def test_every_level_can_be_used(key: Key) -> None:
    limits = tuple(2.0 * (i + 1) for i in range(MAX_LIMITS))
    values = tuple(float((i * 37) % 64) for i in range(MAX_LIMITS + 1)) if key == Key.GITTINS else ()
    order = ListOrder(key, preemptive=True, limits=limits, values=values)
    run = begin(mixed(20, (1, 2, 4)), ClusterSpec.parse("1x4"), order, SimConfig(interval_s=0.0, rescale_s=0.0))
    assert finish_list(run)
    assert run.states[0].level.max() == MAX_LIMITS
    compare((run.trace, run.cluster, order, run.config), seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["1024x2", "600x8:A+424x4:B"])
@pytest.mark.parametrize("placement", ["consolidated", "spread", "count"])
def test_a_thousand_nodes(cluster: str, placement: Any) -> None:
    trace = mixed(40, (1, 2, 8, 64, 300, 1000))
    for order in (ListOrder(Key.ARRIVAL, backfill=True), SRTF):
        compare((trace, ClusterSpec.parse(cluster), order, SimConfig(interval_s=0.0, placement=placement)), seed=0)


def test_capacities_are_the_smallest_that_hold() -> None:
    assert [bucket(size, SLOT_BUCKETS) for size in (1, 64, 65, 262_144)] == [64, 64, 256, 262_144]
    nodes = {"1x1": 16, "16x8": 16, "17x1": 64, "1x129": 64, "16x9": 64, "1x128": 16, "16384x8": NODE_BUCKETS[-1]}
    assert {text: node_bucket(ClusterSpec.parse(text)) for text in nodes} == nodes


@pytest.mark.parametrize("cluster", ["16385x1", "16384x9"])
def test_too_large_a_cluster_is_a_specification_error(cluster: str) -> None:
    with pytest.raises(SpecError, match=cluster):
        simulate(hand([(1, 0, 1)]), ClusterSpec.parse(cluster), Listed(FIFO), EVENTS)


def test_moves_between_pairs_of_nodes_are_always_seen() -> None:
    hashes = [int(node_mix(n)) for n in range(1024)]
    sums = [a + b for a, b in combinations_with_replacement(hashes, 2)]
    assert len(set(sums)) == len(sums)
