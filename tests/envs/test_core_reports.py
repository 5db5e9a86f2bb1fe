"""Public reports of errors in other simulators, as tests of ours: each docstring names its report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from baselines.fifo import Fifo, FifoBackfill
from baselines.las import Las
from baselines.smallest import Smallest
from baselines.srtf import Srtf, SrtfGpu
from baselines.tiresias import Tiresias
from envs.order import Key, ListOrder
from envs.scheduler import ListScheduler
from envs.simulate import simulate
from envs.spec import ClusterSpec, SimConfig
from tests.envs.core_support import EVENTS, Listed, hand, spans
from tests.envs.test_published import jobs_of
from traces.readers import read_file
from traces.trace import make_trace

SRTF = Listed(ListOrder(Key.REMAINING, preemptive=True))
BACKFILL = Listed(ListOrder(Key.ARRIVAL, backfill=True))
ONE, EIGHT = ClusterSpec.parse("1x1"), ClusterSpec.parse("2x4")
SCHEDULERS = (Fifo(), FifoBackfill(), Smallest(), Srtf(), SrtfGpu(), Las(), Tiresias())
INTERVALS = (0.0, 1.0, 7.0, 60.0, 360.0, 5000.0)


@pytest.mark.parametrize("interval_s", INTERVALS)
def test_a_job_ends_when_it_ends(interval_s: float) -> None:
    """stanford-futuredata/gavel 36 (A2): the end of the round was taken for the end of the job."""
    result = simulate(hand([(1, 0, 370)]), ONE, BACKFILL, SimConfig(interval_s=interval_s), record=True)
    assert spans(result) == [(0, 370)]
    assert result.metrics()["makespan_s"] == 370
    assert result.intervals[["start_s", "end_s"]].to_numpy().tolist() == [[0, 370]]


def test_gpus_are_usable_right_after_the_end() -> None:
    """The same: 10 s of work are left at the round at 360; at 370 the GPU is free for whoever asks."""
    jobs = hand([(1, 0, 370), (1, 0, 370)])
    assert spans(simulate(jobs, ONE, BACKFILL, SimConfig(interval_s=360.0, on_event=True))) == [(0, 370), (370, 740)]
    rounds = simulate(jobs, ONE, BACKFILL, SimConfig(interval_s=360.0))
    assert spans(rounds) == [(0, 370), (720, 1090)]
    assert rounds.metrics()["utilisation_allocated"] == pytest.approx(740 / 1090)


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda s: s.name)
@pytest.mark.parametrize("interval_s", INTERVALS)
def test_late_first_arrival_and_idle_gaps(scheduler: ListScheduler, interval_s: float) -> None:
    """stanford-futuredata/gavel 238 (A3): a clock that had not begun, and rounds without jobs."""
    jobs = hand([(1, 100, 10), (8, 100, 20), (1, 1_000_000, 10), (2, 1_000_000.5, 10)])
    # Least attained service takes turns at every pass, for ever if that costs more than a turn brings.
    result = simulate(jobs, EIGHT, scheduler, SimConfig(interval_s=interval_s, rescale_s=0.0))
    assert (result.jobs["status"] == "completed").all()
    assert (result.jobs["first_start_s"] >= result.jobs["arrival_s"]).all()
    if interval_s > 0:
        assert (result.jobs["first_start_s"] % interval_s == 0).all()
    # Nothing happens in the million idle seconds between. LAS has a pass a minute (or interval) for jobs.
    assert result.num_passes < 100


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda s: s.name)
def test_preemptive_runs_end(shared: Path, scheduler: ListScheduler) -> None:
    """SymbioticLab/Tiresias 1 (A4): counters not reset by preemption, so that the cluster shrank.

    n32g4 has as many GPUs as 16x8; on 2x4 jobs are preempted. See test_core_conservation.py as well.
    """
    trace = jobs_of(pd.read_csv(shared / "data/traces/tiresias/60_job.csv"))
    for cluster in ("16x8", "2x4"):
        result = simulate(trace, ClusterSpec.parse(cluster), scheduler, SimConfig(interval_s=0.0, rescale_s=5.0))
        assert (result.jobs["status"] == "completed").all()


@pytest.mark.parametrize("config", [EVENTS, SimConfig(interval_s=60.0)], ids=["events", "interval"])
@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda s: s.name)
def test_a_workload_that_never_fits_ends_at_once(config: SimConfig, scheduler: ListScheduler) -> None:
    """oar-team/batsim 34 (A5): rejecting every job hung the simulation."""
    trace = make_trace("wide", {"arrival_s": [0.0, 5.0, 5.0, 1e6], "num_gpus": 9, "duration_s": 10.0})
    result = simulate(trace, EIGHT, scheduler, config)
    assert result.jobs["status"].tolist() == ["rejected"] * 4
    assert result.metrics()["num_rejected"] == 4
    assert result.jobs[["first_start_s", "finish_s", "jct_s"]].isna().all(axis=None)
    assert result.jobs["queueing_delay_s"].tolist() == [0.0] * 4


def test_shuffled_rows_change_nothing(tmp_path: Path) -> None:
    """cloudsimplus 149 (A7): rows out of order were events in the past."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "job_id": [f"j{i}" for i in range(50)],
            "arrival_s": np.cumsum(rng.exponential(20.0, 50)),
            "num_gpus": rng.choice([1, 2, 4], 50),
            "duration_s": rng.exponential(60.0, 50),
        }
    )
    results = []
    for name, table in (("sorted", rows), ("shuffled", rows.sample(frac=1, random_state=1))):
        assert table["arrival_s"].is_monotonic_increasing == (name == "sorted")
        path = tmp_path / f"{name}.csv"
        table.to_csv(path, index=False)
        results.append(simulate(read_file(path, None), EIGHT, SRTF, EVENTS).jobs)
    pd.testing.assert_frame_equal(results[0], results[1])


def test_a_share_needs_one_device_with_enough_left() -> None:
    """ray-project/ray 52133 (A8): two halves of different GPUs are not 0.8 of one."""
    jobs = [(1, 0, 100), (1, 0, 50), (1, 0, 100), (1, 60, 10)]
    trace = hand(jobs, share_milli=[500, 500, 500, 800])
    result = simulate(trace, ClusterSpec.parse("1x2"), BACKFILL, EVENTS, record=True)
    # Jobs 0 and 1 share GPU 0, job 2 is on GPU 1; from 50 to 100 each has 0.5 free.
    assert result.jobs["first_start_s"].tolist() == [0, 0, 0, 100]
    assert dict(zip(result.intervals["job"], result.intervals["gpu"], strict=True)) == {0: 0, 1: 0, 2: 1, 3: 0}


def test_five_shares_of_018_fit_a_device() -> None:
    """The same: 5 x 0.18 = 0.90; the sixth waits, and a whole job needs the device for itself."""
    trace = hand([(1, 0, 10)] * 6 + [(1, 0, 5)], share_milli=[180] * 6 + [1000])
    result = simulate(trace, ONE, BACKFILL, EVENTS)
    assert result.jobs["first_start_s"].tolist() == [0, 0, 0, 0, 0, 10, 20]
    five = simulate(hand([(1, 0, 10)] * 10, share_milli=180), ClusterSpec.parse("1x2"), BACKFILL, EVENTS)
    assert five.jobs["first_start_s"].tolist() == [0] * 10


@pytest.mark.parametrize("interval_s", [0.0, 10.0])
def test_a_pause_is_charged_once_a_preemption(interval_s: float) -> None:
    """Rivendile/Muri 2 (A10): the restart was charged in every interval. Ours: k preemptions, k pauses."""
    config = SimConfig(interval_s=interval_s, rescale_s=30.0)
    alone = simulate(hand([(1, 0, 1000)]), ONE, SRTF, config)
    assert (alone.jobs["jct_s"].item(), alone.jobs["paused_gpu_s"].item()) == (1000, 0)
    for k in range(1, 5):
        # Every 200 s a job of 20 s takes the GPU; job 0 then pauses for 30 s, and 150 s are left.
        result = simulate(hand([(1, 0, 1000)] + [(1, 200.0 * i, 20) for i in range(1, k + 1)]), ONE, SRTF, config)
        first = result.jobs.iloc[0]
        assert (first["num_preemptions"], first["num_rescales"]) == (k, 0)
        assert first["jct_s"] == 1000 + k * (20 + 30)
        assert first["paused_gpu_s"] == 30 * k
        assert first["queueing_delay_s"] == 20 * k
        assert first["service_gpu_s"] == 1000 + 30 * k
