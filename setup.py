"""Adds ``gymnasium_musher.pth`` to site-packages, in editable installs too; all else stands in pyproject.toml."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildPy(build_py):
    """The usual build step, plus the line that Python runs at its start (see gymnasium_musher.py)."""

    def run(self) -> None:
        super().run()
        folder = self.get_finalized_command("install").install_lib if self.editable_mode else self.build_lib
        Path(folder, "gymnasium_musher.pth").write_text("import gymnasium_musher; gymnasium_musher.watch()\n")


setup(cmdclass={"build_py": BuildPy})
