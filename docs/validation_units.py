"""Values of single functions for docs/validation.md, against those that the code of Sia and of DeepBoot gave."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from docs.validation_runs import SHARED
from envs.online_fit import FTOL, FTOL_SIA, NUM_PARAMS, SCRATCH_ROWS, fit, predict
from traces.measured import read_profiles
from traces.profiles import ModelProfile, Throughput, TypeProfile, load_profiles, optimise_batch

Pair = tuple[float, float]  # ours, theirs
SIA = "reference/pollux_sia/golden_goodput.json"
DEEPBOOT = "reference/deepboot/golden_units.json"
# Placements (nodes, GPUs, samples a GPU) at which fits are compared besides the measured ones.
GRID = [(n, k, m) for n, k in ((1, 1), (1, 2), (1, 4), (2, 2), (2, 8), (4, 16), (8, 32)) for m in (32, 100, 400)]


@dataclass(frozen=True)
class Unit:
    """One kind of value: how many were compared and the largest relative difference."""

    name: str
    source: str
    count: int
    worst: float
    tolerance: float


def units() -> list[Unit]:
    """Every kind of value of the two files of golden values."""
    sia, deepboot = (json.loads((SHARED / name).read_text()) for name in (SIA, DEEPBOOT))
    return [
        _unit("step and sync time of a placement", SIA, 1e-6, _sia_times(sia["true_throughput"])),
        _unit("gradient statistics", SIA, 1e-6, _sia_gradients(sia["grad_stats"])),
        _unit("goodput and best batch", SIA, 1e-6, _sia_goodput(sia["optimize"])),
        _unit("fit: predicted step times", SIA, 1e-3, _sia_fits(sia["fit"])),
        _unit("step and sync time of a placement", DEEPBOOT, 1e-6, _deepboot_times(deepboot["throughput"])),
        _unit("gradient statistics", DEEPBOOT, 1e-6, _deepboot_gradients(deepboot["grad"])),
        _unit("progress at the ends of epochs", DEEPBOOT, 1e-6, _deepboot_progress(deepboot["progress"])),
        _unit("goodput and best batch", DEEPBOOT, 1e-6, _deepboot_goodput(deepboot["fit"])),
        _unit("fit: predicted step times", DEEPBOOT, 1e-3, _deepboot_fits(deepboot["fit"])),
    ]


def _unit(name: str, source: str, tolerance: float, pairs: Iterable[Pair]) -> Unit:
    apart = [float(abs(ours - theirs)) / (abs(theirs) or 1.0) for ours, theirs in pairs]
    return Unit(name, Path(source).name, len(apart), max(apart), tolerance)


def _profiles(name: str, gpu_type: str | None = None) -> dict[str, ModelProfile]:
    return read_profiles(SHARED / "data/profiles" / name, gpu_type)


def _times(profile: ModelProfile, placement: Iterable[int], local: float) -> Pair:
    measured = profile.types["aws"].measured
    assert measured is not None
    step, sync = measured.times(tuple(placement), local)
    return float(step), float(sync)


def _sia_times(cases: list[dict[str, Any]]) -> Iterator[Pair]:
    profiles = _profiles("sia", "aws")
    for case in cases:
        ours = _times(profiles[case["model"]], case["placement"], case["local_bsz"])
        yield from zip(ours, (case["step_time"], case["sync_time"]), strict=True)


def _sia_gradients(cases: list[dict[str, Any]]) -> Iterator[Pair]:
    profiles = _profiles("sia", "aws")
    for case in cases:
        ours = profiles[case["model"]].gradients(case["epoch"], float(case["batch"]))
        yield from zip(ours, (case["sqr"], case["var"]), strict=True)


def _sia_goodput(cases: list[dict[str, Any]]) -> Iterator[Pair]:
    """Theirs is in samples a second."""
    for case in cases:
        model = load_profiles()[case["model"]]
        entry = TypeProfile(case["gpu"], case["m_min"], case["m_max"], Throughput(*case["perf_params"]))
        best = partial(optimise_batch, entry, model, entry.throughput, case["grad_sqr"], case["grad_var"])
        goodput, local, steps = best(case["nodes"], case["replicas"])
        yield goodput * model.init_batch, case["goodput"]
        yield local, case["atomic_bsz"]
        yield steps, case["accum_steps"]
        yield (
            best(case["nodes"], case["replicas"], model.max_batch)[0] * model.init_batch,
            case["fixed_batch_goodput_at_Mmax"],
        )


def _sia_fits(cases: list[dict[str, Any]]) -> Iterator[Pair]:
    for case in cases:
        columns = ("num_nodes", "num_replicas", "local_bsz", "accum_time", "step_time")
        yield from _predictions(np.column_stack([case[key] for key in columns]), case["params"], FTOL_SIA)


def _predictions(points: Any, theirs: list[float], tolerance: float) -> Iterator[Pair]:
    """Step times by our fit and by theirs, where it was measured and elsewhere."""
    ours = np.full(NUM_PARAMS, np.nan)
    fit(points, len(points), ours, np.full((SCRATCH_ROWS + len(points), NUM_PARAMS), np.nan), tolerance)
    for nodes, gpus, local in [*points[:, :3].tolist(), *GRID]:
        yield tuple(float(predict(np.array(p), nodes > 1, gpus, local)[1]) for p in (ours, theirs))  # type: ignore[misc]


def _deepboot_times(cases: list[Any]) -> Iterator[Pair]:
    profiles = _profiles("deepboot")
    for model, placement, local, *theirs in cases:
        yield from zip(_times(profiles[model], placement, local), theirs, strict=True)


def _deepboot_gradients(cases: list[Any]) -> Iterator[Pair]:
    profiles = _profiles("deepboot")
    for model, batch, epoch, *theirs in cases:
        yield from zip(profiles[model].gradients(epoch, float(batch)), theirs, strict=True)


def _deepboot_progress(cases: list[Any]) -> Iterator[Pair]:
    profiles = _profiles("deepboot")
    for model, *theirs in cases:
        progress = profiles[model].progress
        ours = progress[[0, 1, len(progress) // 2 - 1, -1]].tolist()
        yield from zip(ours, theirs, strict=True)


def _deepboot_goodput(cases: list[dict[str, Any]]) -> Iterator[Pair]:
    """At their fitted parameters, with the gradients of cifar10 at batch 128 in epoch 10."""
    model = _profiles("deepboot")["cifar10"]
    sqr, var = model.gradients(10, 128.0)
    for case in cases:
        for nodes, gpus, *theirs in case["optimize"]:
            ours = optimise_batch(model.types["aws"], model, Throughput(*case["theta"]), sqr, var, nodes, gpus)
            yield from zip((ours[0] * model.init_batch, *ours[1:]), theirs, strict=True)


def _deepboot_fits(cases: list[dict[str, Any]]) -> Iterator[Pair]:
    with (SHARED / "data/profiles/deepboot/cifar10/placements.csv").open() as file:
        rows = list(csv.DictReader(file))

    def point(nodes: int, gpus: int, local: int) -> tuple[float, ...]:
        place = str(gpus // nodes) * nodes
        columns = ("local_bsz", "step_time", "sync_time")
        table = np.array(sorted([float(row[c]) for c in columns] for row in rows if row["placement"] == place)).T
        step, sync = (float(np.interp(local, table[0], column)) for column in table[1:])
        return nodes, gpus, local, step - sync, step

    for case in cases:
        yield from _predictions(np.array([point(*key) for key in case["profile"]]), case["theta"], FTOL)
