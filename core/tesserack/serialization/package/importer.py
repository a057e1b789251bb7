"""Where names of modules and objects are looked up: in the process, in a package, in several one after the other."""

from __future__ import annotations

import importlib
import logging
import pickle
from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any

from tesserack.serialization.package._mangling import demangle, get_mangle_prefix, is_mangled

__all__ = ["Importer", "ObjMismatchError", "ObjNotFoundError", "OrderedImporter", "lookup", "sys_importer"]

_log = logging.getLogger(__name__)
_plain: Any = pickle._Pickler  # the one in Python says which types it writes by value


class ObjNotFoundError(Exception):
    """No object is found under the name that one has."""


class ObjMismatchError(Exception):
    """Another object is found under the name that one has."""


def lookup(module: Any, path: str) -> tuple[Any, Any]:
    """What a module has under a path of names, and what that is an attribute of. ``AttributeError`` if nothing."""
    parent, found = None, module
    for name in path.split("."):
        if name == "<locals>":
            raise AttributeError(f"{path!r} is local to a function")
        parent, found = found, getattr(found, name)
    return found, parent


class Importer(ABC):
    """A place where modules come from. ``import_module`` gives the module of a name, and ``get_name`` the name of an
    object, by which it is found there again."""

    modules: dict[str, ModuleType]

    @abstractmethod
    def import_module(self, module_name: str) -> ModuleType:
        """The module of this name, as :func:`importlib.import_module` finds it in the process."""

    def get_name(self, obj: Any, name: str | None = None) -> tuple[str, str]:
        """The module of an object and its name there.

        :class:`ObjNotFoundError` if nothing is found under that name here, :class:`ObjMismatchError` if something else.
        """
        if name is None and obj and _plain.dispatch.get(type(obj)) is None:
            name = _reduced_name(obj)
        path: str = name or getattr(obj, "__qualname__", None) or obj.__name__
        module_name = demangle(self.whichmodule(obj, path))
        try:
            found, _ = lookup(self.import_module(module_name), path)
        except (ImportError, KeyError, AttributeError):
            raise ObjNotFoundError(f"{obj} was not found as {module_name}.{path}") from None
        if found is obj:
            return module_name, path
        (own, place, needed), (other, there, first) = (self._place(each, path) for each in (obj, found))
        raise ObjMismatchError(
            f"\n\nThe object provided is from '{own}', which is coming from {place}."
            f"\nHowever, when we import '{other}', it's coming from {there}."
            f"\nTo fix this, make sure this 'PackageExporter's importer lists {needed} before {first}."
        )

    def _place(self, obj: Any, name: str) -> tuple[str, str, str]:
        module = self.whichmodule(obj, name)
        prefix = get_mangle_prefix(module)
        if is_mangled(module):
            return module, prefix, f"the importer for {prefix}"
        return module, "the current Python environment", "'sys_importer'"

    def whichmodule(self, obj: Any, name: str) -> str:
        """The name of the module in which an object is, ``"__main__"`` if that is not known."""
        said = getattr(obj, "__module__", None)
        if said is not None:
            return str(said)
        for module_name, module in self.modules.copy().items():
            if module_name in ("__main__", "__mp_main__") or module is None:
                continue
            try:
                if lookup(module, name)[0] is obj:
                    return module_name
            except AttributeError:
                continue
        return "__main__"


def _reduced_name(obj: Any) -> str | None:
    """The name under which an object says that it is found."""
    try:
        reduced = obj.__reduce__()
    except Exception:  # whatever its class does: then it has none
        return None
    return reduced if isinstance(reduced, str) else None


class _SysImporter(Importer):
    """The process itself."""

    def import_module(self, module_name: str) -> ModuleType:
        return importlib.import_module(module_name)

    def whichmodule(self, obj: Any, name: str) -> str:
        said = getattr(obj, "__module__", None)
        return str(said if said is not None else pickle.whichmodule(obj, name))  # type: ignore[attr-defined]


sys_importer = _SysImporter()


class OrderedImporter(Importer):
    """Several importers, of which the first counts that finds something."""

    def __init__(self, *args: Importer) -> None:
        self._importers = [*args]

    def get_name(self, obj: Any, name: str | None = None) -> tuple[str, str]:
        for importer in self._importers:
            try:
                return importer.get_name(obj, name)
            except (ObjNotFoundError, ObjMismatchError) as error:
                _log.warning("%s has no %s of the name %s: %s", importer, obj, name, error)
        raise ObjNotFoundError(f"Could not find obj {obj} and name {name} in any of the importers {self._importers}")

    def import_module(self, module_name: str) -> ModuleType:
        last = ModuleNotFoundError(module_name)
        for importer in self._importers:
            if not isinstance(importer, Importer):
                raise TypeError(f"OrderedImporter: expected objects of Importer, got {importer}")
            try:
                module = importer.import_module(module_name)
            except ModuleNotFoundError as error:
                last = error
                continue
            if not _is_empty_package(module):
                return module
        raise last

    def whichmodule(self, obj: Any, name: str) -> str:
        found = (importer.whichmodule(obj, name) for importer in self._importers)
        return next((module for module in found if module != "__main__"), "__main__")


def _is_empty_package(module: Any) -> bool:
    """Whether a package holds only a folder of this name, for what lies in it: another importer may have the module."""
    folder = getattr(module, "__torch_package__", False) and hasattr(module, "__path__")
    return bool(folder and getattr(module, "__file__", None) is None)
