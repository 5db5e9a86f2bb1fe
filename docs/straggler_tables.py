"""The tables of sensitivities in docs/traces.md and of presets in docs/simulator.md."""

from __future__ import annotations

from collections.abc import Iterable

from envs.straggler_presets import KINDS, STRAGGLER_PRESETS
from traces.sensitivity import OF_MODEL, SENSITIVITIES, SPEED_CLASSES


def sensitivities() -> str:
    """How much each kind of job feels what slows its workers."""
    header = ("row", "CPU", "link", "storage", "communication", "GPU speeds differ as", "elastic models")
    rows = [
        (
            f"`{name}`",
            *(f"{value:g}" for value in (row.cpu, row.net, row.io, row.comm_share)),
            SPEED_CLASSES[row.speed_class].name,
            ", ".join(f"`{model}`" for model, of in OF_MODEL.items() if of == name),
        )
        for name, row in SENSITIVITIES.items()
    ]
    return _table(header, rows)


def presets() -> str:
    """What becomes slow in each preset; storage, where there is any, as CPUs."""
    header = ("preset", "what", "background hot", "onsets an hour, calm", "at full load", "lasts [min]", "slower by")
    rows = [
        (
            f"`{name}`",
            kind,
            f"{cause.hot_share:.2%}" if cause.hot_share > 0 else "–",
            f"{cause.least_rate:g}",
            f"{cause.least_rate + cause.hot_rate:g}",
            f"{cause.mean_min:g}",
            f"{cause.excess:.0%}",
        )
        for name, preset in STRAGGLER_PRESETS.items()
        for kind, cause in zip(KINDS, preset.causes, strict=True)
        if kind != "io" and cause.excess > 0
    ]
    return _table(header, rows)


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = tuple(header)
    lines = [names, ("---",) * len(names), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
