"""The job table: a trace in the form that the compiled core reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from envs.goodput import JobClass, build_classes, build_tables, isolated_s, iteration_tables
from envs.layout import JOB_DTYPE, MAX_REPLICAS, MAX_SERVICES, RESULT_DTYPE, STATIC, make_state
from envs.placement import fits_empty
from envs.rng import Purpose, helios_estimate, uniform
from envs.spec import MAX_TYPES, ClusterSpec, SimConfig, SpecError
from envs.straggler_jobs import set_sensitivities
from envs.tables import FITTED_SHAPES, Tables
from traces.freezing import PRESETS, REBUILT, Freezing, layers_of
from traces.profiles import ModelProfile, ProfileError, canonical_type, load_profiles
from traces.services import start_up_times
from traces.trace import Trace, TraceError

NO_SUCH_TYPE = MAX_TYPES  # a required type that no node has: the job is rejected at arrival
POLLUX_NCF_BATCH = 32768  # Pollux's simulator never tunes or scales ncf: pollux_sia.md 3.1


Profiles = Mapping[str, ModelProfile]


@dataclass(frozen=True)
class Workload:
    """A trace on a cluster: the tables of the core, and what only schedulers ask for.

    ``iteration_s`` (C, 65) [s]: true time of an iteration of each class by GPUs, packed on the first type; inf: not
    possible. ``sample_s`` (C, 65) [s]: the same over the samples of the iteration. ``whole_iterations`` (C, E):
    iterations of the whole epochs after each; ``epoch_iterations`` (C, E): of each epoch.
    """

    tables: Tables
    iteration_s: npt.NDArray[np.float64]
    sample_s: npt.NDArray[np.float64]
    whole_iterations: npt.NDArray[np.float64]
    epoch_iterations: npt.NDArray[np.float64]
    tuned: bool
    services: tuple[str, ...] = ()
    """Inference services, in order of first arrival."""

    @property
    def jobs(self) -> np.recarray:
        """(n,) JOB_DTYPE rows, in arrival order."""
        return self.tables.jobs


def make_workload(
    trace: Trace,
    cluster: ClusterSpec,
    config: SimConfig,
    seed: int,
    tuned: bool = False,
    profiles: Profiles | None = None,
) -> Workload:
    """The workload of a trace: inference tasks, rigid and elastic jobs, whose batches are ``tuned`` or as requested.

    ``profiles``: of the elastic jobs' models, by default the shipped ones. Raises :class:`TraceError` naming the
    first job that cannot be simulated.
    """
    jobs = trace.jobs
    table = np.zeros(len(jobs), JOB_DTYPE).view(np.recarray)
    table["arrival"] = jobs["arrival_s"]
    table["work"] = table["serial_s"] = table["isolated_s"] = jobs["duration_s"]
    table["deadline"] = jobs["deadline_s"]
    table["num_gpus"] = table["max_gpus"] = jobs["num_gpus"]
    table["share_milli"] = jobs["share_milli"]
    table["pinned"] = ~jobs["preemptible"].to_numpy()
    codes, names = pd.factorize(jobs["gpu_type"])
    table["gpu_type"] = np.array([_type_code(name, cluster) for name in names])[codes]
    table["tenant"] = pd.factorize(jobs["tenant"])[0]
    table["estimate"] = _estimates(trace, config, seed)
    services = _set_tasks(table, trace, config, config.count_inference_nodes(cluster))
    elastic = jobs["duration_s"].isna().to_numpy()
    classes: list[JobClass] = []
    table["klass"] = -1
    _set_layers(table, trace, elastic, seed)
    set_sensitivities(table, trace, config, elastic)
    if elastic.any():
        reader = ClassReader(trace, cluster, config, tuned, load_profiles() if profiles is None else profiles)
        for row in np.flatnonzero(elastic):
            table["klass"][row], table["max_gpus"][row], table["isolated_s"][row] = reader.classify(int(row))
        classes = reader.classes
    table["fits"] = _fits(table, cluster, config) & (table["service"] < 0)
    shapes, built = build_classes(classes, cluster)
    tables = build_tables(table, shapes, built, config.stragglers != "none")
    workload = Workload(tables, *iteration_tables(built), tuned, services)
    _set_elastic_work(workload, classes, cluster)
    return workload


def _where(trace: Trace, row: int | np.integer[Any]) -> str:
    return f"trace {trace.name}, job {trace.jobs['job_id'].iloc[row]}"


def _set_tasks(table: np.recarray, trace: Trace, config: SimConfig, num_inference_nodes: int) -> tuple[str, ...]:
    """Fill the columns of inference tasks; the services."""
    table["service"] = table["next_task"] = -1
    rows = np.flatnonzero(trace.jobs["kind"] == "inference")
    if not len(rows):
        return ()
    if config.node_mtbf_s > 0:
        raise SpecError("sim.node_mtbf_s must be 0 with inference tasks, whose pods on failed nodes are not modelled")
    if config.reclaim != "ats" and num_inference_nodes == 0:
        raise SpecError(f"sim.reclaim {config.reclaim} leaves inference no node to run on")
    codes, names = pd.factorize(trace.jobs["service"].iloc[rows])
    if len(names) > MAX_SERVICES:
        raise TraceError(f"trace {trace.name} has {len(names)} inference services, at most {MAX_SERVICES} are possible")
    table["service"][rows], table["start_up"] = codes, start_up_times(trace)
    by_service = rows[np.argsort(codes, kind="stable")]
    same = table["service"][by_service[1:]] == table["service"][by_service[:-1]]
    table["next_task"][by_service[:-1]] = np.where(same, by_service[1:], -1)
    table["serial_s"][rows] = table["estimate"][rows] = 0.0
    return tuple(names)


def _set_layers(table: np.recarray, trace: Trace, elastic: npt.NDArray[np.bool_], seed: int) -> None:
    """Fill the columns of jobs whose layers may be frozen: when they converge, 20 % earlier or later than usual."""
    presets = trace.jobs["freezing"]
    for row in np.flatnonzero(presets != ""):
        name, where = presets.iloc[row], _where(trace, row)
        if name not in PRESETS:
            raise TraceError(f"{where}: freezing {name!r} is not a preset (known: {', '.join(PRESETS)})")
        if not elastic[row]:
            raise TraceError(f"{where}: freezing must be empty, since the job is not elastic")
        try:
            _, profile = layers_of(trace.jobs["model"].iloc[row])
        except ProfileError as error:
            raise TraceError(f"{where}: {error}") from None
        job, preset = table[row], PRESETS[name]
        job.row = trace.first_row + int(row)
        scales = [0.8 + 0.4 * uniform(seed, Purpose.FREEZING, int(job.row), i) for i in range(2)]
        job.modules, job.max_depth, job.end_shape = len(profile), profile.max_frozen, preset.shape
        job.first_end, job.last_end = preset.first * scales[0], preset.last * scales[1]
        job.usual_first, job.usual_last = preset.first, preset.last


def set_inference(states: np.recarray, jobs: np.recarray) -> None:
    """Tell fresh states of the services of a job table; under ``static`` training's largest node is one of its own."""
    tasks = jobs[jobs["service"] >= 0]
    states["num_services"] = tasks["service"].max(initial=-1) + 1
    states["start_up"][:, tasks["service"]] = tasks["start_up"]
    if states["reclaim"][0] != STATIC:
        return
    first, nodes = int(states["inference_first"][0]), int(states["num_nodes"][0])
    node_gpus, node_type = states["node_gpus"][0][:first], states["node_type"][0][:nodes]
    for t in range(int(states["num_types"][0])):
        states["max_node_gpus"][:, t] = node_gpus[node_type[:first] == t].max(initial=0)


def _set_elastic_work(workload: Workload, classes: list[JobClass], cluster: ClusterSpec) -> None:
    """Work of elastic jobs; their run time at the request by what is known, which orders read; and on one GPU."""
    table, w = workload.jobs, workload.tables
    for row in np.flatnonzero(table["klass"] >= 0):
        job, of = table[row], w.classes[table["klass"][row]]
        job.work = of.work
        ends = classes[job.klass].known.progress
        known = w.floats[of.known_at : of.known_at + of.epochs * of.known_shapes].reshape(of.epochs, -1)
        epochs, first_type = np.diff(ends, prepend=0.0), max(job.gpu_type, 0) if job.gpu_type < MAX_TYPES else 0
        several = job.num_gpus > cluster.node_gpus[cluster.node_type == first_type].max()
        at = first_type * FITTED_SHAPES + several * (FITTED_SHAPES // 2) + job.num_gpus
        job.estimate = float((epochs / known[:, at]).sum())
        job.serial_s = float((epochs / known[:, first_type * FITTED_SHAPES + 1]).sum())
    if len(w.classes):
        table["longest_pause"] = w.classes["first_delay"].max()


class ClassReader:
    """Sorts the elastic jobs of a trace into classes, and checks them."""

    def __init__(self, trace: Trace, cluster: ClusterSpec, config: SimConfig, tuned: bool, profiles: Profiles) -> None:
        self.trace, self.config, self.tuned, self.profiles = trace, config, tuned, profiles
        self.types = [canonical_type(name) for name in cluster.types]
        self.node_gpus = [int(cluster.node_gpus[cluster.node_type == t].max()) for t in range(len(self.types))]
        self.shipped = load_profiles() if config.knowledge == "profile" else {}
        self.classes: list[JobClass] = []
        self._found: dict[tuple[str, int, Freezing | None], int] = {}
        self._alone_s: dict[tuple[str, int, int], float] = {}

    def classify(self, row: int) -> tuple[int, int, float]:
        """Class of the job of a row, the most GPUs it may hold, and its run time alone as requested [s]."""
        jobs, where = self.trace.jobs, _where(self.trace, row)
        name, request = jobs["model"].iloc[row], int(jobs["num_gpus"].iloc[row])
        model = self._model(name, where)
        least = max(model.types[t].min_local for t in self.types)
        batch = int(jobs["batch_size"].iloc[row]) or min(model.max_batch, max(model.init_batch, least * request))
        if not model.init_batch <= batch <= model.max_batch:
            raise TraceError(
                f"{where}: batch_size {batch} of model {name} must lie between {model.init_batch} and {model.max_batch}"
            )
        if jobs["share_milli"].iloc[row] < 1000:
            raise TraceError(f"{where}: share_milli must be 1000, since an elastic job holds whole GPUs")
        pollux_ncf = self.config.as_pollux and name == "ncf"
        tuned = self.tuned and not pollux_ncf
        batch = POLLUX_NCF_BATCH if self.tuned and pollux_ncf else batch
        most = min(MAX_REPLICAS, (model.max_batch if tuned else batch) // least)
        limit = int(jobs["max_gpus"].iloc[row])
        most = min(most, limit) if limit > 0 else most
        if request > most:
            why = "its max_gpus" if most == limit else f"a batch of {batch} in parts of at least {least}"
            raise TraceError(f"{where}: num_gpus {request} is more than {why} allows ({most})")
        alone = self._alone(model, int(jobs["batch_size"].iloc[row]) or batch, request)
        freezing = self._freezing(jobs["freezing"].iloc[row], model, where)
        return self._class(model, 0 if tuned else batch, freezing), 1 if pollux_ncf else most, alone

    def _freezing(self, preset: str, model: ModelProfile, where: str) -> Freezing | None:
        """How the layers of a job are frozen; None: they are not."""
        if not preset:
            return None
        if self.config.knowledge == "online":
            raise TraceError(f"{where}: freezing must be empty with sim.knowledge online, which does not fit it yet")
        if any(model.types[t].measured is not None for t in self.types):
            raise TraceError(f"{where}: freezing must be empty with measured step times, which know no frozen layers")
        sync_left = REBUILT if self.config.ddp == "rebuilt" else 1.0
        return Freezing(sync_left, self.config.activation_cache and PRESETS[preset].may_cache)

    def _model(self, name: str, where: str) -> ModelProfile:
        if name not in self.profiles:
            known = ", ".join(sorted(self.profiles))
            raise TraceError(f"{where}: model {name!r} has no profile{_nearest(name, self.profiles)}; known: {known}")
        model = self.profiles[name]
        for gpu_type in self.types:
            if gpu_type not in model.types:
                known = ", ".join(model.types)
                raise TraceError(f"{where}: model {name} has no profile of GPU type {gpu_type!r}; it has {known}")
        return model

    def _alone(self, model: ModelProfile, batch: int, request: int) -> float:
        """Run time [s] of a request on the first GPU type."""
        key = (model.model, batch, request)
        if key not in self._alone_s:
            self._alone_s[key] = isolated_s(model, self.types[0], batch, request, self.node_gpus[0])
        return self._alone_s[key]

    def _class(self, model: ModelProfile, batch: int, freezing: Freezing | None) -> int:
        key = (model.model, batch, freezing)
        if key not in self._found:
            known = self.shipped.get(model.model, model)
            if any(t not in known.types for t in self.types) or len(known.progress) != len(model.progress):
                known = model
            self._found[key] = len(self.classes)
            self.classes.append(JobClass(model, known, batch, self.config.knowledge == "oracle", freezing))
        return self._found[key]


def _nearest(name: str, known: Profiles) -> str:
    near = get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _fits(table: np.recarray, cluster: ClusterSpec, config: SimConfig) -> npt.NDArray[np.bool_]:
    """Whether each job could run on the empty cluster, under ``static`` on what is not inference's."""
    states = make_state(1, 1, cluster, config)
    set_inference(states, table)
    s = states[0]
    if s.reclaim == STATIC:
        s.node_gpus[int(s.inference_first) :] = 0
        s.type_gpus[:] = np.bincount(s.node_type, s.node_gpus, MAX_TYPES)
    # One number a shape: a share is at most 1000, a type code lies between -1 and MAX_TYPES.
    shapes = (table["num_gpus"] * 1024 + table["share_milli"]) * 16 + table["gpu_type"] + 1
    which, distinct = pd.factorize(shapes)
    found = []
    for shape in distinct:
        s.request[0], s.share[0], s.gpu_type[0] = shape >> 14, shape >> 4 & 1023, (shape & 15) - 1
        found.append(fits_empty(s, 0, s.placement_rule))
    return np.array(found, np.bool_)[which]


def _type_code(name: str, cluster: ClusterSpec) -> int:
    if name == "":
        return -1
    return cluster.types.index(name) if name in cluster.types else NO_SUCH_TYPE


def _estimates(trace: Trace, config: SimConfig, seed: int) -> npt.NDArray[np.float64]:
    """What schedulers know of each duration; 0: nothing."""
    truth = trace.jobs["duration_s"].to_numpy(np.float64)
    if config.durations == "oracle":
        return truth
    if config.durations == "unknown":
        return np.zeros(len(truth))
    given = trace.jobs["estimate_s"].to_numpy(np.float64)
    guesses = np.array([helios_estimate(seed, row, float(d)) for row, d in enumerate(truth, trace.first_row)])
    return np.where(np.isnan(given), guesses, given)


def empty_results(shape: tuple[int, ...]) -> np.recarray:
    """Result rows of jobs that have not finished."""
    results = np.zeros(shape, RESULT_DTYPE).view(np.recarray)
    for column in ("first_start", "finish", "queueing_delay"):
        results[column] = np.nan
    return results
