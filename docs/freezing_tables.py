"""The tables of docs/freezing-measured.md, from the shipped results of ``python -m traces measure-freezing``."""

from __future__ import annotations

from collections.abc import Iterable

from traces.freezing_report import PREDICTORS
from traces.measure_freezing import SCHEDULES, load_measured


def made_with() -> str:
    """How the shipped results came about."""
    table = load_measured()
    settings, runs = table["settings"], table["runs"]
    steps = settings["epochs"] * settings["batches"]
    rows = [
        ("command", f"`{table['command']}`"),
        (
            "a whole run",
            f"{settings['epochs']} epochs of {settings['batches']} steps, {steps:,} steps of "
            f"{settings['batch']} images; test on {settings['test_images']:,} images",
        ),
        (
            "optimizer",
            f"SGD, momentum {settings['momentum']:g}, weight decay {settings['weight_decay']:g}, learning rate "
            f"{settings['peak_rate']:g} to 0 as a cosine",
        ),
        ("runs", f"{len(runs)}, seeds {min(r['seed'] for r in runs)} to {max(r['seed'] for r in runs)}"),
        ("CPU time", f"{sum(run['cpu_s'] for run in runs) / 60:.1f} min in all"),
        ("machine", f"{table['machine']}, threads: {table['threads']}"),
        ("versions", ", ".join(f"{name} {number}" for name, number in table["versions"].items())),
    ]
    return _table(("made", "with"), rows)


def unfrozen() -> str:
    """What shorter runs without freezing reach."""
    columns = load_measured()["unfrozen"]
    rows = [
        (f"{share:g}", f"{loss:.3f}", _percent(spread), _percent(accuracy))
        for share, loss, spread, accuracy in zip(
            *(columns[name] for name in ("share", "loss", "spread", "accuracy")), strict=True
        )
    ]
    return _table(("length [whole runs]", "test loss", "its spread over seeds", "accuracy"), rows)


def schedules() -> str:
    """Every schedule, measured and predicted from the others, the costliest last."""
    table = load_measured()
    whole = table["unfrozen"]["cpu_s"][-1]
    header = ("schedule", "what it does", "frozen", "CPU time", "loss", "predicted", "accuracy", "predicted")
    rows = [
        (
            f"`{name}`",
            SCHEDULES[name].about,
            f"{row['frozen_share']:.0%}",
            f"{row['cpu_s'] / whole:.0%}",
            f"{row['loss']:.3f}",
            f"{row['predicted']['loss']:.3f}",
            _percent(row["accuracy"]),
            _percent(row["predicted"]["accuracy"]),
            f"{row['equivalent']:.2f}",
            f"{row['predicted']['progress']:.2f}",
            f"{row['predicted']['residual']:.2f}",
        )
        for name, row in sorted(table["schedules"].items(), key=lambda item: float(item[1]["loss"]))
    ]
    return _table((*header, "effective progress", "predicted", "residual Q"), rows)


def constants() -> str:
    """The fitted constants, and how far they go when one schedule is left out."""
    found = load_measured()["fit"]
    rows = [
        (
            sign,
            f"{found['constants'][name]:.2f}{' (at its bound)' if name in found['at_bounds'] else ''}",
            " to ".join(f"{end:.2f}" for end in found["ranges"][name]),
            *(f"{found[extra][name]:.2f}" for extra in ("scale", "slope")),
        )
        for name, sign in (("first", "p_a"), ("last", "p_b"), ("shape", "eta"))
    ]
    rows.append(("factor of the penalty", "1", "1", f"{found['scale']['scale']:.2f}", "1"))
    rows.append(("slope in the excess residual", "0", "0", "0", f"{found['slope']['slope']:.2f}"))
    return _table(("constant", "fitted", "with one schedule left out", "with a factor", "with a slope"), rows)


def errors() -> str:
    """Held-out error of the test loss of each predictor, best first."""
    held_out = load_measured()["fit"]["held_out"]
    rows = [
        (
            PREDICTORS[name][0],
            PREDICTORS[name][1],
            f"{judged['mean']:.1%}",
            f"{judged['worst']:+.0%} (`{judged['worst_schedule']}`)",
        )
        for name, judged in sorted(held_out.items(), key=lambda item: float(item[1]["mean"]))
    ]
    return _table(("predictor", "constants fitted", "mean error", "worst"), rows)


def figures() -> str:
    """Single numbers of the fit."""
    found = load_measured()["fit"]
    accuracy, ranks = found["accuracy"], found["rank_correlation"]
    rows = [
        ("error of the model on the schedules it was fitted to", f"{found['in_sample']:.1%}"),
        ("error that the seeds alone leave a perfect prediction", _percent(found["seed_error"])),
        ("held-out accuracy, mean miss of the model", f"{100 * accuracy['fitted']:.2f} points"),
        ("the same if freezing changed nothing", f"{100 * accuracy['ignore']:.2f} points"),
        ("rank correlation of the loss with the residual Q", f"{ranks['residual']:.2f}"),
        ("with the effective progress lost", f"{ranks['progress']:.2f}"),
        ("with the mean share of frozen modules", f"{ranks['frozen_share']:.2f}"),
        ("p_i, module by module", ", ".join(f"{end:.2f}" for end in found["converged_at"])),
    ]
    return _table(("figure", "value"), rows)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [[str(cell) for cell in line] for line in (header, *rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
