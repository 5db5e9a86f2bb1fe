"""Shared by the tests of the compiled core: schedulers made of an order, runs by hand, and a recount of a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from envs.dynamics import FINISHED, PASS_DUE, advance
from envs.layout import FREE, HOLDER_DOWN, HOLDER_NONE, HOLDER_SHARED, RUNNING, WAITING
from envs.list_run import run_list
from envs.order import ListOrder, set_order
from envs.scheduler import Decision
from envs.simulate import Run, _run_compiled
from envs.spec import ClusterSpec, SimConfig
from envs.view import ClusterView
from traces.trace import Trace, make_trace

EVENTS = SimConfig(interval_s=0.0, on_event=True)
FREE_PAUSE = SimConfig(interval_s=0.0, on_event=True, rescale_s=0.0)
WHOLE = 1000


@dataclass(frozen=True)
class Listed:
    """A compiled list scheduler of any order."""

    rule: ListOrder
    name: ClassVar[str] = "listed"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"

    def order(self) -> ListOrder:
        return self.rule


@dataclass
class External:
    """A scheduler of one function."""

    decide: Callable[[ClusterView], Decision]
    name: ClassVar[str] = "mine"
    batch: ClassVar[Literal["fixed", "tuned"]] = "fixed"
    resets: int = 0

    def reset(self, view: ClusterView) -> None:
        self.resets += 1
        assert len(view.slots) == 0

    def allocate(self, view: ClusterView) -> Decision:
        return self.decide(view)


def hand(jobs: Sequence[tuple[int, float, float]], **columns: Any) -> Trace:
    """A trace of a few jobs (num_gpus, arrival_s, duration_s)."""
    gpus, arrivals, durations = zip(*jobs, strict=True)
    return make_trace("hand", {"num_gpus": gpus, "arrival_s": arrivals, "duration_s": durations, **columns})


def spans(result: Any) -> list[tuple[float, float]]:
    """First start and finish of every job of a RunResult."""
    return list(zip(result.jobs["first_start_s"], result.jobs["finish_s"], strict=True))


def begin(
    trace: Trace,
    cluster: ClusterSpec,
    order: ListOrder,
    config: SimConfig,
    seed: int = 0,
    record: bool = False,
    slots: int = 0,
) -> Run:
    """A run at time 0, to be moved by hand; ``slots`` 0: one a job."""
    run = Run(trace, cluster, config, seed, record)
    run.states["num_slots"] = slots or run.states["num_slots"]
    set_order(run.states, order)
    run.start()
    return run


def finish_list(run: Run, until: float = np.inf) -> bool:
    """Let the record's own order schedule up to ``until``; whether the run is finished."""
    return bool(run_list(run.states[0], run.tables, run.results, run.log, until, 1 << 60) == FINISHED)


def finish(run: Run) -> None:
    """Let the record's own order schedule to the end, as simulate() does."""
    _run_compiled(run, "listed", None)


def next_pass(run: Run, view: ClusterView) -> bool:
    """Move to the next scheduling pass and refresh the view; False: the run is over."""
    code = advance(run.states[0], run.tables, run.results, run.log, np.inf)
    if code == PASS_DUE:
        view.refresh(run.states)
    return bool(code == PASS_DUE)


def devices_of(s: Any, j: int) -> list[int]:
    """The linked list of devices of slot ``j``."""
    found = []
    g = int(s.first_gpu[j])
    while g >= 0:
        found.append(g)
        assert len(found) <= s.num_gpus, f"the device list of slot {j} is a circle"
        g = int(s.gpu_next[g]) if s.share[j] == WHOLE else -1
    return found


def check_record(s: Any) -> None:
    """Assert that every counter and list of a record between passes equals a recount from its devices."""
    slots, gpus = range(int(s.num_slots)), range(int(s.num_gpus))
    held = {j: devices_of(s, j) for j in slots if s.phase[j] == RUNNING}
    owners: dict[int, list[int]] = {g: [j for j in held if g in held[j]] for g in gpus}
    down = [g for g in gpus if s.node_down[s.gpu_node[g]]]
    for g in down:
        assert (owners[g], s.gpu_holder[g], s.gpu_free_milli[g]) == ([], HOLDER_DOWN, 0)
    for g in set(gpus) - set(down):
        shares = sum(int(s.share[j]) for j in owners[g])
        assert s.gpu_free_milli[g] == WHOLE - shares >= 0
        if not owners[g]:
            assert s.gpu_holder[g] == HOLDER_NONE
        elif s.gpu_holder[g] == HOLDER_SHARED:
            assert all(s.share[j] < WHOLE for j in owners[g])
        else:
            assert owners[g] == [s.gpu_holder[g]]
    for j in slots:
        check_slot(s, j, held.get(j, []))
    free = [g for g in gpus if not owners[g] and g not in down]
    idle = Counter(int(s.gpu_node[g]) for g in free)
    types = Counter(int(s.node_type[s.gpu_node[g]]) for g in free)
    up = Counter(int(s.node_type[s.gpu_node[g]]) for g in gpus if g not in down)
    assert [up[t] for t in range(s.num_types)] == s.type_up[: s.num_types].tolist()
    assert [idle[n] for n in range(s.num_nodes)] == s.node_free[: s.num_nodes].tolist()
    assert [types[t] for t in range(s.num_types)] == s.type_free[: s.num_types].tolist()
    whole = sum(len(held[j]) for j in held if s.share[j] == WHOLE)
    shared = sum(s.gpu_holder[g] == HOLDER_SHARED for g in gpus)
    assert whole + shared + sum(idle.values()) + len(down) == s.num_gpus
    for phase, listed in ((RUNNING, s.running[: s.num_running]), (WAITING, s.waiting[: s.num_waiting])):
        assert sorted(listed) == [j for j in slots if s.phase[j] == phase]
    assert sorted(s.free_slots[: s.num_free_slots]) == [j for j in slots if s.phase[j] == FREE]
    assert s.next_finish == min((s.finish[j] for j in held), default=np.inf)


def check_slot(s: Any, j: int, devices: list[int]) -> None:
    """Assert that what slot ``j`` says about its devices is so."""
    nodes = {int(s.gpu_node[g]) for g in devices}
    types = {int(s.node_type[n]) for n in nodes}
    assert s.gpus[j] == len(devices)
    assert s.num_nodes_held[j] == len(nodes) or s.phase[j] == FREE
    if s.phase[j] == RUNNING:
        assert s.gpus[j] == s.held_gpus[j] == len(set(devices))
        if s.klass[j] >= 0:
            assert 1 <= s.gpus[j] == s.demand[j] <= s.max_gpus[j]
        else:
            assert s.gpus[j] == s.request[j]
        assert len(types) == 1
        assert s.gpu_type[j] in (-1, *types)
    assert s.touched[j] == 0
