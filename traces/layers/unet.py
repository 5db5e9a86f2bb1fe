"""The U-Net of DDPM for CIFAR-10 (Ho et al., NeurIPS'20, appendix B): 128 channels times 1, 2, 2, 2; attention at 16.

A unit takes and returns a tuple (features, embedded time, skip tensors ...): the way down appends skips, the way up
takes the last one for each of its blocks.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from traces.layers.workload import Workload, chain

CHANNELS, TIME, GROUPS = 128, 512, 32
State = tuple[Tensor, ...]


class ResBlock(nn.Module):
    """Two convolutions after GroupNorm and SiLU, the time added in between; 1 x 1 shortcut where channels change."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(GROUPS, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, 1, 1))
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(TIME, outputs))
        self.second = nn.Sequential(nn.GroupNorm(GROUPS, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, 1, 1))
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        hidden = self.first(x) + self.time(time)[:, :, None, None]
        out: Tensor = self.shortcut(x) + self.second(hidden)
        return out


class Attention(nn.Module):
    """One head over all pixels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.query, self.key, self.value, self.project = (nn.Conv2d(channels, channels, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        query, key, value = (part(normed).flatten(2) for part in (self.query, self.key, self.value))
        weights = (query.transpose(1, 2) @ key * x.shape[1] ** -0.5).softmax(-1)
        mixed = (value @ weights.transpose(1, 2)).view_as(x)
        out: Tensor = x + self.project(mixed)
        return out


class Step(nn.Module):
    """A ResBlock, and attention where the picture has 16 x 16 pixels."""

    def __init__(self, inputs: int, outputs: int, attention: bool) -> None:
        super().__init__()
        self.block = ResBlock(inputs, outputs)
        self.attention = Attention(outputs) if attention else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        out: Tensor = self.attention(self.block(x, time))
        return out


class Start(nn.Module):
    """First convolution, and the sinusoidal embedding of the time with its two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 3, 1, 1)
        self.time = nn.Sequential(nn.Linear(CHANNELS, TIME), nn.SiLU(), nn.Linear(TIME, TIME))

    def forward(self, given: State) -> State:
        image, time = given
        half = CHANNELS // 2
        rates = torch.exp(torch.arange(half, device=image.device) * (-math.log(10000) / (half - 1)))
        angles = time[:, None] * rates
        x = self.conv(image)
        return x, self.time(torch.cat([angles.sin(), angles.cos()], 1)), x


class Down(nn.Module):
    def __init__(self, inputs: int, outputs: int, attention: bool, halve: bool) -> None:
        super().__init__()
        self.steps = nn.ModuleList(Step(size, outputs, attention) for size in (inputs, outputs))
        self.halve = nn.Conv2d(outputs, outputs, 3, 2, 1) if halve else None

    def forward(self, state: State) -> State:
        x, time, *skips = state
        for step in self.steps:
            x = step(x, time)
            skips.append(x)
        if self.halve is not None:
            x = self.halve(x)
            skips.append(x)
        return (x, time, *skips)


class Middle(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.steps = nn.ModuleList(Step(channels, channels, attention) for attention in (True, False))

    def forward(self, state: State) -> State:
        x, time, *skips = state
        for step in self.steps:
            x = step(x, time)
        return (x, time, *skips)


class Up(nn.Module):
    def __init__(self, inputs: int, skips: tuple[int, int, int], outputs: int, attention: bool, enlarge: bool) -> None:
        super().__init__()
        sizes = zip((inputs, outputs, outputs), skips, strict=True)
        self.steps = nn.ModuleList(Step(size + skip, outputs, attention) for size, skip in sizes)
        self.enlarge = nn.Conv2d(outputs, outputs, 3, 1, 1) if enlarge else None

    def forward(self, state: State) -> State:
        x, time, *skips = state
        for step in self.steps:
            x = step(torch.cat([x, skips.pop()], 1), time)
        if self.enlarge is not None:
            x = self.enlarge(functional.interpolate(x, scale_factor=2))
        return (x, time, *skips)


class End(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.GroupNorm(GROUPS, CHANNELS), nn.SiLU(), nn.Conv2d(CHANNELS, 3, 3, 1, 1))

    def forward(self, state: State) -> Tensor:
        out: Tensor = self.layers(state[0])
        return out


def ddpm_unet_cifar10(batch: int) -> Workload:
    c = CHANNELS
    units: dict[str, nn.Module] = {
        "start": Start(),
        "down1": Down(c, c, False, True),  # 32 px
        "down2": Down(c, 2 * c, True, True),  # 16 px
        "down3": Down(2 * c, 2 * c, False, True),
        "down4": Down(2 * c, 2 * c, False, False),  # 4 px
        "middle": Middle(2 * c),
        "up4": Up(2 * c, (2 * c, 2 * c, 2 * c), 2 * c, False, True),
        "up3": Up(2 * c, (2 * c, 2 * c, 2 * c), 2 * c, False, True),
        "up2": Up(2 * c, (2 * c, 2 * c, c), 2 * c, True, True),
        "up1": Up(2 * c, (c, c, c), c, False, False),
        "end": End(),
    }
    noise = torch.randn(batch, 3, 32, 32)

    def loss(predicted: Tensor) -> Tensor:
        return functional.mse_loss(predicted, noise)

    given = (torch.randn(batch, 3, 32, 32), torch.randint(1000, (batch,)))
    return Workload(chain(units), (given,), loss, optimizer="adam")
