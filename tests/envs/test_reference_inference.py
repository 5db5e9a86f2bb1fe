"""Inference beside training in the reference simulator, worked by hand (docs/design/003-inference.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.order import Key, ListOrder
from envs.reference import Run, simulate_reference
from envs.reference_decisions import Seen
from envs.reference_devices import Pod
from envs.reference_jobs import WHOLE
from envs.spec import ClusterSpec
from tests.envs.elastic_support import EVENTS, FREE, NAN, counts, script
from tests.envs.random_inference import InferenceCase, chosen_case, listed_case, rigid_case
from tests.envs.watched_reference import FIFO, Watched, jobs, play, rows, tasks
from traces.trace import make_trace

# Pods


def test_cold_start_and_warm_hits() -> None:
    # Cold: 3 + 4 + 5 = 12, protected until 42, hit at 15 and served by 20. Again 30 + 15 s: asleep from 65, hit at 80.
    run = play(rows([], [("s", 3, 5), ("s", 15, 5), ("s", 80, 2)]), "1x1")
    assert tasks(run, "first_start_s", "finish_s", "warm") == [(3, 12, 0), (15, 20, 1), (80, 82, 1)]
    assert tasks(run, "service_gpu_s", "paused_gpu_s", "queueing_delay_s") == [(9, 4, 0), (5, 0, 0), (2, 0, 0)]
    assert run.inference.pod_gpu_s == {"start": 4, "running": 12, "protect": 3 + 45, "sleep": 15}


def test_start_up_of_the_model() -> None:
    columns = {"kind": ["inference"] * 2, "arrival_s": [0, 0], "num_gpus": [1, 1], "duration_s": [1, 1]}
    trace = make_trace("hand", {**columns, "service": ["a", "b"], "model": ["bert", "ncf"]})
    got = simulate_reference(trace, ClusterSpec.parse("1x2"), FIFO, EVENTS)
    assert got["paused_gpu_s"] == [8, 4]
    assert (got["status"], got["warm"], got["num_preemptions"]) == (["completed"] * 2, [0, 0], [0, 0])


@pytest.mark.parametrize(
    ("times", "hits", "protected"), [(1, 0, 30), (1, 2, 60), (1, 6, 120), (1, 7, 120), (0.5, 2, 30)]
)
def test_hits_prolong_the_protection(times: float, hits: int, protected: float) -> None:
    # The last task ends at 5 + hits; then training has to wait for the pod to fall asleep.
    trace = rows([(1, 1, 10.0)], [("s", i and 4 + i, 1) for i in range(hits + 1)])
    run = play(trace, "1x1", config=replace(EVENTS, protect_times=times))
    assert tasks(run, "warm") == [0] + [1] * hits
    assert jobs(run, "first_start_s") == [5 + hits + protected]


def test_a_hit_on_a_sleeping_pod_starts_counting_again() -> None:
    # Asleep at 5 + 30 = 35 s; served 36-37, protected 30 s; hit at 40 once more: 41 + 45.
    for last, start in (([], 67), ([("s", 40, 1)], 86)):
        run = play(rows([(1, 36, 10.0)], [("s", 0, 1), ("s", 36, 1), *last]), "1x1")
        assert jobs(run, "first_start_s") == [start]


def test_a_hit_at_the_instant_of_falling_asleep_finds_it_asleep() -> None:
    run = play(rows([(1, 5, 1.0)], [("s", 0, 1), ("s", 35, 1)]), "1x1")
    assert tasks(run, "finish_s", "warm") == [(5, 0), (36, 1)]
    assert jobs(run, "first_start_s") == [66]


def test_without_aiss_pods_end_with_their_task() -> None:
    trace = rows([(1, 1, 2.0)], [("s", 0, 1), ("s", 1, 1), ("s", 8, 1)])
    run = play(trace, "1x1", config=replace(EVENTS, aiss=False))
    # The second task follows the first, 5-10, and the third, 10-15.
    assert tasks(run, "first_start_s", "finish_s", "warm") == [(0, 5, 0), (5, 10, 0), (10, 15, 0)]
    assert jobs(run, "first_start_s", "finish_s") == [(15, 17)]
    # Not protected, a pod sleeps at once: the second task hits it, then the job ends it, and the third starts cold.
    run = play(trace, "1x1", config=replace(EVENTS, protect_times=0.0))
    assert tasks(run, "first_start_s", "finish_s", "warm") == [(0, 5, 0), (5, 6, 1), (8, 13, 0)]
    assert jobs(run, "first_start_s", "finish_s") == [(6, 8)]


@pytest.mark.parametrize(
    ("pods", "hit"),
    [
        ({0: ("s", 5, "protect", 0), 1: ("s", 4, "sleep", 0)}, 1),  # born first
        ({0: ("s", 5, "protect", 1), 1: ("s", 4, "sleep", 0), 2: ("s", 3, "protect", 0)}, 0),  # most hits
        ({0: ("r", 1, "sleep", 0), 1: ("s", 2, "running", 3), 2: ("s", 3, "protect", 0)}, 2),
        ({0: ("r", 1, "sleep", 0), 1: ("s", 2, "start", 3)}, None),
    ],
)
def test_which_pod_is_hit(pods: dict[int, Any], hit: int | None) -> None:
    run = Run(rows([], [("s", 7, 2)]), ClusterSpec.parse("1x3"), FIFO, EVENTS, 0)
    run.devices.pods = {d: Pod(of, born, -1, 99, state, hits) for d, (of, born, state, hits) in pods.items()}
    run.inference.admit(7)
    run.inference.hit(7)
    assert [d for d, pod in run.devices.pods.items() if pod.until == 9] == ([] if hit is None else [hit])
    if hit is not None:
        pod = run.devices.pods[hit]
        assert (pod.state, pod.task, pod.hits) == ("running", 0, pods[hit][3] + (pods[hit][2] == "protect"))


# Events


def test_a_task_is_served_at_the_next_event_not_at_a_pass() -> None:
    trace = rows([(1, 0, 10.5)], [("s", 2, 1)], preemptible=[False])
    run = play(trace, "1x1", config=replace(FREE, interval_s=60.0))
    assert tasks(run, "first_start_s", "queueing_delay_s", "finish_s") == [(10.5, 8.5, 15.5)]


def test_tasks_come_first_and_training_waits_for_sleep() -> None:
    # 4 + 6 + 30: asleep at 40.
    trace = rows([(1, 0, 10.0)], [("s", 0, 6)])
    assert jobs(play(trace, "1x1"), "first_start_s", "queueing_delay_s") == [(40, 40)]
    assert jobs(play(trace, "1x1", config=replace(FREE, interval_s=60.0)), "first_start_s") == [60]


def test_passes_are_for_training() -> None:
    # Job 0 at 0, gone at 100. Arrivals, start-ups, completions and hits of tasks are no reasons for a pass; sleep is.
    run = play(rows([(1, 0, 100.0)], [("s", 2, 6), ("s", 20, 1)]), "1x2")
    assert run.passes_at == [0, 21 + 45, 100]
    # The end of a pod is one, and so is a loss of training.
    run = play(rows([(1, 0, 100.0)], [("s", 2, 6)]), "1x2", config=replace(EVENTS, aiss=False))
    assert run.passes_at == [0, 12, 100]
    run = play(rows([(1, 0, 10.0)], [("s", 2, 6)]), "1x1")
    assert run.passes_at == [0, 2, 42, 50]
    # At 50 task 2 ends the pod of task 1, from which training has nothing.
    run = play(rows([(1, 0, 100.0)], [("s", 2, 6), ("r", 50, 1)]), "1x2")
    assert run.passes_at == [0, 42, 85, 100]


def test_tasks_of_all_services_in_order_of_arrival() -> None:
    # Without warm pods the device goes from one task to the next.
    waiting = [("s", 0, 1), ("r", 1, 1), ("s", 2, 1), ("r", 3, 1)]
    run = play(rows([], waiting), "1x1", config=replace(EVENTS, aiss=False))
    assert tasks(run, "first_start_s") == [0, 5, 10, 15]
    # The pod of s serves the third first; r's first task has to wait for it to sleep: 6 + 45.
    run = play(rows([], waiting), "1x1")
    assert tasks(run, "first_start_s", "warm") == [(0, 0), (51, 0), (5, 1), (56, 1)]


# Reclaim: ats


def test_ats_takes_empty_devices_where_training_has_least() -> None:
    place = script(t0={0: (1, 1, 0), 1: (1, 0, 0)})
    burst = [("s", 5, 1), ("t", 5, 1), ("u", 5, 1), ("v", 5, 1)]
    run = play(rows([(2, 0, 50.0), (1, 0, 50.0)], burst), "1x4+2x2", place, FREE)
    # Training has 2, 1 and 0 GPUs there.
    assert run.pods_at[5] == {6: "s", 7: "t", 5: "u", 2: "v"}


def test_ats_takes_sleeping_pods_before_training() -> None:
    # Pods 0 and 1 of s and t on node 0 sleep, pod 2 (u) on node 1 too; job 0 holds the rest of node 1.
    trace = rows([(1, 0, 500.0)], [("s", 0, 1), ("t", 0, 1), ("u", 0, 9), ("v", 60, 1), ("w", 60, 1), ("x", 60, 1)])
    run = play(trace, "2x2", script(t0={0: (0, 1)}), FREE)
    assert run.pods_at[0] == {0: "s", 1: "t", 2: "u"}
    assert run.pods_at[60] == {0: "v", 1: "w", 2: "x"}
    assert jobs(run, "finish_s") == [500]
    assert tasks(run, "warm") == [0] * 6


def test_ats_counts_training_once() -> None:
    """Job 0 has all of node 0, and one GPU of node 1, job 1 the other. Once job 0 is gone, node 1 still comes first."""
    trace = rows([(4, 0, 50.0), (1, 0, 50.0)], [("s", 5, 1), ("t", 5, 1)], preemptible=[True, False])
    run = play(trace, "1x3+1x2", script(t0={0: (3, 1), 1: (0, 1)}), FREE, until=5)
    assert run.pods_at[5] == {0: "s", 3: "t"}


def test_ats_takes_from_whom_it_costs_least() -> None:
    # Fair share ceil(3 / 2) = 2: the elastic job loses 1 - 1/2, the rigid one 1.
    trace = rows([(1, 0, None), (1, 0, 50.0)], [("s", 5, 1), ("t", 6, 1)])
    run = play(trace, "1x3", counts(t0={0: 2, 1: 1}), FREE, until=6)
    assert run.jobs_at[5] == {0: [1], 1: [0]}  # rigid jobs are placed first
    # Then ceil(2 / 2) = 1: both lose 1, and the rigid one has 6 GPU-s, the other 5 * 2 + 1.
    assert run.jobs_at[6] == {0: [1]}
    assert jobs(run, "num_rescales", "num_preemptions") == [(1, 0), (0, 1)]


def test_ats_takes_the_device_that_unites_a_job() -> None:
    # 3 GPUs on two nodes are worth 9/8, two on one 2, two on two 1.
    run = play(rows([(1, 0, None)], [("s", 5, 1)]), "2x2", script(t0={0: (2, 1)}), FREE)
    assert run.pods_at[5] == {3: "s"}  # there is an empty one
    run = play(rows([(1, 0, None)], [("s", 5, 1)]), "1x2+1x1", script(t0={0: (2, 1)}), FREE)
    assert (run.pods_at[5], run.jobs_at[5]) == ({2: "s"}, {0: [0, 1]})
    assert jobs(run, "finish_s") == [pytest.approx(5 + (1000 - 5 * 9 / 8) / 2)]


def test_ats_breaks_ties_by_service_job_and_node() -> None:
    # All rigid: equal loss. Job 1 arrives later; of jobs 0 and 1 with equal service job 0; of a job's nodes the lowest.
    place = script(t0={0: (1, 0, 1), 1: (0, 1, 1)}, t10={0: (1, 0, 1), 1: (0, 1, 1), 2: (0, 1, 0)})
    trace = rows([(2, 0, 900.0), (2, 0, 900.0), (1, 10, 900.0)], [("s", 15, 1), ("t", 16, 1), ("u", 17, 1)])
    run = play(trace, "1x1+2x2", place, FREE, until=17)
    assert run.jobs_at[15] == {0: [0, 3], 1: [1, 4]}
    assert run.pods_at[15] == {2: "s"}
    assert (run.jobs_at[16], run.pods_at[16]) == ({1: [1, 4]}, {2: "s", 0: "t"})
    assert run.pods_at[17] == {2: "s", 0: "t", 3: "u"}


def test_an_elastic_job_may_lose_everything() -> None:
    # 15 done at 5 s; resumed when the pods sleep, from 40 on.
    trace = rows([(1, 0, None)], [("s", 5, 1), ("t", 5, 1), ("u", 5, 1)])
    run = play(trace, "1x3", counts(t0={0: 3}, t40={0: 3}), FREE)
    assert run.pods_at[5] == {2: "s", 1: "t", 0: "u"}
    assert jobs(run, "num_preemptions", "num_rescales", "queueing_delay_s") == [(1, 0, 35)]
    assert jobs(run, "finish_s") == [pytest.approx(40 + 985 / 3)]


def test_one_serving_is_one_rescale() -> None:
    trace = rows([(1, 0, None)], [("s", 5, 1), ("t", 5, 1)])
    run = play(trace, "1x4", counts(t0={0: 4}), replace(FREE, rescale_cost="afe"))
    # First delay 30; at 5, still in it, a pause of 6 s on 2 GPUs.
    assert jobs(run, "num_rescales", "paused_gpu_s", "finish_s") == [(1, 5 * 4 + 6 * 2, 11 + 500)]


def test_what_may_not_be_taken() -> None:
    trace = rows(
        [(1, 0, 20.0), (1, 0, 30.0), (1, 0, 40.0)],
        [("s", 5, 1)],
        preemptible=[False, True, True],
        share_milli=[1000, 500, 500],
    )
    run = play(trace, "1x2")
    assert tasks(run, "first_start_s") == [20]
    assert jobs(run, "finish_s") == [20, 30, 40]


# Reclaim: lyra and static

LYRA, STATIC = replace(FREE, reclaim="lyra"), replace(FREE, reclaim="static")


def test_lyra_reclaims_whole_nodes_and_gives_them_back() -> None:
    # Job 0 holds 2 + 1 GPUs, job 1 both of node 3. s is served on node 2, where the job loses its only device there
    # although another one was empty, and nothing may start there until 5 + 4 + 1 + 30 = 40.
    moves = script(t0={0: (2, 0, 1, 0), 1: (0, 0, 0, 2)}, t40={0: (2, 0, 2, 0), 1: (0, 0, 0, 2)})
    run = play(rows([(1, 0, None), (2, 0, 500.0)], [("s", 5, 1), ("s", 6, 1)]), "4x2", moves, LYRA)
    assert (run.pods_at[5], run.jobs_at[5]) == ({5: "s"}, {0: [0, 1], 1: [6, 7]})
    assert run.pods_at[6] == {5: "s", 4: "s"}  # the other device of the reserved node
    assert jobs(run, "num_preemptions") == [0, 0]
    run = play(rows([(1, 0, None), (2, 0, 500.0)], [("s", 5, 1)]), "4x2", moves, LYRA)
    assert jobs(run, "num_rescales", "finish_s")[0] == (2, 40 + 1000 - 5 * 9 / 8 - 35 * 2)


def test_lyra_evicts_from_the_node_with_least_training() -> None:
    # Nodes 2 (3 GPUs) and 3 (2 GPUs) are full, and nodes 0 and 1 are no inference nodes.
    place = script(t0={0: (0, 0, 3, 0), 1: (1, 0, 0, 1), 2: (0, 0, 0, 1)})
    training = [(3, 0, 500.0), (2, 0, 500.0), (1, 0, 500.0)]
    run = play(rows(training, [("s", 5, 1), ("t", 6, 1), ("u", 7, 1)]), "2x2+1x3+1x2", place, LYRA, until=7)
    assert (run.pods_at[5], run.jobs_at[5]) == ({7: "s"}, {0: [4, 5, 6]})
    assert run.pods_at[6] == {7: "s", 8: "t"}
    assert (run.pods_at[7], run.jobs_at[7]) == ({7: "s", 8: "t", 4: "u"}, {})
    assert jobs(run, "num_preemptions") == [1, 1, 1]


def test_lyra_leaves_pinned_and_shared_nodes_alone() -> None:
    # Job 0 (pinned) is on node 1 beside an empty device: no place for a task before it ends.
    trace = rows([(1, 0, 20.0), (1, 0, 500.0)], [("s", 5, 1)], preemptible=[False, True])
    run = play(trace, "2x2", script(t0={0: (0, 1), 1: (1, 0)}), LYRA)
    assert tasks(run, "first_start_s") == [20]
    trace = rows([(1, 0, 20.0), (1, 0, 30.0)], [("s", 5, 1)], share_milli=[300, 300])
    run = play(trace, "1x1+1x2", config=replace(LYRA, inference_nodes=2))
    assert tasks(run, "first_start_s") == [5]
    run = play(trace, "1x2", config=replace(LYRA, inference_nodes=1))
    assert tasks(run, "first_start_s") == [30]


def test_lyra_takes_sleeping_pods_before_training() -> None:
    # s sleeps on device 2 from 35, and job 0 takes the rest of node 1 at 40; t at 50 ends s, and evicts the job.
    place = script(t0={0: (1, 0)}, t40={0: (1, 1)})
    run = play(rows([(1, 0, None)], [("s", 0, 1), ("t", 50, 1)]), "2x2", place, LYRA)
    assert (run.pods_at[0], run.pods_at[50], run.jobs_at[50]) == ({2: "s"}, {2: "t"}, {0: [0]})


def test_a_warm_hit_evicts_nobody() -> None:
    place = script(t0={0: (1, 0)}, t40={0: (1, 1)})
    run = play(rows([(1, 0, None)], [("s", 0, 1), ("s", 50, 1)]), "2x2", place, LYRA)
    assert (run.pods_at[50], run.jobs_at[50]) == ({2: "s"}, {0: [0, 3]})


@pytest.mark.parametrize(("given", "node"), [(-1, 2), (0, None), (1, 3), (3, 1), (9, 0)])
def test_which_nodes_serve(given: int, node: int | None) -> None:
    for rule in (LYRA, STATIC):
        trace = rows([], [("s", 0, 1)])
        if node is None:
            with pytest.raises(RuntimeError, match="stalled"):
                play(trace, "4x1", config=replace(rule, inference_nodes=given))
        else:
            assert play(trace, "4x1", config=replace(rule, inference_nodes=given)).pods_at[0] == {node: "s"}


def test_static_keeps_training_out() -> None:
    # Two nodes of 2 for training: 3 GPUs fit on no node, 5 nowhere. Job 0 waits for the first node's pair.
    trace = rows(
        [(4, 0, 10.0), (2, 1, 10.0), (5, 2, 1.0)], [("s", 3, 1), ("t", 3, 1), ("u", 3, 1), ("v", 3, 1), ("w", 3, 1)]
    )
    run = play(trace, "4x2", config=replace(EVENTS, reclaim="static"))
    assert jobs(run, "first_start_s", "status") == [
        (0, "completed"),
        (10, "completed"),
        (pytest.approx(NAN, nan_ok=True), "rejected"),
    ]
    assert run.pods_at[3] == {4: "s", 5: "t", 6: "u", 7: "v"}
    # Asleep at 38, and then w's.
    assert tasks(run, "first_start_s") == [3, 3, 3, 3, 38]
    assert run.pods_at[38] == {4: "w", 5: "t", 6: "u", 7: "v"}


def test_static_widest_node() -> None:
    """3 GPUs are more than a node of training has, although not more than one of inference: on two nodes."""
    run = play(rows([(3, 0, 10.0)], []), "2x2+1x4", config=replace(EVENTS, reclaim="static"))
    assert jobs(run, "first_start_s", "finish_s") == [(0, 10)]


# What training may hold


def test_training_takes_empty_devices_first_then_the_pod_born_last() -> None:
    # Pods s, t, u on devices 0, 1, 2 sleep from 35 on. The jobs take device 3, then u's, then t's.
    trace = rows([(1, 40, 90.0), (1, 41, 90.0), (1, 42, 90.0)], [("s", 0, 1), ("t", 0, 1), ("u", 0, 1)])
    run = play(trace, "1x4")
    assert run.jobs_at[130] == {4: [2], 5: [1]}
    assert run.pods_at[130] == {0: "s"}
    # The task of u at 50 finds its pod gone, while s is hit; the job has to give way, and it held devices 1-3.
    run = play(rows([(3, 40, 90.0)], [("s", 0, 1), ("t", 0, 1), ("u", 0, 1), ("u", 50, 1), ("s", 50, 1)]), "1x4")
    assert (run.pods_at[50], tasks(run, "warm")) == ({0: "s", 1: "u"}, [0, 0, 0, 0, 1])
    assert jobs(run, "num_preemptions") == [1]


def test_nodes_with_pods_awake_are_not_idle() -> None:
    # Best fit: the pod's node has one device left, which is the tightest. Job 2 needs a whole node.
    trace = rows([(1, 1, 50.0), (2, 1, 50.0)], [("s", 0, 1)])
    run = play(trace, "2x2")
    assert run.jobs_at[35] == {1: [1], 2: [2, 3]}


@pytest.mark.parametrize("placement", ["count", "spread", "emptiest", "consolidated", "random"])
def test_quotas_leave_out_pods_awake(placement: Any) -> None:
    # A pod is awake until 35: job 0 (2 GPUs) waits, the later job 1 runs, and is then preempted.
    rule = ListOrder(Key.ARRIVAL, preemptive=True)
    trace = rows([(2, 1, 50.0), (1, 2, 100.0)], [("s", 0, 1)])
    run = play(trace, "1x2", rule, replace(EVENTS, placement=placement))
    assert jobs(run, "first_start_s", "num_preemptions") == [(35, 0), (2, 1)]


def test_a_shrunk_gang_is_charged_what_it_holds() -> None:
    # The elastic gang of 3 keeps 2 GPUs after 5; when the pod sleeps at 40 one is free for job 1.
    rule = ListOrder(Key.ARRIVAL, preemptive=True)
    run = play(rows([(3, 0, None), (1, 6, 9.0)], [("s", 5, 1)]), "1x3", rule, replace(EVENTS, placement="count"))
    assert jobs(run, "first_start_s", "num_rescales", "num_preemptions") == [(0, 1, 0), (40, 0, 0)]
    assert jobs(run, "finish_s") == [pytest.approx(5 + (1000 - 15) / 2), 49]


def test_schedulers_see_what_training_may_hold() -> None:
    seen: list[tuple[float, list[int]]] = []

    def watch(now: float, index: int, active: list[Seen], nodes: list[int]) -> Any:
        seen.append((now, nodes))
        return {job.job_id: (1, None) for job in active}

    play(rows([(1, 1, 80.0)], [("s", 0, 1), ("t", 0, 1)]), "2x2", watch, EVENTS)
    assert seen == [(1, [0, 2]), (35, [2, 2])]
    seen.clear()
    play(rows([(1, 1, 80.0)], [("s", 0, 1)]), "2x2", watch, replace(EVENTS, reclaim="lyra"))
    assert seen == [(1, [2, 0]), (35, [2, 2])]


# Conservation


def simulate(case: InferenceCase, seed: int) -> Watched:
    run = Watched(case.trace, case.cluster, case.scheduler, case.config, seed, case.profiles, case.tuned)
    run.play()
    run.look()
    return run


@given(st.sampled_from((rigid_case, listed_case, chosen_case)), st.integers(0, 1 << 20))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_devices_and_gpu_time_are_conserved(make: Any, seed: int) -> None:
    case = make(seed)
    run = simulate(case, seed)
    assert set(tasks(run, "status")) == {"completed"}
    assert set(jobs(run, "status")) <= {"completed", "rejected"}
    pods = run.inference.pod_gpu_s
    assert pods == {state: pytest.approx(run.counted[state], abs=1e-6) for state in pods}
    assert pods["start"] == sum(tasks(run, "paused_gpu_s"))
    assert pods["start"] + pods["running"] == sum(tasks(run, "service_gpu_s"))
    everything = sum(pods.values()) + run.counted["job"] + run.counted["free"]
    assert everything == pytest.approx(run.now * case.cluster.num_gpus)
    if (case.trace.jobs["share_milli"] == WHOLE).all():
        assert sum(jobs(run, "service_gpu_s")) == pytest.approx(run.counted["job"], abs=1e-6)
    for task in run.inference.tasks.values():
        start_up = 0 if task.warm else task.start_up_s
        assert task.finish_s - task.arrival_s == task.queueing_delay_s + start_up + task.duration_s
