"""Oblivious placement: best fit on as few nodes as possible, whatever straggles; what all the others are compared with.

Ours, as the first of the comparisons of shared/design/stragglers.md, section 4.4; the rule is that of placing.py. It
knows nothing of stragglers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from baselines.placing import Placing


@dataclass
class Oblivious(Placing):
    """Let a host say who runs and place by best fit, with no eye for stragglers."""

    rule: ClassVar[str] = "oblivious"
