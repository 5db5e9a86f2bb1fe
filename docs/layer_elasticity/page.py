"""Writes docs/layer-elasticity.md: what was asked, what was run, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from docs.layer_elasticity.compare import (
    Case,
    Find,
    best_base,
    excess,
    mean_excess,
    most_excess,
    outcomes,
    values,
    versus_base,
    versus_host,
)
from docs.layer_elasticity.findings import findings
from docs.layer_elasticity.runs import (
    BY_HOST,
    HOSTS,
    ICEFROG,
    NO_MARGIN,
    SAFE,
    SEEDS,
    SHORT_GAP_S,
    TRAPS,
    UNFROZEN,
    USERS,
)
from docs.layer_elasticity.store import Outcome
from docs.layer_elasticity.text import CONSTANTS, TEXTS
from docs.sharing_findings import bullets, interval
from docs.study import made_with
from docs.validation_runs import Run
from docs.validation_tables import NOTHING, number, table
from traces.freezing import PRESETS
from traces.synthetic_pollux import MODELS

COMMAND = "`python -m docs.layer_elasticity`"
SEEDS_USED = f"{SEEDS[0]} to {SEEDS[-1]}"


def make_page(found: Mapping[Run, Outcome | None]) -> str:
    """The whole page from the results there are; what is missing is a dash."""
    find = found.get
    text = bullets(findings(find))
    parts = [TEXTS["head"].lstrip(), table(("constant", "value", "where from"), CONSTANTS), TEXTS["fit"]]
    parts += [made_with(found, COMMAND, SEEDS_USED), TEXTS["findings"], f"\n{text or 'No run has a result.'}\n"]
    parts += [TEXTS["main"], _main(find), TEXTS["models"], _models(find), TEXTS["known"], _known(find)]
    parts += [TEXTS["presets"], _presets(find), TEXTS["constants"], _settings(find), TEXTS["limits"]]
    return "".join(parts).rstrip() + "\n"


def _main(find: Find) -> str:
    rows = []
    for policy in (*UNFROZEN, *ICEFROG, *SAFE, *USERS, *TRAPS):
        case = Case(policy)
        frozen = case.host != policy
        rows.append(
            [
                f"`{policy}`",
                number(float(values(find, case).mean())),
                number(float(values(find, case, "p90_s").mean())),
                "" if case == best_base(find) else interval(versus_base(find, case)),
                interval(versus_host(find, case)) if frozen else "",
                _lack(mean_excess(find, case)) if frozen else "",
                _lack(most_excess(find, case)) if frozen else "",
                *(number(float(values(find, case, what).mean()), 1) for what in ("depth_changes", "rescales")),
                number(float(values(find, case, "gpu_h").mean())),
            ]
        )
    header = ("scheduler", "mean jct [s]", "90th percentile [s]", "against the best base", "against the own host")
    more = ("excess, all jobs", "excess, worst model", "changes of depth a job", "of GPUs a job", "GPU-hours")
    return table((*header, *more), rows)


def _models(find: Find) -> str:
    cases = list(dict.fromkeys([best_base(find), *map(Case, (*HOSTS, *ICEFROG))]))
    rows = []
    for model in MODELS:
        means = [float(np.mean([outcome.jct_s[model] for outcome in outcomes(find, case)])) for case in cases]
        lacks = [_lack(excess(find, Case(policy))[model]) for policy in ICEFROG]
        rows.append([model, *map(number, means), *lacks])
    header = ["model", *(f"`{case.policy}` [s]" for case in cases), *(f"excess, `{policy}`" for policy in ICEFROG)]
    return table(header, rows)


def _known(find: Find) -> str:
    rows = []
    for policy in BY_HOST:
        row = [f"`{policy}`"]
        for case in (Case(policy), Case(policy + NO_MARGIN), Case(policy + NO_MARGIN, "exact")):
            row += [interval(versus_base(find, case)), _lack(most_excess(find, case))]
        rows.append(row)
    header = ("scheduler", "noisy, margin 1", "excess", "noisy, margin 0", "excess", "exact, margin 0", "excess")
    return table(header, rows)


def _presets(find: Find) -> str:
    rows = []
    for preset in PRESETS:
        for policy in BY_HOST:
            case = Case(policy, preset=preset)
            first = f"`{preset}`" if policy == BY_HOST[0] else ""
            changes = interval(versus_host(find, case)), interval(versus_base(find, case))
            rows.append([first, f"`{policy}`", number(float(values(find, case).mean())), *changes])
            rows[-1].append(_lack(most_excess(find, case)))
    header = ("preset", "scheduler", "mean jct [s]", "against the own host", "against the best base", "excess")
    return table(header, rows)


def _settings(find: Find) -> str:
    rows = []
    for policy in BY_HOST:
        row = [f"`{policy}`"]
        for case in (Case(policy, "ddp"), Case(policy, "no cache"), Case(policy, gap_s=SHORT_GAP_S)):
            row += [interval(versus_base(find, case)), interval(versus_host(find, case))]
        rows.append(row)
    names = ("DDP", "no cache", "gap 120 s")
    return table(("scheduler", *(f"{name}, {to}" for name in names for to in ("best base", "own host"))), rows)


def _lack(value: float) -> str:
    return NOTHING if np.isnan(value) else f"{value:.4f}"
