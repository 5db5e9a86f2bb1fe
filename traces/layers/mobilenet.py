"""MobileNetV2 of width 1 (Sandler et al., CVPR'18), for ImageNet and with fewer strides for CIFAR."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from traces.layers.convolutions import classification, conv_bn, images, pooled_head
from traces.layers.workload import Workload, chain

# Table 2 of the paper: expansion, outputs, repetitions, stride; how many blocks make a unit.
STAGES = (
    (1, 16, 1, 1, 1),
    (6, 24, 2, 2, 2),
    (6, 32, 3, 2, 2),
    (6, 64, 4, 2, 2),
    (6, 96, 3, 1, 2),
    (6, 160, 3, 2, 2),
    (6, 320, 1, 1, 1),
)


class InvertedResidual(nn.Module):
    """Expansion by 1 x 1, depthwise 3 x 3, linear projection by 1 x 1; a shortcut where the shape stays."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        parts = [] if expansion == 1 else [conv_bn(inputs, width, 1, activation=nn.ReLU6())]
        parts += [conv_bn(width, width, 3, stride, groups=width, activation=nn.ReLU6()), conv_bn(width, outputs, 1)]
        self.body = nn.Sequential(*parts)
        self.same = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return x + out if self.same else out


def mobilenetv2(batch: int, size: int, classes: int, stem_stride: int, strides: Sequence[int]) -> Workload:
    units: dict[str, nn.Module] = {"stem": conv_bn(3, 32, 3, stem_stride, activation=nn.ReLU6())}
    inputs = 32
    for stage, ((expansion, outputs, repeat, _, together), stride) in enumerate(
        zip(STAGES, strides, strict=True), start=1
    ):
        blocks = []
        for block in range(repeat):
            blocks.append(InvertedResidual(inputs, outputs, stride if block == 0 else 1, expansion))
            inputs = outputs
        for first in range(0, repeat, together):
            suffix = "ab"[first // together] if repeat > together else ""
            units[f"block{stage}{suffix}"] = nn.Sequential(*blocks[first : first + together])
    units["conv_last"] = conv_bn(inputs, 1280, 1, activation=nn.ReLU6())
    units["head"] = pooled_head(1280, classes)
    return Workload(chain(units), images(batch, size), classification(batch, classes))


def mobilenetv2_imagenet(batch: int) -> Workload:
    return mobilenetv2(batch, 224, 1000, 2, [stage[3] for stage in STAGES])


def mobilenetv2_cifar10(batch: int) -> Workload:
    """No stride in the stem and in the second stage, so that 4 x 4 are left of 32 x 32."""
    return mobilenetv2(batch, 32, 10, 1, (1, 1, 2, 2, 1, 2, 1))
