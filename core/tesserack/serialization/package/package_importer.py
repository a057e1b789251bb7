"""Reads packages: modules of their own, by an import system that sees nothing but the package and what it names."""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import importlib.util
import inspect
import io
import linecache
import os
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary

from tesserack.serialization.package import _pickling
from tesserack.serialization.package._archive import DirectoryReader, PackageReader
from tesserack.serialization.package._mangling import PackageMangler, demangle
from tesserack.serialization.package.file_structure_representation import (
    Directory,
    _create_directory_from_file_list,
)
from tesserack.serialization.package.glob_group import GlobPattern
from tesserack.serialization.package.importer import Importer

__all__ = ["PackageImporter"]

# What tensors and written graphs need without saying so, and what native code imports while code of a package runs:
# that goes by the `import` of the code that called it.
_ALWAYS = ("numpy", "numpy.core", "numpy.core._multiarray_umath", "builtins", "gc", "logging", "secrets", "traceback")
# Modules of Python's that are no files of their own: attributes of others, which put them into the list of modules.
_PARTS = {"os": ("path",), "typing": ("io", "re")}
_loaded: WeakValueDictionary[str, ModuleType] = WeakValueDictionary()  # modules of all packages, by their whole names
_getfile = inspect.getfile


def _getfile_of_packages(object: Any) -> str:
    """The file of a class, though its module is in no list of Python's."""
    module = _loaded.get(object.__module__) if inspect.isclass(object) else None
    return module.__file__ if module is not None and module.__file__ else _getfile(object)


inspect.getfile = _getfile_of_packages


class _Node:
    """A name in the package: a module, or a folder of them, whose code is in a file; or a module outside."""

    def __init__(self, file: str | None = None, is_package: bool = True, outside: bool = False) -> None:
        self.file = file
        self.is_package = is_package
        self.outside = outside
        self.children: dict[str, _Node] = {}


class PackageImporter(Importer):
    """Reads the package in ``file_or_buffer``: a path, a folder where one was unpacked, or a binary file.

    Code in it imports from it alone, and modules outside that it names; ``modules`` are those imported so far.
    ``module_allowed`` is asked for each that is outside: ``ImportError`` for one that is not.
    Only for packages that are trusted: their code runs, and pickles run what they say.
    """

    modules: dict[str, ModuleType]

    def __init__(self, file_or_buffer: Any, module_allowed: Callable[[str], bool] = lambda module_name: True) -> None:
        self.zip_reader: PackageReader
        if isinstance(file_or_buffer, (str, os.PathLike)):
            self.filename = os.fspath(file_or_buffer)
            unpacked = os.path.isdir(self.filename)
            self.zip_reader = DirectoryReader(self.filename) if unpacked else PackageReader(self.filename)
        else:
            self.filename = "<binary>"
            self.zip_reader = PackageReader(file_or_buffer)
        self.modules = {"torch_package_importer": self}  # type: ignore[dict-item]  # as code in it imports it
        self.last_map_location: Any = None
        self._mangler = PackageMangler()
        self._root = _Node()
        outside = self.zip_reader.get_record(".data/extern_modules").decode("utf-8")
        self.extern_modules = outside.split()
        for name in self.extern_modules:
            if not module_allowed(name):
                raise ImportError(
                    f"package '{file_or_buffer}' needs the external module '{name}' but that module has been disallowed"
                )
            self._add_outside(name)
        for file in self.zip_reader.get_all_records():
            self._add_file(file)
        self.patched_builtins = {**vars(builtins), "__import__": self.__import__}

    def _folder(self, names: list[str]) -> _Node:
        """The node of a package, or of what is outside and covers it."""
        node = self._root
        for count, name in enumerate(names):
            node = node.children.setdefault(name, _Node())
            if node.outside:
                return node
            if not node.is_package:
                whole = ".".join(names[: count + 1])
                raise ImportError(f"inconsistent module structure. module {whole} is not a package, but has submodules")
        return node

    def _add_outside(self, name: str) -> None:
        *folders, last = name.split(".")
        folder = self._folder(folders)
        if not folder.outside:
            folder.children[last] = _Node(outside=True)

    def _add_file(self, file: str) -> None:
        *folders, last = file.split("/")
        if folders[:1] == [".data"]:
            return
        folder = self._folder(folders)
        if folder.outside:
            raise ImportError(
                f"inconsistent module structure. package contains a module file {file} that is a subpackage of a "
                "module marked external."
            )
        if last == "__init__.py":
            folder.file = file
        elif last.endswith(".py"):
            folder.children[last.removesuffix(".py")] = _Node(file, is_package=False)

    # --- what it holds -----------------------------------------------------------------------------------------------

    def import_module(self, name: str, package: Any = None) -> ModuleType:
        """A module of the package, or of outside if the package names it."""
        return self._find(self._mangler.demangle(name))

    def load_binary(self, package: str, resource: str) -> bytes:
        """The bytes under a name in a package."""
        return self.zip_reader.get_record(self._zipfile_path(package, resource))

    def load_text(self, package: str, resource: str, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The text under a name in a package."""
        return self.load_binary(package, resource).decode(encoding, errors)

    def load_pickle(self, package: str, resource: str, map_location: Any = None) -> Any:
        """The object under a name in a package; ``map_location`` as :func:`tesserack.load` takes it."""
        data = self.load_binary(package, resource)
        before, self.last_map_location = self.last_map_location, map_location
        try:
            return _pickling.read(data, self, self.zip_reader.get_record, map_location)
        finally:
            self.last_map_location = before

    def id(self) -> str:
        """What the names of its modules begin with in this process: ``<torch_package_0>``."""
        return self._mangler.parent_name()

    def file_structure(self, *, include: GlobPattern = "**", exclude: GlobPattern = ()) -> Directory:
        """Its files as a tree, as far as the patterns mean them (see :class:`GlobGroup`, with ``/`` between words)."""
        return _create_directory_from_file_list(self.filename, self.zip_reader.get_all_records(), include, exclude)

    def python_version(self) -> str | None:
        """The version of Python by which it was written; None if it does not say."""
        record = ".data/python_version"
        return self.zip_reader.get_record(record).decode().strip() if self.zip_reader.has_record(record) else None

    def _get_package(self, package: Any) -> ModuleType:
        module: Any = package if hasattr(package, "__spec__") else self.import_module(package)
        if module.__spec__.submodule_search_locations is None:
            raise TypeError(f"{module.__spec__.name!r} is not a package")
        return module  # type: ignore[no-any-return]

    def _zipfile_path(self, package: Any, resource: str | None = None) -> str:
        module: Any = self._get_package(package)
        assert module.__loader__ is self, f"{module.__name__} is not of this package"
        path = demangle(module.__name__).replace(".", "/")
        if resource is None:
            return path
        if "/" in resource:
            raise ValueError(f"{resource!r} must be only a file name")
        return f"{path}/{resource}"

    # --- modules -----------------------------------------------------------------------------------------------------

    def _find(self, name: str) -> ModuleType:
        """A module by its whole name in the package."""
        if not isinstance(name, str):
            raise TypeError(f"module name must be str, not {type(name)}")
        if not name:
            raise ValueError("Empty module name")
        if name in self.modules:
            found = self.modules[name]
            if found is None:
                raise ModuleNotFoundError(f"import of {name} halted; None in sys.modules", name=name)
            for part in _PARTS.get(name, ()):
                if hasattr(found, part):
                    self.modules[f"{name}.{part}"] = getattr(found, part)
            return found
        parent, _, last = name.rpartition(".")
        if parent:
            self._find(parent)
            if name in self.modules:  # its package imported it
                return self.modules[name]
            self._check_parent(self.modules[parent], parent, last)
        module = self._load(name, parent)
        self._install_on_parent(parent, last, module)
        return module

    def _check_parent(self, module: ModuleType, parent: str, last: str) -> None:
        if hasattr(module, "__path__"):
            return
        name, extension = f"{parent}.{last}", isinstance(module.__loader__, importlib.machinery.ExtensionFileLoader)
        if not extension:
            raise ModuleNotFoundError(f"No module named {name!r}; {parent!r} is not a package", name=name)
        if name not in self.extern_modules or not isinstance(vars(module).get(last), ModuleType):
            raise ModuleNotFoundError(
                f"No module named {name!r}; {parent!r} is a C extension: what is in it has to be a module, left "
                "outside with PackageExporter.extern",
                name=name,
            )

    def _install_on_parent(self, parent: str, last: str, module: ModuleType) -> None:
        if parent and getattr(self.modules[parent], "__loader__", None) is self:
            setattr(self.modules[parent], last, module)

    def _load(self, name: str, parent: str) -> ModuleType:
        node = self._root
        for word in name.split("."):
            if word not in node.children:
                if name not in _ALWAYS and name.partition(".")[0] != "tesserack":
                    raise ModuleNotFoundError(
                        f'No module named "{name}" in self-contained archive "{self.filename}" and the module is also '
                        f"not in the list of allowed external modules: {self.extern_modules}",
                        name=name,
                    )
                node = _Node(outside=True)
                break
            node = node.children[word]
            if node.outside:
                break
        if node.outside:
            self.modules[name] = importlib.import_module(name)
            return self.modules[name]
        return self._make(name, node, parent)

    def _make(self, name: str, node: _Node, parent: str) -> ModuleType:
        file = self._mangler.mangle(node.file) if node.file else None
        loader: Any = self
        spec = importlib.machinery.ModuleSpec(name, loader, origin="<package_importer>", is_package=node.is_package)
        module = importlib.util.module_from_spec(spec)
        self.modules[name] = module
        module.__name__ = self._mangler.mangle(name)
        own = vars(module)
        own.update(__file__=file, __cached__=None, __builtins__=self.patched_builtins, __torch_package__=True)
        _loaded[module.__name__] = module
        self._install_on_parent(parent, name.rpartition(".")[2], module)  # `from` of its own code looks there
        if node.file and file:
            linecache.lazycache(file, own)  # where tracebacks look for lines
            source = self.zip_reader.get_record(node.file)
            exec(compile(source, file, "exec", dont_inherit=True), own)
        return module

    def __import__(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> ModuleType:
        """What ``import`` does in the package's modules."""
        if level < 0:
            raise ValueError("level must be >= 0")
        if level:
            package = _package_of(globals or {})
            if not package:
                raise ImportError("attempted relative import with no known parent package")
            whole = importlib.util.resolve_name("." * level + name, package)
        else:
            whole = name
        module = self._find(whole)
        if fromlist:
            self._import_from(module, fromlist)
            return module
        rest = name.partition(".")[2]
        return self._find(whole.removesuffix(f".{rest}")) if rest else module

    def _import_from(self, module: ModuleType, names: Any, listed: bool = False) -> None:
        """Submodules that ``from module import names`` means."""
        if not hasattr(module, "__path__"):
            return
        for name in names:
            if not isinstance(name, str):
                where = f"{module.__name__}.__all__" if listed else "``from list''"
                raise TypeError(f"Item in {where} must be str, not {type(name).__name__}")
            if name == "*":
                if not listed and hasattr(module, "__all__"):
                    self._import_from(module, module.__all__, listed=True)
            elif not hasattr(module, name):
                whole = f"{demangle(module.__name__)}.{name}"
                try:
                    self._find(whole)
                except ModuleNotFoundError as error:
                    if error.name != whole or whole in self.modules:
                        raise

    # --- as a loader of modules --------------------------------------------------------------------------------------

    def get_source(self, module_name: str) -> str:
        """The text of a module of the package."""
        file = self.import_module(demangle(module_name)).__file__
        return self.zip_reader.get_record(demangle(file)).decode("utf-8") if file else ""

    def get_resource_reader(self, fullname: str) -> _Resources | None:
        """What :mod:`importlib.resources` reads other files of a package with."""
        try:
            package: Any = self._get_package(fullname)
        except ImportError:
            return None
        return _Resources(self, fullname) if package.__loader__ is self else None


def _package_of(globals: dict[str, Any]) -> str:
    """The package, by name, of the module whose globals these are."""
    package, spec = globals.get("__package__"), globals.get("__spec__")
    if package is not None:
        return str(package)
    if spec is not None:
        return str(spec.parent)
    name = str(globals.get("__name__", ""))
    return name if "__path__" in globals else name.rpartition(".")[0]


class _Resources:
    """Files of one package."""

    def __init__(self, importer: PackageImporter, fullname: str) -> None:
        self.importer = importer
        self.fullname = fullname

    def open_resource(self, resource: str) -> io.BytesIO:
        """The bytes of one."""
        return io.BytesIO(self.importer.load_binary(self.fullname, resource))

    def resource_path(self, resource: str) -> str:
        """Where one lies in the file system. ``FileNotFoundError`` if only in an archive."""
        reader, path = self.importer.zip_reader, self.importer._zipfile_path(self.fullname, resource)
        if isinstance(reader, DirectoryReader) and reader.has_record(path):
            return os.path.join(reader.directory, path)
        raise FileNotFoundError(path)

    def is_resource(self, name: str) -> bool:
        """Whether there is a file of this name, which a folder is not."""
        return self.importer.zip_reader.has_record(self.importer._zipfile_path(self.fullname, name))

    def contents(self) -> Iterator[str]:
        """The names of files and folders."""
        here = PurePosixPath(self.importer._zipfile_path(self.fullname))
        files = map(PurePosixPath, self.importer.zip_reader.get_all_records())
        inside = (file.relative_to(here) for file in files if here in file.parents)
        yield from dict.fromkeys(file.parts[0] for file in inside)
