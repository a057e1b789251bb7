"""One test for each of several values: the decorators of ``common_utils``, and what makes tests of them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

__all__ = ["instantiate_parametrized_tests", "parametrize", "reparametrize", "subtest"]

ATTRIBUTE = "parametrize_fn"


class Case(NamedTuple):
    """One case of a test: what its name ends with, the arguments, and decorators of it alone."""

    name: str
    arguments: dict[str, Any]
    decorators: tuple[Callable[[Any], Any], ...] = ()


_Cases = Callable[..., Iterable[Case]]


class subtest:
    """Values of one case, with its name and decorators."""

    def __init__(self, arg_values: Any, name: str | None = None, decorators: Iterable[Any] | None = None) -> None:
        self.arg_values, self.name, self.decorators = arg_values, name, tuple(decorators or ())


class TestParametrizer:
    """A decorator that gives a test several cases; a further one gives each of those several."""

    def cases(self, test: Any, generic_cls: Any, device_cls: Any) -> Iterable[Case]:
        """The cases of a test of a class, on the device of another."""
        raise NotImplementedError

    def __call__(self, test: Any) -> Any:
        before: _Cases | None = getattr(test, ATTRIBUTE, None)
        setattr(test, ATTRIBUTE, self.cases if before is None else _product(self.cases, before))
        return test


def _product(inner: _Cases, outer: _Cases) -> _Cases:
    def cases(test: Any, generic_cls: Any, device_cls: Any) -> Iterator[Case]:
        pairs = itertools.product(outer(test, generic_cls, device_cls), [*inner(test, generic_cls, device_cls)])
        for first, second in pairs:
            name = "_".join(filter(None, (second.name, first.name)))
            yield Case(name, {**first.arguments, **second.arguments}, first.decorators + second.decorators)

    return cases


def _shown(name: str, value: Any, place: int) -> str:
    if isinstance(value, (str, bool, int, float)) or type(value).__name__ in ("dtype", "device"):
        text = str(value).removeprefix("torch.")
    else:
        text = getattr(value, "__name__", "") or str(place)
    return f"{name}_{text}".replace(".", "_").replace("-", "_").replace("+", "_").replace(" ", "_")


class parametrize(TestParametrizer):
    """Cases from values of one argument, or of several whose names are in one text with commas."""

    def __init__(self, arg_str: str, arg_values: Iterable[Any], name_fn: Callable[..., str] | None = None) -> None:
        self.names = [name.strip() for name in arg_str.split(",") if name.strip()]
        self.values, self.name_fn = [*arg_values], name_fn

    def cases(self, test: Any, generic_cls: Any, device_cls: Any) -> Iterator[Case]:
        """One for each value."""
        if not self.names:
            yield Case("", {})
            return
        for place, given in enumerate(self.values):
            case = given if isinstance(given, subtest) else subtest(given)
            values = [case.arg_values] if len(self.names) == 1 else [*case.arg_values]
            if len(values) != len(self.names):
                raise RuntimeError(f"parametrize: {len(self.names)} arguments {self.names}, got values {values}")
            pairs = zip(self.names, values, strict=True)
            name = case.name or (
                self.name_fn(*values) if self.name_fn else "_".join(_shown(n, v, place) for n, v in pairs)
            )
            yield Case(name, dict(zip(self.names, values, strict=True)), case.decorators)


class decorateIf(TestParametrizer):
    """A decorator for the cases whose arguments a predicate takes."""

    def __init__(self, decorator: Callable[[Any], Any], predicate_fn: Callable[[dict[str, Any]], bool]) -> None:
        self.decorator, self.predicate = decorator, predicate_fn

    def __call__(self, test: Any) -> Any:
        before: _Cases = getattr(test, ATTRIBUTE, lambda test, generic_cls, device_cls: [Case("", {})])

        def cases(test: Any, generic_cls: Any, device_cls: Any) -> Iterator[Case]:
            for case in before(test, generic_cls, device_cls):
                more = (self.decorator,) if self.predicate(case.arguments) else ()
                yield case._replace(decorators=case.decorators + more)

        setattr(test, ATTRIBUTE, cases)
        return test


def reparametrize(parametrizer: Any, adapter_fn: Callable[[str, dict[str, Any]], Any]) -> Any:
    """A parametrizer whose cases are changed: ``adapter_fn(name, arguments)`` gives pairs of these."""

    class Changed(TestParametrizer):
        def cases(self, test: Any, generic_cls: Any, device_cls: Any) -> Iterator[Case]:
            for case in parametrizer.cases(test, generic_cls, device_cls):
                given = adapter_fn(case.name, dict(case.arguments))
                for name, arguments in given if isinstance(given, list) else [given]:
                    yield case._replace(name=name, arguments=arguments)

    return Changed()


def bind(test: Any, case: Case, extra: dict[str, Any] | None = None) -> Any:
    """A method that runs a test with a case's arguments."""

    @functools.wraps(test)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return test(self, *args, **{**case.arguments, **(extra or {})}, **kwargs)

    method.__dict__.pop(ATTRIBUTE, None)
    made: Any = method
    for decorate in case.decorators:
        made = decorate(made)
    return made


def add(cls: Any, name: str, test: Any) -> None:
    """Make a test a method of a class, under a name that is free."""
    if name in cls.__dict__:
        raise RuntimeError(f"{cls.__name__} has two tests named {name}")
    setattr(cls, name, test)


def instantiate_parametrized_tests(generic_cls: Any) -> Any:
    """Replace a class's tests that have several cases by one method for each."""
    for name in [name for name in dir(generic_cls) if name.startswith("test")]:
        test = getattr(generic_cls, name)
        if not hasattr(test, ATTRIBUTE):
            continue
        if name in generic_cls.__dict__:
            delattr(generic_cls, name)
        for case in getattr(test, ATTRIBUTE)(test, generic_cls, None):
            add(generic_cls, f"{name}_{case.name}" if case.name else name, bind(test, case))
    return generic_cls
