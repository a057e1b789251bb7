"""Dictionaries and references that do not keep their objects alive, by identity: tensors compare element by element."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from typing import Any

from tesserack._native import Tensor

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]


class WeakIdRef(weakref.ref):  # type: ignore[type-arg]
    """A weak reference that equals another one of the same object, whatever ``==`` of the object means."""

    __slots__ = ["_id"]

    def __init__(self, key: Any, callback: Any = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._id = id(key)

    def __call__(self) -> Any:
        return super().__call__()

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WeakIdRef):
            return NotImplemented
        mine, theirs = self(), other()
        return self is other if mine is None or theirs is None else mine is theirs

    def __ne__(self, other: object) -> bool:
        return not self == other


WeakTensorRefKey = WeakIdRef


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A mapping from objects, by identity, that forgets an entry when its key is gone.

    >>> import tesserack as ts
    >>> names = WeakIdKeyDictionary()
    >>> x = ts.ones(2)
    >>> names[x] = "x"
    >>> names[x], len(names)
    ('x', 1)
    >>> del x
    >>> len(names)
    0
    """

    def __init__(self, dict: Any = None, ref_type: type[Any] = WeakIdRef) -> None:
        self.data: Any = {}
        self.ref_type = ref_type
        if dict is not None:
            self.update(dict)

    def _ref(self, key: Any, forget: bool = False) -> Any:
        return self.ref_type(key, self._forget() if forget else None)

    def _forget(self) -> Any:
        mine = weakref.ref(self)

        def forget(ref: Any) -> None:
            found = mine()
            if found is not None:
                found.data.pop(ref, None)

        return forget

    def __getitem__(self, key: Any) -> Any:
        try:
            return self.data[self._ref(key)]
        except TypeError:
            raise KeyError(key) from None

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self._ref(key, True)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self._ref(key)]

    def __contains__(self, key: object) -> bool:
        try:
            return self._ref(key) in self.data
        except TypeError:
            return False  # no object that can be referred to weakly

    def __iter__(self) -> Iterator[Any]:
        for ref in [*self.data]:
            key = ref()
            if key is not None:
                yield key

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"

    def keyrefs(self) -> list[Any]:
        """The references; what they refer to may be gone at any time."""
        return [*self.data]

    def copy(self) -> WeakIdKeyDictionary:
        """The same entries again."""
        return type(self)(self)

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> WeakIdKeyDictionary:
        import copy

        new = type(self)()
        for key, value in self.items():
            new[key] = copy.deepcopy(value, memo)
        return new

    def __or__(self, other: Any) -> WeakIdKeyDictionary:
        new = self.copy()
        new.update(other)
        return new

    def __ior__(self, other: Any) -> WeakIdKeyDictionary:
        self.update(other)
        return self


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor. ``TypeError`` for anything else."""

    def __init__(self, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"TensorWeakRef: expected a Tensor, got {type(tensor).__name__}")
        self.ref = weakref.ref(tensor)

    def __call__(self) -> Tensor | None:
        return self.ref()
