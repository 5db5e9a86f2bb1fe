"""What every entry of BASELINES keeps: capacity, gangs, conservation, determinism."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from baselines import BASELINES
from baselines.policy import is_published, oracle_use, prepare, uses_seed
from envs.simulate import simulate
from envs.spec import SCENARIOS, ClusterSpec, SimConfig
from tests.baselines.layer_views import EVERY_POLICY
from traces.load import load_trace
from traces.trace import make_trace

RIGID = load_trace("synthetic-philly-dense?jobs=120,seed=5,mean_gap_s=60")
FEW = RIGID.window(0, 40)
# Narrow enough for the cluster: what an elastic job requests must fit.
POLLUX = load_trace("synthetic-pollux?jobs=32,seed=3,mean_gap_s=240").jobs
ELASTIC = make_trace("elastic", POLLUX[POLLUX["num_gpus"] <= 8])
MIXED = make_trace(
    "mixed", pd.concat([RIGID.window(0, 24).jobs.assign(job_id=lambda t: "r" + t["job_id"]), ELASTIC.jobs])
)
CLUSTER = ClusterSpec.parse("3x4+1x8")
CONFIGS = {
    "layers": SimConfig(interference=0.25, checkpoint_s=300.0, node_mtbf_s=40_000.0, on_event=True, most_residual=0.02),
    "events": SimConfig(interval_s=0.0),
    "rounds": SimConfig(interval_s=300.0, checkpoint_s=100.0, durations="estimate"),
    "counts": SimConfig(compat="tiresias"),
    "restarts": SimConfig(rescale_cost="restart", interference=0.25, node_mtbf_s=40_000.0, checkpoint_s=300.0),
    "stragglers": SimConfig(on_event=True, checkpoint_s=300.0, node_mtbf_s=40_000.0, stragglers="contention"),
    "learning": SimConfig(rescale_cost="afe", knowledge="online"),
}
ORDERING = SCENARIOS["rigid"].baselines
WRAPPED = [text for text in EVERY_POLICY if text.endswith(":elastic-srtf")]
PLACED = [text for text in EVERY_POLICY if text.endswith(":fifo")]
LAYERED = make_trace("layered", ELASTIC.jobs.assign(freezing=np.where(np.arange(len(ELASTIC)) % 3, "egeria", "")))
CASES = [(name, RIGID, config) for name in ORDERING for config in ("events", "rounds", "counts")]
CASES += [(name, MIXED, config) for name in SCENARIOS["elastic"].baselines for config in ("restarts", "learning")]
CASES += [("max-min", MIXED, config) for config in ("restarts", "learning")]
# With backup workers jobs hold more than they request.
CASES += [(text, FEW, "stragglers") for text in (*PLACED, "psr:srtf") if not text.startswith("backup")]
CASES += [("reactive:elastic-srtf", MIXED, "stragglers")]
CASES += [(text, LAYERED, "layers") for text in (*WRAPPED, "icefrog:pollux", "safe-front:optimus")]


def build(text):
    """The scheduler with its defaults, but a small search where there is one."""
    name, _, host = text.partition(":")
    if host:
        return BASELINES[name](build(host))
    return BASELINES[name](generations=4, population=8) if name == "pollux" else BASELINES[name]()


def run(name, trace, config, seed=3):
    scheduler = prepare(build(name), trace.jobs)
    return simulate(trace, CLUSTER, scheduler, config, seed=seed, record=True)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[2]}")
def case(request):
    name, trace, config = request.param
    return name, CONFIGS[config], run(name, trace, CONFIGS[config])


def test_every_job_ends(case):
    assert set(case[2].jobs["status"]) == {"completed"}


def test_no_gpu_is_held_twice(case):
    held = case[2].intervals.sort_values(["gpu", "start_s"])
    same_gpu = held["gpu"].to_numpy()[1:] == held["gpu"].to_numpy()[:-1]
    assert (held["start_s"].to_numpy()[1:] >= held["end_s"].to_numpy()[:-1])[same_gpu].all()


def test_gangs_hold_all_their_gpus_or_none(case):
    """Elastic jobs too, under an ordering scheduler."""
    jobs, held = case[2].jobs, case[2].intervals
    gangs = jobs.index[jobs["duration_s"].notna() | (case[0] in ORDERING)]
    held = held[held["job"].isin(gangs)]
    times = pd.concat([held.assign(t=held["start_s"], d=1), held.assign(t=held["end_s"], d=-1)])
    count = times.groupby(["job", "t"])["d"].sum().groupby("job").cumsum()
    request = jobs["num_gpus"].to_numpy()[count.index.get_level_values("job")]
    assert ((count == 0) | (count == request)).all()


def test_service_is_what_the_intervals_add_up_to(case):
    jobs, held = case[2].jobs, case[2].intervals
    added = (held["end_s"] - held["start_s"]).groupby(held["job"]).sum().reindex(range(len(jobs)), fill_value=0.0)
    np.testing.assert_allclose(jobs["service_gpu_s"], added, rtol=1e-12)


def test_two_runs_are_identical(case):
    name, config, result = case
    pd.testing.assert_frame_equal(run(name, result.trace, config).jobs, result.jobs)


def test_layers_are_frozen_and_no_job_ends_with_too_much_unconverged(case):
    jobs = case[2].jobs
    layered = jobs["freezing"] != ""
    assert layered.any() == (case[1] is CONFIGS["layers"])
    assert (jobs["depth_changes"] > 0).any() == layered.any()
    assert (jobs["residual"] <= 0.02 + 1e-9).all()
    assert not jobs["depth_changes"][~layered].any()


@pytest.mark.parametrize("name", EVERY_POLICY)
def test_seeds_matter_only_to_those_who_say_so(name):
    trace, config = (RIGID, CONFIGS["events"]) if name in ORDERING else (ELASTIC, SimConfig())
    trace = LAYERED if name in WRAPPED else trace
    if name in PLACED:
        sync = "backup" if name.startswith("backup") else "synchronous"
        trace, config = FEW, dataclasses.replace(CONFIGS["stragglers"], node_mtbf_s=0.0, sync=sync)
    same = run(name, trace, config, seed=1).jobs.equals(run(name, trace, config, seed=2).jobs)
    assert same != uses_seed(prepare(build(name), trace.jobs), config)


@pytest.mark.parametrize("name", ORDERING)
def test_orders_that_claim_no_oracle_ignore_durations(name):
    """With unknown durations such a policy does exactly what it does with known ones."""
    scheduler = prepare(BASELINES[name](), RIGID.jobs)
    known = SimConfig(interval_s=0.0)
    unknown = dataclasses.replace(known, durations="unknown")
    same = (simulate(RIGID, CLUSTER, scheduler, known).jobs).equals(simulate(RIGID, CLUSTER, scheduler, unknown).jobs)
    assert same == ("duration" not in oracle_use(scheduler, known))
    assert "duration" not in oracle_use(scheduler, unknown)


@pytest.mark.parametrize("text", EVERY_POLICY)
def test_is_documented_and_named_like_its_key(text):
    scheduler = build(text)
    assert scheduler.name == text
    assert scheduler.batch in ("fixed", "tuned")
    assert is_published(text)
    assert type(scheduler).__doc__
