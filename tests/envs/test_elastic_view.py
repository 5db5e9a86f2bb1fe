"""What schedulers see of elastic jobs: docs/design/002-elastic.md, section 7."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.applying import apply_decision
from envs.online_fit import SCRATCH_ROWS, fit, predict
from envs.scheduler import Decision
from envs.simulate import Run
from envs.spec import SimConfig
from envs.view import ClusterView
from tests.envs.core_support import next_pass
from tests.envs.elastic_core_support import EVERY_10, SPEED, jobs, linear, open_run
from traces.measured import read_profiles
from traces.profiles import ModelProfile, TypeProfile, load_profiles, optimise_batch

PAUSING = replace(EVERY_10, rescale_s=4.0)
ONLINE = replace(EVERY_10, knowledge="online")


def started(
    trace: Any, cluster: str, config: SimConfig, rows: Any, *models: ModelProfile, **options: Any
) -> tuple[Run, ClusterView]:
    """A run whose jobs all arrive at 0 and get GPUs by node ``rows`` (J, N) there, at the next pass."""
    run, view = open_run(trace, cluster, config, {m.model: m for m in models}, **options)
    run.states["skip_idle"] = 0
    step(run, view, rows)
    return run, view


def step(run: Run, view: ClusterView, rows: Any) -> None:
    """Decide at the pass that is next, and move to the one after."""
    if run.states[0].num_passes == 0:
        assert next_pass(run, view)
    apply_decision(run, Decision(np.sum(rows, axis=1), np.array(rows)), "mine")
    assert next_pass(run, view)


def test_columns_of_elastic_and_rigid_jobs():
    trace = jobs((1, 0, None), (2, 0, 50.0), (3, 0, None), max_gpus=[0, 0, 4])
    _, view = started(trace, "2x4", PAUSING, [[2, 0], [0, 2], [0, 0]], linear(40, 160))
    assert view.now == 10
    assert view.elastic.tolist() == [True, False, True]
    assert view.max_gpus.tolist() == [8, 2, 4]
    assert view.age.tolist() == [10, 10, 10]
    # 6 s at 2 iterations a second; the rigid job pauses at resumptions only.
    assert view.elastic_progress.tolist() == [12 / 160, 0, 0]
    assert view.elastic_remaining.tolist() == [148, 0, 160]
    np.testing.assert_array_equal(view.oracle_remaining, [np.nan, 40, np.nan])
    assert view.service.tolist() == [20, 20, 0]
    assert view.queueing_delay.tolist() == [0, 0, 10]
    # Estimates are run times at the request: 160 s on one GPU, on three at 3 iterations a second 160 / 3.
    assert view.estimate.tolist() == pytest.approx([160, 50, 160 / 3])
    assert view.remaining[0] == pytest.approx(148)
    assert view.profiled.tolist() == [8, 2, 4]


def test_restarts_and_rescales_are_counted():
    run, view = started(jobs((1, 0, None)), "2x4", PAUSING, [[1, 0]], linear(1000))
    seen = [(view.num_restarts[0], view.num_rescales[0])]
    for row in ([2, 0], [2, 0], [0, 2], [0, 0], [4, 0]):
        step(run, view, [row])
        seen.append((view.num_restarts[0], view.num_rescales[0]))
    # A stop is no restart, the resumption after it is one.
    assert seen == [(0, 0), (1, 1), (1, 1), (2, 2), (2, 2), (3, 2)]


def test_goodput_is_by_nodes_and_gpus():
    trace = jobs((1, 0, None), (1, 0, None), max_gpus=[0, 4], model=["m", "n"])
    models = linear(60, 200), linear(60, 200, name="n", worth=(True, False))
    run, view = started(trace, "2x8", EVERY_10, [[8, 0], [0, 1]], *models, tuned=True)
    goodput = view.goodput(view.slots)
    assert goodput.shape == (2, 2, 65)
    assert view.max_gpus.tolist() == [64, 4]
    assert view.goodput([1]).tolist() == goodput[1:].tolist()
    # Tuned, every GPU is worth its own on a node; with 16 samples on each of 2 that are apart 4 in 2 + 1/2 s.
    assert goodput[0, 0, [0, 1, 2, 4, 8]] == pytest.approx([0, 1, 2, 4, 8])
    assert goodput[0, 1, 2] == pytest.approx(max(4 / 2.5, 8 / 4.5))
    assert (goodput[1, :, 5:] == 0).all()
    assert (goodput[1, 0, 1:5] > 0).all()
    # In the second epoch of job 1 large batches are worth nothing more.
    while run.states[0].epoch[1] == 0:
        step(run, view, [[0, 0], [0, 1]])
    assert view.goodput([1])[0, 0, [1, 2, 4]] == pytest.approx([1, 2, 4])
    assert view.goodput([1])[0, 1, 2] == pytest.approx(1)


@pytest.mark.parametrize("knowledge", ["profile", "oracle"])
def test_goodput_is_what_is_known(monkeypatch: pytest.MonkeyPatch, knowledge: Any):
    """Schedulers believe that m runs at half its speed."""
    believed = linear(1000, types={"aws": TypeProfile("aws", 1, 16, replace(SPEED, beta_c=0.25))})
    monkeypatch.setattr("envs.workload.load_profiles", lambda: {"m": believed})
    config = replace(EVERY_10, knowledge=knowledge)
    run, view = started(jobs((1, 0, None)), "1x8", config, [[1]], linear(1000))
    assert run.states[0].rate[0] == 1
    factor = 2 if knowledge == "profile" else 1
    assert view.goodput([0])[0, 0, [1, 2, 4, 8]].tolist() == [1 / factor, 2 / factor, 4 / factor, 8 / factor]


def test_goodput_is_of_the_type_that_is_held():
    types = {"aws": TypeProfile("aws", 1, 16, SPEED), "rtx": TypeProfile("rtx", 1, 16, replace(SPEED, beta_c=0.0625))}
    trace = jobs((1, 0, None), (1, 0, None), (1, 0, None), gpu_type=["", "", "rtx"])
    _, view = started(trace, "1x2:aws+1x2:rtx", EVERY_10, [[0, 1], [0, 0], [0, 0]], linear(1000, types=types))
    assert view.goodput([0, 1, 2])[:, 0, 1].tolist() == [2, 1, 2]


def test_oracle_iterations_are_of_the_requested_batch():
    trace = jobs((1, 0, None), (2, 0, None), batch_size=[8, 16], max_gpus=[0, 3])
    run, view = started(trace, "2x4", EVERY_10, [[1, 0], [0, 2]], linear(10, 30, 70, worth=(True, False, True)))
    seconds = view.oracle_iteration_s([0, 1])
    assert seconds.shape == (2, 65)
    # Batch 8 on 1, 2, 4 GPUs of a node; on 5 and 8 of two: 2 / 8 + 1/2 + 3/8, 1/8 + 1/2 + 6/8.
    assert seconds[0, [1, 2, 4, 5, 8]].tolist() == [1, 0.5, 0.25, 1.125, 1.375]
    assert seconds[1, [1, 2, 3]].tolist() == [2, 1, 0.75]
    assert np.isinf(seconds[0, [0, 9, 64]]).all()
    assert np.isinf(seconds[1, [0, 4]]).all()
    # At 10 s: job 0 (whose batch is M0) has ended epoch 0; job 1 at 2 a second in 5 s, and 5 of epoch 1 at 1.
    assert view.oracle_iterations_left([0, 1]).tolist() == pytest.approx([60, 15 + 40 / 2])
    assert run.states[0].epoch[:2].tolist() == [1, 1]


@pytest.mark.parametrize("cluster", ["1x2", "3x4", "8x4"])
def test_what_is_not_measured_takes_forever(cluster: str, shared: Path):
    """Exactly infinite, no large number that a product of it would overflow from."""
    profiles = read_profiles(shared / "data" / "profiles" / "pollux_osdi21")
    nobody = [[0] * int(cluster.split("x")[0])]
    trace = jobs((1, 0, None), model=["cifar10"])
    run, view = started(trace, cluster, EVERY_10, nobody, *profiles.values(), tuned=True)
    seconds = view.oracle_iteration_s([0])[0]
    assert (seconds[1 : run.cluster.num_gpus + 1] < 1e4).all()
    assert (seconds[run.cluster.num_gpus + 1 :] == np.inf).all()


# --- online ---


def test_online_nothing_is_known_of_a_job_that_never_ran():
    run, view = open_run(jobs((2, 0, None)), "2x4", ONLINE, {"m": linear(1000)})
    assert next_pass(run, view)
    assert not view.goodput([0]).any()
    assert view.profiled.tolist() == [0]


def fitted(gpus: int, nodes: int, *points: tuple[float, ...]) -> float:
    """Speed of a batch of 8 by a fit to points (nodes, GPUs, local, seconds of a micro-step, of a step)."""
    params = np.zeros(7)
    fit(np.array(points), len(points), params, np.zeros((SCRATCH_ROWS + len(points), 7)))
    return 1 / float(predict(params, int(nodes > 1), gpus, 8 / gpus)[1])


def test_online_fits_see_what_ran():
    trace = jobs((2, 0, None), (1, 0, None))
    run, view = started(trace, "2x4", ONLINE, [[2, 0], [0, 0]], linear(100_000))
    two, four, one, apart = (1, 2, 4, 0.5, 0.5), (1, 4, 2, 0.25, 0.25), (1, 1, 8, 1, 1), (2, 2, 4, 0.5, 1)
    assert view.profiled.tolist() == [2, 0]
    assert view.goodput([0])[0, 0, [1, 4]] == pytest.approx([fitted(1, 1, two), fitted(4, 1, two)], rel=1e-12)
    assert not view.goodput([1]).any()
    step(run, view, [[4, 0], [0, 1]])
    step(run, view, [[1, 0], [0, 1]])
    step(run, view, [[2, 0], [0, 1]])
    assert view.profiled.tolist() == [4, 1]
    assert run.states[0].num_points[:2].tolist() == [3, 1]
    step(run, view, [[1, 1], [0, 1]])
    for nodes, gpus in ((1, 1), (1, 2), (1, 8), (2, 2), (2, 8)):
        want = fitted(gpus, nodes, two, four, one, apart)
        assert view.goodput([0])[0, nodes - 1, gpus] == pytest.approx(want, rel=1e-12)
    assert view.goodput([0])[0, 0, [1, 2, 4]] == pytest.approx([1, 2, 4], rel=0.05)
    assert (view.goodput([0])[0, :, 9:] == 0).all()


def test_online_a_pause_teaches_nothing():
    config = replace(ONLINE, rescale_s=10.0)
    run, view = started(jobs((1, 0, None)), "1x4", config, [[4]], linear(1000))
    assert view.now == 10
    assert view.profiled[0] == 0
    step(run, view, [[4]])
    assert view.profiled[0] == 4


def test_online_gradients_are_those_last_seen():
    """Batch 16 is worth 2 iterations, in the second epoch, from 10 s on, 1: seen at the pass after it."""
    config = replace(ONLINE, interval_s=8.0)
    trace = jobs((2, 0, None), batch_size=[16])
    run, view = started(trace, "1x4", config, [[2]], linear(20, 1000, worth=(True, False)))
    assert view.goodput([0])[0, 0, 2] == pytest.approx(2, rel=1e-3)
    step(run, view, [[2]])
    assert view.now == 16
    assert view.goodput([0])[0, 0, 2] == pytest.approx(1, rel=1e-3)


def test_online_jobs_tune_by_their_fits():
    """A new job runs max(M0, min_local n) samples; having run, it takes the batch that its fit makes best."""
    model = load_profiles()["bert"]
    trace = jobs((1, 0, None), model=["bert"])
    run, view = started(trace, "1x4", ONLINE, [[2]], model, tuned=True)
    s, t4 = run.states[0], model.types["aws"]
    grad, step_s = t4.throughput.times(False, 2, 6)
    assert s.points[0, 0].tolist() == pytest.approx([1, 2, 6, float(grad), float(step_s)])
    assert s.num_points[0] == 1
    for _ in range(6):
        step(run, view, [[2]])
    assert s.num_points[0] > 1
    sqr, var = (float(x) for x in model.gradients(0, 12.0))
    best = optimise_batch(t4, model, t4.throughput, sqr, var, 1, 2)[0]
    assert s.rate[0] == pytest.approx(best, rel=0.1)
    assert s.rate[0] > 1.05 * float(model.gain(0, 12.0)) / float(step_s)
