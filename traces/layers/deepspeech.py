"""DeepSpeech2 (Amodei et al., ICML'16) with five bidirectional LSTM layers of 1024, as Pollux trains it.

Two convolutions over time and frequency, then recurrent layers whose directions are summed, each but the first after
BatchNorm over time. The loss is the cross-entropy of random characters frame by frame in place of CTC, which costs as
little beside the LSTMs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from traces.layers.workload import Workload, chain

BINS, WIDTH, CHARACTERS = 161, 1024, 29


class SequenceNorm(nn.Module):
    """BatchNorm over batch and time of x (batch, time, features)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(x.flatten(0, 1))
        return out.view_as(x)


class BiLSTM(nn.Module):
    """x (batch, time, inputs) to (batch, time, WIDTH): the sum of both directions."""

    def __init__(self, inputs: int, norm: bool) -> None:
        super().__init__()
        self.norm = SequenceNorm(inputs) if norm else nn.Identity()
        self.lstm = nn.LSTM(inputs, WIDTH, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        both, _ = self.lstm(self.norm(x))
        forwards, backwards = torch.chunk(both, 2, dim=-1)
        return forwards + backwards


class Frames(nn.Module):
    """(batch, channels, frequency, time) to (batch, time, features)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1, 2).transpose(1, 2).contiguous()


def _conv(inputs: int, kernel: tuple[int, int], stride: tuple[int, int]) -> nn.Sequential:
    padding = (kernel[0] // 2, kernel[1] // 2)
    conv = nn.Conv2d(inputs, 32, kernel, stride, padding, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(32), nn.Hardtanh(0, 20))


def deepspeech2(batch: int, frames: int = 300) -> Workload:
    """300 frames are 3 s of speech."""
    units: dict[str, nn.Module] = {
        "conv1": _conv(1, (41, 11), (2, 2)),
        "conv2": nn.Sequential(_conv(32, (21, 11), (2, 1)), Frames()),
        "bilstm1": BiLSTM(32 * 41, norm=False),  # 161 bins, halved twice
    }
    units |= {f"bilstm{number}": BiLSTM(WIDTH, norm=True) for number in range(2, 6)}
    units["head"] = nn.Sequential(SequenceNorm(WIDTH), nn.Linear(WIDTH, CHARACTERS, bias=False))
    spoken = torch.randint(CHARACTERS, (batch * ((frames + 1) // 2),))

    def loss(scores: Tensor) -> Tensor:
        return functional.cross_entropy(scores.flatten(0, 1), spoken)

    return Workload(chain(units), (torch.randn(batch, 1, BINS, frames),), loss)
