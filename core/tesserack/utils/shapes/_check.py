"""``check_shapes``: for functions, classes, and packages as they are imported."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeVar, overload

from tesserack.utils.shapes._compile import checked
from tesserack.utils.shapes._hook import Finder
from tesserack.utils.shapes._kinds import Run, kind_of, like
from tesserack.utils.shapes._plan import UnknownNameError, make_plan
from tesserack.utils.shapes._switch import state

__all__ = ["PackageChecks", "check_shapes"]

_T = TypeVar("_T")
_MARK = "__shapes_checked__"
_PROPERTIES = (property, functools.cached_property)


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
        of: a function, a method, a property, or a class, whose annotated methods and properties are checked,
            ``forward`` of modules among them; of coroutines the result is, of generators what they yield;
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
    if isinstance(of, _PROPERTIES):
        return _check_property(of, None, names)
    if not inspect.isfunction(of):
        raise TypeError(f"check_shapes: expected a function, a class or a package's name, got {type(of).__name__}")
    return _check_function(of, None, names)


def _check_function(function: Any, owner: type | None, keep: Sequence[str], local: bool = False) -> Any:
    """``local``: annotations may name what only the function around it sees; it stays as it is then."""
    if not state.on or hasattr(function, _MARK):
        return function
    try:
        plan = make_plan(function, owner, keep)
        wrapped = checked(plan) if plan is not None else function
    except UnknownNameError:
        wrapped = function if local else _later(function, owner, keep)
    if wrapped is not function:
        setattr(wrapped, _MARK, True)
    return wrapped


def _later(function: Any, owner: type | None, keep: Sequence[str]) -> Any:
    """For annotations with names that are defined further down: looked at when first called."""
    found: list[Any] = []

    def wrapped() -> Any:
        if not state.on:
            return function
        if not found:
            try:
                plan = make_plan(function, owner, keep)
            except UnknownNameError as error:
                raise TypeError(f"{error}; import what it needs outside of TYPE_CHECKING") from error
            found.append(checked(plan) if plan is not None else function)
        return found[0]

    if kind_of(function):
        return like(function, lambda args, kwargs: Run(wrapped()(*args, **kwargs)))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return wrapped()(*args, **kwargs)

    return call


def _check_property(of: Any, owner: type | None, keep: Sequence[str], local: bool = False) -> Any:
    """A property whose functions are checked; the same object if none has a shape."""
    if isinstance(of, functools.cached_property):
        inner = _check_function(of.func, owner, keep, local)
        return of if inner is of.func else type(of)(inner)
    own = [of.fget, of.fset, of.fdel]
    functions = [_check_function(f, owner, keep, local) if inspect.isfunction(f) else f for f in own]
    return of if functions == own else type(of)(*functions, of.__doc__)


def _check_class(of: type, keep: Sequence[str], local: bool = False) -> type:
    for name, member in [*vars(of).items()]:
        if inspect.isfunction(member):
            wrapped = _check_function(member, of, keep, local)
        elif isinstance(member, (staticmethod, classmethod)) and inspect.isfunction(member.__func__):
            inner = _check_function(member.__func__, None, keep, local)
            wrapped = member if inner is member.__func__ else type(member)(inner)
        elif type(member) in _PROPERTIES:  # others may be made otherwise
            wrapped = _check_property(member, of, keep, local)
        else:
            continue
        if wrapped is not member:
            setattr(of, name, wrapped)
            if isinstance(wrapped, functools.cached_property):
                wrapped.__set_name__(of, name)
    return of


def _check_module(module: ModuleType) -> None:
    for name, member in [*vars(module).items()]:
        if getattr(member, "__module__", None) == module.__name__:
            if isinstance(member, type):
                _check_class(member, ())
            elif inspect.isfunction(member):
                setattr(module, name, _check_function(member, None, ()))


def _check_nested(of: Any) -> Any:
    return _check_class(of, (), True) if isinstance(of, type) else _check_function(of, None, (), True)


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
        self._finder: Any = Finder(self._has, _check_module, _check_nested)
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
