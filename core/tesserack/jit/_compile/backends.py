"""Compilers by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tesserack.jit._compile.errors import InvalidBackend

__all__ = ["PLAIN", "list_backends", "lookup_backend", "register_backend"]

Backend = Callable[..., Any]
# Runs of these are those of plain Python, whose results they are to give.
PLAIN = frozenset({"eager", "eager_noexcept", "aot_eager", "aot_eager_decomp_partition", "inductor", "cudagraphs"})
_known: dict[str, tuple[Backend, tuple[str, ...]]] = {}


def _forward(gm: Any, example_inputs: Any, **options: Any) -> Any:
    """The graph as it is."""
    return gm.forward


def register_backend(compiler_fn: Backend | None = None, name: str | None = None, tags: Sequence[str] = ()) -> Any:
    """Give a compiler a name, its own if none is given; also a decorator. ``AssertionError`` for a name that is taken.

    >>> @register_backend
    ... def counting(gm, example_inputs):
    ...     return gm.forward
    >>> "counting" in list_backends()
    True
    """
    if compiler_fn is None:
        return lambda function: register_backend(function, name, tags)
    assert callable(compiler_fn), f"register_backend: expected a function, got {type(compiler_fn).__name__}"
    name = name or compiler_fn.__name__
    assert name not in _known, f"duplicate name: {name}"
    _known[name] = (compiler_fn, tuple(tags))
    return compiler_fn


def list_backends(exclude_tags: Sequence[str] | None = ("debug", "experimental")) -> list[str]:
    """The names that ``backend=`` takes, but those with one of the tags."""
    left_out = set(exclude_tags or ())
    return sorted(name for name, (_, tags) in _known.items() if left_out.isdisjoint(tags))


def lookup_backend(compiler_fn: str | Backend) -> Backend:
    """The compiler of a name. ``InvalidBackend`` if there is none."""
    if not isinstance(compiler_fn, str):
        return compiler_fn
    if compiler_fn not in _known:
        raise InvalidBackend(
            f"Invalid backend: {compiler_fn!r}, see `torch._dynamo.list_backends()` for available backends: "
            f"{', '.join(list_backends(None))}"
        )
    return _known[compiler_fn][0]


for _name in sorted(PLAIN):
    register_backend(_forward, _name, () if _name in ("inductor", "cudagraphs") else ("debug",))
