"""Handles that take a registered hook away again."""

from __future__ import annotations

import itertools
import warnings
import weakref
from abc import ABCMeta
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tesserack._tensor.handles import HookHandle

__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]

_ids = itertools.count()


def _no_table() -> None:
    return None


class RemovableHandle(metaclass=ABCMeta):  # noqa: B024  (it takes in the handles of tensors' hooks)
    """Returned by every ``register_*hook``: :meth:`remove` undoes the registration, once or more often.

    Also a context manager that removes the hook on exit. ``extra_dict`` is a dictionary, or several, keyed by the same
    id: they are cleaned together with the first.

    >>> from collections import OrderedDict
    >>> hooks = OrderedDict()
    >>> handle = RemovableHandle(hooks)
    >>> hooks[handle.id] = print
    >>> handle.remove()
    >>> len(hooks)
    0
    """

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        extra = extra_dict if isinstance(extra_dict, (list, tuple)) else () if extra_dict is None else (extra_dict,)
        self.id = next(_ids)
        self._tables = tuple(weakref.ref(table) for table in (hooks_dict, *extra))

    @property
    def hooks_dict_ref(self) -> Callable[[], Any]:
        """Gives the dictionary that the hook stands in, or None once that is gone."""
        return self._tables[0] if self._tables else _no_table

    def remove(self) -> None:
        """Forget the hook; does nothing if it, or its owner, is already gone."""
        for reference in self._tables:
            table = reference()
            if table is not None:
                table.pop(self.id, None)

    def __getstate__(self) -> tuple[int, tuple[Any, ...]]:
        return self.id, tuple(reference() for reference in self._tables)

    def __setstate__(self, state: tuple[int, tuple[Any, ...]]) -> None:
        global _ids
        self.id, tables = state
        self._tables = tuple(weakref.ref(table) for table in tables if table is not None)
        _ids = itertools.count(max(next(_ids), self.id + 1))  # the tables that came along hold this one

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


RemovableHandle.register(HookHandle)  # of hooks on tensors: one kind to those who ask


def unserializable_hook(f: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a hook of a tensor as one that is expected to be lost when the tensor is saved: no warning then."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    """Warn of the hooks that a tensor has, other than :func:`unserializable_hook`, which are not saved with it."""
    for hook in (getattr(tensor, "_backward_hooks", None) or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, you can decorate the "
                "function with @tesserack.utils.hooks.unserializable_hook to suppress this warning",
                stacklevel=2,
            )
