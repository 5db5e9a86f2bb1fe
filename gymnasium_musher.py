"""Makes ``gymnasium.make("musher/Cluster-v0")`` work in any process that imports Gymnasium.

Gymnasium 1.0 stopped reading the entry point group ``gymnasium.envs``, so ids of other packages are unknown until some
code imports these packages. The installed ``gymnasium_musher.pth`` calls :func:`watch` when Python starts; the ids are
registered right after the first ``import gymnasium``. Nothing is imported before that, and never the package ``envs``
itself: its name is common, and loading it here would hide a user's own.
"""

from __future__ import annotations

import sys
from types import ModuleType

NAME = "gymnasium"


class GymnasiumWatcher:
    """Import hook that steps in once, for the top-level module ``gymnasium``."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != NAME:
            return None
        from importlib.machinery import PathFinder

        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = PathFinder.find_spec(NAME)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            register()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def watch() -> None:
    """Register now if Gymnasium is already imported, else as soon as it is."""
    if NAME in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, GymnasiumWatcher())  # type: ignore[arg-type]


def register() -> None:
    """Run ``register()`` of the ``envs/registration.py`` that lies beside this file."""
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    spec = spec_from_file_location("musher_registration", Path(__file__).with_name("envs") / "registration.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.register()


if NAME in sys.modules:  # so that gymnasium.make("gymnasium_musher:musher/Cluster-v0") works, with or without the .pth
    register()
