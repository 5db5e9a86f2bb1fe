"""Every example in README.md and docs/ runs, in the order of its page and without a network.

The blocks of one page share a folder. A ``python`` block runs as it is; one that begins with ``# NAME.py`` becomes that
file. Each line of a ``console`` block is a command and must exit with 0; ``make`` and ``source`` are for fresh machines
and stay out. ``<!-- test: replace A with B -->`` before a block makes a long example short.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from envs.registration import register

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"(?:<!-- test: replace (?P<old>.+?) with (?P<new>.+?) -->\n)?```(?P<kind>python|console)\n(?P<text>.*?)```",
    re.DOTALL,
)
INSTALLS = ("make", "source")


class Example(NamedTuple):
    line: int
    kind: str
    text: str


def examples(page: Path) -> list[Example]:
    text = page.read_text()
    found = []
    for match in BLOCK.finditer(text):
        body = match["text"]
        if match["old"]:
            assert match["old"] in body, f"{page.name}: the example has no {match['old']!r} to replace"
            body = body.replace(match["old"], match["new"])
        found.append(Example(text.count("\n", 0, match.start("text")), match["kind"], body))
    return found


def run_console(text: str, folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for line in text.splitlines():
        assert line.startswith("$ "), "a console block holds commands only"
        words = shlex.split(line.removeprefix("$ "))
        if words[0] in INSTALLS:
            continue
        assert words[0] == "python"
        done = subprocess.run([sys.executable, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", [p for p in PAGES if examples(p)], ids=lambda p: p.name)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    register()  # for checkouts that are not installed
    for command in ("train.py", "evaluate.py"):
        (tmp_path / command).symlink_to(ROOT / command)
    for example in examples(page):
        module = re.match(r"# (\w+\.py)\n", example.text)
        if example.kind == "console":
            run_console(example.text, tmp_path)
        elif module:
            (tmp_path / module[1]).write_text(example.text)
        else:
            exec(compile(example.text, f"{page.name}, line {example.line}", "exec"), {"__name__": "example"})


def test_two_commands_come_first():
    first = next(e for e in examples(ROOT / "README.md"))
    assert first.text.splitlines() == ["$ make demo", "$ make test"]


def test_relative_links_lead_somewhere():
    for page in [*PAGES, ROOT / "EXPERIMENTS.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"
