"""The cache of compiled code: what one process has compiled must do in another what it did there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from envs.layout import state_dtype

ROOT = Path(__file__).resolve().parents[2]
FITS = """
import sys
from envs.layout import make_state
from envs.placement import fits_empty
from envs.spec import ClusterSpec, SimConfig

for knowledge in sys.argv[1:]:
    s = make_state(1, 1, ClusterSpec.parse("16x4"), SimConfig(knowledge=knowledge))[0]
    s.request[0], s.share[0], s.gpu_type[0] = 6, 1000, -1
    print(knowledge, fits_empty(s, 0, s.placement_rule))
"""


def fits(cache: Path, *knowledge: str) -> list[str]:
    """What a process of its own says of a job of 6 GPUs on an empty cluster of 64, for records of several types."""
    environment = {**os.environ, "MUSHER_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", FITS, *knowledge]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True, cwd=ROOT)
    return done.stdout.split()


def test_records_compiled_by_two_processes_are_told_apart(tmp_path: Path) -> None:
    """numba numbers record types in each process anew: the second's code was taken for the first's."""
    assert fits(tmp_path, "profile") == ["profile", "True"]
    assert fits(tmp_path, "online") == ["online", "True"]
    assert fits(tmp_path, "profile", "online") == ["profile", "True", "online", "True"]
    assert fits(tmp_path, "online", "profile") == ["online", "True", "profile", "True"]


@pytest.mark.parametrize("extras", [(), (True,), (False, True), (False, False, True), (True, True, True)])
def test_records_have_no_padding(extras):
    """Copies do not copy it, and snapshots, which are compared byte by byte, would differ."""
    dtype = state_dtype(64, 16, *extras)
    assert sum(dtype.fields[name][0].itemsize for name in dtype.names) == dtype.itemsize
