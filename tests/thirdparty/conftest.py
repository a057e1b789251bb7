"""Environments with packages of simulated vendors, laid out by hand as pip would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import tesserack as ts
from tesserack.cli.new_backend import write
from tesserack.utils import cpp_extension

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
OURS = ("TESSERACK_DEVICE", "TESSERACK_PLUGINS", "TESSERACK_FALLBACK")


class Environment:
    """A folder of installed packages, and processes that see them besides what is here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, project: Path, library: Path | None = None) -> None:
        """Install a project's packages and metadata; a native one's library goes into its package."""
        told = tomllib.loads((project / "pyproject.toml").read_text())["project"]
        for package in [*project.glob("tesserack_*"), *project.glob("src/tesserack_*")]:
            shutil.copytree(package, self.folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
            if library is not None:
                shutil.copy(library, self.folder / package.name / f"lib{package.name}.so")
        self.metadata(told["name"], told["version"], told["entry-points"]["tesserack.backends"])

    def metadata(self, name: str, version: str, backends: dict[str, str]) -> None:
        """What an installer leaves about a distribution."""
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        points = "".join(f"{device} = {value}\n" for device, value in backends.items())
        (info / "entry_points.txt").write_text(f"[tesserack.backends]\n{points}")

    def module(self, distribution: str, device: str, body: str) -> None:
        """Install a distribution of one module, whose entry point is ``library``."""
        module = distribution.replace("-", "_")
        (self.folder / f"{module}.py").write_text(textwrap.dedent(body))
        self.metadata(distribution, "0.1", {device: f"{module}:library"})

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments."""
        path = os.pathsep.join((str(self.folder), str(Path(ts.__file__).parent.parent)))
        kept = {name: value for name, value in os.environ.items() if name not in OURS}
        return subprocess.run(
            [sys.executable, "-X", "faulthandler", *command],
            env={**kept, "PYTHONPATH": path},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )

    def script(self, *parts: str) -> str:
        """What a program prints, given in parts; it must end well."""
        done = self.run("-c", "\n".join(("import tesserack as ts", *map(textwrap.dedent, parts))))
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An empty one."""
    folder = tmp_path / "site"
    folder.mkdir()
    return Environment(folder)


Skeleton = Callable[..., Path]


@pytest.fixture(scope="session")
def skeleton(tmp_path_factory: pytest.TempPathFactory) -> Skeleton:
    """``skeleton("zeta", native=True)``: the folder of a package that was just written.

    It lies where it lay the last time, unless it changed: compilers are slow, and what they made is kept.
    """

    def make(name: str, native: bool) -> Path:
        fresh = tmp_path_factory.mktemp(name) / name
        written = write(name, fresh, native=native)
        kept = ROOT / "build" / "skeletons" / f"{name}-{'native' if native else 'python'}"
        pairs = [(file, kept / file.relative_to(fresh)) for file in written]
        if not all(old.exists() and old.read_bytes() == new.read_bytes() for new, old in pairs):
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(fresh, kept)
        return kept

    return make


@pytest.fixture(scope="session")
def compiled() -> Callable[[str, list[Path]], Path]:
    """Compiles sources into a library."""
    try:
        cpp_extension.find_compiler()
    except cpp_extension.CompileError as error:
        pytest.skip(str(error))

    def build(name: str, sources: list[Path], *flags: str) -> Path:
        return cpp_extension.load(name, sorted(sources), flags, build_directory=ROOT / "build", is_backend=False)

    return build


@pytest.fixture
def zeta(environment: Environment, skeleton: Skeleton, compiled: Callable[..., Path]) -> Environment:
    """With the vendor zeta's package: its own runtime, and the skeleton's kernels."""
    project = HERE / "zeta_native"
    kernels = [f for f in (skeleton("zeta", native=True) / "native").glob("*.cpp") if f.name != "backend.cpp"]
    environment.install(project, compiled("tesserack_zeta", [*kernels, project / "native" / "backend.cpp"]))
    return environment
