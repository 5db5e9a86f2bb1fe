"""TensorBoard events of a training run, in the field's terms.

Tags: ``validation/<metric>`` (metrics of envs/metrics.py, means over the validation windows) with the
best baseline's measure (agents/validation.py) beside the agent's in one chart, ``rollout/*`` of the training episodes,
``actions/*`` (share of each kind of action), ``time/*`` (decisions per second; shares of time in the
environments, the policy and the learner), ``train/*`` of the algorithm, a Gantt image and the
hyper-parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.logger import KVWriter
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams


class RunLog(KVWriter):
    """One event file; also an output of SB3's logger."""

    def __init__(self, folder: Path, first_step: int) -> None:
        # What an interrupted run wrote after the checkpoint that is being resumed is hidden.
        self.writer = SummaryWriter(log_dir=str(folder), purge_step=first_step + 1 if first_step else None)

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Scalars recorded by SB3."""
        for name, value in key_values.items():
            if "tensorboard" not in (key_excluded.get(name) or ()):
                self.writer.add_scalar(name, value, step)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Values by tag; unknown (NaN) ones are left out."""
        for tag, value in values.items():
            if not np.isnan(value):
                self.writer.add_scalar(tag, value, step)

    def image(self, tag: str, rgb: npt.NDArray[np.uint8], step: int) -> None:
        """A picture ``rgb (height, width, 3) uint8``."""
        self.writer.add_image(tag, rgb, step, dataformats="HWC")

    def histogram(self, tag: str, values: npt.NDArray[np.int64], bins: int, step: int) -> None:
        """How often each of the whole numbers 0 .. ``bins`` - 1 occurs in ``values``."""
        self.writer.add_histogram(tag, values, step, bins=np.arange(bins + 1) - 0.5)

    def describe(self, settings: Mapping[str, Any], references: Mapping[str, float], tag: str, title: str) -> None:
        """Hyper-parameters, and one chart ``title`` that shows the agent's ``tag`` with the baselines'."""
        flat = {name: value if isinstance(value, int | float | str) else str(value) for name, value in settings.items()}
        for summary in hparams(flat, {tag: 0.0}):  # type: ignore[no-untyped-call]
            self.writer.file_writer.add_summary(summary)  # type: ignore[attr-defined]
        lines = [tag, *(f"{tag}/{name}" for name in references)]
        self.writer.add_custom_scalars({"validation": {title: ["Multiline", lines]}})

    def close(self) -> None:
        self.writer.close()
