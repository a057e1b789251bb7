"""Stores of keys and values: in one process, and under a prefix."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from tesserack.distributed._table import Table

__all__ = ["HashStore", "PrefixStore", "Store"]


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


_CALLED = {"delete": "delete_key", "push": "queue_push", "pop": "queue_pop", "length": "queue_len"}


def _told(value: Any) -> list[bytes]:
    """What a user's method returned, as operations return it."""
    if value is None:
        return []
    if isinstance(value, (bool, int)):
        return [str(int(value)).encode()]
    return [_bytes(value)] if isinstance(value, (str, bytes)) else [_bytes(each) for each in value]


class Store:
    """Keys and values that processes share; a kind of store says in :meth:`_run` where they are, or has methods of its
    own for what it is asked, which take values as bytes."""

    def __init__(self) -> None:
        self.timeout = timedelta(seconds=300)

    def _run(self, op: str, keys: list[str], values: list[bytes], timeout: float) -> list[bytes]:
        name = _CALLED.get(op, op)
        if getattr(type(self), name) is not getattr(Store, name):
            return _told(self._call(op, getattr(self, name), keys, values, timeout))
        if op == "multi_get":
            return [value for key in keys for value in self._run("get", [key], [], timeout)]
        if op == "multi_set":
            for key, value in zip(keys, values, strict=True):
                self._run("set", [key], [value], timeout)
            return []
        raise NotImplementedError(f"{type(self).__name__}: a store of its own defines what it is asked for ({op})")

    @staticmethod
    def _call(op: str, method: Any, keys: list[str], values: list[bytes], timeout: float) -> Any:
        """A method that a user wrote, by an operation's keys and values."""
        if op == "wait":
            return method(keys, timedelta(seconds=timeout))
        if op in ("check", "multi_get", "multi_set"):
            return method(keys, values) if op == "multi_set" else method(keys)
        if op == "add":
            return method(keys[0], int(values[0]))
        return method(keys[0], not values) if op == "pop" else method(*keys, *values)

    def _ask(
        self, op: str, keys: Sequence[str], values: Sequence[str | bytes] = (), timeout: Any = None
    ) -> list[bytes]:
        seconds = (self.timeout if timeout is None else timeout).total_seconds()
        return self._run(op, [*keys], [_bytes(value) for value in values], seconds)

    def set_timeout(self, timeout: timedelta) -> None:
        """How long :meth:`get` and :meth:`wait` wait from now on."""
        self.timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        """Give a key a value."""
        self._ask("set", [key], [value])

    def get(self, key: str) -> bytes:
        """The value of a key, waited for. ``DistStoreError`` when the time is over."""
        return self._ask("get", [key])[0]

    def add(self, key: str, amount: int) -> int:
        """Count: the number at a key, 0 at first, and ``amount`` more, which is written and returned."""
        return int(self._ask("add", [key], [str(int(amount))])[0])

    def append(self, key: str, value: str | bytes) -> None:
        """Put more at the end of a value, empty at first."""
        self._ask("append", [key], [value])

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Give a key a value if it has the expected one, or none where that is empty; returns what it then has."""
        return self._ask("compare_set", [key], [expected_value, desired_value])[0]

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all of these keys have values."""
        return self._ask("check", keys) == [b"1"]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all of these keys have values. ``DistStoreError`` when the time is over."""
        self._ask("wait", keys, (), timeout)

    def delete_key(self, key: str) -> bool:
        """Forget a key; whether it had a value."""
        return self._ask("delete", [key]) == [b"1"]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of keys, waited for."""
        return self._ask("multi_get", keys)

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Give keys values. ``ValueError`` for another number of them."""
        if len(keys) != len(values):
            raise ValueError(f"multi_set: expected as many values as keys, got {len(values)} and {len(keys)}")
        self._ask("multi_set", keys, values)

    def num_keys(self) -> int:
        """How many keys have values, those of the store itself among them."""
        return int(self._ask("num_keys", [])[0])

    def list_keys(self) -> list[str]:
        """The keys that have values."""
        return [key.decode() for key in self._ask("list_keys", [])]

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Put a value at the end of a queue."""
        self._ask("push", [key], [value])

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """The first value of a queue, waited for unless ``block`` is False: ``QueueEmptyError`` then."""
        return self._ask("pop", [key], [] if block else [b"now"])[0]

    def queue_len(self, key: str) -> int:
        """How many values are in a queue."""
        return int(self._ask("length", [key])[0])

    def has_extended_api(self) -> bool:
        """Whether :meth:`append`, :meth:`multi_get` and :meth:`multi_set` are there: always True."""
        return True

    def clone(self) -> Store:
        """A store of the same values, for another thread."""
        return self

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object: a process makes its own")


class HashStore(Store):
    """A store of one process, for its threads."""

    def __init__(self) -> None:
        super().__init__()
        self._table = Table()

    def _run(self, op: str, keys: list[str], values: list[bytes], timeout: float) -> list[bytes]:
        return self._table.run(op, keys, values, timeout)


class PrefixStore(Store):
    """Another store, with ``prefix/`` before every key."""

    def __init__(self, prefix: str, store: Store) -> None:
        self.prefix, self.underlying_store = prefix, store

    @property
    def timeout(self) -> timedelta:  # type: ignore[override]
        """That of the store below."""
        return self.underlying_store.timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """How long :meth:`get` and :meth:`wait` wait from now on, of the store below."""
        self.underlying_store.set_timeout(timeout)

    def _run(self, op: str, keys: list[str], values: list[bytes], timeout: float) -> list[bytes]:
        return self.underlying_store._run(op, [f"{self.prefix}/{key}" for key in keys], values, timeout)

    def list_keys(self) -> list[str]:
        """The keys under the prefix, without it."""
        mine = f"{self.prefix}/"
        return [key[len(mine) :] for key in self.underlying_store.list_keys() if key.startswith(mine)]

    def clone(self) -> Store:
        """A store of the same values, for another thread."""
        return PrefixStore(self.prefix, self.underlying_store.clone())
