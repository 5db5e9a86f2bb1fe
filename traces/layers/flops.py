"""FLOPs of operations that PyTorch's counter does not know or gets wrong; 2 a multiply-add as everywhere.

The stock formula for the backward pass of a grouped convolution takes its weights for dense ones: for the depthwise
layers of MobileNetV2 it is too large by the number of channels.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

Shape = tuple[int, ...]


def flop_counter() -> FlopCounterMode:
    """The counter with our formulas."""
    return FlopCounterMode(display=False, custom_mapping=FORMULAS)


def convolution_backward(
    grad: Shape,
    x: Shape,
    weight: Shape,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    wanted: tuple[bool, bool, bool],
    out_shape: Any = None,
) -> int:
    """Gradients of input and weight (``wanted``) take as much as the forward pass, whatever the groups."""
    pixels = x[2:] if transposed else grad[2:]
    return 2 * x[0] * prod(pixels) * prod(weight) * (wanted[0] + wanted[1])


def lstm_forward(x: Shape, *given: Any, **_: Any) -> int:
    """A fused layer on x (time, batch, inputs), either order: each step multiplies with every weight matrix."""
    return 2 * x[0] * x[1] * sum(prod(matrix) for matrix in _matrices(given))


def lstm_backward(x: Shape, *given: Any, **_: Any) -> int:
    """Fused layers compute the gradients of input and weights always."""
    return 2 * lstm_forward(x, *given)


def _matrices(given: tuple[Any, ...]) -> list[Shape]:
    """Weights among the arguments after x: four of a direction on CPUs, or a list of all; biases have one axis."""
    weights = given[0] if isinstance(given[0], list) else given[:4]
    return [weight for weight in weights if len(weight) == 2]


def attention_forward(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]


def attention_backward(grad: Shape, query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return int(sdpa_backward_flop_count(grad, query, key, value))  # type: ignore[no-untyped-call]


aten = torch.ops.aten
FORMULAS: dict[Any, Any] = {
    aten.convolution_backward: convolution_backward,
    aten.mkldnn_rnn_layer: lstm_forward,
    aten.mkldnn_rnn_layer_backward: lstm_backward,
    aten._cudnn_rnn: lstm_forward,
    aten._cudnn_rnn_backward: lstm_backward,
    aten._scaled_dot_product_flash_attention_for_cpu: attention_forward,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
}
