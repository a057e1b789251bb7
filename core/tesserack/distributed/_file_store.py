"""A store in a file, for processes that share a folder."""

from __future__ import annotations

import contextlib
import json
import os
import time
import weakref
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

from tesserack.distributed._errors import DistStoreError
from tesserack.distributed._stores import Store
from tesserack.distributed._table import CHANGES, WAITING, Table

__all__ = ["FileStore"]

DONE = "cleanup/"  # counts who has gone


class FileStore(Store):
    """A store in a file, which holds a line for every change; the last of ``world_size`` processes removes it."""

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        self.path, self._world_size = os.fspath(file_name), int(world_size)
        with self._locked():
            pass
        if self._world_size > 0:
            weakref.finalize(self, _leave, self.path, self._world_size)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Any]:
        with _open_locked(self.path) as file:
            yield file

    def _run(self, op: str, keys: list[str], values: list[bytes], timeout: float) -> list[bytes]:
        end = time.monotonic() + timeout
        waits = op in WAITING and values != [b"now"]
        while True:
            with self._locked() as file:
                table = _read(file)
                if not waits or all(map(table.has, keys)):
                    result = table.run(op, keys, values, 0.0)
                    if op in CHANGES:
                        _write(file, op, keys, values)
                    return result
            if time.monotonic() >= end:
                missing = ", ".join(key for key in keys if not table.has(key))
                raise DistStoreError(f"wait timeout after {timeout * 1000:.0f}ms, keys: {missing}")
            time.sleep(0.01)


@contextlib.contextmanager
def _open_locked(path: str) -> Iterator[Any]:
    with open(path, "a+", encoding="ascii") as file:
        try:
            import fcntl
        except ImportError:
            raise DistStoreError("FileStore: expected a system with file locks; try TCPStore") from None
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _read(file: Any) -> Table:
    """The table that the lines make; of the last one, what a process wrote before it was killed is cut off."""
    file.seek(0)
    table, whole = Table(), 0
    for line in file.readlines():
        if not line.endswith("\n"):
            file.truncate(whole)
            break
        whole += len(line)
        op, keys, values = json.loads(line)
        table.run(op, keys, [b64decode(value) for value in values], 0.0)
    return table


def _write(file: Any, op: str, keys: list[str], values: list[bytes]) -> None:
    file.write(json.dumps([op, keys, [b64encode(value).decode() for value in values]]) + "\n")
    file.flush()


def _leave(path: str, world_size: int) -> None:
    if not os.path.exists(path):
        return
    with contextlib.suppress(OSError), _open_locked(path) as file:
        (gone,) = _read(file).run("add", [DONE], [b"1"], 0.0)
        _write(file, "add", [DONE], [b"1"])
        if int(gone) >= world_size:
            os.unlink(path)
