"""What wheels are built for: a Python, here or on a system laid out in a folder, of this processor or another.

A system is named ``SUITE:ARCHITECTURE``, such as ``bookworm:arm64``; mmdebstrap lays Debian's into a folder, with its
newest Python, that Python's headers, and nothing configured. Its wheels are compiled here, by Debian's cross compiler
where the processor is another, against those headers, and tried there: in a chroot, under qemu where needed.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Target", "here", "lay_out", "openblas"]

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class Target:
    """A Python to build for, and the one here that drives the build."""

    driver: Path
    machine: str
    root: Path | None = None
    version: str = ""  # of the Python in the root, as 3.14

    @property
    def platform(self) -> str:
        """The name of its wheels' platform."""
        return f"manylinux_2_28_{self.machine}"

    @property
    def is_foreign(self) -> bool:
        """For another processor."""
        return self.machine != platform.machine()

    @property
    def compiler(self) -> str | None:
        """Another than what the driver asks for."""
        return f"{self.machine}-linux-gnu-g++" if self.is_foreign else None

    @property
    def tag(self) -> str | None:
        """The Python's part of a tag, where the driver's is another."""
        return f"cp{self.version.replace('.', '')}" if self.root else None

    def settings(self, scratch: Path) -> list[str]:
        """What CMake is told beyond what it finds out."""
        found = []
        if self.is_foreign:
            found += ["CMAKE_SYSTEM_NAME=Linux", f"CMAKE_SYSTEM_PROCESSOR={self.machine}"]
            found += [f"CMAKE_CXX_COMPILER={self.compiler}"]
        if self.root:
            suffix = f".cpython-{self.version.replace('.', '')}-{self.machine}-linux-gnu.so"
            found += [f"Python_INCLUDE_DIR={self._headers(scratch)}", f"PYTHON_MODULE_EXTENSION={suffix}"]
        return [f"cmake.define.{word}" for word in found]

    def _headers(self, scratch: Path) -> Path:
        """Python's headers alone, apart from that system's C library, which is newer or older than the compiler's."""
        assert self.root is not None
        name, triple = f"python{self.version}", f"{self.machine}-linux-gnu"
        folder = scratch / f"headers-{self.version}-{self.machine}" / name
        if not folder.exists():
            shutil.copytree(self.root / "usr/include" / name, folder)
            shutil.copytree(self.root / "usr/include" / triple / name, folder / triple / name)
        return folder

    def run(self, *words: str) -> str:
        """Run its Python there, as nobody's child: the environment is empty."""
        assert self.root is not None
        chroot = str(shutil.which("chroot"))
        command = [chroot, str(self.root)]
        if self.is_foreign:
            emulator = f"qemu-{self.machine}-static"
            shutil.copy(str(shutil.which(emulator)), self.root / emulator)
            command = [chroot, str(self.root), f"/{emulator}"]
        command += [f"/usr/bin/python{self.version}", *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={"PATH": "/usr/bin"})
        if done.returncode:
            sys.exit(f"{done.stdout}\n{' '.join(command)} failed")
        return done.stdout


def here(python: Path) -> Target:
    """For an interpreter of this machine."""
    return Target(python, platform.machine())


def lay_out(system: str, folder: Path, driver: Path) -> Target:
    """A system in a folder, made unless it is there."""
    suite, _, architecture = system.partition(":")
    root = folder / f"{suite}-{architecture}"
    if not root.exists():
        _debian(suite, architecture, root)
    newest = max(int(path.name.removeprefix("python3.")) for path in (root / "usr/include").glob("python3.*"))
    return Target(driver, MACHINES[architecture], root, f"3.{newest}")


def _debian(suite: str, architecture: str, root: Path) -> None:
    """The packages of a suite, from where this machine has its own."""
    needed = [name for name in ("mmdebstrap", "chroot") if not shutil.which(name)]
    if needed:
        sys.exit(f"release: {suite}:{architecture} needs {' and '.join(needed)}")
    source, keys = _mirror()
    base = ["mmdebstrap", "--quiet", "--variant=extract", f"--architectures={architecture}"]
    base += ['--aptopt=Acquire::Check-Valid-Until "false"']  # of a mirror that stands still; signatures are checked
    base += ['--aptopt=APT::Sandbox::User "root"']  # whoever fetches otherwise may not enter the folder
    packages = "base-files,libpython3-all-dev,python3-all,libstdc++6"
    line = f"deb [signed-by={keys}] {source} {suite} main"
    part = root.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    clean = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    subprocess.run([*base, f"--include={packages}", suite, str(part), line], check=True, env=clean)
    part.rename(root)


def _mirror() -> tuple[str, str]:
    """Address and keys of this machine's first source."""
    for path in sorted(Path("/etc/apt/sources.list.d").glob("*.sources")):
        first = path.read_text().strip().split("\n\n")[0]
        fields = dict(line.split(": ", 1) for line in first.splitlines() if ": " in line)
        if "debian" in fields.get("Signed-By", ""):
            return fields["URIs"].split()[0], fields["Signed-By"]
    sys.exit("release: /etc/apt/sources.list.d names no source of Debian's")


def openblas(target: Target, scratch: Path) -> list[str]:
    """OpenBLAS for another processor: what the backend's build would find installed for this one."""
    folder = scratch / f"openblas-{target.machine}"
    if not folder.exists():
        names = [f"--platform=manylinux_2_28_{target.machine}", f"--platform=manylinux2014_{target.machine}"]
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", *names]
        subprocess.run([*command, "-d", str(folder), "scipy-openblas32>=0.3.27"], check=True)
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    place = folder / "scipy_openblas32"
    found = {"LIBRARY": "lib/libscipy_openblas.so", "HEADER": "include/cblas.h"}
    return [f"cmake.define.OPENBLAS_{word}={place / name}" for word, name in found.items()]
