"""PSR-H: what it expects of nodes, which placements it likes, and what it does about jobs that run."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.fifo import Fifo
from baselines.foresight import Foresight, horizon, nearest, slow_share, time_left
from baselines.node_by_node import NodeByNode
from baselines.oblivious import Oblivious
from baselines.parameters import PolicyError
from baselines.policy import make_baseline, oracle_use
from baselines.psr import Psr
from baselines.psr_score import fill
from baselines.room import Ask, Room
from envs.layout import SYNC_MODES
from envs.spec import SimConfig
from tests.baselines.straggler_views import decide, rows_of, straggler_view

LB_BSP = SYNC_MODES.index("lb-bsp")
CALM = {"kappa": (0.0, 0.0, 0.0)}  # a job that feels nothing but GPUs, and loads nothing


def risky(nodes, *slow, p=0.9):
    """(N, 2, 2) probabilities: ``p`` at nodes ``slow``, next to nothing elsewhere."""
    found = np.full((nodes, 2, 2), 0.001)
    found[list(slow)] = p
    return found


# --- what is expected ---


@pytest.mark.parametrize(("hazard", "mean", "minutes"), [(0.02, 10.0, 60.0), (1.3, 24.0, 10.0), (0.0, 10.0, 60.0)])
def test_share_of_time_that_something_is_slow(hazard, mean, minutes):
    """Against the two-state chain, stepped: from normal to slow at ``hazard``, back at 1 / ``mean`` a minute."""
    slow, total, step = 0.0, 0.0, minutes / 200_000
    for _ in range(200_000):
        total += slow * step
        slow += (hazard * (1 - slow) - slow / mean) * step
    assert slow_share(np.array(hazard), mean, minutes) == pytest.approx(total / minutes, rel=1e-3, abs=1e-12)


def test_the_nearer_horizon_is_used():
    minutes = horizon(np.array([10.0, 600.0, 1440.0, 1500.0, 90000.0]))
    assert minutes.tolist() == [1.0, 10.0, 24.0, 25.0, 60.0]
    assert nearest(minutes).tolist() == [0, 0, 0, 1, 1]


def test_time_left_is_estimated_where_it_is_unknown():
    view = straggler_view([{"left": 500.0}, {"left": 0.0, "gpus": 2}, {"left": 0.0, "gpus": 2}])
    view.service = np.array([0.0, 400.0, 8000.0, 9.0])
    assert time_left(view)[view.slots].tolist() == [500.0, 4000.0, 600.0]


def test_what_a_job_feels():
    """contention: CPUs begin 0.02 + 6 x 0.2 = 1.22 times an hour, the GPUs of a node 4 x 0.001."""
    view = straggler_view([{"kappa": (0.5, 2.0, 1.0)}])
    foresight = Foresight()
    foresight.look(view, Room(view))
    compute = (1.22 * 0.5 * 0.6 + 0.004 * 0.25) / 1.224
    assert foresight.feels(np.array([1])) == pytest.approx(np.array([[compute, 2.0 * 2.5]]))


def test_a_job_adds_its_load_to_nodes_that_others_use():
    jobs = [{"gpus": 2, "held": (2, 0, 0)}, {"gpus": 2}]
    view = straggler_view(jobs, node_gpus=(4, 4, 4), load=[[0.7, 0.2], [0.2, 0.2], [0.9, 0.2]], p=0.01)
    foresight, room = Foresight(), Room(view)
    foresight.look(view, room)
    met = foresight.added(1, room, np.array([[2, 0, 0], [0, 2, 0], [0, 0, 2]]), np.zeros(3, bool))
    alone = float(slow_share(np.array(-np.log(0.99) / 60), 10.0, 60.0)) * (1.22 * 0.6 + 0.001) / 1.224
    assert met.compute.diagonal()[1] == pytest.approx(alone, rel=1e-3), "an empty node has no CPU stragglers"
    assert met.compute.diagonal()[0] > 10 * alone, "0.7 + 0.4 x 2 / 4 of load"
    assert met.compute.diagonal()[2] > alone, "a hot background, other users, is a neighbour"
    assert met.harm[0].tolist()[1:] == [0.0, 0.0]
    assert met.harm[0, 0] > 0
    assert met.harm[2, 2] == 0, "nobody is there to be harmed"
    assert met.network.diagonal().min() > 0


# --- which placements are liked ---


def test_where_all_nodes_are_alike_best_fit_is_best():
    """On random views of equal nodes: the same free GPUs as the oblivious choice; of larger jobs as many nodes."""
    rng = np.random.default_rng(1)
    for seed in range(60):
        used = rng.integers(0, 9, 6)
        jobs = [{"gpus": int(k), "held": tuple(k * (np.arange(6) == n)), **CALM} for n, k in enumerate(used) if k]
        free = 8 - used
        gpus = int(rng.integers(1, 9)) if seed % 2 else int(rng.integers(9, 24))
        view = straggler_view([*jobs, {"gpus": gpus, **CALM}], node_gpus=(8,) * 6, seed=seed)
        mine, other = (np.array(decide(cls(Fifo()), view)[-1]) for cls in (Psr, Oblivious))
        assert mine.sum() == other.sum()
        assert np.count_nonzero(mine) == np.count_nonzero(other)
        left, theirs = ((free - row)[row > 0].sum() for row in (mine, other))
        assert left <= theirs
        if gpus <= 8:
            assert left == theirs


def test_a_risky_node_is_avoided_although_it_fits_best():
    jobs = [{"gpus": 2, "held": (2, 0), **CALM}, {"gpus": 2, "kappa": (1.0, 0.0, 0.0)}]
    assert decide(Psr(Fifo()), straggler_view(jobs))[1] == [2, 0]
    assert decide(Psr(Fifo(), gain=np.inf), straggler_view(jobs, p=risky(2, 0)))[1] == [0, 2]
    assert decide(Psr(Fifo(), placement=False), straggler_view(jobs, p=risky(2, 0)))[1] == [2, 0]


def test_insensitive_jobs_do_not_care():
    jobs = [{"gpus": 2, "held": (2, 0), **CALM}, {"gpus": 2, **CALM}]
    assert decide(Psr(Fifo()), straggler_view(jobs, p=risky(2, 0)))[1] == [2, 0]


def test_links_matter_only_to_jobs_on_several_nodes():
    p = np.full((3, 2, 2), 0.001)
    p[0, 1] = 0.9
    one = {"gpus": 2, "kappa": (0.0, 1.0, 0.0), "comm": 0.4}
    jobs = [{"gpus": 2, "held": (2, 0, 0), **CALM}]
    assert decide(Psr(Fifo()), straggler_view([*jobs, one], node_gpus=(4,) * 3, p=p))[1] == [2, 0, 0]
    wide = {**one, "gpus": 6}
    assert decide(Psr(Fifo()), straggler_view([*jobs, wide], node_gpus=(4,) * 3, p=p))[1][0] == 0


def test_placements_are_scored_whole_where_node_by_node_spreads():
    """Three nodes of one free GPU, a little less risky each, against one of three: fewer nodes are less risk in all."""
    p = np.full((6, 2, 2), 0.2)
    p[:3] = 0.19
    held = [{"gpus": 7, "held": tuple(7 * (np.arange(6) == n)), **CALM} for n in range(3)]
    jobs = [*held, {"gpus": 9, "kappa": (0.5, 1.0, 0.0)}]
    view = straggler_view(jobs, node_gpus=(8,) * 6, p=p)
    assert np.count_nonzero(decide(NodeByNode(Fifo()), view)[3]) == 4
    assert np.count_nonzero(decide(Psr(Fifo()), view)[3]) == 2


def test_sensitive_neighbours_are_spared():
    jobs = [
        {"gpus": 2, "held": (2, 0, 0), "kappa": (1.0, 0.0, 0.0), "comm": 0.0},
        {"gpus": 1, "held": (0, 1, 0), **CALM},
        {"gpus": 2, "kappa": (0.6, 0.0, 0.0), "comm": 0.99},  # it loads CPUs and hardly feels them
    ]
    view = straggler_view(jobs, node_gpus=(4, 4, 4), load=[0.7, 0.2], p=risky(3, 1, p=0.5))
    assert decide(Psr(Fifo()), view)[2] != [2, 0, 0]
    assert decide(Psr(Fifo(), w_ext=0.0), view)[2] == [2, 0, 0], "else best fit"


def test_nobody_fears_load_where_nothing_straggles_in_spite_of_it():
    jobs = [{"gpus": 4, "held": (4, 0), "kappa": (1.0, 1.0, 0.0)}, {"gpus": 4, "held": (0, 4)}, {"gpus": 2}]
    harms = []
    for p in (0.99, 0.0):
        view = straggler_view(jobs, node_gpus=(8, 8), load=[1.0, 0.2], p=p)
        foresight, room = Foresight(), Room(view)
        foresight.look(view, room)
        harms.append(foresight.added(1, room, np.array([[2, 0]]), np.zeros(1, bool)).harm[0, 0])
    assert harms[1] < 0.01 * harms[0]


def test_fast_gpus_are_preferred():
    speed = np.ones(8)
    speed[:4] = 1.12
    jobs = [{"gpus": 2, "held": (2, 0), **CALM}, {"gpus": 2, **CALM}]
    assert decide(Psr(Fifo()), straggler_view(jobs, speed=speed))[1] == [0, 2]
    speed[:] = 1.0
    speed[3] = 1.12  # not among the lowest free ones
    jobs[1]["gpus"] = 1
    assert decide(Psr(Fifo()), straggler_view(jobs, speed=speed))[1] == [1, 0]


def test_fill_takes_all_of_one_node_after_the_other():
    ask = Ask(1, 7, np.array([2, 4, 3]), True)
    assert fill(ask, np.array([2, 0, 1])).tolist() == [2, 2, 3]


def test_shuffled_probabilities_are_those_of_other_nodes_by_turn():
    p = np.linspace(0.01, 0.9, 8)[:, None, None] * np.ones((8, 2, 2))

    def hazards(now, shuffle=True):
        view = straggler_view([{}], node_gpus=(1,) * 8, p=p, now=now)
        foresight = Foresight(shuffle)
        foresight.look(view, Room(view))
        return foresight._hazard

    assert (hazards(10.0) == hazards(290.0)).all()
    assert (hazards(10.0) != hazards(310.0)).any()
    assert (np.sort(hazards(10.0), axis=0) == hazards(0.0, shuffle=False)).all()


# --- deferral ---


def deferring(now=0.0, left=1000.0, **config):
    """A sensitive job that could have a risky node; the other is busy for ``left`` seconds."""
    jobs = [{"gpus": 4, "held": (0, 4), "left": left}, {"gpus": 4, "kappa": (1.0, 0.0, 0.0), "comm": 0.0}]
    return straggler_view(jobs, p=risky(2, 0, p=0.99), now=now, **config)


def test_a_job_waits_for_two_rounds_at_most():
    scheduler = Psr(Fifo())
    scheduler.reset(deferring())
    started = []
    for now in (0.0, 60.0, 119.0, 120.0):
        view = deferring(now=now)
        started.append(sum(rows_of(scheduler.allocate(view), view)[1]))
    assert started == [0, 0, 0, 4]


def test_a_job_waits_only_if_it_pays():
    assert sum(decide(Psr(Fifo()), deferring(left=1e5))[1]) == 4, "the other node is free too late"
    assert sum(decide(Psr(Fifo(), gain=np.inf), deferring())[1]) == 4
    assert sum(decide(Psr(Fifo(), gain=0.0), deferring())[1]) == 0


# --- jobs that run ---


def running(now=0.0, left=36000.0, p=0.99, flagged=(), slowdown=1.0, gpus=2, **job):
    """A view of one job on node 0 of three, which is risky."""
    held = {"gpus": gpus, "held": (gpus, 0, 0), "left": left, "kappa": (1.0, 1.0, 0.0), "slowdown": slowdown, **job}
    return straggler_view([held], node_gpus=(4, 4, 4), p=risky(3, 0, p=p), flagged=flagged, now=now)


def test_a_job_moves_if_that_saves_twice_its_pause():
    assert decide(Psr(Fifo()), running())[0][0] == 0
    assert decide(Psr(Fifo()), running(left=300.0))[0] == [2, 0, 0], "300 s at 1.6 are less than 360"
    assert decide(Psr(Fifo()), running(p=0.001))[0] == [2, 0, 0]
    assert decide(Psr(Fifo()), running(preemptible=False))[0] == [2, 0, 0]
    for switch in ("react", "migration"):
        assert decide(Psr(Fifo(), **{switch: False}), running())[0] == [2, 0, 0]


def test_jobs_are_looked_at_every_five_minutes():
    scheduler = Psr(Fifo())
    scheduler.reset(running())
    moved = []
    for now, p in ((0.0, 0.001), (120.0, 0.99), (299.0, 0.99), (300.0, 0.99)):
        view = running(now=now, p=p)
        moved.append(rows_of(scheduler.allocate(view), view)[0] != [2, 0, 0])
    assert moved == [False, False, False, True]


def test_two_jobs_move_in_a_pass_those_that_gain_most():
    jobs = [{"gpus": 1, "held": (1, 0), "left": left} for left in (9000.0, 36000.0, 18000.0)]
    rows = decide(Psr(Fifo()), straggler_view(jobs, p=risky(2, 0, p=0.99)))
    assert rows == [[1, 0], [0, 1], [0, 1]]


def test_ski_rental_moves_a_job_that_has_lost_its_pause_on_flagged_nodes():
    """At half its pace a job loses 180 s in 360; its CPUs are no cause to move until it is re-batched, its link is."""
    scheduler, moved = Psr(Fifo()), []
    scheduler.reset(running())
    jobs = [{"gpus": 6, "held": (4, 2, 0, 0), "slowdown": 2.0, "left": 500.0}]
    for now in (0.0, 300.0, 600.0):
        view = straggler_view(jobs, node_gpus=(4, 4, 4, 4), p=0.001, flagged=[(1, 1)], now=now)
        moved.append(rows_of(scheduler.allocate(view), view)[0])
    assert moved[:2] == [[4, 2, 0, 0], [4, 2, 0, 0]]
    assert moved[2][1] == 0
    assert sum(moved[2]) == 6


def modes(scheduler, view):
    found = scheduler.allocate(view).sync[view.slots].tolist()
    return found


def test_compute_flags_are_answered_by_rebatching_first():
    scheduler = Psr(Fifo())
    scheduler.reset(running())
    flag = {"p": 0.001, "flagged": [(0, 0)], "slowdown": 2.0}
    assert modes(scheduler, running(**flag)) == [-1]
    assert modes(scheduler, running(now=9.0, **flag)) == [-1], "it has lost 4.5 s, less than re-batching costs"
    assert modes(scheduler, running(now=10.0, **flag)) == [LB_BSP]
    assert modes(scheduler, running(now=700.0, sync=LB_BSP, **flag)) == [0], "it has moved: as ever"
    again = Psr(Fifo())
    again.reset(running())
    assert modes(again, running(now=700.0, p=0.001, sync=LB_BSP)) == [0], "the flag has gone"


def test_rebatching_is_no_use_to_one_gpu_nor_against_slow_links():
    for jobs, flags in (
        ([{"gpus": 1, "held": (1, 0), "slowdown": 2.0}], [(0, 0)]),
        ([{"gpus": 6, "held": (4, 2), "slowdown": 2.0}], [(0, 0), (1, 1)]),
    ):
        scheduler = Psr(Fifo())
        for now in (0.0, 60.0):
            view = straggler_view(jobs, p=0.001, flagged=flags, now=now)
            if not now:
                scheduler.reset(view)
            assert modes(scheduler, view) == [-1]
    assert Psr(Fifo(), react=False).modes(view, Room(view)) is None


# --- its name ---


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("w_ext=-1", "w_ext must be a finite number >= 0, not -1"),
        ("gain=-0.1", "gain must be a number >= 0, not -0.1"),
        ("migrate_every_s=inf", "migrate_every_s must be a finite time >= 0, not inf"),
    ],
)
def test_parameters_out_of_range(query, message):
    with pytest.raises(PolicyError, match=message):
        make_baseline(f"psr:fifo?{query}")


def test_true_probabilities_are_an_oracle():
    psr = make_baseline("psr")
    assert oracle_use(psr, SimConfig(stragglers="shared")) == ()
    assert oracle_use(psr, SimConfig(stragglers="shared", straggler_obs="oracle")) == ("straggler_p",)
    assert oracle_use(make_baseline("oblivious"), SimConfig(stragglers="shared", straggler_obs="oracle")) == ()


def test_slow_share_is_that_of_a_simulated_component():
    """20,000 paths of steps of 4 s, whose own error is below 0.004, within 4 standard errors of it."""
    paths, step, rate, left = 20_000, 4.0, 1 / 1500, 700.0
    for seconds in (600.0, 3600.0):
        rng = np.random.default_rng(11)
        slow, time = np.zeros(paths, bool), np.zeros(paths)
        for _ in range(int(seconds / step)):
            turns = rng.random(paths) < 1 - np.exp(-step * np.where(slow, 1 / left, rate))
            time += step * (slow * 0.5 + (slow ^ turns) * 0.5)  # half a step in each state where it turns
            slow ^= turns
        share = time / seconds
        error = share.std() / np.sqrt(paths)
        found = slow_share(np.array(60 * rate), left / 60, seconds / 60)
        assert found == pytest.approx(share.mean(), abs=4 * error + 0.004)
