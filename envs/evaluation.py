"""From the outcomes of all runs to the files of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.leaderboard import Leaderboard, make_leaderboard
from envs.plots import draw_all
from envs.report import jct_by_size, make_report
from envs.results import (
    Difference,
    Estimates,
    Outcome,
    best_baseline,
    compare,
    difference_frame,
    join_runs,
    make_tables,
    policies,
    summarise,
    summary_frame,
    write_bytes,
    write_csv,
    write_json,
)
from envs.spec import ClusterSpec, SpecError


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found, and where its files are."""

    folder: Path
    board: Leaderboard
    estimates: Estimates
    differences: list[Difference]


def make_folder(folder: Path) -> None:
    """Create the folder of results; raises :class:`SpecError` if that cannot be done."""
    try:
        (folder / "plots").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"results cannot be written to {folder}: {error.strerror}") from None


def write_evaluation(
    folder: Path, outcomes: Sequence[Outcome], cluster: ClusterSpec, config: Mapping[str, Any]
) -> Evaluation:
    """Write every file of the evaluation, each at once or not at all, and return the tables.

    ``config`` becomes config.json; its ``command``, ``trace``, ``cluster``, ``windows`` and ``git_commit``
    head the report.
    """
    known = policies(outcomes)
    tables = make_tables(outcomes)
    estimates = summarise(tables)
    references = [name for name in (best_baseline(tables, known), known[0].name) if name is not None]
    differences = compare(tables, references)
    board = make_leaderboard(estimates, differences, tables, known)
    jobs = join_runs(outcomes, "jobs")
    figures = draw_all(outcomes, estimates, cluster)
    by_size = jct_by_size(jobs, list(estimates))
    page = make_report(_facts(config), board, estimates, by_size, figures)

    write_csv(folder / "summary.csv", summary_frame(estimates))
    write_csv(folder / "differences.csv", difference_frame(differences))
    write_csv(folder / "jobs.csv", jobs)
    write_csv(folder / "timeline.csv", join_runs(outcomes, "timeline"))
    for stem, png in figures.items():
        write_bytes(folder / "plots" / f"{stem}.png", png)
    write_bytes(folder / "report.html", page.encode())
    write_json(folder / "config.json", {**config, "policies": [vars(policy) for policy in known]})
    return Evaluation(folder, board, estimates, differences)


def _facts(config: Mapping[str, Any]) -> dict[str, str]:
    """What was run, in words."""
    trace, windows = config["trace"], config["windows"]
    sizes = sorted({window["jobs"] for window in windows})
    return {
        "trace": f"{trace['name']}, {trace['jobs']:,} jobs. {trace['provenance']}",
        "windows": f"{len(windows)} of {' or '.join(f'{size:,}' for size in sizes)} jobs",
        "cluster": f"{config['cluster']['text']}, {config['cluster']['num_gpus']} GPUs",
        "settings": ", ".join(f"{name} {value}" for name, value in config["sim"].items()),
        "command": str(config["command"]),
        "commit": str(config["git_commit"]),
    }
