"""Follows a forward pass from one freezable unit to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import nn

from traces.profiles import ProfileError

Enter = Callable[[int, tuple[Any, ...], dict[str, Any]], None]


@contextmanager
def watch(units: Mapping[str, nn.Module], enter: Enter) -> Iterator[None]:
    """Call ``enter(i, args, kwargs)`` before unit i runs in the one forward pass of this context.

    What the model does between two units belongs to the first of them. Raises ProfileError if the units do not run
    in their order, each once.
    """
    names = list(units)
    ran = 0

    def before(number: int, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal ran
        if number != ran:
            expected = names[ran] if ran < len(names) else "the end"
            raise ProfileError(f"unit {names[number]} ran where {expected} was expected: name the units as they run")
        ran += 1
        enter(number, args, kwargs)

    handles = [
        unit.register_forward_pre_hook(partial(before, number), with_kwargs=True)
        for number, unit in enumerate(units.values())
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    if ran < len(names):
        raise ProfileError(f"unit {names[ran]} did not run")
