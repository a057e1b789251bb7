"""Backends written in Python, registered in the test process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from tesserack import _native

sys.path.insert(0, str(Path(__file__).resolve().parent))  # bytes_backend
PLUGINS = Path(__file__).resolve().parents[2] / "plugins"


def registered(name: str) -> ts.device:
    """The device of a plugin of this repository; from its folder where it is not installed."""
    if name not in ts.backends.list():
        sys.path.insert(0, str(PLUGINS / name))
        module = __import__(f"tesserack_{name}")
        native: Any = _native
        native._register_python_backend(module.backend, f"plugins/{name}")
    return ts.device(name)


@pytest.fixture
def reference() -> ts.device:
    """The device of the reference backend."""
    return registered("reference")


@pytest.fixture
def null() -> ts.device:
    """The device of the null backend."""
    return registered("null")


@pytest.fixture
def no_fallback() -> Iterator[None]:
    """A missing kernel is an error, and the counts start from zero."""
    before = ts.backends.get_fallback()
    ts.backends.reset_fallbacks()
    ts.backends.set_fallback("error")
    yield
    ts.backends.set_fallback(before)
