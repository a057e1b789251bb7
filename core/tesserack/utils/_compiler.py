"""The package's compiler for layers below it: the package's ``__init__``, which may import every layer, names it."""

from __future__ import annotations

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["the_compiler", "use_compiler"]

_found: list[Callable[[], Any]] = []


def use_compiler(find: Callable[[], Any]) -> None:
    """From now on ``find`` gives the module whose ``compile`` and ``compiled_call`` lower layers use."""
    _found[:] = [find]


def the_compiler() -> Any:
    """The module that compiles; imported when one first asks."""
    return _found[0]()
