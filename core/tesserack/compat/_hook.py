"""The import hook: for the whole process a finder, for chosen packages ``builtins.__import__``."""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

from tesserack.compat import _facade, _report
from tesserack.compat._guards import is_guarded
from tesserack.compat._missing import caller

__all__ = ["Scoped", "Whole"]


def _is_torch(name: str) -> bool:
    return name == "torch" or name.startswith("torch.")


def _functorch(name: str) -> str:
    """The module of ours for one of ``functorch``, which PyTorch installs beside ``torch``; empty for others."""
    if name.partition(".")[0] != "functorch":
        return ""
    ours = f"{__package__}.{name}"
    return ours if _facade._is_module(ours) else ""


def _is_shown(name: str) -> bool:
    return _is_torch(name) or name.partition(".")[0] == "functorch"


class _FunctorchLoader:
    @staticmethod
    def create_module(spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return importlib.import_module(f"{__package__}.{spec.name}")

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Nothing: it is imported already."""


def _note(name: str) -> None:
    report = _report.current
    file, line, _ = caller()
    if _facade._target_names(name):
        if report.detailed:
            report.touch(name, f"{file}:{line}")
    else:
        report.miss(name, f"{file}:{line}")


class _Finder:
    """Finds ``torch`` and everything below it, before any real one."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if _functorch(fullname):
            return importlib.machinery.ModuleSpec(fullname, _FunctorchLoader, is_package=True)  # type: ignore[arg-type]
        if not _is_torch(fullname) or not _facade.exists(fullname):
            return None
        if not _facade._target_names(fullname) and is_guarded(caller()[2]) and not _facade.shows_something(fullname):
            _note(fullname)
            raise ModuleNotFoundError(f"No module named {fullname!r}: Tesserack does not have it", name=fullname)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        _note(spec.name)
        return _facade.get(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: a facade looks up names when they are asked for."""

    @staticmethod
    def find_distributions(context: Any = None) -> Iterable[Any]:
        if getattr(context, "name", None) == "torch":
            from tesserack.compat import _distribution  # importlib.metadata takes a good part of the start-up time

            yield _distribution.Torch()


class Whole:
    """``import torch`` means Tesserack everywhere in the process."""

    def __init__(self) -> None:
        self._finder = _Finder()
        self._real: dict[str, ModuleType] = {}

    def install(self) -> None:
        self._real = {name: module for name, module in sys.modules.items() if _is_shown(name)}
        for name in self._real:
            del sys.modules[name]
        for name, facade in _facade.known().items():
            sys.modules[name] = facade
        sys.meta_path.insert(0, self._finder)

    def remove(self) -> None:
        sys.meta_path.remove(self._finder)
        for name in [name for name in sys.modules if _is_shown(name)]:
            del sys.modules[name]
        sys.modules.update(self._real)


class Scoped:
    """``import torch`` means Tesserack in chosen packages; all others get the real one."""

    def __init__(self, packages: Iterable[str]) -> None:
        self.packages = tuple(packages)
        self._import: Any = None
        self._import_module: Any = None

    def covers(self, module: str | None) -> bool:
        """Whether a module, by name, is in a chosen package."""
        return module is not None and any(module == p or module.startswith(f"{p}.") for p in self.packages)

    def install(self) -> None:
        self._import, self._import_module = builtins.__import__, importlib.import_module
        builtins.__import__ = self._scoped_import
        importlib.import_module = self._scoped_import_module

    def remove(self) -> None:
        builtins.__import__ = self._import
        importlib.import_module = self._import_module

    def _scoped_import(
        self,
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if level or not _is_torch(name) or not self.covers((globals or {}).get("__name__")):
            return self._import(name, globals, locals, fromlist or (), level)  # type: ignore[no-any-return]
        module = self._find(name)
        return module if fromlist else _facade.get("torch")

    def _scoped_import_module(self, name: str, package: str | None = None) -> ModuleType:
        asking = sys._getframe(1).f_globals.get("__name__")
        if _is_torch(name) and self.covers(asking):
            return self._find(name)
        return self._import_module(name, package)  # type: ignore[no-any-return]

    def _find(self, name: str) -> ModuleType:
        _note(name)
        parts = name.split(".")
        for k in range(1, len(parts)):
            parent = _facade.get(".".join(parts[:k]))
            child = _facade.get(".".join(parts[: k + 1]))
            setattr(parent, parts[k], child)
        return _facade.get(name)
