"""Settings of an environment, resolved once: workload, windows, cluster, reward."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from envs.objectives import OBJECTIVES
from envs.observe import ObservationLayout
from envs.spec import SCENARIOS, ClusterSpec, SpecError
from envs.workload import job_table
from traces import load_trace
from traces.trace import Split, Trace, TraceError


@dataclass(frozen=True)
class EnvSettings:
    """What an environment simulates and how it is rewarded.

    ``trace``: a file, the name of a generator, or a Trace; ``cluster``: text such as 16x4. Episodes are
    windows of ``window_jobs`` consecutive jobs inside ``split``; a trace of at most that many jobs is one
    window. ``num_slots`` jobs are visible, the others wait in a first-come backlog. ``horizon_s`` None:
    a bound that any schedule without needless idling keeps. ``reward_scale`` None: the window's work.
    ``on_invalid``: an action outside the mask raises, or counts as commit.
    """

    scenario: str = "rigid"
    trace: str | Path | Trace | None = None
    cluster: Any = None  # text, ClusterSpec or None; a ClusterSpec once constructed
    sim: Any = None  # SimConfig or None; a resolved SimConfig once constructed
    num_slots: int = 64
    window_jobs: int = 64
    split: Split = "train"
    objective: str = "jct"
    edit_budget: int = 64
    on_invalid: Literal["raise", "commit"] = "raise"
    horizon_s: float | None = None
    reward_scale: float | None = None
    workload_seed: int = 0
    jobs: np.recarray = field(init=False, repr=False, compare=False)
    windows: npt.NDArray[np.int64] = field(init=False, repr=False, compare=False)
    length: int = field(init=False, repr=False)
    source: Trace = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.scenario not in SCENARIOS:
            raise SpecError(f"unknown scenario {self.scenario!r}; known: {', '.join(SCENARIOS)}")
        if self.objective not in OBJECTIVES:
            raise SpecError(f"unknown objective {self.objective!r}; known: {', '.join(OBJECTIVES)}")
        for name in ("num_slots", "window_jobs", "edit_budget"):
            if getattr(self, name) < 1:
                raise SpecError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.reward_scale is not None and not self.reward_scale > 0:
            raise SpecError(f"reward_scale must be positive, not {self.reward_scale}")
        scenario = SCENARIOS[self.scenario]
        cluster = self.cluster if self.cluster is not None else scenario.cluster
        source = self.trace if self.trace is not None else scenario.trace
        self._set("cluster", cluster if isinstance(cluster, ClusterSpec) else ClusterSpec.parse(cluster))
        self._set("sim", (self.sim if self.sim is not None else scenario.sim).resolve())
        self._set("source", source if isinstance(source, Trace) else load_trace(source))
        starts, length = _windows(self.source, self.split, self.window_jobs)
        self._set("windows", starts)
        self._set("length", length)
        self._set("jobs", job_table(self.source, self.cluster, self.sim, self.workload_seed))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def layout(self) -> ObservationLayout:
        return ObservationLayout.of(self.num_slots, self.cluster)

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
