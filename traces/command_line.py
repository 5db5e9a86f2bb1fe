"""What every command of ours does alike: one-line errors, and exit codes 0, 2 and 130."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tyro


class UsageError(ValueError):
    """Arguments that the command does not take; the message is one line."""


def parse_arguments(form: Any, prog: str, description: str, arguments: Sequence[str] | None = None) -> Any:
    """Parse ``arguments`` (default: of the process) into ``form``, a dataclass or a union of subcommands.

    Raises UsageError with tyro's reason on one line; ``--help`` prints and exits with 0.
    """
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(form, prog=prog, description=description, args=arguments)
    except SystemExit as stop:
        if stop.code:
            raise UsageError(f"{_reason(errors.getvalue())} (see {prog} --help)") from None
        raise


def run(command: Callable[[], None], *errors: type[Exception]) -> int:
    """Run a command; returns 0, 2 after a UsageError or one of ``errors`` (one line on stderr), 130 after Ctrl-C."""
    caught: tuple[type[Exception], ...] = (UsageError, *errors)
    try:
        command()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except caught as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _reason(message: str) -> str:
    """The first paragraph of tyro's message, which is a box with its title in the border, or a title over a rule."""
    lines = [line.strip(" │") for line in message.strip().splitlines()]
    ends = [number for number, line in enumerate(lines) if not line or not line.strip("-─") or line[0] in "╭╰"]
    body = lines[ends[0] + 1 : ends[1]] if len(ends) > 1 else lines
    return " ".join(body).rstrip(".")
