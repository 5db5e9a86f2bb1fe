"""Synthetic inference tasks, alone or beside the training jobs of ``synthetic-pollux``.

DeepBoot was evaluated on tasks of uniform duration that arrive as a Poisson process in 15.4 hours (Chen et al., TPDS
2023); three workloads, each of which these parameters give:

==================================  ==========  ==========  ==========
quantity                            small       middle      large
==================================  ==========  ==========  ==========
services                            6           18          30
duration, uniform from 1 to [s]     9           19          29
mean_duration_s                     5           10          15
load on the 32 GPUs of their half   0.009       0.09        0.27
==================================  ==========  ==========  ==========

The rate of arrivals, relative to its mean, follows one of three patterns:

* **poisson**: 1 at all times.
* **bursty**: a Markov-modulated Poisson process of two states (Fischer and Meier-Hellstern, 1993), 3 in bursts and 1/2
  in between; both last an exponential time, of mean 60 s and 240 s, so that the mean is 3 x 0.2 + 0.5 x 0.8 = 1.
* **diurnal**: 1 - 0.8 cos(2 pi t / 24 h), least at midnight (t = 0) and nine times as much at noon.

Each task is of any service with equal chance. The six models with a start-up time are dealt to the services in random
order, each once before any is dealt again.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from traces.arrivals import Floats, Indices
from traces.services import START_UP_S
from traces.synthetic_pollux import synthesise_pollux
from traces.trace import Trace, TraceError, make_trace

PATTERNS = ("poisson", "bursty", "diurnal")
DURATIONS = ("uniform", "exponential")

BURST_RATE, CALM_RATE = 3.0, 0.5
BURST_S, CALM_S = 60.0, 240.0
DAY_S, AMPLITUDE = 86400.0, 0.8

LEAST_S = 1.0  # of a uniform duration; an exponential one is at least a thousandth of that
MOST_SERVICES = 64
MOST_TASKS = 10_000_000


def synthesise_inference(
    hours: float = 8.0,
    seed: int = 0,
    load: float = 0.1,
    pattern: str = "poisson",
    services: int = 6,
    gpus: int = 32,
    durations: str = "uniform",
    mean_duration_s: float = 5.0,
) -> Trace:
    """Inference tasks that arrive within ``hours``; the same arguments give the same trace.

    ``load``: expected work of all tasks, start-ups not counted, as a share of the time of ``gpus`` GPUs: with
    ``mean_duration_s`` it sets the mean rate, load x gpus / mean_duration_s tasks a second. A diurnal rate is scaled to
    that mean over ``hours``, also if they are not whole days. ``pattern``: one of PATTERNS. ``durations``: uniform from
    1 s to 2 x mean_duration_s - 1 s, or exponential. Raises TraceError for a parameter out of range.
    """
    name = "synthetic-inference"
    _check(name, hours, seed, load, pattern, services, gpus, durations, mean_duration_s)
    # A stream apart from that of synthetic-pollux, whose jobs of the same seed would else arrive by the same draws.
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(1,))))
    models = _models(rng, services)
    arrivals = _arrivals(rng, pattern, hours * 3600.0, load * gpus / mean_duration_s)
    count = len(arrivals)
    service = rng.integers(services, size=count)
    columns = {
        "job_id": [f"inference-{number}" for number in range(count)],
        "kind": ["inference"] * count,
        "arrival_s": arrivals,
        "num_gpus": np.ones(count, np.int64),
        "duration_s": _durations(rng, durations, mean_duration_s, count),
        "model": models[service],
        "service": np.array([f"infer-{model}-{1 + k // len(START_UP_S)}" for k, model in enumerate(models)])[service],
    }
    settings = f"hours={hours:g}, seed={seed}, load={load:g}, pattern={pattern}, services={services}, gpus={gpus}"
    provenance = f"synthetic, {name} with {settings}, durations={durations}, mean_duration_s={mean_duration_s:g}"
    return make_trace(name, columns, f"{provenance}: tasks as in the workloads of DeepBoot, TPDS'23")


def synthesise_colocated(
    jobs: int = 160,
    seed: int = 0,
    mean_gap_s: float = 180.0,
    hours: float = 0.0,
    load: float = 0.1,
    pattern: str = "poisson",
    services: int = 6,
    gpus: int = 32,
    durations: str = "uniform",
    mean_duration_s: float = 5.0,
) -> Trace:
    """The training jobs of ``synthetic-pollux`` and the tasks of ``synthetic-inference``, in order of arrival.

    Rows are those of the two generators with the same parameters; of equal arrivals, training comes first. ``hours`` of
    inference, 0: as long as training jobs arrive, jobs x mean_gap_s. Raises TraceError for a parameter out of range.
    """
    training = synthesise_pollux(jobs, seed, mean_gap_s)
    hours = hours or jobs * mean_gap_s / 3600.0
    tasks = synthesise_inference(hours, seed, load, pattern, services, gpus, durations, mean_duration_s)
    rows = pd.concat([training.jobs, tasks.jobs])
    return make_trace("synthetic-colocated", rows, f"{training.provenance}; {tasks.provenance}")


def _check(
    name: str,
    hours: float,
    seed: int,
    load: float,
    pattern: str,
    services: int,
    gpus: int,
    durations: str,
    mean_duration_s: float,
) -> None:
    """Raise TraceError for the first parameter out of range."""
    rules: tuple[tuple[str, object, bool, str], ...] = (
        ("hours", hours, 0 < hours <= 1e5, "a time above 0 and up to 100000"),
        ("seed", seed, seed >= 0, "a whole number >= 0"),
        ("load", load, 0 < load <= 100, "a number above 0 and up to 100"),
        ("pattern", pattern, pattern in PATTERNS, f"one of {', '.join(PATTERNS)}"),
        ("services", services, 1 <= services <= MOST_SERVICES, f"1 to {MOST_SERVICES}"),
        ("gpus", gpus, 1 <= gpus <= 1 << 20, f"1 to {1 << 20}"),
        ("durations", durations, durations in DURATIONS, f"one of {', '.join(DURATIONS)}"),
        ("mean_duration_s", mean_duration_s, LEAST_S <= mean_duration_s < 1e7, "a time from 1 to below 1e7"),
    )
    for parameter, value, holds, expected in rules:
        if not holds:
            shown = f"{value:g}" if isinstance(value, float) else repr(value)
            raise TraceError(f"{name}: {parameter} is {shown}, expected {expected}")
    count = hours * 3600.0 * load * gpus / mean_duration_s
    if count > MOST_TASKS:
        raise TraceError(f"{name}: hours, load and gpus ask for {count:.0f} tasks, expected at most {MOST_TASKS}")


def _models(rng: np.random.Generator, services: int) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    """(services,) str: the model of each service."""
    rounds = -(-services // len(START_UP_S))
    return np.concatenate([rng.permutation(list(START_UP_S)) for _ in range(rounds)])[:services]


def _durations(rng: np.random.Generator, durations: str, mean_s: float, count: int) -> Floats:
    """(count,) float64 [s], all above 0."""
    if durations == "uniform":
        return rng.uniform(LEAST_S, 2 * mean_s - LEAST_S, count)
    return np.maximum(rng.exponential(mean_s, count), LEAST_S / 1000)


def _arrivals(rng: np.random.Generator, pattern: str, span_s: float, rate: float) -> Floats:
    """Arrival times, (tasks,) float64 [s], ascending within ``span_s``: a Poisson process of mean ``rate`` [1/s].

    Uniform on a clock that passes at the relative rate of the pattern.
    """
    wall, clock = _clock(rng, pattern, span_s)
    count = rng.poisson(rate * clock[-1])
    times: Floats = np.interp(np.sort(rng.random(count)) * clock[-1], clock, wall)
    return times


def _clock(rng: np.random.Generator, pattern: str, span_s: float) -> tuple[Floats, Floats]:
    """Wall times from 0 to ``span_s`` and what the clock shows then, (points,) float64 [s] each, linear in between."""
    if pattern == "bursty":
        return _bursts(rng, span_s)
    if pattern == "poisson":
        wall = np.array([0.0, span_s])
        return wall, wall
    wall = np.linspace(0.0, span_s, 2 + int(span_s // 60.0))  # at least one point a minute
    turn = 2 * np.pi / DAY_S
    clock = wall - AMPLITUDE * np.sin(turn * wall) / turn
    return wall, clock * (span_s / clock[-1])


def _bursts(rng: np.random.Generator, span_s: float) -> tuple[Floats, Floats]:
    """The clock of a two-state Markov-modulated process; its first state is a burst as often as any instant is."""
    first = int(rng.random() >= BURST_S / (BURST_S + CALM_S))  # 0: a burst, 1: calm
    wall, clock = [np.zeros(1)], [np.zeros(1)]
    while wall[-1][-1] < span_s:
        state: Indices = (first + np.arange(1024)) % 2
        lasts = rng.standard_exponential(1024) * np.where(state == 0, BURST_S, CALM_S)
        wall.append(wall[-1][-1] + np.cumsum(lasts))
        clock.append(clock[-1][-1] + np.cumsum(lasts * np.where(state == 0, BURST_RATE, CALM_RATE)))
    times, shows = np.concatenate(wall), np.concatenate(clock)
    inside = times < span_s
    return np.append(times[inside], span_s), np.append(shows[inside], np.interp(span_s, times, shows))
