"""Jobs of a trace for the slow reference simulator (docs/design/001-core.md, 002-elastic.md, section 2, 004, 005)."""

from __future__ import annotations

import math
from typing import Any

from envs.order import Key, ListOrder
from envs.reference_devices import Devices
from envs.reference_jobs import Job
from envs.reference_layers import read_layers
from envs.reference_training import Training
from envs.rng import helios_estimate
from envs.spec import SimConfig
from traces.profiles import ModelProfile, canonical_type
from traces.sensitivity import DEFAULT, OF_MODEL, SENSITIVITIES
from traces.trace import Trace

INPUT = "arrival_s num_gpus share_milli duration_s gpu_type preemptible"
Profiles = dict[str, ModelProfile]


def read_jobs(
    trace: Trace,
    devices: Devices,
    order: ListOrder,
    config: SimConfig,
    seed: int,
    truth: Profiles,
    known: Profiles,
    tuned: bool,
) -> list[Job]:
    """Training jobs in trace order; those with a model and no duration are elastic."""
    limits = (*(order.limits if order.key in (Key.LEVEL, Key.GITTINS, Key.QUEUE) else ()), math.inf)
    jobs = []
    for i, row in enumerate(trace.jobs.to_dict("records")):
        if row["kind"] == "inference":
            continue
        if row["model"] and math.isnan(row["duration_s"]):
            models = truth[row["model"]], known[row["model"]]
            rest = _elastic(row, devices, config, *models, tuned, seed, trace.first_row + i)
        else:
            rest = _rigid(row, config, seed, trace.first_row + i)
        given = {name: row[name] for name in INPUT.split()} | rest | _waits(row, config)
        given["num_gpus"] += given["backup"]
        given["max_gpus"] += given["backup"]
        jobs.append(Job(job_id=i, config=config, limits=limits, **given))
    return jobs


def _rigid(row: dict[Any, Any], config: SimConfig, seed: int, draw: int) -> dict[str, Any]:
    duration = float(row["duration_s"])
    estimate = {"oracle": duration, "unknown": 0.0}.get(config.durations, float(row["estimate_s"]))
    if math.isnan(estimate):
        estimate = helios_estimate(seed, draw, duration)
    return {"estimate": estimate, "work": duration, "max_gpus": row["num_gpus"]}


def _waits(row: dict[Any, Any], config: SimConfig) -> dict[str, Any]:
    """How a job feels stragglers and waits for them (005, sections 3 and 4)."""
    elastic = row["model"] and math.isnan(row["duration_s"])
    usual = OF_MODEL.get(row["model"], DEFAULT) if elastic else DEFAULT
    feels = SENSITIVITIES[row["sensitivity"] or usual]
    backup = math.ceil(row["num_gpus"] / 20) if config.sync == "backup" and not elastic and row["num_gpus"] >= 8 else 0
    share = feels.comm_share if math.isnan(row["comm_share"]) else float(row["comm_share"])
    return {"feels": feels, "comm_share": share, "backup": backup, "sync": config.sync}


def _elastic(
    row: dict[Any, Any],
    devices: Devices,
    config: SimConfig,
    truth: ModelProfile,
    known: ModelProfile,
    tuned: bool,
    seed: int,
    draw: int,
) -> dict[str, Any]:
    num_gpus, batch, limit = row["num_gpus"], row["batch_size"], row["max_gpus"]
    if config.compat == "pollux" and truth.model == "ncf":
        tuned, batch, limit = False, 32768 if tuned else batch, 1
    nodes: dict[str, list[int]] = {t: [] for t in devices.types if canonical_type(t) in truth.types}
    for gpus, gpu_type in zip(devices.sizes, devices.type_of, strict=True):
        if gpu_type in nodes and row["gpu_type"] in ("", gpu_type):
            nodes[gpu_type].append(gpus)
    nodes = {t: sizes for t, sizes in nodes.items() if sizes}
    largest = {t: max(sizes) for t, sizes in nodes.items()}

    def train(truth: ModelProfile, known: ModelProfile) -> Training:
        return Training(truth, known, num_gpus, batch, tuned, largest)

    training, preset = train(truth, known), row["freezing"]
    return {
        "training": training,
        "layers": read_layers(preset, truth, known, config, seed, draw, train) if preset else None,
        "estimate": training.estimate(num_gpus, {t: sum(sizes) for t, sizes in nodes.items()}),
        "work": float(truth.progress[-1]),
        "max_gpus": training.most_gpus(limit),
    }
