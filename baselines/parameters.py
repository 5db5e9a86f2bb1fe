"""Typed parameters of a scheduler class, read from ``key=value,key=value`` text.

The signature of the class is the only description of its parameters: their names, types and defaults.
Values may be int, float, bool, str, a Literal of strings, or a tuple of one of these written with "/".
"""

from __future__ import annotations

import inspect
from dataclasses import is_dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints


class PolicyError(ValueError):
    """A policy that cannot be found or built; the message is one sentence."""


def suggest(name: str, known: list[str]) -> str:
    """ " (did you mean X?)" when a known name is close, else ""."""
    near = get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def parameter_types(cls: type) -> dict[str, Any]:
    """Annotated type of each keyword that ``cls(...)`` takes; without an annotation, its default's type."""
    try:
        # Of a dataclass not those of its __init__, which names the types of inherited fields without their modules.
        hints = get_type_hints(cls if is_dataclass(cls) else cast(Any, cls).__init__)
    except (NameError, TypeError, AttributeError) as error:
        raise PolicyError(f"the annotations of {cls.__name__} cannot be read: {error}") from None
    types = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            continue
        fallback = str if parameter.default in (parameter.empty, None) else type(parameter.default)
        types[name] = hints.get(name, fallback)
    return types


def parse_value(text: str, kind: Any) -> object:
    """``text`` as ``kind``; raises ``ValueError`` with what was expected."""
    origin = get_origin(kind)
    if origin is Literal:
        if text not in get_args(kind):
            raise ValueError(f"one of {', '.join(map(str, get_args(kind)))}")
        return text
    if origin in (Union, UnionType):
        if text.lower() == "none" and NoneType in get_args(kind):
            return None
        return parse_value(text, next(option for option in get_args(kind) if option is not NoneType))
    if origin is tuple or kind is tuple:
        inner = get_args(kind)[0] if get_args(kind) else str
        return tuple(parse_value(part, inner) for part in text.split("/")) if text else ()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("true or false")
        return text.lower() == "true"
    if kind in (int, float, str):
        try:
            return kind(text)
        except ValueError:
            raise ValueError("a whole number" if kind is int else "a number") from None
    raise ValueError(f"nothing that can be written as text ({kind})")


def parse_parameters(policy: str, cls: type, query: str, apart: tuple[str, ...] = ()) -> dict[str, object]:
    """Keyword arguments of ``cls`` from ``query``, but for those that are given ``apart`` from it.

    Raises :class:`PolicyError` naming policy and parameter.
    """
    values: dict[str, object] = {}
    types = {name: kind for name, kind in parameter_types(cls).items() if name not in apart}
    for item in query.split(","):
        key, separator, text = item.partition("=")
        if not separator:
            raise PolicyError(f"policy {policy}: {item!r} is not key=value")
        if key not in types:
            known = f"it has {', '.join(types)}" if types else "it has none"
            raise PolicyError(f"policy {policy}: no parameter {key!r}{suggest(key, list(types))}; {known}")
        if key in values:
            raise PolicyError(f"policy {policy}: parameter {key} is given twice")
        try:
            values[key] = parse_value(text, types[key])
        except ValueError as error:
            raise PolicyError(f"policy {policy}: {key}={text!r} must be {error}") from None
    return values
