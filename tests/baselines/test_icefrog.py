"""Effective progress as the host sees it, and what freezing layers brings and costs in whole runs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from baselines.elastic_srtf import ElasticSrtf
from baselines.freeze_traps import AlwaysMax, GreedyFreeze
from baselines.freezeout import FreezeOut
from baselines.icefrog import EffectiveView, IceFrog
from baselines.optimus import Optimus
from baselines.pipetransformer import PipeTransformer
from baselines.safe_front import SafeFront
from envs.rng import Purpose, uniform
from envs.simulate import simulate
from envs.spec import ClusterSpec, SimConfig
from envs.view import ClusterView
from tests.envs.elastic_core_support import linear
from traces.freezing import PRESETS, Freezing, shares
from traces.load import load_trace
from traces.trace import make_trace

JOBS = load_trace("synthetic-pollux?jobs=20,seed=2,mean_gap_s=200").jobs
JOBS = JOBS[JOBS["num_gpus"] <= 8].head(10)  # what an elastic job requests must fit the cluster
SMALL = make_trace("small", JOBS.assign(freezing=np.where(JOBS["model"] == "bert", "finetune", "middle")))
CLUSTER = ClusterSpec.parse("3x4")
HOST = ElasticSrtf()

# --- what the host sees ---


class Checked(IceFrog):
    """Compares what its host would see with a loop over depths, at every pass."""

    rows = deeper = 0

    def show(self, view):
        shown = super().show(view)
        slots = view.slots
        assert isinstance(shown, EffectiveView)
        if not len(slots):
            return shown
        caps = np.zeros(view.num_slots, np.int64)
        layered = slots[view.modules[slots] > 0]
        caps[layered] = self.front.cap(view, layered)
        table, widest = shown.goodput(slots, 5), shown.goodput(slots)
        for row, j in enumerate(slots):
            expected = np.max(
                [
                    view.goodput([j], depth=[d])[0] * (1 - (view.penalty([j], [d])[0] if d else 0.0))
                    for d in range(caps[j] + 1)
                ],
                axis=0,
            )
            assert (widest[row] == expected).all()
            assert (table[row] == np.where(np.arange(65) <= 5, expected, 0)).all()
            self.rows, self.deeper = self.rows + 1, self.deeper + int(caps[j] > 0)
        return shown


def test_goodput_is_the_largest_effective_progress_up_to_the_cap():
    checked = Checked(HOST, margin=0)
    mixed = make_trace("mixed", SMALL.jobs.assign(freezing=np.where(np.arange(10) % 3, "finetune", "")))
    simulate(mixed, CLUSTER, checked, SimConfig())
    assert checked.rows > checked.deeper > 50


def test_everything_else_is_the_views():
    seen = []

    class Looks(ElasticSrtf):
        def allocate(self, view):
            seen.append(view)
            return super().allocate(view)

    class Keeps(IceFrog):
        def show(self, view):
            shown = super().show(view)
            for name in ("now", "num_slots", "open_gpus", "arrivals", "exits", "config", "cluster"):
                assert getattr(shown, name) == getattr(view, name)
            for name in ("slots", "gpus", "depth", "modules", "node_free", "elastic_remaining", "estimate", "age"):
                np.testing.assert_array_equal(getattr(shown, name), getattr(view, name))
            assert (shown.placement() == view.placement()).all()
            assert (shown.oracle_iteration_s(view.slots) == view.oracle_iteration_s(view.slots)).all()
            return shown

    simulate(SMALL, CLUSTER, Keeps(Looks()), SimConfig())
    assert all(isinstance(view, ClusterView) for view in seen)
    assert len(seen) > 50


# --- alone on one GPU ---

ALONE = {"cifar10": linear(20_000.0, name="cifar10")}  # one iteration a second on one GPU, 10 modules
NO_PAUSE = SimConfig(rescale_s=0.0, freeze_s=0.0, front="exact")


def run_alone(preset, scheduler, config=NO_PAUSE, seed=1):
    table = {"num_gpus": [1], "arrival_s": [0], "duration_s": [math.nan], "model": ["cifar10"], "freezing": [preset]}
    trace = make_trace("alone", table)
    return simulate(trace, ClusterSpec.parse("1x1"), scheduler, config, seed=seed, profiles=ALONE).jobs.iloc[0]


def ends(preset, seed=None):
    """(10,) progress at which modules converge: as usual, or as drawn by the seed for the first row of a trace."""
    scales = [1.0 if seed is None else 0.8 + 0.4 * uniform(seed, Purpose.FREEZING, 0, i) for i in range(2)]
    first, last = PRESETS[preset].first * scales[0], PRESETS[preset].last * scales[1]
    return first + (last - first) * np.arange(10) / 9


def best_speedup(times):
    """Of a job that freezes each module at the moment at which it converges, for nothing, but never the last."""
    marks = [0.0, *np.minimum(times[:9], 1.0), 1.0]
    return 1 / sum((marks[k + 1] - marks[k]) * shares("cifar10", k, Freezing())[1] for k in range(10))


def test_the_model_gains_what_the_design_page_says():
    """shared/design/layer_elasticity.md, 3.4: ResNet-18 1.53 by the preset egeria and 1.33 by middle."""
    assert best_speedup(ends("egeria")) == pytest.approx(1.53, abs=0.02)
    assert best_speedup(ends("middle")) == pytest.approx(1.33, abs=0.02)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("wrapper", [SafeFront, IceFrog])
def test_the_exact_front_brings_nearly_all_of_it(wrapper, seed):
    plain, frozen = (run_alone("egeria", scheduler, seed=seed) for scheduler in (HOST, wrapper(HOST)))
    speedup = plain["jct_s"] / frozen["jct_s"]
    assert speedup == pytest.approx(best_speedup(ends("egeria", seed)), rel=0.05)
    assert frozen["residual"] - plain["residual"] < 0.005
    assert frozen["depth_changes"] <= 9


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_noisy_front_costs_little_with_the_margin(seed):
    config = SimConfig(rescale_s=0.0)
    plain, frozen = (run_alone("egeria", scheduler, config, seed) for scheduler in (HOST, SafeFront(HOST)))
    assert plain["jct_s"] / frozen["jct_s"] > 0.92 * best_speedup(ends("egeria", seed))
    assert frozen["residual"] - plain["residual"] < 0.02


# --- traps ---


def test_always_max_is_slower_than_no_freezing():
    plain, frozen = run_alone("middle", HOST), run_alone("middle", AlwaysMax(HOST))
    assert frozen["jct_s"] > 2 * plain["jct_s"]
    assert frozen["residual"] > 0.5
    means = [simulate(SMALL, CLUSTER, s, SimConfig()).jobs["jct_s"].mean() for s in (HOST, AlwaysMax(HOST))]
    assert means[1] > 1.5 * means[0]


def test_greedy_freezing_gains_little_and_leaves_much_unconverged():
    plain, frozen = run_alone("middle", HOST), run_alone("middle", GreedyFreeze(HOST))
    assert frozen["jct_s"] > 0.85 * plain["jct_s"]
    assert frozen["residual"] - plain["residual"] > 0.3
    plain, frozen, safe = (
        simulate(SMALL, CLUSTER, s, SimConfig()).jobs for s in (HOST, GreedyFreeze(HOST), SafeFront(HOST))
    )
    assert frozen["jct_s"].mean() > 0.85 * plain["jct_s"].mean()
    assert (frozen["residual"] - plain["residual"]).mean() > 0.3
    assert safe["jct_s"].mean() < frozen["jct_s"].mean()
    assert (safe["residual"] - plain["residual"]).mean() < 0.01


# --- residuals ---


def tell_residual(wrapper, seed):
    """Residual of the only job as its history of depths tells it, and the result's."""
    history = []  # progress, depth from there on

    class Logs(wrapper):
        def allocate(self, view):
            decision = super().allocate(view)
            for j in view.slots:
                history.append((float(view.elastic_progress[j]), int(decision.depth[j])))
            return decision

    result = run_alone("egeria", Logs(HOST), SimConfig(), seed)
    active = np.zeros(10)
    for (before, depth), (after, _) in zip(history, [*history[1:], (1.0, 0)], strict=True):
        active[depth:] += after - before
    return np.maximum(0, 1 - active / ends("egeria", seed)).mean(), result["residual"]


@pytest.mark.parametrize("wrapper", [SafeFront, IceFrog, PipeTransformer, FreezeOut, AlwaysMax, GreedyFreeze])
def test_the_residual_is_what_the_history_of_depths_tells(wrapper):
    found = [tell_residual(wrapper, seed) for seed in (1, 5)]
    for told, said in found:
        assert said == pytest.approx(told, abs=1e-9)
    assert all((said > 0) == (wrapper is not FreezeOut) for _, said in found)


@pytest.mark.parametrize("wrapper", [SafeFront, IceFrog, PipeTransformer, AlwaysMax, GreedyFreeze])
def test_no_job_ends_with_more_unconverged_than_is_allowed(wrapper):
    free, bound = (simulate(SMALL, CLUSTER, wrapper(HOST), SimConfig(most_residual=most)).jobs for most in (1.0, 0.02))
    assert (free["residual"] > 0.02).any()
    assert bound["residual"].max() <= 0.02 + 1e-9
    assert (bound["status"] == "completed").all()
    assert bound["jct_s"].sum() > free["jct_s"].sum()


def test_a_host_without_goodput_is_frozen_as_by_safe_front():
    both = [simulate(SMALL, CLUSTER, wrapper(Optimus()), SimConfig()).jobs for wrapper in (SafeFront, IceFrog)]
    assert both[0].equals(both[1])
    assert both[0]["depth_changes"].sum() > 0
