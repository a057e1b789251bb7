"""Build the source distributions and the wheels for every Python that is installed, and try them out.

``python tools/wheels.py OUT`` packs both source distributions and checks that they hold every source; builds one wheel
of the cpu backend and one of the core per Python version into ``OUT``, from the objects of ``make build`` if they are
there; checks sizes, tags and symbols; installs each pair into a fresh environment and runs ``tools/smoke.py`` there.
One wheel each of kernelgen, opencl and cuda is tried with the last Python: opencl computes where a platform works, and
cuda, installed without CuPy, says what it lacks.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from archives import normalize
from dev_build import CPU, ROOT, STALE, reuse_objects

WHEELS = ROOT / "build" / "wheel"
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
MEGABYTE = 1 << 20
# What authors of backends build with: see tesserack.get_include(), cmake_dir() and new-backend.
FOR_AUTHORS = (
    "tesserack/include/tesserack/abi.h",
    "tesserack/include/tesserack/backend.hpp",
    "tesserack/include/tesserack/slots.hpp",
    "tesserack/include/tesserack/table.hpp",
    "tesserack/cmake/tesserackConfig.cmake",
    "tesserack/cmake/exports.map",
    "tesserack/cli/templates/common/gitignore.in",
    "tesserack/cli/templates/native/README.md.in",
    "tesserack/cli/templates/native/native/backend.cpp.in",
    "tesserack/cli/templates/python/package/__init__.py.in",
)
# The newest of manylinux_2_28's libstdc++; releases bring what is newer in old_glibc.cpp.
NEWEST = {"GLIBCXX": (3, 4, 25), "CXXABI": (1, 3, 11)}
# A little over what they take, so that growth is seen: half of the core's are libraries, the rest Python. The
# cpu card's kernels are there three times, once for each instruction set: an eighth of a megabyte past 3 came with
# small matrices factored many at a time, maxima without places and transposes by lines; the core's last eighth with
# numbers in traced graphs, and what calls within compiled programs may change.
LIMITS = {"tesserack": 4 * MEGABYTE + MEGABYTE // 8, "tesserack_cpu": 4 * MEGABYTE}
GENERATED = {"kernelgen": ROOT / "plugins" / "kernelgen", **{n: ROOT / "backends" / n for n in ("opencl", "cuda")}}
TRY_GENERATED = """
import tesserack as ts
for name in ("opencl", "cuda"):
    reason = ts.backends.why_unavailable(name)
    print(f"{name}: {reason or 'works'}")
    assert not reason or "unknown" not in reason, reason
    if not reason:
        x = ts.arange(6.0, device=name).reshape(2, 3)
        assert (x @ x.t() + 1).softmax(1).sum().item() == 2 and not ts.backends.fallbacks()
"""
PACK = "import sys, scikit_build_core.build as b; print(b.build_sdist(sys.argv[1]))"


def run(*command: object, cwd: Path = ROOT) -> str:
    """Run a command, show its errors, and return what it printed."""
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, cwd=cwd, stdout=subprocess.PIPE, text=True).stdout


def pythons() -> list[Path]:
    """One interpreter of each supported version, where there is one: pyenv's, else the one on the path."""
    found, absent = [], []
    for version in VERSIONS:
        installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        on_path = shutil.which(f"python{version}")
        if installed:
            found.append(installed[-1])
        elif on_path:
            found.append(Path(on_path))
        else:
            absent.append(version)
    if absent:
        print(f"not installed here, so not tried: Python {', '.join(absent)}", flush=True)
    return found or [Path(sys.executable)]


def check_sdist(project: Path, out: Path, *sources: str) -> None:
    """Pack a project's source distribution: it holds every file of the checkout under ``sources``, and no library."""
    archive = out / run(sys.executable, "-c", PACK, out, cwd=project).split()[-1]
    print(f"{archive.name}: {archive.stat().st_size / MEGABYTE:.2f} MB", flush=True)
    listed = run("tar", "-tzf", archive).splitlines()
    packed = {name.partition("/")[2] for name in listed}
    missing = sorted({*run("git", "ls-files", *sources, cwd=project).splitlines()} - packed)
    if missing or any(name.endswith(".so") for name in packed):
        sys.exit(f"{archive.name} lacks {missing}, or has a library")


def build_wheel(python: Path, project: Path, out: Path, *settings: str) -> Path:
    """Build a wheel, isolated, and return its path; ``pack`` is yet to come."""
    build = WHEELS / project.name
    # What configuring left belongs to the last Python and its environment; the objects of the core are for all.
    for stale in STALE:
        (build / stale).unlink(missing_ok=True)
    options = [word for setting in (f"build-dir={build}", *settings) for word in ("--config-settings", setting)]
    with tempfile.TemporaryDirectory(dir=out) as fresh:
        run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", *options, "-w", fresh, project)
        (built,) = Path(fresh).glob("*.whl")
        return built.replace(out / built.name)


def pack(wheel: Path) -> Path:
    """Compress a wheel as it is published."""
    return normalize(wheel, int(os.environ.get("SOURCE_DATE_EPOCH", 0)))


def check_wheel(wheel: Path) -> None:
    """Size, tag, and for the core the absence of Python in its library."""
    name = wheel.name.split("-")[0]
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / MEGABYTE:.2f} MB, limit {LIMITS[name] / MEGABYTE:.2f}", flush=True)
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
    """No symbol of Python is defined or wanted; a backend exports its entry point and version."""
    listing = subprocess.run(["nm", "-D", library], check=True, capture_output=True, text=True).stdout
    symbols = [(line.split()[-2], line.split()[-1]) for line in listing.splitlines()]
    python = sorted(name for _, name in symbols if name.startswith(("Py", "_Py")))
    if python:
        sys.exit(f"{library.name} has Python symbols: {' '.join(python[:5])}")
    exported = sorted(name for kind, name in symbols if kind not in "Uwv")
    missing = {"tesserack_backend", "tesserack_abi"}.difference(exported)
    if library.name == "libtesserack_cpu.so" and missing:
        sys.exit(f"{library.name} does not export {' and '.join(sorted(missing))}")
    too_new = newer_than_published(listing)
    if too_new:
        sys.exit(f"{library.name} wants what manylinux_2_28 does not have: {' '.join(too_new)}")
    print(f"{library.name}: {len(exported)} symbols exported, none of Python", flush=True)


def newer_than_published(listing: str) -> list[str]:
    """Of the output of ``nm -D``, what is wanted of a newer libstdc++ and not brought along in releases."""
    brought = set(re.findall(r'__asm__\("(\w+)"\)', (ROOT / "tools" / "old_glibc.cpp").read_text()))
    wanted = re.findall(r" U (\w+)@+(GLIBCXX|CXXABI)_([\d.]+)$", listing, re.MULTILINE)
    return sorted(
        name
        for name, library, version in wanted
        if tuple(map(int, version.split("."))) > NEWEST[library] and name not in brought
    )


def try_out(python: Path, wheels: list[Path], folder: Path) -> None:
    """Install the wheels into a fresh environment and run the smoke test there."""
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", folder)
    there = folder / "bin" / "python"
    run(there, "-m", "pip", "install", "--quiet", *wheels)
    print(run(there, ROOT / "tools" / "smoke.py", cwd=folder), end="", flush=True)
    shutil.rmtree(folder)


def build_generated(out: Path) -> dict[str, Path]:
    """The wheels of the generator and of the backends on it."""
    wheels = {}
    for name, project in GENERATED.items():
        with tempfile.TemporaryDirectory(dir=out) as fresh:
            run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", fresh, project)
            (built,) = Path(fresh).glob("*.whl")
            wheels[name] = built.replace(out / built.name)
        print(f"{built.name}: {wheels[name].stat().st_size / MEGABYTE:.2f} MB", flush=True)
        if "-py3-none-" not in built.name:
            sys.exit(f"{built.name} should serve every Python: py3-none")
    return wheels


def try_generated(python: Path, core: Path, cpu: Path, wheels: dict[str, Path], folder: Path) -> None:
    """Install the generator and the backends on it, and use what there is."""
    run(python, "-m", "venv", folder)
    there = folder / "bin" / "python"
    run(there, "-m", "pip", "install", "--quiet", core, cpu, wheels["kernelgen"], wheels["opencl"])
    run(there, "-m", "pip", "install", "--quiet", "--no-deps", wheels["cuda"])
    print(run(there, "-c", TRY_GENERATED, cwd=folder), end="", flush=True)
    shutil.rmtree(folder)


def finish(trials: list[Future[None]]) -> None:
    """What went wrong in one of these goes wrong here."""
    for trial in trials:
        trial.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", default="build/wheels", type=Path, help="what is in it goes; build/wheels")
    out = parser.parse_args().out.resolve()
    if out == ROOT or out in ROOT.parents:
        parser.error(f"expected a folder of its own, which is emptied, got {out}")
    for folder in (out, WHEELS):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    # The CMake of `make build`: another writes other commands, and everything would be compiled again.
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    interpreters = pythons()
    check_sdist(ROOT, out, "core", "cmake", "CMakeLists.txt", "pyproject.toml")
    check_sdist(CPU, out, "native", "tesserack_cpu", "CMakeLists.txt", "pyproject.toml")
    for project, built in ((ROOT, "core-*"), (CPU, "cpu-*")):
        for folder in sorted((ROOT / "build").glob(built), key=lambda f: f.stat().st_mtime)[-1:]:
            reuse_objects(WHEELS / project.name, folder)
    # One after another in a thread of their own, beside the building of the next: these are work for one processor.
    with ThreadPoolExecutor(1) as beside:
        # For every processor, not only this one.
        cpu_wheel = build_wheel(interpreters[-1], CPU, out, "cmake.define.TESSERACK_CPU_ISA=all")

        def check_and_try(python: Path, core_wheel: Path) -> None:
            check_wheel(pack(core_wheel))
            try_out(python, [core_wheel, cpu_wheel], out / "venv")

        trials = [beside.submit(lambda: check_wheel(pack(cpu_wheel)))]
        for python in interpreters:
            core_wheel = build_wheel(python, ROOT, out, "cmake.define.TESSERACK_TESTS=OFF")
            trials.append(beside.submit(check_and_try, python, core_wheel))
            finish([trial for trial in trials if trial.done()])
        generated = build_generated(out)
        finish(trials)
    try_generated(interpreters[-1], core_wheel, cpu_wheel, generated, out / "venv")
    print(f"wheels passed on {len(interpreters)} Python versions")


if __name__ == "__main__":
    main()
