"""Residual networks (He et al., CVPR'16): ResNet-18 with the stem for CIFAR, ResNet-50 for ImageNet.

Stride 2 of a bottleneck is in its 3 x 3 convolution, as in torchvision (4.09 GMAC; in the 1 x 1 of the paper: 3.8).
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from traces.layers.convolutions import classification, conv_bn, images, pooled_head
from traces.layers.workload import Workload, chain


class Residual(nn.Module):
    """relu(body(x) + shortcut(x)); the shortcut is a 1 x 1 convolution where the shape changes."""

    def __init__(self, body: nn.Sequential, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = body
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else conv_bn(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


def basic(inputs: int, width: int, stride: int = 1) -> Residual:
    body = nn.Sequential(conv_bn(inputs, width, 3, stride, activation=nn.ReLU()), conv_bn(width, width, 3))
    return Residual(body, inputs, width, stride)


def bottleneck(inputs: int, width: int, stride: int = 1) -> Residual:
    body = nn.Sequential(
        conv_bn(inputs, width, 1, activation=nn.ReLU()),
        conv_bn(width, width, 3, stride, activation=nn.ReLU()),
        conv_bn(width, 4 * width, 1),
    )
    return Residual(body, inputs, 4 * width, stride)


def resnet18_cifar10(batch: int) -> Workload:
    units: dict[str, nn.Module] = {"stem": conv_bn(3, 64, 3, activation=nn.ReLU())}
    inputs = 64
    for stage, width in enumerate((64, 128, 256, 512), start=1):
        for block in range(2):
            stride = 2 if stage > 1 and block == 0 else 1
            units[f"layer{stage}_{block}"] = basic(inputs, width, stride)
            inputs = width
    units["head"] = pooled_head(512, 10)
    return Workload(chain(units), images(batch, 32), classification(batch, 10))


def resnet50_imagenet(batch: int) -> Workload:
    """The six blocks of the third stage make three units, so that K stays below 16."""
    stem = nn.Sequential(conv_bn(3, 64, 7, 2, activation=nn.ReLU()), nn.MaxPool2d(3, 2, 1))
    units: dict[str, nn.Module] = {"stem": stem}
    inputs = 64
    for stage, (width, blocks, together) in enumerate(((64, 3, 1), (128, 4, 1), (256, 6, 2), (512, 3, 1)), start=1):
        for first in range(0, blocks, together):
            parts = []
            for block in range(first, first + together):
                parts.append(bottleneck(inputs, width, 2 if stage > 1 and block == 0 else 1))
                inputs = 4 * width
            name = f"layer{stage}_{first}" + (f"-{first + together - 1}" if together > 1 else "")
            units[name] = nn.Sequential(*parts)
    units["head"] = pooled_head(2048, 1000)
    return Workload(chain(units), images(batch, 224), classification(batch, 1000))
