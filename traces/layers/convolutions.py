"""What convolutional networks share: convolution with BatchNorm, the classifier's head and loss, images."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


def conv_bn(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, activation: nn.Module | None = None
) -> nn.Sequential:
    """Convolution without bias that keeps the size (divided by the stride), BatchNorm and an activation if any."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), *([] if activation is None else [activation]))


def pooled_head(features: int, classes: int) -> nn.Sequential:
    """Mean over the image, then one linear layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(features, classes))


def images(batch: int, size: int) -> tuple[Tensor]:
    return (torch.randn(batch, 3, size, size),)


def classification(batch: int, classes: int) -> Callable[[Tensor], Tensor]:
    """Cross-entropy with random labels."""
    labels = torch.randint(classes, (batch,))
    return lambda logits: functional.cross_entropy(logits, labels)
