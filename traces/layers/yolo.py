"""YOLOv3 on Darknet-53 (Redmon and Farhadi, 2018), 416 pixels.

A unit takes and returns a tuple whose first tensor is the main path; after it come the features that later units read
and the outputs so far. The loss is a stand-in: binary cross-entropy of every output against random targets, without
the assignment of boxes, which costs next to nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from traces.layers.convolutions import conv_bn, images
from traces.layers.workload import Workload, chain


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return conv_bn(inputs, outputs, kernel, stride, activation=nn.LeakyReLU(0.1))


class Shortcut(nn.Module):
    """x + 3 x 3 (1 x 1 x), halving the channels in between."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(channels, channels // 2, 1), conv(channels // 2, channels, 3))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.body(x)
        return out


class Stage(nn.Module):
    """Layers on the main path; ``keep`` also hands their output to later units."""

    def __init__(self, *layers: nn.Module, keep: bool = False) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.keep = keep

    def forward(self, state: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x, *kept = (state,) if isinstance(state, Tensor) else state
        x = self.layers(x)
        return (x, *kept, x) if self.keep else (x, *kept)


class Head(nn.Module):
    """Predictions at one scale; where ``above`` is set, 1 x 1 and upsampling lead on to the next finer one.

    State in: main path, features kept for the finer scales (the last one is read here unless this is the coarsest),
    outputs so far. State out: the same without the features read here, or the outputs alone after the finest scale.
    """

    def __init__(self, inputs: int, width: int, outputs: int, kept: int, first: bool = False) -> None:
        super().__init__()
        self.first, self.kept = first, kept
        layers = [conv(inputs, width, 1), conv(width, 2 * width, 3), conv(2 * width, width, 1)]
        self.neck = nn.Sequential(*layers, conv(width, 2 * width, 3), conv(2 * width, width, 1))
        self.predict = nn.Sequential(conv(width, 2 * width, 3), nn.Conv2d(2 * width, outputs, 1))
        self.lead = nn.Sequential(conv(width, width // 2, 1), nn.Upsample(scale_factor=2)) if kept else None

    def forward(self, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x, *rest = state
        if not self.first:
            x = torch.cat([x, rest.pop(self.kept)], 1)
        x = self.neck(x)
        prediction = self.predict(x)
        return (*rest, prediction) if self.lead is None else (self.lead(x), *rest, prediction)


def yolov3(batch: int, classes: int) -> Workload:
    outputs = 3 * (classes + 5)  # three anchors, each with a box, an objectness and the classes
    units: dict[str, nn.Module] = {
        "stage1": Stage(conv(3, 32, 3), conv(32, 64, 3, 2), Shortcut(64)),
        "stage2": Stage(conv(64, 128, 3, 2), *(Shortcut(128) for _ in range(2))),
        "stage3a": Stage(conv(128, 256, 3, 2), *(Shortcut(256) for _ in range(4))),
        "stage3b": Stage(*(Shortcut(256) for _ in range(4)), keep=True),
        "stage4a": Stage(conv(256, 512, 3, 2), *(Shortcut(512) for _ in range(4))),
        "stage4b": Stage(*(Shortcut(512) for _ in range(4)), keep=True),
        "stage5a": Stage(conv(512, 1024, 3, 2), *(Shortcut(1024) for _ in range(2))),
        "stage5b": Stage(*(Shortcut(1024) for _ in range(2))),
        "head_coarse": Head(1024, 512, outputs, kept=2, first=True),
        "head_middle": Head(256 + 512, 256, outputs, kept=1),
        "head_fine": Head(128 + 256, 128, outputs, kept=0),
    }
    targets = [torch.rand(batch, outputs, size, size) for size in (13, 26, 52)]

    def loss(predictions: tuple[Tensor, ...]) -> Tensor:
        pairs = zip(predictions, targets, strict=True)
        return torch.stack([functional.binary_cross_entropy_with_logits(*pair) for pair in pairs]).sum()

    return Workload(chain(units), images(batch, 416), loss)


def yolov3_voc416(batch: int) -> Workload:
    return yolov3(batch, 20)
