"""Settings of an environment, resolved once: workload, windows, cluster, reward."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from envs.actions import num_actions
from envs.objectives import OBJECTIVES
from envs.observe import ObservationLayout
from envs.spec import SCENARIOS, ClusterSpec, SpecError
from envs.workload import Profiles, Workload, make_workload
from traces import load_trace
from traces.measured import read_profiles
from traces.trace import SPLIT_BOUNDS, Split, Trace, TraceError

MAX_LOG_WEIGHT = 5.0  # log-weight of a job whose action is 1


def make_settings(**arguments: Any) -> EnvSettings:
    """EnvSettings from keyword arguments; an unknown one raises SpecError."""
    known = [f.name for f in fields(EnvSettings) if f.init]
    for name in arguments:
        if name not in known:
            raise SpecError(f"unknown setting {name!r} of the environment; known: {', '.join(known)}")
    return EnvSettings(**arguments)


@dataclass(frozen=True)
class EnvSettings:
    """What an environment simulates and how it is rewarded.

    ``trace``: a file, the name of a generator, or a Trace; ``cluster``: text such as 16x4. Episodes are
    windows of ``window_jobs`` consecutive jobs inside ``split``; a trace of at most that many jobs is one
    window. ``num_slots`` jobs are visible, the others wait in a first-come backlog. ``horizon_s`` None:
    a bound that any schedule without needless idling keeps. ``action``: edits of the allocation, or weights of the
    jobs from which envs/allocator.py makes one. ``reward_scale`` None: the window's work.
    ``on_invalid``: an action outside the mask raises, or counts as commit. ``profiles``: model profiles, or a
    folder of measured ones, instead of the shipped ones.
    """

    scenario: str = "rigid"
    trace: str | Path | Trace | None = None
    cluster: Any = None  # text, ClusterSpec or None; a ClusterSpec once constructed
    sim: Any = None  # SimConfig or None; a resolved SimConfig once constructed
    num_slots: int = 64
    window_jobs: int = 64
    split: Split = "train"
    action: Literal["edits", "weights"] = "edits"
    objective: str = "jct"
    edit_budget: int = 64
    on_invalid: Literal["raise", "commit"] = "raise"
    horizon_s: float | None = None
    reward_scale: float | None = None
    workload_seed: int = 0
    profiles: str | Path | Profiles | None = None
    workload: Workload = field(init=False, repr=False, compare=False)
    windows: npt.NDArray[np.int64] = field(init=False, repr=False, compare=False)
    length: int = field(init=False, repr=False)
    source: Trace = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_numbers()
        scenario = SCENARIOS[self.scenario]
        cluster = self.cluster if self.cluster is not None else scenario.cluster
        source = self.trace if self.trace is not None else scenario.trace
        self._set("cluster", cluster if isinstance(cluster, ClusterSpec) else ClusterSpec.parse(str(cluster)))
        self._set("sim", (self.sim if self.sim is not None else scenario.sim).resolve())
        self._set("source", source if isinstance(source, Trace) else load_trace(source))
        starts, length = _windows(self.source, self.split, self.window_jobs)
        self._set("windows", starts)
        self._set("length", length)
        tuned = self.sim.batch != "fixed"
        workload = make_workload(self.source, self.cluster, self.sim, self.workload_seed, tuned, self.models)
        self._set("workload", workload)

    def _check_choices(self) -> None:
        choices = {
            "scenario": tuple(SCENARIOS),
            "objective": tuple(OBJECTIVES),
            "action": ("edits", "weights"),
            "on_invalid": ("raise", "commit"),
            "split": tuple(SPLIT_BOUNDS),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise SpecError(f"unknown {name} {getattr(self, name)!r}; known: {', '.join(known)}")

    def _check_numbers(self) -> None:
        for name in ("num_slots", "window_jobs", "edit_budget"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer):
                raise SpecError(f"{name} must be a whole number, not {value}")
            if value < 1:
                raise SpecError(f"{name} must be at least 1, not {value}")
        for name in ("horizon_s", "reward_scale"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise SpecError(f"{name} must be positive, not {value}")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def layout(self) -> ObservationLayout:
        return ObservationLayout.of(self.num_slots, self.cluster)

    @property
    def models(self) -> Profiles | None:
        """Profiles of elastic jobs' models; None: the shipped ones."""
        if isinstance(self.profiles, str | Path):
            return read_profiles(self.profiles)
        return self.profiles

    @property
    def action_space(self) -> spaces.Discrete | spaces.Box:
        """Edits of one slot after another, or log-weights (J,) of all over MAX_LOG_WEIGHT."""
        if self.action == "weights":
            return spaces.Box(-1.0, 1.0, (self.num_slots,), np.float32)
        return spaces.Discrete(num_actions(self.num_slots))

    @property
    def objective_code(self) -> int:
        return OBJECTIVES[self.objective].integral


def _windows(trace: Trace, split: Split, window_jobs: int) -> tuple[npt.NDArray[np.int64], int]:
    """Possible first jobs of a window, and its length."""
    if len(trace) <= window_jobs:
        return np.zeros(1, np.int64), len(trace)
    lo, hi = trace.split_range(split)
    if hi - lo < window_jobs:
        raise TraceError(
            f"the {split} split of trace {trace.name} has {hi - lo} jobs, fewer than one window of {window_jobs}"
        )
    return np.arange(lo, hi - window_jobs + 1), window_jobs
