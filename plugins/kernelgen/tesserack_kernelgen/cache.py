"""Compiled kernels on disk, so that a second process compiles nothing.

The folder is ``$TESSERACK_KERNEL_CACHE``, by default ``tesserack/kernels`` in the user's cache folder; an empty value
switches it off. Files are named after what they depend on: text, device and driver. Damaged ones are made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

__all__ = ["DiskCache"]


class DiskCache:
    """Binaries by key, in one folder that processes share."""

    def __init__(self, folder: str | Path | None = None):
        if folder is None:
            base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
            folder = os.environ.get("TESSERACK_KERNEL_CACHE", os.path.join(base, "tesserack", "kernels"))
        self.folder = Path(folder) if str(folder) else None

    @staticmethod
    def key(*parts: str) -> str:
        """The key of what these texts say: source, device, driver, options.

        >>> len(DiskCache.key("text", "device"))
        40
        """
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]

    def get(self, key: str) -> bytes | None:
        """The binary, or None. What cannot be read, or was cut short, is not there."""
        if self.folder is None:
            return None
        with contextlib.suppress(OSError):
            data = (self.folder / key).read_bytes()
            if data[:32] == hashlib.sha256(data[32:]).digest():
                return data[32:]
        return None

    def put(self, key: str, binary: bytes) -> None:
        """Keep a binary. A folder that cannot be written is no error: the next process compiles again."""
        if self.folder is None:
            return
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(binary).digest() + binary)
            os.replace(name, self.folder / key)  # another process sees the whole file or none
