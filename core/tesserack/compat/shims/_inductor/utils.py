"""``torch._inductor.utils``: contexts that tests and benchmarks enter."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tesserack.jit.compiler import reset

__all__ = ["fresh_cache", "fresh_inductor_cache"]


@contextlib.contextmanager
def fresh_cache(cache_entries: Any = None, dir: str | None = None, delete: bool = True) -> Iterator[None]:
    """Functions begin without graphs in it."""
    reset()
    yield


fresh_inductor_cache = fresh_cache
