"""The plots of docs/layer-elasticity.md. Drawn without pyplot, so nothing global is touched."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from docs.layer_elasticity.compare import Case, Find, most_excess, versus_base, versus_host
from docs.layer_elasticity.findings import ALLOWED
from docs.layer_elasticity.runs import BY_HOST, ICEFROG, SAFE, TRAPS, UNFROZEN, USERS
from envs.plots import COLOURS, to_png
from traces.freezing import PRESETS

GROUPS = {
    "nothing is frozen": UNFROZEN,
    "allocates by effective progress": ICEFROG,
    "safe front, allocation unaware": SAFE,
    "a user's schedule": USERS,
}
BEYOND = 0.6  # changes above this are written, not drawn


def draw_all(find: Find) -> dict[str, bytes]:
    """Every plot as PNG by file stem."""
    return {stem: to_png(draw(find)) for stem, draw in (("gain", draw_gain), ("presets", draw_presets))}


def draw_gain(find: Find) -> Figure:
    """Change of mean jct against the best base and largest excess residual, by scheduler."""
    groups = {**GROUPS, "a trap": TRAPS}
    names = [policy for policies in groups.values() for policy in policies]
    figure = Figure(figsize=(11, 0.34 * len(names) + 1.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    for colour, (label, policies) in zip(COLOURS, groups.items(), strict=False):
        left.plot([], [], "o", color=colour, label=label)
        for policy in policies:
            place, case = names.index(policy), Case(policy)
            found = versus_base(find, case)
            if found.value > BEYOND:
                left.text(BEYOND, place, f"{found.value:+.0%} ", ha="right", va="center", color=colour)
            else:
                left.plot([found.ci_low, found.ci_high], [place, place], color=colour, linewidth=2)
                left.plot(found.value, place, "o", color=colour)
            if case.host != policy:
                right.plot(max(most_excess(find, case), 1e-5), place, "o", color=colour)
    left.set_yticks(range(len(names)), names)
    left.set_ylim(len(names) - 0.4, -0.6)
    left.axvline(0, color="#555555", linewidth=1)
    left.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    left.set_xlabel("mean jct against the best of tiresias, pollux, optimus, max-min")
    right.axvline(ALLOWED, color="#555555", linewidth=1, linestyle="--")
    right.set_xscale("log")
    right.set_xlabel(f"excess residual of the worst model (dashed: {ALLOWED:g})")
    for axes in (left, right):
        _plain(axes, "x")
    figure.legend(loc="outside lower center", ncols=len(groups), frameon=False, fontsize=9)
    return figure


def draw_presets(find: Find) -> Figure:
    """What freezing brings against the own host when all jobs have one preset."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for k, (policy, mark) in enumerate(zip(BY_HOST, "osD^", strict=True)):
        found = [versus_host(find, Case(policy, preset=preset)) for preset in PRESETS]
        at = np.arange(len(PRESETS)) + 0.14 * (k - 1.5)
        for x, estimate in zip(at, found, strict=True):
            axes.plot([x, x], [estimate.ci_low, estimate.ci_high], color=COLOURS[k], linewidth=2)
        axes.plot(at, [estimate.value for estimate in found], mark, color=COLOURS[k], label=policy)
    axes.set_xticks(range(len(PRESETS)), list(PRESETS))
    axes.axhline(0, color="#555555", linewidth=1)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_ylabel("mean jct against the own host, unfrozen")
    _plain(axes, "y")
    axes.legend(frameon=False, fontsize=9)
    return figure


def _plain(axes: Axes, grid: str) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, alpha=0.3)  # type: ignore[arg-type]
