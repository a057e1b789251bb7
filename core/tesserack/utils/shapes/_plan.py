"""What a function's annotations ask of a call, and the errors of operators told in its names of axes."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import re
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tesserack._native import Tensor
from tesserack.utils.shapes._binding import Binding, ShapeError
from tesserack.utils.shapes._hints import Check, Parts, check_of
from tesserack.utils.shapes._kinds import kind_of

__all__ = ["Plan", "UnknownNameError", "make_plan"]

KEPT = "_kept_axes"
_CONTAINERS = (list, tuple, dict)
_MADE = getattr(dataclasses, "_HAS_DEFAULT_FACTORY", object())  # the default of an argument that is made if missing
# What operators speak of when shapes do not fit.
_ABOUT_SHAPES = re.compile(
    r"shape|size|dimension|channels|elements|broadcast|subscript|must match|length|out of range|[\[(]\d+(, \d+)+[\])]",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.#-])\d+(?!\.?\d)|(?<=\dx)\d+")


class UnknownNameError(Exception):
    """An annotation names what is not defined, or not yet."""


@dataclass
class Plan:
    """The checks of one function. ``attributes`` are those that its class annotates, ``keep`` names of axes that an
    instance keeps from its first call on."""

    function: Callable[..., Any]
    name: str
    parameters: tuple[str, ...]
    checks: dict[str, Check]
    attributes: dict[str, Check]
    result: Check | None
    keep: tuple[str, ...] = ()
    signature: inspect.Signature = field(default_factory=inspect.Signature)
    instance: str = ""  # the parameter that is the object, of a method
    yields: Check | None = None  # of a generator
    makes: bool = False  # an `__init__` that calls what makes a default, as those of data classes do

    def bind(self, values: Sequence[Any]) -> Binding:
        """Names of axes of a call with these arguments.

        Raises:
            ShapeError: an argument is not what its annotation says.
        """
        arguments = dict(zip(self.parameters, values, strict=True))
        if self.instance:
            arguments.setdefault("self", values[0])  # for what the class annotates
        binding = Binding(self.name, arguments)
        kept = self._kept(values)
        for name, (size, source) in (kept or {}).items():
            binding.bind(name, size, source)
        later = []
        for name, check in self.attributes.items():
            value = getattr(values[0], name, None)
            if value is not None:
                later += check(value, binding, f"`{self.instance}.{name}`")
        for name, check in self.checks.items():
            if not self._says_none(name, arguments[name]):
                later += check(arguments[name], binding, f"`{name}`")
        for axis, size, place in later:
            binding.settle(axis, size, place)
        if kept is not None:
            for name in self.keep:
                if name in binding.sizes and name not in kept:
                    source = binding.sources[name]
                    kept[name] = binding.sizes[name], f"{source} of an earlier call"
        return binding

    def _says_none(self, name: str, value: Any) -> bool:
        """Whether it is a default such as None: what its author says goes before the annotation."""
        return value is self.signature.parameters[name].default and not isinstance(value, (Tensor, *_CONTAINERS))

    def values(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The arguments of a call in the order of parameters."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return [bound.arguments[name] for name in self.parameters]

    def _kept(self, values: Sequence[Any]) -> dict[str, tuple[int, str]] | None:
        if not self.keep or not hasattr(values[0], "__dict__"):
            return None
        kept: dict[str, tuple[int, str]] = values[0].__dict__.setdefault(KEPT, {})
        return kept

    def check_result(self, binding: Binding, value: Any) -> None:
        """Hold a result against its annotation.

        Raises:
            ShapeError: it is something else.
        """
        assert self.result is not None
        for axis, size, place in self.result(value, binding, "the result"):
            binding.settle(axis, size, place)

    def check_yield(self, binding: Binding, value: Any) -> None:
        """Hold a value that a generator yields against its annotation: names keep what the first bound them to.

        Raises:
            ShapeError: it is something else.
        """
        if self.yields is not None:
            for axis, size, place in self.yields(value, binding, "what it yields"):
                binding.settle(axis, size, place)

    def check_call(self, values: Sequence[Any], value: Any) -> None:
        """The same from the arguments."""
        self.check_result(self.bind(values), value)

    def explain(self, error: Exception, values: Sequence[Any]) -> None:
        """Add the names of axes to an operator's error about shapes; the innermost checked function does."""
        if isinstance(error, ShapeError) or not isinstance(error, (RuntimeError, ValueError, IndexError)):
            return
        message = str(error)
        if len(error.args) != 1 or hasattr(error, "named_axes") or not _ABOUT_SHAPES.search(message):
            return
        try:
            binding = self.bind(values)
        except Exception:  # the error at hand is what counts
            return
        if binding.sizes or binding.runs:
            error.args = (f"`{self.name}`: {message}{_named(message, binding)}{binding.known()}",)
            error.__dict__["named_axes"] = tuple(binding.sizes)  # for the functions around


def _named(message: str, binding: Binding) -> str:
    sizes = {name: size for name, size in binding.sizes.items() if size > 1}
    parts = []
    for number in dict.fromkeys(map(int, _NUMBER.findall(message))):
        names = [name for name, size in sizes.items() if size == number] or _product(number, sizes)
        if number > 1 and names:
            parts.append(f"{number} is {' or '.join(names)}")
    return "; " + ", ".join(parts) if parts else ""


def _product(number: int, sizes: Mapping[str, int]) -> list[str]:
    for count in (2, 3):
        for names in itertools.combinations(sizes, count):
            if functools.reduce(lambda product, name: product * sizes[name], names, 1) == number:
                return ["*".join(names)]
    return []


def make_plan(function: Callable[..., Any], owner: type | None = None, keep: Sequence[str] = ()) -> Plan | None:
    """The plan of a function, or None if none of its annotations has a shape.

    Raises:
        UnknownNameError: an annotation cannot be evaluated yet.
        ValueError: a shape needs a name of an axis that nothing gives a size.
    """
    signature = inspect.signature(function)
    checks = {}
    for name, parameter in signature.parameters.items():
        check = _check(parameter.annotation, function)
        if check is not None and parameter.kind is parameter.VAR_POSITIONAL:
            check = Parts(tuple, (check,))
        elif check is not None and parameter.kind is parameter.VAR_KEYWORD:
            check = Parts(dict, (check,))
        if check is not None:
            checks[name] = check
    yields, result = _results(signature.return_annotation, function)
    instance = _instance(signature, owner, checks)
    attributes = _attributes(owner) if owner is not None and instance else {}
    if not checks and result is None and yields is None:
        return None
    name = function.__qualname__.rpartition("<locals>.")[2]
    names = tuple(signature.parameters)
    makes = any(parameter.default is _MADE for parameter in signature.parameters.values())
    plan = Plan(function, name, names, checks, attributes, result, tuple(keep), signature, instance, yields, makes)
    _complete(plan)
    return plan


def _results(hint: Any, function: Callable[..., Any]) -> tuple[Check | None, Check | None]:
    """What its values are to be: those that it yields, and the last."""
    if "generator" not in kind_of(function):
        return None, _check(hint, function)
    arguments = typing.get_args(_evaluated(hint, function))  # of Iterator and Generator alike, also asynchronous ones
    plain = kind_of(function) == "generator" and len(arguments) == 3
    return _check(arguments[0], function) if arguments else None, _check(arguments[2], function) if plain else None


def _instance(signature: inspect.Signature, owner: type | None, checks: Mapping[str, Check]) -> str:
    first = next(iter(signature.parameters.values()), None)
    if first is None or first.name in checks or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        return ""
    return first.name if owner is not None or first.name == "self" else ""


def _complete(plan: Plan) -> None:
    """Every expression has names that some annotation binds."""
    results = [check for check in (plan.result, plan.yields) if check is not None]
    every = [*plan.checks.values(), *plan.attributes.values(), *results]
    axes = [axis for check in every for shape in check.shapes() for axis in shape.axes]
    bound = {axis.name for axis in axes if axis.kind == "name" and not axis.many}
    for axis in axes:
        missing = [name for name in axis.expression.names if name not in bound] if axis.expression else []
        if missing:
            raise ValueError(
                f"check_shapes: `{plan.name}`: {axis.text!r} needs {missing[0]!r}, which no annotation has as an axis;"
                f" for an attribute write {{self.{missing[0]}}}"
            )
    if plan.keep and not set(plan.keep) <= bound:
        plan.keep = tuple(name for name in plan.keep if name in bound)


def _attributes(owner: type) -> dict[str, Check]:
    found: dict[str, Check] = {}
    for base in reversed(owner.__mro__):
        space = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
        for name, hint in inspect.get_annotations(base).items():
            check = _check(hint, base, space)
            if check is not None:
                found[name] = check
    return found


def _check(hint: Any, of: Any, space: Mapping[str, Any] | None = None) -> Check | None:
    return check_of(_evaluated(hint, of, space))


def _evaluated(hint: Any, of: Any, space: Mapping[str, Any] | None = None) -> Any:
    """An annotation, of its text where it is one; None for the text of a class that only type checkers import."""
    if not isinstance(hint, str):
        return hint
    try:
        return eval(hint, {**_names(of), **(space or {})})
    except Exception as error:
        if "[" in hint and ('"' in hint or "'" in hint):
            where = f"check_shapes: `{of.__qualname__}`"
            raise UnknownNameError(f"{where}: cannot evaluate {hint}: {error}") from error
        return None


def _names(of: Any) -> dict[str, Any]:
    """What an annotation written as text can see."""
    function = inspect.unwrap(of)
    names = dict(getattr(function, "__globals__", {}))
    cells = getattr(function, "__closure__", None) or ()
    code = getattr(function, "__code__", None)
    for name, cell in zip(code.co_freevars if code else (), cells, strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not yet assigned
            continue
    return names
