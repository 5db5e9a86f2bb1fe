"""Outcomes of many runs: tables by policy, ranking, and the CSV and JSON files of an evaluation."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from envs.metrics import METRICS
from envs.statistics import Estimate, estimate, interquartile_mean, paired_difference, paired_ratio, win_rate

Floats = npt.NDArray[np.float64]
Tables = dict[str, dict[str, Floats]]  # policy -> metric -> (W, S), or (W, 1) where seeds change nothing
Estimates = dict[str, dict[str, Estimate]]  # policy -> metric -> estimate, policies best first

RANKED_BY = "mean_jct_s"
IQM = "mean_jct_iqm_s"
MEASURED = frozenset({"decision_time_ms"})  # depends on the machine, so never equal in two runs


@dataclass(frozen=True)
class Policy:
    """What the tables say of a policy besides its numbers."""

    name: str
    batch: str
    oracle: tuple[str, ...]
    published: bool
    """Whether it is one of the shipped baselines, to which the others are compared."""


@dataclass(frozen=True)
class Outcome:
    """One run of one policy on one window with one seed."""

    policy: Policy
    window: int
    seed: int
    metrics: dict[str, float]
    jobs: pd.DataFrame
    timeline: pd.DataFrame
    gantt: pd.DataFrame
    """Clip of the intervals that may be drawn; empty but for a policy's first seed."""


class Difference(NamedTuple):
    """``policy`` minus ``reference``, paired, and the share of repetitions that ``policy`` wins."""

    policy: str
    reference: str
    metric: str
    gap: Estimate
    ratio: Estimate
    """The same, as a share of the reference's mean."""
    win_rate: float


def policies(outcomes: Sequence[Outcome]) -> list[Policy]:
    """The policies in the order of their first run; true quantities read in any run are joined."""
    found: dict[str, Policy] = {}
    for outcome in outcomes:
        policy = outcome.policy
        before = found.get(policy.name, policy)
        oracle = tuple(dict.fromkeys((*before.oracle, *policy.oracle)))
        found[policy.name] = Policy(policy.name, policy.batch, oracle, policy.published)
    return list(found.values())


def make_tables(outcomes: Sequence[Outcome]) -> Tables:
    """Every metric by policy as a table over windows and seeds.

    A policy that gave the same results for every seed keeps one seed, so that copies of one result
    cannot pass for repetitions.
    """
    tables: Tables = {}
    for policy in policies(outcomes):
        runs = [o for o in outcomes if o.policy.name == policy.name]
        windows = sorted({o.window for o in runs})
        seeds = sorted({o.seed for o in runs})
        cells = {(o.window, o.seed): o.metrics for o in runs}
        table = {m.name: np.array([[cells[w, s][m.name] for s in seeds] for w in windows]) for m in METRICS}
        same = all(np.array_equal(x, x[:, :1].repeat(len(seeds), 1), equal_nan=True) for x in _simulated(table))
        tables[policy.name] = {name: x[:, :1] for name, x in table.items()} if same else table
    return tables


def _simulated(table: dict[str, Floats]) -> list[Floats]:
    return [values for name, values in table.items() if name not in MEASURED]


def rank(tables: Tables) -> list[str]:
    """Policies by mean jct, best first; those without a value last, equals in the given order."""
    means = {name: estimate(table[RANKED_BY]).value for name, table in tables.items()}
    return sorted(tables, key=lambda name: (np.isnan(means[name]), means[name]))


def summarise(tables: Tables) -> Estimates:
    """Estimates of every metric, with the interquartile mean of the mean jct; policies best first."""
    estimates: Estimates = {}
    for name in rank(tables):
        estimates[name] = {metric: estimate(values) for metric, values in tables[name].items()}
        estimates[name][IQM] = estimate(tables[name][RANKED_BY], interquartile_mean)
    return estimates


def compare(tables: Tables, references: Sequence[str]) -> list[Difference]:
    """Paired differences of every directed metric to each reference policy."""
    differences = []
    for reference in dict.fromkeys(references):
        for name in rank(tables):
            for metric in METRICS:
                if name == reference or not metric.better or metric.name in MEASURED:
                    continue
                ours, theirs = tables[name][metric.name], tables[reference][metric.name]
                gap, ratio = paired_difference(ours, theirs), paired_ratio(ours, theirs)
                won = win_rate(ours, theirs, metric.better)
                differences.append(Difference(name, reference, metric.name, gap, ratio, won))
    return differences


def summary_frame(estimates: Estimates) -> pd.DataFrame:
    """Long table for summary.csv."""
    rows = [(name, metric, *e) for name, metrics in estimates.items() for metric, e in metrics.items()]
    return pd.DataFrame(rows, columns=["policy", "metric", "mean", "ci_low", "ci_high", "n"])


def difference_frame(differences: Sequence[Difference]) -> pd.DataFrame:
    """Long table for differences.csv."""
    rows = [(d.policy, d.reference, d.metric, *d.gap, d.ratio.value, d.win_rate) for d in differences]
    columns = ["policy", "reference", "metric", "difference", "ci_low", "ci_high", "n", "relative", "win_rate"]
    return pd.DataFrame(rows, columns=columns)


def best_baseline(tables: Tables, known: Sequence[Policy]) -> str | None:
    """The best-ranked shipped baseline, if there is one."""
    published = {policy.name for policy in known if policy.published}
    return next((name for name in rank(tables) if name in published), None)


def join_runs(outcomes: Sequence[Outcome], part: str) -> pd.DataFrame:
    """The ``jobs`` or ``timeline`` tables of all runs below each other, led by policy, window and seed."""
    frames = []
    for outcome in outcomes:
        frame: pd.DataFrame = getattr(outcome, part).copy()
        frame.insert(0, "seed", outcome.seed)
        frame.insert(0, "window", outcome.window)
        frame.insert(0, "policy", outcome.policy.name)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a file beside ``path``, then put it in place: readers see all of it or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{os.getpid()}.{path.name}")  # keeps the suffix, from which writers infer the format
    try:
        write(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table; NaN becomes an empty cell."""
    write_atomically(path, lambda partial: table.to_csv(partial, index=False))


def write_bytes(path: Path, content: bytes) -> None:
    write_atomically(path, lambda partial: partial.write_bytes(content))


def write_json(path: Path, content: dict[str, object]) -> None:
    """Write JSON that any parser reads (no NaN)."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    write_bytes(path, text.encode())
