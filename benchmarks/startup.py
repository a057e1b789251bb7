"""Time what a process costs before it computes: imports, with and without plugins, and the command line.

The commands are started in turn, a few rounds; the medians are printed, less what an empty program takes.

    python benchmarks/startup.py
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 11
PLUGINS = 20
COMMANDS = {
    "nothing": ("-c", "pass"),
    "import tesserack": ("-c", "import tesserack"),
    "import tesserack, a first sum": ("-c", "import tesserack; tesserack.ones(3).sum().item()"),
    "tesserack --help": ("-m", "tesserack", "--help"),
    "import numpy": ("-c", "import numpy"),
    "import torch": ("-c", "import torch"),
}


def install_plugins(folder: Path) -> None:
    """Packages that bring a backend and a plugin each; neither is imported by the commands."""
    for k in range(PLUGINS):
        (folder / f"plugin_{k}.py").write_text("def tesserack_commands(subparsers): pass\n")
        info = folder / f"plugin_{k}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: plugin-{k}\nVersion: 1.0\n")
        groups = f"[tesserack.backends]\ndev{k} = plugin_{k}\n[tesserack.plugins]\nplug{k} = plugin_{k}\n"
        (info / "entry_points.txt").write_text(groups)


def measure(command: tuple[str, ...], environment: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *command], env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main() -> None:
    """Print one line for each command, without plugins and beside them."""
    with tempfile.TemporaryDirectory() as folder:
        install_plugins(Path(folder))
        environments = {"": {**os.environ}, f", {PLUGINS} plugins": {**os.environ, "PYTHONPATH": folder}}
        times: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            for suffix, environment in environments.items():
                for name, command in COMMANDS.items():
                    if not suffix or "tesserack" in name:
                        times.setdefault(name + suffix, []).append(measure(command, environment))
    empty = statistics.median(times.pop("nothing"))
    print(f"an empty program: {empty:.3f} s; the others, less that:")
    for name, values in times.items():
        print(f"{statistics.median(values) - empty:8.3f} s  {name}")


if __name__ == "__main__":
    main()
