"""The simulations of docs/sharing.md: which they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from docs.validation_runs import Run
from envs.spec import SimConfig

SCHEDULERS = {
    "deepboot": "deepboot",
    "tiresias": "tiresias",
    "tiresias-16h": "tiresias?thresholds=57600",  # 16 GPU-hours, the one threshold that it has in DeepBoot's simulator
    "afs": "afs",
    "lyra": "lyra",
}
LARGEST = "imagenet"  # the model of the largest jobs
WORKLOADS = ("", LARGEST)  # model whose training jobs are left out; "": none
INTERVAL_S, SLO_S = 60.0, 5.0

# Part A: arrivals are stretched by these, which changes no more than the instants at which decisions fall.
STRETCHES = (1.0, 0.999, 1.001, 0.998, 1.002)
LONG = 16.0  # protect_times of pods that are rarely taken
MODES: dict[str, dict[str, Any]] = {
    "confined": {"reclaim": "static"},
    "shared": {},
    "protected": {"protect_times": LONG},
    "two nodes": {"reclaim": "static", "inference_nodes": 2},
    "alone": {},
}

# Part B
LOADS = (0.1, 0.2, 0.4, 0.6)
SEEDS = range(5)
PROTECT = (1.0, 0.0, 16.0, 0.25)  # the first is the default, at which the others are compared


@dataclass(frozen=True)
class Study(Run):
    """A run on a trace that is changed first, or on a built-in one (docs/sharing_store.py).

    ``without``: model whose training jobs are left out. ``tasks``: whether there is inference. ``stretch``: factor on
    all arrivals.
    """

    without: str = ""
    tasks: bool = True
    stretch: float = 1.0
    code: ClassVar[tuple[str, ...]] = ("traces.load", "docs.sharing_store")


def config(**changes: Any) -> SimConfig:
    """Settings of every run, but for ``changes``."""
    return SimConfig(interval_s=INTERVAL_S, rescale_cost="afe", knowledge="online", slo_s=SLO_S, **changes)


def measured_run(scheduler: str, mode: str, without: str = "", stretch: float = 1.0) -> Study:
    """Part A: a run of DeepBoot's workload ``small`` on the measured profiles."""
    return Study(
        label=_label("small", scheduler, mode, without, f"x{stretch:g}"),
        policy=SCHEDULERS[scheduler],
        trace="data/traces/deepboot/small.csv",
        sim=config(**MODES[mode]),
        profiles="data/profiles/deepboot",
        without=without,
        tasks=mode != "alone",
        stretch=stretch,
    )


def sweep_run(
    scheduler: str,
    load: float,
    seed: int,
    without: str = "",
    protect: float = PROTECT[0],
    rule: str = "ats",
) -> Study:
    """Part B: a run of a generated workload on the shipped profiles; ``rule``: who gives up GPUs to inference."""
    return Study(
        label=_label(f"load{load:g}", scheduler, rule, f"p{protect:g}", without, f"s{seed}"),
        policy=SCHEDULERS[scheduler],
        trace=f"synthetic-colocated?load={load:g},seed={seed},mean_duration_s=10",
        sim=config(protect_times=protect, reclaim=rule),
        without=without,
    )


def _label(*parts: str) -> str:
    return "-".join(part.replace(" ", "-") for part in parts if part)


def all_runs(measured: bool = True) -> list[Study]:
    """Every run of the page, once; ``measured``: with those of part A, which need the measured data."""
    runs = measured_runs() if measured else []
    for protect in (PROTECT[:1], PROTECT[1:3], PROTECT[3:]):
        runs += sweep_runs(protect, references=protect == PROTECT[:1])
    return runs


def measured_runs() -> list[Study]:
    return [
        measured_run(scheduler, mode, without, stretch)
        for stretch in STRETCHES
        for without in WORKLOADS
        for mode in MODES
        for scheduler in SCHEDULERS
    ]


def sweep_runs(protect: tuple[float, ...], references: bool) -> list[Study]:
    """Trace by trace, since making one takes as long as some runs; ``references``: with what they are compared to."""
    runs = []
    for load in LOADS:
        for seed in SEEDS:
            for without in WORKLOADS:
                runs += [sweep_run(name, load, seed, without, p) for name in SCHEDULERS for p in protect]
                if references:
                    runs += reference_runs(load, seed, without)
    return runs


def reference_runs(load: float, seed: int, without: str) -> list[Study]:
    """``deepboot`` confined to its half, and ``lyra`` by its paper's rule."""
    return [
        sweep_run("deepboot", load, seed, without, rule="static"),
        sweep_run("lyra", load, seed, without, rule="lyra"),
    ]
