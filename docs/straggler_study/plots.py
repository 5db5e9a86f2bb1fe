"""The plots of docs/stragglers.md. Drawn without pyplot, so nothing global is touched."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from docs.straggler_study.compare import Find, change, recovered
from docs.straggler_study.findings import named
from docs.straggler_study.runs import (
    MODES,
    NODE_BY_NODE,
    NOISE,
    OBLIVIOUS,
    ORACLE,
    OTHERS,
    PLACING,
    PSR,
    SHUFFLED,
    STUDIED,
    Case,
    headline,
)
from envs.plots import COLOURS, to_png
from envs.statistics import Estimate

GROUPS = {
    "PSR-H (reconstruction)": (PSR, PLACING, SHUFFLED),
    "simpler": OTHERS,
    "another way to train": (*MODES, OBLIVIOUS),
    "a trap": (NODE_BY_NODE,),
}
BEYOND = 0.85  # what is further from 0 is written, not drawn


def draw_all(find: Find) -> dict[str, bytes]:
    """Every plot as PNG by file stem."""
    return {stem: to_png(draw(find)) for stem, draw in (("recovered", draw_recovered), ("noise", draw_noise))}


def draw_recovered(find: Find) -> Figure:
    """Recovered share of the loss, and change of mean jct, by scheduler, in A and B."""
    rows = [case for case in headline("A") if case != case.base]
    names = [named(case).replace("`", "") for case in rows]
    figure = Figure(figsize=(11, 0.4 * len(rows) + 1.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for label, colour in zip(GROUPS, COLOURS, strict=False):
        left.plot([], [], "s", color=colour, label=label)
    for preset, shift, mark in zip(STUDIED, (-0.15, 0.15), "oD", strict=True):
        left.plot([], [], mark, color="#555555", label=preset)
        for place, case in enumerate(rows):
            here = case._replace(preset=preset)
            _dot(left, recovered(find, here), place + shift, _colour(case), mark)
            _dot(right, change(find, here), place + shift, _colour(case), mark)
    left.set_yticks(range(len(names)), names)
    left.set_ylim(len(names) - 0.4, -0.6)
    left.set_xlabel("recovered share of the straggler loss")
    right.set_xlabel("mean jct against oblivious:fifo")
    for axes in (left, right):
        axes.axvline(0, color="#555555", linewidth=1)
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        _plain(axes, "x")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def draw_noise(find: Find) -> Figure:
    """Recovered share against the noise of the probabilities, with and without reaction."""
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    every = np.atleast_1d(figure.subplots(1, len(STUDIED), sharey=True))
    for axes, preset in zip(every, STUDIED, strict=True):
        for rule, colour, mark in zip((PSR, PLACING), COLOURS, "os", strict=False):
            found = [recovered(find, Case(rule, preset, name)) for name in NOISE.values()]
            for x, estimate in zip(NOISE, found, strict=True):
                axes.plot([x, x], [estimate.ci_low, estimate.ci_high], color=colour, linewidth=2)
            label = Case(rule).policy
            axes.plot(list(NOISE), [estimate.value for estimate in found], f"-{mark}", color=colour, label=label)
        oracle = recovered(find, Case(PSR, preset, ORACLE)).value
        axes.axhline(oracle, color="#555555", linewidth=1, linestyle="--", label="psr:fifo, oracle")
        axes.set_title(preset, fontsize=10)
        axes.set_xlabel("noise of the probabilities, sigma_p")
        _plain(axes, "y")
    every[0].yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    every[0].set_ylabel("recovered share of the loss")
    every[0].legend(frameon=False, fontsize=9)
    return figure


def _dot(axes: Axes, found: Estimate, place: float, colour: str, mark: str) -> None:
    """An estimate with its interval; what is far out is written at the edge."""
    if abs(found.value) > BEYOND:
        edge = BEYOND if found.value > 0 else -BEYOND
        axes.text(edge, place, f"{found.value:+.0%}", ha="center", va="center", color=colour, fontsize=8)
        return
    axes.plot([found.ci_low, found.ci_high], [place, place], color=colour, linewidth=2)
    axes.plot(found.value, place, mark, color=colour)


def _colour(case: Case) -> str:
    return next(colour for rules, colour in zip(GROUPS.values(), COLOURS, strict=False) if case.rule in rules)


def _plain(axes: Axes, grid: str) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, alpha=0.3)  # type: ignore[arg-type]
