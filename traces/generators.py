"""Built-in workloads by name: ``NAME`` or ``NAME?key=value,key=value``."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from traces.synthetic_philly import synthesise
from traces.synthetic_pollux import synthesise_pollux
from traces.toys import TOYS
from traces.trace import Trace, TraceError


class Generator(NamedTuple):
    """A function of ``jobs``, ``seed`` and ``mean_gap_s`` that makes a trace, and what it imitates."""

    make: Callable[..., Trace]
    about: str


PARAMETERS: dict[str, Callable[[str], int | float]] = {"jobs": int, "seed": int, "mean_gap_s": float}

GENERATORS: dict[str, Generator] = {
    "synthetic-philly": Generator(
        partial(synthesise, "synthetic-philly"), "Philly's flat file: 1.30 GPUs a job, bursty arrivals"
    ),
    "synthetic-philly-dense": Generator(
        partial(synthesise, "synthetic-philly-dense"), "Philly's fuller cut: 1.93 GPUs a job, more failures"
    ),
    "synthetic-pollux": Generator(synthesise_pollux, "Pollux's workloads: 160 elastic jobs of six models in 8 hours"),
}


def is_built_in(source: str) -> bool:
    """Whether ``source`` (parameters included) begins with the name of a generator or toy."""
    return source.partition("?")[0] in (*GENERATORS, *TOYS)


def build(source: str) -> Trace:
    """The trace of a generator or toy. Raises TraceError for an unknown name, key or value."""
    name, _, query = source.partition("?")
    values = dict(_parameter(name, part) for part in query.split(",")) if query else {}
    if name in TOYS:
        if values:
            raise TraceError(f"{name} takes no parameters")
        trace = TOYS[name].trace
        return replace(trace, jobs=trace.jobs.copy())
    if name not in GENERATORS:
        raise TraceError(unknown(name))
    return GENERATORS[name].make(**values)


def unknown(name: str) -> str:
    """Why ``name`` is no built-in workload, with the nearest name if there is one."""
    names = (*GENERATORS, *TOYS)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"{name!r} is not a built-in workload{hint}; built in: {', '.join(names)}"


def _parameter(name: str, part: str) -> tuple[str, int | float]:
    key, _, value = part.partition("=")
    if key not in PARAMETERS:
        raise TraceError(f"{name} has no parameter {key!r}; it takes {', '.join(PARAMETERS)}")
    try:
        return key, PARAMETERS[key](value)
    except ValueError:
        expected = "a whole number" if PARAMETERS[key] is int else "a number"
        raise TraceError(f"{name}: {key} is {value!r}, expected {expected}") from None
