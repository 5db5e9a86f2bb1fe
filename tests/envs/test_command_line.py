"""Flags become a dataclass; every mistake is one line."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from envs.command_line import UsageError, find_scenario, one_line, parse_arguments
from envs.spec import SCENARIOS, SimConfig


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
    return parse_arguments(default or Flags(), text.split(), "prog")


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


def test_scenario_is_found_in_both_spellings():
    assert find_scenario([]).name == "rigid"
    assert find_scenario(["--jobs", "1", "--scenario", "rigid"]) is SCENARIOS["rigid"]
    for words in (["--scenario=liquid"], ["--scenario", "liquid"]):
        with pytest.raises(UsageError, match="unknown scenario 'liquid'; known are rigid"):
            find_scenario(words)
    with pytest.raises(UsageError, match="unknown scenario ''"):
        find_scenario(["--scenario"])


def test_one_line():
    assert one_line(ValueError("two\n  lines")) == "two lines"
    assert one_line(KeyError()) == "KeyError"
