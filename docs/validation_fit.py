"""Section of docs/validation.md on the errors of the fitted profiles: what they do to a ranking of schedulers."""

from __future__ import annotations

import numpy as np
from scipy.stats import kendalltau

from docs.validation_runs import POLICIES, VARIANTS, WORKLOADS, knowledge_run
from docs.validation_tables import NOTHING, Floats, Recall, difference, means_of, number, table
from docs.validation_text import TEXTS

COLUMNS = {
    "measured": "measured truth, shipped profiles known",
    "fitted": "fitted truth, shipped profiles known",
    "measured-online": "measured truth, online fits known",
    "measured-oracle": "measured truth, truth known",
}


def fit_errors(recall: Recall) -> str:
    """Mean jct and rank of each scheduler under each truth and knowledge, and how well the ranks agree."""
    means = {
        variant: np.array(
            [means_of(recall, [knowledge_run(variant, policy, k) for k in WORKLOADS]) for policy in POLICIES]
        )
        for variant in VARIANTS
    }
    totals = {variant: values.mean(axis=1) for variant, values in means.items()}
    rows = []
    for i, policy in enumerate(POLICIES):
        cells = [_with_rank(totals[variant], i) for variant in VARIANTS]
        rows.append([f"`{policy}`", *cells, difference(totals["fitted"][i], totals["measured"][i])])
    header = ("scheduler", *COLUMNS.values(), "fitted over measured truth")
    return TEXTS["fit"] + table(header, rows) + TEXTS["tau"] + _agreement(means, totals)


def _with_rank(means: Floats, i: int) -> str:
    if np.isnan(means[i]):
        return NOTHING
    return f"{means[i]:.0f} ({1 + int((means < means[i]).sum())})"


def _agreement(means: dict[str, Floats], totals: dict[str, Floats]) -> str:
    """Kendall's tau against the first column: of the means over workloads, and workload by workload."""
    rows = []
    for variant in list(VARIANTS)[1:]:
        single = [kendalltau(a, b).statistic for a, b in zip(means["measured"].T, means[variant].T, strict=True)]
        single = [tau for tau in single if not np.isnan(tau)]
        best = np.argmin(np.nan_to_num(means["measured"], nan=np.inf), axis=0)
        same = (best == np.argmin(np.nan_to_num(means[variant], nan=np.inf), axis=0)).mean()
        total = _tau(totals["measured"], totals[variant])
        rows.append(
            [
                COLUMNS[variant],
                number(total, 2),
                f"{np.mean(single):.2f} ({min(single):.2f} to {max(single):.2f})" if single else NOTHING,
                NOTHING if np.isnan(total) else f"{round(8 * same)} of 8",
            ]
        )
    return table(("against the first column", "tau of the means", "tau a workload: mean (range)", "same best"), rows)


def _tau(a: Floats, b: Floats) -> float:
    return float(kendalltau(a, b).statistic) if not np.isnan(a + b).any() else float("nan")
