"""Sections of docs/validation.md on the simulator that came with Pollux."""

from __future__ import annotations

from itertools import chain

import numpy as np

from docs.validation_runs import (
    INTERFERENCE,
    INTERVALS,
    LOADS,
    SEEDS,
    WORKLOADS,
    Run,
    again,
    interference_run,
    osdi_run,
)
from docs.validation_tables import (
    NOTHING,
    Recall,
    compare_means,
    difference,
    jct_differences,
    means_of,
    number,
    percent,
    published,
    reference,
    table,
)
from docs.validation_text import TEXTS

NAMES = [f"workload-{k}" for k in WORKLOADS]
COMPARED = ("ours [s]", "theirs [s]", "difference", "tolerance", "verdict")
FIXED = ("tiresias", "optimus")
# Of the measured runs: the file's last part, load and workload.
MEASURED_RUNS = {"w6": ("1.0", 6), "w05_5": ("0.5", 5)}
TOLERANCE = {"0.5": 0.06, "1.0": 0.04, "1.5": 0.06, "2.0": 0.06}  # of Pollux, by load


def fixed_requests(recall: Recall) -> str:
    """tiresias and optimus against the authors' results."""
    rows = []
    for policy in FIXED:
        for load in LOADS:
            runs = [osdi_run(policy, load, k) for k in WORKLOADS]
            theirs = published(f"results-jobload/{policy}-{load}")
            cells = compare_means(recall, runs, [theirs["avgs"][name] for name in NAMES], 0.0)
            shares = [
                jct_differences(result, theirs["jcts"][name])
                for run, name in zip(runs, NAMES, strict=True)
                if (result := recall(run))
            ]
            equal, near = np.mean(shares, axis=0) if shares else (np.nan, np.nan)
            if equal == 1:
                cells[-1] = "equal"
            rows.append([policy, load, str(theirs["n_jobs"]), *cells, percent(equal), percent(near)])
    header = ("policy", "load", "jobs", *COMPARED, "equal jobs", "within 1 %")
    return TEXTS["osdi"] + table(header, rows) + TEXTS["osdi-jobs"] + _by_workload(recall)


def _by_workload(recall: Recall) -> str:
    rows = []
    for load in LOADS:
        for k in WORKLOADS:
            row = [load, str(k)]
            for policy in FIXED:
                theirs, result = published(f"results-jobload/{policy}-{load}"), recall(osdi_run(policy, load, k))
                shares = jct_differences(result, theirs["jcts"][f"workload-{k}"]) if result else (np.nan, np.nan)
                row += [number(result.mean if result else np.nan, 2), number(theirs["avgs"][f"workload-{k}"], 2)]
                row += [percent(share) for share in shares]
            rows.append(row)
    columns = ("ours", "theirs", "equal", "within 1 %")
    return table(("load", "workload", *(f"{policy}: {c}" for policy in FIXED for c in columns)), rows)


def measured(recall: Recall) -> str:
    """tiresias and optimus against our runs of the original: restarts and GPU-hours too."""
    rows = []
    for policy in FIXED:
        for name, (load, k) in MEASURED_RUNS.items():
            theirs, result = reference(f"pollux_sia/osdi_{policy}_{name}.json"), recall(osdi_run(policy, load, k))
            if result is None:
                rows.append([policy, load, str(k), *[NOTHING] * 7])
                continue
            equal, _ = jct_differences(result, theirs["jcts"])
            same = np.mean([result.restarts[job] == (count or 0) for job, count in theirs["restarts_by_job"].items()])
            rows.append(
                [
                    policy,
                    load,
                    str(k),
                    f"{result.mean:.2f} / {theirs['avg_jct_s']:.2f}",
                    percent(equal),
                    f"{sum(result.restarts.values())} / {theirs['restarts_total']}",
                    percent(float(same)),
                    f"{result.round_gpu_h:.2f} / {theirs['gpu_hours_total']:.2f}",
                    difference(result.round_gpu_h, theirs["gpu_hours_total"]),
                    "equal" if equal == same == 1 and _same_hours(result.round_gpu_h, theirs) else "outside",
                ]
            )
    header = ("policy", "load", "workload", "mean jct [s]", "equal jobs", "restarts", "jobs with equal restarts")
    return TEXTS["again"] + table((*header, "GPU-hours", "difference", "verdict"), rows)


def _same_hours(hours: float, theirs: dict[str, float]) -> bool:
    return abs(hours - theirs["gpu_hours_total"]) < 1e-3


def pollux(recall: Recall) -> str:
    """Pollux at 60 s rounds."""
    rows, detail = [], []
    for load in LOADS:
        theirs = published(f"results-jobload/pollux-{load}")["avgs"]
        runs = [[osdi_run("pollux", load, k, seed) for k in WORKLOADS] for seed in SEEDS]
        each = [means_of(recall, some) for some in runs]
        wanted = [theirs[name] for name in NAMES]
        cells = compare_means(recall, list(chain(*runs)), wanted * len(SEEDS), TOLERANCE[load])
        rows.append([load, *(number(float(means.mean()), 1) for means in each), *cells])
        for i, k in enumerate(WORKLOADS):
            mine = [float(means[i]) for means in each]
            detail.append(
                [
                    load,
                    str(k),
                    *(number(m, 1) for m in mine),
                    number(wanted[i], 1),
                    difference(float(np.mean(mine)), wanted[i]),
                ]
            )
    seeds = [f"seed {seed} [s]" for seed in SEEDS]
    text = TEXTS["pollux"] + table(("load", *seeds, *COMPARED), rows)
    text += table(("load", "workload", *seeds, "theirs [s]", "difference of the mean"), detail)
    return text + TEXTS["pollux-again"] + _pollux_measured(recall)


def _pollux_measured(recall: Recall) -> str:
    rows = []
    for file, args, load in (("w05_5_i120", ("0.5", 5, 120.0), "0.5"), ("w1_i480", ("1.0", 1, 480.0), "1.0")):
        theirs = reference(f"pollux_sia/osdi_pollux_{file}.json")
        for seed in SEEDS:
            result = recall(again(*args, seed))
            cells = [NOTHING] * 4
            if result:
                restarts = sum(result.restarts.values()) / len(result.restarts)
                cells = [
                    f"{result.mean:.1f} / {theirs['avg_jct_s']:.1f}",
                    difference(result.mean, theirs["avg_jct_s"]),
                    f"{restarts:.2f} / {theirs['restarts_per_job']:.2f}",
                    f"{result.round_gpu_h:.0f} / {theirs['gpu_hours_total']:.0f}",
                ]
            rows.append([load, str(args[1]), f"{args[2]:g} s", str(seed), *cells])
    header = ("load", "workload", "rounds", "our seed", "mean jct [s]", "difference", "restarts a job", "GPU-hours")
    return table(header, rows)


def studies(recall: Recall) -> str:
    """Pollux at other intervals and under interference."""
    rows = []
    for name, seconds in INTERVALS.items():
        runs = [again("1.0", k, seconds, 0) for k in WORKLOADS]
        rows.append([f"{seconds:g} s", *_study(recall, runs, f"results-period/pollux-{name}")])
    text = TEXTS["interval"] + table(("rounds", *COMPARED), rows)
    rows = [["yes", "any", *_study(recall, [osdi_run("pollux", "1.0", k) for k in WORKLOADS], "results-inter/avoid")]]
    for name, share in INTERFERENCE.items():
        runs = [interference_run(share, k) for k in WORKLOADS]
        rows.append(["no", f"{share:.0%}", *_study(recall, runs, f"results-inter/{name}")])
    return text + TEXTS["interference"] + table(("avoidance", "slow-down", *COMPARED), rows)


def _study(recall: Recall, runs: list[Run], key: str) -> list[str]:
    return compare_means(recall, runs, [published(key)["avgs"][name] for name in NAMES], 0.06)
