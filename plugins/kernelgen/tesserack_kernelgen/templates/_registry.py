"""Which function answers which operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tesserack_kernelgen.call import Call

__all__ = ["FINISHES", "FUSES", "TAKES", "TEMPLATES", "template"]

#: By operator, as ``tesserack/abi.h`` and ``tesserack ops`` name them.
TEMPLATES: dict[str, Callable[[Call], Any]] = {}
#: What a kernel takes beyond the least, see ``Backend.kernel``.
TAKES: dict[str, tuple[str, ...]] = {}

#: Templates that may be the kernel of a part, see ``parts``: inputs that they load as a ``Tensor`` or by rows alone.
FUSES: dict[str, tuple[int, ...]] = {}
#: Of these, those that store each element of their first output once, and never look at it.
FINISHES: set[str] = set()

_Template = TypeVar("_Template", bound="Callable[..., Any]")


def template(
    op: str, takes: tuple[str, ...] = (), fuses: tuple[int, ...] | None = None, finishes: bool = False
) -> Callable[[_Template], _Template]:
    """Decorator: the function makes the plan for calls of ``op``."""

    def decorate(function: _Template) -> _Template:
        TEMPLATES[op] = function
        if takes:
            TAKES[op] = takes
        if fuses is not None:
            FUSES[op] = fuses
        if finishes:
            FINISHES.add(op)
        return function

    return decorate
