"""Shared fixtures: the measured data beside the checkout, and one warm compile cache."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of measured data and published simulators' results; skips where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the measured data at {SHARED}, which is not part of the project")
    return SHARED
