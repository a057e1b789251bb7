"""Scratch environments: packages written by hand into a folder that comes first on the path of a new process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import tesserack as ts

ROOT = Path(__file__).resolve().parents[2]
Library = Callable[..., Path]

# Variables of the developer's that would change what is tested.
OURS = ("TESSERACK_DEVICE", "TESSERACK_PLUGINS", "ACME_DEVICES")


class Site:
    """A folder of packages, and processes that see it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def package(
        self,
        distribution: str,
        body: str = "",
        *,
        backend: str = "",
        plugin: str = "",
        version: str = "1.5",
        metadata: str = "",
    ) -> Path:
        """Install a module named after the distribution, with entry points ``name = attribute``; returns its file."""
        module = distribution.replace("-", "_")
        file = self.folder / f"{module}.py"
        file.write_text(textwrap.dedent(body))
        info = self.folder / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n{metadata}")
        points = [f"[tesserack.backends]\n{backend} = {module}:library"] if backend else []
        points += [f"[tesserack.plugins]\n{plugin} = {module}"] if plugin else []
        (info / "entry_points.txt").write_text("\n".join(points) + "\n")
        return file

    def native(self, distribution: str, library: Path, name: str) -> Path:
        """Install a package whose entry point is the path of a library; returns the library's place in it."""
        own = self.folder / f"lib{distribution}.so"
        shutil.copy(library, own)
        self.package(distribution, f"library = {str(own)!r}", backend=name)
        return own

    def environment(self, **variables: str) -> dict[str, str]:
        """The environment of a process that sees the packages."""
        path = [str(self.folder), str(self._core_and_cpu())]
        kept = {name: value for name, value in os.environ.items() if name not in OURS}
        own = {"PYTHONPATH": os.pathsep.join(path), "XDG_CACHE_HOME": str(self.folder.parent / "cache")}
        return {**kept, **own, **variables}

    def _core_and_cpu(self) -> Path:
        """Where the two lie alone: a developer's tree holds more backends and plugins, and the tests count them."""
        folder = self.folder.parent / "core"
        folder.mkdir(exist_ok=True)
        for pattern in ("tesserack", "tesserack_cpu", "tesserack-*.dist-info", "tesserack_cpu-*.dist-info"):
            for found in Path(ts.__file__).parent.parent.glob(pattern):
                link = folder / found.name
                if not link.exists():
                    link.symlink_to(found)
        groups = ("tesserack.backends", "tesserack.plugins")
        for point in (point for group in groups for point in metadata.entry_points(group=group)):
            if point.dist is not None and point.name != "cpu":  # an empty package of the name hides what is installed
                hidden = folder / f"{point.dist.name.replace('-', '_')}-0.dist-info"
                hidden.mkdir(exist_ok=True)
                (hidden / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {point.dist.name}\nVersion: 0\n")
        return folder

    def start(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments."""
        return subprocess.run(
            [sys.executable, *command],
            env=self.environment(**variables),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def run(self, program: str, **variables: str) -> str:
        """What a program prints, with ``ts`` imported; it must end well."""
        prelude = "import tesserack as ts\nfrom tesserack import backends\n"
        done = self.start("-X", "faulthandler", "-c", prelude + textwrap.dedent(program), **variables)
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def cli(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the command line."""
        return self.start("-m", "tesserack", *arguments, **variables)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """An empty scratch environment on top of the tested one."""
    folder = tmp_path / "site"
    folder.mkdir()
    return Site(folder)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Builds acme.cpp: ``library("acme", "-DDEVICES=0")``; each variant once."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    folder = tmp_path_factory.mktemp("libraries")
    built: dict[tuple[str, ...], Path] = {}

    def build(name: str = "acme", *options: str) -> Path:
        if not any(option.startswith("-DDEVICES") for option in options):
            options = (*options, "-DDEVICES=2")
        key = (name, *options)
        if key not in built:
            out = folder / f"lib{len(built)}.so"
            common = ["-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{ROOT}/core/include"]
            source = str(ROOT / "tests" / "backends" / "acme.cpp")
            command = [compiler, *common, f'-DNAME="{name}"', *options, source, "-o", str(out)]
            subprocess.run(command, check=True, capture_output=True)
            built[key] = out
        return built[key]

    return build


@pytest.fixture
def acme(site: Site, library: Library) -> Site:
    """An environment with the backend ``acme``, two devices, from ``acme-pkg 1.5``."""
    site.native("acme-pkg", library("acme"), "acme")
    return site
