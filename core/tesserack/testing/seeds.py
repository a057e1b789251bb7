"""The seed of a run of tests: the same for all who test one commit, another one with the next.

A suite too long to be run whole each time takes the part whose turn it is. Which part follows from the seed, so that a
run can be repeated: ``pytest --tesserack-seed N`` chooses what the run with the seed N chose. ``FULL=1`` in the
environment leaves nothing out.

>>> some = turn(["add", "mul", "sin", "cos", "exp", "log"], 3)
>>> len(some) == (6 if full() else 2)
True
>>> generator("programs").randrange(100) == generator("programs").randrange(100)
True
"""

from __future__ import annotations

import os
import random
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

__all__ = ["begin", "full", "generator", "of_commit", "seed", "turn"]

_Case = TypeVar("_Case")
_of_run: int | None = None


def begin(given: int | None) -> None:
    """Set the seed of this run; None: that of the commit."""
    global _of_run
    _of_run = given


def seed() -> int:
    """The seed of this run, a number below 2^32."""
    global _of_run
    if _of_run is None:
        _of_run = of_commit(Path.cwd())
    return _of_run


def of_commit(folder: Path) -> int:
    """The first eight digits of the commit that is checked out there; outside of a repository, of this version.

    >>> of_commit(Path("/")) == of_commit(Path("/"))
    True
    """
    try:
        asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=folder)
    except OSError:  # no git
        return _of_version()
    return int(asked.stdout[:8], 16) if asked.returncode == 0 else _of_version()


def _of_version() -> int:
    import tesserack

    return zlib.crc32(tesserack.__version__.encode())


def full() -> bool:
    """Whether nothing is to be left out: ``FULL=1``."""
    return os.environ.get("FULL", "") not in ("", "0")


def turn(cases: Sequence[_Case], share: int) -> list[_Case]:
    """Those whose turn it is, one of ``share``; all of them in a full run."""
    chosen = seed() % share
    return [case for k, case in enumerate(cases) if k % share == chosen or full()]


def generator(name: str) -> random.Random:
    """Draws for one suite: the same in each run with this seed."""
    return random.Random(f"{seed()}:{name}")
