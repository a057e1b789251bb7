"""Files of ``jit.save``: a module, or a function, pickled. Where its classes can be imported, it comes back as it was.

An archive of PyTorch's holds programs, so that it opens without the sources they were written in. Nothing is compiled
here, and a file says only what the classes are called; functions that no module names are kept as source.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import io
import pickle
import textwrap
import types
import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO

import tesserack as ts
from tesserack._tensor import pickling as _pickling
from tesserack.jit._script import at_home

__all__ = ["read", "write"]

_FORMAT = "tesserack_script"
_PICKLE, _EXTRA = "module.pkl", "extra/"


def write(obj: Any, file: Any, extra: dict[str, Any] | None) -> None:
    """Write to a path or an open file. ``RuntimeError`` for what does not pickle."""
    data = io.BytesIO()
    try:
        _Pickler(data, protocol=4).dump(obj)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        kind = type(inspect.unwrap(obj)).__name__
        raise RuntimeError(
            f"jit.save: expected a {kind} that pickles, since nothing is compiled, got: {error}; define "
            "its classes and functions at the top of a module, or save the state_dict"
        ) from error
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{_FORMAT}/version", "1")
        archive.writestr(f"{_FORMAT}/{_PICKLE}", data.getvalue())
        for name, content in (extra or {}).items():
            archive.writestr(f"{_FORMAT}/{_EXTRA}{name}", content)


def read(file: Any, map_location: Any, extra: dict[str, Any] | None) -> Any:
    """What :func:`write` wrote, its tensors where ``map_location`` says."""
    try:
        archive = zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise RuntimeError(f"jit.load: expected a file of jit.save, got none: {error}") from error
    with archive:
        names = archive.namelist()
        if f"{_FORMAT}/{_PICKLE}" not in names:
            raise NotImplementedError(
                "jit.load: expected a file that jit.save of Tesserack wrote; archives of PyTorch hold programs in a "
                "language of its own, which are not run; load a state_dict into the module instead"
            )
        for name in extra or {}:
            if f"{_FORMAT}/{_EXTRA}{name}" in names:
                extra[name] = archive.read(f"{_FORMAT}/{_EXTRA}{name}")  # type: ignore[index]
        return _unpickled(io.BytesIO(archive.read(f"{_FORMAT}/{_PICKLE}")), map_location)


def _unpickled(file: BinaryIO, map_location: Any) -> Any:
    place = None if map_location is None else str(ts.device(map_location))
    try:
        return _Unpickler(file, place).load()
    except (AttributeError, ImportError) as error:
        raise RuntimeError(
            f"jit.load: expected that what the file names can be imported, since it holds no program, got: {error}"
        ) from error


class _Pickler(pickle.Pickler):
    """Python's, which takes functions that were defined in others too: by their source."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is not types.FunctionType or at_home(obj) is obj:
            return NotImplemented
        try:
            text = textwrap.dedent(inspect.getsource(obj))
        except (OSError, TypeError):
            return NotImplemented
        if obj.__name__ == "<lambda>":
            return NotImplemented
        cells = (cell.cell_contents for cell in obj.__closure__ or ())
        return _from_source, (
            obj.__module__,
            obj.__name__,
            text,
            dict(zip(obj.__code__.co_freevars, cells, strict=True)),
        )


def _from_source(module: str, name: str, text: str, enclosed: dict[str, Any]) -> Any:
    """A function of a module's, which sees the module's names and those that enclosed it."""
    made = ast.parse(text)
    function = made.body[0]
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    function.decorator_list = []
    outer = ast.parse(f"def enclosing({', '.join(enclosed)}):\n    return {name}").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body.insert(0, function)
    namespace: dict[str, Any] = {}
    code = compile(ast.Module([outer], []), f"<{module}.{name}>", "exec")
    exec(code, vars(importlib.import_module(module)) | {"__name__": module}, namespace)
    return namespace["enclosing"](**enclosed)


class _Unpickler(pickle.Unpickler):
    """Python's, which makes tensors on a device."""

    def __init__(self, file: BinaryIO, place: str | None) -> None:
        super().__init__(file)
        self._place = place

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        return _placed(found, self._place) if self._place and found is _pickling.rebuild_tensor else found


def _placed(rebuild: Callable[..., Any], place: str) -> Callable[..., Any]:
    @functools.wraps(rebuild)
    def call(cls: Any, data: Any, dtype: str, shape: Any, stride: Any, device: str, *rest: Any) -> Any:
        return rebuild(cls, data, dtype, shape, stride, place, *rest)

    return call
