"""What is measured: a module, one batch of inputs for it, a loss, and the freezable units in order.

The entry point for a model of one's own is a function without arguments, named as ``package.module:function``, that
returns a module and a tuple of its inputs, or a whole :class:`Workload`.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from traces.layer_profiles import OPTIMIZER_STATES
from traces.profiles import ProfileError


def mean_square(output: Any) -> Tensor:
    """A loss for any model: the mean square of each of its floating-point outputs, summed."""
    parts = [tensor.square().mean() for tensor in tensors_in(output) if tensor.is_floating_point()]
    if not parts:
        raise ProfileError("the model returns no floating-point tensor, so a loss cannot be made of it")
    return torch.stack(parts).sum()


@dataclass(frozen=True)
class Workload:
    """A model and what one training step needs; units empty: the model's children."""

    model: nn.Module
    inputs: tuple[Any, ...]  # positional arguments of the model, with the batch as first axis of the first tensor
    loss: Callable[[Any], Tensor] = mean_square
    units: tuple[str, ...] = ()  # submodules in the order in which they run; together they hold every parameter
    optimizer: str = "sgd"  # a key of OPTIMIZER_STATES
    about: str = ""

    @property
    def batch(self) -> int:
        """Samples: the length of the first tensor among the inputs."""
        return next((len(tensor) for tensor in tensors_in(self.inputs)), 1)

    def unit_modules(self) -> dict[str, nn.Module]:
        return {name: self.model.get_submodule(name) for name in self.units}

    def params_by_unit(self) -> list[list[nn.Parameter]]:
        """Trainable parameters of each unit; one that several units share stands in the last of them."""
        owner: dict[nn.Parameter, int] = {}
        units = list(self.unit_modules().values())
        for number, unit in enumerate(units):
            owner |= {param: number for param in unit.parameters() if param.requires_grad}
        return [[param for param, at in owner.items() if at == number] for number in range(len(units))]


def chain(units: Mapping[str, nn.Module]) -> nn.Sequential:
    """A model that is its units one after the other."""
    return nn.Sequential(OrderedDict(units))


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor in nested tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from (tensor for item in value.values() for tensor in tensors_in(item))
    elif isinstance(value, tuple | list):
        yield from (tensor for item in value for tensor in tensors_in(item))


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nested tuples, lists and dictionaries with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: map_tensors(item, change) for key, item in value.items()}
    if isinstance(value, tuple | list):
        items = [map_tensors(item, change) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def load_workload(place: str, units: tuple[str, ...] = ()) -> Workload:
    """A model of one's own from ``package.module:function``; ``units`` replace those it names.

    Raises ProfileError if it is not there, returns something else, or if its units do not cover its parameters.
    """
    module, _, function = place.partition(":")
    try:
        made = getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError) as error:
        raise ProfileError(f"{place} cannot be called: {error}") from None
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module):
        made = Workload(made[0], made[1] if isinstance(made[1], tuple) else (made[1],))
    if not isinstance(made, Workload):
        raise ProfileError(f"{place} returned a {type(made).__name__}, expected (module, inputs) or a Workload")
    return checked(replace(made, about=made.about or place, units=units or made.units))


def checked(work: Workload) -> Workload:
    """The workload with its units filled in; ProfileError where they or the optimizer make no sense."""
    children = tuple(name for name, _ in work.model.named_children())
    work = replace(work, units=work.units or children)
    if work.optimizer not in OPTIMIZER_STATES:
        raise ProfileError(f"optimizer is {work.optimizer!r}, expected {' or '.join(OPTIMIZER_STATES)}")
    if len(work.units) < 2 or len(set(work.units)) < len(work.units):
        raise ProfileError(f"units are {' '.join(work.units) or 'none'}, expected at least two different submodules")
    for name in work.units:
        try:
            work.model.get_submodule(name)
        except AttributeError:
            raise ProfileError(f"{name} is no submodule of the model; its children are {' '.join(children)}") from None
    owned = {param for params in work.params_by_unit() for param in params}
    for name, param in work.model.named_parameters():
        if param.requires_grad and param not in owned:
            raise ProfileError(f"parameter {name} is in none of the units {' '.join(work.units)}")
    if not owned:
        raise ProfileError("the model has no parameters to train")
    return work
