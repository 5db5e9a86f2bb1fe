"""The tables of docs/profiles.md, from the shipped table of model profiles."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from traces.profiles import GPU_TYPES, SHIPPED


def models() -> str:
    """Batch sizes, length, noise scale and pauses of each model."""
    header = ("model", "M0", "M_max", "epochs", "iterations at M0", "noise scale", "first / next pause [s]")
    return _table([*header, *GPU_TYPES], [_model(name, row) for name, row in _shipped().items()])


def errors() -> str:
    """Mean relative error of the step time of each model and GPU type, with the number of points."""
    header = ("model", "GPU type", "points", "step time", "one GPU", "one node", "several nodes", "compute time")
    rows = [
        (f"`{name}`", f"`{gpu_type}`", *_errors(row["types"][gpu_type]["fit"]))
        for name, row in _shipped().items()
        for gpu_type in GPU_TYPES
    ]
    return _table(header, rows)


def _shipped() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(SHIPPED.read_text())["models"]
    return table


def _model(name: str, row: dict[str, Any]) -> list[str]:
    noise = row["noise_scale"]
    limits = [row["types"][gpu_type] for gpu_type in GPU_TYPES]
    return [
        f"`{name}`",
        f"{row['init_batch']}",
        f"{row['max_batch']}",
        f"{len(noise)}",
        f"{row['progress']:,.0f}",
        f"{_short(min(noise))} to {_short(max(noise))}",
        f"{row['first_delay_s']:g} / {row['next_delay_s']:g}",
        *(f"{limit['min_local']}-{limit['max_local']}" for limit in limits),
    ]


def _errors(fit: dict[str, Any]) -> list[str]:
    parts = [fit["step_error_by_size"].get(size) for size in ("one_gpu", "one_node", "several_nodes")]
    return [
        f"{fit['points']}",
        f"{fit['step_error']:.1%}",
        *(f"{part['step_error']:.1%} ({part['points']})" if part else "" for part in parts),
        f"{fit['compute_error']:.1%}",
    ]


def _short(number: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{float(f'{number:.3g}'):,g}" if number < 1e6 else f"{number / 1e6:.3g} million"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(line) for line in (header, *rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
