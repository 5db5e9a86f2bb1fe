"""Counts for the calibration of noisy straggler probabilities: ``python -m docs.straggler_calibration [--write]``.

Burn-in runs at each preset's default settings (docs/straggler_burn_in.py) give how often each straggler probability is
read, and how often straggling then comes, which --write puts into envs/straggler_counts.json. From runs of other seeds
it prints how reliable the forecasts of envs/straggler_calibration.py then are. Readings are counted by the logit of p,
and the noise is integrated rather than drawn.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import tyro

from docs.straggler_burn_in import burn_in
from envs.spec import SimConfig
from envs.straggler_calibration import COUNT_STEP, COUNTED, KNOTS, MOST_LOGIT, TABLE, forecast, logit_of
from envs.straggler_presets import HORIZONS_S
from envs.straggler_sight import CAUSES

Floats = npt.NDArray[np.float64]
SIGMAS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
FINE = 0.05  # step of the logits by which readings are counted at first
LOGITS = np.arange(-MOST_LOGIT, MOST_LOGIT + FINE, FINE)
EPS = np.linspace(-6.0, 6.0, 601)  # far out: where straggling is rare, the tails of all others are as many
WEIGHTS = np.exp(-0.5 * EPS**2) / np.exp(-0.5 * EPS**2).sum()
BINS, ENOUGH = 10, 200  # tenths of the forecast; readings that one needs to be looked at
PRESETS: tuple[Literal["shared", "contention", "dedicated"], ...] = ("shared", "contention", "dedicated")
BURN_IN = {name: SimConfig(interval_s=0.0, on_event=True, stragglers=name, straggler_obs="oracle") for name in PRESETS}


@dataclass
class Options:
    """What to count."""

    seeds: int = 60
    """Runs of a preset to count, seeds 0 ..; half as many others, seeds 1000 .., show how reliable the result is."""
    turns: int = 5000
    """Length of a run [turns of 300 s]."""
    write: bool = False
    """Replace envs/straggler_counts.json."""


def count_readings(config: SimConfig, seeds: Iterable[int], turns: int) -> Floats:
    """(S, 2, 2, L, 2) of runs by seed, cause, horizon and LOGITS: readings, and those after which straggling came."""
    counts = []
    for seed in seeds:
        readings = burn_in(config, seed, turns, jobs=turns // 5)  # more than can run in that time
        place = np.rint((logit_of(readings.p) + MOST_LOGIT) / FINE).astype(np.int64)
        one = np.zeros((2, 2, len(LOGITS), 2))
        for cause, h in np.ndindex(2, 2):
            at, came = place[..., cause, h].ravel(), readings.happened[..., cause, h].ravel()
            one[cause, h] = np.stack([np.bincount(at, weights, len(LOGITS)) for weights in (None, came)], axis=1)
        counts.append(one)
    return np.stack(counts)


def coarsen(counts: Floats) -> Floats:
    """(113, 2) counts by COUNTED of counts (L, 2) by LOGITS."""
    at = np.rint((LOGITS + MOST_LOGIT) / COUNT_STEP).astype(np.int64)
    return np.stack([np.bincount(at, counts[:, i], len(COUNTED)) for i in range(2)], axis=1)


@dataclass(frozen=True)
class Reliability:
    """How forecasts in each of BINS tenths fare; nan: there are none."""

    readings: Floats  # (BINS,)
    excess: Floats  # (BINS,) share after which straggling came less the mean forecast
    error: Floats  # (BINS,) standard error of that; runs are independent
    expected: float
    """Mean of the size of the excess over all readings (ECE)."""

    @property
    def worst(self) -> float:
        """Largest size of the excess that is beyond two standard errors, of bins with ENOUGH readings."""
        beyond = np.abs(self.excess) - 2.0 * self.error
        return float(max(0.0, np.max(beyond[self.readings >= ENOUGH])))


def reliability(seen: Floats, forecasts: Floats, came: Floats) -> Reliability:
    """Reliability of runs: numbers of readings, sums of forecasts and of those that came true, (S, BINS) each."""
    total, surplus = seen.sum(axis=0), came - forecasts
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = surplus.sum(axis=0) / total
        error = np.sqrt(((surplus - excess * seen) ** 2).sum(axis=0)) / total
    return Reliability(total, excess, error, float(np.abs(surplus.sum(axis=0)).sum() / total.sum()))


def held_out(counts: Floats, table: Floats, sigma: float) -> Reliability:
    """Reliability on counts (S, L, 2) of forecasts (113,) by KNOTS."""
    p = np.interp(LOGITS[:, None] + sigma * EPS, KNOTS, table)  # (L, noise)
    row = np.arange(len(LOGITS))[:, None] * BINS + np.minimum((BINS * p).astype(np.int64), BINS - 1)
    into, mass = (
        np.bincount(row.ravel(), (WEIGHTS * of).ravel(), BINS * len(LOGITS)).reshape(-1, BINS)
        for of in (np.ones_like(p), p)
    )
    return reliability(counts[..., 0] @ into, counts[..., 0] @ mass, counts[..., 1] @ into)


def write_table(counted: dict[str, Floats]) -> None:
    """Replace envs/straggler_counts.json by counts (2, 2, 113, 2) of each preset: rows place, readings, came."""
    lines = []
    for preset, counts in counted.items():
        parts = [
            [[[k, *map(int, row)] for k, row in enumerate(counts[cause, h]) if row[0] > 0] for h in range(2)]
            for cause in range(2)
        ]
        lines.append(
            f"{json.dumps(preset)}: {json.dumps(parts)}".replace("]]], [[[", "]]],\n[[[").replace("]], [[", "]],\n[[")
        )
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main(options: Options) -> None:
    """Count, print the reliability, and write."""
    counted: dict[str, Floats] = {}
    for preset, config in BURN_IN.items():
        fitted = count_readings(config, range(options.seeds), options.turns).sum(axis=0)
        counted[preset] = np.array([[coarsen(fitted[cause, h]) for h in range(2)] for cause in range(2)])
        others = count_readings(config, range(1000, 1000 + options.seeds // 2), options.turns)
        for cause, h in np.ndindex(2, 2):
            for sigma in SIGMAS:
                found = held_out(others[:, cause, h], forecast(counted[preset][cause, h], sigma), sigma)
                print(
                    f"{preset}, {CAUSES[cause]}, {HORIZONS_S[h] / 60:g} min, sigma {sigma:g}: "
                    f"ECE {found.expected:.4f}, worst beyond two standard errors {found.worst:.3f}; excess by tenth "
                    + " ".join(f"{x:+.3f}" for x in found.excess)
                )
    if options.write:
        write_table(counted)


if __name__ == "__main__":
    main(tyro.cli(Options))
