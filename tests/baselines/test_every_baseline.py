"""What every entry of BASELINES keeps: capacity, gangs, conservation, determinism."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from baselines import BASELINES
from baselines.policy import is_published, oracle_use, prepare, uses_seed
from envs.simulate import simulate
from envs.spec import ClusterSpec, SimConfig
from traces.load import load_trace

TRACE = load_trace("synthetic-philly-dense?jobs=120,seed=5,mean_gap_s=60")
CLUSTER = ClusterSpec.parse("3x4+1x8")
CONFIGS = {
    "events": SimConfig(interval_s=0.0),
    "rounds": SimConfig(interval_s=300.0, checkpoint_s=100.0, durations="estimate"),
    "counts": SimConfig(compat="tiresias"),
}


def run(name, config, seed=3):
    return simulate(TRACE, CLUSTER, prepare(BASELINES[name](), TRACE.jobs), config, seed=seed, record=True)


@pytest.fixture(scope="module", params=[(name, config) for name in BASELINES for config in CONFIGS], ids="-".join)
def case(request):
    name, config = request.param
    return name, CONFIGS[config], run(name, CONFIGS[config])


def test_every_job_ends(case):
    assert set(case[2].jobs["status"]) == {"completed"}


def test_no_gpu_is_held_twice(case):
    held = case[2].intervals.sort_values(["gpu", "start_s"])
    same_gpu = held["gpu"].to_numpy()[1:] == held["gpu"].to_numpy()[:-1]
    assert (held["start_s"].to_numpy()[1:] >= held["end_s"].to_numpy()[:-1])[same_gpu].all()


def test_gangs_hold_all_their_gpus_or_none(case):
    held = case[2].intervals
    times = pd.concat([held.assign(t=held["start_s"], d=1), held.assign(t=held["end_s"], d=-1)])
    count = times.groupby(["job", "t"])["d"].sum().groupby("job").cumsum()
    request = case[2].jobs["num_gpus"].to_numpy()[count.index.get_level_values("job")]
    assert ((count == 0) | (count == request)).all()


def test_service_is_what_the_intervals_add_up_to(case):
    held = case[2].intervals
    added = (held["end_s"] - held["start_s"]).groupby(held["job"]).sum().reindex(range(len(TRACE)), fill_value=0.0)
    np.testing.assert_allclose(case[2].jobs["service_gpu_s"], added, rtol=1e-12)


def test_two_runs_are_identical(case):
    name, config, result = case
    pd.testing.assert_frame_equal(run(name, config).jobs, result.jobs)


@pytest.mark.parametrize("name", BASELINES)
def test_seeds_matter_only_to_those_who_say_so(name):
    config = CONFIGS["events"]
    same = run(name, config, seed=1).jobs.equals(run(name, config, seed=2).jobs)
    assert same != uses_seed(prepare(BASELINES[name](), TRACE.jobs), config)


@pytest.mark.parametrize("name", BASELINES)
def test_orders_that_claim_no_oracle_ignore_durations(name):
    """With unknown durations such a policy does exactly what it does with known ones."""
    scheduler = prepare(BASELINES[name](), TRACE.jobs)
    known = SimConfig(interval_s=0.0)
    unknown = dataclasses.replace(known, durations="unknown")
    same = (simulate(TRACE, CLUSTER, scheduler, known).jobs).equals(simulate(TRACE, CLUSTER, scheduler, unknown).jobs)
    assert same == ("duration" not in oracle_use(scheduler, known))
    assert "duration" not in oracle_use(scheduler, unknown)


@pytest.mark.parametrize("name", BASELINES)
def test_is_frozen_documented_and_named_like_its_key(name):
    cls = BASELINES[name]
    assert cls.name == name
    assert cls.batch == "fixed"
    assert is_published(name)
    assert cls.__doc__
    with pytest.raises(dataclasses.FrozenInstanceError):
        cls().name = "other"
