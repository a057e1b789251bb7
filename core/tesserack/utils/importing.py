"""What is to be done once a module has been imported, by whomever and whenever."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

__all__ = ["when_imported"]


def when_imported(name: str, action: Callable[[Any], None]) -> Callable[[], None]:
    """Call ``action`` with a module: now if it is there, else right after it is imported. Returns what forgets that.

    >>> when_imported("sys", lambda module: print(module.__name__)) is not None
    sys
    True
    """
    if name in sys.modules:
        action(sys.modules[name])
        return lambda: None
    watcher: Any = _Watcher(name, action)
    sys.meta_path.insert(0, watcher)
    return watcher.leave  # type: ignore[no-any-return]


class _Watcher:
    """Sees a module being imported."""

    def __init__(self, name: str, action: Callable[[Any], None]) -> None:
        self._name = name
        self._action = action

    def leave(self) -> None:
        """Watch no more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if fullname != self._name:
            return None
        self.leave()
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            run, act = loader.exec_module, self._action

            def exec_module(module: ModuleType) -> None:
                run(module)
                act(module)

            loader.exec_module = exec_module
        return spec
