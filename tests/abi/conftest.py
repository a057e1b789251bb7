"""Plugins compiled from every header that landed, and processes that load them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tesserack as ts

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # abi_headers

import abi_headers as headers  # noqa: E402

# Structs that begin with their own size; the two others are fixed for the life of a major version.
GROWING = ("ts_program", "ts_tensor", "ts_call", "ts_kernel", "ts_properties", "ts_backend", "ts_host")


def grown(header: str) -> str:
    """A header of a later minor version: every struct that may grow has one field more."""
    for name in GROWING:
        end = rf"(struct {name} \{{.*?)(\n\}})"
        header, count = re.subn(end, r"\1\n  uint64_t appended;\2", header, count=1, flags=re.DOTALL)
        assert count == 1, name
    return header


@pytest.fixture(scope="session")
def compiler() -> str:
    """A C and C++ compiler."""
    found = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if found is None:
        pytest.skip("needs a compiler")
    return found


Build = Callable[..., Path]


def variants() -> dict[str, str]:
    """Headers by the names that ``build`` takes: every kept one's, and what is made of them."""
    today = (Path(ts.get_include()) / "tesserack" / "abi.h").read_text()
    major = headers.version(today)[0]
    all_of_major = [text for text in (*headers.kept().values(), today) if headers.version(text)[0] == major]
    later = today.replace(f"#define TS_ABI_MAJOR {major}", f"#define TS_ABI_MAJOR {major + 1}")
    made = {"released": all_of_major[0], "today": today, "grown": grown(today), "later major": later}
    return {**headers.kept(), **made}


@pytest.fixture(scope="session")
def build(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """``build("plugin.c", "-DMAJOR=7", header="grown")`` compiles one variant, once a session.

    The header is the first of today's major unless it is named.
    """
    folder = tmp_path_factory.mktemp("abi")
    for name, text in variants().items():
        target = folder / name / "tesserack"
        target.mkdir(parents=True)
        (target / "abi.h").write_text(text)
    built: dict[tuple[str, ...], Path] = {}

    def run(source: str, *options: str, header: str = "released") -> Path:
        key = (source, header, *options)
        if key not in built:
            shared = [] if source == "future_core.c" else ["-shared"]
            out = folder / f"{len(built)}-{Path(source).stem}"
            flags = ["-xc", "-std=c11", "-Wall", "-Wextra", "-Wno-unused-function", "-Werror", "-O1", "-fPIC", *shared]
            command = [compiler, *flags, f"-I{folder / header}", *options, str(HERE / source), "-o", str(out), "-ldl"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            built[key] = out
        return built[key]

    return run


@pytest.fixture
def load() -> Callable[..., str]:
    """What a process prints that loads a library as the device ``elder`` and runs a program after it."""

    def run(library: Path, program: str = "") -> str:
        prelude = (
            "import tesserack as ts\n"
            f"try:\n    ts._native._load_backend({str(library)!r}, '', 'elder-pkg 1.0')\n"
            "except RuntimeError as error:\n    print('error', error)\n"
            "else:\n    print('loaded')\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(Path(ts.__file__).parent.parent)}
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", prelude + program],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
