"""Times of a training step by unit, from the step without freezing alone.

A round is: a step without freezing, an inference pass, and each unit by itself, backward with and without the
gradient of its input. What that gradient costs is taken from the last as a ratio and applied to the time in the step,
so that the effects of running alone (warm caches, other gradients) cancel. Of all rounds the least time counts.
"""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from traces.layer_profiles import LayerTimes
from traces.layers.meters import Meter
from traces.layers.step import StepCosts, frozen_prefix, inference_pass, optimizers_of, training_step
from traces.layers.watch import watch
from traces.layers.workload import Workload, map_tensors, tensors_in
from traces.profiles import Array

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's mallopt


class UnitTimes:
    """Collects rounds; the first step of the optimizers, which makes their state, is not counted."""

    def __init__(self, work: Workload, clock: Meter) -> None:
        self.work, self.clock = work, clock
        self.optimizers = optimizers_of(work)
        self.rounds: list[tuple[list[float], ...]] = []
        self._step()

    def sample(self) -> None:
        """One round."""
        step = self._step()
        inference = inference_pass(self.work, self.clock)
        full, frontier = self._alone()
        self.rounds.append((step.forward, inference, step.backward, full, frontier, step.optimizer))

    def result(self, device: str) -> LayerTimes:
        forward, inference, backward, full, frontier, optimizer = (
            np.array(rows, dtype=np.float64).min(axis=0) for rows in zip(*self.rounds, strict=True)
        )
        ratio: Array = np.divide(frontier, full, out=np.ones_like(full), where=full > 0)
        return LayerTimes(
            device=device,
            torch=torch.__version__,
            threads=torch.get_num_threads(),
            batch=self.work.batch,
            forward_s=forward,
            eval_forward_s=inference,
            backward_s=backward,
            frontier_backward_s=backward * np.minimum(ratio, 1.0),
            optimizer_s=optimizer,
        )

    def _step(self) -> StepCosts:
        with frozen_prefix(self.work, 0):
            return training_step(self.work, self.clock, 0, self.optimizers)

    def _alone(self) -> tuple[list[float], list[float]]:
        """Backward times of each unit alone on the inputs of a real pass: with and without its input's gradient."""
        calls: list[tuple[Any, list[bool]]] = []

        def enter(_: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            needed = [tensor.requires_grad for tensor in tensors_in((args, kwargs))]
            calls.append((map_tensors((args, kwargs), Tensor.detach), needed))

        units = self.work.unit_modules()
        with frozen_prefix(self.work, 0):
            with watch(units, enter):
                self.work.model(*self.work.inputs)
            full, frontier = [], []
            for unit, (given, needed) in zip(units.values(), calls, strict=True):
                full.append(self._backward(unit, given, needed))
                frontier.append(self._backward(unit, given, [False] * len(needed)) if any(needed) else full[-1])
        return full, frontier

    def _backward(self, unit: nn.Module, given: Any, needed: list[bool]) -> float:
        """Backward time on copies of the inputs (the unit may change them in place) and any gradient."""
        flags = iter(needed)

        def copy(tensor: Tensor) -> Tensor:
            return tensor.clone().requires_grad_(next(flags)).view_as(tensor)

        args, kwargs = map_tensors(given, copy)
        outputs = [tensor for tensor in tensors_in(unit(*args, **kwargs)) if tensor.requires_grad]
        if not outputs:
            return 0.0
        gradients = [torch.randn_like(tensor) for tensor in outputs]
        for param in unit.parameters():
            param.grad = None
        start = self.clock.read()
        torch.autograd.backward(outputs, gradients)
        end = self.clock.read()
        self.clock.finish()
        return self.clock.between(start, end)


def keep_freed_memory() -> None:
    """Let the C library keep what it is given back, as a GPU's caching allocator does; nothing where it is not glibc.

    Otherwise every large tensor is mapped and cleared anew, which in a step costs MobileNetV2 a quarter of its time,
    and frozen modules change how often: half of the error of the prediction.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, -1)


def device_name(place: torch.device) -> str:
    """The name of a GPU or CPU."""
    if place.type == "cuda":
        return torch.cuda.get_device_name(place)
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
