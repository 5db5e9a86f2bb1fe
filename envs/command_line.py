"""Command lines of the product: tyro on frozen dataclasses, one line for every error."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from typing import TypeVar

import tyro

from envs.spec import SCENARIOS, Scenario

A = TypeVar("A")


class UsageError(ValueError):
    """Arguments that cannot be used; the message is one sentence."""


def parse_arguments(default: A, argv: Sequence[str], prog: str) -> A:
    """An instance of ``default``'s dataclass with the flags of ``argv`` in place of its values.

    ``--help`` prints and exits 0. Raises :class:`UsageError` with tyro's own reason.
    """
    shown = io.StringIO()
    try:
        with contextlib.redirect_stderr(shown):
            return tyro.cli(type(default), prog=prog, args=list(argv), default=default)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise UsageError(_reason(shown.getvalue())) from None


def find_scenario(argv: Sequence[str], default: str = "rigid") -> Scenario:
    """The scenario named in ``argv``, which the defaults of all other flags depend on."""
    name = default
    for flag, following in zip(argv, [*argv[1:], ""], strict=False):
        if flag == "--scenario":
            name = following
        elif flag.startswith("--scenario="):
            name = flag.partition("=")[2]
    if name not in SCENARIOS:
        raise UsageError(f"unknown scenario {name!r}; known are {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


def one_line(error: BaseException) -> str:
    """The message of an error without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__


def _reason(box: str) -> str:
    """The sentence in tyro's framed message and its suggestion.

    The message is a title, the sentence, and hints, separated by rules; where the terminal knows no
    UTF-8 the frame is made of dashes, or missing.
    """
    lines = [line.strip("│╭╮╰╯ ") for line in box.splitlines()]
    parts, words = [], ""
    for line in lines[1:]:
        if line and not line.strip("─-"):
            parts.append(words.strip())
            words = ""
        else:
            words += f" {line}"
    sentence = next((part for part in [*parts, words.strip()] if part), " ".join(box.split()))
    sentence = re.sub(r"^Error parsing (sim|[A-Z]\w*): ", "", sentence)  # a dataclass's own check: its message says all
    hint = re.search(r"Perhaps you meant:\s*(--[\w.-]+)", " ".join(lines))
    return sentence + (f" (did you mean {hint[1]}?)" if hint else "")
