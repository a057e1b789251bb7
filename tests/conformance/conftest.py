"""A simulated device, built from ``shadow.cpp`` and installed in a folder, with or without a planted fault."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # cards, faults
HEADERS = HERE.parents[1] / "core" / "include"

from cards import REFERENCE, conform, copy_mutants, cpu_library, entry_points, environment, install  # noqa: E402


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
