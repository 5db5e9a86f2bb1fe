"""VGG-19 with BatchNorm for CIFAR (Simonyan and Zisserman, ICLR'15; one linear layer as in Liu et al., ICCV'17)."""

from __future__ import annotations

from torch import nn

from traces.layers.convolutions import classification, conv_bn, images, pooled_head
from traces.layers.workload import Workload, chain

WIDTHS = ((64, 64), (128, 128), (256,) * 4, (512,) * 4, (512,) * 4)  # a pooling after each group


def vgg19bn_cifar10(batch: int) -> Workload:
    """Sixteen convolutions, the first two as one unit."""
    convolutions: list[nn.Module] = []
    inputs = 3
    for group in WIDTHS:
        for number, width in enumerate(group, start=1):
            layer = conv_bn(inputs, width, 3, activation=nn.ReLU())
            convolutions.append(nn.Sequential(layer, nn.MaxPool2d(2)) if number == len(group) else layer)
            inputs = width
    units: dict[str, nn.Module] = {"conv1-2": nn.Sequential(*convolutions[:2])}
    units |= {f"conv{number}": layer for number, layer in enumerate(convolutions[2:], start=3)}
    units["head"] = pooled_head(512, 10)
    return Workload(chain(units), images(batch, 32), classification(batch, 10))
