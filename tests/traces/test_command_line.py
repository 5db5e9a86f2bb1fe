"""Flags become a dataclass; every mistake is one line."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from envs.spec import SimConfig
from traces.command_line import UsageError, one_line, parse_arguments, run


@dataclass(frozen=True)
class Flags:
    """Some flags."""

    names: tuple[str, ...] = ("a",)
    """Names."""
    jobs: int = 1
    """Jobs."""
    sim: SimConfig = field(default_factory=SimConfig)
    """Settings."""


def parse(text, default=None):
    return parse_arguments(Flags, "prog", text.split(), default=default or Flags())


def test_defaults_come_from_the_instance():
    default = Flags(sim=SimConfig(rescale_s=7.0, on_event=True))
    assert parse("", default) == default
    changed = parse("--names x y --sim.no-on-event", default)
    assert changed.names == ("x", "y")
    assert changed.sim == SimConfig(rescale_s=7.0, on_event=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--jobs x", "Error parsing --jobs: invalid literal for int"),
        ("--nope 3", "Unrecognized options: --nope, 3"),
        ("--jbs 3", r"Unrecognized options: --jbs, 3 \(did you mean --jobs\?\)"),
        ("--jobs", "Missing value for argument '--jobs'"),
        ("--sim.placement high", "invalid choice 'high' for argument '--sim.placement'"),
        ("--sim.rescale-s -3", "sim.rescale_s must be a finite time >= 0, not -3.0"),
        ("stray", "Unrecognized options: stray"),
    ],
)
def test_mistakes_are_one_line(text, message, capsys):
    with pytest.raises(UsageError, match=message) as error:
        parse(text)
    assert not set(str(error.value)) & set("\n│╭─")
    assert capsys.readouterr() == ("", "")


def test_help_is_printed_and_ends_with_0(capsys):
    with pytest.raises(SystemExit) as stop:
        parse("--help")
    assert stop.value.code == 0
    assert "--sim.rescale-s" in capsys.readouterr().out


def test_one_line():
    assert one_line(ValueError("two\n  lines")) == "two lines"
    assert one_line(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (None, 0, ""),
        (UsageError("no such flag"), 2, "prog: no such flag\n"),
        (KeyError("two\nlines"), 2, "prog: 'two\\nlines'\n"),
        (KeyboardInterrupt(), 130, "prog: stopped\n"),
    ],
)
def test_exit_codes(raised, code, line, capsys):
    def command():
        if raised is not None:
            raise raised

    assert run("prog", command, KeyError, interrupted="stopped") == code
    assert capsys.readouterr().err == line


def test_other_errors_are_bugs_and_keep_their_traceback():
    with pytest.raises(ZeroDivisionError):
        run("prog", lambda: print(1 / 0), KeyError)
