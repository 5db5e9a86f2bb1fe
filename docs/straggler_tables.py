"""The table of sensitivities in docs/traces.md."""

from __future__ import annotations

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
    lines = [header, ("---",) * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
