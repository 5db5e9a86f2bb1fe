"""Bursty arrivals: a doubly stochastic process with sessions, hours, weekdays and holes.

The rate of Philly's arrivals varies on three scales, and a Poisson process has none of them:

* **sessions**: sweeps and retries. Gaps come in runs of one pace, from a second to ten minutes, and many gaps are
  exactly zero. Here a session is a run of jobs (geometric length) with one pace, drawn from :data:`PACE_S`; within it
  gaps follow a gamma distribution of shape 2 around the pace, and some are zero.
* **hours and weekdays**: sessions run on an operational clock that a weekly profile turns into wall time, so that the
  profile holds whatever the load.
* **holes**: Philly's log has a gap of one to three days about every 10,000 jobs (outages, and a thin first month); they
  make nearly all of its coefficient of variation.

Times are seconds from a Monday, 00:00.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Share of Philly's arrivals by hour of the day, and by weekday from Monday [%] (the flat file of 82,247 jobs).
HOURS = (5.3, 4.1, 4.7, 4.6, 2.9, 4.8, 7.0, 8.7, 4.6, 4.2, 4.3, 3.6, 3.1, 2.9, 2.7, 2.7, 3.7, 2.8, 3.3, 3.0, 4.2, 3.8,
         4.7, 4.2)  # fmt: skip
WEEKDAYS = (12.3, 15.2, 16.3, 18.4, 20.6, 8.7, 8.5)
WEEK_S = 7 * 86400.0

# Quantiles of the mean gap of a session [s]. Philly's gaps: 10 % up to 1 s, half up to 8 s, 75 % up to 44 s, 90 % up to
# 361 s, 99 % up to 725 s. The low paces lie above them, since gaps scatter around a pace and the zeros come on top.
PACE_SHARE = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
PACE_S = (1.0, 1.8, 4.5, 12.0, 50.0, 361.0, 600.0, 700.0)
SESSION_JOBS = 40
ZERO_SHARE = 0.081
JOBS_PER_HOLE = 10_000
HOLE_GAPS = 1250.0  # mean gaps: one such hole in 10,000 jobs gives a coefficient of variation of about 12.5


def sessions(rng: np.random.Generator, jobs: int) -> Indices:
    """(jobs,) int64: the session of each job, counted from 0."""
    starts = rng.random(jobs) < 1.0 / SESSION_JOBS
    starts[0] = False
    return np.cumsum(starts)


def arrivals(rng: np.random.Generator, session: Indices, mean_gap_s: float) -> Floats:
    """Arrival times, (jobs,) float64 [s], non-decreasing, > 0, rounded to 1 ms.

    The mean gap in operational time is ``mean_gap_s`` exactly; in wall time it differs by where in the week the trace
    ends, little after a few days.
    """
    jobs = len(session)
    holes = round(jobs / JOBS_PER_HOLE)
    gaps = _gaps(rng, session)
    gaps *= mean_gap_s * (jobs - HOLE_GAPS * holes) / gaps.sum()
    clock = np.cumsum(gaps)
    for number in range(holes):
        at = int((number + rng.random()) * jobs / holes)
        length = HOLE_GAPS * mean_gap_s * rng.uniform(0.9, 1.1)
        begin = wall_time(clock[at : at + 1])
        clock[at + 1 :] += operational_time(begin + length) - operational_time(begin)
    times: Floats = np.maximum(wall_time(clock), 0.001).round(3)
    return times


def _gaps(rng: np.random.Generator, session: Indices) -> Floats:
    """Gaps before each job, (jobs,) float64, in units of Philly's seconds."""
    count = int(session[-1]) + 1
    # Stratified over the sessions, so that short traces have the same mix of paces as long ones.
    rank = (rng.permutation(count) + rng.random(count)) / count
    pace = np.exp(np.interp(rank, PACE_SHARE, np.log(PACE_S)))[session]
    gaps = pace * rng.standard_gamma(2.0, len(session)) / 2.0
    # Jobs of one second are of one sweep: zero gaps lie in the faster half of the sessions.
    zero = rng.random(len(session)) < np.where(rank[session] < 0.5, 2 * ZERO_SHARE, 0.0)
    zero[0] = False
    gaps[zero] = 0.0
    return gaps


def _weekly_profile() -> tuple[Floats, Floats]:
    """Wall time and operational time at the 168 hours of a week and its end, (169,) float64 [s] each."""
    rate = np.outer(WEEKDAYS, HOURS).ravel()
    operational = np.concatenate([[0.0], np.cumsum(rate)]) * (WEEK_S / rate.sum())
    return np.linspace(0.0, WEEK_S, len(operational)), operational


def wall_time(operational: Floats) -> Floats:
    """Wall time at which the operational clock shows ``operational``; same shape, [s]."""
    wall, clock = _weekly_profile()
    week, rest = np.divmod(operational, WEEK_S)
    return week * WEEK_S + np.interp(rest, clock, wall)


def operational_time(wall_s: Floats) -> Floats:
    """Inverse of :func:`wall_time`: the profile's rate (mean 1) integrated from 0; same shape, [s]."""
    wall, clock = _weekly_profile()
    week, rest = np.divmod(wall_s, WEEK_S)
    return week * WEEK_S + np.interp(rest, wall, clock)
