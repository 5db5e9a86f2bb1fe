"""The network under Stable-Baselines3: masks hold without exception, nothing leaves its device."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from torch.utils._python_dispatch import TorchDispatchMode

from agents.network import NetworkConfig
from agents.sb3_policy import ClusterPolicy, MaskableClusterPolicy
from envs.actions import NUM_EDITS, num_actions
from envs.features import ObservationLayout
from envs.registration import register
from tests.agents.samples import random_observations

register()
TINY = NetworkConfig(width=16, rounds=1, heads=1, disturb=True)


def make_policy(layout: ObservationLayout, policy_class=MaskableClusterPolicy):
    torch.manual_seed(0)
    actions = spaces.Discrete(num_actions(layout.num_slots, layout.num_services))
    return policy_class(layout.flat_space(), actions, lambda _: 1e-3, layout=layout, network=TINY)


def random_masks(layout: ObservationLayout, obs: torch.Tensor, valid: int, seed: int) -> np.ndarray:
    """Commit, ``valid`` random edits of occupied slots, and one edit of services where there are some."""
    rng = np.random.default_rng(seed)
    mask = np.zeros((len(obs), num_actions(layout.num_slots, layout.num_services)), bool)
    mask[:, 0] = True
    present = layout.split(obs.numpy())["jobs"][:, :, 0] > 0
    for b in range(len(obs)):
        for slot in rng.choice(np.flatnonzero(present[b]), valid):
            mask[b, 1 + slot * NUM_EDITS + rng.integers(NUM_EDITS)] = True
        if layout.num_services:
            mask[b, rng.integers(1 + layout.num_slots * NUM_EDITS, mask.shape[1])] = True
    return mask


@pytest.mark.parametrize(("num_slots", "draws"), [(8, 2000), (32, 500), (256, 60)])
@pytest.mark.parametrize("sharpness", [1.0, 1e4])
def test_no_masked_action_in_a_long_sampling(num_slots, draws, sharpness):
    """79, 295 and 2311 actions, 4 of them valid; a million draws in all, also from a far too certain network."""
    layout = ObservationLayout(num_slots, num_nodes=4, gpus_per_node=4, num_services=3)
    policy = make_policy(layout)
    obs = random_observations(layout, 200, occupied=8)
    mask = random_masks(layout, obs, valid=2, seed=num_slots)
    logits, _ = policy.network(obs, layout)
    distribution = policy.action_dist.proba_distribution(action_logits=logits.detach() * sharpness)
    distribution.apply_masking(mask)
    rows = np.arange(len(obs))
    invalid = sum(int((~mask[rows, distribution.sample().numpy()]).sum()) for _ in range(draws))
    assert invalid == 0
    assert torch.isfinite(distribution.entropy()).all()


@pytest.mark.parametrize("num_services", [0, 3])
def test_forward_evaluate_and_predict_agree_and_keep_to_the_mask(num_services):
    layout = ObservationLayout(8, 4, 4, num_services)
    policy = make_policy(layout)
    obs = random_observations(layout, 300, occupied=5)
    mask = random_masks(layout, obs, valid=3, seed=1)
    actions, values, log_prob = policy.forward(obs, action_masks=mask)
    assert mask[np.arange(300), actions.numpy()].all()
    same_values, same_log_prob, entropy = policy.evaluate_actions(obs, actions, action_masks=torch.from_numpy(mask))
    torch.testing.assert_close(same_values, values)
    torch.testing.assert_close(same_log_prob, log_prob)
    torch.testing.assert_close(policy.predict_values(obs), values)
    assert (entropy >= 0).all()
    assert entropy.max() > 0
    greedy, _ = policy.predict(obs.numpy(), action_masks=mask, deterministic=True)
    logits = policy.network(obs, layout)[0].detach().numpy()
    np.testing.assert_array_equal(greedy, np.where(mask, logits, -np.inf).argmax(axis=1))


def test_without_masks_empty_slots_are_still_never_chosen():
    layout = ObservationLayout(32, 4, 4)
    policy = make_policy(layout, ClusterPolicy)
    obs = random_observations(layout, 2000, occupied=2)
    actions = policy.forward(obs)[0].numpy()
    present = layout.split(obs.numpy())["jobs"][:, :, 0] > 0
    slots = (actions - 1) // NUM_EDITS
    assert (actions > 0).any()
    assert present[np.arange(2000), slots][actions > 0].all()


def test_the_layout_must_fit_the_observation():
    layout = ObservationLayout(8, 4, 4)
    wrong = spaces.Box(-1, 1, (layout.size + 1,), np.float32)
    with pytest.raises(ValueError, match="layout describes"):
        MaskableClusterPolicy(wrong, spaces.Discrete(73), lambda _: 1e-3, layout=layout)
    with pytest.raises(ValueError, match="layout has 73 actions, the action space 74"):
        MaskableClusterPolicy(layout.flat_space(), spaces.Discrete(74), lambda _: 1e-3, layout=layout)


class OneDevice(TorchDispatchMode):
    """Fails on any operation that makes a tensor elsewhere than on ``device``; scalars may live on the CPU."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.dim() > 0:
                assert tensor.device.type == self.device, f"{func} made a tensor on {tensor.device}"
        return result


@pytest.mark.parametrize("num_services", [0, 3])
def test_all_tensors_are_made_on_the_policys_device(num_services):
    """On the meta device, which stands in for a GPU and has no values: the list of occupied slots is made up."""
    layout = ObservationLayout(8, 4, 4, num_services)
    policy = make_policy(layout).to("meta")
    index = torch.arange(6, device="meta")
    obs = torch.empty(3, layout.size, device="meta")
    with pytest.MonkeyPatch.context() as patch, OneDevice("meta"):
        patch.setattr(torch.Tensor, "nonzero", lambda _: index[:, None])
        patch.setattr(torch.distributions.Distribution, "_validate_args", False)  # it reads values, and meta has none
        mask = torch.ones(3, num_actions(8, num_services), dtype=torch.bool, device="meta")
        actions = torch.zeros(3, dtype=torch.long, device="meta")
        values, log_prob, entropy = policy.evaluate_actions(obs, actions, mask)
        (values.sum() + log_prob.sum() + entropy.sum()).backward()
    assert all(
        p.device.type == "meta" and (p.grad is None or p.grad.device.type == "meta") for p in policy.parameters()
    )


def test_sb3_can_copy_the_policy():
    layout = ObservationLayout(8, 4, 4)
    policy = make_policy(layout)
    copy = MaskableClusterPolicy(**policy._get_constructor_parameters())
    copy.load_state_dict(policy.state_dict())
    obs = random_observations(layout, 4, occupied=5)
    assert torch.equal(copy.predict_values(obs), policy.predict_values(obs))


def test_plain_sb3_learns_on_the_registered_environment():
    """Dict observations, no masks, no glue of ours."""
    env = gymnasium.make("musher/Cluster-v0", on_invalid="commit", trace="toy-five-jobs", cluster="1x1", num_slots=8)
    model = PPO("MultiInputPolicy", env, n_steps=64, batch_size=32, n_epochs=1, seed=0, device="cpu")
    before = [p.clone() for p in model.policy.parameters()]
    model.learn(128)
    assert any(not torch.equal(a, b) for a, b in zip(before, model.policy.parameters(), strict=True))


def test_plain_maskable_ppo_learns_on_the_registered_environment():
    env = gymnasium.make(
        "musher/Cluster-v0", trace="toy-five-jobs", cluster="1x1", num_slots=8
    )  # invalid actions raise
    model = MaskablePPO("MultiInputPolicy", env, n_steps=256, batch_size=64, n_epochs=1, seed=0, device="cpu")
    model.learn(512)
    assert model.num_timesteps == 512
