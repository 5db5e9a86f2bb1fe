"""Section of docs/validation.md on DeepBoot's simulator: training alone, and training beside inference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from docs.validation_runs import DEEPBOOT_SHARED, DEEPBOOT_TRAINING, deepboot_run
from docs.validation_store import Result
from docs.validation_tables import (
    EQUAL_S,
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

# Of the mean training jct, by their name of the policy.
TOLERANCES = {"tiresias": 0.02, "optimus": 0.02, "afs": 0.05, "aryl": 0.05, "dp": 0.06}
LATENCY, WARM, TAKEN = 0.03, 0.03, 0.10  # mean latency, share of warm hits in points, GPUs taken from training
FIRST_JOBS = 8  # in a table of histories
# Pairs of their own runs that hardly differ, or not at all but for the last digits of a fit's start.
SCATTER = (
    ("dp_pure_train_AISS1_AFE0_n8", "dp_pure_train_AISS1_AFE0_n8_pert1", "fit starts 1e-6 further"),
    ("dp_pure_train_AISS1_AFE0_n8", "dp_pure_train_AISS1_AFE0_n8_pert2", "fit starts 2e-6 further"),
    ("dp_small_AISS1_AFE1", "dp_small_AISS1_AFE1_pert1", "fit starts 1e-6 further"),
    ("aryl_small_AISS0_AFE0", "aryl_small_AISS1_AFE0", "warm pods"),
    ("aryl_small_AISS1_AFE0", "aryl_small_AISS1_AFE1", "cheap rescaling"),
)


def deepboot(recall: Recall) -> str:
    """Every run against the original's, by its rules and by ours; then what differs, and by how much it may."""
    text = TEXTS["deepboot"] + _training(recall) + TEXTS["deepboot-shared"] + _inference(recall)
    return text + TEXTS["deepboot-causes"] + _scatter() + TEXTS["deepboot-histories"] + _histories(recall)


def _theirs(name: str) -> Any:
    return reference(f"deepboot/{name}.json")


def _jobs(name: str) -> dict[str, dict[str, Any]]:
    """Their training jobs by name."""
    return {job["name"]: job for job in _theirs(name)["jobs"] if not job["inference"]}


def _training(recall: Recall) -> str:
    """Mean training jct of each run."""
    rows = []
    for name in (*DEEPBOOT_TRAINING, *DEEPBOOT_SHARED):
        result, own = recall(deepboot_run(name)), recall(deepboot_run(name, own=True))
        theirs, ours = float(_theirs(name)["jct_train"]["mean"]), result.mean if result else np.nan
        equal = jct_differences(result, {k: job["jct"] for k, job in _jobs(name).items()})[0] if result else np.nan
        free = own.mean if own else np.nan
        tolerance = TOLERANCES[name.partition("_")[0]]
        rows.append(
            [
                f"`{name}`",
                number(theirs, 1),
                number(ours, 1),
                difference(ours, theirs),
                f"{100 * tolerance:g} %",
                "equal" if equal == 1 else verdict(ours, theirs, tolerance),
                percent(equal),
                number(free, 1),
                difference(free, theirs),
            ]
        )
    header = ("run", "theirs [s]", "ours [s]", "difference", "tolerance", "verdict", "equal jobs")
    return table((*header, "compat off [s]", "difference"), rows)


def _inference(recall: Recall) -> str:
    """Latency, warm hits and GPUs taken of the runs beside inference."""
    rows = []
    for name in DEEPBOOT_SHARED:
        theirs, result, own = _theirs(name), recall(deepboot_run(name)), recall(deepboot_run(name, own=True))
        latency, taken = theirs["jct_infer"]["mean"], theirs["events"]["train_gpus_taken_by_infer"]
        warm = theirs["infer_cache_hits"] / theirs["jct_infer"]["n"]
        ours = (result.mean_latency, result.num_warm / len(result.latency_s)) if result else (np.nan, np.nan)
        outside = list(_outside(name, result))
        rows.append(
            [
                f"`{name}`",
                f"{latency:.2f} / {number(ours[0], 2)}",
                difference(ours[0], latency),
                f"{percent(warm)} / {percent(ours[1])}",
                f"{taken} / {result.num_taken if result else NOTHING}",
                difference(result.num_taken if result else np.nan, taken),
                ("outside: " + ", ".join(outside) if outside else "within") if result else NOTHING,
                number(own.mean_latency if own else np.nan, 2),
                difference(own.mean_latency if own else np.nan, latency),
            ]
        )
    header = ("run", "latency theirs / ours [s]", "difference", "warm hits", "GPUs taken", "difference", "verdict")
    return table((*header, "latency, compat off [s]", "difference"), rows)


def _outside(name: str, result: Result | None) -> Iterator[str]:
    """What of the inference of a run differs by more than its tolerance."""
    if result is None:
        return
    theirs = _theirs(name)
    if verdict(result.mean_latency, theirs["jct_infer"]["mean"], LATENCY) == "outside":
        yield "latency"
    if abs(result.num_warm / len(result.latency_s) - theirs["infer_cache_hits"] / theirs["jct_infer"]["n"]) > WARM:
        yield "warm hits"
    if verdict(result.num_taken, theirs["events"]["train_gpus_taken_by_infer"], TAKEN) == "outside":
        yield "GPUs taken"


def _scatter() -> str:
    """How far apart two runs of the original are."""
    rows = []
    for first, second, change in SCATTER:
        a, b = (float(_theirs(name)["jct_train"]["mean"]) for name in (first, second))
        rows.append([f"`{first}`", f"`{second}`", change, number(a, 1), number(b, 1), difference(b, a)])
    return table(("run of theirs", "another", "what differs", "first [s]", "second [s]", "difference"), rows)


def _histories(recall: Recall) -> str:
    """First jobs that differ, of the runs that are outside."""
    text = ""
    for name in (*DEEPBOOT_TRAINING, *DEEPBOOT_SHARED):
        result = recall(deepboot_run(name))
        if result is None:
            continue
        mean = verdict(result.mean, _theirs(name)["jct_train"]["mean"], TOLERANCES[name.partition("_")[0]])
        if mean == "outside" or (name in DEEPBOOT_SHARED and any(_outside(name, result))):
            text += f"\n`{name}`\n" + _history(name, result)
    return text or "\nThere is none.\n"


def _history(name: str, result: Result) -> str:
    theirs = _jobs(name)
    apart = [job for job in theirs if abs(result.jct_s[job] - theirs[job]["jct"]) >= EQUAL_S]
    rows = []
    for job in sorted(apart, key=lambda job: theirs[job]["submission_time"])[:FIRST_JOBS]:
        their = theirs[job]
        waited = their["jct"] - their["run_time"] - their["total_delay"]
        rows.append(
            [
                job,
                their["submission_time"],
                f"{result.first_start_s[job]:.0f}",
                f"{waited:.0f} / {result.waited_s[job]:.0f}",
                f"{their['jct']:.0f} / {result.jct_s[job]:.0f}",
                f"{their['num_restarts'] or 0} / {result.restarts[job]}",
            ]
        )
    header = ("job", "arrival [s]", "our first start [s]", "time without GPUs theirs / ours [s]", "jct [s]", "restarts")
    return f"\n{len(apart)} of {len(theirs)} jobs differ; the first to arrive:\n" + table(header, rows)
