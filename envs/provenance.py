"""What made a result: versions, commit and trace, for the config.json of evaluations and training runs."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from traces.trace import Trace

PACKAGES = ("gpu-musher", "numpy", "pandas", "numba", "scipy", "gymnasium", "stable-baselines3", "sb3-contrib", "torch")
ROOT = Path(__file__).resolve().parents[1]


def versions() -> dict[str, str]:
    """Version of Python and of each package that results may depend on; packages not installed are left out."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def git_commit() -> str | None:
    """Commit of the checkout this code runs from, with "+changes" if it was edited since; None outside of one."""
    commit = _git("rev-parse", "HEAD") if (ROOT / ".git").exists() else None  # not the commit of a folder around us
    if commit is None:
        return None
    return commit + ("+changes" if _git("status", "--porcelain", "--untracked-files=no") else "")


def trace_sha256(trace: Trace) -> str:
    """Digest of the jobs as CSV: equal for equal workloads, wherever they were read from."""
    return hashlib.sha256(trace.jobs.to_csv(index=False).encode()).hexdigest()


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
