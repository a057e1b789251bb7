"""Kernels in the place of those that built-in operators have on a device, until they are taken back.

>>> import tesserack as ts
>>> from tesserack.library.definitions import Library
>>> mine = Library("aten", "IMPL")
>>> mine.impl("sum", lambda x, **options: x, "CPU")
>>> ts.ones(2).sum()
tensor([1., 1.])
>>> del mine
>>> ts.ones(2).sum()
tensor(2.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack import _native
from tesserack.aten.names import overload_here, shown

__all__ = ["device_of_key", "replace"]

# Keys of PyTorch's that are a device's are its name in capitals, but for these.
_NAMED = {"Meta": "meta", "PrivateUse1": "privateuseone"}


def device_of_key(key: str) -> str | None:
    """The device that a dispatch key of PyTorch's stands for; None for the others, such as ``AutogradCPU``."""
    return _NAMED.get(key) or (key.lower() if key.isupper() else None)


def replace(name: str, key: str, function: Callable[..., Any]) -> Callable[[], None]:
    """Have calls of an operator of ATen (``"sum"``, ``"sum.dim_IntList"``) on a device run a function, which is given
    what PyTorch would give it; returns what takes it back. Gradients are recorded above, as ever.

    ``NotImplementedError`` for keys of no device, ``RuntimeError`` for an unknown operator.
    """
    device = device_of_key(key)
    if device is None:
        raise NotImplementedError(
            "Library.impl: a built-in operator's kernel is replaced on a device, expected its name in capitals, "
            f"{' or '.join(_NAMED)}, got {key!r}; tesserack.dispatch.get_key(...).kernel(name) has calls come to other "
            "keys"
        )
    here = overload_here(name)

    def kernel(call: Any, *args: Any) -> Any:
        positional, keywords = shown(call.op, call.schema).arguments(args)
        return function(*positional, **keywords)

    before = _native._set_kernel(here, device, kernel, f"Library.impl({name!r}, {key!r})")
    return lambda: _native._set_kernel(here, device, before, "")
