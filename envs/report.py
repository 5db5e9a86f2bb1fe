"""A self-contained HTML page of an evaluation: no scripts, no files beside it, figures inline."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

import pandas as pd

from envs.leaderboard import TEXT, Leaderboard, format_estimate, format_number
from envs.metrics import METRICS
from envs.results import Estimates

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 1400px; margin: 2rem auto;
       padding: 0 1.5rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .82rem; }
.wide { overflow-x: auto; }
th, td { padding: .28rem .45rem; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap; }
th { border-bottom: 2px solid #999; white-space: normal; } .text { text-align: left; white-space: normal; }
td:first-child { white-space: nowrap; }
tbody tr:first-child td { font-weight: 600; }
.facts td { text-align: left; white-space: normal; font-weight: 400 !important; } .facts td:first-child { color: #666; }
.note { color: #555; margin: .3rem 0; font-size: .88rem; } img { max-width: 100%; height: auto; }
details { margin: .6rem 0; } summary { cursor: pointer; } code { font-size: .88rem; }
"""

CAPTIONS = {
    "mean-jct": "Mean job completion time",
    "jct-cdf": "Distribution of job completion times, all runs together",
    "utilisation": "Use of the cluster and length of the queue over time, in the window with the longest queues",
}


def make_report(
    facts: dict[str, str], board: Leaderboard, estimates: Estimates, by_size: pd.DataFrame, figures: dict[str, bytes]
) -> str:
    """The page: what was run, who was best, every metric, results by job size, and the figures (PNG by stem)."""
    gantts = [stem for stem in figures if stem.startswith("gantt-")]
    parts = [
        "<h1>Scheduler comparison</h1>",
        _facts(facts),
        "<h2>Best first</h2>",
        _table(board.headings, board.rows),
        *(f'<p class="note">{escape(note)}</p>' for note in board.notes),
        *(_figure(figures[stem], caption) for stem, caption in CAPTIONS.items()),
        "<h2>Mean jct [s] by GPUs requested</h2>",
        _table(("policy", *map(str, by_size.columns)), _size_rows(by_size)),
        "<h2>Who held which GPU</h2>",
        '<p class="note">The window with the longest queues, up to when 9 of 10 jobs are done under every policy; '
        "of long runs a part from their middle. 12 ×4: job 12, which holds 4 GPUs; they change where a white line "
        "crosses it. A job has the same colour in every chart, and shares it with others.</p>",
        *(_foldable(figures[stem], stem.removeprefix("gantt-"), is_open=stem in gantts[:2]) for stem in gantts),
        "<h2>All metrics</h2>",
        _metrics(estimates),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Scheduler comparison</title>'
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def jct_by_size(jobs: pd.DataFrame, order: Sequence[str]) -> pd.DataFrame:
    """Mean jct [s] of completed training jobs by policy (rows, in ``order``) and class of GPUs requested."""
    done = jobs[(jobs["kind"] == "training") & (jobs["status"] == "completed")]
    classes = pd.cut(done["num_gpus"], [0, 1, 2, 4, 8, float("inf")], labels=["1", "2", "3-4", "5-8", "> 8"])
    means = done.groupby(["policy", classes], observed=True)["jct_s"].mean().unstack()
    return means.reindex(list(order))


def _size_rows(by_size: pd.DataFrame) -> list[tuple[str, ...]]:
    return [
        (str(name), *(format_number(value) for value in row))
        for name, row in zip(by_size.index, by_size.to_numpy(float), strict=True)
    ]


def _metrics(estimates: Estimates) -> str:
    """Metrics as rows, policies as columns, since there are more of the former."""
    rows = [
        (metric.name, metric.meaning, *(format_estimate(metrics[metric.name]) for metrics in estimates.values()))
        for metric in METRICS
    ]
    return _table(("metric", "meaning", *estimates), rows)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    kinds = [' class="text"' if heading in (*TEXT, "metric", "meaning") else "" for heading in headings]
    head = "".join(f"<th{kind}>{escape(cell)}</th>" for kind, cell in zip(kinds, headings, strict=True))
    body = "\n".join(
        "<tr>" + "".join(f"<td{kind}>{_cell(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(text: str) -> str:
    """Intervals go below their values, so that more columns fit beside each other."""
    return escape(text).replace(" [", "<br>[")


def _facts(facts: dict[str, str]) -> str:
    rows = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in facts.items())
    return f'<table class="facts"><tbody>{rows}</tbody></table>'


def _image(png: bytes, alternative: str) -> str:
    return f'<img alt="{escape(alternative)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def _figure(png: bytes, caption: str) -> str:
    return f"<h2>{escape(caption)}</h2>\n{_image(png, caption)}"


def _foldable(png: bytes, name: str, is_open: bool) -> str:
    return f"<details{' open' if is_open else ''}><summary>{escape(name)}</summary>{_image(png, name)}</details>"
