"""Rigid jobs for the study of stragglers, after the toy of shared/design/stragglers.md, section 4.5.

The toy is 32 nodes of 8 GPUs at a load of 0.6, on which some 221 jobs finish in four days with a mean jct of 185
minutes but for stragglers. Its mix of sizes and run times is not given, but these numbers bind it. Those finish that
arrive less those still there, rate x mean jct: 221 / (5760 - 190) = 0.0397 jobs a minute. Then the load makes a job's
GPU-time 0.6 x 256 / 0.0397 = 3870 GPU-minutes, such as 180 minutes on 21.5 GPUs; many jobs must be large. Ours:

* **run time**: lognormal of median 120 min and deviation 1 of the logarithm, cut to 10 min .. 12 h: 181.8 min on
  average;
* **GPUs**: 60 % on one node, 1, 2, 4 or 8 in parts 15, 15, 20, 50 (mean 5.25); 40 % on several, 16, 32 or 64 in parts
  20, 25, 55 (mean 46.4); 21.7 on average, whatever the run time. Counts above ``gpus`` are left out;
* **arrivals**: a Poisson process, of 0.6 x 256 / (21.7 x 181.8) = 0.0389 jobs a minute or 224 in four days.

Every job is of one of the ten models whose sensitivities are measured, with equal chance. Sizes, run times and models
are stratified (one draw in each of ``jobs`` equal steps), so that short traces reach their load too.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from traces.arrivals import Floats, Indices
from traces.sensitivity import MEASURED
from traces.synthetic_pollux import stratified
from traces.trace import Trace, TraceError, make_trace

NAME = "synthetic-stragglers"
NODE_GPUS = 8
SINGLE = {1: 0.15, 2: 0.15, 4: 0.20, 8: 0.50}
SEVERAL = {16: 0.20, 32: 0.25, 64: 0.55}

MEDIAN_S, DEVIATION = 7200.0, 1.0
SHORTEST_S, LONGEST_S = 600.0, 43_200.0
MEAN_S = 10_909.0  # of the lognormal so cut

COMM = ("uniform", "model")
LEAST_COMM, MOST_COMM = 0.05, 0.5


def synthesise_stragglers(
    jobs: int = 224, seed: int = 0, load: float = 0.6, gpus: int = 256, multi: float = 0.4, comm: str = "uniform"
) -> Trace:
    """``jobs`` rigid jobs; the same arguments give the same trace, and a seed the same run times and models.

    ``load``: expected work as a share of the time of ``gpus`` GPUs while jobs arrive: it sets their rate. ``multi``:
    share of the jobs that need several nodes of 8 GPUs. ``comm``: one of COMM, how much jobs communicate: as much as in
    the toy, uniformly 0.05 to 0.5, or as their model. Raises TraceError for a parameter out of range.
    """
    _check(jobs, seed, load, gpus, multi, comm)
    rng = np.random.Generator(np.random.PCG64(seed))
    sizes, shares = _mix(multi, gpus)
    mean_gap_s = float(sizes @ shares) * MEAN_S / (load * gpus)
    columns = {
        # A Poisson process of known number.
        "arrival_s": np.ceil(np.sort(rng.random(jobs)) * jobs * mean_gap_s),
        "duration_s": _durations(rng, jobs),
        "sensitivity": np.array(list(MEASURED))[stratified(rng, np.ones(len(MEASURED)), jobs)],
        "num_gpus": sizes[stratified(rng, shares, jobs)],
    }
    if comm == "uniform":
        columns["comm_share"] = rng.uniform(LEAST_COMM, MOST_COMM, jobs).round(3)
    settings = f"jobs={jobs}, seed={seed}, load={load:g}, gpus={gpus}, multi={multi:g}, comm={comm}"
    return make_trace(NAME, columns, f"synthetic, {NAME} with {settings}: mix and run times of our own, of ten models")


def _check(jobs: int, seed: int, load: float, gpus: int, multi: float, comm: str) -> None:
    """Raise TraceError for the first parameter out of range."""
    rules: tuple[tuple[str, object, bool, str], ...] = (
        ("jobs", jobs, 1 <= jobs <= 10_000_000, "1 to 10000000"),
        ("seed", seed, seed >= 0, "a whole number >= 0"),
        ("load", load, 0 < load <= 100, "a number above 0 and up to 100"),
        ("gpus", gpus, 2 * NODE_GPUS <= gpus <= 1 << 20, f"{2 * NODE_GPUS} to {1 << 20}"),
        ("multi", multi, 0 <= multi <= 1, "a share from 0 to 1"),
        ("comm", comm, comm in COMM, f"one of {', '.join(COMM)}"),
    )
    for parameter, value, holds, expected in rules:
        if not holds:
            shown = f"{value:g}" if isinstance(value, float) else repr(value)
            raise TraceError(f"{NAME}: {parameter} is {shown}, expected {expected}")


def _mix(multi: float, gpus: int) -> tuple[Indices, Floats]:
    """GPU counts, (sizes,) int64 ascending, and the share of the jobs that ask for each, (sizes,) float64 of sum 1."""
    several = {size: share for size, share in SEVERAL.items() if size <= gpus}
    shares = [(1 - multi) * share for share in SINGLE.values()]
    shares += [multi * share / sum(several.values()) for share in several.values()]
    return np.array([*SINGLE, *several], np.int64), np.array(shares)


def _durations(rng: np.random.Generator, jobs: int) -> Floats:
    """Run times, (jobs,) float64 whole seconds: a lognormal distribution, cut at both ends."""
    score = ndtri((rng.permutation(jobs) + rng.random(jobs)) / jobs)
    times: Floats = np.clip(MEDIAN_S * np.exp(DEVIATION * score), SHORTEST_S, LONGEST_S).round()
    return times
