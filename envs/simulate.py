"""Run one scheduler on one trace: :func:`simulate`, the face of the simulator for evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from envs.applying import SimulatorError, apply_decision
from envs.dynamics import FINISHED, PASS_DUE, advance, start_window
from envs.layout import (
    JOB_STATUS,
    LOG_DTYPE,
    LOG_FULL,
    OK,
    POD_STATES,
    SLOTS_FULL,
    STALLED,
    UNMEASURED,
    grow_slots,
    make_state,
)
from envs.list_run import run_list, run_windows
from envs.metrics import JOB_COLUMNS, compute_metrics
from envs.order import Key, ListOrder, set_order
from envs.scheduler import ListScheduler, Scheduler
from envs.spec import SCENARIOS, ClusterSpec, SimConfig
from envs.tables import plain
from envs.trials import held_by_node
from envs.view import ClusterView
from envs.workload import Profiles, empty_results, make_workload, set_inference
from traces.trace import Trace

FIRST_SLOTS = 256  # slots at first; four times as many whenever they run out, and then the core compiles anew
IDLE_PASSES = (
    1000  # with jobs waiting, none running and none to come: a scheduler that does nothing so often never will
)
CHUNK = 4096  # passes between looks at the keyboard and the progress bar
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class RunResult:
    """One finished run.

    ``jobs``: one row a job of the trace, columns JOB_COLUMNS of envs/metrics.py. ``intervals``: node,
    gpu, job (row of ``jobs``), start_s, end_s for every time a GPU was held (empty unless recorded).
    ``decision_s`` [CPU s]: each decision in Python; for compiled schedulers one value, the mean time
    of a pass with the simulator's own work in it. ``pod_gpu_s`` [GPU-s]: device time of inference pods by their state;
    empty without inference. ``gpus_taken``: times that inference took a GPU from training.
    """

    trace: Trace
    cluster: ClusterSpec
    config: SimConfig
    seed: int
    scheduler: str
    jobs: pd.DataFrame
    intervals: pd.DataFrame
    decision_s: npt.NDArray[np.float64]
    num_events: int
    num_passes: int
    elapsed_s: float
    pod_gpu_s: dict[str, float] = field(default_factory=dict)
    gpus_taken: int = 0

    def metrics(self) -> dict[str, float]:
        """Every metric of METRICS in envs/metrics.py."""
        return compute_metrics(self)


class Run:
    """State of a run in progress: the record, its workload and its results."""

    def __init__(
        self,
        trace: Trace,
        cluster: ClusterSpec,
        config: SimConfig,
        seed: int,
        record: bool = False,
        tuned: bool = False,
        profiles: Profiles | None = None,
    ) -> None:
        self.trace, self.cluster, self.config, self.seed = trace, cluster, config.resolve(), seed
        self.workload = make_workload(trace, cluster, self.config, seed, tuned, profiles)
        self.tables, jobs = self.workload.tables, self.workload.jobs
        self.results = empty_results((len(trace),))
        layered = bool((jobs["modules"] > 0).any())
        self.states = make_state(1, min(len(trace), FIRST_SLOTS), cluster, self.config, layered)
        set_inference(self.states, jobs)
        self.states["seed"] = seed
        self.states["tuned"] = tuned
        self.states["has_shares"] = bool((jobs["share_milli"] < 1000).any())
        # Counts of elastic jobs on one GPU type can always be placed, so a pass needs no copy to go back to.
        self.may_fail = bool((jobs["klass"] < 0).any()) or len(cluster.types) > 1
        self.log = np.zeros(4 * cluster.num_gpus + 4096 if record else 0, LOG_DTYPE).view(np.recarray)
        self.logged: list[npt.NDArray[np.void]] = []

    def start(self) -> None:
        """Set the clock to 0 before the first job."""
        start_window(self.states[0], 0, len(self.trace), 0.0)

    def resolve_stop(self, scheduler: str) -> None:
        """Make room and clear the status, or raise if the run can never go on."""
        s = self.states[0]
        if s.status == SLOTS_FULL:
            self.states = grow_slots(self.states, min(len(self.trace), 4 * int(s.num_slots)))
        elif s.status == LOG_FULL:
            self.drain_log()
            if len(self.log) < 2 * s.num_gpus + 2 * s.num_running:
                self.log = np.zeros(4 * int(s.num_gpus + s.num_running), LOG_DTYPE).view(np.recarray)
        elif s.status == STALLED:
            self.raise_stalled(scheduler)
        elif s.status == UNMEASURED:
            raise SimulatorError(f"scheduler {scheduler} at {s.now:g} s: {self.describe_placement(int(s.status_slot))}")
        self.states[0].status = OK

    def raise_stalled(self, scheduler: str) -> None:
        """Raise SimulatorError: the run would never end."""
        s = self.states[0]
        first = self.trace.jobs["job_id"].iloc[int(s.job_id[s.waiting[0]])] if s.num_waiting else "none"
        raise SimulatorError(
            f"the simulation stalled at {s.now:g} s under {scheduler}: {s.num_waiting} jobs wait "
            f"(first: job {first}), {s.num_running} run, and none of them gets nearer its end"
        )

    def describe_placement(self, slot: int) -> str:
        """What is wrong with a placement that no profile tells the speed of."""
        s = self.states[0]
        job = self.trace.jobs.iloc[int(s.job_id[slot])]
        digits = "+".join(str(n) for n in held_by_node(s)[slot] if n > 0)
        return f"job {job['job_id']}: {digits} GPUs lie outside the measured placements of model {job['model']}"

    def drain_log(self) -> None:
        """Move the logged GPU intervals out of the record's buffer."""
        s = self.states[0]
        self.logged.append(self.log[: int(s.log_len)].copy())
        s.log_len = 0

    def finished_jobs(self) -> int:
        return int(self.states[0].num_completed + self.states[0].num_rejected)

    def result(self, scheduler: str, decision_s: npt.NDArray[np.float64], elapsed_s: float) -> RunResult:
        """Tables of a finished run."""
        if len(self.log):
            self.drain_log()
        s = self.states[0]
        return RunResult(
            self.trace,
            self.cluster,
            self.config,
            self.seed,
            scheduler,
            job_frame(self.trace, self.results, self.workload.jobs),
            interval_frame(self.logged, s),
            decision_s,
            int(s.num_events),
            int(s.num_passes),
            elapsed_s,
            *inference_accounts(s),
        )


def inference_accounts(s: Any) -> tuple[dict[str, float], int]:
    """``pod_gpu_s`` and ``gpus_taken`` of a RunResult, from the record of a run that has ended."""
    pods = dict(zip(POD_STATES[1:], s.pod_gpu_s[1:].tolist(), strict=True)) if s.num_services else {}
    return pods, int(s.num_taken)


def simulate(
    trace: Trace,
    cluster: ClusterSpec,
    scheduler: Scheduler | ListScheduler,
    config: SimConfig | None = None,
    *,
    seed: int = 0,
    record: bool = False,
    progress: Progress | None = None,
    profiles: Profiles | None = None,
) -> RunResult:
    """Run ``scheduler`` on ``trace`` until every job is completed or rejected.

    ``record`` keeps who held each GPU when. ``progress(jobs finished, jobs in all)`` is called now
    and then. ``profiles``: of the models of elastic jobs, by default the shipped ones. Raises
    :class:`SimulatorError` if the scheduler breaks a rule or nothing moves any more.
    """
    config = config or SCENARIOS["rigid"].sim
    scheduler = for_config(scheduler, config)
    run = Run(trace, cluster, config, seed, record, batches_tuned(scheduler.batch, config), profiles)
    began = time.process_time()
    if isinstance(scheduler, ListScheduler):
        set_order(run.states, scheduler.order())
        run.start()
        _run_compiled(run, scheduler.name, progress)
        elapsed = time.process_time() - began
        decisions = np.array([elapsed / max(1, int(run.states[0].num_passes))])
    else:
        set_order(run.states, order_of_host(scheduler) or ListOrder(Key.ARRIVAL))
        run.states["skip_idle"] = 0
        run.states["quantum"] = 0.0  # whoever decides in Python is asked at the interval and on events
        run.start()
        decisions = _run_external(run, scheduler, progress)
        elapsed = time.process_time() - began
    return run.result(scheduler.name, decisions, elapsed)


def order_of_host(scheduler: Any) -> ListOrder | None:
    """The ordering rule inside a scheduler in Python, if it has one: the cluster keeps levels by it."""
    find = getattr(scheduler, "order_of_host", None)
    found: ListOrder | None = None if find is None else find()
    return found


def for_config(scheduler: Any, config: SimConfig) -> Any:
    """The scheduler as it is under ``config``, if that matters to it."""
    adapt = getattr(scheduler, "with_config", None)
    return scheduler if adapt is None else adapt(config)


def batches_tuned(batch: str, config: SimConfig) -> bool:
    """Whether elastic jobs choose their batch size: as the scheduler says, unless ``config.batch`` does."""
    return (batch if config.batch == "scheduler" else config.batch) == "tuned"


def simulate_windows(
    trace: Trace,
    cluster: ClusterSpec,
    order: ListOrder,
    config: SimConfig,
    starts: npt.ArrayLike,
    length: int,
    seed: int = 0,
) -> np.recarray:
    """Results (W, length) RESULT_DTYPE of many windows of one trace under an ordering rule.

    Each window runs on an empty cluster with times from its first arrival on. Much faster than
    :func:`simulate` window by window: no table is built.
    """
    config = config.resolve()
    workload = make_workload(trace, cluster, config, seed)
    windows = np.asarray(starts, np.int64)
    results = empty_results((len(windows), length))
    states = make_state(1, length, cluster, config, bool((workload.jobs["modules"] > 0).any()))
    set_inference(states, workload.jobs)
    states["seed"] = seed
    states["has_shares"] = bool((workload.jobs["share_milli"] < 1000).any())
    set_order(states, order)
    log = np.zeros(0, LOG_DTYPE)
    tables = plain(workload.tables)
    stalled = run_windows(states.view(np.ndarray), tables, results.view(np.ndarray), log, windows)
    if stalled >= 0:
        raise SimulatorError(
            f"the window at job {windows[stalled]} of trace {trace.name} stalled at {states[0].now:g} s"
        )
    return results


def _run_compiled(run: Run, name: str, progress: Progress | None) -> None:
    while True:
        code = run_list(run.states[0], run.tables, run.results, run.log, np.inf, CHUNK)
        if progress is not None:
            progress(run.finished_jobs(), len(run.trace))
        if code == FINISHED:
            return
        if code != PASS_DUE:
            run.resolve_stop(name)


def _run_external(run: Run, scheduler: Scheduler, progress: Progress | None) -> npt.NDArray[np.float64]:
    """Ask a Python scheduler at every pass; (passes,) CPU seconds of its decisions."""
    view = ClusterView(run.states, run.cluster, run.config, run.workload, run.seed)
    scheduler.reset(view)
    decisions: list[float] = []
    idle = 0  # passes in a row that left everything waiting with nothing to come
    while True:
        code = advance(run.states[0], run.tables, run.results, run.log, np.inf)
        if code == FINISHED:
            return np.array(decisions)
        if code != PASS_DUE:
            run.resolve_stop(scheduler.name)
            continue
        view.refresh(run.states)
        began = time.process_time()
        decision = scheduler.allocate(view)
        decisions.append(time.process_time() - began)
        changed = apply_decision(run, decision, scheduler.name)
        s = run.states[0]
        idle = 0 if changed or s.num_running or s.next_job < s.job_hi else idle + 1
        if idle == IDLE_PASSES:
            run.raise_stalled(scheduler.name)
        if progress is not None and len(decisions) % 64 == 0:
            progress(run.finished_jobs(), len(run.trace))


def job_frame(trace: Trace, results: npt.NDArray[Any], table: npt.NDArray[Any]) -> pd.DataFrame:
    """One row a job, columns JOB_COLUMNS; ``table``: the jobs' rows of Workload.jobs."""
    frame = trace.jobs.rename(columns={"status": "trace_status"}).copy()
    frame["first_start_s"] = results["first_start"]
    frame["finish_s"] = results["finish"]
    frame["jct_s"] = results["finish"] - frame["arrival_s"]
    frame["queueing_delay_s"] = results["queueing_delay"]
    frame["service_gpu_s"] = results["service"]
    frame["isolated_s"] = table["isolated_s"]
    frame["paused_gpu_s"] = results["paused_gpu_s"]
    frame["num_rescales"] = results["num_rescales"]
    frame["num_preemptions"] = results["num_preemptions"]
    frame["warm"] = results["warm"] == 1
    frame["residual"] = results["residual"]
    frame["depth_changes"] = results["depth_changes"]
    for name in ("lost_gpu_s", "straggling_gpu_s", "slowed_s"):
        frame[name] = results[name]
    frame["status"] = np.array(JOB_STATUS, dtype=object)[results["status"]]
    names = [column.name for column in JOB_COLUMNS]
    extra = [c for c in frame.columns if c not in names]
    return frame[names + extra]


def interval_frame(logged: list[npt.NDArray[np.void]], s: np.record) -> pd.DataFrame:
    """Who held each GPU when: node, gpu, job, start_s, end_s."""
    rows = np.concatenate([*logged, np.zeros(0, LOG_DTYPE)])
    node = np.asarray(s.gpu_node)[rows["gpu"]]
    return pd.DataFrame(
        {"node": node, "gpu": rows["gpu"], "job": rows["job"], "start_s": rows["start"], "end_s": rows["end"]}
    )
