"""Which function answers which operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tesserack_kernelgen.call import Call

__all__ = ["TAKES", "TEMPLATES", "template"]

#: By operator, as ``tesserack/abi.h`` and ``tesserack ops`` name them.
TEMPLATES: dict[str, Callable[[Call], Any]] = {}
#: What a kernel takes beyond the least, see ``Backend.kernel``.
TAKES: dict[str, tuple[str, ...]] = {}

_Template = TypeVar("_Template", bound="Callable[..., Any]")


def template(op: str, takes: tuple[str, ...] = ()) -> Callable[[_Template], _Template]:
    """Decorator: the function makes the plan for calls of ``op``."""

    def decorate(function: _Template) -> _Template:
        TEMPLATES[op] = function
        if takes:
            TAKES[op] = takes
        return function

    return decorate
