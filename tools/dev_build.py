"""Build the core and the cpu backend with CMake alone into one folder that Python can run from.

``python tools/dev_build.py BUILD`` leaves ``BUILD/py`` with both packages and the backend's entry point, and a virtual
environment, ``BUILD/venv/bin/python``, that runs this build with the packages of the calling Python, but not with
a Tesserack installed there. Used for sanitizer builds, for builds with other options, and to keep several builds of one
checkout apart.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CPU = ROOT / "backends" / "cpu"
STALE = ("CMakeCache.txt", ".skbuild-info.json")  # what configuring leaves: it belongs to one folder and one Python

CPU_ENTRY_POINTS = "[tesserack.backends]\ncpu = tesserack_cpu:library\n"
CORE_ENTRY_POINTS = "[pytest11]\ntesserack.testing.pytest_plugin = tesserack.testing.pytest_plugin\n"


def cmake(source: Path, build: Path, options: list[str], jobs: int) -> None:
    """Configure and build one CMake project."""
    pythons = [f"Python_EXECUTABLE={sys.executable}", f"Python3_EXECUTABLE={sys.executable}"]
    # The compiler that an installation takes, by the same name: its objects can be reused.
    compiler = os.environ.get("CXX") or str(sysconfig.get_config_var("CXX") or "g++").split()[0]
    defines = [f"-D{option}" for option in (*pythons, f"CMAKE_CXX_COMPILER={compiler}", *options)]
    subprocess.run(["cmake", "-S", source, "-B", build, "-G", "Ninja", "-Wno-dev", *defines], check=True)
    subprocess.run(["cmake", "--build", build, "-j", str(jobs)], check=True)


def reuse_objects(build: Path, other: Path) -> None:
    """Begin a new build folder as a copy of another of the same sources: what differs is compiled again."""
    if build.exists() or not other.exists():
        return
    shutil.copytree(other, build, symlinks=True)
    for stale in STALE:
        (build / stale).unlink(missing_ok=True)


def onoff(value: bool) -> str:
    """CMake's word for a truth value."""
    return "ON" if value else "OFF"


def link(target: Path, at: Path) -> None:
    """Make ``at`` a symbolic link to ``target``, replacing what was there."""
    at.parent.mkdir(parents=True, exist_ok=True)
    at.unlink(missing_ok=True)
    at.symlink_to(target)


def link_installed_core(tree: Path) -> None:
    """Lay the core that this Python has installed into ``tree``: its two libraries beside the Python sources."""
    spec = importlib.util.find_spec("tesserack._native")
    if spec is None or spec.origin is None:
        sys.exit(f"--installed-core: {sys.executable} has no tesserack installed; run make build")
    extension = Path(spec.origin)
    for entry in (ROOT / "core" / "tesserack").iterdir():
        if entry.name not in ("lib", "__pycache__") and entry.suffix != ".so":
            link(entry, tree / "tesserack" / entry.name)
    link(extension, tree / "tesserack" / extension.name)
    link(extension.parent / "lib", tree / "tesserack" / "lib")


def installed_cpu_library() -> Path:
    """The library of the cpu backend that this Python has installed."""
    done = subprocess.run(
        [sys.executable, "-c", "import tesserack_cpu; print(tesserack_cpu.library())"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"--installed-cpu: {sys.executable} has no tesserack-cpu installed; run make build")
    return Path(done.stdout.strip())


def assemble_cpu(library: Path, tree: Path) -> None:
    """Lay the cpu backend's package and its entry point into ``tree``, as an installer would."""
    link(library.resolve(), tree / "tesserack_cpu" / library.name)
    for file in (CPU / "tesserack_cpu").iterdir():
        if file.suffix == ".py" or file.name == "py.typed":
            link(file, tree / "tesserack_cpu" / file.name)
    write_metadata(tree, "tesserack-cpu", CPU_ENTRY_POINTS)


def write_metadata(tree: Path, name: str, entry_points: str) -> None:
    """What an installer would leave about a distribution, so that its entry points are found."""
    info = tree / f"{name.replace('-', '_')}-0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
    (info / "entry_points.txt").write_text(entry_points)


def make_environment(folder: Path, tree: Path) -> Path:
    """A virtual environment that sees ``tree`` and this Python's packages, but runs none of their import hooks."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, symlinks=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    Path(packages, "tesserack_dev.pth").write_text(f"{tree}\n{sysconfig.get_path('purelib')}\n")
    return python


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path, help="folder to build in")
    parser.add_argument("--sanitize", action="store_true", help="with AddressSanitizer and UndefinedBehaviorSanitizer")
    parser.add_argument("--sanitize-threads", action="store_true", help="the core with ThreadSanitizer")
    parser.add_argument("--no-onednn", action="store_true", help="build the cpu backend without oneDNN")
    parser.add_argument("--no-openblas", action="store_true", help="build the cpu backend without OpenBLAS")
    parser.add_argument("--isa", choices=("native", "all"), default="native", help="its instruction sets")
    parser.add_argument("--installed-core", action="store_true", help="take this Python's core, build the backend only")
    parser.add_argument("--installed-cpu", action="store_true", help="take this Python's cpu backend, build the core")
    parser.add_argument("--reuse-cpu", type=Path, metavar="BUILD", help="begin with the objects of this cpu build")
    parser.add_argument("--tests", action="store_true", help="build the C++ unit tests too")
    parser.add_argument("--core-only", action="store_true", help="leave the cpu backend out")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    build = arguments.build.resolve()
    tree = build / "py"
    sanitize, tests = onoff(arguments.sanitize), onoff(arguments.tests)
    if arguments.installed_core:
        link_installed_core(tree)
    else:
        core_sanitize = "thread" if arguments.sanitize_threads else sanitize
        core = [f"TESSERACK_SANITIZE={core_sanitize}", f"TESSERACK_TESTS={tests}", f"TESSERACK_PACKAGE_TREE={tree}"]
        cmake(ROOT, build / "core", core, arguments.jobs)
    write_metadata(tree, "tesserack", CORE_ENTRY_POINTS)
    if arguments.installed_cpu:
        assemble_cpu(installed_cpu_library(), tree)
    elif not arguments.core_only:
        cpu = [
            f"TESSERACK_CPU_SANITIZE={sanitize}",
            f"TESSERACK_CPU_ISA={arguments.isa}",
            f"TESSERACK_CPU_ONEDNN={onoff(not arguments.no_onednn)}",
            f"TESSERACK_CPU_OPENBLAS={onoff(not arguments.no_openblas)}",
        ]
        if arguments.reuse_cpu:
            reuse_objects(build / "cpu", arguments.reuse_cpu)
        cmake(CPU, build / "cpu", cpu, arguments.jobs)
        assemble_cpu(next((build / "cpu").rglob("libtesserack_cpu.so")), tree)
    print(make_environment(build / "venv", tree))


if __name__ == "__main__":
    main()
