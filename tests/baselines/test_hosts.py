"""What schedulers share that freeze layers around a host: whose depths they set, and that else they are their host."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from baselines import BASELINES
from baselines.afs import Afs
from baselines.elastic_srtf import ElasticSrtf
from baselines.freeze_traps import AlwaysMax
from baselines.hosts import Freezing, find_grants
from baselines.max_min import MaxMin
from baselines.optimus import Optimus
from baselines.policy import prepare
from baselines.pollux import Pollux
from envs.scheduler import Decision
from envs.simulate import simulate
from envs.spec import ClusterSpec, SimConfig
from tests.baselines.layer_views import Gives, depths, layer_view
from traces.load import load_trace
from traces.trace import make_trace

WRAPPERS = [cls for cls in BASELINES.values() if issubclass(cls, Freezing)]
JOBS = load_trace("synthetic-pollux?jobs=14,seed=4,mean_gap_s=200").jobs
TRACE = make_trace("plain", JOBS[JOBS["num_gpus"] <= 8])
HOSTS = [Pollux(generations=3, population=6), ElasticSrtf(), Optimus(), Afs(), MaxMin()]


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_without_layers_every_wrapper_is_its_host_bit_for_bit(host):
    cluster, config = ClusterSpec.parse("2x4+1x8"), SimConfig(rescale_cost="restart", interference=0.25, on_event=True)
    alone = simulate(TRACE, cluster, host, config, seed=1)
    assert alone.jobs["num_rescales"].sum() > 0
    for wrapper in WRAPPERS:
        held = simulate(TRACE, cluster, wrapper(host), config, seed=1)
        pd.testing.assert_frame_equal(held.jobs, alone.jobs)
        assert (held.num_passes, held.num_events) == (alone.num_passes, alone.num_events)


def test_without_layers_the_hosts_answer_is_passed_on():
    host = Gives([0, 1])
    assert AlwaysMax(host).allocate(layer_view([{"modules": 0}])) is host.decision
    host = Gives([0, 0])
    assert AlwaysMax(host).allocate(layer_view([{}])) is host.decision, "nobody gets GPUs"


def test_depths_go_to_jobs_with_layers_that_get_gpus():
    view = layer_view([{}, {"modules": 0}, {"modules": 14}, {"held": (0, 0)}])
    decision = AlwaysMax(Gives([0, 4, 0, 1, 2])).allocate(view)  # by slot: the jobs get 2, 1, 0 and 4
    assert decision.depth.tolist() == [-1, 9, -1, -1, 9]
    assert decision.gpus.tolist() == [0, 4, 0, 1, 2]
    assert depths(AlwaysMax(Gives([0, 0, 1, 1, 0])), view) == [-1, -1, 12, -1]


def grants(jobs, gpus, placement=None):
    """Columns by job of what find_grants() says."""
    decision = Decision(np.array(gpus), None if placement is None else np.array(placement))
    found = find_grants(layer_view(jobs), decision)
    return found.gpus.tolist(), found.several.tolist(), found.moved.tolist()


def test_devices_stay_where_counts_do_and_new_counts_are_on_few_nodes():
    jobs = [{"held": (1, 1)}, {"held": (2, 0)}, {"held": (0, 0)}, {"held": (0, 0)}]
    assert grants(jobs, [0, 5, 4, 3, 2]) == ([2, 3, 4, 5], [1, 0, 0, 1], [False, True, True, True])


def test_with_a_placement_rows_are_compared():
    jobs = [{"held": (1, 1)}, {"held": (2, 0)}, {"held": (0, 2)}]
    placement = [[0, 0], [1, 1], [2, 0], [1, 1]]
    assert grants(jobs, [0, 2, 2, 2], placement) == ([2, 2, 2], [1, 0, 1], [False, False, True])


def test_a_host_that_needs_history_gets_it():
    class Historian(Gives):
        def with_history(self, jobs, start):
            return Gives([len(jobs), start])

    prepared = prepare(AlwaysMax(Historian([0])), TRACE.jobs, 7)
    assert isinstance(prepared, AlwaysMax)
    assert prepared.host.decision.gpus.tolist() == [len(TRACE), 7]
    assert prepare(AlwaysMax(Gives([0])), TRACE.jobs).name == "always-max:gives"
    assert prepared.oracle == ("secrets",)
