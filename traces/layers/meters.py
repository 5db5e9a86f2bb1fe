"""What a step is measured with: CPU time, time on a CUDA stream, or FLOPs counted so far."""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch
from torch.utils.flop_counter import FlopCounterMode

from traces.profiles import ProfileError


class Meter(Protocol):
    def read(self) -> Any: ...

    def between(self, first: Any, second: Any) -> float:
        """What passed between two readings; called only after :meth:`finish`."""

    def finish(self) -> None:
        """Wait until every reading has its value."""


class CpuClock:
    """CPU time of the process [s]: other processes on the machine disturb it least."""

    def read(self) -> float:
        return time.process_time()

    def between(self, first: float, second: float) -> float:
        return second - first

    def finish(self) -> None:
        pass


class CudaClock:
    """Time on the current stream [s] by events, without waiting in between."""

    def read(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def between(self, first: Any, second: Any) -> float:
        return float(first.elapsed_time(second)) / 1e3

    def finish(self) -> None:
        torch.cuda.synchronize()


class FlopMeter:
    """FLOPs that a counter in use has seen."""

    def __init__(self, counter: FlopCounterMode) -> None:
        self.counter = counter

    def read(self) -> int:
        return int(self.counter.get_total_flops())

    def between(self, first: int, second: int) -> float:
        return float(second - first)

    def finish(self) -> None:
        pass


def clock_for(device: torch.device) -> Meter:
    """The clock of a device; ProfileError for a kind that has none."""
    if device.type == "cpu":
        return CpuClock()
    if device.type == "cuda":
        return CudaClock()
    raise ProfileError(f"device {device} has no clock here, expected cpu or cuda")
