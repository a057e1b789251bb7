"""The named members of a module, and their shortcut in its instance dictionary."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

_MISSING: Any = object()


class Registry(dict[str, Any]):
    """Ordered names -> parameters, buffers or submodules of one module, mirrored into ``module.__dict__``.

    The mirror lets ``module.weight`` be an ordinary attribute read (a quarter of the time of a ``__getattr__``
    fallback). Writing through keeps it right when other code edits ``module._parameters`` itself. The owner is held
    weakly, so that a dropped model is freed at once and not at the next garbage collection. There is no mirror where
    ``mirrors`` is False: of a class with a ``__getattr__`` of its own, which is to be asked for every member.
    """

    __slots__ = ("_owner", "mirrors")

    def __init__(self, owner: object, items: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._owner = weakref.ref(owner)
        self.mirrors: bool = getattr(type(owner).__getattr__, "reads_registries", False)  # type: ignore[attr-defined]
        if items:
            self.update(items)

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        owner = self._owner() if self.mirrors else None
        if owner is not None:
            owner.__dict__[name] = value

    def __delitem__(self, name: str) -> None:
        self._unmirror(name, self[name])
        super().__delitem__(name)

    def pop(self, name: str, default: Any = _MISSING) -> Any:
        if name not in self:
            if default is _MISSING:
                raise KeyError(name)
            return default
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        name = next(reversed(self), None)
        if name is None:
            raise KeyError("popitem: the registry is empty")
        return name, self.pop(name)

    def clear(self) -> None:
        for name in list(self):
            del self[name]

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def update(self, *others: Mapping[str, Any] | Iterable[tuple[str, Any]], **named: Any) -> None:  # type: ignore[override]
        for name, value in dict(*others, **named).items():
            self[name] = value

    def __ior__(self, other: Any) -> Registry:  # type: ignore[override,misc]
        self.update(other)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies are plain until a module adopts them (Module.__setstate__): the weak owner cannot be copied.
        return dict, (dict(self),)

    def _unmirror(self, name: str, value: Any) -> None:
        owner = self._owner()
        if owner is not None and owner.__dict__.get(name, _MISSING) is value:
            del owner.__dict__[name]
