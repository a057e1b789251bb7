"""Writes packages: which modules a program needs, what is done with each, and the archive of it all."""

from __future__ import annotations

import importlib.machinery
import linecache
import os
import platform
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from tesserack.serialization._torch_writer import StorageTable
from tesserack.serialization.package import _pickling
from tesserack.serialization.package._archive import PackageWriter
from tesserack.serialization.package._digraph import DiGraph
from tesserack.serialization.package._mangling import demangle, is_mangled
from tesserack.serialization.package.find_file_dependencies import find_files_source_depends_on
from tesserack.serialization.package.glob_group import GlobGroup, GlobPattern
from tesserack.serialization.package.importer import Importer, OrderedImporter, sys_importer
from tesserack.utils.hooks import RemovableHandle

__all__ = ["EmptyMatchError", "PackageExporter", "PackagingError", "PackagingErrorReason"]

_Hook = Callable[["PackageExporter", str], None]
# They give access to the system: of Python's own modules only these have to be left outside by name.
_DISALLOWED = ("sys", "io")
_MOCKED = """\
from _mock import MockedObject
def __getattr__(attr: str):
    return MockedObject(__name__ + '.' + attr, _suppress_err=True)
"""


class _ModuleProviderAction(Enum):
    """What is done with a module."""

    INTERN = 1
    EXTERN = 2
    MOCK = 3
    DENY = 4
    REPACKAGED_MOCK_MODULE = 5
    SKIP = 6


class PackagingErrorReason(Enum):
    """Why a module cannot be in a package."""

    IS_EXTENSION_MODULE = "Module is a C extension module. torch.package supports Python modules only."
    NO_DUNDER_FILE = "Module had no __file__ defined."
    SOURCE_FILE_NOT_FOUND = "Module had a __file__, but we could not find it in your filesystem."
    DEPENDENCY_RESOLUTION_FAILED = "Dependency resolution failed."
    NO_ACTION = "Module did not match against any action pattern. Extern, mock, or intern it."
    DENIED = "Module was denied by a pattern."
    MOCKED_BUT_STILL_USED = (
        "Module was mocked out, but is still being used in the package. "
        "Please intern or extern the mocked modules if objects are supposed to be in the package."
    )

    def __repr__(self) -> str:
        return f"<PackagingErrorReason.{self.name}>"


@dataclass
class _Rule:
    action: _ModuleProviderAction
    allow_empty: bool
    was_matched: bool = False


class EmptyMatchError(Exception):
    """A pattern with ``allow_empty=False`` met no module."""


class PackagingError(Exception):
    """Modules that cannot be in the package, all of them, with reasons; ``dependency_graph`` says more."""

    def __init__(self, dependency_graph: DiGraph, debug: bool = False) -> None:
        broken: dict[PackagingErrorReason, list[str]] = {}
        for name, said in dependency_graph.nodes.items():
            if said.get("error") is not None:
                broken.setdefault(said["error"], []).append(name)
        lines = [""]
        for reason, names in broken.items():
            lines.append(f"* {reason.value}")
            for name in names:
                lines.append(f"    {name}")
                context = dependency_graph.nodes[name].get("error_context")
                if context is not None:
                    lines.append(f"      Context: {context}")
                if name in _DISALLOWED:
                    lines.append(
                        f"      Note: {name} gives code access to the system, so it is not taken from outside by "
                        f'itself; if the code has to have it, call PackageExporter.extern("{name}")'
                    )
                if debug:
                    lines.append(f"      A path to {name}: {' -> '.join(dependency_graph.first_path(name))}")
        if not debug:
            lines += ["", "Set debug=True when invoking PackageExporter for a visualization of where broken modules "]
            lines[-1] += "are coming from!"
        self.dependency_graph = dependency_graph
        super().__init__("\n".join([*lines, ""]))


class PackageExporter:
    """Writes a package to ``f``, a path or a binary file.

    What is saved is looked at for the modules that it needs, and for each the first pattern counts that was given:
    :meth:`intern` takes its code in, :meth:`extern` leaves it to be imported where the package is read, :meth:`mock`
    puts something in its place that fails once it is used, :meth:`deny` makes it an error. PyTorch's, Tesserack's and
    Python's own modules are left outside. At the end :class:`PackagingError` names all modules with which this fails.

    ``importer`` says where modules are found, several in a row; with ``debug`` errors say by what a module is needed.
    """

    importer: Importer

    def __init__(
        self,
        f: Any,
        importer: Importer | Sequence[Importer] = sys_importer,
        debug: bool = False,
    ) -> None:
        if isinstance(importer, Importer):
            self.importer = importer
        elif isinstance(importer, Sequence):
            self.importer = OrderedImporter(*importer)
        else:
            raise TypeError(
                f"PackageExporter: expected importer to be an Importer or a sequence of them, got {type(importer)}"
            )
        self.debug = debug
        self.buffer = None if isinstance(f, (str, os.PathLike)) else f
        self.zip_file = PackageWriter(f)
        self.dependency_graph = DiGraph()
        self.patterns: dict[GlobGroup, _Rule] = {}
        self._written_files: set[str] = set()
        self._reduced: dict[int, tuple[Any, Any]] = {}
        self._table = StorageTable()
        self._storages = self._unique_id = 0
        self._extern_hooks: OrderedDict[int, _Hook] = OrderedDict()
        self._mock_hooks: OrderedDict[int, _Hook] = OrderedDict()
        self._intern_hooks: OrderedDict[int, _Hook] = OrderedDict()

    # --- what is saved -----------------------------------------------------------------------------------------------

    def save_source_file(self, module_name: str, file_or_directory: str, dependencies: bool = True) -> None:
        """A file as the code of a module, or a folder with all its Python files as that of a package."""
        path = Path(file_or_directory)
        if not path.is_dir():
            self.save_source_string(module_name, _text(path), path.name == "__init__.py", dependencies)
            return
        found: list[tuple[str, str, bool]] = []
        for file in path.glob("**/*.py"):
            words = [module_name, *file.relative_to(path).with_suffix("").parts]
            is_package = words[-1] == "__init__"
            found.append((".".join(words[:-1] if is_package else words), _text(file), is_package))
        for name, source, is_package in found:  # first all, so that none is looked for elsewhere
            self._provide(name, source, is_package)
        for name, source, is_package in found:
            self.save_source_string(name, source, is_package, dependencies)

    def save_source_string(
        self, module_name: str, src: str, is_package: bool = False, dependencies: bool = True
    ) -> None:
        """A text as the code of a module, or as that of ``__init__.py`` of a package."""
        self._provide(module_name, src, is_package)
        if dependencies:
            self._follow(module_name, src, is_package)

    def _provide(self, name: str, source: str, is_package: bool) -> None:
        self._note(name, _ModuleProviderAction.INTERN, source=source, is_package=is_package)

    def save_module(self, module_name: str, dependencies: bool = True) -> None:
        """The code of a module, which is imported to find it."""
        if not isinstance(module_name, str):
            raise TypeError(
                f"save_module: expected the name of a module, got {type(module_name).__name__}; pass its __name__"
            )
        self._intern_module(module_name, dependencies)

    def save_pickle(
        self, package: str, resource: str, obj: Any, dependencies: bool = True, pickle_protocol: int = 3
    ) -> None:
        """An object under a name in a package, pickled by protocol 3 or 4, and the modules that it needs.

        An object of a class from a package needs that package's importer among ``importer``.
        """
        if pickle_protocol not in (3, 4):
            raise AssertionError(f"save_pickle: expected protocol 3 or 4, got {pickle_protocol}")
        data, named = _pickling.write(obj, pickle_protocol, self.importer, self._table, self._persistent_id)
        for key in range(self._storages, len(self._table.storages)):
            self._write(f".data/{key}.storage", self._table.content(key))
        self._storages = len(self._table.storages)
        node = f"<{package}.{resource}>"
        self._note(node, _ModuleProviderAction.INTERN, is_pickle=True)
        for module, names in named.items() if dependencies else ():
            self.dependency_graph.add_edge(node, module)
            rule = None if self._can_implicitly_extern(module) else self._rule_for(module)
            if rule is None or rule.action is not _ModuleProviderAction.MOCK:
                self.add_dependency(module)
                continue
            self._note(
                module,
                _ModuleProviderAction.MOCK,
                error=PackagingErrorReason.MOCKED_BUT_STILL_USED,
                error_context=f"Object(s) '{names}' from module `{module}` was mocked out during packaging but is "
                f"being used in resource - `{resource}` in package `{package}`. ",
            )
        self._write(self._filename(package, resource), data)

    def _persistent_id(self, obj: Any) -> Any:
        if id(obj) not in self._reduced:
            self._reduced[id(obj)] = ("reduce_package", id(obj), *obj.__reduce_package__(self)), obj
        return self._reduced[id(obj)][0]

    def save_text(self, package: str, resource: str, text: str) -> None:
        """A text under a name in a package."""
        self.save_binary(package, resource, text.encode("utf-8"))

    def save_binary(self, package: str, resource: str, binary: bytes) -> None:
        """Bytes under a name in a package."""
        self._write(self._filename(package, resource), binary)

    def get_unique_id(self) -> str:
        """A number that this package has not used yet."""
        self._unique_id += 1
        return str(self._unique_id - 1)

    # --- what is done with modules -----------------------------------------------------------------------------------

    def intern(self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True) -> None:
        """Take the code of modules in whose names match ``include`` (see :class:`GlobGroup`) and not ``exclude``.

        Without ``allow_empty``, :class:`EmptyMatchError` if there is none at the end.
        """
        self._add_rule(_ModuleProviderAction.INTERN, include, exclude, allow_empty)

    def mock(self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True) -> None:
        """Put something in the place of modules that raises ``NotImplementedError`` once it is used."""
        self._add_rule(_ModuleProviderAction.MOCK, include, exclude, allow_empty)

    def extern(self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True) -> None:
        """Leave modules to be imported where the package is read."""
        self._add_rule(_ModuleProviderAction.EXTERN, include, exclude, allow_empty)

    def deny(self, include: GlobPattern, *, exclude: GlobPattern = ()) -> None:
        """Make it an error that modules are needed."""
        self._add_rule(_ModuleProviderAction.DENY, include, exclude, True)

    def _add_rule(
        self, action: _ModuleProviderAction, include: GlobPattern, exclude: GlobPattern, allow_empty: bool
    ) -> None:
        self.patterns[GlobGroup(include, exclude=exclude)] = _Rule(action, allow_empty)

    def register_extern_hook(self, hook: _Hook) -> RemovableHandle:
        """``hook(exporter, name)`` is called for each module that is left outside, when the package is written."""
        return _hooked(self._extern_hooks, hook)

    def register_mock_hook(self, hook: _Hook) -> RemovableHandle:
        """The same for modules that are mocked."""
        return _hooked(self._mock_hooks, hook)

    def register_intern_hook(self, hook: _Hook) -> RemovableHandle:
        """The same for modules and objects that are taken in."""
        return _hooked(self._intern_hooks, hook)

    # --- dependencies ------------------------------------------------------------------------------------------------

    def _note(self, name: str, action: _ModuleProviderAction, **attributes: Any) -> None:
        self.dependency_graph.add_node(name, action=action, provided=True, **attributes)

    def _rule_for(self, name: str) -> _Rule | None:
        return next((rule for pattern, rule in self.patterns.items() if pattern.matches(name)), None)

    def _can_implicitly_extern(self, name: str) -> bool:
        top = name.partition(".")[0]
        return top in ("torch", "tesserack") or (top not in _DISALLOWED and top in sys.stdlib_module_names)

    def add_dependency(self, module_name: str, dependencies: bool = True) -> None:
        """Do with a module what the patterns say, and with those that it needs."""
        if self.dependency_graph.nodes.get(module_name, {}).get("provided") is True:
            return
        special = {
            "torch_package_importer": _ModuleProviderAction.SKIP,
            "_mock": _ModuleProviderAction.REPACKAGED_MOCK_MODULE,
        }
        if module_name in special or self._can_implicitly_extern(module_name):
            self._note(module_name, special.get(module_name, _ModuleProviderAction.EXTERN))
            return
        rule = self._rule_for(module_name)
        if rule is None:
            self.dependency_graph.add_node(module_name, error=PackagingErrorReason.NO_ACTION)
            return
        rule.was_matched = True
        self._note(module_name, rule.action)
        if rule.action is _ModuleProviderAction.DENY:
            self.dependency_graph.add_node(module_name, error=PackagingErrorReason.DENIED)
        elif rule.action is _ModuleProviderAction.INTERN:
            self._intern_module(module_name, dependencies)

    def _intern_module(self, module_name: str, dependencies: bool) -> None:
        module = self._import_module(module_name)
        name, is_package = demangle(module_name), hasattr(module, "__path__")
        source = _source_of(module)
        if source is None:
            reason, context = _why_no_source(module)
            attributes: dict[str, Any] = {"error": reason, "error_context": context}
            self._note(name, _ModuleProviderAction.INTERN, is_package=is_package, **attributes)
            return
        self._provide(name, source, is_package)
        if dependencies:
            self._follow(name, source, is_package)

    def _follow(self, name: str, source: str, is_package: bool) -> None:
        """Add what a source needs."""
        try:
            imports = find_files_source_depends_on(source, name if is_package else name.rpartition(".")[0] or name)
        except Exception as error:
            self.dependency_graph.add_node(
                name, error=PackagingErrorReason.DEPENDENCY_RESOLUTION_FAILED, error_context=str(error)
            )
            return
        needed: dict[str, bool] = {}
        for module, what in imports:  # a submodule that is imported by name does not need what it lies in
            candidates = (f"{module}.{what}", module) if what else (module,)
            if found := next(filter(self._module_exists, candidates), None):
                needed[found] = True
        for module in needed:
            self.dependency_graph.add_edge(name, module)
            self.add_dependency(module)

    def _import_module(self, module_name: str) -> ModuleType:
        try:
            return self.importer.import_module(module_name)
        except ModuleNotFoundError:
            if not is_mangled(module_name):
                raise
            raise ModuleNotFoundError(
                f"Module not found: '{module_name}'. Make sure the PackageImporter that created this module is present "
                "in `self.importer`"
            ) from None

    def _module_exists(self, module_name: str) -> bool:
        try:
            self._import_module(module_name)
        except Exception:  # whatever the module does while it is imported: its code cannot be had
            return False
        return True

    # --- what is known of them ---------------------------------------------------------------------------------------

    def dependency_graph_string(self) -> str:
        """What needs what, in the language of Graphviz."""
        return self.dependency_graph.to_dot()

    def _with_action(self, action: _ModuleProviderAction) -> list[str]:
        nodes = self.dependency_graph.nodes.items()
        return sorted(name for name, said in nodes if said.get("action") is action and "is_pickle" not in said)

    def externed_modules(self) -> list[str]:
        """The modules that are left outside so far."""
        return self._with_action(_ModuleProviderAction.EXTERN)

    def interned_modules(self) -> list[str]:
        """The modules whose code is taken in so far."""
        return self._with_action(_ModuleProviderAction.INTERN)

    def mocked_modules(self) -> list[str]:
        """The modules that are mocked so far."""
        return self._with_action(_ModuleProviderAction.MOCK)

    def denied_modules(self) -> list[str]:
        """The modules that were denied so far."""
        return self._with_action(_ModuleProviderAction.DENY)

    def get_rdeps(self, module_name: str) -> list[str]:
        """What needs a module; nothing for one that is not known."""
        known = module_name in self.dependency_graph
        return [*self.dependency_graph.predecessors(module_name)] if known else []

    def all_paths(self, src: str, dst: str) -> str:
        """By what one module needs another, in the language of Graphviz."""
        return self.dependency_graph.all_paths(src, dst)

    # --- the archive -------------------------------------------------------------------------------------------------

    def __enter__(self) -> PackageExporter:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if error is not None:
            self._abandon(error)
        else:
            self.close()

    def close(self) -> None:
        """Write the package. Nothing may be added afterwards.

        :class:`PackagingError` for modules that cannot be in it, :class:`EmptyMatchError` for patterns without any.
        """
        try:
            self._check()
            self._write_modules()
            self._write(".data/python_version", platform.python_version())
        except BaseException as error:
            self._abandon(error)
            raise
        self.zip_file.close()
        self._finish()

    def _abandon(self, error: BaseException) -> None:
        self.zip_file.abandon(error)
        self._finish()

    def _finish(self) -> None:
        del self.zip_file
        if self.buffer is not None:
            self.buffer.flush()

    def _check(self) -> None:
        if any("error" in said for said in self.dependency_graph.nodes.values()):
            raise PackagingError(self.dependency_graph, debug=self.debug)
        for pattern, rule in self.patterns.items():
            if not rule.allow_empty and not rule.was_matched:
                raise EmptyMatchError(
                    f"Exporter did not match any modules to {pattern}, which was marked as allow_empty=False"
                )

    def _write_modules(self) -> None:
        outside = []
        action = _ModuleProviderAction
        hooks = {
            action.EXTERN: self._extern_hooks,
            action.MOCK: self._mock_hooks,
            action.INTERN: self._intern_hooks,
        }
        for name, said in [*self.dependency_graph.nodes.items()]:
            done = said["action"]
            for hook in [*hooks.get(done, {}).values()]:
                hook(self, name)
            if done is action.EXTERN:
                outside.append(name)
            elif done is action.INTERN and not said.get("is_pickle"):
                self._write_source(name, said["source"], said["is_package"])
            if done in (action.MOCK, action.REPACKAGED_MOCK_MODULE) and "_mock.py" not in self._written_files:
                self._write_source("_mock", _text(Path(__file__).with_name("_mock.py")), False)
            if done is action.MOCK:
                self._write_source(name, _MOCKED, hasattr(self._import_module(name), "__path__"))
        self._write(".data/extern_modules", "\n".join(outside) + "\n")

    def _write_source(self, name: str, source: str, is_package: bool) -> None:
        self._write(name.replace(".", "/") + ("/__init__.py" if is_package else ".py"), source)

    def _filename(self, package: str, resource: str) -> str:
        if "/" in resource:
            raise ValueError(f"{resource!r} must be only a file name")
        return f"{package.replace('.', '/')}/{resource}"

    def _write(self, filename: str, content: Any) -> None:
        if filename in self._written_files:
            raise AssertionError(f"Tried to write file '{filename}', but it already exists in this archive.")
        if is_mangled(filename):
            raise AssertionError(
                f"Tried to save a torch.package'd module as '{filename}'. Directly saving torch.package'd modules is "
                "not allowed."
            )
        self._written_files.add(filename)
        self.zip_file.write_record(filename, content.encode("utf-8") if isinstance(content, str) else content)


def _hooked(hooks: OrderedDict[int, _Hook], hook: _Hook) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8")


def _source_of(module: ModuleType) -> str | None:
    """The text of a module, wherever it comes from; None if there is none."""
    file: str | None = None
    loader: Any = getattr(getattr(module, "__spec__", None), "loader", None)
    if isinstance(loader, SourceFileLoader):
        try:
            file = loader.get_filename(module.__name__)
        except ImportError:
            file = None
    file = file or getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        return None
    if lines := linecache.getlines(file, module.__dict__):
        return "".join(lines)
    try:
        source: str | None = loader.get_source(module.__name__)  # which a loader may lack
    except (AttributeError, ImportError, OSError):
        return None
    return source


def _why_no_source(module: ModuleType) -> tuple[PackagingErrorReason, str | None]:
    file = getattr(module, "__file__", None)
    if file is None:
        return PackagingErrorReason.NO_DUNDER_FILE, None
    if file.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
        return PackagingErrorReason.IS_EXTENSION_MODULE, None
    return PackagingErrorReason.SOURCE_FILE_NOT_FOUND, f"filename: {file}"
