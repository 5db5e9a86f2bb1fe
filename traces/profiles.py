"""What a model profile says: how fast a training job's steps are, and how much each step is worth.

Throughput is the seven-parameter model of Pollux (Qiao et al., OSDI'21, sections 3.1-3.2), per GPU type as in Sia
(Jayaram Subramanya et al., SOSP'23); the worth of a step follows from its gradient statistics, epoch by epoch.
:func:`load_profiles` reads the table that ships with the project, ``traces.measured.read_profiles`` a folder of
measurements. Times are in seconds, batches in samples, progress in iterations at the model's first batch M0.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from traces.measured import MeasuredTimes

Array = npt.NDArray[np.float64]
Number = TypeVar("Number", float, Array)

SHIPPED = Path(__file__).with_name("model_profiles.json")
CANDIDATES = 50  # batch sizes tried when tuning
PARAMETERS = ("alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r", "gamma")

GPU_TYPES = {
    "aws": "T4, 4 a node",
    "rtx": "2080Ti, 8 a node",
    "quad": "one workstation of 4 GPUs",
    "dgx": "A100, 8 a node, local batches as on T4",
    "dgx-ext": "A100, 8 a node",
    "azure": "V100, 8 a node",
}
# Pollux and DeepBoot hold yolov3 on T4 to half of its measured range (Sia does not).
T4_MAX_LOCAL = {"yolov3": 8}
ALIASES = {"": "aws", "t4": "aws", "2080ti": "rtx", "a100": "dgx-ext", "v100": "azure"}


class ProfileError(ValueError):
    """A profile, or a question to one, that makes no sense; the message is one sentence with the place at fault."""


def canonical_type(name: str) -> str:
    """The name a profile uses for a GPU type: small letters, ``t4`` is ``aws`` and so on, none is ``aws``.

    Names that GPU_TYPES does not list pass through: a folder of one's own may have types of its own.
    """
    name = name.strip().lower()
    return ALIASES.get(name, name)


@dataclass(frozen=True)
class Throughput:
    """Seven fitted parameters [s; beta_c in s a sample]: c compute, n across nodes, r within one node."""

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float

    def times(self, several: npt.ArrayLike, gpus: npt.ArrayLike, local: npt.ArrayLike) -> tuple[Array, Array]:
        """Times [s] of a micro-step without synchronisation and of one with it; the arguments broadcast.

        ``several``: whether the GPUs are on more than one node; ``local``: samples a GPU.
        grad = alpha_c + beta_c local, net = alpha + beta (gpus - 2)+ or 0 on one GPU,
        step = (grad^gamma + net^gamma)^(1/gamma).
        """
        gpus = np.asarray(gpus, dtype=np.float64)
        alpha, beta = np.where(several, self.alpha_n, self.alpha_r), np.where(several, self.beta_n, self.beta_r)
        net = np.where(gpus > 1, alpha + beta * np.maximum(gpus - 2, 0), 0.0)
        grad = self.alpha_c + self.beta_c * np.asarray(local, dtype=np.float64)
        grad, net = np.broadcast_arrays(grad, net)
        step = (grad**self.gamma + net**self.gamma) ** (1 / self.gamma)
        return np.array(grad), np.asarray(step)


@dataclass(frozen=True)
class TypeProfile:
    """A model on one GPU type; local batches in samples a GPU, ``measured`` None in the shipped table."""

    gpu_type: str
    min_local: int
    max_local: int
    throughput: Throughput
    measured: MeasuredTimes | None = None


@dataclass(frozen=True)
class ModelProfile:
    """A model: its batch sizes, its E epochs, gradient statistics at V batch sizes, and its speed by GPU type."""

    model: str
    init_batch: int  # M0 [samples]
    max_batch: int  # M_max [samples]
    progress: Array  # (E,) float64 [iterations at M0]: work done by the end of each epoch, ascending
    batches: Array  # (V,) float64 [samples]: total batches at which gradients were measured, ascending
    grad_sqr: Array  # (E, V) float64: squared norm of the gradient
    grad_var: Array  # (E, V) float64: trace of the gradient's covariance at M0
    iterations: Array | None  # (E, V) float64: real iterations by the end of each epoch; None: not measured
    first_delay_s: float
    next_delay_s: float
    types: dict[str, TypeProfile]

    def gradients(self, epoch: int, batch: Number) -> tuple[Number, Number]:
        """(sqr, var) at a total batch: linear between the two measured neighbours, clamped at the ends."""
        sqr, var = (np.interp(batch, self.batches, stat[epoch]) for stat in (self.grad_sqr, self.grad_var))
        return cast(Number, sqr), cast(Number, var)

    def gain(self, epoch: int, batch: Number) -> Number:
        """Progress of one iteration at a total batch [iterations at M0]."""
        sqr, var = self.gradients(epoch, batch)
        return gain(sqr, var, self.init_batch, batch)

    def iterations_left(self, epoch: int, batch: float) -> float:
        """Real iterations at a total batch in the whole epochs after this one (0 in the last)."""
        if self.iterations is not None:
            ends = [np.interp(batch, self.batches, self.iterations[e]) for e in (epoch, len(self.progress) - 1)]
            return float(ends[1] - ends[0])
        work = np.diff(self.progress)  # of epochs 1, 2, ...
        return float(sum(work[e - 1] / self.gain(e, batch) for e in range(epoch + 1, len(self.progress))))


def gain(sqr: Number, var: Number, init_batch: float, batch: Number) -> Number:
    """(var + sqr) / (var M0 / M + sqr), Pollux section 3.1; 1 where the denominator is not > 0."""
    below = np.asarray(var) * init_batch / np.asarray(batch) + np.asarray(sqr)
    value = np.where(below > 0, (np.asarray(var) + sqr) / np.where(below > 0, below, 1.0), 1.0)
    return cast(Number, value[()])


def optimise_batch(
    profile_type: TypeProfile,
    model: ModelProfile,
    throughput: Throughput,
    sqr: float,
    var: float,
    nodes: int,
    gpus: int,
    tuned_batch: float | None = None,
) -> tuple[float, int, int]:
    """(goodput [iterations at M0 per s], local batch, accumulation steps) of the best total batch on these GPUs.

    The scalar reference for the tables of the simulator: 50 geometric batches from max(M0, min_local gpus) to M_max,
    or ``tuned_batch`` alone (a fixed one). A local batch that would carry the total over M_max is cut after the
    choice. (0.0, 0, 0) where no batch fits the GPUs' memory.
    """
    best = (0.0, 0, 0)
    low, high = max(model.init_batch, profile_type.min_local * gpus), profile_type.max_local
    if tuned_batch is None and low > model.max_batch:
        return best
    totals = np.geomspace(low, model.max_batch, CANDIDATES) if tuned_batch is None else np.array([tuned_batch])
    for total in totals:
        share = total / gpus
        steps = _ceil(share / high) - 1
        if gpus == 1 and share > model.init_batch + 1e-8:
            steps = max(steps, 1)  # gradient statistics need two gradients
        local = _ceil(share / (steps + 1))
        if tuned_batch is None and not profile_type.min_local <= local <= high:
            continue
        grad, step = throughput.times(nodes > 1, gpus, local)
        goodput = gain(sqr, var, model.init_batch, float(gpus * local * (steps + 1))) / float(steps * grad + step)
        if goodput > best[0]:
            best = (goodput, local, steps)
    goodput, local, steps = best
    return goodput, min(local, model.max_batch // (gpus * (steps + 1))), steps


def _ceil(number: float) -> int:
    return int(np.ceil(number - 1e-8))


def load_profiles() -> dict[str, ModelProfile]:
    """The shipped table by model, fitted from the Sia artifact's measurements; see docs/profiles.md."""
    return dict(_shipped())


@cache
def _shipped() -> dict[str, ModelProfile]:
    table = json.loads(SHIPPED.read_text())
    return {model: _from_table(model, row) for model, row in table["models"].items()}


def _from_table(model: str, row: dict[str, Any]) -> ModelProfile:
    """One model of the table: the noise scale phi = M0 var / sqr of each epoch is kept as sqr = 1, var = phi / M0."""
    noise = np.array(row["noise_scale"])
    types = {
        name: TypeProfile(name, entry["min_local"], entry["max_local"], Throughput(**entry["throughput"]))
        for name, entry in row["types"].items()
    }
    return ModelProfile(
        model=model,
        init_batch=row["init_batch"],
        max_batch=row["max_batch"],
        progress=row["progress"] * np.arange(1, len(noise) + 1) / len(noise),
        batches=np.array([row["init_batch"]], dtype=np.float64),
        grad_sqr=np.ones((len(noise), 1)),
        grad_var=noise[:, None] / row["init_batch"],
        iterations=None,
        first_delay_s=row["first_delay_s"],
        next_delay_s=row["next_delay_s"],
        types=types,
    )
