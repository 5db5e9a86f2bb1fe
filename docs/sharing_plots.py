"""The plots of docs/sharing.md. Drawn without pyplot, so nothing global is touched."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

from docs.sharing_curves import Find, Floats, gains, values, versus_deepboot
from docs.sharing_runs import LARGEST, LOADS, PROTECT, SCHEDULERS, WORKLOADS
from envs.plots import COLOURS, to_png

CLAIM = 0.38
STYLES = dict(zip(SCHEDULERS, zip(COLOURS, ("o", "s", "P", "^", "D"), strict=False), strict=True))
TITLES = {"": "all jobs", LARGEST: f"without {LARGEST} jobs"}
# Marks of part A: what replaces the confined half.
MODE_MARKS = {
    "shared": ("o", "borrows, protection x 1"),
    "protected": ("s", "borrows, protection x 16"),
    "two nodes": ("^", "borrows nothing; inference has 2 nodes"),
    "alone": ("|", "no inference at all"),
}


def draw_all(find: Find) -> dict[str, bytes]:
    """Every plot as PNG by file stem."""
    figures = {"measured": draw_gains(find), "curves": draw_curves(find), "equal": draw_ratios(find)}
    return {stem: to_png(figure) for stem, figure in figures.items()}


def draw_gains(find: Find) -> Figure:
    """Part A: how much lower than confined, by scheduler and mode; bars from least to most over the stretches."""
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, without in zip(panels, WORKLOADS, strict=True):
        for place, scheduler in enumerate(SCHEDULERS):
            colour = STYLES[scheduler][0]
            for k, (mode, (mark, _)) in enumerate(MODE_MARKS.items()):
                lower, height = -gains(find, scheduler, mode, without), place + 0.18 * (k - 1.5)
                axes.plot([lower.min(), lower.max()], [height, height], color=colour, linewidth=1.6)
                axes.plot(lower.mean(), height, mark, color=colour, markersize=7, markeredgewidth=1.8)
        axes.axvline(CLAIM, color="#555555", linewidth=1, linestyle="--")
        axes.text(CLAIM, -0.62, " claim ", ha="right", va="center", fontsize=8, color="#555555")
        axes.set_title(TITLES[without], loc="left", fontsize=10)
        _plain(axes, "x")
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.set_xlabel("mean training jct lower than confined to half by")
    panels[0].set_yticks(range(len(SCHEDULERS)), list(SCHEDULERS))
    panels[0].set_ylim(len(SCHEDULERS) - 0.5, -0.8)
    panels[0].set_xlim(left=0)
    _legend(figure, [(mark, "none", "#333333", label) for mark, label in MODE_MARKS.values()])
    return figure


def draw_curves(find: Find) -> Figure:
    """Part B: mean training jct over violations, one curve a scheduler, means over seeds, a row a workload."""
    figure = Figure(figsize=(12, 6.6), layout="constrained")
    panels = figure.subplots(len(WORKLOADS), len(LOADS), sharex=True)
    protect = sorted(PROTECT)
    for row, without in zip(panels, WORKLOADS, strict=True):
        for axes, load in zip(row, LOADS, strict=True):
            for scheduler, (colour, mark) in STYLES.items():
                points = _points(find, scheduler, load, without, protect)
                axes.plot(*points, color=colour, marker=mark, markersize=4.5, linewidth=1.4)
                axes.plot(*points[:, protect.index(PROTECT[0])], mark, color=colour, markersize=8)
            for scheduler, rule, mark in (("deepboot", "static", "*"), ("lyra", "lyra", "X")):
                points = _points(find, scheduler, load, without, PROTECT[:1], rule)
                axes.plot(*points, mark, color=STYLES[scheduler][0], markersize=11, markeredgecolor="white")
            axes.set_title(f"load {load:.0%}, {TITLES[without]}", loc="left", fontsize=10)
            _plain(axes, "both")
            if not np.isfinite(axes.dataLim.get_points()).all():
                continue  # no result yet, and a logarithm of nothing cannot be drawn
            axes.set_xscale("log")
            axes.set_yscale("log")
            for formatted in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
                formatted(FuncFormatter(_one_two_five))
            axes.tick_params(axis="y", which="minor", labelsize=9)
            axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=None))
            axes.xaxis.set_minor_formatter(NullFormatter())
        row[0].set_ylabel("mean training jct [h]")
    for axes in panels[-1]:
        axes.set_xlabel("tasks that violate")
    marks = [(mark, "-", colour, name) for name, (colour, mark) in STYLES.items()]
    marks += [("*", "none", STYLES["deepboot"][0], "deepboot, confined")]
    marks += [("X", "none", STYLES["lyra"][0], "lyra, whole nodes")]
    _legend(figure, marks)
    return figure


def draw_ratios(find: Find) -> Figure:
    """Part B: mean jct at equal violations over deepboot's, with intervals, by load."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    panels = figure.subplots(1, len(WORKLOADS), sharey=True)
    others = [name for name in SCHEDULERS if name != "deepboot"]
    for axes, without in zip(panels, WORKLOADS, strict=True):
        for k, scheduler in enumerate(others):
            colour, mark = STYLES[scheduler]
            found = [versus_deepboot(find, scheduler, load, without)[1] for load in LOADS]
            at = np.arange(len(LOADS)) + 0.16 * (k - (len(others) - 1) / 2)
            for x, estimate in zip(at, found, strict=True):
                axes.plot([x, x], [1 + estimate.ci_low, 1 + estimate.ci_high], color=colour, linewidth=2)
            axes.plot(at, [1 + estimate.value for estimate in found], mark, color=colour, markersize=7)
        axes.axhline(1, color=STYLES["deepboot"][0], linewidth=1.4)
        axes.set_xticks(range(len(LOADS)), [f"{load:.0%}" for load in LOADS])
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(_one_two_five))
        axes.yaxis.set_minor_formatter(FuncFormatter(_one_two_five))
        axes.tick_params(axis="y", which="minor", labelsize=9)
        _plain(axes, "y")
        axes.set_title(TITLES[without], loc="left", fontsize=10)
        axes.set_xlabel("inference load, share of its half")
    panels[0].set_ylabel("mean training jct / deepboot's")
    marks = [(STYLES[name][1], "none", STYLES[name][0], name) for name in others]
    _legend(figure, [*marks, ("none", "-", STYLES["deepboot"][0], "deepboot")])
    return figure


def _points(
    find: Find, scheduler: str, load: float, without: str, protect: Sequence[float], rule: str = "ats"
) -> Floats:
    """(2, P) float64: share of violations, and mean jct [h]; means over seeds."""
    violations, jct_s = (values(find, what, scheduler, load, without, protect, rule) for what in ("violations", "mean"))
    return np.stack([violations.mean(axis=0), jct_s.mean(axis=0) / 3600])


def _one_two_five(value: float, _: int) -> str:
    """Label of a tick of a logarithmic axis; "" where it would be crowded."""
    digit = f"{value:e}"[0]
    return f"{value:g}" if digit in "1235" else ""


def _plain(axes: Axes, grid: str) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, alpha=0.3)  # type: ignore[arg-type]


def _legend(figure: Figure, marks: Sequence[tuple[str, str, str, str]]) -> None:
    """One legend below all panels; marks are (marker, line, colour, label)."""
    axes = figure.axes[0]
    drawn = [
        axes.plot([], [], marker=marker, linestyle=line, color=colour, label=label)[0]
        for marker, line, colour, label in marks
    ]
    figure.legend(handles=drawn, loc="outside lower center", ncols=len(marks), frameon=False, fontsize=9)
