"""A picture of one environment: who held which GPU over the last hours, and the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from envs.layout import FREE, LOG_DTYPE
from envs.plots import time_unit
from envs.simulate import interval_frame

if TYPE_CHECKING:
    from envs.batch import Batch

PAST_S = 6 * 3600.0  # how far back the chart reaches
SIZE_INCHES = (8.0, 4.5)
DPI = 80


def draw_cluster(batch: Batch, mode: str) -> npt.NDArray[np.uint8] | None:
    """The Gantt chart of a batch of one that records: (360, 640, 3) uint8, or a window (``human``)."""
    intervals = _intervals(batch)
    if mode == "human":
        import matplotlib.pyplot as plt

        figure = plt.figure("musher", figsize=SIZE_INCHES, dpi=DPI, clear=True)
        _draw(figure, batch, intervals)
        plt.pause(0.001)
        return None
    figure = Figure(figsize=SIZE_INCHES, dpi=DPI)
    canvas = FigureCanvasAgg(figure)
    _draw(figure, batch, intervals)
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()  # type: ignore[no-untyped-call]


def _intervals(batch: Batch) -> pd.DataFrame:
    """Every GPU interval that ended within the picture, and those still open."""
    s: Any = batch.states[0]
    closed = interval_frame([*batch.logged, batch.log[: int(s.log_len)]], s)
    return pd.concat([closed, _open_intervals(s)], ignore_index=True)


def _open_intervals(s: Any) -> pd.DataFrame:
    held = np.flatnonzero(s.gpu_holder[: int(s.num_gpus)] >= 0)
    shared = [j for j in range(int(s.num_slots)) if s.phase[j] != FREE and s.gpus[j] > 0 and s.share[j] < 1000]
    rows = np.zeros(len(held) + len(shared), LOG_DTYPE)
    rows["gpu"] = [*held, *s.first_gpu[shared]]
    rows["job"] = s.job_id[[*s.gpu_holder[held], *shared]]
    rows["start"] = [*s.gpu_since[held], *s.taken_at[shared]]
    rows["end"] = s.now
    return interval_frame([rows], s)


def _draw(figure: Figure, batch: Batch, intervals: pd.DataFrame) -> None:
    s: Any = batch.states[0]
    backlog = s.num_unfinished - s.num_waiting - s.num_running
    now, start = float(s.now), max(0.0, float(s.now) - PAST_S)
    shown = intervals[intervals["end_s"] >= start]
    divisor, unit = time_unit(now)
    axes = figure.add_subplot()
    colours = matplotlib.colormaps["tab20"]
    axes.barh(
        shown["gpu"],
        (shown["end_s"] - shown["start_s"].clip(lower=start)) / divisor,
        left=shown["start_s"].clip(lower=start) / divisor,
        height=0.9,
        color=[colours(int(job) % 20) for job in shown["job"]],
    )
    nodes = s.node_first[: int(s.num_nodes)]
    for first in nodes:
        axes.axhline(first - 0.5, color="0.8", linewidth=0.5)
    axes.axvline(now / divisor, color="black", linewidth=1)
    axes.set(
        xlim=(start / divisor, (max(now, start + 60) + 1) / divisor),
        ylim=(int(s.num_gpus) - 0.5, -0.5),
        yticks=nodes[:: 1 + len(nodes) // 10],
        xlabel=f"time [{unit}]",
        ylabel="GPU (lines: nodes)",
    )
    busy = _open_intervals(s)["gpu"].nunique()
    axes.set_title(
        f"{s.num_running} running on {busy} of {s.num_gpus} GPUs, {s.num_waiting} waiting, "
        f"{backlog} in the backlog, {s.num_completed} of {s.job_hi - s.job_lo} completed",
        fontsize=10,
    )
    figure.tight_layout()
