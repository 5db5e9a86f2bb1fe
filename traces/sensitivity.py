"""How much a training job feels what slows its workers: the column ``sensitivity`` of a trace.

A worker whose node's CPUs are s times slower takes 1 + cpu (s - 1) times as long over an iteration's compute, and so
on for storage and links. Factors and defaults: shared/design/stragglers.md, sections 3.1 and 3.4.

The rows of :data:`MEASURED` are ours, fitted to how many times as long an iteration took under a strong and a mild
throttle of CPU or bandwidth (Zhang and Shen's code ``Training-Sync-Mode``; the ratios: section 1.5). How strong the
throttles were is not known, so only products can be: excess (ratio - 1) = factor of the model x level of the throttle,
by least squares. Two norms of ours fix the scale: ``cpu`` is 1 on average over the convolutional models, and the
largest ``comm_share`` is 0.5, the top of the range of section 4.5; the least is set to 0.02, since no communication is
free. Under a CPU throttle the whole iteration counts as compute. For links the fit is rough: vgg13 took 8.0 and 3.5
times as long, vgg16 7.7 and 1.4 times. ``io`` and the speed class are not measured: convolutional models read images,
an LSTM is dense products like those of the row ``speech``, and of transformers' spread between GPUs BERT's is known.
"""

from __future__ import annotations

from difflib import get_close_matches
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

MEASURED: dict[str, Sensitivity] = {
    "resnet20": Sensitivity(1.08, 1.0, 1.0, COMPUTE, 0.02),
    "resnet56": Sensitivity(0.87, 1.0, 1.0, COMPUTE, 0.02),
    "alexnet": Sensitivity(1.39, 1.0, 1.0, COMPUTE, 0.17),
    "mobilenet": Sensitivity(1.31, 1.0, 1.0, COMPUTE, 0.08),
    "googlenet": Sensitivity(0.84, 1.0, 1.0, COMPUTE, 0.07),
    "densenet121": Sensitivity(0.84, 1.0, 1.0, COMPUTE, 0.09),
    "vgg13": Sensitivity(1.14, 1.0, 1.0, COMPUTE, 0.46),
    "vgg16": Sensitivity(0.52, 1.0, 1.0, COMPUTE, 0.40),
    "lstm": Sensitivity(0.99, 1.0, 0.2, COMPUTE, 0.49),
    "transformer": Sensitivity(0.93, 1.0, 0.2, ATTENTION, 0.50),
}
SENSITIVITIES: dict[str, Sensitivity] = {
    "vision": Sensitivity(1.0, 1.0, 1.0, COMPUTE, 0.2),
    "speech": Sensitivity(0.8, 1.0, 0.2, COMPUTE, 0.2),
    "language": Sensitivity(0.2, 1.0, 0.2, ATTENTION, 0.3),
    "recommendation": Sensitivity(0.2, 1.0, 0.2, MEMORY, 0.3),
    **MEASURED,
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


def sensitivity_of(name: str, model: str) -> Sensitivity:
    """The row ``name``; where that is empty, of a ``model`` of the throughput table, DEFAULT of any other (or none)."""
    return SENSITIVITIES[name or OF_MODEL.get(model, DEFAULT)]


def what_is_unknown(name: str) -> str:
    """What is wrong with a ``name`` that no row has."""
    near = get_close_matches(name, SENSITIVITIES, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"has no row in traces/sensitivity.py{hint}; known: {', '.join(SENSITIVITIES)}"
