"""Synthetic workloads with the statistics of Microsoft's Philly trace, in two presets.

Philly's public cuts disagree, so there are two presets. ``synthetic-philly`` follows the flat file of the Sia artefact
(82,247 jobs of Jeon et al., ATC 2019); ``-dense`` follows the aggregates of a fuller cut (112,956 jobs) in Acme's
``cluster_summary.csv`` (Hu et al., NSDI 2024). Aimed at -> reached on average with 10,000 jobs and a mean gap of 100 s:

=======================================  ===========================  ==============================
quantity                                 synthetic-philly             synthetic-philly-dense
=======================================  ===========================  ==============================
mean GPUs                                1.30 -> 1.30                 1.93 -> 1.93
jobs of one GPU [%]                      93.2 -> 93.2                 not public -> 79.1
duration p50, mean [s]                   1144, 13136 -> 1136, 13400   874, 18006 -> 874, 18000
duration p90, p99 [s]                    11265, 254758                not public
                                         -> 12300, 270000             -> 21800, 310000
GPU-time per job [GPU-s]                 42811 -> 44700               61039 -> 60800
Spearman (GPUs, duration)                0.08 -> 0.08                 not public -> 0.11
Pass, Killed, Failed [% of jobs]         69.3, 13.5, 17.2 (ATC 2019)  60.4, 9.0, 30.5 (Acme)
                                         -> 69, 13, 17                -> 61, 9, 30
Pass, Killed, Failed [% of GPU-time]     44.5, 37.7, 17.8             32.1, 29.4, 38.6
                                         -> 45, 38, 17                -> 33, 29, 39
largest tenant, largest four [%]         50, 91 -> 50, 91             not public -> 44, 85
CV of gaps, zero gaps [%], median [s]    10-15, 8.1, 8 -> 13, 8.1, 9  the same
dispersion index of hourly counts        159 -> 143                   the same
=======================================  ===========================  ==============================

Of the dense cut only means, medians and shares are public: its multi-GPU jobs are those of the flat file, 3.06 times as
frequent and 0.448 times as long, and its single-GPU jobs spread wider. That is one solution for the published numbers.
Marginals are stratified (one draw in each quantile step), so that short traces reach them too. Jobs of one session tend
to share tenant, size and length through a common normal score.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traces.arrivals import Floats, Indices, arrivals, sessions
from traces.trace import Trace, TraceError, make_trace

# Quantiles of run time by GPU count of the flat file [s], to three digits; the top of one GPU is lower than the largest
# of 76,627 jobs, for a straight line in the logarithm would overweight it.
QUANTILES = (0.0, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 1.0)
DURATION_S = {
    1: (1, 6, 30, 52, 62, 122, 1117, 2720, 8510, 19100, 135e3, 267e3, 866e3, 1.6e6),
    2: (2, 2, 5, 9, 11, 16, 21, 76, 72.7e3, 197e3, 523e3, 808e3, 1.47e6, 2.58e6),
    4: (3, 5, 36, 75, 138, 773, 17.4e3, 89.4e3, 184e3, 274e3, 907e3, 1.21e6, 2.45e6, 2.75e6),
    8: (1, 2, 33, 125, 216, 1880, 23.7e3, 173e3, 352e3, 526e3, 1.06e6, 2.00e6, 2.66e6, 4.63e6),
    16: (1, 1, 4, 35, 72, 566, 21.1e3, 104e3, 248e3, 443e3, 923e3, 1.27e6, 1.61e6, 1.71e6),  # 9 and more
}
MULTI_GPUS = {2: 32.35, 4: 33.29, 8: 29.23, 12: 0.12, 16: 3.54, 24: 0.12, 32: 1.19, 64: 0.11, 128: 0.05}  # [%]

# Virtual clusters: share of the single-GPU jobs and of the multi-GPU jobs of the flat file [%].
TENANTS = {
    "6214e9": (53.30, 6.85), "11cb48": (19.06, 26.41), "6c71a0": (11.82, 16.00), "b436b2": (9.44, 3.31),
    "103959": (2.05, 6.46), "ed69ec": (1.48, 0.00), "0e4a51": (1.42, 6.14), "ee9e8c": (0.78, 16.26),
    "e13805": (0.28, 2.83), "7f04ca": (0.27, 9.23), "2869ce": (0.08, 6.37), "23dbec": (0.00, 0.11),
    "51b7ef": (0.01, 0.00), "795a4c": (0.01, 0.00), "925e2b": (0.00, 0.04),
}  # fmt: skip
STATUSES = ("Pass", "Killed", "Failed")
HEAVY_SHARE = 0.05  # the jobs of most GPU-time, whose statuses differ from the rest's


@dataclass(frozen=True)
class Preset:
    """What distinguishes the two cuts; shares in 0..1."""

    multi_share: float  # jobs of more than one GPU
    single_median_s: float
    single_spread: float  # exponent on (duration / median) of single-GPU jobs
    multi_scale: float  # factor on the durations of multi-GPU jobs
    longest_s: float
    status_of_jobs: tuple[float, float, float]
    status_of_gpu_time: tuple[float, float, float]
    source: str


PRESETS: dict[str, Preset] = {
    "synthetic-philly": Preset(
        multi_share=0.0683, single_median_s=1117.0, single_spread=1.0, multi_scale=1.0, longest_s=4_628_226.0,
        status_of_jobs=(0.693, 0.135, 0.172), status_of_gpu_time=(0.445, 0.377, 0.178),
        source="counts, durations, tenants and arrivals of the flat Philly file of Sia; statuses of ATC 2019, table 6",
    ),
    "synthetic-philly-dense": Preset(
        multi_share=0.2089, single_median_s=842.0, single_spread=1.15, multi_scale=0.448, longest_s=4_240_676.0,
        status_of_jobs=(0.604, 0.090, 0.305), status_of_gpu_time=(0.321, 0.294, 0.386),
        source="means, median and statuses of Philly in Acme's cluster_summary.csv; shapes of the flat file of Sia",
    ),
}  # fmt: skip


def synthesise(name: str, jobs: int = 10_000, seed: int = 0, mean_gap_s: float = 100.0) -> Trace:
    """A synthetic Philly trace of ``jobs`` jobs; the same arguments give the same trace.

    ``mean_gap_s`` sets the load: the jobs keep about (GPU-time per job) / ``mean_gap_s`` GPUs busy, 450 (dense: 610) at
    100 s. Second 0 is a Monday, 00:00. Raises TraceError for a parameter out of range.
    """
    if not 1 <= jobs <= 10_000_000:
        raise TraceError(f"{name}: jobs is {jobs}, expected 1 to 10000000")
    if not 0 < mean_gap_s < 1e7:
        raise TraceError(f"{name}: mean_gap_s is {mean_gap_s:g}, expected a time above 0 and below 1e7")
    if seed < 0:
        raise TraceError(f"{name}: seed is {seed}, expected a whole number >= 0")
    preset = PRESETS[name]
    rng = np.random.Generator(np.random.PCG64(seed))
    session = sessions(rng, jobs)
    gpus = _gpu_counts(preset, rng, session)
    durations = _durations(preset, gpus, rng, session)
    columns = {
        "arrival_s": arrivals(rng, session, mean_gap_s),
        "num_gpus": gpus,
        "duration_s": durations,
        "tenant": _tenants(gpus, rng, session),
        "status": _statuses(preset, gpus * durations, rng),
    }
    provenance = f"synthetic, {name} with jobs={jobs}, seed={seed}, mean_gap_s={mean_gap_s:g}: {preset.source}"
    return make_trace(name, columns, provenance)


def _score(rng: np.random.Generator, session: Indices, correlation: float) -> Floats:
    """Normal scores (jobs,) float64 whose correlation within a session is ``correlation``."""
    common = rng.standard_normal(int(session[-1]) + 1)[session]
    own = rng.standard_normal(len(session))
    score: Floats = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
    return score


def _strata(rng: np.random.Generator, score: Floats) -> Floats:
    """Uniform values in [0, 1), one in each of ``len(score)`` equal steps, in the order of the scores."""
    rank = np.empty(len(score))
    rank[np.argsort(score)] = np.arange(len(score))
    return (rank + rng.random(len(score))) / len(score)


def _gpu_counts(preset: Preset, rng: np.random.Generator, session: Indices) -> Indices:
    """GPUs of each job, (jobs,) int64."""
    score = _score(rng, session, 0.3)
    multi = np.array(list(MULTI_GPUS.values()))
    shares = np.concatenate([[1 - preset.multi_share], preset.multi_share * multi / multi.sum()])
    index = np.searchsorted(np.cumsum(shares)[:-1], _strata(rng, score), side="right")
    return np.array([1, *MULTI_GPUS], np.int64)[index]


def _durations(preset: Preset, gpus: Indices, rng: np.random.Generator, session: Indices) -> Floats:
    """Run times, (jobs,) float64 whole seconds >= 1: the quantile function of each job's GPU class."""
    score = _score(rng, session, 0.5)
    durations = np.empty(len(gpus))
    classes = np.minimum(gpus, 16)
    classes[classes == 12] = 16
    for size, quantiles in DURATION_S.items():
        members = classes == size
        values = np.exp(np.interp(_strata(rng, score[members]), QUANTILES, np.log(quantiles)))
        if size == 1:
            values = preset.single_median_s * (values / quantiles[6]) ** preset.single_spread
        else:
            values *= preset.multi_scale
        durations[members] = values
    return np.clip(np.round(durations), 1.0, preset.longest_s)


def _tenants(gpus: Indices, rng: np.random.Generator, session: Indices) -> npt.NDArray[np.str_]:
    """Virtual cluster of each job, (jobs,) str, by the shares of its kind (one GPU, several)."""
    score = _score(rng, session, 0.9)
    names = np.array(list(TENANTS))
    index = np.zeros(len(gpus), np.int64)
    for kind in (0, 1):
        members = (gpus > 1) == bool(kind)
        shares = np.array([pair[kind] for pair in TENANTS.values()])
        limits = np.cumsum(shares / shares.sum())[:-1]
        index[members] = np.searchsorted(limits, _strata(rng, score[members]), side="right")
    return names[index]


def _statuses(preset: Preset, gpu_time: Floats, rng: np.random.Generator) -> list[str]:
    """Final status of each job such that the shares of jobs and of GPU-time both hold on average.

    With a = shares among the heavy jobs, b among the others, h and S the heavy jobs' share of jobs and of GPU-time:
    h a + (1 - h) b = jobs, S a + (1 - S) b = time, so a = (time (1 - h) - jobs (1 - S)) / (S - h).
    """
    heavy = _strata(rng, gpu_time) > 1 - HEAVY_SHARE
    h, part = heavy.mean(), gpu_time[heavy].sum() / gpu_time.sum()
    jobs = np.array(preset.status_of_jobs) / sum(preset.status_of_jobs)
    time = np.array(preset.status_of_gpu_time) / sum(preset.status_of_gpu_time)
    among_heavy = np.clip((time * (1 - h) - jobs * (1 - part)) / (part - h), 0, 1) if part > h else jobs
    among_light = np.clip((jobs - h * among_heavy) / (1 - h), 0, 1) if h < 1 else jobs
    chance = np.where(heavy[:, None], among_heavy, among_light)
    limits = np.cumsum(chance, axis=1) / chance.sum(axis=1, keepdims=True)
    index = (rng.random(len(gpu_time))[:, None] >= limits[:, :-1]).sum(axis=1)
    return [STATUSES[i] for i in index]
