"""What holds of every run with inference, seen from the log of who held each GPU and from the table of results alone.

States of pods are worked out again from the log by the rules of docs/design/003-inference.md, sections 1-4.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
import pytest

from baselines.deepboot import DeepBoot
from baselines.fifo import Fifo
from baselines.lyra import Lyra
from baselines.optimus import Optimus
from baselines.tiresias import Tiresias
from envs.metrics import JOB_COLUMNS
from envs.order import Key, ListOrder
from envs.simulate import RunResult, simulate
from envs.spec import ClusterSpec, SimConfig
from tests.envs import random_elastic, random_traces
from tests.envs.core_support import WHOLE, Listed
from tests.envs.random_inference import InferenceCase, listed_case, nodes_of_pods, rigid_case
from traces.services import start_up_times
from traces.trace import make_trace

NAMES = [column.name for column in JOB_COLUMNS]
SCHEDULERS: list[Any] = [Fifo(), Tiresias(), Optimus(), DeepBoot(), Lyra()]
Spans = list[tuple[float, float]]


def play(case: InferenceCase, seed: int, scheduler: Any = None, record: bool = True) -> RunResult:
    """A run under a scheduler, by default the ordering rule of the case."""
    if scheduler is None:
        assert isinstance(case.scheduler, ListOrder)
        scheduler = Listed(case.scheduler)
    return simulate(case.trace, case.cluster, scheduler, case.config, seed=seed, record=record, profiles=case.profiles)


@dataclass(frozen=True)
class Stay:
    """A task on a device, and what its pod did then until the device was next used (``used``, or the run's end)."""

    task: int
    service: str
    node: int
    gpu: int
    start: float
    finish: float
    rests: float  # end of PROTECT if nothing comes between; without aiss the finish
    used: float
    hits: int
    born: tuple[float, int]  # when, and the task it was born for: in the order of births
    before: Stay | None  # the stay at whose idle pod a warm task was served

    def hits_at(self, t: float) -> int:
        """Warm hits in a row that count at t, when the pod is idle."""
        return self.hits if t < self.rests else 0


class Picture:
    """A recorded run, its intervals and its pods."""

    def __init__(self, result: RunResult) -> None:
        self.result, self.jobs, self.config = result, result.jobs, result.config
        self.is_task = (self.jobs["kind"] == "inference").to_numpy()
        self.over = float(np.nanmax(np.append(self.jobs["finish_s"], self.jobs["arrival_s"])))
        self.start_up = start_up_times(result.trace)
        self.rows = list(result.intervals.sort_values(["gpu", "start_s", "end_s"]).itertuples(index=False))
        self.tasks = self.jobs[self.is_task]
        self.stays = self.find_stays()

    def find_stays(self) -> list[Stay]:
        protect, warm = self.config.protect_times, self.jobs["warm"].to_numpy()
        services = self.jobs["service"].to_numpy()
        stays: list[Stay] = []
        last: Stay | None = None
        for at, row in enumerate(self.rows):
            if not self.is_task[row.job]:
                last = None
                continue
            after = self.rows[at + 1] if at + 1 < len(self.rows) and self.rows[at + 1].gpu == row.gpu else None
            before = last if warm[row.job] else None
            assert before is not None or not warm[row.job], "a task was warm on a device that was no idle pod's"
            assert before is None or before.gpu == row.gpu
            hits = before.hits + 1 if before is not None and row.start_s < before.rests else 0
            time = min(30 * protect + 15 * protect * hits, 120 * protect) if self.config.aiss else 0.0
            last = Stay(
                row.job,
                services[row.job],
                row.node,
                row.gpu,
                row.start_s,
                row.end_s,
                row.end_s + time,
                self.over if after is None else after.start_s,
                hits,
                (row.start_s, row.job) if before is None else before.born,
                before,
            )
            stays.append(last)
        return stays


def check_devices(picture: Picture) -> None:
    """Nobody shares a device but fractions; a task holds one device from its first start to its finish."""
    jobs, task = picture.jobs, picture.is_task
    share = jobs["share_milli"].to_numpy()
    for gpu in {row.gpu for row in picture.rows}:
        own = [row for row in picture.rows if row.gpu == gpu]
        changes = sorted([(r.end_s, -share[r.job]) for r in own] + [(r.start_s, share[r.job]) for r in own])
        assert np.cumsum([change for _, change in changes]).max() <= WHOLE, f"device {gpu} is given out twice"
    assert Counter(row.job for row in picture.rows if task[row.job]) == Counter(np.flatnonzero(task).tolist())
    allowed = nodes_of_pods(picture.result.cluster, picture.config)
    for stay in picture.stays:
        assert stay.node in allowed
        assert (stay.start, stay.finish) == (jobs["first_start_s"][stay.task], jobs["finish_s"][stay.task])
    if picture.config.reclaim == "static":
        assert not {row.node for row in picture.rows if not task[row.job]} & set(allowed)


def check_latency(picture: Picture) -> None:
    """Latency is the wait, the start-up of a cold one and the duration."""
    tasks, cold = picture.tasks, ~picture.tasks["warm"]
    start_up = np.where(cold, picture.start_up[picture.is_task], 0.0)
    assert (tasks["status"] == "completed").all()
    assert (tasks["queueing_delay_s"] == tasks["first_start_s"] - tasks["arrival_s"]).all()
    assert (tasks["queueing_delay_s"] >= 0).all()
    assert (tasks["paused_gpu_s"] == start_up).all()
    assert (tasks["finish_s"] == tasks["first_start_s"] + start_up + tasks["duration_s"]).all()
    np.testing.assert_allclose(tasks["jct_s"], tasks["queueing_delay_s"] + start_up + tasks["duration_s"], atol=1e-6)
    np.testing.assert_allclose(tasks["service_gpu_s"], start_up + tasks["duration_s"], atol=1e-6)


def check_pods(picture: Picture) -> None:
    """A protected pod is untouchable; the pod that is hit is the right one; and nothing starts cold beside one."""
    by_service = defaultdict(list)
    for stay in picture.stays:
        by_service[stay.service].append(stay)
    for stay in picture.stays:
        follower = next((s for s in by_service[stay.service] if s.before is stay), None)
        assert stay.used >= min(stay.rests, picture.over) or follower is not None, "a protected pod lost its device"
    if not picture.config.aiss:
        assert not any(stay.before for stay in picture.stays)
        return
    for stays in by_service.values():
        for stay in stays:
            t = stay.start
            idle = [s for s in stays if s.finish <= t < s.used]  # and still so when serving was over
            if stay.before is None:
                assert not idle, f"task {stay.task} started cold beside an idle pod of its service"
                continue
            own = (-stay.before.hits_at(t), stay.before.born)
            assert all(own < (-s.hits_at(t), s.born) for s in idle), f"task {stay.task} was served by another pod"


def is_covered(spans: Iterable[tuple[float, float]], lo: float, hi: float) -> bool:
    """Whether half-open spans leave no gap in [lo, hi)."""
    for start, end in sorted(spans):
        if start > lo:
            break
        lo = max(lo, end)
    return lo >= hi


def blocked(picture: Picture) -> list[Spans]:
    """For each device where pods may live, when no cold start may have it."""
    jobs, ats = picture.jobs, picture.config.reclaim == "ats"
    fixed = (~jobs["preemptible"] | (jobs["share_milli"] < WHOLE)).to_numpy() & ~picture.is_task
    awake, held = defaultdict(list), defaultdict(list)
    for stay in picture.stays:
        awake[stay.gpu].append((stay.start, stay.rests))
    events = np.unique([*jobs["arrival_s"], *(time for row in picture.rows for time in (row.start_s, row.end_s))])
    for row in picture.rows:
        if fixed[row.job]:  # in the inference part it keeps others from its whole node
            # Where a pass preempted a fraction, the next event is the first that may serve.
            preempted = row.end_s != jobs["finish_s"][row.job] and row.end_s < events[-1]
            end = events[np.searchsorted(events, row.end_s, "right")] if preempted else row.end_s
            held[row.gpu if ats else row.node].append((row.start_s, end))
    owner = np.repeat(np.arange(picture.result.cluster.num_nodes), picture.result.cluster.node_gpus)
    nodes = nodes_of_pods(picture.result.cluster, picture.config)
    return [awake[g] + held[g if ats else n] for g, n in enumerate(owner.tolist()) if n in nodes]


def check_waits(picture: Picture) -> int:
    """A task waits only while no device could be had, an idle pod of its service included; tasks that waited."""
    tasks = picture.tasks
    waited = tasks[tasks["queueing_delay_s"] > 0]
    devices = blocked(picture)
    for row, arrival, start in zip(waited.index, waited["arrival_s"], waited["first_start_s"], strict=True):
        assert all(is_covered(spans, arrival, start) for spans in devices), f"task {row} waited beside a device"
        for stay in picture.stays:
            if stay.service == waited["service"][row]:
                assert max(stay.finish, arrival) >= min(stay.used, stay.rests, start), f"task {row} waited beside a pod"
    for _, own in tasks.groupby("service"):
        assert own["first_start_s"].is_monotonic_increasing
    for stay in picture.stays:
        earlier = waited.loc[: stay.task - 1] if stay.before is None else waited.iloc[:0]
        assert not ((earlier["arrival_s"] <= stay.start) & (stay.start < earlier["first_start_s"])).any()
    return len(waited)


def check_sums(picture: Picture) -> None:
    """Time on devices adds up, state by state."""
    result, jobs, tasks = picture.result, picture.jobs, picture.tasks
    pods = result.pod_gpu_s
    near = {"rel": 1e-9, "abs": 1e-6}
    assert pods["running"] == pytest.approx(tasks["duration_s"].sum(), **near)
    assert pods["start"] == pytest.approx(tasks["paused_gpu_s"].sum(), **near)
    ends = [(min(stay.rests, stay.used), stay) for stay in picture.stays]
    assert pods["protect"] == pytest.approx(sum(end - stay.finish for end, stay in ends), **near)
    asleep = sum(stay.used - end for end, stay in ends) if picture.config.aiss else 0.0
    assert pods["sleep"] == pytest.approx(asleep, **near)
    share = jobs["share_milli"].to_numpy() / WHOLE
    held = np.array([row.end_s - row.start_s for row in picture.rows]) * share[[row.job for row in picture.rows]]
    np.testing.assert_allclose(held.sum(), jobs["service_gpu_s"].sum(), rtol=1e-9, atol=1e-6)
    training = jobs["service_gpu_s"][~picture.is_task].sum()
    assert training + sum(pods.values()) <= result.cluster.num_gpus * picture.over * (1 + 1e-9) + 1e-6
    metrics = result.metrics()
    assert metrics["pod_running_gpu_s"] == pods["running"]
    assert metrics["mean_latency_s"] == pytest.approx(tasks["jct_s"].mean())
    assert metrics["warm_share"] == tasks["warm"].mean()
    assert (metrics["gpus_taken"] == 0) == (result.gpus_taken == 0)


def check_all(result: RunResult) -> Counter[str]:
    """Every property of a run; what it exercises."""
    picture = Picture(result)
    check_devices(picture)
    check_latency(picture)
    check_pods(picture)
    check_sums(picture)
    rule = result.config.reclaim
    taken = bool(result.gpus_taken)
    return Counter(
        {f"waits {rule}": check_waits(picture), "warm": int(picture.tasks["warm"].sum()), f"takes {rule}": taken}
    )


def on_one_type(seed: int, count: int) -> list[tuple[int, InferenceCase]]:
    """The first cases from a seed whose cluster has one GPU type: by counts others may stall, inference or not."""
    found = ((at, listed_case(at)) for at in range(seed, seed + 10 * count))
    return list(islice(((at, case) for at, case in found if len(case.cluster.types) == 1), count))


def without_moments(case: InferenceCase) -> InferenceCase:
    """The case with no job of no duration: it would leave no trace in the log of the pod whose device it took."""
    jobs = case.trace.jobs
    return replace(case, trace=replace(case.trace, jobs=jobs.assign(duration_s=jobs["duration_s"].replace(0.0, 0.25))))


@pytest.mark.parametrize(("make", "count"), [(rigid_case, 80), (listed_case, 60)])
def test_under_ordering_rules(make: Callable[[int], InferenceCase], count: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(1000, 1000 + count):
        seen += check_all(play(without_moments(make(seed)), seed))
    wanted = ["warm", *(f"waits {rule}" for rule in ("ats", "lyra", "static")), "takes ats", "takes lyra"]
    assert min(seen[name] for name in wanted) >= 3
    assert seen["takes static"] == 0


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda scheduler: scheduler.name)
def test_under_schedulers(scheduler: Any) -> None:
    seen: Counter[str] = Counter()
    for seed, case in on_one_type(2000, 15):
        seen += check_all(play(without_moments(case), seed, scheduler))
    assert min(seen[name] for name in ("warm", "waits ats", "takes ats")) >= 1


def same(a: RunResult, b: RunResult) -> bool:
    """Whether two runs are equal bit for bit, but for their logs and their times of computing."""
    return (
        a.jobs[NAMES].equals(b.jobs[NAMES])
        and a.pod_gpu_s == b.pod_gpu_s
        and (a.gpus_taken, a.num_passes) == (b.gpus_taken, b.num_passes)
    )


@pytest.mark.parametrize("scheduler", [None, DeepBoot(), Lyra()], ids=["listed", "deepboot", "lyra"])
def test_slots_and_recording_make_no_difference(scheduler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, case in on_one_type(0, 12):
        want = play(case, seed, scheduler, record=False)
        assert len(want.intervals) == 0
        with monkeypatch.context() as patch:
            patch.setattr("envs.simulate.FIRST_SLOTS", 1 + seed % 3)
            few = play(case, seed, scheduler)
        recorded = play(case, seed, scheduler)
        assert same(few, want), seed
        assert same(recorded, want), seed
        pd.testing.assert_frame_equal(few.intervals, recorded.intervals)


def test_want_of_a_slot_does_not_split_an_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks before and after the training job that finds no slot arrive together: warm hits come first."""
    rows = [("", 0, 300), ("b", 0, 5), ("a", 100, 5), ("", 100, 1), ("b", 100, 5)]
    table = pd.DataFrame(rows, columns=["service", "arrival_s", "duration_s"])
    task = table["service"] != ""
    table = table.assign(num_gpus=1, preemptible=task, kind=np.where(task, "inference", "training"))
    trace = make_trace("hand", table.assign(start_up_s=np.where(task, 4.0, np.nan)))
    monkeypatch.setattr("envs.simulate.FIRST_SLOTS", 1)
    result = simulate(trace, ClusterSpec.parse("1x2"), Listed(ListOrder(Key.ARRIVAL)), SimConfig(interval_s=0.0))
    # The last row hits the pod that sleeps since 9 + 30; the third waits until 105 + 30 for its device.
    assert result.jobs["first_start_s"][task].tolist() == [0, 135, 100]


@pytest.mark.parametrize("make", [random_traces.random_case, random_elastic.listed_case])
def test_settings_of_inference_change_nothing_without_it(make: Callable[[int], Any]) -> None:
    for seed in range(15):
        case = make(seed)
        if isinstance(case, tuple):
            trace, cluster, order, config, profiles = *case, {}
        else:
            trace, cluster, order, config, profiles = (
                case.trace,
                case.cluster,
                case.scheduler,
                case.config,
                case.profiles,
            )
        settings: list[dict[str, Any]] = [
            {},
            {"reclaim": "lyra", "inference_nodes": cluster.num_nodes},
            {"aiss": False, "protect_times": 2.0},
            {"reclaim": "lyra", "inference_nodes": 0, "slo_s": 0.0},
        ]
        runs = [_run(trace, cluster, order, replace(config, **change), seed, profiles) for change in settings]
        assert all(same(run, runs[0]) for run in runs), seed
        assert all(run.intervals.equals(runs[0].intervals) for run in runs), seed
        assert runs[0].pod_gpu_s == {}


def _run(trace: Any, cluster: Any, order: ListOrder, config: SimConfig, seed: int, profiles: Any) -> RunResult:
    return simulate(trace, cluster, Listed(order), config, seed=seed, record=True, profiles=profiles)
