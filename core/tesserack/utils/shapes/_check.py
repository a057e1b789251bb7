"""``check_shapes``: for functions, classes, and packages as they are imported."""

from __future__ import annotations

import functools
import importlib.machinery
import inspect
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeVar, overload

from tesserack.utils.shapes._compile import checked
from tesserack.utils.shapes._plan import UnknownNameError, make_plan
from tesserack.utils.shapes._switch import state

__all__ = ["PackageChecks", "check_shapes"]

_T = TypeVar("_T")
_MARK = "__shapes_checked__"


@overload
def check_shapes(of: str, /) -> PackageChecks: ...
@overload
def check_shapes(of: _T, /, *, keep: str | Sequence[str] = ()) -> _T: ...
@overload
def check_shapes(*, keep: str | Sequence[str] = ()) -> Callable[[_T], _T]: ...
def check_shapes(of: Any = None, /, *, keep: str | Sequence[str] = ()) -> Any:
    """Hold the tensors of every call against annotations such as ``Float[Tensor, "batch heads dim"]``.

    Annotations are those of ``jaxtyping``, or of :mod:`tesserack.utils.shapes`, which are written alike. One name has
    one size within a call; attributes that a class annotates (``weight: Float[Tensor, "out in"]``) bind their names
    in each of its calls. An error that an operator raises about shapes inside the function is told in these names.

    Args:
        of: a function, a method, or a class, whose annotated methods are checked, ``forward`` of modules among them;
            or the name of a package, to check all of it that is imported while the returned context is entered.
        keep: names that keep, for one instance, the size of its first call.

    Raises:
        ShapeError: from the function, a ``RuntimeError``: a tensor is not what its annotation says.
        ValueError: an annotation is no shape, or needs a name that nothing gives a size.
        TypeError: ``of`` is nothing that can be checked.

    >>> import tesserack as ts
    >>> from tesserack.utils.shapes import Float
    >>> @ts.check_shapes
    ... def attend(q: Float[ts.Tensor, "heads time dim"], out: Float[ts.Tensor, "time heads*dim"]):
    ...     return out
    >>> attend(ts.ones(8, 5, 64), ts.ones(5, 384))
    Traceback (most recent call last):
    ...
    tesserack...ShapeError: `attend`: heads*dim is 512, got 384 in axis 1 of `out` [5, 384]; heads=8 from `q`, dim=...
    """
    names = (keep,) if isinstance(keep, str) else tuple(keep)
    if of is None:
        return functools.partial(check_shapes, keep=names)
    if isinstance(of, str):
        return PackageChecks(of)
    if isinstance(of, ModuleType):
        _check_module(of)
        return of
    if isinstance(of, type):
        return _check_class(of, names)
    if isinstance(of, (staticmethod, classmethod)):
        return type(of)(check_shapes(of.__func__, keep=names))
    if not inspect.isfunction(of):
        raise TypeError(f"check_shapes: expected a function, a class or a package's name, got {type(of).__name__}")
    return _check_function(of, None, names)


def _check_function(function: Any, owner: type | None, keep: Sequence[str]) -> Any:
    if not state.on or hasattr(function, _MARK):
        return function
    try:
        plan = make_plan(function, owner, keep)
        wrapped = checked(plan) if plan is not None else function
    except UnknownNameError:
        wrapped = _later(function, owner, keep)
    if wrapped is not function:
        setattr(wrapped, _MARK, True)
    return wrapped


def _later(function: Any, owner: type | None, keep: Sequence[str]) -> Any:
    """For annotations with names that are defined further down: looked at when first called."""
    found: list[Any] = []

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not state.on:
            return function(*args, **kwargs)
        if not found:
            try:
                plan = make_plan(function, owner, keep)
            except UnknownNameError as error:
                raise TypeError(f"{error}; import what it needs outside of TYPE_CHECKING") from error
            found.append(checked(plan) if plan is not None else function)
        return found[0](*args, **kwargs)

    return call


def _check_class(of: type, keep: Sequence[str]) -> type:
    for name, member in [*vars(of).items()]:
        if inspect.isfunction(member):
            wrapped = _check_function(member, of, keep)
        elif isinstance(member, (staticmethod, classmethod)) and inspect.isfunction(member.__func__):
            inner = _check_function(member.__func__, None, keep)
            wrapped = member if inner is member.__func__ else type(member)(inner)
        else:
            continue
        if wrapped is not member:
            setattr(of, name, wrapped)
    return of


def _check_module(module: ModuleType) -> None:
    for name, member in [*vars(module).items()]:
        if getattr(member, "__module__", None) == module.__name__:
            if isinstance(member, type):
                _check_class(member, ())
            elif inspect.isfunction(member):
                setattr(module, name, _check_function(member, None, ()))


class PackageChecks:
    """Checks every module of a package: those that are there, and, until left as a context or by :meth:`remove`, those
    that come.

    >>> with PackageChecks("json") as checks:
    ...     import json
    """

    def __init__(self, package: str) -> None:
        self.package = package
        for name, module in [*sys.modules.items()]:
            if self._has(name) and isinstance(module, ModuleType):
                _check_module(module)
        self._finder: Any = _Finder(self._has)
        sys.meta_path.insert(0, self._finder)

    def _has(self, name: str) -> bool:
        return name == self.package or name.startswith(f"{self.package}.")

    def remove(self) -> None:
        """Leave modules alone from here on; what is checked stays so."""
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)

    def __enter__(self) -> PackageChecks:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class _Finder:
    def __init__(self, has: Callable[[str], bool]) -> None:
        self._has = has

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if not self._has(fullname):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                _check_module(module)

            loader.exec_module = exec_module
        return spec
