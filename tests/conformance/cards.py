"""Installs simulated devices in a folder, and runs the kit on them: beside the fixtures, for tests that import it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import tesserack as ts

HERE = Path(__file__).parent
REFERENCE = HERE.parents[1] / "plugins" / "reference" / "tesserack_reference"


def cpu_library() -> str:
    """Where the cpu backend's shared library is, as its package says."""
    (point,) = {p for p in importlib.metadata.entry_points(group="tesserack.backends") if p.name == "cpu"}
    return str(point.load()())


def copy_mutants(folder: Path) -> None:
    """The modules, and what they are made from."""
    shutil.copy(HERE.parent / "plugins" / "late_backend.py", folder)
    shutil.copytree(REFERENCE, folder / REFERENCE.name)
    for path in HERE.glob("mutants*.py"):
        shutil.copy(path, folder)


def entry_points() -> dict[str, str]:
    """Of every device of ``mutants*.py``, those whose fault is chosen by the environment included."""
    named = re.compile(r"^(?: {4})?(\w+) = (?:[A-Z]\w*|planted)\((?:\"|\))", re.MULTILINE)
    paths = sorted(HERE.glob("mutants*.py"))
    return {name: f"{name} = {p.stem}:{name}\n" for p in paths for name in named.findall(p.read_text())}


def late_cards() -> set[str]:
    """Those whose streams run late."""
    named = re.compile(r"^(\w+) = \w+\(\"\w+\", own=True", re.MULTILINE)
    return {name for path in HERE.glob("mutants*.py") for name in named.findall(path.read_text())}


def install(folder: Path, name: str, entry_points: str) -> None:
    """What an installer would leave about a package."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


def environment(folder: Path, **more: str) -> dict[str, str]:
    """That of this process, with a folder of packages, and this build, first on the path."""
    paths = [str(folder), str(Path(ts.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, paths)), COLUMNS="200", **more)


def conform(device: str, environment: dict[str, str], path: Path, *arguments: str) -> tuple[str, Any]:
    """Run the kit on a device; what it printed and found."""
    command = [sys.executable, "-m", "tesserack.testing.conform", device, "--json", str(path), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500)
    assert path.exists(), done.stdout + done.stderr
    found = json.loads(path.read_text())
    assert (done.returncode == 0) == (not [c for c in found["cases"] if c["outcome"] == "failed"]), done.stdout
    return done.stdout, found
