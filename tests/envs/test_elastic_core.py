"""Elastic jobs in the compiled core against schedules worked by hand: docs/design/002-elastic.md, sections 2-4."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from envs.applying import SimulatorError, apply_decision
from envs.dynamics import STOPPED
from envs.layout import STALLED
from envs.list_run import run_list
from envs.order import Key, ListOrder
from envs.scheduler import Decision
from envs.spec import SimConfig
from tests.envs.core_support import External, check_record, next_pass, spans
from tests.envs.elastic_core_support import ARRIVAL, AT_EVENTS, EVERY_10, SPEED, column, jobs, linear, open_run, play
from traces.profiles import TypeProfile

ONE = jobs((1, 0, None))
LONG = linear(1000)

# --- epochs and rates ---


def test_the_rate_changes_at_an_epochs_end_and_no_pass_is_due_there():
    # Batch 16: 1 iteration a second, in the worthless second epoch 1/2: 10 + 40 s, on two GPUs half of it.
    profile = linear(10, 30, worth=(True, False))
    for gpus, finish in ((1, 53), (2, 28)):
        result = play(jobs((gpus, 3, None), batch_size=[16]), "1x2", ARRIVAL, AT_EVENTS, profile)
        assert spans(result) == [(3, finish)]
        assert result.num_passes == 2
        assert result.num_events == 3


@pytest.mark.parametrize(
    ("batch", "row", "rate"),
    [
        (8, (4, 0), 4),
        (8, (8, 0), 8),
        (8, (1, 1), 1),  # 4 / 8 + 1/2
        (8, (2, 2), 1),  # 2 / 8 + 1/2 + 2 / 8
        (8, (3, 1), 1),  # only the number of nodes counts
        (16, (1, 0), 1),  # twice 1 s for a gain of 2
        (16, (1, 1), 4 / 3),  # 8 / 8 + 1/2
        (64, (2, 0), 2),  # two micro-batches of 16 on each GPU: 2 + 2 s for a gain of 8
        (64, (1, 1), 16 / 9),  # 2 + 5/2 s
    ],
)
def test_rate_of_a_placement(batch: int, row: tuple[int, ...], rate: float):
    result = play(jobs((1, 0, None), batch_size=[batch]), "2x8", {0: {0: row}}, EVERY_10, linear(96))
    assert column(result, "finish_s") == [pytest.approx(96 / rate, rel=1e-14)]


# --- pauses, settling and accounts ---


@pytest.mark.parametrize(
    ("cost", "pauses"),
    [
        ("constant", (16, 16, 16, 16, 16)),
        ("helios", (16, 16, 16, 16, 16)),
        ("restart", (32, 32, 32, 32, 32)),
        ("afe", (32, 8 + 24 * 2 / 4, 8, 32, 32)),
    ],
)
def test_pause_of_every_change(cost: Any, pauses: tuple[float, ...]):
    """Start on 2 GPUs, growth to 4, back to 2, a move, and a stop for 100 s: always one iteration a GPU and second."""
    moves = {0: {0: (2, 0)}, 100: {0: (4, 0)}, 200: {0: (2, 0)}, 300: {0: (0, 2)}, 400: {0: 0}, 500: {0: (0, 2)}}
    config = SimConfig(interval_s=100.0, rescale_cost=cost, rescale_s=16.0)
    result = play(jobs((1, 0, None)), "2x4", moves, config, linear(2048))
    start, grown, *others = pauses
    paused = 2 * start + 4 * grown + 2 * sum(others)
    finish = 500 + (2048 + paused - 1000) / 2  # 1000 GPU-s are held before 500
    assert column(result, "finish_s") == [finish]
    assert column(result, "paused_gpu_s") == [paused]
    assert column(result, "service_gpu_s") == [2048 + paused]
    assert column(result, "num_rescales") == [3]
    assert column(result, "num_preemptions") == [1]
    assert column(result, "queueing_delay_s") == [100]
    assert column(result, "jct_s") == [finish]


def test_a_pause_under_way_is_replaced():
    # One GPU from 0, paused until 32; two from 10, paused until 10 + 8 + 24 / 2 = 30. Then 50 / 2 s.
    config = SimConfig(interval_s=10.0, rescale_cost="afe")
    result = play(ONE, "1x2", {0: {0: 1}, 10: {0: 2}}, config, linear(50))
    assert column(result, "finish_s") == [55]
    assert column(result, "paused_gpu_s") == [1 * 10 + 2 * 20]
    assert column(result, "service_gpu_s") == [1 * 10 + 2 * 45]


def test_a_stop_inside_a_pause_counts_only_the_pause_held():
    config = SimConfig(interval_s=10.0, rescale_cost="restart")
    result = play(ONE, "1x2", {0: {0: 2}, 10: {0: 0}, 40: {0: 1}}, config, linear(50))
    assert column(result, "finish_s") == [40 + 32 + 50]
    assert column(result, "paused_gpu_s") == [2 * 10 + 32]
    assert column(result, "queueing_delay_s") == [30]


def test_each_model_has_its_own_delay():
    config = SimConfig(interval_s=10.0, rescale_cost="restart", rescale_s=999.0)
    slow, quick = linear(64), linear(64, name="quick", first_delay_s=3.5)
    result = play(jobs((1, 0, None), (1, 0, None), model=["m", "quick"]), "1x2", ARRIVAL, config, slow, quick)
    assert column(result, "finish_s") == [96, 67.5]


@pytest.mark.parametrize("cost", ["constant", "restart", "afe"])
def test_rigid_jobs_pause_as_before(cost: Any):
    moves = {0: {0: (1, 0), 1: (1, 0)}, 10: {0: (0, 1)}, 50: {0: 0}, 60: {0: (0, 1)}}
    config = SimConfig(interval_s=10.0, rescale_cost=cost, rescale_s=16.0)
    result = play(jobs((1, 0, 100.0), (1, 0, None)), "2x2", moves, config, LONG)
    assert column(result, "finish_s")[0] == 100 + 16 + 10 + 16
    assert column(result, "paused_gpu_s")[0] == 32


def test_the_same_nodes_and_count_are_no_change():
    config = SimConfig(interval_s=10.0, rescale_s=16.0)
    moves = {0: {0: (1, 1)}, 10: {0: (1, 1)}, 20: {0: 2}}
    result = play(ONE, "2x2", moves, config, linear(64))
    assert column(result, "finish_s") == [16 + 64]
    assert column(result, "num_rescales") == [0]


# --- checkpoints ---


@pytest.mark.parametrize(
    ("moves", "ends", "kept"),
    [
        # Progress from 32 on, saved every 20 s from there.
        ({100: {0: 0}}, (1000,), 60),
        ({50: {0: 0}}, (1000,), 0),
        # The epoch's end at 82 is saved, and then every 20 s from there.
        ({90: {0: 0}}, (50, 1000), 50),
        ({110: {0: 0}}, (50, 1000), 70),
        # Growth loses nothing; the 8 done are saved, and from 72 on 40 more every 20 s.
        ({40: {0: 2}, 60: {0: 0}}, (1000,), 8),
        ({40: {0: 2}, 90: {0: 0}}, (1000,), 8),
        ({40: {0: 2}, 100: {0: 0}}, (1000,), 48),
        ({40: {0: 2}, 60: {0: 1}, 100: {0: 0}}, (1000,), 8),
    ],
)
def test_preemption_goes_back_to_what_was_saved(moves: Any, ends: tuple[float, ...], kept: float):
    config = SimConfig(interval_s=10.0, rescale_s=32.0, checkpoint_s=20.0)
    result = play(ONE, "1x2", {0: {0: 1}, **moves, 200: {0: 1}}, config, linear(*ends))
    assert column(result, "finish_s") == [232 + 1000 - kept]


def test_without_checkpoints_nothing_is_lost():
    config = SimConfig(interval_s=10.0, rescale_s=32.0)
    result = play(ONE, "1x2", {0: {0: 1}, 100: {0: 0}, 200: {0: 1}}, config, LONG)
    assert column(result, "finish_s") == [232 + 1000 - 68]


def test_a_change_of_rate_books_the_saves_before_it():
    # With interference 1/2 iteration a second until 120: saved at 50 and 100 (50 done). Then 1: at 150 60 + 30.
    config = replace(EVERY_10, interference=0.5, checkpoint_s=50.0)
    trace = jobs((2, 0, None), (2, 0, 120.0))
    for stop, kept in ((190, 90), (150, 90), (140, 50)):
        moves = {0: {0: (1, 1), 1: (1, 1)}, stop: {0: 0}, 300: {0: (1, 0)}}
        assert column(play(trace, "2x2", moves, config, linear(200)), "finish_s") == [500 - kept, 120]


# --- decisions ---


def placed(cluster: str, config: SimConfig, held: Any, gpus: list[int], **columns: Any) -> list[list[int]]:
    """GPUs by node after a decision by counts; ``held`` (J, N) was there before."""
    trace = jobs(*[(1, 0, None)] * len(gpus), batch_size=[16] * len(gpus), **columns)
    types = {"aws", *(part.partition(":")[2] or "aws" for part in cluster.split("+"))}
    run, view = open_run(trace, cluster, config, {"m": linear(1000, types=" ".join(types))})
    run.states["skip_idle"] = 0
    assert next_pass(run, view)
    apply_decision(run, Decision(np.sum(held, axis=1), np.array(held)), "mine")
    assert next_pass(run, view)
    apply_decision(run, Decision(np.array(gpus)), "mine")
    check_record(run.states[0])
    return view.placement().tolist()


def test_counts_are_placed_fewest_gpus_first_on_the_fullest_node_that_has_enough():
    # Job 1 first, then 0 beside it, then 2.
    assert placed("2x4", EVERY_10, [[0, 0]] * 3, [3, 1, 4]) == [[3, 0], [1, 0], [0, 4]]
    # Equal counts by job_id; what no node has takes all of the emptiest one first.
    assert placed("3x4", EVERY_10, [[2, 0, 0], [0, 1, 0], [0, 0, 0]], [2, 1, 6]) == [[2, 0, 0], [0, 1, 0], [2, 0, 4]]
    # Only jobs whose count changes move.
    assert placed("2x4", EVERY_10, [[1, 1], [0, 2]], [2, 3]) == [[1, 1], [3, 0]]


def test_counts_under_the_other_rules():
    emptiest = replace(EVERY_10, placement="emptiest")
    held = [[0, 1, 2], [0, 0, 0]]
    assert placed("1x2+2x4", emptiest, held, [3, 4])[1] == [1, 3, 0]
    assert placed("1x2+2x4", EVERY_10, held, [3, 4])[1] == [1, 3, 0]
    assert placed("1x2+2x4", EVERY_10, held, [3, 2])[1] == [2, 0, 0]
    assert placed("1x2+2x4", emptiest, held, [3, 2])[1] == [0, 2, 0]
    assert placed("1x2+2x4", replace(EVERY_10, placement="spread"), held, [3, 4])[1] == [1, 2, 1]
    assert placed("1x2+2x4", replace(EVERY_10, placement="count"), held, [3, 4])[1] == [2, 2, 0]


def test_counts_go_to_the_first_type_with_enough():
    types = "1x2:rtx+1x4:aws"
    assert placed(types, EVERY_10, [[0, 0]] * 2, [3, 2]) == [[0, 3], [2, 0]]
    assert placed(types, EVERY_10, [[0, 0]] * 2, [2, 1], gpu_type=["aws", ""]) == [[0, 2], [1, 0]]
    # One on rtx, then two on aws: nothing has three left, although no count by itself is too many.
    with pytest.raises(SimulatorError, match=r"job 2 \(3 GPUs\): no free devices satisfy the placement rule"):
        placed(types, EVERY_10, [[0, 0]] * 3, [2, 1, 3])


def test_rigid_jobs_come_first_widest_first():
    trace = jobs((1, 0, 50.0), (2, 0, 50.0), (1, 0, None), (1, 0, None))
    run, view = open_run(trace, "1x3+1x4", EVERY_10, {"m": LONG})
    assert next_pass(run, view)
    apply_decision(run, Decision(np.array([1, 2, 3, 1])), "mine")
    # The pair on node 0, the single beside it; then one GPU on node 1, and the other three there too.
    assert view.placement().tolist() == [[1, 0], [2, 0], [0, 3], [0, 1]]


@pytest.mark.parametrize(
    ("gpus", "placement", "message"),
    [
        (
            [9, 0, 0],
            None,
            r"job 0 \(9 GPUs\): an elastic job gets at most the GPUs that its batch size and its max_gpus",
        ),
        ([0, 4, 0], None, r"job 1 \(4 GPUs\): an elastic job gets at most"),  # max_gpus 3
        ([-1, 0, 0], None, r"job 0 \(-1 GPUs\): an elastic job gets at most"),
        ([0, 0, 1], None, r"job 2 \(1 GPUs\): a rigid job gets all the GPUs it requests or none"),
        ([8, 3, 0], None, r"job 1 \(3 GPUs\): more GPUs are given out than the cluster has"),
        ([3, 0, 0], [[1, 1], [0, 0], [0, 0]], r"job 0 \(3 GPUs\): the placement's row does not add up"),
        ([5, 0, 0], [[5, 0], [0, 0], [0, 0]], r"job 0 \(5 GPUs\): the placement puts more on a node than it has"),
        ([3, 2, 0], [[3, 0], [2, 0], [0, 0]], r"job 1 \(2 GPUs\): the placement puts more on a node than it has"),
    ],
)
def test_broken_rules_are_named_and_change_nothing(gpus: list[int], placement: Any, message: str):
    trace = jobs((1, 0, None), (1, 0, None), (2, 0, 10.0), max_gpus=[0, 3, 0])
    run, view = open_run(trace, "2x4", EVERY_10, {"m": LONG})
    assert next_pass(run, view)
    assert view.max_gpus[:3].tolist() == [8, 3, 2]
    before = run.states.tobytes()
    with pytest.raises(SimulatorError, match=f"^scheduler mine at 0 s, {message}"):
        apply_decision(run, Decision(np.array(gpus), None if placement is None else np.array(placement)), "mine")
    assert run.states.tobytes() == before


def test_a_pinned_elastic_job_may_change_but_not_stop():
    trace = jobs((1, 0, None), preemptible=[False])
    assert column(play(trace, "1x4", {0: {0: 1}, 10: {0: 4}}, EVERY_10, linear(50)), "finish_s") == [20]
    with pytest.raises(SimulatorError, match=r"job 0 \(0 GPUs\): the job must not be preempted"):
        play(trace, "1x4", {0: {0: 1}, 10: {0: 0}}, EVERY_10, linear(50))


def test_types_without_leave_are_refused():
    trace = jobs((1, 0, None), gpu_type=["rtx"])
    model = linear(50, types="aws rtx")
    with pytest.raises(SimulatorError, match="the placement uses a GPU type that the job may not run on"):
        play(trace, "1x2:aws+1x2:rtx", {0: {0: (1, 0)}}, EVERY_10, model)
    free = jobs((1, 0, None))
    with pytest.raises(SimulatorError, match="the placement mixes GPU types"):
        play(free, "1x2:aws+1x2:rtx", {0: {0: (1, 1)}}, EVERY_10, model)
    assert column(play(trace, "1x2:aws+1x2:rtx", ARRIVAL, EVERY_10, model), "status") == ["completed"]


# --- list schedulers ---


def test_gangs_of_elastic_and_rigid_jobs_wait_for_each_other():
    # 64 at 2 a second; the gang of 3 waits for it, and backfilling starts the last job before it.
    trace = jobs((2, 0, None), (3, 1, 10.0), (1, 2, None))
    for backfill, starts in ((False, [0, 32, 42]), (True, [0, 66, 2])):
        result = play(trace, "1x3", ListOrder(Key.ARRIVAL, backfill=backfill), AT_EVENTS, linear(64))
        assert column(result, "first_start_s") == starts
        assert column(result, "finish_s") == [32, starts[1] + 10, starts[2] + 64]


def test_gangs_are_consolidated_strictly():
    # Two free GPUs on two nodes are not one node's.
    trace = jobs((3, 0, None), (3, 0, None), (2, 0, None), batch_size=[24, 24, 8])
    result = play(trace, "2x4", ARRIVAL, AT_EVENTS, linear(60))
    assert column(result, "first_start_s") == [0, 0, 20]


def test_estimates_are_run_times_at_the_request():
    # On one GPU the elastic job needs 60 s, of which at 10 s 50 are left: more than 45, less than 55.
    for rigid, first in ((45.0, 1), (55.0, 0)):
        trace = jobs((1, 0, None), (1, 10, rigid))
        result = play(trace, "1x1", ListOrder(Key.REMAINING, preemptive=True), AT_EVENTS, linear(60))
        ends = [60, 60 + rigid] if first == 0 else [60 + rigid, 10 + rigid]
        assert column(result, "finish_s") == ends
    # On four GPUs 15 s.
    trace = jobs((4, 0, None), (4, 0, 14.0), (4, 0, 16.0))
    result = play(trace, "1x4", ListOrder(Key.DURATION), AT_EVENTS, linear(60))
    assert column(result, "first_start_s") == [14, 0, 29]


def test_knowledge_decides_the_estimate(monkeypatch: pytest.MonkeyPatch):
    """Schedulers believe that m runs at half its speed: 120 s rather than 60."""
    slow = replace(SPEED, beta_c=0.25)
    believed = linear(60, types={"aws": TypeProfile("aws", 1, 16, slow)})
    monkeypatch.setattr("envs.workload.load_profiles", lambda: {"m": believed})
    trace = jobs((1, 0, None), (1, 0, 100.0))
    for knowledge, starts in (("profile", [100, 0]), ("oracle", [0, 60])):
        config = replace(AT_EVENTS, knowledge=knowledge)
        assert column(play(trace, "1x1", ListOrder(Key.DURATION), config, linear(60)), "first_start_s") == starts


def test_levels_count_the_gpus_held():
    # Two GPUs: 80 GPU-s at 40 s, when the rigid job at level 0 takes over; at 60 s the elastic one goes on.
    order = ListOrder(Key.LEVEL, preemptive=True, limits=(80.0,))
    result = play(jobs((2, 0, None), (2, 10, 20.0)), "1x2", order, AT_EVENTS, linear(100))
    assert column(result, "finish_s") == [70, 60]
    assert column(result, "num_preemptions") == [1, 0]


def test_queues_are_first_come_first_served_by_entry():
    """Job 0 enters level 1 at 20 s, job 1 at 30; job 2 is done at 35, and job 0 comes before job 1."""
    order = ListOrder(Key.QUEUE, preemptive=True, limits=(20.0,))
    trace = jobs((1, 0, None), (1, 5, None), (1, 25, 5.0))
    result = play(trace, "1x1", order, AT_EVENTS, linear(50))
    assert column(result, "first_start_s") == [0, 20, 40]
    assert column(result, "finish_s") == [75, 105, 45]


# --- what never ends ---


def test_a_scheduler_that_gives_nothing_stalls():
    with pytest.raises(SimulatorError, match=r"stalled at .* under mine: 1 jobs wait \(first: job 0\), 0 run"):
        play(ONE, "1x1", {}, EVERY_10, LONG)


def test_turns_shorter_than_the_pauses_stall():
    order = ListOrder(Key.SERVICE, preemptive=True, quantum_s=10.0)
    trace = jobs((1, 0, None), (1, 0, None))
    with pytest.raises(SimulatorError, match=r"stalled at .* under listed: 1 jobs wait .*, 1 run"):
        play(trace, "1x1", order, replace(AT_EVENTS, rescale_s=16.0), LONG)
    longer = replace(order, quantum_s=20.0)
    assert (
        column(play(trace, "1x1", longer, replace(AT_EVENTS, rescale_s=16.0), linear(40)), "status")
        == ["completed"] * 2
    )


def test_failures_before_the_first_checkpoint_stall():
    """001 section 1: 4,096 passes without an arrival, a completion or less work left; a failure is none of these."""
    config = SimConfig(interval_s=0.0, rescale_s=16.0, checkpoint_s=900.0, node_mtbf_s=1.0, node_mttr_s=1.0)
    run, _ = open_run(ONE, "1x1", config, {"m": LONG})
    stopped = run_list(run.states[0], run.tables, run.results, run.log, np.inf, 40_000)
    assert stopped == STOPPED, "still running after 40,000 passes"
    assert run.states[0].status == STALLED


def test_a_decision_of_nothing_is_no_stall_while_jobs_arrive():
    seen: list[float] = []

    def late(view: Any) -> Decision:
        seen.append(view.now)
        return Decision(np.where(view.now >= 40, np.minimum(1, view.max_gpus), 0) * (view.job_id >= 0))

    trace = jobs((1, 0, None), (1, 30, None))
    result = play(trace, "1x2", External(late), EVERY_10, linear(20))
    assert spans(result) == [(40, 60), (40, 60)]
    assert seen == [0, 10, 20, 30, 40, 50, 60][: len(seen)]
