"""Build the wheels for every Python that is installed, check them, and try them out.

``python tools/wheels.py OUT`` builds one wheel of the cpu backend and one of the core per Python version into ``OUT``,
checks sizes, tags and symbols, installs each pair into a fresh environment and runs ``tools/smoke.py`` there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
MEGABYTE = 1 << 20
# What authors of backends build with: see tesserack.get_include(), cmake_dir() and new-backend.
FOR_AUTHORS = (
    "tesserack/include/tesserack/abi.h",
    "tesserack/include/tesserack/backend.hpp",
    "tesserack/include/tesserack/table.hpp",
    "tesserack/cmake/tesserackConfig.cmake",
    "tesserack/cmake/exports.map",
    "tesserack/cli/templates/common/gitignore.in",
    "tesserack/cli/templates/native/README.md.in",
    "tesserack/cli/templates/native/native/backend.cpp.in",
    "tesserack/cli/templates/python/package/__init__.py.in",
)
LIMITS = {"tesserack": 6 * MEGABYTE, "tesserack_cpu": 12 * MEGABYTE}


def pythons() -> list[Path]:
    """One interpreter of each supported version: pyenv's, else the one on the path."""
    found = []
    for version in VERSIONS:
        installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        on_path = shutil.which(f"python{version}")
        if installed:
            found.append(installed[-1])
        elif on_path:
            found.append(Path(on_path))
    return found or [Path(sys.executable)]


def build_wheel(python: Path, project: Path, out: Path) -> Path:
    """Build a project's wheel, isolated, and return its path."""
    with tempfile.TemporaryDirectory(dir=out) as fresh:
        # A build folder of its own: the editable install's keeps its paths.
        build = f"build-dir={ROOT}/build/wheel-{project.name}-{{wheel_tag}}"
        command = [
            python,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--config-settings",
            build,
            "-w",
            fresh,
            project,
        ]
        subprocess.run([str(word) for word in command], check=True)
        (built,) = Path(fresh).glob("*.whl")
        return built.replace(out / built.name)


def check_wheel(wheel: Path) -> None:
    """Size, tag, and for the core the absence of Python in its library."""
    name = wheel.name.split("-")[0]
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / MEGABYTE:.2f} MB, limit {LIMITS[name] // MEGABYTE}", flush=True)
    if size > LIMITS[name]:
        sys.exit(f"{wheel.name} is too large")
    if name == "tesserack_cpu" and not wheel.name.endswith("-py3-none-linux_x86_64.whl"):
        sys.exit(f"{wheel.name} should serve every Python: py3-none-linux_x86_64")
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        missing = set(FOR_AUTHORS) - {*archive.namelist()} if name == "tesserack" else set()
        if missing:
            sys.exit(f"{wheel.name} lacks {', '.join(sorted(missing))}")
        for member in archive.namelist():
            if Path(member).name in ("libtesserack.so", "libtesserack_cpu.so"):
                check_symbols(Path(archive.extract(member, folder)))


def check_symbols(library: Path) -> None:
    """No symbol of Python is defined or wanted; a backend exports its one entry point."""
    listing = subprocess.run(["nm", "-D", library], check=True, capture_output=True, text=True).stdout
    symbols = [(line.split()[-2], line.split()[-1]) for line in listing.splitlines()]
    python = sorted(name for _, name in symbols if name.startswith(("Py", "_Py")))
    if python:
        sys.exit(f"{library.name} has Python symbols: {' '.join(python[:5])}")
    exported = sorted(name for kind, name in symbols if kind not in "Uwv")
    if library.name == "libtesserack_cpu.so" and "tesserack_backend" not in exported:
        sys.exit(f"{library.name} does not export tesserack_backend")
    print(f"{library.name}: {len(exported)} symbols exported, none of Python", flush=True)


def try_out(python: Path, wheels: list[Path], folder: Path) -> None:
    """Install the wheels into a fresh environment and run the smoke test there."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", folder], check=True)
    there = folder / "bin" / "python"
    subprocess.run([there, "-m", "pip", "install", "--quiet", *wheels], check=True)
    subprocess.run([there, ROOT / "tools" / "smoke.py"], check=True, cwd=folder)
    shutil.rmtree(folder)


def main() -> None:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "build/wheels").resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    interpreters = pythons()
    cpu = build_wheel(interpreters[-1], ROOT / "backends" / "cpu", out)
    check_wheel(cpu)
    for python in interpreters:
        core = build_wheel(python, ROOT, out)
        check_wheel(core)
        try_out(python, [core, cpu], out / "venv")
    print(f"wheels passed on {len(interpreters)} Python versions")


if __name__ == "__main__":
    main()
