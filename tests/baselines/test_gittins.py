"""The Gittins index against its definition and against closed forms; where its history comes from."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.gittins import MIN_HISTORY, Gittins, gittins_index, gpu_times, make_limits
from baselines.parameters import PolicyError
from baselines.policy import oracle_use, prepare
from envs.spec import SimConfig
from traces.load import load_trace


@pytest.mark.parametrize("attained", [0.0, 0.5, 3.0, 40.0, 200.0])
def test_definition(attained):
    sample = np.round(np.random.default_rng(0).lognormal(3, 2, 80), 2)
    limits = make_limits(sample, 20)
    ratios = []
    for limit in limits:
        alive = [x - attained for x in sample if x > attained]
        D = limit - attained
        if D > 0:
            ratios.append(sum(x <= D for x in alive) / sum(min(x, D) for x in alive))
    assert gittins_index(sample, attained, limits) == pytest.approx(max(ratios), rel=1e-12)


def test_hand_values():
    # a = 0: D = 10 gives 3/4 / 10, D = 100 gives 1 / ((3 x 10 + 100) / 4). a = 10: 1 / 90. a = 100: nothing is left.
    sample = np.array([10.0, 10.0, 10.0, 100.0])
    values = [gittins_index(sample, a, (10.0, 100.0)) for a in (0.0, 10.0, 100.0)]
    assert values == pytest.approx([0.075, 1 / 90, 0.0])


def test_exponential_is_memoryless():
    """The hazard is constant, so the index is 1 / mean whatever was attained."""
    quantiles = -1000 * np.log1p(-(np.arange(100_000) + 0.5) / 100_000)
    limits = make_limits(quantiles, 63)
    for attained in (0.0, limits[20], limits[45]):
        assert gittins_index(quantiles, attained, limits) == pytest.approx(1 / 1000, rel=0.01)


def test_falling_hazard_means_falling_index():
    sample = 100 * (1 - (np.arange(50_000) + 0.5) / 50_000) ** (-1 / 1.5)  # Pareto: after its minimum, hazard 1.5 / x
    values = Gittins(sample=tuple(sample), num_levels=30).order().values[1:25]  # beyond, few values are left
    assert list(values) == sorted(values, reverse=True)


def test_limits_end_at_the_largest_value_and_stay_within_the_core():
    sample = np.random.default_rng(1).lognormal(6, 2, 1000)
    limits = make_limits(sample, 63)
    assert len(limits) == 63
    assert limits[-1] == sample.max()
    order = Gittins(sample=tuple(sample)).order()
    assert order.values[-1] == 0
    assert order.values[0] == gittins_index(sample, 0.0, limits)


def test_one_size_fits_all_needs_one_level():
    order = Gittins(sample=(7.0, 7.0)).order()
    assert order.limits == (7.0,)
    assert order.values == (1 / 7, 0.0)


def test_history_is_what_precedes_the_window():
    jobs = load_trace("synthetic-philly?jobs=300,seed=2").jobs
    known = prepare(Gittins(), jobs, start=200)
    assert known.sample == tuple(gpu_times(jobs.iloc[:200]))
    assert oracle_use(known, SimConfig()) == ()


@pytest.mark.parametrize(("scheduler", "start"), [(Gittins(), MIN_HISTORY - 1), (Gittins(history="trace"), 200)])
def test_whole_trace_is_marked_as_an_oracle_of_the_distribution(scheduler, start):
    jobs = load_trace("synthetic-philly?jobs=300,seed=2").jobs
    known = prepare(scheduler, jobs, start)
    assert known.sample == tuple(gpu_times(jobs))
    assert oracle_use(known, SimConfig(durations="unknown")) == ("distribution",)


def test_without_history_it_says_so():
    with pytest.raises(PolicyError, match="with_history"):
        Gittins().order()
