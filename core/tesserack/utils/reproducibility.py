"""What a run depended on, written down: versions, devices, seeds, switches, environment and the state of the code."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import tesserack as ts

__all__ = ["describe_run", "log_run"]

_VARIABLES = (
    *("TESSERACK_", "OMP_", "GOMP_", "KMP_", "OPENBLAS_", "MKL_"),
    *("PYTHONHASHSEED", "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "SLURM_JOB_ID", "RANK", "WORLD_SIZE"),
)
_SECONDS = 20


def log_run(path: str | os.PathLike[str], **notes: Any) -> dict[str, Any]:
    """Write :func:`describe_run` to a JSON file, with notes of one's own, such as ``arguments=vars(args)``; returns it.

    ``TypeError`` for notes that JSON cannot hold, ``OSError`` if the file cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = log_run(f"{folder}/run.json", learning_rate=0.1)
    >>> run["notes"], run["seeds"]["tesserack"] == ts.initial_seed()
    ({'learning_rate': 0.1}, True)
    """
    run = {**describe_run(), "notes": notes}
    text = json.dumps(run, indent=1)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text + "\n", encoding="utf-8")
    return run


def describe_run(code: Path | None = None) -> dict[str, Any]:
    """Plain data: ``time command versions packages devices seeds switches environment git``. ``code``: a folder of the
    repository to tell of; that of the program unless given.

    Devices are those of backends loaded by now; none is loaded for the purpose.
    """
    return {
        "format": 1,
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": [sys.executable, *sys.argv],
        "folder": str(Path.cwd()),
        "versions": {
            "tesserack": ts.__version__,
            "python": platform.python_version(),
            "system": platform.platform(),
            "machine": platform.machine(),
        },
        "packages": dict(sorted({d.name: d.version for d in metadata.distributions() if d.name}.items())),
        "devices": _devices(),
        "seeds": {"tesserack": ts.initial_seed(), "python_hash": os.environ.get("PYTHONHASHSEED", "random")},
        "switches": {
            "deterministic_algorithms": ts.are_deterministic_algorithms_enabled(),
            "float32_matmul_precision": ts.get_float32_matmul_precision(),
            "default_dtype": str(ts.get_default_dtype()).rpartition(".")[2],
            "threads": ts.get_num_threads(),
        },
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(_VARIABLES)},
        "git": _git(code or Path(sys.argv[0] or "-").resolve().parent),
    }


def _devices() -> dict[str, Any]:
    """Of each loaded backend: its version, and the names of its devices."""
    found = {}
    for name in ts.backends.list():
        info = ts.backends.get(name, load=False)
        if info.status == "ready":
            names = [ts.backends.properties(f"{name}:{k}")["name"] for k in range(info.device_count or 0)]
            found[name] = {"version": info.version, "package": info.package, "devices": names}
    return found


def _git(folder: Path) -> dict[str, Any] | None:
    """Of the folder's repository: the commit, and a digest of what differs from it; None if there is none."""
    commit = _ask(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _ask(folder, "status", "--porcelain") or ""
    difference = _ask(folder, "diff", "HEAD") or ""
    return {
        "commit": commit,
        "branch": _ask(folder, "rev-parse", "--abbrev-ref", "HEAD"),
        "clean": not changes,
        "changed": [line[3:] for line in changes.splitlines()],
        "diff_sha256": hashlib.sha256(difference.encode()).hexdigest() if difference else None,
    }


def _ask(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, errors="replace", timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.rstrip("\n") if done.returncode == 0 else None
