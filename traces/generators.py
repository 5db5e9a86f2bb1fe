"""Built-in workloads by name: ``NAME`` or ``NAME?key=value,key=value``."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from traces.synthetic_full import synthesise_full
from traces.synthetic_inference import synthesise_colocated, synthesise_inference
from traces.synthetic_layers import synthesise_layers
from traces.synthetic_philly import synthesise
from traces.synthetic_pollux import synthesise_pollux
from traces.synthetic_stragglers import synthesise_stragglers
from traces.toys import TOYS
from traces.trace import Trace, TraceError


class Generator(NamedTuple):
    """A function that makes a trace, and what it imitates. A parameter has the type of its default."""

    make: Callable[..., Trace]
    about: str

    def defaults(self) -> dict[str, Any]:
        """Default of each parameter that may follow the name."""
        return {name: given.default for name, given in inspect.signature(self.make).parameters.items()}


EXPECTED = {int: "a whole number", float: "a number"}

GENERATORS: dict[str, Generator] = {
    "synthetic-philly": Generator(
        partial(synthesise, "synthetic-philly"), "Philly's flat file: 1.30 GPUs a job, bursty arrivals"
    ),
    "synthetic-philly-dense": Generator(
        partial(synthesise, "synthetic-philly-dense"), "Philly's fuller cut: 1.93 GPUs a job, more failures"
    ),
    "synthetic-pollux": Generator(synthesise_pollux, "Pollux's workloads: 160 elastic jobs of six models in 8 hours"),
    "synthetic-layers": Generator(
        synthesise_layers, "jobs of synthetic-pollux whose layers may be frozen: bert is fine-tuned, the others not"
    ),
    "synthetic-inference": Generator(
        synthesise_inference, "inference tasks of six services in 8 hours: poisson, bursty or diurnal arrivals"
    ),
    "synthetic-colocated": Generator(
        synthesise_colocated, "jobs of synthetic-pollux and, while they arrive, tasks of synthetic-inference"
    ),
    "synthetic-full": Generator(
        synthesise_full, "jobs and tasks of synthetic-colocated with the presets of synthetic-layers"
    ),
    "synthetic-stragglers": Generator(
        synthesise_stragglers, "rigid jobs of ten models, 40 % on several nodes, to see what stragglers cost"
    ),
}


def is_built_in(source: str) -> bool:
    """Whether ``source`` (parameters included) begins with the name of a generator or toy."""
    return source.partition("?")[0] in (*GENERATORS, *TOYS)


def build(source: str) -> Trace:
    """The trace of a generator or toy. Raises TraceError for an unknown name, key or value."""
    name, _, query = source.partition("?")
    if name in TOYS:
        if query:
            raise TraceError(f"{name} takes no parameters")
        trace = TOYS[name].trace
        return replace(trace, jobs=trace.jobs.copy())
    if name not in GENERATORS:
        raise TraceError(unknown(name))
    generator = GENERATORS[name]
    values = dict(_parameter(name, generator.defaults(), part) for part in query.split(",")) if query else {}
    return generator.make(**values)


def unknown(name: str) -> str:
    """Why ``name`` is no built-in workload, with the nearest name if there is one."""
    names = (*GENERATORS, *TOYS)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"{name!r} is not a built-in workload{hint}; built in: {', '.join(names)}"


def _parameter(name: str, defaults: dict[str, Any], part: str) -> tuple[str, int | float | str]:
    key, _, value = part.partition("=")
    if key not in defaults:
        raise TraceError(f"{name} has no parameter {key!r}; it takes {', '.join(defaults)}")
    kind = type(defaults[key])
    try:
        return key, kind(value)
    except ValueError:
        raise TraceError(f"{name}: {key} is {value!r}, expected {EXPECTED[kind]}") from None
