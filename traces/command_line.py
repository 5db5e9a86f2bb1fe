"""What every command of ours does alike: tyro on dataclasses, one line for every error, exit codes 0, 2 and 130."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tyro


class UsageError(ValueError):
    """Arguments that the command does not take; the message is one line."""


def parse_arguments(
    form: Any, prog: str, arguments: Sequence[str] | None = None, description: str | None = None, default: Any = None
) -> Any:
    """Parse ``arguments`` (default: of the process) into ``form``, a dataclass or a union of subcommands.

    ``default``: an instance of ``form`` whose values stand where no flag does. Raises UsageError with tyro's
    reason on one line; ``--help`` prints and exits with 0.
    """
    errors = io.StringIO()
    given = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(form, prog=prog, description=description, args=arguments, **given)
    except SystemExit as stop:
        if stop.code:
            raise UsageError(_reason(errors.getvalue())) from None
        raise


def run(prog: str, command: Callable[[], None], *errors: type[Exception], interrupted: str = "interrupted") -> int:
    """Run a command; returns 0, 2 after a UsageError or one of ``errors`` (one line on stderr), 130 after Ctrl-C."""
    caught: tuple[type[Exception], ...] = (UsageError, *errors)
    try:
        command()
    except KeyboardInterrupt:
        print(f"{prog}: {interrupted}", file=sys.stderr)
        return 130
    except caught as error:
        print(f"{prog}: {one_line(error)}", file=sys.stderr)
        return 2
    return 0


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
    return sentence.rstrip(".") + (f" (did you mean {hint[1]}?)" if hint else "")
