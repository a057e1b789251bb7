"""Keys and values that threads share: what every store comes down to."""

from __future__ import annotations

import threading
import time
from collections import deque

from tesserack.distributed._errors import DistStoreError, QueueEmptyError

__all__ = ["CHANGES", "WAITING", "Table"]

#: Operations that change a table, and those that may wait for a key.
CHANGES = frozenset(("set", "multi_set", "compare_set", "add", "append", "delete", "push", "pop"))
WAITING = frozenset(("get", "multi_get", "wait", "pop"))


class Table:
    """Values by key and queues by key. Operations take and give lists of bytes, as they travel between processes."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._queues: dict[str, deque[bytes]] = {}
        self._changed = threading.Condition()

    def run(self, op: str, keys: list[str], values: list[bytes], timeout: float) -> list[bytes]:
        """The result of an operation by name; waits for keys for ``timeout`` seconds. ``DistStoreError`` if in vain."""
        with self._changed:
            if op in WAITING and values != [b"now"]:
                self._await(keys, timeout)
            method = getattr(self, f"_op_{op}", None)
            if method is None:
                raise DistStoreError(f"store: expected an operation of a store, got {op!r}")
            result: list[bytes] = method(keys, values)
            if op in CHANGES:
                self._changed.notify_all()
            return result

    def has(self, key: str) -> bool:
        """Whether a key has a value, or something in its queue."""
        return key in self._values or bool(self._queues.get(key))

    def _await(self, keys: list[str], timeout: float) -> None:
        end = time.monotonic() + timeout
        while missing := [key for key in keys if not self.has(key)]:
            if not self._changed.wait(max(0.0, end - time.monotonic())) and time.monotonic() >= end:
                raise DistStoreError(f"wait timeout after {timeout * 1000:.0f}ms, keys: {', '.join(missing)}")

    def _op_set(self, keys: list[str], values: list[bytes]) -> list[bytes]:
        self._values.update(zip(keys, values, strict=True))
        return []

    _op_multi_set = _op_set

    def _op_get(self, keys: list[str], values: list[bytes]) -> list[bytes]:
        return [self._values[key] for key in keys]

    _op_multi_get = _op_get

    def _op_wait(self, keys: list[str], values: list[bytes]) -> list[bytes]:
        return []

    def _op_check(self, keys: list[str], values: list[bytes]) -> list[bytes]:
        return [b"1" if all(map(self.has, keys)) else b"0"]

    def _op_compare_set(self, keys: list[str], values: list[bytes]) -> list[bytes]:
        (key,), (expected, desired) = keys, values
        current = self._values.get(key)
        if current is None and expected:
            return [expected]
        if current is None or current == expected:
            self._values[key] = desired
        return [self._values[key]]

    def _op_add(self, keys: list[str], values: list[bytes]) -> list[bytes]:
        try:
            total = int(self._values.get(keys[0], b"0")) + int(values[0])
        except ValueError:
            raise DistStoreError(f"add: expected a number at {keys[0]!r}, got {self._values[keys[0]]!r}") from None
        self._values[keys[0]] = str(total).encode()
        return [self._values[keys[0]]]

    def _op_append(self, keys: list[str], values: list[bytes]) -> list[bytes]:
        self._values[keys[0]] = self._values.get(keys[0], b"") + values[0]
        return []

    def _op_delete(self, keys: list[str], values: list[bytes]) -> list[bytes]:
        return [b"0" if self._values.pop(keys[0], None) is None else b"1"]

    def _op_num_keys(self, keys: list[str], values: list[bytes]) -> list[bytes]:
        return [str(len(self._values)).encode()]

    def _op_list_keys(self, keys: list[str], values: list[bytes]) -> list[bytes]:
        return [key.encode() for key in self._values]

    def _op_push(self, keys: list[str], values: list[bytes]) -> list[bytes]:
        self._queues.setdefault(keys[0], deque()).append(values[0])
        return []

    def _op_pop(self, keys: list[str], values: list[bytes]) -> list[bytes]:
        queue = self._queues.get(keys[0])
        if not queue:
            raise QueueEmptyError(f"queue_pop: the queue {keys[0]!r} is empty")
        return [queue.popleft()]

    def _op_length(self, keys: list[str], values: list[bytes]) -> list[bytes]:
        return [str(len(self._queues.get(keys[0], ()))).encode()]
