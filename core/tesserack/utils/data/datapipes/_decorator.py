"""Decorators for classes of datapipes."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

from tesserack.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

__all__ = [
    "argument_validation",
    "functional_datapipe",
    "guaranteed_datapipes_determinism",
    "non_deterministic",
    "runtime_validation",
    "runtime_validation_disabled",
]


class functional_datapipe:
    """Give a class of datapipes a functional form on all others.

    >>> @functional_datapipe("doubled_for_example")
    ... class Doubler(IterDataPipe):
    ...     def __init__(self, source):
    ...         self.source = source
    ...     def __iter__(self):
    ...         for sample in self.source:
    ...             yield 2 * sample
    >>> from tesserack.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper([1, 2]).doubled_for_example())
    [2, 4]
    """

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name
        self.enable_df_api_tracing = enable_df_api_tracing

    def __call__(self, cls: Any) -> Any:
        """Register the class; ``TypeError`` unless it is a datapipe."""
        for base in (IterDataPipe, MapDataPipe):
            if issubclass(cls, base):
                base.register_datapipe_as_function(self.name, cls, self.enable_df_api_tracing)
                return cls
        raise TypeError("`functional_datapipe` can only decorate IterDataPipe or MapDataPipe")


_must_be_deterministic = False
_validates = True


class _Switch:
    """Holds one of this module's switches at a value, from construction or ``__enter__`` until ``__exit__``."""

    _name = ""
    _value = True

    def __enter__(self) -> None:
        self._before = globals()[self._name]
        globals()[self._name] = self._value

    def __exit__(self, *exc: object) -> None:
        globals()[self._name] = self._before


class guaranteed_datapipes_determinism(_Switch):
    """Context manager: building a pipe marked :class:`non_deterministic` inside raises ``TypeError``."""

    _name = "_must_be_deterministic"


class runtime_validation_disabled(_Switch):
    """Context manager: :func:`runtime_validation` checks nothing inside."""

    _name, _value = "_validates", False


def non_deterministic(arg: Any) -> Any:
    """Mark a class of pipes, or those of its objects for which ``arg(*arguments)`` is true, as not deterministic."""
    if inspect.isclass(arg):
        if not issubclass(arg, IterDataPipe):
            raise TypeError(
                f"Only `IterDataPipe` can be decorated with `non_deterministic`, but {arg.__name__} is found"
            )
        return _watched(arg, lambda *args, **kwargs: True)
    if not callable(arg):
        raise TypeError(f"{arg} can not be decorated by non_deterministic")

    def decorate(cls: Any) -> Any:
        if not (inspect.isclass(cls) and issubclass(cls, IterDataPipe)):
            raise TypeError(f"Only `IterDataPipe` can be decorated with `non_deterministic`, but {cls} is found")
        return _watched(cls, arg)

    return decorate


def _watched(cls: Any, is_random: Callable[..., bool]) -> Any:
    """The class itself, whose construction looks at the switch first."""
    construct = cls.__init__

    @functools.wraps(construct)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if _must_be_deterministic:
            answer = is_random(*args, **kwargs)
            if not isinstance(answer, bool):
                raise TypeError(
                    f"deterministic_fn of `non_deterministic` decorator is required to return a boolean value, "
                    f"but {type(answer)} is found"
                )
            if answer:
                raise TypeError(
                    f"{cls.__name__} is non-deterministic, but you set 'guaranteed_datapipes_determinism'. "
                    "You can turn off determinism for this DataPipe if that is acceptable for your application"
                )
        construct(self, *args, **kwargs)

    cls.__init__ = __init__
    return cls


def argument_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """Check that arguments annotated as datapipes are such, of the annotated kind of samples; else ``TypeError``."""
    signature = inspect.signature(f)

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> Any:
        hints = typing.get_type_hints(f)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            origin = typing.get_origin(hints.get(name)) or hints.get(name)
            if not (inspect.isclass(origin) and issubclass(origin, (IterDataPipe, MapDataPipe))):
                continue
            if not isinstance(value, origin):
                raise TypeError(f"Expected argument '{name}' as a {origin.__name__}, but found {type(value)}")
            wanted, given = typing.get_args(hints[name]), kind_of_samples(value)
            if wanted and not _fits(given, wanted[0]):
                raise TypeError(
                    f"Expected type of argument '{name}' as a subtype of hint {hints[name]}, but found {given}"
                )
        return f(*args, **kwargs)

    return checked


def runtime_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """Check each sample that ``__iter__`` yields against ``X`` of a class ``Pipe(IterDataPipe[X])``; ``RuntimeError``.

    ``TypeError`` for another method.
    """
    if f.__name__ != "__iter__":
        raise TypeError(f"Can not decorate function {f.__name__} with 'runtime_validation'")

    @functools.wraps(f)
    def checked(self: Any) -> Any:
        kind = kind_of_samples(self)
        for sample in f(self):
            if _validates and not _is_of(sample, kind):
                raise RuntimeError(f"Expected an instance as subtype of {kind}, but found {sample}({type(sample)})")
            yield sample

    return checked


def kind_of_samples(pipe: Any) -> Any:
    """``X`` of a class ``Pipe(IterDataPipe[X])``; ``Any`` where the class says nothing."""
    for cls in type(pipe).__mro__:
        for base in cls.__dict__.get("__orig_bases__", ()):
            origin = typing.get_origin(base)
            if inspect.isclass(origin) and issubclass(origin, (IterDataPipe, MapDataPipe)):
                (kind,) = typing.get_args(base) or (Any,)
                return Any if isinstance(kind, typing.TypeVar) else kind
    return Any


def _fits(given: Any, wanted: Any) -> bool:
    """Whether samples of one annotation are samples of the other."""
    if wanted in (Any, object) or given == wanted:
        return True
    if given is Any:
        return False
    options = _options(given)
    if len(options) > 1:
        return all(_fits(option, wanted) for option in options)
    if len(_options(wanted)) > 1:
        return any(_fits(given, option) for option in _options(wanted))
    left, right = typing.get_origin(given) or given, typing.get_origin(wanted) or wanted
    if not (inspect.isclass(left) and inspect.isclass(right) and issubclass(left, right)):
        return False
    parts = typing.get_args(wanted)
    own = typing.get_args(given)
    return not parts or (len(own) == len(parts) and all(_fits(a, b) for a, b in zip(own, parts, strict=True)))


def _options(kind: Any) -> tuple[Any, ...]:
    import types

    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)


def _is_of(sample: Any, kind: Any) -> bool:
    """Whether a sample is of an annotation, elements of containers included."""
    if kind in (Any, object):
        return True
    options = _options(kind)
    if len(options) > 1:
        return any(_is_of(sample, option) for option in options)
    if kind is None:
        return sample is None
    origin: Any = typing.get_origin(kind) or kind
    parts = typing.get_args(kind)
    if not inspect.isclass(origin) or not isinstance(sample, origin):
        return not inspect.isclass(origin)
    inside: Any = sample
    if not parts:
        return True
    if issubclass(origin, tuple):
        if len(parts) == 2 and parts[1] is Ellipsis:
            return all(_is_of(item, parts[0]) for item in inside)
        return len(inside) == len(parts) and all(_is_of(a, b) for a, b in zip(inside, parts, strict=True))
    if issubclass(origin, dict):
        return all(_is_of(k, parts[0]) and _is_of(v, parts[1]) for k, v in inside.items())
    if issubclass(origin, (list, set, frozenset)):
        return all(_is_of(item, parts[0]) for item in inside)
    return True
