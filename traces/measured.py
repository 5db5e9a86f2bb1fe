"""Profiles measured by others: folders in the format of the Pollux, Sia and DeepBoot simulators.

A folder holds one sub-folder a model, with ``placements.csv`` (placement,local_bsz,step_time,sync_time; a placement is
one digit a node, its GPUs), ``scalability.csv`` (num_nodes,num_replicas,... for many nodes) and ``validation-<B>.csv``
(progress,iteration,grad_sqr,grad_var; a row an epoch at total batch B). Sia's files carry a GPU type,
``placements-rtx.csv``. Interpolation is that of the Pollux simulator (OSDI'21 artifact), from its description.

Left out: ``gpt_pmp`` (a pipeline model, whose steps have another form) and ``infer`` (DeepBoot's filler).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.interpolate import LinearNDInterpolator
from scipy.spatial import QhullError

from traces.fit import Observations, fit_throughput
from traces.profiles import T4_MAX_LOCAL, Array, ModelProfile, ProfileError, TypeProfile, canonical_type
from traces.table import Table, read_table
from traces.trace import TraceError

SKIPPED = ("gpt_pmp", "infer")
MOST_NODES = 16  # placements on more nodes are as fast as on this many

# DeepBoot's simulator: pause of a cold start and of its fast path [s]. Other models: Pollux's 30 s either way.
DELAYS = {
    "bert": (103.0, 5.0),
    "cifar10": (24.0, 3.0),
    "ncf": (25.0, 2.0),
    "imagenet": (35.0, 3.0),
    "deepspeech2": (18.0, 1.0),
    "yolov3": (26.0, 3.0),
}
OTHER_DELAYS = (30.0, 30.0)


class Curve(NamedTuple):
    """Times of one placement over the local batch, ascending; each (L,) float64 [samples, s, s]."""

    local: Array
    step: Array
    sync: Array


def necklace(placement: tuple[int, ...]) -> tuple[int, ...]:
    """The lexicographically least rotation of a placement's GPUs per node, nodes without GPUs left out.

    Never sorted: at the same number of nodes and GPUs the measured times of two orders differ by up to 83 %.
    """
    used = tuple(gpus for gpus in placement if gpus)
    return min((used[i:] + used[:i] for i in range(len(used))), default=())


@dataclass(frozen=True, eq=False)
class MeasuredTimes:
    """Step and synchronisation times of one model on one GPU type."""

    model: str
    gpu_type: str
    necklaces: dict[tuple[int, ...], Curve]
    points: Array  # (P, 3) float64: nodes, GPUs, local batch; each once
    values: Array  # (P, 2) float64 [s]: step and sync, mean of the placements of that size
    last: Array  # (P, 2) float64 [s]: of the last of these placements in the file, the most even one (44, not 35)

    def times(self, placement: tuple[int, ...], local: npt.ArrayLike) -> tuple[Array, Array]:
        """(step, sync) [s] at local batches, of their shape (numbers for a number).

        ``placement``: GPUs per node in node order. Linear over the local batch where its necklace was measured, else
        :meth:`times_many`. ProfileError outside what was measured.
        """
        local = np.asarray(local, dtype=np.float64)
        step, sync = self.times_on(placement, local)
        if np.isnan(step).any():
            worst = float(local[np.isnan(step)].flat[0])
            raise ProfileError(
                f"{self.model} on {self.gpu_type}: placement {'-'.join(map(str, placement))} with {worst:g} samples "
                "a GPU lies outside the measured times"
            )
        return step, sync

    def times_on(self, placement: tuple[int, ...], local: npt.ArrayLike) -> tuple[Array, Array]:
        """As :meth:`times`, but NaN outside what was measured."""
        used, local = necklace(placement), np.asarray(local, dtype=np.float64)
        curve = self.necklaces.get(used)
        if curve is None:
            return self.times_many(len(used), sum(used), local)
        step, sync = (np.interp(local, curve.local, y, np.nan, np.nan) for y in (curve.step, curve.sync))
        return step, sync

    def times_many(self, nodes: npt.ArrayLike, gpus: npt.ArrayLike, local: npt.ArrayLike) -> tuple[Array, Array]:
        """(step, sync) [s] by number of nodes (those over 16 as 16), GPUs and local batch, which broadcast.

        Linear between the measured points (Delaunay); NaN outside their hull. An axis that never varies, like the
        nodes of a single workstation, takes no part but must be met.
        """
        nodes = np.minimum(np.asarray(nodes), MOST_NODES)
        query = np.stack(np.broadcast_arrays(nodes, gpus, local), axis=-1).astype(np.float64)
        axes = self._axes
        met = (query[..., ~axes] == self.points[0, ~axes]).all(axis=-1)
        found = np.full((*query.shape[:-1], 2), np.nan)
        if self._surface is not None:
            # One point a call: a search begins at the simplex of the point before, and where simplices are flat, which
            # one it ends in, and so the time by up to 30 %, depends on that.
            points, place = np.unique(query[met][:, axes], axis=0, return_inverse=True)
            times = np.array([self._surface(point)[0] for point in points]).reshape(-1, 2)
            found[met] = times[place.ravel()]
        return found[..., 0][()], found[..., 1][()]

    def observations(self) -> Observations:
        """The P points to fit the throughput model to, each with the times of its last placement."""
        nodes, gpus, local = self.points.T
        step, sync = self.last.T
        return Observations(nodes, gpus, local, step - sync, step)

    @cached_property
    def _axes(self) -> npt.NDArray[np.bool_]:
        return np.asarray(np.ptp(self.points, axis=0) > 0)

    @cached_property
    def _surface(self) -> LinearNDInterpolator | None:
        """None where the points span no volume."""
        if self._axes.sum() < 2:
            return None
        try:
            return LinearNDInterpolator(self.points[:, self._axes], self.values)
        except QhullError:
            return None


def read_profiles(folder: str | Path, gpu_type: str | None = None) -> dict[str, ModelProfile]:
    """Read every model of a folder, with fitted and measured times.

    ``gpu_type`` names the type of plain files (default ``aws``); where files carry types, only that one is read.
    ProfileError names the file, line or field at fault.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ProfileError(f"{folder} is not a folder of profiles")
    folders = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    models = [path for path in folders if path.name not in SKIPPED]
    if not models:
        raise ProfileError(f"{folder} has no folder of a model")
    try:
        profiles = {path.name: _read_model(path, gpu_type) for path in models}
    except TraceError as error:
        raise ProfileError(str(error)) from None
    if not any(profile.types for profile in profiles.values()):
        raise ProfileError(f"{folder} has no measurements of GPU type {gpu_type}")
    return profiles


def _read_model(folder: Path, gpu_type: str | None) -> ModelProfile:
    batches, epochs = _read_validation(folder)
    first_delay_s, next_delay_s = DELAYS.get(folder.name, OTHER_DELAYS)
    progress = epochs["progress"].min(axis=1)
    halted = np.flatnonzero(np.diff(progress, prepend=0.0) <= 0)
    if len(halted):
        raise ProfileError(f"{folder}: the least progress of the validation files does not grow in row {halted[0] + 1}")
    return ModelProfile(
        model=folder.name,
        init_batch=int(batches[0]),
        max_batch=int(batches[-1]),
        progress=progress,
        batches=batches,
        grad_sqr=epochs["grad_sqr"],
        grad_var=epochs["grad_var"],
        iterations=epochs["iteration"],
        first_delay_s=first_delay_s,
        next_delay_s=next_delay_s,
        types={name: _read_type(folder, name, suffix) for name, suffix in _type_files(folder, gpu_type)},
    )


def _read_validation(folder: Path) -> tuple[Array, dict[str, Array]]:
    """Total batches (V,), and by column (E, V) float64."""
    tables = {}
    for path in folder.glob("validation-*.csv"):
        name = re.fullmatch(r"validation-([1-9]\d*)", path.stem)
        if name is None:
            raise ProfileError(f"{path}: the name is not validation-<total batch>.csv")
        tables[int(name[1])] = read_table(path)
    if not tables:
        raise ProfileError(f"{folder} has no file validation-<total batch>.csv")
    batches = sorted(tables)
    lengths = {len(table) for table in tables.values()}
    if len(lengths) > 1:
        counts = ", ".join(f"{batch}: {len(tables[batch])}" for batch in batches)
        raise ProfileError(f"{folder}: the validation files differ in their number of epochs ({counts})")
    columns = ("progress", "iteration", "grad_sqr", "grad_var")
    for table in tables.values():
        table.require(columns)
    stacked = {name: np.stack([tables[batch].numbers(name) for batch in batches], axis=1) for name in columns}
    return np.array(batches, dtype=np.float64), stacked


def _type_files(folder: Path, gpu_type: str | None) -> Iterator[tuple[str, str]]:
    """(GPU type, suffix of its files) of a model."""
    wanted = None if gpu_type is None else canonical_type(gpu_type)
    suffixes = [path.stem.removeprefix("placements") for path in sorted(folder.glob("placements-*.csv"))]
    if not suffixes:
        yield wanted or "aws", ""
    for suffix in suffixes:
        name = canonical_type(suffix.removeprefix("-"))
        if wanted in (None, name):
            yield name, suffix


def _read_type(folder: Path, gpu_type: str, suffix: str) -> TypeProfile:
    curves, grouped = _read_placements(_existing(folder / f"placements{suffix}.csv"))
    table = _existing(folder / f"scalability{suffix}.csv")
    table.require(("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"))
    keys = np.stack([table.numbers(name) for name in ("num_nodes", "num_replicas", "local_bsz")], axis=1)
    for key, times in zip(keys, _times(table), strict=True):
        grouped.setdefault(tuple(key), [times])
    points, values = np.array(list(grouped)), np.array([np.mean(rows, axis=0) for rows in grouped.values()])
    last = np.array([rows[-1] for rows in grouped.values()])
    measured = MeasuredTimes(folder.name, gpu_type, curves, points, values, last)
    fitted = fit_throughput(measured.observations())
    local = np.concatenate([curve.local for curve in curves.values()])
    highest = int(local.max())
    if gpu_type == "aws" and not suffix:  # files without types: Pollux's and DeepBoot's limits, not Sia's
        highest = min(highest, T4_MAX_LOCAL.get(folder.name, highest))
    return TypeProfile(gpu_type, int(local.min()), highest, fitted, measured)


def _existing(path: Path) -> Table:
    if not path.exists():
        raise ProfileError(f"{path.parent} has no file {path.name}")
    return read_table(path)


def _read_placements(
    table: Table,
) -> tuple[dict[tuple[int, ...], Curve], dict[tuple[float, ...], list[Array]]]:
    """Curves by necklace, and the rows (2,) of step and sync by (nodes, GPUs, local), in ascending order of these."""
    table.require(("placement", "local_bsz", "step_time", "sync_time"))
    by_necklace: dict[tuple[int, ...], dict[float, list[Array]]] = {}
    by_size: dict[tuple[float, ...], list[Array]] = {}
    for row, (text, local, times) in enumerate(
        zip(table.columns["placement"], table.numbers("local_bsz"), _times(table), strict=True)
    ):
        if not re.fullmatch(r"[1-9]+", text):
            raise ProfileError(f"{table.where(row)}: placement is {text!r}, expected one digit 1-9 a node")
        placement = tuple(map(int, text))
        by_necklace.setdefault(necklace(placement), {}).setdefault(float(local), []).append(times)
        by_size.setdefault((len(placement), sum(placement), float(local)), []).append(times)
    curves = {}
    for key, rows in by_necklace.items():
        means = np.array([np.mean(rows[local], axis=0) for local in sorted(rows)])
        curves[key] = Curve(np.array(sorted(rows)), means[:, 0], means[:, 1])
    return curves, {key: by_size[key] for key in sorted(by_size)}


def _times(table: Table) -> Array:
    """(rows, 2) float64 [s]: step and sync; ProfileError where computing would take no time."""
    for row in np.flatnonzero(table.numbers("local_bsz") <= 0).tolist():
        raise ProfileError(f"{table.where(row)}: local_bsz is {table.columns['local_bsz'][row]}, expected more than 0")
    step, sync = table.times("step_time"), table.times("sync_time")
    for row in np.flatnonzero(sync >= step).tolist():
        raise ProfileError(f"{table.where(row)}: sync_time {sync[row]:g} is not below step_time {step[row]:g}")
    return np.stack([step, sync], axis=1)
