"""Pickles in packages: as those of ``torch.save``, with names that an importer gives and finds."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from types import FunctionType
from typing import Any, ClassVar

import tesserack as ts
from tesserack import Tensor, serialization
from tesserack.fx._naming import shown_package
from tesserack.serialization import _objects
from tesserack.serialization._torch_file import Storages
from tesserack.serialization._torch_writer import StorageTable, deep_recursion
from tesserack.serialization.package.importer import (
    Importer,
    ObjMismatchError,
    ObjNotFoundError,
    lookup,
    sys_importer,
)

__all__ = ["read", "write"]

Reduce = Callable[[Any], Any]


class _Pickler(_objects._Pickler):
    """Notes the modules whose names it writes, with the names."""

    def __init__(self, file: Any, protocol: int, importer: Importer, table: StorageTable, reduce: Reduce) -> None:
        super().__init__(file, protocol, legacy=False)
        self.table = table
        self.named: dict[str, list[str]] = {}
        self._importer = importer
        self._reduce = reduce

    def persistent_id(self, obj: Any) -> Any:
        found = super().persistent_id(obj)
        return self._reduce(obj) if found is None and hasattr(obj, "__reduce_package__") else found

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """The name of an object, as the importer has it."""
        if self._importer is sys_importer:
            path = name or getattr(obj, "__qualname__", None) or obj.__name__
            self._note(sys_importer.whichmodule(obj, path), path)
            super().save_global(obj, name)
            return
        try:
            module, path = self._importer.get_name(obj, name)
        except (ObjNotFoundError, ObjMismatchError) as error:
            raise pickle.PicklingError(f"Can't pickle {obj}: {error}") from error
        self._note(module, path)
        if self.proto >= 4:
            self.save(module)
            self.save(path)
            self.write(pickle.STACK_GLOBAL)
        elif "." in path:
            _, parent = lookup(self._importer.import_module(module), path)
            self.save_reduce(getattr, (parent, path.rpartition(".")[2]))
        else:
            self.write(pickle.GLOBAL + f"{module}\n{path}\n".encode())
        self.memoize(obj)

    def _note(self, module: str, name: str) -> None:
        self.named.setdefault(module, []).append(name)

    def _write_name(self, name: _objects._Name) -> None:
        self._note(name.module, name.name)
        super()._write_name(name)

    def _write_function(self, function: FunctionType) -> None:
        # By PyTorch's name only while `import torch` means us: else a reader might have neither.
        if shown_package() == "torch":
            super()._write_function(function)
        else:
            self.save_global(function)

    def _write_other_function(self, function: FunctionType) -> None:
        self.save_global(function)

    dispatch: ClassVar[dict[type, Callable[..., None]]] = {
        **_objects._Pickler.dispatch,
        _objects._Name: _write_name,
        FunctionType: _write_function,
    }


def write(
    obj: Any, protocol: int, importer: Importer, table: StorageTable, reduce: Reduce
) -> tuple[bytes, dict[str, list[str]]]:
    """The pickle of an object whose tensors lie in ``table``, and the modules that it names, with the names.

    ``reduce`` gives the persistent ids of objects that have ``__reduce_package__``.
    """
    file = io.BytesIO()
    with deep_recursion():
        pickler = _Pickler(file, protocol, importer, table, reduce)
        pickler.dump(obj)
    return file.getvalue(), pickler.named


def read(data: bytes, importer: Any, get_record: Callable[[str], bytes], map_location: Any) -> Any:
    """The object of a pickle, whose modules the importer gives and whose tensors are in records."""

    def content(key: str, nbytes: int) -> Tensor:
        record = get_record(f".data/{key}.storage")
        if len(record) != nbytes:
            raise RuntimeError(f"load_pickle: expected a storage {key!r} of {nbytes} bytes, got {len(record)}")
        raw = ts.empty(nbytes, dtype=ts.uint8, device="cpu")
        memoryview(raw).cast("B")[:] = record
        return raw

    storages = Storages(content, serialization._placer(_objects._restoring(map_location)))
    made: dict[Any, Any] = {}

    def persistent(identity: Any) -> Any:
        if identity[0] != "reduce_package":
            kind, key, *rest = identity[1:]
            return storages(("storage", kind, str(key), *rest))
        if len(identity) == 3:  # as older versions wrote them
            return identity[1](importer, *identity[2])
        _, key, function, arguments = identity
        if key not in made:
            made[key] = function(importer, *arguments)
        return made[key]

    def find(_: Any, module: str, name: str) -> Any:
        return lookup(importer.import_module(module), name)[0]

    return _objects._Unpickler(data, persistent, find).load()
