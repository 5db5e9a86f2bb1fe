"""Fills the tables of elastic jobs: docs/design/002-elastic.md, sections 2 and 6. numpy, once a workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from envs.features import LAYER_GPUS
from envs.layout import MAX_REPLICAS
from envs.shapes import Shapes, pack
from envs.spec import ClusterSpec
from envs.tables import CLASS_DTYPE, FIRST_RUN, Tables
from traces.freezing import Freezing, freeze, layers_of
from traces.profiles import ModelProfile, TypeProfile

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
CANDIDATES = FIRST_RUN  # geometric batches; one more option is that of a job's first run
COUNTS = np.arange(1, MAX_REPLICAS + 1)


@dataclass(frozen=True)
class Options:
    """Batches that a class may run on n = 1 .. 64 GPUs of a type, one column an option: arrays (64, O).

    ``local``: micro-batch as goodput weighs it, 0 where not possible; ``run_local``: what is run; ``accum``:
    accumulation steps.
    """

    local: Ints
    run_local: Ints
    accum: Ints

    @classmethod
    def fixed(cls, model: ModelProfile, profile: TypeProfile, batch: npt.ArrayLike) -> Options:
        """A requested total batch, a number or one for each n."""
        total = np.broadcast_to(np.asarray(batch, np.float64), COUNTS.shape)[:, None]
        return cls._split(model, profile, total, single=(total > model.init_batch))

    @classmethod
    def tuned(cls, model: ModelProfile, profile: TypeProfile) -> Options:
        """50 geometric batches, and the one of a job that has never been observed."""
        first = np.maximum(model.init_batch, profile.min_local * COUNTS).astype(np.float64)
        last = np.maximum(first, model.max_batch)
        total = np.geomspace(first, last, CANDIDATES, axis=1)
        options = cls._split(model, profile, total, single=(total > model.init_batch + 1e-8))
        fits = (options.local >= profile.min_local) & (options.local <= profile.max_local)
        fits &= (first <= model.max_batch)[:, None]
        local = np.where(fits, options.local, 0)
        new = cls.fixed(model, profile, first)
        return cls(*(np.hstack(pair) for pair in zip((local, options.run_local, options.accum), new.rows, strict=True)))

    @classmethod
    def _split(cls, model: ModelProfile, profile: TypeProfile, total: Floats, single: npt.NDArray[np.bool_]) -> Options:
        """Micro-batches and accumulation steps of total batches (64, O)."""
        share = total / COUNTS[:, None]
        accum = np.maximum(0, np.ceil(_ceil(share) / profile.max_local - 1e-8) - 1)
        accum[0] = np.where(single[0], np.maximum(1, accum[0]), accum[0])  # noise statistics need two gradients
        local = _ceil(share / (accum + 1))
        most = np.floor(model.max_batch / (COUNTS[:, None] * (accum + 1)))
        return cls(local.astype(np.int64), np.minimum(local, most).astype(np.int64), accum.astype(np.int64))

    @property
    def rows(self) -> tuple[Ints, Ints, Ints]:
        return self.local, self.run_local, self.accum


def _ceil(x: Floats) -> Floats:
    return np.ceil(x - 1e-8)


@dataclass(frozen=True)
class JobClass:
    """Elastic jobs alike in model and batch; ``batch`` 0: tuned."""

    model: ModelProfile  # what is simulated
    known: ModelProfile  # what schedulers believe
    batch: int
    truth_known: bool  # schedulers know the truth of each shape (knowledge oracle)
    freezing: Freezing | None = None  # None: no layer is ever frozen

    @property
    def depths(self) -> range:
        """Numbers of modules that may be frozen."""
        return range(1 if self.freezing is None else layers_of(self.model.model)[1].max_frozen + 1)

    def at_depth(self, depth: int) -> JobClass:
        """The same jobs with their first ``depth`` modules frozen."""
        if depth == 0 or self.freezing is None:
            return self
        return replace(
            self, model=freeze(self.model, depth, self.freezing), known=freeze(self.known, depth, self.freezing)
        )

    def options(self, gpu_type: str) -> Options:
        profile = self.model.types[gpu_type]
        return Options.fixed(self.model, profile, self.batch) if self.batch else Options.tuned(self.model, profile)

    def gains(self, model: ModelProfile, batch: Ints) -> Floats:
        """(E, ...) progress of one iteration at total batches, by epoch."""
        return np.stack([model.gain(e, batch.astype(np.float64)) for e in self.epochs])

    @cached_property
    def epochs(self) -> range:
        return range(len(self.model.progress))


class ClassTables:
    """The tables of one class on the GPU types of a cluster."""

    def __init__(self, job: JobClass, shapes: Shapes) -> None:
        self.job, self.shapes = job, shapes
        self.options = [job.options(t) for t in shapes.types]
        self.num_options = self.options[0].local.shape[1]
        self.times = shapes.times(job.model, [o.run_local for o in self.options])  # 2 x (S, O)

    def iteration_s(self) -> Floats:
        """(S, O) true time of an iteration of each option as it is run; nan: not measured."""
        return self._seconds(self.times)

    def _seconds(self, times: tuple[Floats, Floats]) -> Floats:
        """(S, O) time of an iteration, given those of its micro-steps without and with synchronisation."""
        accum = np.stack(
            [self.options[t].accum[n - 1] for t, n in zip(self.shapes.type, self.shapes.gpus, strict=True)]
        )
        return times[1] + accum * times[0]

    @cached_property
    def true_goodput(self) -> Floats:
        """(E, S, O) true goodput of the options that tuning weighs, not yet cut to the largest batch; 0: impossible."""
        seconds = self._seconds(self.shapes.times(self.job.model, [o.local for o in self.options]))
        return self._by_shape(seconds, [self._gains(self.job.model, o, o.local) for o in self.options], weighed=True)

    @cached_property
    def true_speed(self) -> Floats:
        """(E, S, O) true speed of each option as it is run; 0: not measured."""
        gains = [self._gains(self.job.model, o, o.run_local) for o in self.options]
        return self._by_shape(self.iteration_s(), gains, weighed=False)

    def _by_shape(self, seconds: Floats, gains: list[Floats], weighed: bool) -> Floats:
        """(E, S, O) gains (E, 64, O) of each type over the time of an iteration (S, O); 0: impossible."""
        found = np.zeros((len(self.job.epochs), *seconds.shape))
        for t, options in enumerate(self.options):
            rows = np.flatnonzero(self.shapes.type == t)
            n = self.shapes.gpus[rows] - 1
            possible = options.local[n] > 0 if weighed else True
            found[:, rows] = np.where(possible, gains[t][:, n] / seconds[rows], 0.0)
        return np.nan_to_num(found)

    def _gains(self, model: ModelProfile, options: Options, local: Ints) -> Floats:
        """(E, 64, O) progress of an iteration of each option with micro-batches ``local``, by ``model``'s gradients."""
        return self.job.gains(model, np.maximum(COUNTS[:, None] * local * (options.accum + 1), 1))

    def known_rates(self) -> tuple[Floats, Ints]:
        """(E, T, 2, 65) speed that schedulers know of, and the option that is best by it."""
        rates, best = zip(*(self._known_on(t) for t in range(len(self.shapes.types))), strict=True)
        return np.stack(rates, axis=1), np.stack(best, axis=1)

    def _known_on(self, t: int) -> tuple[Floats, Ints]:
        """(E, 2, 65) on one type: the option of largest goodput is taken, and then run as it can be."""
        job, options = self.job, self.options[t]
        if job.truth_known:
            packed = np.stack([self.shapes.packed(t, several) for several in (0, 1)])
            goodput, speed = self.true_goodput[:, packed], self.true_speed[:, packed]  # (E, 2, 64, O)
        else:
            goodput = np.where(options.local > 0, self._known_speed(t, options.local), 0.0)
            speed = self._known_speed(t, options.run_local)
        found = np.zeros((len(job.epochs), 2, MAX_REPLICAS + 1), np.int64)
        rates = np.zeros(found.shape)
        found[..., 1:] = self._best(goodput)
        rates[..., 1:] = np.take_along_axis(speed, found[..., 1:, None], -1)[..., 0]
        return rates, found

    def _known_speed(self, t: int, local: Ints) -> Floats:
        """(E, 2, 64, O) speed of micro-batches (64, O) on a type by the known profile."""
        options, known = self.options[t], self.job.known
        several = np.arange(2)[:, None, None]
        grad, step = known.types[self.shapes.types[t]].throughput.times(several, COUNTS[:, None], np.maximum(local, 1))
        speed: Floats = self._gains(known, options, local)[:, None] / (step + options.accum * grad)
        return speed

    def _best(self, goodput: Floats) -> Ints:
        """(...) candidate of largest goodput (..., O), the first of equals; if none is possible, a first run's."""
        candidates = goodput[..., :CANDIDATES]
        best: Ints = np.where(candidates.max(-1) > 0, candidates.argmax(-1), self.num_options - 1)
        return best

    def options_run(self, best: Ints) -> Ints:
        """(E, S) the option that schedulers' knowledge makes best on each shape."""
        if self.job.truth_known:
            return self._best(self.true_goodput)
        found: Ints = best[:, self.shapes.type, self.shapes.several, self.shapes.gpus]
        return found

    def true_rates(self, best: Ints) -> Floats:
        """(E, S) speed on each shape with the option of options_run(); nan: not measured."""
        rates = np.take_along_axis(self.true_speed, self.options_run(best)[..., None], -1)[..., 0]
        return np.where(rates > 0, rates, np.nan)

    def straggler_facts(self, best: Ints) -> tuple[Floats, Floats]:
        """(E, S) share of an iteration that is communication, and noise scale over total batch, by options_run()."""
        n, run = self.shapes.gpus - 1, self.options_run(best)
        local, accum = (
            np.stack([getattr(self.options[t], name)[i] for t, i in zip(self.shapes.type, n, strict=True)])
            for name in ("run_local", "accum")
        )  # (S, O)
        grad, step = self.times
        share = (step - grad) / (accum * grad + step)
        batch = np.maximum((n[:, None] + 1) * local * (accum + 1), 1).astype(np.float64)
        noise = np.stack([self._noise(e, batch) for e in self.job.epochs])
        rows = np.arange(len(n))
        return share[rows, run], np.stack([noise[e, rows, run[e]] for e in self.job.epochs])

    def _noise(self, epoch: int, batch: Floats) -> Floats:
        """(...) noise scale of an epoch's gradients over total batches; inf: there is nothing but noise."""
        model = self.job.model
        sqr, var = model.gradients(epoch, batch)
        scale: Floats = np.where(sqr > 0, var * model.init_batch / np.where(sqr > 0, sqr * batch, 1.0), np.inf)
        return scale

    def packed_iteration_s(self) -> Floats:
        """(65,) true time of an iteration of the last option on the fewest nodes of the first type; inf: impossible."""
        several = (self.shapes.node_gpus[0] < COUNTS).astype(np.int64)
        rows = np.where(several == 1, self.shapes.packed(0, 1), self.shapes.packed(0, 0))
        seconds = np.where(rows >= 0, self.iteration_s()[rows, -1], np.inf)
        return np.concatenate([[np.inf], np.nan_to_num(seconds, nan=np.inf, posinf=np.inf)])

    def iteration_samples(self) -> Floats:
        """(65,) samples of an iteration of the last option on the first type: whole micro-batches; 1 without GPUs."""
        options = self.options[0]
        samples = COUNTS * options.run_local[:, -1] * (options.accum[:, -1] + 1)
        return np.concatenate([[1.0], np.maximum(samples, 1)])


def isolated_s(model: ModelProfile, gpu_type: str, batch: int, gpus: int, node_gpus: int) -> float:
    """Run time [s] at a fixed batch on ``gpus`` GPUs, packed on nodes of ``node_gpus``; nan: not measured."""
    profile = model.types[gpu_type]
    options = Options.fixed(model, profile, batch)
    local, accum = int(options.run_local[gpus - 1, 0]), int(options.accum[gpus - 1, 0])
    placement = pack(gpus, node_gpus)
    if profile.measured is None:
        grad, step = profile.throughput.times(len(placement) > 1, gpus, local)
    else:
        step, sync = profile.measured.times_on(placement, local)
        grad = step - sync
    gains = np.array([model.gain(e, float(gpus * local * (accum + 1))) for e in range(len(model.progress))])
    return float((np.diff(model.progress, prepend=0.0) / gains).sum() * (step + accum * grad))


Depths = list[ClassTables]  # of one class, by the number of modules frozen


def build_classes(classes: Sequence[JobClass], cluster: ClusterSpec) -> tuple[Shapes, list[Depths]]:
    """The tables of each class on the GPU types of a cluster, at every depth of freezing."""
    shapes = Shapes.of(cluster, [c.model for c in classes])
    return shapes, [[ClassTables(job.at_depth(depth), shapes) for depth in job.depths] for job in classes]


class Packer:
    """Flat arrays of numbers, and where each table in them begins."""

    def __init__(self) -> None:
        self.parts: list[npt.NDArray[Any]] = []
        self.size = 0

    def add(self, values: npt.NDArray[Any]) -> int:
        self.parts.append(values.ravel())
        self.size += values.size
        return self.size - values.size

    def array(self, dtype: Any) -> npt.NDArray[Any]:
        return np.concatenate([*self.parts, np.zeros(1)]).astype(dtype)


def build_tables(jobs: np.recarray, shapes: Shapes, classes: Sequence[Depths], straggles: bool = False) -> Tables:
    """Tables of a workload whose elastic jobs are of these classes; ``straggles``: and may straggle."""
    rows = np.zeros(len(classes), CLASS_DTYPE).view(np.recarray)
    floats, ints = Packer(), Packer()
    add_usual_ends(jobs, floats)
    if classes:
        rows.pair_at = ints.add(shapes.pair)
        rows.necklace_at = ints.add(shapes.necklace) if shapes.necklace.shape[1] > 1 else -1
    for row, depths in zip(rows, classes, strict=True):
        built, model = depths[0], depths[0].job.model
        rates = [at_depth.known_rates() for at_depth in depths]
        known = np.stack([rate for rate, _ in rates])
        true = np.stack([at_depth.true_rates(best) for at_depth, (_, best) in zip(depths, rates, strict=True)])
        row.epochs, row.work, row.init_batch = len(model.progress), model.progress[-1], model.init_batch
        row.first_delay, row.next_delay = model.first_delay_s, model.next_delay_s
        row.shapes, row.known_shapes = len(shapes.gpus), known[0, 0].size
        row.num_options, row.num_batches = built.num_options, len(model.batches)
        row.progress_at = floats.add(model.progress)
        row.rate_at, row.known_at = floats.add(true), floats.add(known)
        if straggles:
            facts = [d.straggler_facts(best) for d, (_, best) in zip(depths, rates, strict=True)]
            row.comm_at, row.noise_at = (floats.add(np.stack(table)) for table in zip(*facts, strict=True))
        at_few = known[..., LAYER_GPUS]
        both = at_few + at_few[0]
        row.relative_at = floats.add(np.divide(at_few, both, out=np.zeros_like(at_few), where=at_few[0] > 0))
        row.grad_at, row.step_at = floats.add(built.times[0]), floats.add(built.times[1])
        row.batches_at = floats.add(model.batches)
        row.sqr_at, row.var_at = floats.add(model.grad_sqr), floats.add(model.grad_var)
        padding = np.zeros((1, built.num_options), np.int64)  # 0 GPUs
        for name in ("local", "run_local", "accum"):
            row[f"{name}_at"] = ints.add(np.stack([np.vstack([padding, getattr(o, name)]) for o in built.options]))
    return Tables(jobs, rows, floats.array(np.float64), ints.array(np.int64))


def add_usual_ends(jobs: np.recarray, floats: Packer) -> None:
    """Add the speeds, 1 / progress, at which the modules of jobs usually converge: one table for all jobs alike."""
    names = ["modules", "usual_first", "usual_last", "end_shape"]
    kinds, which = np.unique(jobs[names].view(np.ndarray)[jobs["modules"] > 0], return_inverse=True)
    places = np.zeros(len(kinds), np.int64)
    for i, (modules, first, last, shape) in enumerate(kinds.tolist()):
        places[i] = floats.add(1.0 / (first + (last - first) * (np.arange(modules) / (modules - 1.0)) ** shape))
    jobs["usual_at"][jobs["modules"] > 0] = places[which]


def iteration_tables(classes: Sequence[Depths]) -> tuple[Floats, Floats, Floats, Floats]:
    """``iteration_s``, ``sample_s``, ``whole_iterations`` and ``epoch_iterations`` of Workload, nothing frozen."""
    longest = max((len(depths[0].job.epochs) for depths in classes), default=1)
    seconds = np.full((len(classes), MAX_REPLICAS + 1), np.inf)
    sample = seconds.copy()
    whole, each = np.zeros((len(classes), longest)), np.zeros((len(classes), longest))
    for c, (built, *_) in enumerate(classes):
        seconds[c], job = built.packed_iteration_s(), built.job
        sample[c] = seconds[c] / built.iteration_samples()
        batch = job.batch or job.model.init_batch
        work = np.diff(job.model.progress, prepend=0.0)
        for e in job.epochs:
            whole[c, e] = job.model.iterations_left(e, batch)
            each[c, e] = work[e] / float(np.asarray(job.model.gain(e, float(batch))))
    return seconds, sample, whole, each
