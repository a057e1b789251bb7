"""The version of PyTorch whose names and behaviour stand behind ``import torch``."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["TORCH", "TorchVersion"]

TORCH = "2.13.0+tesserack"


def _key(version: Any) -> tuple[int, ...]:
    """The numbers of a version, for comparing: text, another version, or a tuple such as ``(2, 1)``."""
    if isinstance(version, (tuple, list)):
        version = ".".join(map(str, version))
    numbers = re.match(r"v?(\d+(?:\.\d+)*)", str(version))
    if numbers is None:
        raise ValueError(f"version: expected numbers such as '2.1', got {version!r}")
    key = [int(part) for part in numbers[1].split(".")]
    while key and key[-1] == 0:
        key.pop()
    return tuple(key)


class TorchVersion(str):
    """A version as text that compares as a version, with text and with tuples.

    >>> TorchVersion("2.13.0") >= "2.9", TorchVersion("2.13.0") < (2, 9)
    (True, False)
    """

    def __lt__(self, other: Any) -> bool:
        return _key(self) < _key(other)

    def __le__(self, other: Any) -> bool:
        return _key(self) <= _key(other)

    def __gt__(self, other: Any) -> bool:
        return _key(self) > _key(other)

    def __ge__(self, other: Any) -> bool:
        return _key(self) >= _key(other)

    def __eq__(self, other: object) -> bool:
        try:
            return _key(self) == _key(other)
        except ValueError:
            return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return str.__hash__(self)
