"""Writes docs/stragglers.md: what was asked, what was run, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from docs.sharing_findings import bullets
from docs.straggler_study.compare import (
    Find,
    average,
    change,
    gained,
    of_size,
    passing,
    recovered,
    recovered_passing,
    still,
)
from docs.straggler_study.findings import findings, named, one, share, signed
from docs.straggler_study.presets import fit_table, preset_table
from docs.straggler_study.runs import (
    ABLATED,
    FREE,
    NOISE,
    OBLIVIOUS,
    ORACLE,
    PLACING,
    PSR,
    REACTING,
    SEEDS,
    SPLIT,
    STATIC,
    STATIC_AWARE,
    STUDIED,
    SWEPT,
    Case,
    headline,
)
from docs.straggler_study.store import SIZES
from docs.straggler_study.text import CONSTANTS, TEXTS
from docs.study import made_with
from docs.validation_runs import Run
from docs.validation_tables import number, table

COMMAND = "`python -m docs.straggler_study`"
SEEDS_USED = f"{SEEDS[0]} to {SEEDS[-1]}, of ablations and sweeps the first"


def make_page(found: Mapping[Run, Any]) -> str:
    """The whole page from the results there are; what is missing is a dash."""
    find = found.get
    text = bullets(findings(find))
    parts = [TEXTS["head"].lstrip(), preset_table(), TEXTS["constants"]]
    parts += [table(("constant", "value", "where from"), CONSTANTS), TEXTS["fit"], fit_table(find)]
    parts += [TEXTS["seen"], TEXTS["schedulers"], TEXTS["experiment"], made_with(found, COMMAND, SEEDS_USED)]
    parts += [TEXTS["findings"], f"\n{text or 'No run has a result.'}\n", TEXTS["main"]]
    parts += [*_by_preset(find, _main), TEXTS["more"], *_by_preset(find, _more)]
    parts += [TEXTS["sizes"], _sizes(find), TEXTS["origin"], _origin(find), TEXTS["noise"], _noise(find)]
    parts += [TEXTS["ablations"], _ablations(find), TEXTS["sweeps"], _sweeps(find), TEXTS["limits"]]
    return "".join(parts).rstrip() + "\n"


def _by_preset(find: Find, part: Any) -> list[str]:
    return [f"\nPreset {preset}:\n{part(find, preset)}" for preset in STUDIED]


def _rows(preset: str) -> list[Case]:
    """The headline's, and both without stragglers."""
    return [*headline(preset), *(Case(rule, preset, name) for name in (STATIC, FREE) for rule in (OBLIVIOUS, PSR))]


def _main(find: Find, preset: str) -> str:
    rows = []
    for case in _rows(preset):
        base = Case(OBLIVIOUS, preset)
        calm = case.change in (STATIC, FREE)
        rows.append(
            [
                named(case),
                one(average(find, case, "loss")),
                "" if calm or case == base else share(recovered(find, case)),
                number(average(find, case)),
                "" if case == base else signed(change(find, case, base)),
                *("" if case == base else signed(change(find, case, base, what)) for what in ("p95_s", "p99_s")),
                number(average(find, case, "queueing_s")),
            ]
        )
    header = ("scheduler", "loss", "recovered", "mean jct [s]", "against oblivious", "95th percentile", "99th")
    return table((*header, "queueing [s]"), rows)


def _more(find: Find, preset: str) -> str:
    rows = []
    for case in _rows(preset):
        shares = [one(average(find, case, what)) for what in ("straggling", "slowed")]
        ratios = [number(average(find, case, what), 3) for what in ("slowdown", "p99_slowdown")]
        counts = [number(average(find, case, what)) for what in ("moves", "paused_gpu_h", "gpu_h")]
        hours = number(average(find, case, "makespan_s") / 3600, 1)
        used, cpu = one(average(find, case, "utilisation")), number(average(find, case, "cpu_s"), 1)
        rows.append([named(case), *shares, *ratios, *counts, used, hours, cpu])
    header = ("scheduler", "straggling", "slowed", "run slowdown", "99th", "moves", "paused GPU-hours", "GPU-hours")
    return table((*header, "GPUs held", "makespan [h]", "CPU [s]"), rows)


def _sizes(find: Find) -> str:
    rows = []
    for preset in STUDIED:
        for size in SIZES:
            cases = [Case(OBLIVIOUS, preset), Case(STATIC_AWARE, preset), Case(PSR, preset), Case(PSR, preset, ORACLE)]
            jobs = of_size(find, cases[0], size, "jobs")
            if size == SIZES[-1] and np.isnan(jobs):
                continue  # the workload has none
            losses = [one(of_size(find, case, size, "loss")) for case in cases]
            slower = [number(of_size(find, case, size, "slowdown"), 3) for case in (cases[0], cases[2])]
            means = [number(of_size(find, case, size, "mean_s")) for case in (cases[0], cases[2])]
            rows.append([preset, size, number(jobs), *losses, *slower, *means])
    names = [f"loss, {name}" for name in ("oblivious", STATIC_AWARE, PSR, "oracle")]
    more = [f"{what}, {rule}" for what in ("run slowdown", "mean jct [s]") for rule in (OBLIVIOUS, PSR)]
    return table(("preset", "GPUs", "jobs a run", *names, *more), rows)


def _origin(find: Find) -> str:
    rows = []
    for preset in STUDIED:
        for rule in (*SPLIT, PLACING, REACTING):
            case = Case(rule, preset)
            split = rule in SPLIT
            row = [preset, named(case), one(average(find, case, "loss"))]
            row += [one(float(part(find, case).mean())) if split else "" for part in (still, passing)]
            row += ["", ""] if rule == OBLIVIOUS else [share(recovered(find, case))]
            row += [] if rule == OBLIVIOUS else [share(recovered_passing(find, case)) if split else ""]
            rows.append(row)
    header = (
        "preset",
        "scheduler",
        "loss",
        "static part",
        "what comes and goes",
        "recovered",
        "of what comes and goes",
    )
    return table(header, rows)


def _noise(find: Find) -> str:
    rows = []
    for preset in STUDIED:
        for rule in (PSR, PLACING):
            cases = [Case(rule, preset, name) for name in NOISE.values()]
            rows.append([preset, named(Case(rule)), *(share(recovered(find, case)) for case in cases)])
    return table(("preset", "scheduler", *(f"sigma_p {sigma:g}" for sigma in NOISE)), rows)


def _ablations(find: Find) -> str:
    rows = []
    for preset in STUDIED:
        psr = Case(PSR, preset)
        for name, (rule, setting) in ABLATED.items():
            case = Case(rule, preset, setting)
            found = signed(gained(find, case, psr), "points"), signed(change(find, case, psr))
            rows.append([preset, name, share(recovered(find, case)), *found, number(average(find, case, "moves"))])
    return table(("preset", "psr with", "recovered", "less psr's", "mean jct against psr", "moves"), rows)


def _sweeps(find: Find) -> str:
    rows = []
    for preset in STUDIED:
        for name in SWEPT[preset]:
            case = Case(PSR, preset, name)
            losses = [one(average(find, each, "loss")) for each in (case.base, case)]
            found = [share(recovered(find, case)), signed(change(find, case)), signed(change(find, case, what="p99_s"))]
            rows.append([preset, name, *losses, *found, number(average(find, case, "moves"))])
    header = ("preset", "world", "loss, oblivious", "loss, psr", "recovered", "mean jct", "99th percentile", "moves")
    return table(header, rows)
