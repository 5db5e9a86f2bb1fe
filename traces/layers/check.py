"""Does the profile of a step without freezing predict the steps with freezing?

For some k, the time of a real step with k frozen modules against ``LayerProfile.step_s``. The depths are measured in
turn, round after round, between the rounds of the profile itself, so that a busy machine disturbs all alike. Of the
rounds the least time of each part of the step counts (a unit forward, backward, its optimizer), as in the
profile: a sum of such parts must not be compared with the least of whole steps, which is larger on a busy machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.layer_profiles import LayerProfile
from traces.layers.meters import Meter
from traces.layers.step import StepCosts, frozen_prefix, optimizers_of, training_step
from traces.layers.workload import Workload
from traces.profiles import Array

DEPTHS = 6  # beside k = 0


@dataclass(frozen=True)
class Checked:
    """One k: times of a step [s]; ``flops_s`` is the measured time at k = 0 times the share of FLOPs left."""

    frozen: int
    measured_s: float
    predicted_s: float
    flops_s: float

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1

    @property
    def flops_error(self) -> float:
        return self.flops_s / self.measured_s - 1


class FrozenSteps:
    """Collects the times of steps with 0 and with some DEPTHS depths from 1 to floor(0.9 K) frozen."""

    def __init__(self, work: Workload, clock: Meter, deepest: int) -> None:
        self.work, self.clock = work, clock
        depths = np.unique(np.linspace(1, deepest, DEPTHS).round().astype(int))
        self.parts: dict[int, list[Array]] = {k: [] for k in [0, *depths.tolist()]}  # of a step, a row a round

    def sample(self) -> None:
        """One round."""
        for frozen, rows in self.parts.items():
            rows.append(np.array(self._step(frozen).parts))

    def compare(self, profile: LayerProfile) -> list[Checked]:
        """Measured and predicted, k = 0 first."""
        measured = {frozen: float(np.min(rows, axis=0).sum()) for frozen, rows in self.parts.items()}
        predicted, flops = profile.step_s(), profile.relative_flops() * measured[0]
        return [Checked(k, seen, float(predicted[k]), float(flops[k])) for k, seen in measured.items()]

    def _step(self, frozen: int) -> StepCosts:
        """The second of two steps: the first makes the optimizers' state."""
        with frozen_prefix(self.work, frozen):
            optimizers = optimizers_of(self.work, frozen)
            for param in self.work.model.parameters():
                param.grad = None
            return [training_step(self.work, self.clock, frozen, optimizers) for _ in range(2)][1]
