"""Whether a native library is whole, found out before its code runs in this process.

What an installer wrote down (``RECORD``, see the specification of installed projects) is compared with the file. A
library of which nothing is written down, such as one just compiled, is first loaded by a process that may die of it;
one that survived is remembered by its time and size.
"""

from __future__ import annotations

import base64
import csv
import os
import signal
import sys
from pathlib import Path

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = ["check", "difference"]

LARGEST = 1 << 28  # bytes that are read each time a backend is loaded: about 0.2 s
_TIMEOUT = 60.0  # seconds
_REHEARSAL = """
import sys
path, name, *sys.path = sys.argv[1:]
from tesserack import _native
_native._load_backend(path, name, "")
try:
    _native._resolve_device(name)
except _native.BackendUnavailableError:  # no device here
    pass
else:
    _native._backend_kernels(name)
"""


def check(library: str, name: str, distribution: Distribution | None) -> None:
    """Refuse a library that would take the process down.

    Raises:
        RuntimeError: the file is not what was installed, or loading it killed or stopped another process.
    """
    if not os.path.isfile(library):
        return  # the linker finds it, or says that it does not
    row = _recorded(library, distribution)
    if row is None:
        _rehearse(library, name)
    elif how := difference(library, row[1], row[2], LARGEST):
        raise RuntimeError(f"backend: cannot open {library}: {how}")


def difference(path: str, digest: str, size: str, largest: int) -> str:
    """How a file differs from its row in a ``RECORD``; files over ``largest`` bytes are only measured.

    >>> difference(__file__, "sha256=x", "1", 1000)[-23:]
    'bytes, 1 were installed'
    """
    have = os.stat(path).st_size
    if size and have != int(size):
        return f"it has {have} bytes, {size} were installed"
    algorithm, _, wanted = digest.partition("=")
    if have <= largest and _digest(path, algorithm) != wanted:
        return "it is not the file that was installed"
    return ""


def _digest(path: str, algorithm: str) -> str:
    import hashlib

    state = hashlib.new(algorithm)
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            state.update(block)
    return base64.urlsafe_b64encode(state.digest()).decode().rstrip("=")


def _recorded(library: str, distribution: Distribution | None) -> list[str] | None:
    """The row of a file in its distribution's RECORD: path, algorithm=digest, size; None without a digest."""
    try:
        record = distribution.read_text("RECORD") if distribution else None
        base = os.path.basename(library)
        for row in csv.reader(line for line in (record or "").splitlines() if base in line):
            own = str(distribution.locate_file(row[0])) if distribution else ""
            if len(row) == 3 and _means_something(*row[1:]) and os.path.exists(own) and os.path.samefile(own, library):
                return row
    except (OSError, ValueError, csv.Error):
        pass  # metadata that cannot be read vouches for nothing
    return None


def _means_something(digest: str, size: str) -> bool:
    import hashlib

    algorithm, _, wanted = digest.partition("=")
    return bool(wanted) and algorithm in hashlib.algorithms_guaranteed and (not size or size.isdecimal())


def _rehearse(library: str, name: str) -> None:
    """Load the library in another process, unless that went well before."""
    if not os.path.basename(sys.executable or "").startswith("python"):
        return  # a program with an interpreter inside would be started, not an interpreter
    remembered, mark = _remembered(library)
    if remembered and _read(remembered) == mark:
        return
    import subprocess

    words = [sys.executable, "-c", _REHEARSAL, library, name, *sys.path]
    quiet = subprocess.DEVNULL
    try:
        status = subprocess.run(
            words, stdin=quiet, stdout=quiet, stderr=quiet, timeout=_TIMEOUT, check=False
        ).returncode
    except OSError:
        return
    except subprocess.TimeoutExpired:
        raise RuntimeError(
            f"backend: cannot open {library}: a process that tried to load it had not ended after {_TIMEOUT:g} s"
        ) from None
    if -status in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGTRAP):
        death = signal.Signals(-status).name
        raise RuntimeError(f"backend: cannot open {library}: a process that tried to load it died of {death}")
    if status == 0 and remembered:
        _write(remembered, mark)


def _remembered(library: str) -> tuple[Path | None, str]:
    """Where it is kept that a library could be loaded, and what is kept there."""
    from hashlib import sha256

    from tesserack.utils.cache import user_cache

    status = os.stat(library)
    mark = f"{os.path.realpath(library)} {status.st_size} {status.st_mtime_ns} {status.st_ino}"
    try:
        return user_cache("loaded", sha256(os.path.realpath(library).encode()).hexdigest()[:24]), mark
    except RuntimeError:
        return None, mark


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, ValueError):
        return ""


def _write(file: Path, text: str) -> None:
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, "utf-8")
        temporary.replace(file)
    except OSError:
        return  # no place to remember it: the next process tries again
