"""The only place with numba settings: how the core is compiled, and where the result is kept.

numba's cache key is the modification time of one file: it misses edits in the files that a function
calls into, and the bounds-check flag. So the cache lives in a folder named after a digest of every
source file of the core and of that flag. And numba names compiled functions after their record types by a
number that it counts in each process: two processes may give two types the same one, and a third that
loads both would call the wrong function. So records are named by what they hold.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba

if TYPE_CHECKING:
    from numba.core.decorators import _JITWrapper

__all__ = ["COMPILING", "cache_dir", "is_compiled", "jit", "jit_inline", "prange"]

prange = numba.prange


def cache_dir() -> Path:
    """Folder of compiled code for exactly these sources; under ``MUSHER_CACHE_DIR`` if that is set."""
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parents[1]
    for source in sorted([*root.glob("envs/*.py"), *root.glob("baselines/*.py")]):
        text = source.read_bytes()
        if b"envs.jit" in text or source.name in (
            "jit.py",
            "features.py",
            "fields.py",
            "layout.py",
            "spec.py",
            "tables.py",
        ):
            digest.update(text)
    digest.update(os.environ.get("NUMBA_BOUNDSCHECK", "0").encode())
    chosen = os.environ.get("MUSHER_CACHE_DIR")
    base = Path(chosen) if chosen else Path.home() / ".cache" / "musher"
    return base / digest.hexdigest()[:12]


COMPILING = "Compiling the simulator; this takes a minute and happens once."


def is_compiled() -> bool:
    """Whether anything is in the cache; if not, say :data:`COMPILING`."""
    return any(cache_dir().rglob("*.nbi"))


@cache
def _digest(name: str) -> int:
    return int(hashlib.sha256(name.encode()).hexdigest()[:15], 16)


def _mangling_args(record: Any) -> tuple[str, tuple[int]]:
    """What a record type contributes to the names of functions compiled for it: its fields, offsets and size."""
    return "Record", (_digest(record.name),)


numba.types.Record.mangling_args = property(_mangling_args)  # type: ignore[assignment]
numba.config.CACHE_DIR = str(cache_dir())  # type: ignore[attr-defined]

# _nrt=False (missing in numba's stubs): the core allocates nothing, so it needs no reference counts. With them, passing
# an array along costs two atomic operations, 10 ns a call, which was a third of the time of a step.
# forceinline is said of every function, since one that says nothing inherits it from the first that calls it.
jit: _JITWrapper = numba.njit(  # type: ignore[call-overload]
    cache=True, error_model="numpy", fastmath=False, _nrt=False, forceinline=False
)
# For the few functions that are called once a job or an event: handing over Tables alone is 28 words.
jit_inline: _JITWrapper = numba.njit(  # type: ignore[call-overload]
    cache=True, error_model="numpy", fastmath=False, _nrt=False, forceinline=True
)
