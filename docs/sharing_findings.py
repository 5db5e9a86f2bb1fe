"""What the results of docs/sharing.md say, in sentences whose every figure and every verdict is computed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

import numpy as np

from docs.sharing_curves import (
    CELLS,
    NOT_IN_MEAN,
    Find,
    Floats,
    equalise,
    gains,
    measured_violations,
    stretched,
    values,
    versus_confined,
    versus_deepboot,
)
from docs.sharing_plots import CLAIM
from docs.sharing_runs import LARGEST, LOADS, LONG, MODES, PROTECT, SCHEDULERS
from docs.validation_tables import NOTHING
from envs.statistics import Estimate, paired_ratio

OTHERS = tuple(name for name in SCHEDULERS if name != "deepboot")
KINDS = {
    "": "all jobs",
    NOT_IN_MEAN: f"all jobs, those of {LARGEST} not in the mean",
    LARGEST: f"without {LARGEST} jobs",
}


def bullets(sentences: Iterator[str]) -> str:
    """A Markdown list, wrapped, but not between a number and its unit."""
    lines = (text.replace(" %", "\0%") for text in sentences)
    wrapped = [textwrap.fill(f"* {text}", 119, subsequent_indent="  ", break_on_hyphens=False) for text in lines]
    return "\n".join(wrapped).replace("\0", " ")


def change(share: float) -> str:
    """With its sign; NaN is a dash."""
    return NOTHING if np.isnan(share) else f"{100 * share:+.1f} %"


def spread(array: Floats) -> str:
    """Mean of changes, and the least and the greatest of them."""
    if np.isnan(array).any():
        return NOTHING
    return f"{change(float(array.mean()))} ({100 * array.min():+.1f} to {100 * array.max():+.1f})"


def interval(estimate: Estimate) -> str:
    """A change and its 95 % interval."""
    if np.isnan([*estimate]).any():
        return change(estimate.value)
    return f"{change(estimate.value)} ({100 * estimate.ci_low:+.1f} to {100 * estimate.ci_high:+.1f})"


def percent(share: float) -> str:
    """Two digits that count."""
    return NOTHING if np.isnan(share) else f"{float(f'{100 * share:.2g}'):g} %"


def listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def measured_findings(find: Find) -> Iterator[str]:
    """Of part A."""
    for kind, name in KINDS.items():
        gain = gains(find, "deepboot", "shared", kind)
        if not np.isnan(gain).any():
            yield _claim(gain, name)
    shared, alone, fixed = (gains(find, "deepboot", mode, "") for mode in ("shared", "alone", "two nodes"))
    if np.isnan([*shared, *alone, *fixed]).any():
        return
    yield _capacity(find, shared.mean(), alone.mean(), fixed.mean())
    others = {name: gains(find, name, "shared", "").mean() for name in OTHERS}
    more = [f"`{name}` {change(gain)}" for name, gain in others.items() if gain < shared.mean()]
    less = [f"`{name}` {change(gain)}" for name, gain in others.items() if gain >= shared.mean()]
    texts = [f"{word} than that: {listed(names)}" for names, word in ((more, "more"), (less, "less")) if names]
    yield f"Borrowing brings `deepboot` {change(shared.mean())}, all jobs; {'; '.join(texts)}."
    for kind in ("", LARGEST):
        base = stretched(find, "deepboot", "shared", kind)
        ratios = {name: stretched(find, name, "shared", kind) / base - 1 for name in OTHERS}
        best = min(ratios, key=lambda name: float(ratios[name].mean()))
        yield (
            f"Of the others that borrow, `{best}` has the least mean jct: {spread(ratios[best])} against `deepboot`'s "
            f"at the same protection ({KINDS[kind]})."
        )


def _claim(gain: Floats, name: str) -> str:
    holds = int((-gain >= CLAIM).sum())
    verdict = "holds in all" if holds == len(gain) else "holds in none" if holds == 0 else f"holds in {holds}"
    return (
        f"`deepboot` that borrows against `deepboot` confined to its half, mean training jct, {name}: {spread(gain)}, "
        f"mean and range of {len(gain)} stretches. At least {percent(CLAIM)} lower {verdict} of them."
    )


def _capacity(find: Find, shared: float, alone: float, fixed: float) -> str:
    """How much of the gain comes without borrowing anything."""
    late = {mode: percent(measured_violations(find, "deepboot", mode, "")) for mode in MODES}
    protected = gains(find, "deepboot", "protected", "").mean()
    most = "most" if fixed / shared > 0.5 else "less than half"
    return (
        f"With no inference at all on all 16 nodes it is {change(alone)}; borrowing gets {percent(shared / alone)} of "
        f"that. A fixed partition in which training borrows nothing and inference has 2 nodes instead of 8 is "
        f"{change(fixed)}, which is {percent(fixed / shared)} of what borrowing gets: {most} of the gain is capacity "
        f"that the half leaves idle. Tasks that violate: {late['confined']} confined, {late['two nodes']} with 2 "
        f"nodes, {late['shared']} borrowing. Borrowing with protection x {LONG:g} is {change(protected)}, and "
        f"{late['protected']} violate."
    )


def sweep_findings(find: Find) -> Iterator[str]:
    """Of part B."""
    if any(np.isnan(versus_confined(find, load, without, None).value) for load, without in CELLS):
        return
    for protect in (PROTECT[0], LONG):
        yield _borrowing(find, protect)
    yield _borrowing_equally(find)
    for scheduler in OTHERS:
        yield _against(find, scheduler)
    for without in ("", LARGEST):
        yield _best_other(find, without)
        yield _protected(find, without)
    yield _lyra_rule(find)


def _borrowing(find: Find, protect: float) -> str:
    found = [versus_confined(find, load, "", protect) for load in LOADS]
    parts = [f"{interval(estimate)} at load {percent(load)}" for load, estimate in zip(LOADS, found, strict=True)]
    late = [values(find, "violations", "deepboot", load, "", (protect,)).mean() for load in LOADS]
    confined = [values(find, "violations", "deepboot", load, "", rule="static").mean() for load in LOADS]
    clear = sum(e.ci_high < -CLAIM for e in found)
    return (
        f"Borrowing against the own half, `deepboot`, all jobs, protection x {protect:g}: {listed(parts)}; the whole "
        f"interval is beyond -{percent(CLAIM)} at {clear} of {len(found)} loads. Tasks that violate: "
        f"{listed([percent(x) for x in late])}, against {listed([percent(x) for x in confined])} confined."
    )


def _borrowing_equally(find: Find) -> str:
    parts = []
    for load in LOADS:
        reached = equalise(find, "deepboot", load, "", "static").reached
        note = "" if reached.all() else f" (reached in {reached.sum()} of {len(reached)} seeds)"
        parts.append(f"{interval(versus_confined(find, load, '', None))} at load {percent(load)}{note}")
    return (
        f"The same where borrowing violates as much as confined, all jobs: {'; '.join(parts)}. Where a curve does not "
        f"reach that, its nearest end stands for it."
    )


def _against(find: Find, scheduler: str) -> str:
    found = [versus_deepboot(find, scheduler, load, without)[1] for load, without in CELLS]
    higher, lower = sum(e.ci_low > 0 for e in found), sum(e.ci_high < 0 for e in found)
    reached = sum(int(equalise(find, scheduler, load, without).reached.sum()) for load, without in CELLS)
    runs = sum(len(equalise(find, scheduler, load, without).reached) for load, without in CELLS)
    ends = "" if reached == runs else f" In {runs - reached} of {runs} cases its curve does not get there."
    ratios = np.array([e.value for e in found])
    return (
        f"`{scheduler}` at `deepboot`'s violations: mean jct {change(float(ratios.min()))} to "
        f"{change(float(ratios.max()))} against `deepboot`'s over {len(found)} workloads ({len(LOADS)} loads, with and "
        f"without {LARGEST} jobs); clearly higher in {higher}, clearly lower in {lower}, not resolved in "
        f"{len(found) - higher - lower}.{ends}"
    )


def _best_other(find: Find, without: str) -> str:
    parts = []
    for load in LOADS:
        found = {name: versus_deepboot(find, name, load, without)[1] for name in OTHERS}
        best = min(found, key=lambda name: found[name].value)
        parts.append(f"`{best}` {interval(found[best])} at {percent(load)}")
    return f"The best of the others at equal violations, {KINDS[without]}: {listed(parts)}."


def _protected(find: Find, without: str) -> str:
    parts = []
    for load in LOADS:
        base = values(find, "mean", "deepboot", load, without, (LONG,))
        found = {name: paired_ratio(values(find, "mean", name, load, without, (LONG,)), base) for name in OTHERS}
        best = min(found, key=lambda name: found[name].value)
        parts.append(f"`{best}` {interval(found[best])} at {percent(load)}")
    return f"The best of the others at protection x {LONG:g}, {KINDS[without]}: {listed(parts)}."


def _lyra_rule(find: Find) -> str:
    parts = []
    for load in LOADS:
        rule, ats = (values(find, "mean", "lyra", load, "", rule=name) for name in ("lyra", "ats"))
        late = [values(find, "violations", "lyra", load, "", rule=name).mean() for name in ("lyra", "ats")]
        shown = f"{percent(late[0])} for {percent(late[1])} of tasks violating"
        parts.append(f"{interval(paired_ratio(rule, ats))} at {percent(load)} ({shown})")
    return f"`lyra` that takes whole nodes, as its paper does, against `lyra` with `ats`, all jobs: {listed(parts)}."
