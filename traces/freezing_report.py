"""From training runs to what a schedule costs, the constants of the model, and its error on held-out schedules.

A schedule is held out whole: constants are fitted to all the others, then its loss and accuracy are predicted. The runs
without freezing, which say what effective progress is worth, are known to every predictor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from traces.freezing import PRESETS
from traces.freezing_fit import (
    EXTRA,
    Array,
    Constants,
    Curve,
    Measurements,
    Predictor,
    at_bounds,
    converged_at,
    count_frozen,
    fit,
    fitted,
    follow_all,
    follow_share,
    given,
    ignore_freezing,
    leave_one_out,
    mean_error,
    predict,
)

NONE = "none"  # the name of runs without freezing

# Each with what it is and how many constants it learns.
PREDICTORS: dict[str, tuple[str, int, Predictor]] = {
    "ignore": ("freezing changes nothing", 0, ignore_freezing),
    "lost": ("modules never converge: a frozen one always costs its weight", 0, count_frozen),
    "share": ("no model: a slope in the mean share of frozen modules", 1, follow_share),
    **{
        name: (f"the model with preset {name} {tuple(preset[:3])}", 0, given(Constants(*preset[:3])))
        for name, preset in PRESETS.items()
    },
    "fitted": ("the model, fitted", 3, fitted()),
    "scale": ("the model with a factor of the penalty, fitted", 4, fitted("scale")),
    "slope": ("the model with a slope in the excess residual, fitted", 4, fitted("slope")),
}


def summarise(table: Mapping[str, Any]) -> dict[str, Any]:
    """Sections ``unfrozen``, ``schedules`` and ``fit`` of the file of results, from its settings and runs."""
    unfrozen = _unfrozen(table)
    rows = _schedules(table)
    curve = Curve(np.array(unfrozen["share"]), np.array(unfrozen["loss"]))
    names = list(rows)
    depths, loss = np.array([rows[name]["depths"] for name in names]), np.array([rows[name]["loss"] for name in names])
    measured = Measurements(names, depths, loss, curve, table["settings"]["modules"])
    folds = [fit(measured.without(out)) for out in range(len(names))]
    least = 0.5 / table["settings"]["test_images"]
    errors = Curve(curve.share, np.maximum(1.0 - np.array(unfrozen["accuracy"]), least))
    for out, name in enumerate(names):
        rows[name] |= {
            "equivalent": float(curve.share_of(loss[out])),
            "predicted": _held_out(measured, folds, errors, out),
        }
    fitted_to = _fit(measured, folds) | {"seed_error": _seed_error(rows), "accuracy": _accuracy(rows, unfrozen)}
    summary: dict[str, Any] = _rounded({"unfrozen": unfrozen, "schedules": rows, "fit": fitted_to})
    return summary


def _unfrozen(table: Mapping[str, Any]) -> dict[str, Any]:
    """Columns by length: share of a whole run, loss, its spread, accuracy."""
    runs = [run for run in table["runs"] if run["schedule"] == NONE]
    lengths = sorted({run["epochs"] for run in runs})
    rows = [_means([run for run in runs if run["epochs"] == length]) for length in lengths]
    columns = {key: [row[key] for row in rows] for key in ("loss", "spread", "accuracy", "cpu_s", "seeds")}
    return {"share": [length / table["settings"]["epochs"] for length in lengths], **columns}


def _schedules(table: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    names = dict.fromkeys(run["schedule"] for run in table["runs"] if run["schedule"] != NONE)
    found = {}
    for name in names:
        runs = [run for run in table["runs"] if run["schedule"] == name]
        share = float(np.mean(runs[0]["depths"])) / (table["settings"]["modules"] - 1)
        found[name] = {"depths": runs[0]["depths"], "frozen_share": share, **_means(runs)}
    return found


def _means(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Over seeds, at the end: loss (geometric), standard deviation of its logarithm, accuracy, CPU seconds."""
    logs = np.log([run["loss"][-1] for run in runs])
    return {
        "loss": float(np.exp(logs.mean())),
        "spread": float(logs.std(ddof=1)) if len(runs) > 1 else None,
        "accuracy": float(np.mean([run["accuracy"][-1] for run in runs])),
        "cpu_s": float(np.mean([run["cpu_s"] for run in runs])),
        "seeds": len(runs),
    }


def _held_out(measured: Measurements, folds: Sequence[Constants], errors: Curve, out: int) -> dict[str, float]:
    """What the model, fitted to the other schedules, says of one."""
    followed = follow_all(folds[out], measured)
    return {
        "loss": float(predict(folds[out], measured)[out]),
        "accuracy": 1.0 - float(errors.at(followed.progress)[out]),
        "progress": float(followed.progress[out]),
        "residual": float(followed.residual[out]),
    }


def _fit(measured: Measurements, folds: Sequence[Constants]) -> dict[str, Any]:
    constants = fit(measured)
    first, last, shape = constants[:3]
    followed = follow_all(constants, measured)
    columns = zip(Constants._fields[:3], np.array(folds).T.tolist(), strict=False)
    return {
        "constants": {"first": first, "last": last, "shape": shape},
        "ranges": {name: [min(column), max(column)] for name, column in columns},
        "at_bounds": at_bounds(constants),
        "converged_at": converged_at(first, last, shape, measured.modules).tolist(),
        **{extra: fit(measured, extra)._asdict() for extra in EXTRA},
        "in_sample": mean_error(predict(constants, measured), measured.loss),
        "held_out": {name: _judge(measured, predictor) for name, (_, _, predictor) in PREDICTORS.items()},
        "rank_correlation": {
            "residual": _ranks(followed.residual, measured.loss),
            "progress": _ranks(-followed.progress, measured.loss),
            "frozen_share": _ranks(measured.depths.mean(axis=1), measured.loss),
        },
    }


def _judge(measured: Measurements, predictor: Predictor) -> dict[str, Any]:
    predicted = leave_one_out(measured, predictor)
    misses = np.log(predicted / measured.loss)
    worst = int(np.abs(misses).argmax())
    return {
        "mean": mean_error(predicted, measured.loss),
        "rms": float(np.sqrt((misses**2).mean())),  # of the logarithm
        "worst": float(np.expm1(misses[worst])),
        "worst_schedule": measured.names[worst],
    }


def _ranks(value: Array, loss: Array) -> float:
    """Spearman's rank correlation; its package takes long to import, which other commands need not wait for."""
    from scipy.stats import spearmanr

    return float(spearmanr(value, loss).statistic)


def _seed_error(rows: Mapping[str, Mapping[str, Any]]) -> float | None:
    """What a perfect prediction would still miss a mean over the seeds by: sqrt(2 / pi) of its standard error."""
    variances = [row["spread"] ** 2 / row["seeds"] for row in rows.values() if row["spread"] is not None]
    return float(np.expm1(np.sqrt(2.0 / np.pi * np.mean(variances)))) if variances else None


def _accuracy(rows: Mapping[str, Mapping[str, Any]], unfrozen: Mapping[str, Any]) -> dict[str, float]:
    """Mean absolute error of held-out accuracies, and of the accuracy of a run without freezing in their place."""
    accuracy = np.array([row["accuracy"] for row in rows.values()])
    predicted = np.array([row["predicted"]["accuracy"] for row in rows.values()])
    return {
        "fitted": float(np.abs(predicted - accuracy).mean()),
        "ignore": float(np.abs(unfrozen["accuracy"][-1] - accuracy).mean()),
    }


def _rounded(value: Any) -> Any:
    """Floats at any depth to five digits, which is more than is known."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value
