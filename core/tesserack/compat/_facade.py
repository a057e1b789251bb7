"""Modules that show Tesserack under PyTorch's names.

A facade looks a name up in its targets: a shim of ours below :mod:`tesserack.compat.shims`, then the module of the same
path in ``tesserack``, then the packages above it, where the name is one that PyTorch defines in this module.
"""

from __future__ import annotations
import __future__

import importlib
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any

import tesserack
from tesserack.compat import _aliases, _names, _report
from tesserack.compat._guards import is_guarded
from tesserack.compat._missing import caller, missing, reads_plainly
from tesserack.compat._overridable import asking
from tesserack.compat._version import TORCH, TorchVersion
from tesserack.utils import homes

__all__ = ["Facade", "adopt_classes", "exists", "get", "restore_classes"]

SHIMS = "tesserack.compat.shims"
# Modules of ours that are not PyTorch's of the same path.
_UNRELATED = frozenset(
    ("torch.backends", "torch.cli", "torch.compat", "torch.dispatch", "torch.plugins", "torch.testing.conformance")
)
# Packages whose layers are named as those of the packages above them.
_WAYS = frozenset(("dynamic", "qat", "quantizable", "quantized", "reference"))
# What moved within PyTorch, and is found under both names.
_MOVED = {
    **{f"torch.nn.{each}": f"torch.ao.nn.{each}" for each in ("intrinsic", "qat", "quantizable", "quantized")},
    "torch.distributed._shard.checkpoint": "torch.distributed.checkpoint",
}
_facades: dict[str, Facade] = {}
_adopted: dict[tuple[str, str], type] = {}  # by the module and name that a class says it has
_replaced: dict[tuple[str, str], Any] = {}  # modules in whose place something else was set, by where
_renamed: list[tuple[type, str]] = []
_state = {"adopt": False}
_own: Any = vars(ModuleType)["__dict__"].__get__  # the dict itself, which a facade shows fuller than it is


def get(name: str) -> Facade:
    """The facade of a module, made when it is first asked for. ``ModuleNotFoundError`` if PyTorch has no such one."""
    if name not in _facades:
        if not exists(name):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        _facades[name] = Facade(name)
    return _facades[name]


def exists(name: str) -> bool:
    """Whether there is a module to show under this name, if only one whose names are all missing."""
    return name in _facades or name == "torch" or _names.has_module(name) or bool(_target_names(name))


# --- targets -------------------------------------------------------------------------------------------------------


def _target_names(name: str) -> list[str]:
    """The modules of ours that a module of PyTorch's shows."""
    name = _moved(name)
    path = name.partition(".")[2]
    found = [f"{SHIMS}.{path}" if path else SHIMS]
    if name not in _UNRELATED:
        found.append(f"tesserack.{path}" if path else "tesserack")
    return [module for module in found if _is_module(module)]


def _moved(name: str) -> str:
    """Where PyTorch keeps a module now."""
    for old, new in _MOVED.items():
        if name == old or name.startswith(f"{old}."):
            return new + name.removeprefix(old)
    return name


def _is_module(name: str) -> bool:
    if name in sys.modules:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, AttributeError, ValueError):
        return False


def _ancestors(name: str) -> list[str]:
    """Packages of ours above a module of PyTorch's, the nearest first, whose names may be its own: not the topmost,
    where ``load`` and its like are others, nor those whose layers of the same names compute in another way."""
    found: list[str] = []
    name = _moved(name)
    ways = _WAYS.intersection(name.split("."))
    while name.count(".") > 1:
        name = name.rpartition(".")[0]
        if _WAYS.intersection(name.split(".")) == ways:
            found += _target_names(name)
    return found


def _shown(target: str) -> ModuleType:
    """A module of ours, imported, whose classes say that they are PyTorch's."""
    module = importlib.import_module(target)
    if _state["adopt"]:
        adopt_classes(vars(module).values())
    return module


def shows_something(name: str) -> bool:
    """Whether Tesserack has what a module of PyTorch's is asked for: a module for it, or most of its names, or a class
    that says it is defined there or below."""
    if _target_names(name) or any(alias.startswith(f"{name}.") for alias in _aliases.ALIASES):
        return True
    if not _names.has_module(name):
        return False
    facade, names = get(name), _names.names(name)
    for target in _ancestors(name):
        _shown(target)
    found = [each for each in names if facade._tesserack_has(each)]
    return len(found) * 2 > len(names) or any(f"{module}.".startswith(f"{name}.") for module, _ in _adopted)


# --- the facade ----------------------------------------------------------------------------------------------------


class Facade(ModuleType):
    """A module named as PyTorch's, with what Tesserack has for it."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"Tesserack under the name of {name}.")
        own = _target_names(name)
        self._tesserack_targets = own
        self._tesserack_modules: list[Any] | None = None
        self.__path__: list[str] = []
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        self.__spec__ = spec
        if name == "torch":
            self.__version__ = TorchVersion(TORCH)

    def _tesserack_load(self) -> list[Any]:
        """The target modules, imported now."""
        if self._tesserack_modules is None:
            modules = [importlib.import_module(target) for target in self._tesserack_targets]
            self._tesserack_modules = modules
            for module in map(_shown, self._tesserack_targets):
                file = getattr(module, "__file__", None)
                if file and "__file__" not in _own(self):
                    self.__file__ = file
        return self._tesserack_modules

    def _tesserack_find(self, name: str) -> Any:
        """The value of a name; ``AttributeError`` if no target has it."""
        full = f"{self.__name__}.{name}"
        for module in self._tesserack_load():
            try:
                value = getattr(module, name)
            except AttributeError:
                continue
            if not isinstance(value, __future__._Feature) or not _names.has_module(full):
                return value  # else a switch of the file's, as torch.jit's "annotations", which is a module
        if _target_names(full) or full in _facades:
            return get(full)
        if full in _aliases.ALIASES:
            return _aliases.find(full, get)
        if name in _names.names(self.__name__) or (name.startswith("_") and name[1:2] != "_"):
            for target in _ancestors(self.__name__):
                module = _shown(target)
                if name in vars(module) or name in _names.names(self.__name__):
                    try:
                        value = getattr(module, name)
                    except AttributeError:
                        continue
                    if not isinstance(value, ModuleType) or name in _names.names(self.__name__):
                        return value  # else a private module of ours, which only shares the name
            if (self.__name__, name) in _adopted:
                return _adopted[self.__name__, name]
        origin = _names.origin(self.__name__, name)
        if origin:
            return _imported(*origin.split(":"))
        if self.__name__ in ("torch", "torch._VF") and name[:1] == "_" != name[1:2] and _names.has_name("torch", name):
            from tesserack.aten.operators import private

            return private(name)
        raise AttributeError(name)

    def _tesserack_has(self, name: str) -> bool:
        try:
            self._tesserack_find(name)
        except (AttributeError, ImportError):
            return False
        return True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_tesserack_"):
            raise AttributeError(name)
        if name == "__all__":
            return self._tesserack_all()
        full = f"{self.__name__}.{name}"
        report = _report.current
        try:
            value = self._tesserack_find(name)
        except AttributeError as error:
            return self._tesserack_miss(name, error)
        if isinstance(value, ModuleType) and not isinstance(value, Facade):
            value = _as_facade(full, value)
        if _state["adopt"] and isinstance(value, type):
            adopt_classes((value,))
        value = asking(self.__name__, name, value)
        if report.detailed:
            if not name.startswith("__"):
                report.touch(full, _place())
        elif callable(value) or isinstance(value, Facade):
            ModuleType.__setattr__(self, name, value)  # found at once from now on
        return value

    def _tesserack_all(self) -> list[str]:
        """What ``import *`` takes: the names that the targets say they have, or else those that PyTorch has too."""
        found: dict[str, None] = {}
        for module in self._tesserack_load():
            shared = [name for name in dir(module) if name in _names.names(self.__name__) and name[0] != "_"]
            found.update(dict.fromkeys(getattr(module, "__all__", shared)))
        return [name for name in found if not isinstance(getattr(self, name, None), ModuleType)]

    def _tesserack_miss(self, name: str, error: AttributeError) -> Any:
        """A stand-in for what PyTorch has and we do not; ``AttributeError`` for the rest, and for who only asks."""
        full = f"{self.__name__}.{name}"
        special = name.startswith("__") and name.endswith("__")
        if not special:
            known = _names.has_module(full) or _names.has_name(self.__name__, name)
            if known:
                _report.current.miss(full, _place())
            frame = caller()[2]
            if known and reads_plainly(frame) and not is_guarded(frame):
                return get(full) if _names.has_module(full) else missing(full)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self) from error

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets the attribute where it lives, so that what is switched here is switched there."""
        if isinstance(value, Facade):
            self._tesserack_put_back(name)
            if self._tesserack_is_other(name):
                return
        ModuleType.__setattr__(self, name, value)
        if name.startswith(("__", "_tesserack_")) or isinstance(value, Facade):
            return
        modules = self._tesserack_load()
        for module in modules:
            if hasattr(module, name):
                was = getattr(module, name)
                if isinstance(was, ModuleType):
                    _replaced.setdefault((module.__name__, name), vars(module).get(name))
                setattr(module, name, value)
                if self.__name__ in ("torch", "torch._VF") and callable(value):
                    _follow(self.__name__, name, was, value)
                if not callable(value):
                    ModuleType.__delattr__(self, name)  # read from where it lives
                return

    def _tesserack_put_back(self, name: str) -> None:
        """What was set in a module's place, as tests do with ``torch.cuda``, goes wherever it was set."""
        for module in self._tesserack_load():
            if (module.__name__, name) not in _replaced:
                continue
            was = _replaced.pop((module.__name__, name))
            if was is None:  # the module takes it from elsewhere
                delattr(module, name)
            else:
                setattr(module, name, was)

    def _tesserack_is_other(self, name: str) -> bool:
        """Whether a name that a module has too is a function's or a class's here, as ``torch.autograd.gradcheck``."""
        found = [vars(module)[name] for module in self._tesserack_load() if name in vars(module)]
        return bool(found) and not isinstance(found[0], ModuleType)

    def __dir__(self) -> list[str]:
        found = {*_own(self)}
        for module in self._tesserack_load():
            found.update(dir(module))
        return sorted(name for name in found if not name.startswith("_tesserack_"))

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        """The names with their values, as ``vars`` of the real module has them."""
        found: dict[str, Any] = {}
        for module in reversed(self._tesserack_load()):
            found.update((k, v) for k, v in vars(module).items() if not k.startswith("__"))
        found.update(_own(self))
        return found

    def __reduce__(self) -> Any:
        """By an import: cloudpickle sends functions with the modules that they use, and knows Python's kind alone."""
        return importlib.import_module, (self.__name__,)

    def __repr__(self) -> str:
        return f"<module {self.__name__!r} by tesserack.compat>"


def _follow(module: str, name: str, was: Any, value: Any) -> None:
    """Lets what calls a function in PyTorch call what stands in its place now."""
    from tesserack.compat import _patched  # only for programs that replace functions

    shown = _patched.follow(module, name, was, value)
    if shown:
        _own(get("torch.nn.functional")).pop(shown, None)


def _imported(module: str, attribute: str = "") -> Any:
    """What a module of PyTorch's imports from elsewhere: a module, or what one holds."""
    found: Any = get(module) if module.partition(".")[0] == "torch" else importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


def _as_facade(full: str, value: ModuleType) -> Any:
    """The facade of a module of ours; other modules, and those of devices, as they are."""
    if type(value).__name__ == "DeviceModule":
        return get(full) if exists(full) else value
    inside = value.__name__.partition(".")[0] == "tesserack"
    return get(full) if inside and exists(full) else value


def _place() -> str:
    file, line, _ = caller()
    return f"{file}:{line}"


# --- names of classes ----------------------------------------------------------------------------------------------


def adopt_classes(values: Any) -> None:
    """Let classes of ours say that they are defined where PyTorch defines them: in type names and in pickles."""
    for value in [*values]:
        if not isinstance(value, type):
            continue
        module = value.__dict__.get("__module__", "")
        if not isinstance(module, str) or module.partition(".")[0] != "tesserack" or module.startswith(SHIMS):
            continue
        if value.__module__ != "tesserack" or value is tesserack.Tensor:
            home = _home(module, value.__name__)
            if home:
                _rename(value, home)


def _home(module: str, name: str) -> str:
    """The module of PyTorch's that a class of ours says it is defined in; empty if it stays with its own."""
    shown = homes.public_name(module).partition(".")[2]
    found = _aliases.home(module, name)
    if found or (shown and not shown.startswith("_tensor.")):
        return found or _names.home(f"torch.{shown}", name)
    return "torch"


def _rename(cls: type, module: str) -> None:
    before = cls.__module__
    if _adopted.setdefault((module, cls.__qualname__), cls) is not cls:
        return  # another class is pickled by that name
    try:
        cls.__module__ = module
    except (AttributeError, TypeError):
        return  # a static type: its name is the native core's to change
    _renamed.append((cls, before))


def restore_classes() -> None:
    """Take back what :func:`adopt_classes` did."""
    for cls, module in reversed(_renamed):
        cls.__module__ = module
    _renamed.clear()
    _adopted.clear()


def set_adopting(on: bool) -> None:
    """Whether classes are adopted as their modules are shown."""
    _state["adopt"] = on


def known() -> dict[str, Facade]:
    """The facades made so far, by name."""
    return _facades
