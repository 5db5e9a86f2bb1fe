"""What of a model can be counted: parameters, FLOPs, bytes kept for the backward pass, bytes handed on.

It takes real steps, but on the meta device these have shapes only and cost nothing. The numbers are those of
:class:`traces.layer_profiles.LayerModule`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from traces.layer_profiles import LayerModule
from traces.layers.flops import flop_counter
from traces.layers.meters import FlopMeter
from traces.layers.step import frozen_prefix, training_step
from traces.layers.watch import watch
from traces.layers.workload import Workload, tensors_in


def count_modules(work: Workload) -> tuple[LayerModule, ...]:
    """Count every unit, FLOPs and bytes a sample."""
    forward, backward, frontier = count_flops(work)
    saved, (boundary, with_skips) = saved_bytes(work), boundary_bytes(work)
    params = [sum(param.numel() for param in unit) for unit in work.params_by_unit()]
    columns = (forward, backward, frontier, saved, boundary, with_skips)
    return tuple(
        LayerModule(name, params[number], *(column[number] / work.batch for column in columns))
        for number, name in enumerate(work.units)
    )


def count_flops(work: Workload) -> tuple[list[float], list[float], list[float]]:
    """Forward, backward and frontier backward FLOPs of each unit; the last from a step with those before it frozen."""
    costs = []
    for frozen in range(len(work.units)):
        with frozen_prefix(work, frozen), flop_counter() as counter:
            costs.append(training_step(work, FlopMeter(counter), frozen))
        _drop_gradients(work)
    frontier = [cost.backward[frozen] for frozen, cost in enumerate(costs)]
    return costs[0].forward, costs[0].backward, frontier


def saved_bytes(work: Workload, frozen: int = 0) -> list[float]:
    """Bytes that a step keeps for its backward pass; a storage kept by several units counts in the last of them."""
    where = _Place()
    resident = {_key(tensor) for tensor in _resident(work)}
    kept: dict[int, tuple[UntypedStorage, int]] = {}

    def pack(tensor: Tensor) -> Tensor:
        if _key(tensor) not in resident:
            kept[_key(tensor)] = (tensor.untyped_storage(), max(where.unit, 0))
        return tensor

    with frozen_prefix(work, frozen), saved_tensors_hooks(pack, lambda tensor: tensor), where.follow(work, frozen):
        work.loss(work.model(*work.inputs))
    return _sums(work, kept)


def boundary_bytes(work: Workload) -> tuple[list[float], list[float]]:
    """Bytes of each unit's output that the next one reads; and all that is read later than the unit, by its makers.

    The second is what a cache of the frozen part's output would store. The model's output counts as read at the end.
    """
    where = _Place()
    trace = _Reads(where, {_key(tensor) for tensor in (*_resident(work), *tensors_in(work.inputs))})
    work.model.eval()
    with torch.no_grad(), trace, where.follow(work):
        output = work.model(*work.inputs)
    where.unit = len(work.units)
    trace.note(output)
    units = range(len(work.units))
    entries = trace.made.values()
    handed = [sum(s.nbytes() for s, made, reads in entries if made == unit and unit + 1 in reads) for unit in units]
    later = [sum(s.nbytes() for s, made, reads in entries if made <= unit < max(reads)) for unit in units]
    return [float(size) for size in handed], [float(size) for size in later]


class _Place:
    """Which unit runs: -1 before the first."""

    unit = -1

    @contextmanager
    def follow(self, work: Workload, frozen: int = 0) -> Iterator[None]:
        def enter(number: int, *_: Any) -> None:
            self.unit = number
            if number == frozen:
                torch.set_grad_enabled(recording)

        recording = torch.is_grad_enabled()
        with torch.set_grad_enabled(recording and frozen == 0), watch(work.unit_modules(), enter):
            yield


class _Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """For every storage made: in which unit, and in which units an operation read it."""

    def __init__(self, where: _Place, ignore: set[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.where, self.ignore = where, ignore
        self.made: dict[int, tuple[UntypedStorage, int, set[int]]] = {}

    def __torch_dispatch__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.note((args, kwargs or {}))
        out = func(*args, **(kwargs or {}))
        self.note(out)
        return out

    def note(self, value: Any) -> None:
        for tensor in tensors_in(value):
            if _key(tensor) not in self.ignore:
                entry = (tensor.untyped_storage(), max(self.where.unit, 0), set[int]())
                self.made.setdefault(_key(tensor), entry)[2].add(self.where.unit)


def _key(tensor: Tensor) -> int:
    """Identity of a tensor's storage, which must be kept alive as long as the key is in use."""
    return int(tensor.untyped_storage()._cdata)


def _resident(work: Workload) -> list[Tensor]:
    """What is in memory whether or not anything is trained."""
    return [*work.model.parameters(), *work.model.buffers()]


def _drop_gradients(work: Workload) -> None:
    for param in work.model.parameters():
        param.grad = None


def _sums(work: Workload, kept: dict[int, tuple[UntypedStorage, int]]) -> list[float]:
    sizes = [0.0] * len(work.units)
    for storage, unit in kept.values():
        sizes[unit] += storage.nbytes()
    return sizes
