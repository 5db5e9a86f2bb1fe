"""The network: equivariant to slots and services, the same weights at every size, silent about empty slots."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agents.exchange import EMPTY_LOGIT, AttentionPool, held_share
from agents.network import (
    DISTURB_BIAS,
    ELASTIC,
    RUNNING,
    WAS_RUNNING,
    ClusterNetwork,
    NetworkConfig,
    split_observation,
)
from envs.actions import NUM_EDITS, Edit
from envs.features import ObservationLayout
from tests.agents.samples import random_observations

SMALL = ObservationLayout(num_slots=12, num_nodes=16, gpus_per_node=4)
LARGE = ObservationLayout(num_slots=40, num_nodes=64, gpus_per_node=8)
SERVED = ObservationLayout(num_slots=12, num_nodes=16, gpus_per_node=4, num_services=5)
SERVICES = 1 + SERVED.num_slots * NUM_EDITS  # the first action of the first service


def make_network(**sizes: int) -> ClusterNetwork:
    torch.manual_seed(0)
    network = ClusterNetwork(NetworkConfig(**sizes))
    # Initial weights of edits are nearly 0 on purpose; larger ones let a wrong logit show.
    for last in (network.edit_head[-1], network.service_head[-1]):
        torch.nn.init.orthogonal_(last.weight)
    return network


def test_views_share_memory_with_the_observation():
    obs = random_observations(SMALL, 2, 3)
    split_observation(obs, SMALL).jobs[1, 2, 0] = 7.0
    start, _, shape = SMALL.slices["jobs"]
    assert obs[1, start + 2 * shape[1]] == 7.0


def test_permuting_slots_permutes_logits_and_keeps_the_value():
    network = make_network()
    obs = random_observations(SMALL, 3, 7)
    order = torch.from_numpy(np.random.default_rng(1).permutation(SMALL.num_slots))
    moved = obs.clone()
    parts, there = split_observation(obs, SMALL), split_observation(moved, SMALL)
    there.jobs[:, :, :] = parts.jobs[:, order]
    new_slot = torch.argsort(order)  # slot that the job of each old slot has moved to
    holder = parts.occupancy.long()
    there.occupancy[:, :, :] = torch.where(holder < 0, holder, new_slot[holder.clamp(min=0)]).float()

    logits, value = network(obs, SMALL)
    moved_logits, moved_value = network(moved, SMALL)
    edits = logits[:, 1:].reshape(3, SMALL.num_slots, NUM_EDITS)
    moved_edits = moved_logits[:, 1:].reshape(3, SMALL.num_slots, NUM_EDITS)
    assert edits.std() > 1e-3
    torch.testing.assert_close(moved_edits, edits[:, order], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(moved_logits[:, 0], logits[:, 0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(moved_value, value, rtol=1e-4, atol=1e-5)


def test_permuting_nodes_changes_nothing():
    network = make_network()
    obs = random_observations(SMALL, 3, 7)
    moved = obs.clone()
    order = torch.from_numpy(np.random.default_rng(2).permutation(SMALL.num_nodes))
    parts, there = split_observation(obs, SMALL), split_observation(moved, SMALL)
    there.nodes[:, :, :] = parts.nodes[:, order]
    there.occupancy[:, :, :] = parts.occupancy[:, order]
    for new, old in zip(network(moved, SMALL), network(obs, SMALL), strict=True):
        torch.testing.assert_close(new, old, rtol=1e-4, atol=1e-5)


def test_the_same_weights_run_on_a_larger_cluster_with_more_slots():
    network = make_network()
    for layout, occupied in ((SMALL, 7), (LARGE, 30)):
        logits, value = network(random_observations(layout, 2, occupied), layout)
        assert logits.shape == (2, 1 + layout.num_slots * NUM_EDITS)
        assert value.shape == (2, 1)
        assert torch.isfinite(logits).all()


def test_more_empty_slots_change_nothing():
    """Padding: the jobs of a 12-slot observation in a 40-slot one have the same logits."""
    network = make_network()
    wide = ObservationLayout(num_slots=40, num_nodes=16, gpus_per_node=4)
    obs = random_observations(SMALL, 2, 5)
    parts = split_observation(obs, SMALL)
    padded = torch.zeros(2, wide.size)
    there = split_observation(padded, wide)
    there.cluster[:] = parts.cluster
    there.nodes[:] = parts.nodes
    there.jobs[:, : SMALL.num_slots] = parts.jobs
    there.occupancy[:] = parts.occupancy
    logits, value = network(obs, SMALL)
    wide_logits, wide_value = network(padded, wide)
    torch.testing.assert_close(wide_logits[:, : logits.shape[1]], logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(wide_value, value, rtol=1e-4, atol=1e-5)
    assert (wide_logits[:, logits.shape[1] :] == EMPTY_LOGIT).all()


def test_permuting_services_permutes_their_logits_and_changes_nothing_else():
    network = make_network(rounds=2)
    obs = random_observations(SERVED, 3, 7)
    order = torch.tensor([3, 0, 4, 2, 1])
    moved = obs.clone()
    split_observation(moved, SERVED).services[:] = split_observation(obs, SERVED).services[:, order]
    (logits, value), (moved_logits, moved_value) = network(obs, SERVED), network(moved, SERVED)
    edits, moved_edits = (x[:, SERVICES:].reshape(3, 5, 2) for x in (logits, moved_logits))
    assert edits.std(dim=1).min() > 1e-3
    torch.testing.assert_close(moved_edits, edits[:, order], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(moved_logits[:, :SERVICES], logits[:, :SERVICES], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(moved_value, value, rtol=1e-4, atol=1e-5)


def test_jobs_and_the_value_depend_on_services():
    network = make_network()
    obs = random_observations(SERVED, 1, 7)
    moved = obs.clone()
    split_observation(moved, SERVED).services[:] *= 0.1
    (logits, value), (moved_logits, moved_value) = network(obs, SERVED), network(moved, SERVED)
    jobs = logits[0, 1:SERVICES] > EMPTY_LOGIT
    assert (logits - moved_logits)[0, 1:SERVICES][jobs].abs().max() > 1e-4
    assert (value - moved_value).abs() > 1e-5


def test_the_same_weights_run_with_any_number_of_services_and_without():
    """Nothing, like a set of which nothing is present, pools to zeros."""
    network = make_network()
    for count in (0, 1, 5, 20):
        layout = ObservationLayout(12, 16, 4, num_services=count)
        logits, value = network(random_observations(layout, 3, 7), layout)
        assert logits.shape == (3, SERVICES + 2 * count)
        assert torch.isfinite(logits).all()
        assert torch.isfinite(value).all()
    pool = AttentionPool(8, heads=2)
    assert torch.equal(pool(torch.randn(3, 8), torch.zeros(3, 0, 8), None), torch.zeros(3, 16))
    present = torch.zeros(3, 4, dtype=torch.bool)
    assert torch.equal(pool(torch.randn(3, 8), torch.zeros(3, 4, 8), present), torch.zeros(3, 16))


def test_gradients_reach_all_that_reads_services():
    network = make_network()
    logits, value = network(random_observations(SERVED, 4, 7), SERVED)
    (logits.logsumexp(dim=1).sum() + value.sum()).backward()
    parts = (network.service_head, network.embed_service, network.rounds[0].pool_services)
    for part in (*parts, network.rounds[0].service_in, network.rounds[0].token_to_service):
        for parameter in part.parameters():
            assert torch.isfinite(parameter.grad).all()
            assert parameter.grad.abs().max() > 0


def test_the_first_policy_seldom_marks_jobs_keeps_or_drops():
    torch.manual_seed(0)
    logits = ClusterNetwork(NetworkConfig())(make_pass([1] * 6, [1] * 6, 1.0, SERVED), SERVED)[0][0]
    yields = logits[1:SERVICES].reshape(-1, NUM_EDITS)[:, Edit.YIELDS]
    for seldom in (yields, logits[SERVICES:]):
        assert (seldom - logits[0] < DISTURB_BIAS + 0.5).all()


@pytest.mark.parametrize("layout", [SMALL, SERVED], ids=["alone", "with services"])
@pytest.mark.parametrize("occupied", [0, 1])
def test_few_or_no_jobs_give_finite_outputs_and_gradients(occupied, layout):
    network = make_network()
    logits, value = network(random_observations(layout, 4, occupied), layout)
    assert torch.isfinite(logits).all()
    edits = logits[:, 1:SERVICES].reshape(4, SMALL.num_slots, NUM_EDITS)
    assert ((edits > EMPTY_LOGIT).any(dim=2).sum(dim=1) == occupied).all()
    (logits[logits > EMPTY_LOGIT].sum() + value.sum()).backward()
    assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)


def test_a_job_sees_the_nodes_it_holds():
    network = make_network()
    obs = random_observations(SMALL, 1, 2)
    moved = obs.clone()
    parts = split_observation(moved, SMALL)
    holder = parts.occupancy[0].max()
    node = int((parts.occupancy[0] == holder).any(dim=1).nonzero()[0, 0])
    parts.occupancy[0, node][parts.occupancy[0, node] == holder] = -1.0
    parts.occupancy[0, (node + 1) % SMALL.num_nodes, 0] = holder
    before = network(obs, SMALL)[0][0, 1:].reshape(-1, NUM_EDITS)
    after = network(moved, SMALL)[0][0, 1:].reshape(-1, NUM_EDITS)
    assert (before[int(holder)] - after[int(holder)]).abs().max() > 1e-5


def make_pass(
    runs: list[float], ran: list[float], elastic: float = 0.0, layout: ObservationLayout = SMALL
) -> torch.Tensor:
    """Observation of one job a slot that runs now, and ran before the pass, as the lists say."""
    obs = random_observations(layout, 1, layout.num_slots)
    jobs = split_observation(obs, layout).jobs
    jobs[0, :, RUNNING] = torch.tensor(runs + [0.0] * (SMALL.num_slots - len(runs)))
    jobs[0, :, ELASTIC] = elastic
    jobs[0, :, WAS_RUNNING] = torch.tensor(ran + [0.0] * (SMALL.num_slots - len(ran)))
    return obs


@pytest.mark.parametrize("disturb", [True, False])
def test_a_pass_is_not_undone_and_running_jobs_are_disturbed_only_if_allowed(disturb):
    """Slot 0 runs, 1 was started in this pass, 2 was stopped in it, 3 waits."""
    obs = make_pass(runs=[1, 1, 0, 0], ran=[1, 0, 1, 0])
    logits = make_network(disturb=disturb)(obs, SMALL)[0]
    open_ = logits[0, 1:].reshape(-1, NUM_EDITS) > EMPTY_LOGIT
    moves = [Edit.PLACE_PACKED, Edit.PLACE_SPREAD]
    assert open_[0, [Edit.LESS, *moves]].eq(disturb).all()
    assert not open_[1, Edit.LESS]
    assert open_[1, moves].all()
    assert not open_[2, Edit.MORE]
    assert open_[3, Edit.MORE]
    assert open_[:, Edit.YIELDS].all()


def test_elastic_jobs_may_always_change_and_seldom_grow_at_first():
    logits = make_network()(make_pass(runs=[1, 0], ran=[1, 0], elastic=1.0), SMALL)[0][0, 1:].reshape(-1, NUM_EDITS)
    assert (logits[0, [Edit.LESS, Edit.MORE, Edit.PLACE_PACKED]] > EMPTY_LOGIT).all()
    assert logits[0, Edit.MORE] < 0 < logits[1, Edit.MORE]


def test_held_share_by_hand():
    # Node 0: slots 1, 1; node 1: slot 1 and a free GPU; node 2: inference and a shared GPU.
    occupancy = torch.tensor([[[1.0, 1.0], [1.0, -1.0], [-2.0, -3.0]]])
    expected = torch.tensor([[[0.0, 0.0, 0.0], [2 / 3, 1 / 3, 0.0]]])
    torch.testing.assert_close(held_share(occupancy, num_slots=2), expected)


def test_size_is_configurable():
    sizes = [
        sum(p.numel() for p in make_network(width=w, rounds=r).parameters()) for w, r in ((16, 1), (64, 1), (64, 2))
    ]
    assert sizes[0] < sizes[1] < sizes[2]
