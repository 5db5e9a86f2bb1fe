"""Figures of an evaluation: who is faster, for which jobs, how full the cluster was, and who held which GPU.

Figures are built without pyplot, so nothing global is touched. What is drawn is bounded however long
the run was: curves have at most ``CURVE_POINTS`` points and Gantt charts show a clip of the run.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from envs.results import RANKED_BY, Estimates, Outcome
from envs.spec import ClusterSpec
from envs.statistics import Estimate
from envs.timeline import clip_intervals
from traces.trace import Trace

Floats = npt.NDArray[np.float64]

CURVE_POINTS = 400
GANTT_GPUS = 128  # more rows than this are no longer distinguishable
GANTT_BLOCKS = 12_000
# Longer runs are drawn for the time in which this many jobs, or jobs and inference tasks, arrive in their middle.
GANTT_JOBS, GANTT_ROWS = 300, 3000
DPI = 110
WIDTH = 10.0  # of Gantt charts [inches]

# Hues that stay apart in greyscale and for colour-blind readers (P. Tol's "muted" and "bright" sets).
COLOURS = (
    "#332288", "#cc6677", "#117733", "#ddaa33", "#4477aa", "#aa4499",
    "#44aa99", "#882255", "#999933", "#ee6677", "#66ccee", "#555555",
)  # fmt: skip
TASK_COLOUR = "#bbbbbb"  # of all inference tasks
# A job has the same colour in every Gantt chart; jobs that share one are told apart by their numbers.
JOB_COLOURS = (
    "#4e79a7", "#f28e2b", "#76b7b2", "#e15759", "#59a14f", "#edc948",
    "#b07aa1", "#9c755f", "#2d6a6a", "#ff9da7", "#8cd17d", "#d4a6c8",
)  # fmt: skip


def draw_all(outcomes: Sequence[Outcome], estimates: Estimates, cluster: ClusterSpec) -> dict[str, bytes]:
    """Every figure as PNG by file stem; policies in the order of ``estimates``."""
    order = list(estimates)
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(order)}
    shown = busiest_runs(outcomes, order)
    until = mostly_done(shown)
    figures = {
        "mean-jct": draw_means({name: estimates[name][RANKED_BY] for name in order}, "mean jct", colours),
        "jct-cdf": draw_cdf({name: _jcts(outcomes, name) for name in order}, colours),
        "utilisation": draw_timelines({o.policy.name: o.timeline for o in shown}, cluster.num_gpus, colours, until),
    }
    for outcome in shown:
        figures[f"gantt-{slug(outcome.policy.name)}"] = draw_gantt(outcome, cluster, until)
    return {stem: to_png(figure) for stem, figure in figures.items()}


def slug(name: str) -> str:
    """A policy's name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")


def to_png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()


def draw_means(means: dict[str, Estimate], title: str, colours: dict[str, str]) -> Figure:
    """One dot a policy [s], best on top, with its interval where there is one."""
    figure, axes = _blank(width=8, height=0.9 + 0.32 * len(means))
    divisor, unit = time_unit(float(np.nanmax([0.0, *(mean.value for mean in means.values())])))
    for place, (name, mean) in enumerate(means.items()):
        ends = [mean.ci_low / divisor, mean.ci_high / divisor]
        axes.plot(ends, [place, place], color=colours[name], linewidth=2.5)
        axes.plot(mean.value / divisor, place, "o", color=colours[name], markersize=7)
    axes.set_yticks(range(len(means)), list(means))
    axes.set_ylim(len(means) - 0.4, -0.6)
    axes.set_xlim(left=0)
    interval = any(not np.isnan(mean.ci_low) for mean in means.values())
    axes.set_xlabel(f"{title} [{unit}]" + ("; bars: 95 % interval" if interval else ""))
    axes.grid(axis="x", alpha=0.3)
    return figure


def draw_cdf(jcts: dict[str, Floats], colours: dict[str, str]) -> Figure:
    """Share of completed jobs with a jct of at most x, one curve a policy; a jct of 0 is drawn at the left edge."""
    figure, axes = _blank(width=8, height=max(4.6, 0.5 + 0.24 * len(jcts)))  # room for the legend
    everything = np.concatenate(list(jcts.values()))
    positive = everything[everything > 0]
    if positive.size == 0:
        axes.text(0.5, 0.5, "no completed jobs", ha="center", transform=axes.transAxes)
        return figure
    floor = float(positive.min())
    divisor, unit = time_unit(float(np.median(positive)))
    for name, values in jcts.items():
        shares = np.linspace(0, 1, min(CURVE_POINTS, max(2, values.size)))
        if values.size:
            curve = np.quantile(np.maximum(values, floor), shares) / divisor
            axes.plot(curve, shares, color=colours[name], label=name, linewidth=1.6)
    axes.set_xscale("log")
    wide = positive.max() > 1e4 * floor
    axes.xaxis.set_major_locator(LogLocator(subs=(1,) if wide else (1, 3), numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(0, 1.01)
    axes.set_xlabel(f"jct [{unit}], logarithmic")
    axes.set_ylabel("share of completed jobs")
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return figure


def busiest_runs(outcomes: Sequence[Outcome], order: Sequence[str]) -> list[Outcome]:
    """One run a policy, of the window in which jobs queued longest, all policies together; the first seed of each."""
    queued: dict[int, float] = {}
    for outcome in outcomes:
        delay = outcome.metrics.get("mean_queueing_delay_s", np.nan)
        queued[outcome.window] = queued.get(outcome.window, 0.0) + (0.0 if np.isnan(delay) else delay)
    window = max(sorted(queued), key=queued.__getitem__)
    return [next(o for o in outcomes if o.policy.name == name and o.window == window) for name in order]


def mostly_done(outcomes: Sequence[Outcome]) -> float:
    """When 9 of 10 of the training jobs that complete have done so under every policy [s]; inf: none does.

    Durations have long tails: drawn to its end, a run is a picture of its last few jobs.
    """
    finishes = [o.jobs.loc[o.jobs["kind"] == "training", "finish_s"].dropna() for o in outcomes]
    return max((float(finish.quantile(0.9)) for finish in finishes if len(finish)), default=np.inf)


def draw_timelines(timelines: dict[str, pd.DataFrame], num_gpus: int, colours: dict[str, str], until: float) -> Figure:
    """Share of busy GPUs (left) and number of queued jobs (right) up to ``until`` [s], one row a policy."""
    figure = Figure(figsize=(10, 0.9 + 0.85 * len(timelines)), layout="constrained")
    grid = figure.subplots(len(timelines), 2, sharex=True, sharey="col", squeeze=False)
    times = np.concatenate([[0.0], *(timeline["time_s"] for timeline in timelines.values())])
    end = max(min(until, float(times.max())), 1.0)
    divisor, unit = time_unit(end)
    for (name, timeline), (left, right) in zip(timelines.items(), grid, strict=True):
        time = timeline["time_s"] / divisor
        for axes, values in ((left, timeline["busy_gpus"] / num_gpus), (right, timeline["queued"])):
            axes.fill_between(time, values, step="post", color=colours[name], alpha=0.85, linewidth=0)
            axes.spines[["top", "right"]].set_visible(False)
        left.set_ylim(0, 1.05)
        left.set_yticks([0, 1])
        left.set_ylabel(name, rotation=0, ha="right", va="center")
        right.yaxis.set_major_locator(MaxNLocator(2, integer=True))
    longest = max(float(t["queued"].max()) for t in timelines.values())
    grid[0, 1].set_ylim(0, 1.05 * max(1.0, longest))
    grid[0, 0].set_xlim(0, end / divisor)
    grid[0, 0].set_title("share of GPUs in use", fontsize=10)
    grid[0, 1].set_title("queued jobs", fontsize=10)
    for axes in grid[-1]:
        axes.set_xlabel(f"time [{unit}]")
    return figure


def clip_for_gantt(trace: Trace, intervals: pd.DataFrame) -> pd.DataFrame:
    """What a Gantt chart of this run shows, the same part of the run for every policy, one row a block.

    A block is a stretch of ``rows`` neighbouring GPUs from ``gpu`` on that ``job`` held from ``start_s`` to ``end_s``,
    while it held ``held`` GPUs in all, those outside the chart too; ``task``: an inference task.
    """
    shown = intervals
    rows = min(GANTT_ROWS, GANTT_JOBS * len(trace) // len(trace.job_rows))
    if len(trace) > rows:
        middle = (len(trace) - rows) // 2
        arrivals = trace.jobs["arrival_s"]
        shown = clip_intervals(shown, float(arrivals.iloc[middle]), float(arrivals.iloc[middle + rows]))
    allocation = ["job", "start_s", "end_s"]  # all intervals of a job end whenever its set of GPUs changes
    shown = shown.assign(held=shown.groupby(allocation)["gpu"].transform("size"))
    shown = shown[shown["gpu"] < GANTT_GPUS].sort_values([*allocation, "gpu"])
    parts = shown[[*allocation, "gpu"]].diff().ne([0, 0, 0, 1]).any(axis=1)
    blocks = shown.groupby(parts.cumsum().to_numpy())
    merged = blocks[["gpu", *allocation, "held"]].first().assign(rows=blocks.size())
    merged["task"] = merged["job"].isin(np.flatnonzero(trace.jobs["kind"] == "inference"))
    return merged.sort_values(["start_s", "gpu"]).head(GANTT_BLOCKS)


def draw_gantt(outcome: Outcome, cluster: ClusterSpec, until: float = np.inf) -> Figure:
    """Who held each of the first ``GANTT_GPUS`` GPUs in the clip of the run, up to ``until`` [s].

    Lines separate nodes. A block of a training job is labelled "job ×GPUs", where there is room for it.
    """
    clip = clip_intervals(outcome.gantt, -np.inf, until)
    rows = min(cluster.num_gpus, GANTT_GPUS)
    height = max(1.6, min(7.0, 0.16 * rows))
    figure, axes = _blank(WIDTH, 1.2 + height)
    origin = float(clip["start_s"].min()) if len(clip) else 0.0
    end = float(clip["end_s"].max()) if len(clip) else 1.0
    divisor, unit = time_unit(end - origin)
    span = (end - origin) / divisor
    clip = clip.assign(left=(clip["start_s"] - origin) / divisor, right=(clip["end_s"] - origin) / divisor)
    _draw_blocks(axes, clip, span)
    width = 0.94 * WIDTH  # the rest is for the labels of GPUs
    _label_blocks(axes, clip[~clip["task"]], width / span, height / rows)
    boundaries = np.concatenate([[0], np.cumsum(cluster.node_gpus)])
    boundaries = boundaries[boundaries <= rows]
    for boundary in boundaries:
        axes.axhline(boundary, color="#888888", linewidth=0.4, zorder=0)
    axes.set_xlim(0, span)
    axes.set_ylim(rows, 0)
    axes.set_yticks(boundaries[:: 1 + len(boundaries) // 10])
    late, late_unit = time_unit(origin)
    axes.set_xlabel(f"time [{unit}]" + (f" after {origin / late:.1f} {late_unit}" if origin > 0 else ""))
    axes.set_ylabel("GPU" if rows == cluster.num_gpus else f"GPU (first {rows} of {cluster.num_gpus})")
    axes.set_title(outcome.policy.name + (" (grey: inference)" if clip["task"].any() else ""), loc="left", fontsize=10)
    return figure


def _draw_blocks(axes: Axes, clip: pd.DataFrame, span: float) -> None:
    left, right, top = (clip[name].to_numpy() for name in ("left", "right", "gpu"))
    bottom = top + clip["rows"].to_numpy()
    corners = np.stack([np.stack([left, left, right, right], 1), np.stack([top, bottom, bottom, top], 1)], axis=2)
    colours = [TASK_COLOUR if task else _colour(job) for job, task in zip(clip["job"], clip["task"], strict=True)]
    # White edges would wash narrow blocks out, until a full cluster looks idle.
    edges = ["white" if wide else colour for wide, colour in zip(right - left > 0.004 * span, colours, strict=True)]
    axes.add_collection(PolyCollection(list(corners), facecolors=colours, edgecolors=edges, linewidths=0.3))


def _label_blocks(axes: Axes, clip: pd.DataFrame, time_inches: float, row_inches: float) -> None:
    """Write a job's number and its GPUs once on each stretch of time it ran, on the block with the most rows."""
    largest = clip.sort_values("rows", ascending=False, kind="stable").drop_duplicates(["job", "start_s"])
    for job, held, left, right, top, rows in largest[["job", "held", "left", "right", "gpu", "rows"]].to_numpy(float):
        label = f"{job:.0f} ×{held:.0f}"
        width, height, length = (right - left) * time_inches, rows * row_inches, 0.07 * len(label)
        flat, upright = width > length and height > 0.1, height > length and width > 0.1  # 7 points are 0.1 inch
        if flat or upright:
            red, green, blue = to_rgb(_colour(job))
            ink = "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.6 else "white"
            middle, rotation = ((left + right) / 2, top + rows / 2), 0 if flat else 90
            axes.text(*middle, label, ha="center", va="center", rotation=rotation, fontsize=7, color=ink)


def _colour(job: float) -> str:
    return JOB_COLOURS[int(job) % len(JOB_COLOURS)]


def time_unit(seconds: float) -> tuple[float, str]:
    """Divisor and name of the unit in which a time of this size is easily read."""
    for divisor, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 5 * divisor:
            return divisor, unit
    return 1.0, "s"


def _blank(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _jcts(outcomes: Sequence[Outcome], policy: str) -> Floats:
    """Jcts of the completed training jobs of all runs of a policy."""
    tables = [o.jobs for o in outcomes if o.policy.name == policy]
    done = [t.loc[(t["kind"] == "training") & (t["status"] == "completed"), "jct_s"] for t in tables]
    return np.concatenate([series.to_numpy(np.float64) for series in done])
