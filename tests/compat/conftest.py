"""Programs under the import hook, each in a process of its own: the hook changes what a whole process imports."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


class Runner:
    """Runs programs by ``tesserack run``, or by python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, source: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source), "utf-8")
        return path

    def start(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, **environment},
            timeout=300,
        )

    def run(self, source: str, *options: str, arguments: tuple[str, ...] = (), **environment: str):
        """Runs a program under the hook and returns its lines; fails where the program does."""
        path = self.write("program.py", source)
        done = self.start("-m", "tesserack", "run", *options, str(path), *arguments, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture(scope="session")
def runner():
    """The class, for what starts programs in folders of its own."""
    return Runner


@pytest.fixture
def program(tmp_path):
    return Runner(tmp_path)
