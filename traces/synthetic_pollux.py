"""Synthetic elastic workloads with the statistics of those that Pollux was evaluated on (Qiao et al., OSDI'21).

Six models whose sizes span a factor of 10,000, a day of eight hours with one peak, and requests as tuned users make
them. The eight published workloads of 160 jobs together, and what is reached on average with 160 jobs:

======================================================  ============================  ============================
quantity                                                published                     reached
======================================================  ============================  ============================
ncf, cifar10, deepspeech2, bert, yolov3, imagenet [%]   39.3 38.7 8.7 6.7 4.6 2.0     the same
mean GPUs requested                                     6.75                          6.8
busiest hour, the sixth [% of jobs]                     22.4                          22.6
CV of gaps                                              1.01-1.33                     1.07
======================================================  ============================  ============================

The mix is stratified (one draw in each of ``jobs`` equal steps), so that every trace has its share of the few large
models, on which the load hangs; windows of a long trace vary as the published workloads do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traces.arrivals import Floats, Indices
from traces.trace import Trace, TraceError, make_trace

# Arrivals by hour, relative to the mean hour: all 6,400 of the workloads of 80 to 320 jobs.
HOURS = (0.91, 0.85, 0.55, 0.94, 1.23, 1.81, 0.92, 0.79)
DAY_S = 3600.0 * len(HOURS)


class Requests(NamedTuple):
    """How often a model occurs [% of jobs], and what its users ask for: (GPUs, batch size, % of the model's jobs)."""

    share: float
    choices: tuple[tuple[int, int, float], ...]


# Shares of models: the 1,280 jobs of the workloads of 160. Of requests: all 6,400 jobs.
MODELS: dict[str, Requests] = {
    "ncf": Requests(39.3, ((1, 32768, 100),)),
    "cifar10": Requests(38.7, ((6, 2048, 26), (8, 2048, 24), (12, 4096, 27), (16, 4096, 23))),
    "deepspeech2": Requests(8.7, ((6, 320, 31), (8, 320, 33), (12, 640, 36))),
    "bert": Requests(6.7, ((6, 384, 24), (8, 384, 22), (12, 384, 24), (16, 384, 30))),
    "yolov3": Requests(4.6, ((4, 64, 100),)),
    "imagenet": Requests(2.0, ((24, 3200, 35), (32, 6400, 36), (48, 6400, 29))),
}


def synthesise_pollux(jobs: int = 160, seed: int = 0, mean_gap_s: float = 180.0) -> Trace:
    """A synthetic workload of ``jobs`` elastic jobs; the same arguments give the same trace.

    ``mean_gap_s`` sets the load, and ``jobs`` how often the day of eight hours is repeated: 160 jobs at 180 s are one
    day, as published; 360, 120 and 90 s are the published loads of 0.5, 1.5 and 2 times that. Raises TraceError for a
    parameter out of range.
    """
    name = "synthetic-pollux"
    if not 1 <= jobs <= 10_000_000:
        raise TraceError(f"{name}: jobs is {jobs}, expected 1 to 10000000")
    if not 0 < mean_gap_s < 1e7:
        raise TraceError(f"{name}: mean_gap_s is {mean_gap_s:g}, expected a time above 0 and below 1e7")
    if seed < 0:
        raise TraceError(f"{name}: seed is {seed}, expected a whole number >= 0")
    rng = np.random.Generator(np.random.PCG64(seed))
    rows = [
        (model, gpus, batch, requests.share * share)
        for model, requests in MODELS.items()
        for gpus, batch, share in requests.choices
    ]
    model, gpus, batch, shares = (np.array(column) for column in zip(*rows, strict=True))
    row = stratified(rng, shares, jobs)
    columns = {
        "arrival_s": _arrivals(rng, jobs, mean_gap_s),
        "num_gpus": gpus[row],
        "model": model[row],
        "batch_size": batch[row],
    }
    provenance = f"synthetic, {name} with jobs={jobs}, seed={seed}, mean_gap_s={mean_gap_s:g}"
    return make_trace(name, columns, f"{provenance}: mix, requests and hours of the workloads of Pollux, OSDI'21")


def stratified(rng: np.random.Generator, shares: Floats, jobs: int) -> Indices:
    """(jobs,) int64: indices into ``shares``, each as often as its share says, in random order."""
    quantile = (rng.permutation(jobs) + rng.random(jobs)) / jobs
    limits = np.cumsum(shares) / shares.sum()
    return np.searchsorted(limits[:-1], quantile, side="right")


def _arrivals(rng: np.random.Generator, jobs: int, mean_gap_s: float) -> Floats:
    """Arrival times, (jobs,) float64 whole seconds >= 1, ascending: a Poisson process of known number.

    Uniform on a clock of which ``DAY_S`` pass every day, at a pace that follows the hours.
    """
    clock = np.sort(rng.random(jobs)) * jobs * mean_gap_s
    days, rest = np.divmod(clock, DAY_S)
    passed = np.concatenate([[0.0], np.cumsum(HOURS)]) * (DAY_S / sum(HOURS))
    wall = days * DAY_S + np.interp(rest, passed, np.linspace(0.0, DAY_S, len(passed)))
    times: Floats = np.ceil(wall).clip(min=1.0)
    return times
