"""What is counted: FLOPs by formula, saved and boundary bytes by hand, steps with frozen units against the counts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from traces.layer_profiles import LayerProfile
from traces.layers.catalogue import CATALOGUE
from traces.layers.count import count_modules, saved_bytes
from traces.layers.flops import flop_counter
from traces.layers.meters import CpuClock
from traces.layers.step import frozen_prefix, optimizers_of, training_step
from traces.layers.workload import Workload, chain, checked
from traces.profiles import ProfileError


def work_of(model, *inputs, units=()):
    return checked(Workload(model, inputs, units=units))


def both_flops(model, x):
    with flop_counter() as counter:
        out = model(x)
        forward = counter.get_total_flops()
        (out[0] if isinstance(out, tuple) else out).sum().backward()
    return forward, counter.get_total_flops() - forward


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_backward_of_a_convolution_is_twice_the_forward(kind, groups):
    x = torch.randn(2, 8, 6, 6, requires_grad=True)
    forward, backward = both_flops(kind(8, 16, 3, padding=1, groups=groups), x)
    assert forward == 2 * 2 * 36 * 16 * (8 // groups) * 9
    assert backward == 2 * forward
    x = torch.randn(2, 8, 6, 6)
    assert both_flops(kind(8, 16, 3, padding=1, groups=groups), x) == (forward, forward)


@pytest.mark.parametrize("layers", [1, 2])
def test_fused_lstm_takes_what_its_steps_take(layers):
    """On a CPU a fused kernel and our formula, on the meta device the steps one by one and the stock formulas."""
    counts = []
    for device in ("cpu", "meta"):
        with torch.device(device):
            x = torch.randn(5, 3, 8, requires_grad=True)
            counts.append(both_flops(nn.LSTM(8, 4, num_layers=layers, bidirectional=True), x))
    hand = sum(2 * 5 * 3 * 2 * 4 * 4 * (inputs + 4) for inputs in (8, 8)[:layers])
    assert counts[0] == (hand, 2 * hand)
    assert counts[1][0] == hand
    # the first step has no gradient of its state to compute
    assert 2 * hand - counts[1][1] == layers * 2 * 2 * 3 * 4 * 4 * 4


class Attention(nn.Module):
    def forward(self, x):
        return functional.scaled_dot_product_attention(x, x, x)


def test_fused_attention_on_a_cpu():
    x = torch.randn(1, 2, 6, 8, requires_grad=True)
    product = 2 * 2 * 6 * 6 * 8
    assert both_flops(Attention(), x) == (2 * product, 5 * product)  # the backward pass computes the scores again


def test_counts_by_hand():
    """A convolution, ReLU and pooling, then a linear layer; two samples, so that all is a sample's."""
    front = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
    back = nn.Sequential(nn.Flatten(), nn.Linear(4 * 64, 5))
    first, last = count_modules(work_of(chain({"front": front, "back": back}), torch.randn(2, 3, 8, 8)))
    assert (first.name, first.params, last.params) == ("front", 4 * 27 + 4, 5 * 256 + 5)
    assert (first.forward_flops, last.forward_flops) == (2 * 64 * 4 * 27, 2 * 256 * 5)
    assert first.backward_flops == first.frontier_backward_flops == first.forward_flops  # images need no gradient
    assert last.backward_flops == 2 * last.frontier_backward_flops == 2 * last.forward_flops
    # the image; ReLU's output, which both keep, counts in the last; the output, for the loss
    assert first.saved_activation_bytes == 4 * 3 * 64
    assert last.saved_activation_bytes == 4 * (256 + 5)
    assert first.boundary_bytes == first.boundary_bytes_with_skips == 4 * 256
    assert last.boundary_bytes == 4 * 5


class Skipping(nn.Module):
    """The first unit's output is read by the last again."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(10, 1)

    def forward(self, x):
        wide = self.first(x)
        return self.third(torch.cat([self.second(wide), wide], 1))


def test_skips_are_counted_apart():
    modules = count_modules(work_of(Skipping(), torch.randn(1, 4)))
    assert [module.name for module in modules] == ["first", "second", "third"]
    # what is made between two units belongs to the first of them: second hands on the concatenation (10), with
    # nothing else to keep
    assert [module.boundary_bytes for module in modules] == [4 * 8, 4 * 10, 4]
    assert [module.boundary_bytes_with_skips for module in modules] == [4 * 8, 4 * 10, 4]
    with torch.device("meta"):
        modules = count_modules(CATALOGUE["neumf_ml1m"].build(1))
    assert [module.boundary_bytes for module in modules] == [1024, 512, 256, 128, 4]
    assert [module.boundary_bytes_with_skips for module in modules] == [1024 + 128, 512 + 128, 256 + 128, 128 + 128, 4]


@pytest.mark.parametrize("name", ["resnet18_cifar10", "neumf_ml1m", "gpt2_small_1024"])
def test_a_step_with_frozen_units_takes_what_the_shares_say(name):
    with torch.device("meta"):
        work = CATALOGUE[name].build(1)
        profile = LayerProfile(name, "", work.optimizer, count_modules(work))
        saved = profile.column("saved_activation_bytes")
        for frozen in (1, len(profile) // 2, len(profile) - 1):
            assert sum(saved_bytes(work, frozen)) == saved[frozen:].sum()
            with frozen_prefix(work, frozen):
                params = [param.numel() for param in work.model.parameters() if param.requires_grad]
                with flop_counter() as counter:
                    work.loss(work.model(*work.inputs))
                    forward = counter.get_total_flops()
            assert sum(params) / profile.params == pytest.approx(profile.param_share()[frozen])
            assert forward == profile.column("forward_flops").sum()


def test_a_frozen_step_trains_the_rest_only():
    torch.manual_seed(0)
    model = chain({"a": nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), "b": nn.Linear(4, 4), "c": nn.Linear(4, 1)})
    work = work_of(model, torch.randn(8, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with frozen_prefix(work, 1):
        costs = training_step(work, CpuClock(), 1, optimizers_of(work, 1))
    changed = {name.split(".")[0] for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"b", "c"}  # not even the running statistics of a
    assert costs.backward[0] == costs.optimizer[0] == 0.0
    assert all(param.requires_grad for param in model.parameters())
    assert torch.is_grad_enabled()


def test_units_must_run_in_their_order_and_hold_every_parameter():
    x = torch.randn(2, 4)
    with pytest.raises(ProfileError, match="unit second ran where first was expected"):
        count_modules(work_of(Swapped(), x, units=("first", "second", "third")))
    with pytest.raises(ProfileError, match=r"parameter third\.weight is in none of the units first second"):
        work_of(Skipping(), x, units=("first", "second"))
    with pytest.raises(ProfileError, match="fourth is no submodule of the model; its children are first second third"):
        work_of(Skipping(), x, units=("first", "fourth"))
    with pytest.raises(ProfileError, match="expected at least two different submodules"):
        work_of(Skipping(), x, units=("first",))


class Swapped(Skipping):
    def forward(self, x):
        self.second(torch.zeros(2, 8))
        return super().forward(x)


def test_meta_and_cpu_counts_agree():
    counts = []
    for device in ("cpu", "meta"):
        with torch.device(device):
            counts.append(count_modules(CATALOGUE["resnet18_cifar10"].build(1)))
    for field in ("params", "forward_flops", "backward_flops", "frontier_backward_flops", "boundary_bytes"):
        assert np.array_equal(*([getattr(module, field) for module in modules] for modules in counts)), field
    saved = [np.array([module.saved_activation_bytes for module in modules]) for modules in counts]
    assert saved[0] == pytest.approx(saved[1], rel=1e-3)
