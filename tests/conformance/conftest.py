"""A simulated device, built from ``shadow.cpp`` and installed in a folder, with or without a planted fault."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # faults
HEADERS = HERE.parents[1] / "core" / "include"
REFERENCE = HERE.parents[1] / "plugins" / "reference" / "tesserack_reference"


def cpu_library() -> str:
    """Where the cpu backend's shared library is, as its package says."""
    (point,) = {p for p in importlib.metadata.entry_points(group="tesserack.backends") if p.name == "cpu"}
    return str(point.load()())


@pytest.fixture(scope="session")
def shadow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process in which the device "shadow" is installed."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler to build the simulated device with")
    if ts.backends.why_unavailable("cpu"):
        pytest.skip("the simulated device computes with the cpu backend")
    folder = tmp_path_factory.mktemp("shadow")
    library = folder / "libshadow.so"
    options = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{HEADERS}"]
    subprocess.run([compiler, *options, str(HERE / "shadow.cpp"), "-ldl", "-o", str(library)], check=True)
    (folder / "shadow_backend.py").write_text(f"def library():\n    return {str(library)!r}\n")
    install(folder, "shadow_backend", "[tesserack.backends]\nshadow = shadow_backend:library\n")
    return environment(folder, SHADOW_OF=cpu_library())


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


@pytest.fixture
def conform_shadow(shadow: dict[str, str], tmp_path: Path) -> Callable[..., tuple[str, Any]]:
    """Runs the kit on the simulated device with a fault planted; returns what it printed and found."""

    def run(fault: str, *arguments: str) -> tuple[str, Any]:
        return conform("shadow", dict(shadow, SHADOW_FAULT=fault), tmp_path / "results.json", *arguments)

    return run


@pytest.fixture
def mutants(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """``mutants("healthy", "dying")``: the environment of a process in which these of ``mutants*.py`` are installed.
    More than are asked about would be looked at each time, too."""
    copy_mutants(tmp_path)
    points = entry_points()

    def installed(*names: str, **more: str) -> dict[str, str]:
        shutil.rmtree(tmp_path / "mutants-1.0.dist-info", ignore_errors=True)
        install(tmp_path, "mutants", f"[tesserack.backends]\n{''.join(points[name] for name in names)}")
        return environment(tmp_path, **more)

    return installed


@pytest.fixture
def conform_mutant(tmp_path: Path, mutants: Callable[..., dict[str, str]]) -> Callable[..., tuple[str, Any]]:
    """Runs the kit on one of the mutants, installed alone or ``beside`` another; returns what it printed and found."""

    def run(name: str, *arguments: str, beside: str = "", **more: str) -> tuple[str, Any]:
        installed = mutants(*filter(None, (name, beside)), **more)
        return conform(name, installed, tmp_path / "results.json", *arguments)

    return run


@pytest.fixture
def conform_late(tmp_path: Path) -> Callable[..., tuple[str, Any]]:
    """Runs the kit on the card of ``tests/plugins/late_backend.py``; returns what it printed and found."""
    shutil.copy(HERE.parent / "plugins" / "late_backend.py", tmp_path)
    (tmp_path / "late_device.py").write_text('from late_backend import Late\n\nlate = Late("late", own=True)\n')
    install(tmp_path, "late_device", "[tesserack.backends]\nlate = late_device:late\n")
    shutil.copytree(REFERENCE, tmp_path / REFERENCE.name)

    def run(*arguments: str) -> tuple[str, Any]:
        return conform("late", environment(tmp_path), tmp_path / "results.json", *arguments)

    return run
