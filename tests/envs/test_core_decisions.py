"""What a decision may ask for: every rule that can be broken, and what placements and migrations do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envs.applying import SimulatorError, apply_decision
from envs.decide import DECISION_RULES
from envs.order import Key, ListOrder
from envs.scheduler import Decision
from envs.simulate import Run, RunResult, simulate
from envs.spec import ClusterSpec, SimConfig
from envs.view import ClusterView
from tests.envs.core_support import EVENTS, External, begin, check_record, hand, next_pass, spans

TWO_TYPES = ClusterSpec.parse("1x4:A+1x4:B")
RULE = {text: code for code, text in enumerate(DECISION_RULES)}


def rows(num_slots: int, num_nodes: int, places: dict[int, dict[int, int]]) -> Any:
    """(J, N) placement from {slot: {node: GPUs}}."""
    placement = np.zeros((num_slots, num_nodes), np.int16)
    for j, row in places.items():
        for n, count in row.items():
            placement[j, n] = count
    return placement


def mid_run() -> tuple[Run, ClusterView]:
    """At 10 s: a holds 2 GPUs of A, b (not preemptible) 2 of B, d half a GPU of A; c and e wait, slot 5 is free."""
    jobs = [(2, 0, 100), (2, 0, 100), (4, 0, 50), (1, 0, 100), (4, 10, 50), (1, 99, 1)]
    trace = hand(
        jobs,
        job_id=list("abcdef"),
        share_milli=[1000, 1000, 1000, 500, 1000, 1000],
        gpu_type=["", "", "B", "", "", ""],
        preemptible=[True, False, True, True, True, True],
    )
    run = begin(trace, TWO_TYPES, ListOrder(Key.ARRIVAL), EVENTS)
    view = ClusterView(run.states, run.cluster, run.config, run.workload)
    assert next_pass(run, view)
    apply_decision(run, Decision(np.array([2, 2, 0, 1, 0, 0]), rows(6, 2, {0: {0: 2}, 1: {1: 2}})), "mine")
    assert next_pass(run, view)
    assert view.placement().tolist() == [[2, 0], [0, 2], [0, 0], [1, 0], [0, 0], [0, 0]]
    return run, view


RIGID_RULES = DECISION_RULES[1:-1]  # the last is about elastic jobs: test_elastic.py
NO_JOB, NOT_REQUEST, PINNED, ROW_SUM, MIXED_TYPES, WRONG_TYPE, NODE_FULL, TOO_MANY, FRAGMENTED = RIGID_RULES
BROKEN: list[tuple[str, str, list[int], dict[int, dict[int, int]] | None]] = [
    (NO_JOB, "in slot 5", [2, 2, 0, 1, 0, 1], None),
    (NOT_REQUEST, "c", [2, 2, 3, 1, 0, 0], None),
    (NOT_REQUEST, "a", [-2, 2, 0, 1, 0, 0], None),
    (PINNED, "b", [2, 0, 0, 1, 0, 0], None),
    (TOO_MANY, "e", [2, 2, 0, 1, 4, 0], None),  # 8.5 of 8
    (FRAGMENTED, "c", [0, 2, 4, 0, 0, 0], None),  # b keeps two of the four GPUs of B; a and d are stopped first
    (FRAGMENTED, "e", [2, 2, 0, 0, 4, 0], None),  # two free on either node
    (ROW_SUM, "c", [0, 2, 4, 1, 0, 0], {1: {1: 2}, 2: {1: 3}}),
    (ROW_SUM, "a", [2, 2, 0, 1, 0, 0], {1: {1: 2}}),  # who stays has to be named too
    (MIXED_TYPES, "e", [0, 2, 0, 1, 4, 0], {1: {1: 2}, 4: {0: 2, 1: 2}}),
    (WRONG_TYPE, "c", [0, 2, 4, 0, 0, 0], {1: {1: 2}, 2: {0: 4}}),
    (NODE_FULL, "e", [0, 2, 0, 1, 4, 0], {1: {1: 2}, 4: {0: 5}}),
    (NODE_FULL, "a", [2, 2, 0, 1, 0, 0], {0: {0: -2}, 1: {1: 2}}),
    (NODE_FULL, "e", [0, 2, 0, 1, 4, 0], {1: {1: 2}, 4: {1: 4}}),
    (FRAGMENTED, "e", [0, 2, 0, 1, 4, 0], {1: {1: 2}, 4: {0: 4}}),  # d holds half of one of the four
]


@pytest.mark.parametrize(("rule", "job", "gpus", "places"), BROKEN)
def test_a_broken_rule_is_named_and_nothing_changes(rule: str, job: str, gpus: list[int], places: Any) -> None:
    run, _ = mid_run()
    before = run.states.tobytes(), run.results.tobytes(), int(run.states[0].log_len)
    placement = None if places is None else rows(6, 2, places)
    with pytest.raises(SimulatorError) as caught:
        apply_decision(run, Decision(np.array(gpus), placement), "mine")
    count = gpus[5 if job == "in slot 5" else "abcdef".index(job)]
    assert str(caught.value) == f"scheduler mine at 10 s, job {job} ({count} GPUs): {rule}"
    assert (run.states.tobytes(), run.results.tobytes(), int(run.states[0].log_len)) == before


def test_every_rule_is_broken_above() -> None:
    assert {RULE[rule] for rule, *_ in BROKEN} == {RULE[rule] for rule in RIGID_RULES}


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        (Decision(np.zeros(3, np.int64)), r"scheduler mine: gpus has shape \(3,\), expected \(6,\)"),
        (
            Decision(np.array([2, 2, 0, 1, 0, 0]), np.zeros((2, 6), np.int16)),
            r"scheduler mine: placement has shape \(2, 6\), expected \(6, 2\)",
        ),
    ],
)
def test_wrong_shapes(decision: Decision, message: str) -> None:
    run, _ = mid_run()
    before = run.states.tobytes()
    with pytest.raises(SimulatorError, match=message):
        apply_decision(run, decision, "mine")
    assert run.states.tobytes() == before


@pytest.mark.parametrize(
    "decision",
    [None, Decision(None), Decision(np.array([2.9, 2, 0, 1, 0, 0]))],  # type: ignore[arg-type]
    ids=["none", "no-gpus", "fractions"],
)
def test_an_answer_that_is_no_decision(decision: Any) -> None:
    run, _ = mid_run()
    with pytest.raises(SimulatorError, match="scheduler mine"):
        apply_decision(run, decision, "mine")


def test_a_valid_decision_is_carried_out() -> None:
    run, view = mid_run()
    gpus = np.array([2, 2, 0, 0, 0, 0])
    apply_decision(run, Decision(gpus, rows(6, 2, {0: {1: 2}, 1: {1: 2}})), "mine")
    assert view.placement().tolist() == [[0, 2], [0, 2], [0, 0], [0, 0], [0, 0], [0, 0]]
    check_record(run.states[0])
    assert next_pass(run, view)
    assert view.now == 99.0


def replay(jobs: list[tuple[int, float, float]], cluster: str, script: dict[float, Any], **columns: Any) -> RunResult:
    """Follow a script {time: {slot: {node: GPUs}}}; between its times everybody stays."""

    def decide(view: ClusterView) -> Decision:
        if view.now in script:
            placement = rows(view.num_slots, len(view.node_gpus), script[view.now])
        else:
            placement = view.placement()
        return Decision(placement.sum(axis=1), placement)

    config = SimConfig(interval_s=10.0, rescale_s=30.0, **columns)
    return simulate(hand(jobs), ClusterSpec.parse(cluster), External(decide), config, record=True)


def test_placements_are_honoured() -> None:
    result = replay([(3, 0, 100), (2, 0, 40)], "3x4", {0.0: {0: {0: 1, 2: 2}, 1: {1: 2}}})
    held = result.intervals.groupby(["job", "node"])["gpu"].apply(sorted)
    assert held.to_dict() == {(0, 0): [0], (0, 2): [8, 9], (1, 1): [4, 5]}
    assert spans(result) == [(0, 100), (0, 40)]


def test_a_migration_pauses_once() -> None:
    # Done 20 s at 20; pause until 50; 80 s left. Ten more passes at which it stays cost nothing.
    result = replay([(2, 0, 100)], "2x2", {0.0: {0: {0: 2}}, 20.0: {0: {1: 2}}})
    assert spans(result) == [(0, 130)]
    assert result.jobs[["num_rescales", "num_preemptions"]].to_numpy().tolist() == [[1, 0]]
    assert result.jobs[["paused_gpu_s", "service_gpu_s"]].to_numpy().tolist() == [[60, 260]]
    # A second move during the pause begins a new one: 20-30 and 30-60.
    result = replay([(2, 0, 100)], "2x2", {0.0: {0: {0: 2}}, 20.0: {0: {1: 2}}, 30.0: {0: {0: 1, 1: 1}}})
    assert spans(result) == [(0, 140)]
    assert result.jobs["num_rescales"].item() == 2
    assert result.jobs["paused_gpu_s"].item() == 80


def test_two_jobs_swap_nodes_in_one_decision() -> None:
    script = {0.0: {0: {0: 2}, 1: {1: 2}}, 20.0: {0: {1: 2}, 1: {0: 2}}}
    result = replay([(2, 0, 100), (2, 0, 50)], "2x2", script)
    assert spans(result) == [(0, 130), (0, 80)]
    assert result.jobs["num_rescales"].tolist() == [1, 1]


def test_the_same_nodes_are_no_migration() -> None:
    # Job 1 leaves at 15, so that other devices of node 0 are free; and it is the counts a node that matter.
    result = replay([(2, 0, 100), (1, 0, 15)], "2x3", {0.0: {0: {0: 1, 1: 1}, 1: {0: 1}}, 20.0: {0: {1: 1, 0: 1}}})
    assert spans(result) == [(0, 100), (0, 15)]
    assert result.jobs["num_rescales"].tolist() == [0, 0]
    # 2 + 1 is not 1 + 2.
    result = replay([(3, 0, 100)], "2x3", {0.0: {0: {0: 2, 1: 1}}, 20.0: {0: {0: 1, 1: 2}}})
    assert spans(result) == [(0, 130)]


def test_stopping_and_resuming_is_a_preemption() -> None:
    result = replay([(2, 0, 100)], "2x2", {0.0: {0: {0: 2}}, 20.0: {}, 30.0: {0: {0: 2}}})
    assert spans(result) == [(0, 140)]  # 20 done, 10 waiting, 30 paused, 80 left
    assert result.jobs[["num_rescales", "num_preemptions"]].to_numpy().tolist() == [[0, 1]]
    assert result.jobs["queueing_delay_s"].item() == 10


@pytest.mark.parametrize("preempt", [False, True])
def test_packing_never_takes_gpus_from_a_pinned_job(preempt: bool) -> None:
    def decide(view: ClusterView) -> Decision:
        return view.pack(view.slots[::-1], preempt=preempt)  # newest first

    trace = hand([(2, 0, 100), (2, 0, 100), (2, 10, 50)], preemptible=[False, True, True])
    result = simulate(trace, ClusterSpec.parse("1x4"), External(decide), EVENTS)
    assert result.jobs["num_preemptions"].tolist() == [0, int(preempt), 0]
    assert result.jobs["first_start_s"].tolist() == [0, 0, 10 if preempt else 100]


def test_packing_with_preemption_is_consolidated_whatever_the_setting() -> None:
    # A pinned job on either node; job 2 would have to span both.
    def decide(view: ClusterView) -> Decision:
        if view.now == 0:
            return Decision(np.array([1, 1, 0]), rows(3, 2, {0: {0: 1}, 1: {1: 1}}))
        return view.pack(view.slots, preempt=True)

    config = SimConfig(interval_s=0.0, placement="count")
    trace = hand([(1, 0, 100), (1, 0, 100), (2, 10, 50)], preemptible=[False, False, True])
    result = simulate(trace, ClusterSpec.parse("2x2"), External(decide), config)
    assert result.jobs["first_start_s"].tolist() == [0, 0, 100]
