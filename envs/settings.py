"""Settings of an environment, resolved once: workload, windows, cluster, reward."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from envs.actions import num_actions
from envs.features import ObservationLayout
from envs.objectives import OBJECTIVES
from envs.spec import SCENARIOS, ClusterSpec, SpecError
from envs.workload import Profiles, Workload, make_workload
from traces import load_trace
from traces.measured import read_profiles
from traces.trace import SPLIT_BOUNDS, Split, Trace

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
    windows of ``window_jobs`` consecutive jobs inside ``split``, inference tasks that arrive among them not counted;
    a trace of at most that many jobs is one window. ``num_slots`` jobs are visible, the others wait in a first-come
    backlog. ``horizon_s`` None: a bound that any schedule without needless idling keeps. ``action``: edits of the
    allocation, or weights of the jobs from which envs/allocator.py makes one. ``objective`` None: the scenario's.
    ``slo_penalty_s``: what a late inference task costs, in seconds of a training job's JCT (objective ``jct_slo``).
    ``residual_penalty``: what a job costs that completes with nothing converged, in its run times alone
    (``jct_residual``).
    ``reward_scale`` None: the window's work. ``on_invalid``: an action outside the mask raises, or counts as commit.
    ``profiles``: model profiles, or a folder of measured ones, instead of the shipped ones.
    """

    scenario: str = "rigid"
    trace: str | Path | Trace | None = None
    cluster: Any = None  # text, ClusterSpec or None; a ClusterSpec once constructed
    sim: Any = None  # SimConfig or None; a resolved SimConfig once constructed
    num_slots: int = 64
    window_jobs: int = 64
    split: Split = "train"
    action: Literal["edits", "weights"] = "edits"
    objective: Any = None  # text or None; a name in OBJECTIVES once constructed
    slo_penalty_s: float = 60.0
    residual_penalty: float = 10.0
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
        self._set("objective", self.objective or scenario.objective)
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
            "objective": (None, *OBJECTIVES),
            "action": ("edits", "weights"),
            "on_invalid": ("raise", "commit"),
            "split": tuple(SPLIT_BOUNDS),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                names = ", ".join(filter(None, known))
                raise SpecError(f"unknown {name} {getattr(self, name)!r}; known: {names}")
        if self.freezes and self.action == "weights":
            raise SpecError(f"action must be edits in scenario {self.scenario}, since log-weights freeze no layers")

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
        if not 0 <= self.slo_penalty_s < np.inf:
            raise SpecError(f"slo_penalty_s must be a finite time >= 0, not {self.slo_penalty_s}")
        if not 0 <= self.residual_penalty < np.inf:
            raise SpecError(f"residual_penalty must be a finite number >= 0, not {self.residual_penalty}")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def layout(self) -> ObservationLayout:
        return ObservationLayout.of(self.num_slots, self.cluster, len(self.workload.services), self.freezes)

    @property
    def freezes(self) -> bool:
        """Whether the agent sees the layers of jobs, and freezes them."""
        return SCENARIOS[self.scenario].freezes

    @property
    def models(self) -> Profiles | None:
        """Profiles of elastic jobs' models; None: the shipped ones."""
        if isinstance(self.profiles, str | Path):
            return read_profiles(self.profiles)
        return self.profiles

    @property
    def action_space(self) -> spaces.Discrete | spaces.Box:
        """Edits of one slot after another and of the services, or log-weights (J,) of all over MAX_LOG_WEIGHT."""
        if self.action == "weights":
            return spaces.Box(-1.0, 1.0, (self.num_slots,), np.float32)
        return spaces.Discrete(num_actions(self.num_slots, len(self.workload.services)))

    @property
    def most_rows(self) -> int:
        """Most rows of a window, wherever it begins."""
        rows = np.append(self.source.job_rows, np.full(self.length, len(self.source)))
        before = np.concatenate([[0], rows[: len(self.source.job_rows) - 1] + 1])  # a window may begin with a task
        return int((rows[self.length :] - before).max())

    @property
    def objective_code(self) -> int:
        return OBJECTIVES[self.objective].integral

    @property
    def late_penalty(self) -> float:
        """What the reward's integral grows by with each late task [job s]."""
        return self.slo_penalty_s if OBJECTIVES[self.objective].counts_late else 0.0

    @property
    def residual_cost(self) -> float:
        """What the reward's integral grows by with residual x isolated run time of a completed job."""
        return self.residual_penalty if OBJECTIVES[self.objective].counts_residual else 0.0


def _windows(trace: Trace, split: Split, window_jobs: int) -> tuple[npt.NDArray[np.int64], int]:
    """Possible first rows of a window, and the jobs in it."""
    if len(trace.job_rows) <= window_jobs:
        return np.zeros(1, np.int64), len(trace.job_rows)
    return trace.possible_starts(window_jobs, split), window_jobs
