"""What all schedulers have in common that choose devices: who runs, what is free, and the oblivious choice."""

from __future__ import annotations

import numpy as np
import pytest

from baselines import BASELINES
from baselines.fifo import Fifo, FifoBackfill
from baselines.oblivious import Oblivious
from baselines.parameters import PolicyError
from baselines.placing import Placing, place
from baselines.policy import make_baseline
from baselines.psr import Psr
from baselines.room import Ask, Room
from baselines.srtf import Srtf
from envs.order import Key, ListOrder
from envs.scheduler import Decision
from tests.baselines.straggler_views import Gives, Rule, check_valid, decide, held_rows, rows_of, straggler_view

LAYERS = [cls for cls in BASELINES.values() if issubclass(cls, Placing)]
STAYS = [cls for cls in LAYERS if cls.rule not in ("reactive", "avoid-reactive", "psr")]
RULES = [
    ListOrder(Key.ARRIVAL),
    ListOrder(Key.ARRIVAL, backfill=True),
    ListOrder(Key.REMAINING, preemptive=True),
]


# --- who runs ---


def test_a_job_that_does_not_fit_blocks_those_behind_unless_the_rule_backfills():
    jobs = [{"gpus": 3, "held": (3, 0)}, {"gpus": 3, "held": (0, 3)}, {"gpus": 2}, {"gpus": 1}]
    view = straggler_view(jobs)
    assert decide(Oblivious(Fifo()), view) == [[3, 0], [0, 3], [0, 0], [0, 0]]
    assert sorted(decide(Oblivious(FifoBackfill()), view)[3]) == [0, 1]


def test_jobs_start_in_the_order_of_the_rule():
    view = straggler_view([{"gpus": 4, "key": 2}, {"gpus": 4, "key": 1}, {"gpus": 4, "key": 0}])
    assert [sum(row) for row in decide(Oblivious(Fifo()), view)] == [0, 4, 4]


def test_with_preemption_counts_choose_and_who_is_kept_stays():
    jobs = [{"gpus": 4, "held": (4, 0), "key": 3}, {"gpus": 4, "held": (0, 4), "key": 1}, {"gpus": 2, "key": 0}]
    view = straggler_view(jobs)
    assert decide(Oblivious(Srtf()), view) == [[0, 0], [0, 4], [2, 0]]
    # All three are chosen, since 8 GPUs are enough by count; but no single node has room for the last.
    jobs = [{"gpus": 2, "held": (2, 0), "key": 0}, {"gpus": 2, "held": (0, 2), "key": 1}, {"gpus": 4, "key": 2}]
    assert decide(Oblivious(Srtf()), straggler_view(jobs)) == [[2, 0], [0, 2], [0, 0]]


def test_what_must_not_be_preempted_is_kept_first():
    jobs = [{"gpus": 4, "held": (4, 0), "key": 9, "preemptible": False}, {"gpus": 8, "key": 0}, {"gpus": 4, "key": 1}]
    assert decide(Oblivious(Srtf()), straggler_view(jobs)) == [[4, 0], [0, 0], [0, 4]]


def test_jobs_are_charged_to_their_types():
    jobs = [{"gpus": 4, "type": 1, "key": 0}, {"gpus": 4, "type": 1, "key": 1}, {"gpus": 4, "key": 2}]
    view = straggler_view(jobs, node_type=(0, 1))
    assert decide(Oblivious(Srtf()), view) == [[0, 4], [0, 0], [4, 0]]


def test_nobody_waits_so_nobody_is_stopped():
    view = straggler_view([{"gpus": 4, "held": (4, 0), "key": 5}])
    scheduler = Oblivious(Srtf())
    scheduler.reset(view)
    assert scheduler.allocate(view).placement is None


def test_of_a_scheduler_in_python_only_those_move_whose_count_changes():
    jobs = [
        {"gpus": 2, "held": (2, 0), "elastic": True},
        {"gpus": 2, "held": (1, 1), "elastic": True},
        {"gpus": 1, "elastic": True},
    ]
    host = Gives(Decision(np.array([0, 1, 2, 4]), np.zeros((4, 2), int)))  # by slot: the jobs get 4, 2 and 1
    view = straggler_view(jobs)
    rows = decide(Oblivious(host), view)
    assert host.resets == 1
    assert rows[1] == [1, 1]
    assert rows[0] == [3, 1] or rows[0] == [1, 3], "no node has room for 4, so the elastic job goes on two"
    assert sum(rows[2]) == 1


def test_a_rigid_job_that_no_node_has_room_for_waits():
    jobs = [{"gpus": 1, "held": (1, 0)}, {"gpus": 1, "held": (0, 1)}, {"gpus": 4}]
    host = Gives(Decision(np.array([0, 4, 1, 1])))
    assert decide(Oblivious(host), straggler_view(jobs)) == [[1, 0], [0, 1], [0, 0]]


def test_the_widest_are_placed_first_then_the_lowest_rank():
    jobs = [{"gpus": 2}, {"gpus": 3}, {"gpus": 2}, {"gpus": 1}]
    host = Gives(Decision(np.array([0, 1, 2, 3, 2]), rank=np.array([0, 0, 0, 0, 9])))
    rows = decide(Oblivious(host), straggler_view(jobs, node_gpus=(3, 2)))
    assert rows == [[0, 0], [3, 0], [0, 2], [0, 0]]


def test_depths_of_a_host_are_passed_on():
    depth = np.array([-1, 3])
    scheduler = Oblivious(Gives(Decision(np.array([0, 1]), depth=depth)))
    view = straggler_view([{"elastic": True}])
    scheduler.reset(view)
    assert scheduler.allocate(view).depth is depth


def test_levels_are_kept_by_the_rule_of_the_host():
    assert Oblivious(Srtf()).order_of_host() == Srtf().order()
    assert Oblivious(Gives(None)).order_of_host() is None


# --- what is free ---


def test_lowest_free_devices_are_taken_and_given_back():
    view = straggler_view([{"gpus": 1, "held": (1, 0)}, {"gpus": 2, "held": (2, 0)}, {"gpus": 3}])
    room = Room(view)
    assert room.free.tolist() == [1, 4]
    room.drop(3)  # job 0: device 0
    assert room.lowest(np.array([[2, 1], [1, 3]])).tolist() == [
        [True, False, False, True, True, False, False, False],
        [True, False, False, False, True, True, True, False],
    ]
    room.put(1, np.array([2, 1]))
    assert (room.free.tolist(), room.holder.tolist()) == ([0, 3], [1, 2, 2, 1, 1, -1, -1, -1])
    assert held_rows(view) == [[1, 0], [2, 0], [0, 0]], "the view itself stays as it is"


def test_what_is_lifted_is_so_in_the_copy_alone():
    room = Room(straggler_view([{"gpus": 4, "held": (4, 0)}, {"held": (0, 1), "share": 300}]))
    assert room.lifted(2).free.tolist() == [4, 3]
    assert room.lifted(1).free.tolist() == [0, 4]
    assert room.free.tolist() == [0, 3]
    assert room.emptied().free.tolist() == [4, 4]


def test_a_job_goes_on_one_node_if_one_is_large_enough():
    jobs = [{"gpus": 2, "held": (2, 0, 0)}, {"gpus": 2, "held": (0, 2, 0)}, {"gpus": 1, "held": (0, 0, 1)}]
    room = Room(straggler_view([*jobs, {}, {}], node_gpus=(4, 4, 2)))
    assert room.ask(1, 2) == Ask(1, 2, pytest.approx([2, 2, 0]), False)
    assert room.ask(1, 3) is None
    assert room.ask(1, 3, apart=True) == Ask(1, 3, pytest.approx([2, 2, 1]), True)
    assert room.ask(1, 5) == Ask(1, 5, pytest.approx([2, 2, 1]), True)
    assert room.ask(1, 6) is None


def test_larger_jobs_take_the_first_type_with_room():
    jobs = [{"gpus": 1, "held": (1, 0, 0, 0)}, {"gpus": 8}, {"gpus": 8, "type": 0}]
    room = Room(straggler_view(jobs, node_gpus=(4, 4, 4, 4), node_type=(0, 0, 1, 1)))
    assert room.ask(2, 8).left.tolist() == [0, 0, 4, 4]
    assert room.ask(1, 8) is None
    assert room.ask(2, 7).left.tolist() == [3, 4, 0, 0]


def test_shares_of_devices_are_packed_as_the_simulator_packs_them():
    jobs = [
        {"share": 500, "held": (0, 1)},
        {"share": 300, "held": (1, 0)},
        {"share": 300},
        {"share": 600},
        {"share": 500},
    ]
    view = straggler_view(jobs, node_gpus=(1, 1))
    scheduler = Oblivious(Fifo())
    scheduler.reset(view)
    decision = scheduler.allocate(view)
    # 500 are free on device 1 and 700 on device 0: 300 fit best on device 1; 600 on device 0; nowhere are 500 left.
    assert decision.devices[view.slots].tolist() == [-1, -1, 1, 0, -1]
    assert decision.gpus[view.slots].tolist() == [1, 1, 1, 1, 0]


def test_sleeping_pods_make_room():
    view = straggler_view([{"gpus": 4}])
    view.gpu_holder[[1, 2]] = -2
    view.node_free = np.array([3, 4])  # one of the two sleeps
    assert Room(view).free.tolist() == [3, 4]


# --- the oblivious choice ---


def test_best_fit_on_one_node():
    jobs = [{"gpus": 1, "held": (1, 0, 0)}, {"gpus": 2, "held": (0, 2, 0)}, {"gpus": 2}]
    assert decide(Oblivious(Fifo()), straggler_view(jobs, node_gpus=(4, 4, 4)))[2] == [0, 2, 0]


def test_larger_jobs_gather_the_emptiest_nodes_and_best_fit_the_rest():
    jobs = [{"gpus": 1, "held": (1, 0, 0, 0)}, {"gpus": 2, "held": (0, 2, 0, 0)}, {"gpus": 6}]
    rows = decide(Oblivious(Fifo()), straggler_view(jobs, node_gpus=(4, 4, 4, 4)))
    assert rows[2] in ([0, 2, 4, 0], [0, 2, 0, 4])


def test_ties_are_broken_by_seed_job_and_start():
    def choice(seed, restarts=0):
        return decide(Oblivious(Fifo()), straggler_view([{"restarts": restarts}], node_gpus=(2,) * 8, seed=seed))

    chosen = [choice(seed)[0].index(1) for seed in range(20)]
    assert len(set(chosen)) > 3
    assert chosen == [choice(seed)[0].index(1) for seed in range(20)]
    assert any(choice(0) != choice(0, restarts) for restarts in range(1, 5))


def test_groups_come_before_best_fit():
    view = straggler_view([{"gpus": 1, "held": (1, 0, 0)}, {}, {}], node_gpus=(4, 4, 4))
    ask = Room(view).ask(2, 1)
    assert place(view, ask, np.array([1, 0, 2])).tolist() == [0, 1, 0]
    assert place(view, ask, np.array([1, -1, 2])).tolist() == [1, 0, 0]
    assert place(view, ask, np.array([-1, -1, -1])) is None


# --- every layer ---


def random_view(rng, **config):
    """A view of 2 to 6 nodes with jobs that run and wait, everything else drawn too."""
    nodes = int(rng.integers(2, 7))
    free, jobs = np.full(nodes, 4), []
    for _ in range(int(rng.integers(0, 8))):
        row, share = np.zeros(nodes, int), 1000
        if rng.random() < 0.2 and free.sum() > 6:
            row = np.minimum(free, rng.integers(0, 3, nodes))
        elif rng.random() < 0.2 and free.max() > 0:
            row[free.argmax()], share = 1, 400
        else:
            n = int(rng.integers(nodes))
            row[n] = rng.integers(0, free[n] + 1)
        if row.any():
            free -= row
            jobs.append({"gpus": int(row.sum()), "held": tuple(row), "share": share})
    jobs += [{"gpus": int(rng.choice([1, 1, 2, 4, 6, 9]))} for _ in range(int(rng.integers(0, 6)))]
    jobs += [{"share": int(rng.choice([300, 600]))} for _ in range(int(rng.integers(0, 3)))]
    for job in jobs:
        drawn = {"key": rng.random(), "left": float(rng.choice([0.0, 900.0, 36000.0])), "comm": rng.uniform(0, 0.6)}
        drawn |= {"slowdown": rng.uniform(1, 3), "waited": rng.uniform(0, 600), "kappa": tuple(rng.uniform(0, 1, 3))}
        job |= drawn
    return straggler_view(
        jobs,
        node_gpus=(4,) * nodes,
        p=rng.uniform(0, 1, (nodes, 2, 2)) ** 3,
        load=rng.uniform(0, 1.2, (nodes, 2)),
        ratio=rng.uniform(0.9, 1.4, (nodes, 2)),
        flagged=[(int(n), int(c)) for n, c in rng.integers(0, 2, (2, 2))],
        speed=rng.uniform(0.95, 1.2, 4 * nodes),
        now=float(rng.uniform(0, 3000)),
        **config,
    )


@pytest.mark.parametrize("cls", LAYERS, ids=lambda cls: cls.rule)
def test_every_decision_is_valid_and_jobs_that_stay_do_not_move(cls):
    sync = "backup" if cls.rule == "backup" else "synchronous"
    for seed in range(60):
        view = random_view(np.random.default_rng(seed), sync=sync)
        scheduler = cls(Rule(RULES[seed % 3]))
        scheduler.reset(view)
        decision = scheduler.allocate(view)
        check_valid(decision, view)
        rows = rows_of(decision, view)
        for slot, held, row in zip(view.slots, held_rows(view), rows, strict=True):
            if view.running[slot] and cls in STAYS:
                assert row == held or (RULES[seed % 3].preemptive and not any(row))
        again = cls(Rule(RULES[seed % 3]))
        again.reset(view)
        assert rows == rows_of(again.allocate(view), view)


@pytest.mark.parametrize("cls", LAYERS, ids=lambda cls: cls.rule)
def test_where_nothing_straggles_every_layer_is_oblivious(cls):
    for seed in range(20):
        view = random_view(np.random.default_rng(seed), stragglers="none")
        del view.stragglers
        assert decide(cls(Fifo()), view) == decide(Oblivious(Fifo()), view)


@pytest.mark.parametrize("cls", LAYERS, ids=lambda cls: cls.rule)
def test_an_idle_cluster_is_put_to_use_whatever_is_seen(cls):
    view = straggler_view(
        [{"gpus": 2}], p=0.999999, ratio=3.0, load=2.0, sync="backup" if cls.rule == "backup" else "drop"
    )
    assert sum(decide(cls(Fifo()), view)[0]) == 2


# --- names ---


def test_layers_take_rules_and_fifo_by_default():
    assert make_baseline("psr") == make_baseline("psr:fifo") == Psr(Fifo())
    assert make_baseline("oblivious:srtf").name == "oblivious:srtf"
    assert make_baseline("psr:tiresias?gain=inf,w_ext=0").gain == float("inf")
    assert make_baseline("psr:srtf").oracle == ("duration", "straggler_p")


def test_layers_may_hold_what_freezes_layers():
    made = make_baseline("psr:icefrog:elastic-srtf?shuffle=true")
    assert (made.name, made.shuffle) == ("psr:icefrog:elastic-srtf", True)
    assert make_baseline("oblivious:icefrog").name == "oblivious:icefrog:pollux"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("psr:oblivious", "oblivious cannot be a host, since it takes one itself"),
        ("psr:oblivious:fifo", "oblivious cannot be a host"),
        ("safe-front:psr", "psr cannot be a host"),
        ("safe-front:fifo", "fifo decides by an ordering rule in compiled code"),
        ("psr:safe-front", "safe-front needs a host"),
        ("psr:safe-front:fifo", "fifo decides by an ordering rule in compiled code"),
        ("psr:fifoo", r"unknown host 'fifoo' \(did you mean fifo\?\); hosts are afs, .*fifo, .*tiresias"),
    ],
)
def test_hosts_that_are_refused(text, message):
    with pytest.raises(PolicyError, match=message):
        make_baseline(text)
