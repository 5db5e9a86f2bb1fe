"""What slows or stops elastic jobs from outside: interference and failing nodes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from envs.applying import SimulatorError, apply_decision
from envs.dynamics import PASS_DUE
from envs.list_run import run_list
from envs.order import Key, ListOrder
from envs.rng import Purpose, uniform
from envs.scheduler import Decision
from envs.spec import SimConfig
from tests.envs.core_support import check_record, next_pass, spans
from tests.envs.elastic_core_support import ARRIVAL, EVERY_10, column, jobs, linear, open_run, play

LONG = linear(1000)

# --- interference ---

SLOWED = replace(EVERY_10, interference=0.5)
PAIR = jobs((2, 0, None), (2, 0, None), model=["short", "long"])
PAIR_MODELS = linear(30, name="short"), linear(100, name="long")


@pytest.mark.parametrize(
    ("cluster", "rows", "finish"),
    [
        ("2x2", ((1, 1), (1, 1)), [60, 130]),  # 1/2 iteration a second until job 0 is done
        ("3x2", ((1, 1, 0), (0, 1, 1)), [60, 130]),
        ("4x2", ((1, 1, 0, 0), (0, 0, 1, 1)), [30, 100]),
        ("2x3", ((1, 1), (0, 2)), [30, 50]),  # a job on one node disturbs nobody and is not disturbed
    ],
)
def test_jobs_of_several_nodes_slow_each_other(cluster: str, rows: Any, finish: list[float]):
    moves = {0: {0: rows[0], 1: rows[1]}}
    assert column(play(PAIR, cluster, moves, SLOWED, *PAIR_MODELS), "finish_s") == finish
    off = replace(SLOWED, interference=0.0)
    assert column(play(PAIR, cluster, moves, off, *PAIR_MODELS), "finish_s")[0] == 30


def test_a_job_between_two_is_free_when_both_are_gone():
    rows = {0: (1, 1, 0, 0), 1: (0, 1, 1, 0), 2: (0, 0, 1, 1)}
    models = [linear(work, name=f"m{i}") for i, work in enumerate((30, 100, 45))]
    trace = jobs(*[(2, 0, None)] * 3, model=["m0", "m1", "m2"])
    # 0.5 a second for job 1 until 90 (45 done), then 1.
    assert column(play(trace, "4x2", {0: rows}, SLOWED, *models), "finish_s") == [60, 145, 90]


def test_a_disturber_that_moves_leaves_the_other_without_a_pause():
    config = replace(SLOWED, rescale_s=16.0)
    moves = {0: {0: (1, 1), 1: (1, 1)}, 40: {0: (2, 0)}}
    result = play(PAIR, "2x3", moves, config, *PAIR_MODELS)
    # By 40 both have done 12; job 0 pauses to 56 and does 18 at 2 a second, job 1 88 at 1.
    assert column(result, "finish_s") == [65, 128]
    assert column(result, "num_rescales") == [1, 0]
    assert column(result, "paused_gpu_s") == [64, 32]


def test_rigid_jobs_disturb_and_pauses_are_kept():
    # Job 1 is rigid and ends at 15 while job 0 pauses until 26; from there on it is undisturbed.
    config = replace(SLOWED, rescale_s=16.0)
    moves = {0: {1: (1, 1)}, 10: {0: (1, 1)}}
    result = play(jobs((2, 0, None), (2, 0, 15.0)), "2x2", moves, config, linear(64))
    assert spans(result) == [(10, 90), (0, 15)]
    assert column(result, "paused_gpu_s") == [32, 0]


# --- node failures ---

FAILING = SimConfig(interval_s=0.0, rescale_s=0.0, node_mtbf_s=100.0, node_mttr_s=50.0)


def toggles(seed: int, node: int, count: int) -> list[float]:
    """Times at which a node of FAILING fails, is up again, fails ..."""
    draws = [uniform(seed, Purpose.FAILURE, node, i) for i in range(count)]
    return np.cumsum([-(50.0 if i % 2 else 100.0) * math.log(1 - u) for i, u in enumerate(draws)]).tolist()


@pytest.mark.parametrize("checkpoint", [0.0, 7.0])
def test_a_failure_preempts_even_the_pinned(checkpoint: float):
    fails, up, again = toggles(1, 0, 3)
    done = fails // checkpoint * checkpoint if checkpoint else fails
    work = done + 0.5 * (again - up)
    trace = jobs((1, 0, None), preemptible=[False])
    result = play(trace, "1x1", ARRIVAL, replace(FAILING, checkpoint_s=checkpoint), linear(work), seed=1)
    assert column(result, "finish_s") == pytest.approx([up + work - done])
    assert column(result, "queueing_delay_s") == pytest.approx([up - fails])
    assert column(result, "num_preemptions") == [1]


def test_a_failure_frees_the_other_nodes_and_ends_interference():
    """Node 1 of three fails first: job 0 on nodes 0 and 1 waits, job 1 on 0 and 2 is alone from then on."""
    seed = next(s for s in range(99) if toggles(s, 1, 1)[0] < min(toggles(s, 0, 1)[0], toggles(s, 2, 1)[0]) - 30)
    first = toggles(seed, 1, 1)[0]
    config = replace(FAILING, interference=0.5)
    run, view = open_run(jobs((2, 0, None), (2, 0, None)), "3x2", config, {"m": linear(1e6)}, seed=seed)
    assert next_pass(run, view)
    apply_decision(run, Decision(np.array([2, 2]), np.array([[1, 1, 0], [1, 0, 1]])), "mine")
    assert next_pass(run, view)
    check_record(run.states[0])
    assert view.now == pytest.approx(first)
    assert view.gpus.tolist() == [0, 2]
    assert view.node_free.tolist() == [1, 0, 1]
    assert run.states[0].done[:2] == pytest.approx([first / 2] * 2)
    assert run.states[0].rate[1] == 1


def test_down_nodes_can_neither_be_used_nor_counted():
    seed = next(s for s in range(99) if toggles(s, 0, 1)[0] < toggles(s, 1, 1)[0] - 30)
    trace = jobs((2, 0, None), (1, 0, None), batch_size=[8, 8])
    run, view = open_run(trace, "2x2", FAILING, {"m": LONG}, seed=seed)
    assert next_pass(run, view)
    apply_decision(run, Decision(np.array([0, 0])), "mine")
    assert next_pass(run, view)
    before = run.states.tobytes()
    with pytest.raises(SimulatorError, match=r"job 0 \(2 GPUs\): the placement puts .* on one that is down"):
        apply_decision(run, Decision(np.array([2, 0]), np.array([[1, 1], [0, 0]])), "mine")
    with pytest.raises(SimulatorError, match=r"more GPUs are given out than the cluster has \(on nodes that are up\)"):
        apply_decision(run, Decision(np.array([2, 1])), "mine")
    assert run.states.tobytes() == before
    apply_decision(run, Decision(np.array([2, 0])), "mine")
    assert view.placement()[0].tolist() == [0, 2]
    check_record(run.states[0])


def test_devices_are_conserved_through_failures():
    trace = jobs(*[(1 + i % 3, 40.0 * i, None if i % 2 else 90.0) for i in range(40)])
    config = replace(FAILING, checkpoint_s=25.0, interference=0.25)
    order = ListOrder(Key.SERVICE, preemptive=True)
    for seed in range(4):
        run, _ = open_run(trace, "1x4+2x2+1x1", config, {"m": linear(60, 150)}, order, seed=seed)
        downs = 0
        while run_list(run.states[0], run.tables, run.results, run.log, np.inf, 1) == PASS_DUE:
            check_record(run.states[0])
            downs += int(run.states[0].node_down.sum())
        assert run.states[0].num_completed == 40
        assert downs > 100
