"""Handles that take a registered hook away again."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from types import TracebackType
from typing import Any

__all__ = ["RemovableHandle"]

_ids = itertools.count()


class RemovableHandle:
    """Returned by every ``register_*hook``: :meth:`remove` undoes the registration, once or more often.

    Also a context manager that removes the hook on exit. ``extra`` holds dictionaries keyed by the same id that are
    cleaned together with the first.

    >>> hooks = OrderedDict()
    >>> handle = RemovableHandle(hooks)
    >>> hooks[handle.id] = print
    >>> handle.remove()
    >>> len(hooks)
    0
    """

    def __init__(self, hooks: OrderedDict[int, Any], *, extra: tuple[Any, ...] = ()) -> None:
        self.id = next(_ids)
        self._tables = tuple(weakref.ref(table) for table in (hooks, *extra))

    def remove(self) -> None:
        """Forget the hook; does nothing if it, or its owner, is already gone."""
        for reference in self._tables:
            table = reference()
            if table is not None:
                table.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()
