"""When the modules of a model converge, and what freezing them before costs: the slow, plain definition.

A reconstruction (docs/design/004-layers.md, section 3): IceFrog's *frozen penalty* is known by name only. Progress p
runs from 0 to 1. Module i has converged once it has been active for p_i of it; a frozen module does not move, so what
it lacked when it was frozen it lacks until it trains again. What is lacking in the frozen modules slows progress down,
and what is lacking at the end is the residual, our stand-in for lost accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MOST_PENALTY = 0.95
Floats = npt.NDArray[np.float64]


def module_ends(first: float, last: float, shape: float, modules: int) -> Floats:
    """(K,) float64: progress at which each module has converged, first + (last - first) (i / (K - 1))^shape."""
    return np.asarray(first + (last - first) * (np.arange(modules) / max(1, modules - 1)) ** shape)


class Convergence:
    """One job's modules: when they converge ``ends`` (K,), and how long each has been active [progress]."""

    def __init__(self, ends: Sequence[float] | Floats) -> None:
        self.ends = np.array(ends, dtype=np.float64)
        self.active = np.zeros_like(self.ends)

    def unconverged(self) -> Floats:
        """(K,) float64 in [0, 1]: 1 untrained, 0 converged."""
        return np.asarray(np.maximum(0.0, 1.0 - self.active / self.ends))

    def penalty(self, depth: int) -> float:
        """Share of progress lost while the first ``depth`` modules are frozen, at most 0.95."""
        return min(MOST_PENALTY, float(self.unconverged()[:depth].sum()) / len(self.ends))

    def residual(self) -> float:
        """Mean of what the modules lack, in [0, 1]."""
        return float(self.unconverged().sum()) / len(self.ends)

    def front(self, penalty: float, deepest: int) -> int:
        """The most modules, up to ``deepest``, that may be frozen now at no more than this penalty."""
        lost = np.cumsum(self.unconverged()[:deepest]) / len(self.ends)
        return int(np.searchsorted(lost > penalty, True))

    def advance(self, progress: float, depth: int) -> None:
        """Count progress, negative where work is lost, for the modules that are not frozen."""
        self.active[depth:] = np.maximum(0.0, self.active[depth:] + progress)

    def catch_up(self, residual: float) -> float:
        """Least further progress at depth 0 after which the residual is at most ``residual`` (>= 0)."""
        rates = 1.0 / (self.ends * len(self.ends))  # of the residual, by module, until it has converged
        lacking = np.maximum(0.0, self.ends - self.active)
        progress, left = 0.0, self.residual()
        for end in np.unique(lacking[lacking > 0]):
            rate = float(rates[lacking > progress].sum())
            if left - rate * (end - progress) <= residual:
                return max(progress, progress + (left - residual) / rate)
            progress, left = float(end), left - rate * (float(end) - progress)
        return progress
