"""Layers that answer stragglers by one simple rule each, and whole runs of all of them."""

from __future__ import annotations

import numpy as np
import pytest

from baselines import BASELINES
from baselines.avoid_slow import AvoidSlow
from baselines.fifo import Fifo, FifoBackfill
from baselines.losses import Losses
from baselines.node_by_node import NodeByNode
from baselines.parameters import PolicyError
from baselines.placing import Placing
from baselines.policy import make_baseline
from baselines.quarantine import Quarantine
from baselines.reactive import AvoidReactive, Reactive
from baselines.room import Room
from baselines.static_aware import StaticAware
from baselines.sync_modes import Asynchronous, Backup, Drop, LbBsp
from baselines.wrangler import Wrangler
from envs.layout import SYNC_MODES
from envs.simulate import simulate
from envs.spec import ClusterSpec, SimConfig
from tests.baselines.straggler_views import decide, rows_of, straggler_view
from traces.load import load_trace

LAYERS = [name for name, cls in BASELINES.items() if issubclass(cls, Placing)]
FIT = [{"gpus": 2, "held": (2, 0)}, {"gpus": 1}]  # best fit: node 0


# --- where jobs go ---


def test_avoid_slow_uses_slow_nodes_last():
    assert decide(AvoidSlow(Fifo()), straggler_view(FIT))[1] == [1, 0]
    assert decide(AvoidSlow(Fifo()), straggler_view(FIT, ratio=[[1.2, 1], [1, 1]]))[1] == [0, 1]
    assert decide(AvoidSlow(Fifo()), straggler_view(FIT, ratio=[[1.2, 1], [1.3, 1]]))[1] == [1, 0]
    assert decide(AvoidSlow(Fifo(), slow=1.5), straggler_view(FIT, ratio=[[1.2, 1], [1, 1]]))[1] == [1, 0]


def test_avoid_slow_looks_at_links_for_jobs_on_several_nodes_alone():
    ratio = [[1, 1.4], [1, 1], [1, 1]]
    assert decide(AvoidSlow(Fifo()), straggler_view(FIT, ratio=ratio[:2]))[1] == [1, 0]
    assert decide(AvoidSlow(Fifo()), straggler_view([{"gpus": 8}], node_gpus=(4, 4, 4), ratio=ratio))[0] == [0, 4, 4]


def test_static_aware_takes_the_fastest_gpus_and_best_fit_among_alike_ones():
    speed = np.ones(8)
    speed[2] = 1.12  # the lowest free one of node 0
    assert decide(StaticAware(Fifo()), straggler_view(FIT, speed=speed))[1] == [0, 1]
    assert decide(StaticAware(Fifo()), straggler_view(FIT, speed=[1.005] * 4 + [1.0] * 4))[1] == [1, 0]
    assert decide(StaticAware(Fifo(), step=0.5), straggler_view(FIT, speed=speed))[1] == [1, 0]


def test_static_aware_gathers_the_fastest_nodes():
    speed = np.ones(12)
    speed[5] = 1.12
    assert decide(StaticAware(Fifo()), straggler_view([{"gpus": 7}], node_gpus=(4, 4, 4), speed=speed))[0][1] == 0


def test_wrangler_lets_jobs_wait_for_nodes_that_will_not_straggle():
    p = np.full((2, 2, 2), 0.1)
    p[0, 0, 0] = 0.75
    assert decide(Wrangler(Fifo()), straggler_view(FIT, p=p))[1] == [0, 1]
    p[1, 0, 0] = 0.7
    assert decide(Wrangler(Fifo()), straggler_view(FIT, p=p))[1] == [0, 0]
    assert decide(Wrangler(Fifo(), patience_s=0.0), straggler_view(FIT, p=p))[1] == [1, 0]
    late = [FIT[0], {"gpus": 1, "waited": 300.0}]
    assert decide(Wrangler(Fifo()), straggler_view(late, p=p))[1] == [1, 0]


def test_whoever_waits_for_a_better_node_keeps_back_others_unless_the_rule_backfills():
    jobs = [{"gpus": 2, "held": (2, 0)}, {"gpus": 4}, {"gpus": 1}]
    p = np.zeros((2, 2, 2))
    p[1] = 0.9
    assert [sum(row) for row in decide(Wrangler(Fifo()), straggler_view(jobs, p=p))[1:]] == [0, 0]
    assert [sum(row) for row in decide(Wrangler(FifoBackfill()), straggler_view(jobs, p=p))[1:]] == [0, 1]


def test_quarantine_lasts_an_hour():
    scheduler, chosen = Quarantine(Fifo()), []
    scheduler.reset(straggler_view(FIT))
    for now, ratio in ((0.0, 1.0), (60.0, 1.11), (120.0, 1.0), (3659.0, 1.0), (3660.0, 1.0)):
        view = straggler_view(FIT, ratio=[[ratio, 1], [1.5, 1.5]], now=now)
        chosen.append(rows_of(scheduler.allocate(view), view)[1])
    assert chosen == [[1, 0], [0, 1], [0, 1], [0, 1], [1, 0]], "nothing runs on node 1, so nothing is found there"


def test_quarantine_knows_nodes_of_slow_gpus():
    speed = np.ones(8)
    speed[:4] = 1.11
    assert decide(Quarantine(Fifo()), straggler_view(FIT, speed=speed))[1] == [0, 1]
    speed[1:3] = 1.0
    assert decide(Quarantine(Fifo()), straggler_view(FIT, speed=speed))[1] == [1, 0], "the median counts"


def test_node_by_node_takes_the_least_risky_nodes():
    p = np.full((3, 2, 2), 0.01)
    p[1] = 0.5
    jobs = [{"gpus": 3, "held": (3, 0, 0), "kappa": (0, 0, 0)}, {"gpus": 2, "kappa": (0.5, 0.0, 0.0)}]
    assert decide(NodeByNode(Fifo()), straggler_view(jobs, node_gpus=(4, 4, 4), p=p))[1] == [0, 0, 2]
    jobs[1]["gpus"] = 5
    p[0] = 0.4
    assert decide(NodeByNode(Fifo()), straggler_view(jobs, node_gpus=(4, 4, 4), p=p))[1] == [1, 0, 4]


# --- moves ---


def losing(now, flagged=((0, 0),), free=4, slowdown=1.5, **job):
    """One job of 2 GPUs on node 0, and another that leaves ``free`` on node 1."""
    jobs = [{"gpus": 2, "held": (2, 0), "slowdown": slowdown, **job}]
    if free < 4:
        jobs.append({"gpus": 4 - free, "held": (0, 4 - free)})
    return straggler_view(jobs, flagged=flagged, now=now)


def moves(scheduler, views):
    scheduler.reset(views[0])
    return [rows_of(scheduler.allocate(view), view)[0] != [2, 0] for view in views]


@pytest.mark.parametrize("cls", [Reactive, AvoidReactive])
def test_a_job_moves_once_it_has_lost_its_pause(cls):
    """At 1.5 it loses a third: 180 s after 540."""
    assert moves(cls(Fifo()), [losing(now) for now in (0.0, 300.0, 539.0, 540.0)]) == [False, False, False, True]


def test_it_moves_off_flagged_nodes_only_and_to_nodes_without_a_flag():
    assert moves(Reactive(Fifo()), [losing(0.0), losing(600.0, flagged=())]) == [False, False]
    assert moves(Reactive(Fifo()), [losing(0.0), losing(600.0, flagged=[(0, 0), (1, 0)])]) == [False, False]
    assert moves(Reactive(Fifo()), [losing(0.0), losing(600.0, flagged=[(0, 0), (1, 1)])]) == [False, True]
    assert moves(Reactive(Fifo()), [losing(0.0), losing(600.0, free=1)]) == [False, False]
    assert moves(Reactive(Fifo()), [losing(0.0), losing(600.0, preemptible=False)]) == [False, False]


def test_losses_count_while_flagged_and_begin_anew_with_other_devices():
    losses = Losses()

    def lost(now, **kwargs):
        view = losing(now, **kwargs)
        losses.read(view, Room(view))
        return float(losses.of(np.array([1]))[0])

    found = [
        lost(0.0),
        lost(30.0),
        lost(60.0, flagged=()),
        lost(90.0),
        lost(120.0, slowdown=0.9),
        lost(150.0, restarts=1),
    ]
    assert found == pytest.approx([0, 10, 10, 20, 20, 10])


def test_links_do_not_concern_jobs_on_one_node():
    losses = Losses()
    view = straggler_view([{"gpus": 2, "held": (2, 0)}, {"gpus": 3, "held": (2, 1)}], flagged=[(0, 1)])
    losses.read(view, Room(view))
    assert losses.on_flagged[view.slots].tolist() == [[False, False], [False, True]]


# --- how workers wait for each other ---


@pytest.mark.parametrize(("cls", "least"), [(LbBsp, 2), (Asynchronous, 2), (Drop, 8)])
def test_all_jobs_but_small_ones_have_the_mode(cls, least):
    jobs = [{"gpus": 1}, {"gpus": 7}, {"gpus": 8}, {"gpus": 16}]
    view = straggler_view(jobs, node_gpus=(8, 8))
    scheduler = cls(Fifo())
    scheduler.reset(view)
    mode = SYNC_MODES.index(cls.rule)
    assert scheduler.allocate(view).sync[view.slots].tolist() == [-1, mode if least < 8 else -1, mode, -1]


def test_backup_workers_are_a_setting():
    with pytest.raises(PolicyError, match=r"backup:fifo needs --sim\.sync backup, since jobs hold"):
        Backup(Fifo()).reset(straggler_view([{}]))
    Backup(Fifo()).reset(straggler_view([{}], sync="backup"))
    with pytest.raises(PolicyError, match=r"lb-bsp:fifo cannot be run with --sim\.sync backup"):
        LbBsp(Fifo()).reset(straggler_view([{}], sync="backup"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("avoid-slow?slow=0.9", "slow must be a ratio >= 1, not 0.9"),
        ("static-aware?step=0", "step must be a finite number > 0, not 0"),
        ("wrangler?confident=0", r"confident must lie in \(0, 1\], not 0"),
        ("wrangler?patience_s=-1", "patience_s must be a time >= 0, not -1"),
        ("quarantine?slow=nan", "slow must be a ratio >= 1, not nan"),
        ("quarantine?keep_out_s=0", "keep_out_s must be a time > 0, not 0"),
        ("drop?least_gpus=1", "least_gpus must be a whole number >= 2, not 1"),
        ("reactive?slow=1.2", "no parameter 'slow'; it has none"),
    ],
)
def test_parameters_out_of_range(text, message):
    with pytest.raises(PolicyError, match=message):
        make_baseline(text)


# --- whole runs ---

TRACE = load_trace("synthetic-stragglers?jobs=60,seed=2,gpus=32,load=1.6")
CLUSTER = ClusterSpec.parse("8x8")


def run(text, **config):
    sync = "backup" if text.startswith("backup") else "synchronous"
    settings = SimConfig(interval_s=300.0, on_event=True, rescale_s=180.0, stragglers="contention", sync=sync, **config)
    return simulate(TRACE, CLUSTER, make_baseline(text), settings, seed=1)


@pytest.mark.parametrize("name", [*LAYERS, "psr:srtf", "psr:tiresias", "reactive:las", "wrangler:fifo-backfill"])
def test_every_job_ends_and_only_layers_that_move_jobs_do(name):
    jobs = run(name).jobs
    assert set(jobs["status"]) == {"completed"}
    assert (jobs["lost_gpu_s"] > 0).any()
    assert jobs["num_rescales"].any() == (name.partition(":")[0] in ("reactive", "avoid-reactive", "psr"))


def test_psr_loses_less_than_oblivious_placement_does():
    lost = {text: run(text).jobs["lost_gpu_s"].sum() for text in ("oblivious", "reactive", "psr", "psr?react=false")}
    assert lost["psr"] < lost["reactive"] < lost["oblivious"]
    assert lost["psr?react=false"] < lost["oblivious"]


def test_without_stragglers_moves_and_waits_cost_psr_next_to_nothing():
    jct = {text: run(text, straggler_rate=0.0).jobs["jct_s"].mean() for text in ("oblivious", "psr")}
    assert jct["psr"] < 1.01 * jct["oblivious"]
