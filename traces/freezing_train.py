"""Trains a narrow residual network while the first k of its modules are frozen, k by epoch.

The images are made here, from a seed: CIFAR-sized, ten classes of four prototypes each, of which every sample is a
bent, turned and shifted copy, mixed with one of another class under noise. No image comes twice, so nothing can be
learnt by heart, and the loss on images set aside tells how far the optimisation has come.
A frozen module runs in eval mode without autograd (its BatchNorm keeps its statistics), its parameters do not move, and
its momentum is forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD

from traces.layers.convolutions import conv_bn, pooled_head
from traces.layers.resnet import basic

CLASSES, PROTOTYPES, SIZE = 10, 4, 32
COARSE = 8  # pixels of a prototype before it is made smooth: no single edge tells a class
BEND = 0.08  # of half an image: standard deviation of the displacement, itself smooth
TEST_SEED = 2**31 - 1  # of the images set aside, the same for every run


@dataclass(frozen=True)
class Training:
    """What all runs share; the learning rate falls from its peak to 0 as a cosine over the epochs of the run."""

    batches: int = 32  # an epoch
    batch: int = 64
    width: int = 8  # channels of the first stage; each further stage has twice as many
    peak_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    noise: float = 1.0  # standard deviation; prototypes have 1
    other: float = 0.8  # largest share of the image of another class
    test_images: int = 2048
    test_every: int = 6  # epochs


class Measured(NamedTuple):
    """Mean test loss [nats] and accuracy after an epoch."""

    epoch: int
    loss: float
    accuracy: float


class Images:
    """An endless stream of labelled images; one task (prototypes) a seed, one stream a (task, seed of the stream)."""

    def __init__(self, settings: Training, task: int, seed: int) -> None:
        self.settings = settings
        coarse = torch.randn(CLASSES, PROTOTYPES, 3, COARSE, COARSE, generator=torch.Generator().manual_seed(task))
        fine = functional.interpolate(coarse.flatten(0, 1), size=SIZE, mode="bicubic", align_corners=False)
        self.prototypes = ((fine - fine.mean((1, 2, 3), True)) / fine.std((1, 2, 3), keepdim=True)).contiguous()
        self.generator = torch.Generator().manual_seed((task + 1) * 1_000_003 + seed)

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """Images (count, 3, 32, 32) float32 and labels (count,) int64."""
        labels = self._integers(CLASSES, count)
        others = (labels + 1 + self._integers(CLASSES - 1, count)) % CLASSES
        share = self._uniform(0.0, self.settings.other, count)[:, None, None, None]
        clean = self._bent(labels) + share * self._bent(others)
        return clean + self.settings.noise * torch.randn(clean.shape, generator=self.generator), labels

    def _bent(self, labels: Tensor) -> Tensor:
        """A prototype of each class, turned up to 0.4 rad, scaled by 0.8 to 1.25, shifted by up to 5 pixels, bent."""
        count = len(labels)
        angle, scale = self._uniform(-0.4, 0.4, count), self._uniform(0.8, 1.25, count)
        cosine, sine = scale * angle.cos(), scale * angle.sin()
        across, down = self._uniform(-0.3, 0.3, count), self._uniform(-0.3, 0.3, count)
        turn = torch.stack([cosine, -sine, across, sine, cosine, down], 1).view(count, 2, 3)
        grid = functional.affine_grid(turn, [count, 3, SIZE, SIZE], align_corners=False)
        bend = BEND * torch.randn(count, 2, 4, 4, generator=self.generator)
        bend = functional.interpolate(bend, size=SIZE, mode="bilinear", align_corners=True)
        chosen = self.prototypes[labels * PROTOTYPES + self._integers(PROTOTYPES, count)]
        return functional.grid_sample(
            chosen, grid + bend.permute(0, 2, 3, 1), padding_mode="border", align_corners=False
        )

    def _uniform(self, low: float, high: float, count: int) -> Tensor:
        return low + (high - low) * torch.rand(count, generator=self.generator)

    def _integers(self, high: int, count: int) -> Tensor:
        return torch.randint(high, (count,), generator=self.generator)


def modules(width: int) -> list[nn.Module]:
    """Stem, two blocks in each of three stages, head: K = 8."""
    parts: list[nn.Module] = [conv_bn(3, width, 3, 2, activation=nn.ReLU())]
    inputs = width
    for stage in range(3):
        for block in range(2):
            parts.append(basic(inputs, width << stage, 2 if stage and not block else 1))
            inputs = width << stage
    return [*parts, pooled_head(inputs, CLASSES)]


class Trainer:
    """A run: ``depths`` says how many modules are frozen in each of its epochs."""

    def __init__(self, settings: Training, task: int, seed: int, depths: Sequence[int]) -> None:
        torch.manual_seed(seed)  # of the weights
        self.settings, self.depths = settings, depths
        self.modules = modules(settings.width)
        self.images = Images(settings, task, seed)
        self.test = Images(settings, task, TEST_SEED).draw(settings.test_images)
        groups = [{"params": list(module.parameters())} for module in self.modules]
        self.optimizer = SGD(groups, lr=0.0, momentum=settings.momentum, weight_decay=settings.weight_decay)

    def run(self) -> Iterator[Measured]:
        """Train; a measurement after every ``test_every`` epochs and after the last one."""
        for epoch, depth in enumerate(self.depths):
            self._set_depth(depth)
            for batch in range(self.settings.batches):
                passed = (epoch + batch / self.settings.batches) / len(self.depths)
                self._step(depth, self.settings.peak_rate * 0.5 * (1.0 + math.cos(math.pi * passed)))
            if (epoch + 1) % self.settings.test_every == 0 or epoch + 1 == len(self.depths):
                yield Measured(epoch + 1, *self._tested())

    def _set_depth(self, depth: int) -> None:
        for number, module in enumerate(self.modules):
            module.train(number >= depth)
            for param in module.parameters() if number < depth else ():
                param.grad = None  # the optimizer passes over it, weight decay included
                self.optimizer.state.pop(param, None)

    def _step(self, depth: int, rate: float) -> None:
        x, labels = self.images.draw(self.settings.batch)
        with torch.no_grad():
            for module in self.modules[:depth]:
                x = module(x)
        for module in self.modules[depth:]:
            x = module(x)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        functional.cross_entropy(x, labels).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    @torch.no_grad()
    def _tested(self) -> tuple[float, float]:
        """Loss and accuracy on the images set aside; the modules go back to the modes they had."""
        training = [module.training for module in self.modules]
        x, labels = self.test
        for module in self.modules:
            x = module.eval()(x)
        for module, mode in zip(self.modules, training, strict=True):
            module.train(mode)
        return float(functional.cross_entropy(x, labels)), float((x.argmax(1) == labels).float().mean())
