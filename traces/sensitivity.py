"""How much a training job feels what slows its workers: the column ``sensitivity`` of a trace.

A worker whose node's CPUs are s times slower takes 1 + cpu (s - 1) times as long over an iteration's compute, and so
on for storage and links. Factors and defaults: shared/design/stragglers.md, sections 3.1 and 3.4.
"""

from __future__ import annotations

from typing import NamedTuple


class SpeedClass(NamedTuple):
    """How much GPUs of a type differ in the time that they take: exp(sigma z + chi a) of a GPU with deviate z, a."""

    name: str
    sigma: float
    chi: float


class Sensitivity(NamedTuple):
    """One row: factors (>= 0) of CPU, link and storage slowness, and what else the simulator asks for."""

    cpu: float
    net: float
    io: float
    speed_class: int
    """Row of SPEED_CLASSES."""
    comm_share: float
    """Usual share of an iteration that is communication, where the job spans nodes."""


SPEED_CLASSES = (
    SpeedClass("compute-bound", 0.026, 1.0),
    SpeedClass("attention", 0.009, 0.4),
    SpeedClass("memory-bound", 0.002, 0.0),
)
COMPUTE, ATTENTION, MEMORY = range(3)

SENSITIVITIES: dict[str, Sensitivity] = {
    "vision": Sensitivity(1.0, 1.0, 1.0, COMPUTE, 0.2),
    "speech": Sensitivity(0.8, 1.0, 0.2, COMPUTE, 0.2),
    "language": Sensitivity(0.2, 1.0, 0.2, ATTENTION, 0.3),
    "recommendation": Sensitivity(0.2, 1.0, 0.2, MEMORY, 0.3),
}
DEFAULT = "vision"
OF_MODEL = {
    "bert": "language",
    "cifar10": "vision",
    "deepspeech2": "speech",
    "imagenet": "vision",
    "ncf": "recommendation",
    "yolov3": "vision",
}


def sensitivity_of(name: str, model: str = "") -> Sensitivity:
    """The row ``name``, or where it is empty that of an elastic job's ``model``, or the default."""
    return SENSITIVITIES[name or OF_MODEL.get(model, DEFAULT)]
