"""Writes the tables of README.md and docs/*.md from the code, so that no list is kept twice.

A page holds ``<!-- begin: NAME -->`` and ``<!-- end: NAME -->``; what stands between them is the table NAME of
:data:`TABLES`. ``python -m docs.generate`` rewrites the pages, ``--check`` only names the stale ones.
"""

from __future__ import annotations

import argparse
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from typing import Any

from docstring_parser import parse_from_object

import evaluate
import train
from agents.config import A2CConfig, PPOConfig, TrainConfig
from agents.network import NetworkConfig
from baselines import BASELINES
from baselines.hosts import Hosted
from baselines.policy import oracle_use, prepare
from docs import freezing_tables, layer_tables, profiles_tables, straggler_tables
from envs.actions import EDITS
from envs.features import FEATURES
from envs.metrics import JOB_COLUMNS, METRICS
from envs.objectives import OBJECTIVES
from envs.order import ListOrder
from envs.scheduler import ListScheduler
from envs.service_edits import SERVICE_EDITS
from envs.spec import SCENARIOS, SimConfig
from traces.generators import GENERATORS
from traces.readers import READERS
from traces.synthetic_philly import synthesise
from traces.toys import TOYS
from traces.trace import COLUMNS

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- begin: (?P<name>[\w-]+) -->\n).*?(<!-- end: (?P=name) -->)", re.DOTALL)
AS_HOST = "as its host"


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table with its final newline; ``|`` in a cell is escaped."""
    lines = [[str(cell).replace("|", "\\|") for cell in row] for row in (header, *rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def summary(thing: object) -> str:
    """First paragraph of a docstring on one line, without its full stop."""
    return " ".join(inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0].split()).rstrip(".")


def options(cls: type) -> list[tuple[str, object, str]]:
    """Name, default and meaning of each field of a configuration dataclass; nested ones have tables of their own."""
    meanings: dict[str, str | None] = {}
    for part in reversed(cls.__mro__[:-1]):  # a field keeps the text of the class that defined it last
        meanings |= {param.arg_name: param.description for param in parse_from_object(part).params}
    return [(f.name, f.default, meanings[f.name] or "") for f in fields(cls) if f.repr and f.default is not MISSING]


def trace_columns() -> str:
    rows = [
        (code(c.name), c.dtype, c.unit, "required" if c.missing is None else code(c.missing), c.meaning)
        for c in COLUMNS
    ]
    return table(("column", "type", "unit", "when missing", "meaning"), rows)


def trace_formats() -> str:
    rows = [(code(name), reader.about, code(reader.header)) for name, reader in READERS.items()]
    return table(("format", "what it is", "header it is detected by"), rows)


def generators() -> str:
    rows = [(code(name), generator.about, "any") for name, generator in GENERATORS.items()]
    rows += [
        (
            code(name),
            f"{len(toy.trace)} jobs; best mean jct {toy.optimal_mean_jct_s:.1f} s: {toy.why}",
            code(toy.cluster),
        )
        for name, toy in TOYS.items()
    ]
    return table(("workload", "what it is", "cluster"), rows)


def flags(prefix: str, *forms: type) -> str:
    """The command-line flags that tyro makes of configuration dataclasses."""
    rows = [
        (code(f"--{prefix}{name.replace('_', '-')}"), code(shown(value)), text)
        for form in forms
        for name, value, text in options(form)
    ]
    return table(("flag", "default", "meaning"), rows)


def shown(value: object) -> str:
    """A default as it would be typed; nothing for None."""
    if value is None:
        return ""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def scenarios() -> str:
    rows = [(code(s.name), s.question, code(s.trace), code(s.cluster)) for s in SCENARIOS.values()]
    return table(("scenario", "question", "trace", "cluster"), rows)


def list_order(cls: type[Any]) -> ListOrder | None:
    """The ordering rule of a baseline, given the history of a small trace if it needs one; None: it has none."""
    if issubclass(cls, Hosted):
        return None
    scheduler: Any = prepare(cls(), synthesise("synthetic-philly", jobs=64).jobs)
    return scheduler.order() if isinstance(scheduler, ListScheduler) else None


def reads(cls: type[Any]) -> str:
    if issubclass(cls, Hosted):
        return AS_HOST
    return ", ".join(oracle_use(cls(), SimConfig())) or "–"


def baselines() -> str:
    rows = [(code(name), summary(cls), reads(cls)) for name, cls in BASELINES.items()]
    return table(("policy", "what it does", "oracle"), rows)


def scheduler_row(name: str, cls: type[Any]) -> tuple[object, ...]:
    order = list_order(cls)
    rule = (AS_HOST,) * 3 if getattr(cls, "takes_rules", False) else ("–", "yes", "yes")
    if order is not None:
        overtakes = "yes" if order.preemptive or order.backfill else "no"
        rule = (order.key.name, "yes" if order.preemptive else "no", overtakes)
    batch = AS_HOST if issubclass(cls, Hosted) else cls.batch
    return code(name), summary(inspect.getmodule(cls)), *rule, reads(cls), batch


def schedulers() -> str:
    header = ("policy", "source", "key", "preemptive", "overtakes a job that does not fit", "oracle", "batch")
    return table(header, [scheduler_row(name, cls) for name, cls in BASELINES.items()])


def scheduler_options() -> str:
    rows = [
        (code(name), code(option), code(value), text)
        for name, cls in BASELINES.items()
        for option, value, text in options(cls)
    ]
    return table(("policy", "option", "default", "meaning"), rows)


def metrics() -> str:
    rows = [(code(m.name), m.unit, m.better, m.meaning) for m in METRICS]
    return table(("metric", "unit", "better", "meaning"), rows)


def job_columns() -> str:
    return table(
        ("column", "type", "unit", "meaning"), [(code(c.name), c.dtype, c.unit, c.meaning) for c in JOB_COLUMNS]
    )


def observation() -> str:
    shapes = {"cluster": "(columns,)", "nodes": "(N, columns)", "jobs": "(J, columns)", "services": "(V, columns)"}
    rows = [
        (
            code(f.block),
            shapes.get(f.block, "(N, G)"),
            code(f.name),
            f"{f.low:g}",
            "J - 1" if f.high == math.inf else f"{f.high:g}",
            f.meaning,
        )
        for f in FEATURES
    ]
    return table(("block", "shape", "column", "low", "high", "meaning"), rows)


def edits() -> str:
    return table(("edit", "name", "meaning"), [(number, code(name), text) for number, (name, text) in enumerate(EDITS)])


def service_edits() -> str:
    rows = [(number, code(name), text) for number, (name, text) in enumerate(SERVICE_EDITS)]
    return table(("edit", "name", "meaning"), rows)


def objectives() -> str:
    return table(("objective", "reward"), [(code(name), item.meaning) for name, item in OBJECTIVES.items()])


TABLES: dict[str, Callable[[], str]] = {
    "trace-columns": trace_columns,
    "trace-formats": trace_formats,
    "generators": generators,
    "sim-config": partial(flags, "sim.", SimConfig),
    "scenarios": scenarios,
    "baselines": baselines,
    "schedulers": schedulers,
    "scheduler-options": scheduler_options,
    "observation": observation,
    "edits": edits,
    "service-edits": service_edits,
    "objectives": objectives,
    "profile-models": profiles_tables.models,
    "profile-errors": profiles_tables.errors,
    "freezing-made-with": freezing_tables.made_with,
    "freezing-unfrozen": freezing_tables.unfrozen,
    "freezing-schedules": freezing_tables.schedules,
    "freezing-constants": freezing_tables.constants,
    "freezing-errors": freezing_tables.errors,
    "freezing-figures": freezing_tables.figures,
    "freezing-presets": layer_tables.presets,
    "sensitivities": straggler_tables.sensitivities,
    "straggler-presets": straggler_tables.presets,
    "layer-totals": layer_tables.totals,
    "layer-times": layer_tables.times,
    "metrics": metrics,
    "job-columns": job_columns,
    "train-flags": partial(flags, "", train.Arguments, TrainConfig),
    "ppo-flags": partial(flags, "ppo.", PPOConfig),
    "a2c-flags": partial(flags, "a2c.", A2CConfig),
    "network-flags": partial(flags, "network.", NetworkConfig),
    "evaluate-flags": partial(flags, "", evaluate.Arguments),
}


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def render(text: str) -> str:
    """A page with its tables as the code has them now; ``KeyError`` for a name that is not in TABLES."""
    return BLOCK.sub(lambda match: match[1] + TABLES[match["name"]]() + match[3], text)


def stale() -> list[Path]:
    """Pages that differ from what :func:`render` gives."""
    return [page for page in pages() if render(page.read_text()) != page.read_text()]


def main() -> int:
    """Exit code 1 when ``--check`` finds a stale page."""
    parser = argparse.ArgumentParser(description="write the tables of the documentation from the code")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a page is stale")
    check = parser.parse_args().check
    found = stale()
    for page in found:
        print(f"{page.relative_to(ROOT)} {'is stale: run make docs' if check else 'written'}")
        if not check:
            page.write_text(render(page.read_text()))
    return int(check and bool(found))


if __name__ == "__main__":
    sys.exit(main())
