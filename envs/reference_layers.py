"""The layers of one job in the slow reference simulator: how deep it is frozen, and what that does to its speed.

Written from docs/design/004-layers.md alone, with the plain definitions of traces/freezing.py (section 2) and
traces/convergence.py (section 3).
"""

from __future__ import annotations

from collections.abc import Callable

from envs.reference_training import Training
from envs.rng import Purpose, uniform
from envs.spec import SimConfig
from traces.convergence import Convergence, module_ends
from traces.freezing import PRESETS, REBUILT, Freezing, freeze, layers_of
from traces.profiles import ModelProfile


class Layers:
    """State of the modules of one job.

    ``convergence``: how long each has been active, up to ``counted`` units of work done. ``work``: of the job, without
    any that the residual adds. ``at(depth)``: its training with so many modules frozen. ``wanted``: the depth that the
    decision of the present pass gives it.
    """

    def __init__(self, convergence: Convergence, work: float, deepest: int, at: Callable[[int], Training]) -> None:
        self.convergence, self.work, self.deepest = convergence, work, deepest
        self.trainings = {depth: at(depth) for depth in range(deepest + 1)}
        self.depth = self.changes = 0
        self.counted = 0.0
        self.wanted: int | None = None
        self.caught_up = False

    def rate(self, gpu_type: str, placement: tuple[int, ...], epoch: int) -> float:
        """Iterations at M0 per second at the present depth, less what its penalty costs."""
        return self.trainings[self.depth].rate(gpu_type, placement, epoch) * (1 - self.convergence.penalty(self.depth))

    def count(self, done: float) -> None:
        """Bring the modules up to the work done, or back to it where some is lost."""
        self.convergence.advance((done - self.counted) / self.work, self.depth)
        self.counted = done

    def take_up(self, done: float) -> bool:
        """Go over to the depth wanted after ``done`` work; whether it is another one."""
        wanted, self.wanted = self.wanted, None
        if wanted is None or wanted == self.depth:
            return False
        self.count(done)
        self.depth = wanted
        self.changes += 1
        return True

    def lacks(self, done: float, most_residual: float) -> bool:
        """Whether the job has to train on at the end of its work, which it does once."""
        self.count(done)
        return not self.caught_up and most_residual < 1 and self.convergence.residual() > most_residual

    def catch_up(self, most_residual: float) -> float:
        """Thaw everything for good; the work that is needed on top."""
        self.wanted = self.deepest = 0
        self.take_up(self.work)
        self.caught_up = True
        return self.convergence.catch_up(most_residual) * self.work


def read_layers(
    preset: str,
    truth: ModelProfile,
    known: ModelProfile,
    config: SimConfig,
    seed: int,
    row: int,
    at: Callable[[ModelProfile, ModelProfile], Training],
) -> Layers:
    """Of a job in row ``row`` of the trace; ``at(truth, known)``: its training by these profiles."""
    _, profile = layers_of(truth.model)
    first, last, shape, may_cache, _ = PRESETS[preset]
    draws = [1 + 0.2 * (2 * uniform(seed, Purpose.FREEZING, row, i) - 1) for i in range(2)]
    ends = module_ends(first * draws[0], last * draws[1], shape, len(profile))
    how = Freezing(1.0 if config.ddp == "plain" else REBUILT, config.activation_cache and may_cache)
    return Layers(
        Convergence(ends),
        float(truth.progress[-1]),
        profile.max_frozen,
        lambda depth: at(freeze(truth, depth, how), freeze(known, depth, how)),
    )
