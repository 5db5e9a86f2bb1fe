"""The simulations of docs/validation.md: which they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from envs.spec import SimConfig

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
MEASURED = "data/profiles/pollux_osdi21"
LOADS = ("0.5", "1.0", "1.5", "2.0")  # of the evaluation in Pollux's paper
WORKLOADS = range(1, 9)
SEEDS = (0, 1)  # of Pollux's genetic search


@dataclass(frozen=True)
class Run:
    """One simulation. ``trace`` and ``profiles`` are below the folder of measured data; no profiles: the shipped."""

    label: str
    policy: str
    trace: str
    sim: SimConfig
    cluster: str = "16x4"
    profiles: str | None = None
    seed: int = 0
    slow: bool = False  # more than a few seconds of CPU time
    code: ClassVar[tuple[str, ...]] = ()  # modules that its result hangs on, beside those of the simulator


def osdi_trace(load: str, workload: int) -> str:
    folder = "workloads" if load == "1.0" else f"workloads-{load}"
    return f"data/traces/pollux_osdi21/{folder}/workload-{workload}.csv"


def osdi_run(policy: str, load: str, workload: int, seed: int = 0, study: str = "", **sim: Any) -> Run:
    """A run of the simulator that came with Pollux, by its rules."""
    config = SimConfig(compat="pollux", **sim)
    name = policy.partition("?")[0]
    label = f"{name}-{load}-w{workload}-s{seed}" + (f"-{study}" if study else "")
    slow = name == "pollux"
    return Run(label, policy, osdi_trace(load, workload), config, profiles=MEASURED, seed=seed, slow=slow)


def all_runs(studies: bool = True) -> list[Run]:
    """Every run of the page, once; ``studies``: with those of intervals and interference."""
    groups = [simulator_runs, osdi_runs, pollux_runs, again_runs, knowledge_runs, deepboot_runs]
    groups += [interval_runs, interference_runs] if studies else []
    return list({run.label: run for group in groups for run in group()}.values())


def osdi_runs() -> list[Run]:
    return [osdi_run(name, load, k) for name in ("tiresias", "optimus") for load in LOADS for k in WORKLOADS]


def pollux_runs() -> list[Run]:
    """Load 1.0 first, since most is published of it."""
    loads = sorted(LOADS, key=lambda load: (load != "1.0", load))
    return [osdi_run("pollux", load, k, seed) for load in loads for seed in SEEDS for k in WORKLOADS]


def again_runs() -> list[Run]:
    """Two runs of Pollux's own simulator at longer rounds that we repeated ourselves, one each."""
    return [run for seed in SEEDS for run in (again("0.5", 5, 120.0, seed), again("1.0", 1, 480.0, seed))]


def again(load: str, workload: int, interval_s: float, seed: int) -> Run:
    study = "" if interval_s == 60 else f"every-{interval_s:g}s"
    return osdi_run("pollux", load, workload, seed, study, interval_s=interval_s)


INTERVALS = {"30s": 30.0, "1m": 60.0, "2m": 120.0, "4m": 240.0, "8m": 480.0}


def interval_runs() -> list[Run]:
    """Rounds of several lengths at load 1.0, one seed."""
    return [again("1.0", k, seconds, 0) for seconds in INTERVALS.values() for k in WORKLOADS]


INTERFERENCE = {"noavoid": 0.0, "inter25": 0.25, "inter50": 0.5}


def interference_runs() -> list[Run]:
    return [interference_run(share, k) for share in INTERFERENCE.values() for k in WORKLOADS]


def interference_run(share: float, workload: int) -> Run:
    """Load 1.0 without avoidance; ``share`` of its speed that a job on a shared node loses."""
    policy = "pollux?avoid_interference=false"
    return osdi_run(policy, "1.0", workload, study=f"sharing-{share:g}", interference=share)


POLICIES = ("fifo", "srtf", "tiresias", "optimus", "afs", "elastic-srtf", "pollux")
# Truth and knowledge of the study of fit errors: profiles that decide how fast jobs run, and what schedulers know.
VARIANTS: dict[str, tuple[str | None, str]] = {
    "measured": (MEASURED, "profile"),
    "fitted": (None, "profile"),
    "measured-online": (MEASURED, "online"),
    "measured-oracle": (MEASURED, "oracle"),
}


def knowledge_run(variant: str, policy: str, workload: int) -> Run:
    """One of our schedulers by our own rules, at load 1.0."""
    profiles, knowledge = VARIANTS[variant]
    sim = SimConfig(interval_s=60.0, rescale_cost="restart", knowledge=knowledge)  # type: ignore[arg-type]
    label = f"{variant}-{policy}-w{workload}"
    return Run(label, policy, osdi_trace("1.0", workload), sim, profiles=profiles, slow=policy in SLOW)


SLOW = ("pollux", "optimus", "afs", "elastic-srtf")


def knowledge_runs() -> list[Run]:
    return [knowledge_run(variant, policy, k) for policy in POLICIES for variant in VARIANTS for k in WORKLOADS]


SIXTY = "60_job__n2g4"
SYNTH = "480_synth__n15g4"
TIRESIAS_TRACES = {
    SIXTY: ("data/traces/tiresias/60_job.csv", "2x4"),
    SYNTH: ("reference/tiresias/480_synth_trace.csv", "15x4"),
}
# Their name of a schedule, and ours.
SCHEDULES = {
    "fifo": "fifo",
    "fjf": "fifo-backfill",
    "sjf": "smallest",
    "shortest": "srtf",
    "shortest-gpu": "srtf-gpu",
    "dlas-gpu": "tiresias",
}


def simulator_run(trace: str, schedule: str) -> Run:
    """A run of the Tiresias simulator, by its rules."""
    path, cluster = TIRESIAS_TRACES[trace]
    sim = SimConfig(compat="tiresias")
    return Run(f"{trace}-{schedule}", SCHEDULES[schedule], path, sim, cluster=cluster)


def simulator_runs() -> list[Run]:
    return [simulator_run(trace, schedule) for trace in TIRESIAS_TRACES for schedule in SCHEDULES]


# Runs of DeepBoot's simulator by the names of their files. AISS: warm pods; AFE: cheap rescaling; ARYL1: inference
# takes whole nodes; P8: protection 8 times as long; n8, n16: nodes.
DEEPBOOT_TRAINING = (
    *(
        f"{policy}_pure_train_AISS1_AFE0_{n}"
        for policy in ("tiresias", "optimus", "afs", "aryl", "dp")
        for n in ("n8", "n16")
    ),
    "dp_pure_train_AISS1_AFE1_n8",
)
DEEPBOOT_SHARED = (
    *(f"tiresias_small_{settings}" for settings in ("AISS0_AFE0", "AISS1_AFE0", "AISS1_AFE1")),
    *(f"optimus_small_{settings}" for settings in ("AISS0_AFE0", "AISS1_AFE1")),
    *(f"afs_small_{settings}" for settings in ("AISS0_AFE0", "AISS1_AFE1")),
    *(f"aryl_small_{settings}" for settings in ("AISS0_AFE0", "AISS1_AFE0", "AISS1_AFE1")),
    *(f"dp_small_{settings}" for settings in ("AISS1_AFE0", "AISS1_AFE1", "AISS1_AFE0_ARYL1", "AISS1_AFE1_P8")),
)
DEEPBOOT_POLICIES = {"aryl": "lyra", "dp": "deepboot"}  # their names that are not ours


def deepboot_run(name: str, own: bool = False) -> Run:
    """A run of DeepBoot's simulator by its rules, or the same settings by our ``own`` rules."""
    policy = name.partition("_")[0]
    sim = SimConfig(
        compat="none" if own else "deepboot",
        rescale_cost="afe" if "AFE1" in name else "restart",
        placement="emptiest" if policy in ("tiresias", "optimus") else "consolidated",
        knowledge="online",
        reclaim="lyra" if policy in ("optimus", "afs", "aryl") or name.endswith("ARYL1") else "ats",
        aiss="AISS1" in name,
        protect_times=8.0 if name.endswith("P8") else 1.0,
    )
    trace = f"data/traces/deepboot/{'small' if name in DEEPBOOT_SHARED else 'pure_train'}.csv"
    cluster = "8x4" if name.endswith("_n8") else "16x4"
    label = f"deepboot-{name}" + ("-own" if own else "")
    return Run(label, DEEPBOOT_POLICIES.get(policy, policy), trace, sim, cluster, profiles="data/profiles/deepboot")


def deepboot_runs() -> list[Run]:
    return [deepboot_run(name, own) for own in (False, True) for name in (*DEEPBOOT_TRAINING, *DEEPBOOT_SHARED)]
