"""Writes docs/sharing.md: what was asked, what was run, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from docs.sharing_curves import (
    NOT_IN_MEAN,
    Find,
    equalise,
    gains,
    measured_violations,
    stretched,
    values,
    versus_confined,
    versus_deepboot,
)
from docs.sharing_findings import KINDS, bullets, interval, measured_findings, percent, spread, sweep_findings
from docs.sharing_runs import LOADS, LONG, MODES, PROTECT, SCHEDULERS, SEEDS, WORKLOADS, Study
from docs.sharing_store import Outcome
from docs.sharing_text import TEXTS
from docs.study import made_with
from docs.validation_tables import number, table

COMMAND = "`python -m docs.sharing`; part A needs the measured data in `../shared`"
SEEDS_USED = f"{SEEDS[0]} to {SEEDS[-1]} of the generated workloads; no scheduler here draws random numbers"


def make_page(found: Mapping[Study, Outcome | None]) -> str:
    """The whole page from the results there are; what is missing is a dash."""
    find = found.get
    parts = [TEXTS["head"].lstrip(), made_with(found, COMMAND, SEEDS_USED), TEXTS["findings"]]
    for name, sentences in (("A", measured_findings(find)), ("B", sweep_findings(find))):
        text = bullets(sentences)
        parts.append(f"\nPart {name}:\n\n{text or 'Not all of its runs have a result.'}\n")
    parts += [TEXTS["measured"], _measured(find), TEXTS["measured-violations"], _violations(find)]
    parts += [TEXTS["sweep"], _at_equal(find), TEXTS["confined"], _confined(find), TEXTS["limits"]]
    return "".join(parts).rstrip() + "\n"


def _measured(find: Find) -> str:
    """Part A: mean jct confined, and how it changes otherwise."""
    others = [mode for mode in MODES if mode != "confined"]
    rows = [
        [
            name,
            f"`{scheduler}`",
            number(float(stretched(find, scheduler, "confined", kind).mean())),
            *(spread(gains(find, scheduler, mode, kind)) for mode in others),
        ]
        for kind, name in KINDS.items()
        for scheduler in (SCHEDULERS if kind != NOT_IN_MEAN else ("deepboot",))
    ]
    header = ("jobs", "scheduler", "confined [s]", "borrows", "borrows, protection x 16", "inference has 2 nodes")
    return table((*header, "no inference"), rows)


def _violations(find: Find) -> str:
    modes = [mode for mode in MODES if mode != "alone"]
    rows = [
        [f"`{scheduler}`", *(percent(measured_violations(find, scheduler, mode, "")) for mode in modes)]
        for scheduler in SCHEDULERS
    ]
    return table(("scheduler", "confined", "borrows", "borrows, protection x 16", "inference has 2 nodes"), rows)


def _at_equal(find: Find) -> str:
    """Part B: everyone against deepboot, at equal settings and at equal violations."""
    rows = []
    for without in WORKLOADS:
        for load in LOADS:
            for scheduler in SCHEDULERS:
                same, equal = versus_deepboot(find, scheduler, load, without)
                level = equalise(find, scheduler, load, without)
                first = scheduler == "deepboot"
                rows.append(
                    [
                        f"{KINDS[without]}, {percent(load)}" if first else "",
                        f"`{scheduler}`",
                        number(float(values(find, "mean", scheduler, load, without).mean())),
                        percent(float(values(find, "violations", scheduler, load, without).mean())),
                        "" if first else interval(same),
                        number(float(level.jct_s.mean())),
                        "" if first else interval(equal),
                        "" if first else f"{level.reached.sum()} of {len(SEEDS)}",
                    ]
                )
    header = ("jobs, load", "scheduler", "jct [s]", "violate", "against `deepboot`, same protection")
    return table((*header, "jct at equal violations [s]", "against `deepboot`, equal violations", "reached"), rows)


def _confined(find: Find) -> str:
    """Part B: borrowing against not borrowing, and rows of reference."""
    rows = []
    for without in WORKLOADS:
        for load in LOADS:
            row = [f"{KINDS[without]}, {percent(load)}"]
            for scheduler, rule in (("deepboot", "static"), ("lyra", "lyra")):
                jct, late = (
                    float(values(find, what, scheduler, load, without, rule=rule).mean())
                    for what in ("mean", "violations")
                )
                row += [number(jct), percent(late)]
                if rule == "static":
                    for protect in (PROTECT[0], LONG):
                        late = float(np.mean(values(find, "violations", "deepboot", load, without, (protect,))))
                        row.append(f"{interval(versus_confined(find, load, without, protect))}; {percent(late)}")
                    reached = equalise(find, "deepboot", load, without, "static").reached.sum()
                    row += [interval(versus_confined(find, load, without, None)), f"{reached} of {len(SEEDS)}"]
            rows.append(row)
    header = ("jobs, load", "`deepboot` confined [s]", "violate", "borrows: change; violate")
    more = (f"the same, protection x {LONG:g}", "change at equal violations", "reached")
    return table((*header, *more, "`lyra`, whole nodes [s]", "violate"), rows)
