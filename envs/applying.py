"""Checking and applying what a scheduler in Python decides, with errors that name the scheduler, time and job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from envs.commit import commit
from envs.decide import (
    ACCEPTED,
    DECISION_RULES,
    apply_counts,
    apply_placement,
    check_counts,
    check_placement,
    note_wishes,
)
from envs.layout import BACKUP, FREE, SYNC_MODES, UNMEASURED
from envs.scheduler import Decision

if TYPE_CHECKING:
    from envs.simulate import Run


class SimulatorError(RuntimeError):
    """The simulation cannot go on; the message names time, job and reason."""


def apply_decision(run: Run, decision: Decision, scheduler: str) -> bool:
    """Check a decision, apply it and end the pass; whether it changed anything.

    On a broken rule raises SimulatorError and changes nothing.
    """
    s = run.states[0]
    if not isinstance(decision, Decision):
        raise SimulatorError(f"scheduler {scheduler} answered {decision!r}, expected a Decision")
    gpus = _whole_numbers(decision.gpus, (int(s.num_slots),), "gpus", scheduler)
    backup = run.states.copy() if run.may_fail else None
    rule, slot = check_counts(s, gpus)
    if rule == ACCEPTED and decision.placement is None:
        # Rigid jobs are placed widest first, elastic ones narrowest first, from the end.
        first = s.job_id[: len(gpus)] if decision.rank is None else decision.rank
        tie = np.where(s.klass[: len(gpus)] < 0, first, -first)
        by_size = np.lexsort((tie, -gpus))
        rule, slot = apply_counts(s, run.tables, gpus, by_size, decision.waits, run.log)
    elif rule == ACCEPTED:
        placement = _whole_numbers(decision.placement, (len(gpus), int(s.num_nodes)), "placement", scheduler)
        wanted = np.full(len(gpus), -1) if decision.devices is None else decision.devices
        devices = _whole_numbers(wanted, (len(gpus),), "devices", scheduler)
        if (devices >= s.num_gpus).any():
            raise SimulatorError(f"scheduler {scheduler}: devices names {devices.max()}, there are {s.num_gpus}")
        rule, slot = check_placement(s, gpus, placement)
        if rule == ACCEPTED:
            order = np.argsort(s.job_id[: len(gpus)], kind="stable")
            rule, slot = apply_placement(s, gpus, placement, devices, order, run.log)
    if rule != ACCEPTED:
        if backup is not None:
            run.states[:] = backup
        job = run.trace.jobs["job_id"].iloc[int(s.job_id[slot])] if s.job_id[slot] >= 0 else f"in slot {slot}"
        raise SimulatorError(
            f"scheduler {scheduler} at {s.now:g} s, job {job} ({gpus[slot]} GPUs): {DECISION_RULES[rule]}"
        )
    if decision.depth is not None:
        set_depths(run, decision.depth, scheduler)
    if decision.sync is not None:
        set_syncs(run, decision.sync, scheduler)
    changed = bool(commit(s, run.tables, run.log))
    if s.status == UNMEASURED:
        run.resolve_stop(scheduler)
    return changed


def set_depths(run: Run, depth: Any, scheduler: str) -> None:
    """Note the depths (J,) of a decision, to be booked at the end of the pass; -1: the job keeps its own."""
    s = run.states[0]
    wanted = _wishes(run, depth, "depth", scheduler)
    for slot in np.flatnonzero(wanted >= 0):
        if wanted[slot] > (s.max_depth[slot] if s.layered and s.modules[slot] else 0):
            raise SimulatorError(f"{_where(run, slot, scheduler)}: depth {wanted[slot]} is more than its layers allow")
    note_wishes(s, wanted, s.depth, s.next_depth)


def set_syncs(run: Run, sync: Any, scheduler: str) -> None:
    """Note the modes (J,) of a decision, to be booked at the end of the pass; -1: the job keeps its own."""
    s = run.states[0]
    wanted = _wishes(run, sync, "sync", scheduler)
    if not s.straggles and (wanted >= 0).any():
        raise SimulatorError(f"scheduler {scheduler}: sync must be -1, since no worker straggles (sim.stragglers none)")
    for slot in np.flatnonzero(wanted >= 0):
        changes_backup = wanted[slot] != s.sync[slot] and BACKUP in (wanted[slot], s.sync[slot])
        if wanted[slot] >= len(SYNC_MODES) or changes_backup:
            raise SimulatorError(
                f"{_where(run, slot, scheduler)}: sync {wanted[slot]} is no mode that it may change to"
            )
    note_wishes(s, wanted, s.sync, s.next_sync)


def _wishes(run: Run, values: Any, name: str, scheduler: str) -> npt.NDArray[np.int64]:
    """(J,) what a decision says of each slot; SimulatorError if it says something of one that holds no job."""
    s = run.states[0]
    wanted = _whole_numbers(values, (int(s.num_slots),), name, scheduler)
    for slot in np.flatnonzero(wanted >= 0):
        if s.job_id[slot] < 0 or s.phase[slot] == FREE:
            raise SimulatorError(f"scheduler {scheduler} at {s.now:g} s: {name} names slot {slot}, which holds no job")
    return wanted


def _where(run: Run, slot: int | np.integer[Any], scheduler: str) -> str:
    """Scheduler, time and job that an error is about."""
    s = run.states[0]
    return f"scheduler {scheduler} at {s.now:g} s, job {run.trace.jobs['job_id'].iloc[int(s.job_id[slot])]}"


def _whole_numbers(values: Any, shape: tuple[int, ...], name: str, scheduler: str) -> npt.NDArray[np.int64]:
    """``values`` as an int64 array of ``shape``; SimulatorError if they are anything else."""
    array = np.asarray(values)
    if array.shape != shape:
        expected = "(" + ", ".join(str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"
        raise SimulatorError(f"scheduler {scheduler}: {name} has shape {array.shape}, expected {expected}")
    if array.dtype.kind not in "iub" and not (array.dtype.kind == "f" and (array == np.floor(array)).all()):
        raise SimulatorError(f"scheduler {scheduler}: {name} must be whole numbers")
    return array.astype(np.int64)
