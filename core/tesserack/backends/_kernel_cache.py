"""Compiled kernels on disk, so that a second process compiles nothing."""

from __future__ import annotations

from pathlib import Path

from tesserack import _native

__all__ = ["KernelCache"]


class KernelCache:
    """Binaries by key, in one folder that processes and cards share; native cards reach it by ``ts_host.cache_get``.

    The folder is ``$TESSERACK_KERNEL_CACHE``, by default ``tesserack/kernels`` in the user's cache folder; an empty
    value switches it off. Files are named after what they depend on: text, device and driver. Damaged ones are made
    again.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        chosen = _native._kernel_cache_folder() if folder is None else str(folder)
        self.folder = Path(chosen) if chosen else None

    @staticmethod
    def key(*parts: str) -> str:
        """The key of what these texts say: source or ``Program.hash``, device, driver, options.

        >>> len(KernelCache.key("text", "device"))
        40
        """
        return str(_native._kernel_cache_name("\0".join(parts).encode()))

    def get(self, key: str) -> bytes | None:
        """The binary, or None. What cannot be read, or was cut short, is not there."""
        return None if self.folder is None else _native._read_kept_kernel(str(self.folder), key)

    def put(self, key: str, binary: bytes) -> None:
        """Keep a binary. A folder that cannot be written is no error: the next process compiles again."""
        if self.folder is not None:
            _native._keep_kernel(str(self.folder), key, bytes(binary))
