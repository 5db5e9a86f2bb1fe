"""Sections of docs/validation.md on the Tiresias simulator, on small cases, and on what was run."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from docs.validation_runs import LOADS, SCHEDULES, SEEDS, TIRESIAS_TRACES, WORKLOADS, all_runs, osdi_run, simulator_run
from docs.validation_tables import (
    NOTHING,
    Recall,
    difference,
    jct_differences,
    number,
    percent,
    reference,
    table,
    verdict,
)
from docs.validation_text import TEXTS
from docs.validation_tiny import Tiny, single_jobs, tiny_helios, tiny_tiresias
from docs.validation_units import units

LATE = "the original demotes wide jobs late (tiresias_gavel_helios.md 1.3)"


def tiresias(recall: Recall) -> str:
    """The Tiresias simulator's two traces."""
    rows = []
    for trace, (_, cluster) in TIRESIAS_TRACES.items():
        for schedule, policy in SCHEDULES.items():
            folder = trace.split("__")[0]
            theirs = reference(f"tiresias/{folder}/{trace}__{schedule}__count.json")
            jcts = {str(job["job_id"]): float(job["JCT"]) for job in theirs["jobs"]}
            result = recall(simulator_run(trace, schedule))
            tolerance = 0.01 if schedule == "dlas-gpu" else 0.0
            mean = result.mean if result else float("nan")
            equal = jct_differences(result, jcts)[0] if result else float("nan")
            preempted = sum(result.restarts.values()) if result else NOTHING
            rows.append(
                [
                    trace.split("__")[0],
                    cluster,
                    f"{schedule} = `{policy}`",
                    number(mean, 3),
                    f"{theirs['avg_jct']:.3f}",
                    difference(mean, theirs["avg_jct"]),
                    percent(equal),
                    f"{preempted} / {theirs['preempts']}",
                    f"{100 * tolerance:g} %",
                    "equal" if equal == 1 else verdict(mean, theirs["avg_jct"], tolerance),
                    LATE if equal < 1 else "",
                ]
            )
    header = ("trace", "cluster", "schedule", "ours [s]", "measured [s]", "difference", "equal jobs", "preemptions")
    return TEXTS["tiresias"] + table((*header, "tolerance", "verdict", "cause"), rows)


def small_cases(_: Recall) -> str:
    """Schedules of a few jobs, single functions, single jobs."""
    text = TEXTS["tiny"]
    text += table(
        ("simulator", "compared", "equal", "differing", "by", "cause"),
        [*_tiny("Tiresias", tiny_tiresias()), *_tiny("Helios", tiny_helios())],
    )
    rows = [
        [
            u.name,
            u.source,
            u.count,
            f"{u.worst:.1e}",
            f"{u.tolerance:g}",
            "within" if u.worst <= u.tolerance else "outside",
        ]
        for u in units()
    ]
    header = ("value", "file", "numbers", "largest relative difference", "tolerance", "verdict")
    text += TEXTS["units"] + table(header, rows) + TEXTS["single"]
    rows = [
        [
            name.replace("_", ", "),
            f"{ours:.1f}",
            f"{theirs:.0f}",
            difference(ours, theirs),
            f"{epochs / 2:g} s",
            "within" if abs(ours - theirs) <= epochs / 2 else "outside",
        ]
        for name, ours, theirs, epochs in single_jobs()
    ]
    header = ("model, GPUs, batch", "ours [s]", "measured [s]", "difference", "tolerance", "verdict")
    return text + table(header, rows)


def _tiny(simulator: str, cases: list[Tiny]) -> list[list[object]]:
    """One row for what is equal, and one for each case that is not."""
    equal = sum(case.apart_s == 0 and case.preemptions_equal for case in cases)
    rows: list[list[object]] = [[simulator, len(cases), equal, "", "", ""]]
    for case in cases:
        if case.apart_s > 0 or not case.preemptions_equal:
            rows.append(["", "", "", f"{case.case}, {case.schedule}", f"{case.apart_s:g} s", case.cause])
    return rows


def speed(recall: Recall) -> str:
    """CPU seconds of whole runs."""
    rows = []
    for policy in ("tiresias", "optimus", "pollux"):
        row = [f"`{policy}`"]
        for load in LOADS:
            seeds = SEEDS if policy == "pollux" else (0,)
            results = [recall(osdi_run(policy, load, k, seed)) for seed in seeds for k in WORKLOADS]
            seconds = [result.cpu_s for result in results if result]
            row.append(f"{np.median(seconds):.3g}" if seconds else NOTHING)
        rows.append(row)
    header = ("scheduler", *(f"load {load}, {round(160 * float(load))} jobs" for load in LOADS))
    return TEXTS["speed"] + table(header, rows)


def every_run(recall: Recall) -> str:
    """Each run that the page is made of, a series of workloads a row."""
    series: dict[str, dict[int, float]] = defaultdict(dict)
    seconds: dict[str, list[float]] = defaultdict(list)
    for run in all_runs():
        name, result = run_name(run.label), recall(run)
        series[name[0]][name[1]] = result.mean if result else float("nan")
        seconds[name[0]] += [result.cpu_s] if result else []
    rows = [
        [f"`{name}`", *(number(means[k], 1) if k in means else "" for k in WORKLOADS), _seconds(seconds[name])]
        for name, means in series.items()
    ]
    return TEXTS["runs"] + table(("run", *(f"w{k}" for k in WORKLOADS), "CPU [s]"), rows)


def run_name(label: str) -> tuple[str, int]:
    """Name of the series that a run belongs to, and its workload (1 if there is only one)."""
    found = re.search(r"-w(\d)(?=-|$)", label)
    return (label.replace(found[0], "-w*"), int(found[1])) if found else (label, 1)


def _seconds(seconds: list[float]) -> str:
    if not seconds:
        return NOTHING
    return f"{np.mean(seconds):.3g}" if np.mean(seconds) >= 0.01 else "< 0.01"
