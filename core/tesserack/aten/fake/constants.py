"""Numbers that a program writes down, which fake tensors keep: what follows from them alone can be read."""

from __future__ import annotations

import weakref
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.aten.modes import disabled_modes
from tesserack.aten.names import random_names
from tesserack.utils._pytree import tree_leaves, tree_map

__all__ = ["Constants"]


def _memory(x: Tensor) -> int:
    return int(x.untyped_storage().data_ptr())


def _given(tree: Any) -> list[Any]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def _known(x: Any) -> Any:
    return getattr(x, "constant", x)


class Constants:
    """The fake tensors of a mode whose values are known, in ``constant``: single numbers go on from call to call."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}

    def keep(self, fake: Any, real: Tensor) -> Any:
        """The fake tensor, whose value is known from now on."""
        key = id(fake)
        self._known[key] = weakref.ref(fake, lambda _: self._known.pop(key, None))
        fake.constant = real
        return fake

    def forget(self, real: Tensor) -> None:
        """Whatever shares memory with it may have been written to with values that nobody knows."""
        where = _memory(real)
        for key, reference in [*self._known.items()]:
            fake = reference()
            if fake is not None and fake.constant is not None and _memory(fake.constant) == where:
                fake.constant = None
                self._known.pop(key, None)

    def computed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result for real where every operand is known, of at most one number each; None where it is not."""
        operands = _given((args, kwargs))
        if not operands or not all(getattr(x, "constant", None) is not None for x in operands):
            return None
        if kwargs.get("device") is not None or func.overloadpacket.__name__ in random_names():
            return None
        with disabled_modes(), ts.no_grad():
            args, kwargs = tree_map(_known, (tuple(args), dict(kwargs)))
            result = func(*args, **kwargs)
            small = all(x.numel() <= 1 for x in _given(result))
            if not small:
                for x in _given(result):
                    self.forget(x)
        return result if small else None

    def written(self, func: Any, args: Any, kwargs: Any) -> None:
        """After a call with operands that are not known: what it writes to is not known either."""
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            for x in _given(value):
                if getattr(x, "constant", None) is not None:
                    self.forget(x.constant)
