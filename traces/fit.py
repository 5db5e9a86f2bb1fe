"""Fits the seven throughput parameters to measured step times, and writes the table of model profiles.

The objective is Pollux's (Qiao et al., OSDI'21, section 4.1 and artifact): root mean squared logarithmic errors of
compute and step time, plus small penalties for overlap and for network time that grows with the GPUs.
Departure: the artifact starts once, from fixed values, and stops early on several data sets. Here alpha and beta are
searched by their logarithms, from several starts, each to convergence; the best fit is then pulled towards a smaller
mean relative error of the step time, as far as the objective stays within 1 % of its least value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, minimize

from traces.profiles import PARAMETERS, T4_MAX_LOCAL, Array, ModelProfile, ProfileError, Throughput, TypeProfile

LEAST, MOST = 1e-8, 1e4  # bounds of alpha and beta [s]
GAMMA = (1.0, 10.0)
SLACK = 1.01  # of the least objective
WEIGHTS = (0.05, 0.1, 0.2, 0.5)  # of the step time's error when pulling
ONE_GPU = -700.0  # logarithm that stands for no network time
ALPHA_C, ALPHA_N, BETA_N, ALPHA_R, BETA_R = (PARAMETERS.index(name) for name in PARAMETERS[:6] if name != "beta_c")


@dataclass(frozen=True, eq=False)
class Observations:
    """P measurements, each (P,) float64: nodes, GPUs, samples a GPU, compute time and step time [s]."""

    nodes: Array
    gpus: Array
    local: Array
    grad: Array
    step: Array

    def keep(self, mask: npt.NDArray[np.bool_]) -> Observations:
        return Observations(*(getattr(self, field.name)[mask] for field in fields(self)))


def fit_throughput(seen: Observations, starts: int = 4) -> Throughput:
    """Fit from ``starts`` starts, the same for the same measurements.

    Parameters about which the measurements say nothing are pinned as in Pollux; without any on several nodes,
    alpha_n and beta_n become 1.1 times those within a node.
    """
    bounds = Bounds(*_bounds(seen))
    found = [_descend(start, seen, bounds) for start in np.clip(_starts(seen, starts), bounds.lb, bounds.ub)]
    least, best = min(((_objective(x, seen)[0], x) for x in found), key=lambda pair: pair[0])
    found += [_descend(best, seen, bounds, weight) for weight in WEIGHTS]
    fits = [_throughput(x, seen) for x in found if _objective(x, seen)[0] <= SLACK * least]
    return min(fits, key=lambda fit: step_error(fit, seen))


def step_error(throughput: Throughput, seen: Observations) -> float:
    """Mean relative error of the step time."""
    _, step = throughput.times(seen.nodes > 1, seen.gpus, seen.local)
    return float(np.mean(np.abs(step / seen.step - 1)))


def compute_error(throughput: Throughput, seen: Observations) -> float:
    """Mean relative error of the compute time."""
    grad, _ = throughput.times(seen.nodes > 1, seen.gpus, seen.local)
    return float(np.mean(np.abs(grad / seen.grad - 1)))


def table_of(profiles: Mapping[str, ModelProfile], source: str) -> dict[str, Any]:
    """The table that ``traces.profiles`` reads, with each fit's errors: derived facts, no measured row.

    Numbers have six significant digits, and errors are those of the rounded parameters.
    """
    return {"source": source, "models": {model: _model_row(profile) for model, profile in sorted(profiles.items())}}


def write_table(table: Mapping[str, Any], path: Path) -> None:
    """Write a table as JSON, a list on one line; ProfileError if the file cannot be written."""
    text = re.sub(r"\[\s+([^\[\]]*?)\s+\]", lambda hit: f"[{' '.join(hit[1].split())}]", json.dumps(table, indent=2))
    try:
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise ProfileError(f"{path} cannot be written: {error.strerror}") from None


def noise_scale(profile: ModelProfile) -> Array:
    """(E,) float64 [samples]: M0 var / sqr of each epoch, the geometric mean over the measured batches.

    Batches whose statistics are not positive and finite do not count; 0, where no larger batch helps, if none does.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        scales = profile.init_batch * profile.grad_var / profile.grad_sqr
    good = np.isfinite(scales) & (scales > 0)
    count = good.sum(axis=1)
    logs = np.log(np.where(good, scales, 1.0)).sum(axis=1)
    return np.where(count > 0, np.exp(logs / np.maximum(count, 1)), 0.0)


def _model_row(profile: ModelProfile) -> dict[str, Any]:
    return {
        "init_batch": profile.init_batch,
        "max_batch": profile.max_batch,
        "progress": _rounded(profile.progress[-1]),
        "noise_scale": [_rounded(scale) for scale in noise_scale(profile)],
        "first_delay_s": profile.first_delay_s,
        "next_delay_s": profile.next_delay_s,
        "types": {name: _type_row(profile.model, entry) for name, entry in sorted(profile.types.items())},
    }


def _type_row(model: str, entry: TypeProfile) -> dict[str, Any]:
    assert entry.measured is not None, "a table is made from measured times"
    seen = entry.measured.observations()
    throughput = Throughput(**{name: _rounded(value) for name, value in asdict(entry.throughput).items()})
    most = T4_MAX_LOCAL.get(model, entry.max_local) if entry.gpu_type == "aws" else entry.max_local
    several, shared = seen.nodes > 1, seen.gpus > 1
    groups = {"one_gpu": ~shared, "one_node": shared & ~several, "several_nodes": several}
    return {
        "min_local": entry.min_local,
        "max_local": min(most, entry.max_local),
        "throughput": asdict(throughput),
        "fit": {
            "points": len(seen.step),
            "step_error": _rounded(step_error(throughput, seen)),
            "compute_error": _rounded(compute_error(throughput, seen)),
            "step_error_by_size": {
                name: {"points": int(mask.sum()), "step_error": _rounded(step_error(throughput, seen.keep(mask)))}
                for name, mask in groups.items()
                if mask.any()
            },
        },
    }


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _descend(start: Array, seen: Observations, bounds: Bounds, weight: float = 0.0) -> Array:
    def value(x: Array) -> tuple[float, Array]:
        return _objective(x, seen, weight)

    found = minimize(value, start, method="L-BFGS-B", jac=True, bounds=bounds, tol=1e-10)
    return np.asarray(found.x)


def _objective(x: Array, seen: Observations, weight: float = 0.0) -> tuple[float, Array]:
    """Value and gradient (7,) at x = logarithms of alpha and beta, then gamma itself.

    ``weight``: of the mean relative error of the step time, smooth at 0, on top of Pollux's objective.
    """
    alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r = np.exp(x[:6])
    gamma, several, shared = x[6], seen.nodes > 1, seen.gpus > 1
    grad = alpha_c + beta_c * seen.local
    alpha, beta = np.where(several, alpha_n, alpha_r), np.where(several, beta_n, beta_r)
    growth = beta * np.maximum(seen.gpus - 2, 0)
    log_grad, log_net = np.log(grad), np.where(shared, np.log(alpha + growth), ONE_GPU)
    log_step = np.logaddexp(gamma * log_grad, gamma * log_net) / gamma
    compute = np.exp(gamma * (log_grad - log_step))  # share of grad^gamma in step^gamma
    errors = log_grad - np.log(seen.grad), log_step - np.log(seen.step)
    roots = [float(np.sqrt(np.mean(error**2))) for error in errors]
    by_grad, by_step = (
        error / (len(error) * root) if root > 0 else error for error, root in zip(errors, roots, strict=True)
    )

    relative = np.exp(errors[1]) - 1
    absolute = np.sqrt(relative**2 + 1e-6)
    by_step = by_step + weight * relative / absolute * (relative + 1) / len(relative)

    slopes = np.zeros(7)
    along = (by_grad + by_step * compute) / grad  # of the objective, along grad
    slopes[0], slopes[1] = along.sum() * alpha_c, along @ seen.local * beta_c
    along = by_step * (1 - compute) / (alpha + growth)
    for first, mask in ((ALPHA_N, several), (ALPHA_R, ~several)):
        slopes[first], slopes[first + 1] = (along * alpha)[mask].sum(), (along * growth)[mask].sum()
    slopes[6] = by_step @ (compute * log_grad + (1 - compute) * log_net - log_step) / gamma + 2e-3 * (gamma - 1)
    ratios = 1e-2 * np.array([(beta_n / alpha_n) ** 2, (beta_r / alpha_r) ** 2])
    slopes[[BETA_N, BETA_R]] += 2 * ratios
    slopes[[ALPHA_N, ALPHA_R]] -= 2 * ratios
    penalty = 1e-3 * (gamma - 1) ** 2 + ratios.sum()
    return sum(roots) + penalty + weight * absolute.mean(), slopes


def _bounds(seen: Observations) -> tuple[Array, Array]:
    """Bounds (7,) of x; equal where the measurements say nothing about a parameter."""
    low = np.array([np.log(LEAST)] * 6 + [GAMMA[0]])
    high = np.array([np.log(MOST)] * 6 + [GAMMA[1]])
    several, shared = seen.nodes > 1, seen.gpus > 1
    pinned = [] if several.any() else [ALPHA_N, BETA_N]
    pinned += [] if (shared & ~several).any() else [ALPHA_R, BETA_R]
    pinned += [] if (seen.gpus > 2).any() else [BETA_N, BETA_R]
    high[pinned] = low[pinned]
    if len(np.unique(seen.local)) == 1:
        low[ALPHA_C] = high[ALPHA_C] = np.log(seen.grad.mean() / 2)
    return low, high


def _starts(seen: Observations, count: int) -> Array:
    """(count, 7): one from the sizes of the measured times, the others scattered about it."""
    sample = np.median(seen.grad / seen.local)
    net = max(float(np.mean(seen.step - seen.grad)), 1e-3 * float(np.mean(seen.step)))
    middle = np.array([*np.log([seen.grad.min() / 2, sample / 2, net, net / 20, net, net / 20]), 1.5])
    random = np.random.default_rng(0)
    starts = middle + random.normal(size=(count, 7)) * [1, 1, 1.5, 1.5, 1.5, 1.5, 0]
    starts[:, 6] = random.uniform(1, 4, count)
    starts[0] = middle
    return starts


def _throughput(x: Array, seen: Observations) -> Throughput:
    values = [*np.exp(x[:6]).tolist(), float(x[6])]
    if not (seen.nodes > 1).any():
        for n, r in ((ALPHA_N, ALPHA_R), (BETA_N, BETA_R)):
            values[n] = max(values[n], 1.1 * values[r])
    return Throughput(*values)
