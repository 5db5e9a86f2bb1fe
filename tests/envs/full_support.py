"""Runs by hand in which components are slow from the start, in the compiled core and in the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pandas as pd

from envs import simulate as simulator
from envs.order import ListOrder
from envs.reference import Run, simulate_reference
from envs.reference_stragglers import Stragglers
from envs.simulate import simulate
from envs.spec import ClusterSpec, SimConfig
from envs.straggler_presets import GPU
from envs.stragglers import set_next_straggle, set_node_straggle
from tests.envs.core_support import Listed
from tests.envs.straggler_support import CALM, Scripted
from tests.envs.test_stragglers_core import follow_modes
from traces.profiles import ModelProfile
from traces.trace import Trace

Slow = Mapping[tuple[int, int], tuple[float, float]]  # by kind and index: severity, and the time at which it ends


def slow_record(s: Any, slow: Slow) -> None:
    """Make components of a cluster of the core slow, as from time 0."""
    for (kind, index), (severity, end) in slow.items():
        c = GPU * int(s.num_nodes) + index if kind == GPU else GPU * index + kind
        s.severity[c], s.onset[c], s.comp_next[c] = severity, 0.0, end
    for n in range(int(s.num_nodes)):
        set_node_straggle(s, n)
    set_next_straggle(s)


def slow_reference(stragglers: Stragglers, slow: Slow) -> None:
    for (kind, index), (severity, end) in slow.items():
        node = stragglers.components[kind, index].node
        scripted: Any = Scripted(kind, node, index, [(0.0, severity), (end, 1.0)])
        stragglers.components[kind, index] = scripted


@contextmanager
def slowed(slow: Slow) -> Iterator[None]:
    """Let both simulators begin with these components slow; give them ``straggler_rate`` 0."""
    start, begin = simulator.Run.start, Run.__init__

    def start_slow(run: simulator.Run) -> None:
        start(run)
        slow_record(run.states[0], slow)

    def begin_slow(run: Run, *args: Any, **others: Any) -> None:
        begin(run, *args, **others)
        assert run.stragglers is not None
        slow_reference(run.stragglers, slow)
        run.stragglers.chance = lambda component, now: 0.0  # type: ignore[method-assign]

    with patch.object(simulator.Run, "start", start_slow), patch.object(Run, "__init__", begin_slow):
        yield


def play_both(
    trace: Trace,
    cluster: str,
    scheduler: Any,
    slow: Slow,
    config: SimConfig = CALM,
    profiles: dict[str, ModelProfile] | None = None,
    seed: int = 0,
) -> list[pd.DataFrame]:
    """Job tables of the core and of the reference; ``scheduler``: an ordering rule or a chooser of the reference."""
    spec, profiles = ClusterSpec.parse(cluster), profiles or {}
    ours = Listed(scheduler) if isinstance(scheduler, ListOrder) else follow_modes(scheduler)
    with slowed(slow):
        core = simulate(trace, spec, ours, config, seed=seed, profiles=profiles).jobs
        reference = simulate_reference(trace, spec, scheduler, config, seed, profiles)
    return [core, pd.DataFrame(reference)]
