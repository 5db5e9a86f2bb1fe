"""Run a learned policy on a trace: :func:`rollout`, the counterpart of simulate().

The policy acts through the same environment that it was trained in, so what it is judged by is what
it learned from.
"""

from __future__ import annotations

import time
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from envs.batch import MANUAL, Batch
from envs.features import ObservationLayout
from envs.settings import EnvSettings
from envs.simulate import Progress, RunResult, inference_accounts, interval_frame, job_frame
from envs.spec import ClusterSpec, SimConfig
from envs.workload import Profiles
from traces.trace import Trace

RENEW = 1000  # decisions between calls of progress


@runtime_checkable
class Policy(Protocol):
    """What chooses actions: a learned policy, or anything that answers masked observations."""

    name: str
    num_slots: int
    edit_budget: int

    def act(
        self, obs: npt.NDArray[np.float32], mask: npt.NDArray[np.bool_], layout: ObservationLayout
    ) -> npt.NDArray[np.int64]:
        """Actions (B,) for observations (B, R) float32, laid out as ``layout`` says, and masks (B, A) bool."""
        ...


def rollout(
    trace: Trace,
    cluster: ClusterSpec,
    config: SimConfig,
    policy: Policy,
    *,
    seed: int = 0,
    record: bool = False,
    progress: Progress | None = None,
    profiles: Profiles | None = None,
) -> RunResult:
    """Let ``policy`` schedule all of ``trace``; the result is as simulate()'s.

    A policy with an attribute ``freezes`` that is true sees the layers of jobs and freezes them, as in layer-elastic.
    ``decision_s`` has one entry a scheduling pass: the CPU time of all its edits. Jobs that do not finish
    before the environment's horizon have status unfinished.
    """
    batch = Batch(_settings(trace, cluster, config, policy, seed, profiles), 1, MANUAL, record, own_clock=True)
    began = time.process_time()
    batch.reset(np.array([seed], np.int64), starts=np.zeros(1, np.int64))
    decisions, spent, steps = [], 0.0, 0
    while not (batch.terminated[0] or batch.truncated[0]):
        asked = time.process_time()
        action = policy.act(batch.obs, batch.mask, batch.layout)
        spent += time.process_time() - asked
        passes = int(batch.states["num_passes"][0])
        batch.step(action)
        if int(batch.states["num_passes"][0]) != passes:
            decisions.append(spent)
            spent = 0.0
        steps += 1
        if progress is not None and steps % RENEW == 0:
            progress(_finished(batch), len(trace))
    return _result(batch, policy.name, np.array(decisions), time.process_time() - began, seed)


def _settings(
    trace: Trace, cluster: ClusterSpec, config: SimConfig, policy: Policy, seed: int, profiles: Profiles | None
) -> EnvSettings:
    """The whole trace as one window."""
    return EnvSettings(
        scenario="layer-elastic" if getattr(policy, "freezes", False) else "rigid",
        trace=trace,
        cluster=cluster,
        sim=config,
        num_slots=policy.num_slots,
        window_jobs=len(trace),
        edit_budget=policy.edit_budget,
        split="all",
        workload_seed=seed,
        profiles=profiles,
    )


def _finished(batch: Batch) -> int:
    s: Any = batch.states[0]
    return int(s.num_completed + s.num_rejected)


def _result(batch: Batch, name: str, decisions: npt.NDArray[np.float64], elapsed_s: float, seed: int) -> RunResult:
    if len(batch.log):
        batch.drain_log()
    s: Any = batch.states[0]
    settings = batch.settings
    return RunResult(
        settings.source,
        settings.cluster,
        settings.sim,
        seed,
        name,
        job_frame(settings.source, batch.episode_results(0)[1], batch.jobs),
        interval_frame(batch.logged, s),
        decisions,
        int(s.num_events),
        int(s.num_passes),
        elapsed_s,
        *inference_accounts(s),
    )
