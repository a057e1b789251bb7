"""A simulated device, built from ``shadow.cpp`` and installed in a folder, with or without a planted fault."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts

HERE = Path(__file__).parent
HEADERS = HERE.parents[1] / "core" / "include"


def cpu_library() -> str:
    """Where the cpu backend's shared library is, as its package says."""
    (point,) = {p for p in entry_points(group="tesserack.backends") if p.name == "cpu"}
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
    info = folder / "shadow_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shadow-backend\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tesserack.backends]\nshadow = shadow_backend:library\n")
    paths = [str(folder), str(Path(ts.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return dict(
        os.environ,
        PYTHONPATH=os.pathsep.join(filter(None, paths)),
        SHADOW_OF=cpu_library(),
        COLUMNS="200",
    )


@pytest.fixture
def conform_shadow(shadow: dict[str, str], tmp_path: Path) -> Callable[..., tuple[str, Any]]:
    """Runs the kit on the device with a fault planted; returns what it printed and found."""

    def run(fault: str, *arguments: str) -> tuple[str, Any]:
        path = tmp_path / "results.json"
        command = [sys.executable, "-m", "tesserack.testing.conform", "shadow", "--json", str(path), *arguments]
        done = subprocess.run(
            command, env=dict(shadow, SHADOW_FAULT=fault), capture_output=True, text=True, timeout=900
        )
        assert path.exists(), done.stdout + done.stderr
        found = json.loads(path.read_text())
        assert (done.returncode == 0) == (not [c for c in found["cases"] if c["outcome"] == "failed"]), done.stdout
        return done.stdout, found

    return run
