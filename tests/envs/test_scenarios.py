"""Scenarios by name on the command line."""

from __future__ import annotations

import pytest

from envs.spec import SCENARIOS, SpecError, find_scenario


def test_scenario_is_found_in_both_spellings():
    assert find_scenario([]).name == "rigid"
    assert find_scenario(["--jobs", "1", "--scenario", "rigid"]) is SCENARIOS["rigid"]
    for words in (["--scenario=liquid"], ["--scenario", "liquid"]):
        with pytest.raises(SpecError, match="unknown scenario 'liquid'; known are rigid"):
            find_scenario(words)
    with pytest.raises(SpecError, match="unknown scenario ''"):
        find_scenario(["--scenario"])
