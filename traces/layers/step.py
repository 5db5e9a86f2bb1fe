"""One training step with the first k units frozen, measured unit by unit.

Frozen units run in eval mode without autograd, and their parameters are not in the optimizer. Forward, a unit lasts
until the next one starts. Backward, it lasts until the gradient of its input is complete: autograd runs its nodes in
the reverse of the order of their making, so the first gradient to reach an input of unit i ends its part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, AdamW, Optimizer

from traces.layers.meters import Meter
from traces.layers.watch import watch
from traces.layers.workload import Workload, tensors_in

LEARNING_RATE = 1e-4  # small: the weights must stay finite while random labels are learnt


@dataclass(frozen=True)
class StepCosts:
    """By unit and in the unit of the meter; the loss counts in the last unit."""

    forward: list[float]
    backward: list[float]  # 0 for frozen units
    optimizer: list[float]  # zeroing of gradients and the optimizer's step

    @property
    def parts(self) -> list[float]:
        """All of it, in an order that is the same for every step of a model."""
        return [*self.forward, *self.backward, *self.optimizer]


def optimizers_of(work: Workload, frozen: int = 0) -> dict[int, Optimizer]:
    """An optimizer for each unit from ``frozen`` on that trains anything: one a unit, so that its time is known."""
    kinds: dict[str, Callable[..., Optimizer]] = {"sgd": partial(SGD, momentum=0.9), "adam": AdamW}
    make = partial(kinds[work.optimizer], lr=LEARNING_RATE)
    return {unit: make(held) for unit, held in enumerate(work.params_by_unit()) if unit >= frozen and held}


@contextmanager
def frozen_prefix(work: Workload, frozen: int) -> Iterator[None]:
    """The model in training mode but for its first ``frozen`` units, which are in eval mode and need no gradients."""
    work.model.train()
    held = [param for unit in work.params_by_unit()[:frozen] for param in unit]
    for unit in list(work.unit_modules().values())[:frozen]:
        unit.eval()
    for param in held:
        param.requires_grad_(False)
    try:
        yield
    finally:
        for param in held:
            param.requires_grad_(True)


def training_step(
    work: Workload, meter: Meter, frozen: int = 0, optimizers: Mapping[int, Optimizer] | None = None
) -> StepCosts:
    """One step under :func:`frozen_prefix`; without optimizers gradients are left in place."""
    starts: list[Any] = []
    ends: dict[int, Any] = {}  # of the units' backward parts

    def end(number: int, _: Tensor) -> None:
        if number not in ends:
            ends[number] = meter.read()

    def enter(number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        starts.append(meter.read())
        if number == frozen:
            torch.set_grad_enabled(True)
        for tensor in tensors_in((args, kwargs)):
            if number > 0 and tensor.requires_grad:
                tensor.register_hook(partial(end, number))  # type: ignore[no-untyped-call]

    used = optimizers or {}
    zeroing = _each(meter, used, lambda optimizer: optimizer.zero_grad(set_to_none=True))
    with torch.set_grad_enabled(frozen == 0), watch(work.unit_modules(), enter):
        begin = meter.read()
        loss = work.loss(work.model(*work.inputs))
    middle = meter.read()
    loss.backward()  # type: ignore[no-untyped-call]
    done = meter.read()
    stepping = _each(meter, used, lambda optimizer: optimizer.step())
    meter.finish()
    costs = [dict(zip(used, _differences(meter, readings), strict=True)) for readings in (zeroing, stepping)]
    return StepCosts(
        forward=_differences(meter, [begin, *starts[1:], middle]),
        backward=_backward(meter, len(starts), frozen, middle, ends, done),
        optimizer=[sum(cost.get(unit, 0.0) for cost in costs) for unit in range(len(starts))],
    )


def _each(meter: Meter, optimizers: Mapping[int, Optimizer], act: Callable[[Optimizer], Any]) -> list[Any]:
    """Do something to every optimizer; readings before the first and after each."""
    readings = [meter.read()]
    for optimizer in optimizers.values():
        act(optimizer)
        readings.append(meter.read())
    return readings


def inference_pass(work: Workload, meter: Meter) -> list[float]:
    """What each unit takes in eval mode without autograd."""
    work.model.eval()
    starts: list[Any] = []
    with torch.no_grad(), watch(work.unit_modules(), lambda *_: starts.append(meter.read())):
        begin = meter.read()
        work.model(*work.inputs)
        end = meter.read()
    meter.finish()
    return _differences(meter, [begin, *starts[1:], end])


def _differences(meter: Meter, readings: list[Any]) -> list[float]:
    return [meter.between(first, second) for first, second in pairwise(readings)]


def _backward(meter: Meter, count: int, frozen: int, start: Any, ends: dict[int, Any], done: Any) -> list[float]:
    """Parts of the backward pass; one without an end (no gradient leaves it) lasts until all is done."""
    costs = [0.0] * count
    for number in range(count - 1, frozen - 1, -1):
        stop = ends.get(number, done)
        costs[number] = meter.between(start, stop)
        start = stop
    return costs
