"""``torch.backends.python_native``: kernels that PyTorch replaces by some written in other languages. None are here, so
that there is nothing to enable; what is disabled is remembered."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = [
    "all_dsls",
    "available_dsls",
    "cutedsl",
    "disable_dispatch_keys",
    "disable_operations",
    "enable_dispatch_keys",
    "enable_operations",
    "get_dsl_operations",
    "is_dsl_disabled",
    "is_operation_disabled",
    "operations_disabled",
    "triton",
]

all_dsls = ["cutedsl", "triton"]
available_dsls: list[str] = []
_disabled: dict[str, set[str]] = {"dsl": set(), "operation": set(), "key": set()}


class _Language:
    """A language of kernels that is not there."""

    available = False
    version = None

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def enabled(self) -> bool:
        """Whether its kernels may be used; settable."""
        return self.name not in _disabled["dsl"]

    @enabled.setter
    def enabled(self, value: bool) -> None:
        (_disabled["dsl"].discard if value else _disabled["dsl"].add)(self.name)

    def enable(self) -> None:
        """Allow its kernels."""
        self.enabled = True

    def disable(self) -> None:
        """Forbid its kernels."""
        self.enabled = False

    @contextlib.contextmanager
    def disabled(self) -> Iterator[None]:
        """Within it, its kernels are forbidden."""
        before = self.enabled
        self.enabled = False
        try:
            yield
        finally:
            self.enabled = before


cutedsl, triton = _Language("cutedsl"), _Language("triton")


def get_dsl_operations(dsl_name: str) -> list[str]:
    """The operations that a language replaces: none."""
    return []


def is_dsl_disabled(dsl_name: str) -> bool:
    """Whether the language was disabled."""
    return dsl_name in _disabled["dsl"]


def is_operation_disabled(op_symbol: str) -> bool:
    """Whether the operation was disabled."""
    return op_symbol in _disabled["operation"]


def disable_operations(*op_symbols: str) -> None:
    """Forbid replacements of operations."""
    _disabled["operation"].update(op_symbols)


def enable_operations(*op_symbols: str) -> None:
    """Allow replacements of operations."""
    _disabled["operation"].difference_update(op_symbols)


def disable_dispatch_keys(*dispatch_keys: str) -> None:
    """Forbid replacements for kinds of devices."""
    _disabled["key"].update(dispatch_keys)


def enable_dispatch_keys(*dispatch_keys: str) -> None:
    """Allow replacements for kinds of devices."""
    _disabled["key"].difference_update(dispatch_keys)


@contextlib.contextmanager
def operations_disabled(*op_symbols: str) -> Iterator[None]:
    """Within it, replacements of operations are forbidden."""
    added = set(op_symbols) - _disabled["operation"]
    disable_operations(*op_symbols)
    try:
        yield
    finally:
        _disabled["operation"] -= added
