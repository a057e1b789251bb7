"""From a Python function's annotations to the schema of an operator."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tesserack as ts

__all__ = ["infer_schema"]

_PLAIN: dict[Any, str] = {
    ts.Tensor: "Tensor",
    int: "int",
    float: "float",
    bool: "bool",
    str: "str",
    ts.dtype: "ScalarType",
    ts.device: "Device",
}
_NUMBERS = {frozenset({int, float}), frozenset({int, float, bool})}


def infer_schema(
    function: Callable[..., Any], /, *, mutates_args: Iterable[str] = (), op_name: str | None = None
) -> str:
    """The schema of a function, such as ``"(Tensor x, int n=2) -> Tensor"``.

    Arguments may be Tensor, int, float, bool, str, dtype, device, a number (``int | float | bool``), lists of tensors
    or numbers, and each of them optional; results Tensor, a number, a list of tensors, tuples of these, or None.
    Lists of optional tensors are taken, too. With ``op_name`` the schema begins with it.
    ``ValueError`` for others, for missing annotations, and for unknown names in ``mutates_args``. With ``"unknown"``
    all tensors may be written.

    >>> def scale(x: ts.Tensor, by: float = 2.0) -> ts.Tensor: ...
    >>> infer_schema(scale)
    '(Tensor x, float by=2.0) -> Tensor'
    """
    hints = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters
    if mutates_args == "unknown":
        mutated = {name for name in parameters if name in hints and _type(hints[name], name).startswith("Tensor")}
    else:
        mutated = {mutates_args} if isinstance(mutates_args, str) else set(mutates_args)
    if mutated - parameters.keys():
        raise ValueError(f"custom_op: mutates_args names {sorted(mutated - parameters.keys())}, which are no arguments")
    parts: list[str] = []
    letters = iter("abcdefghijklmnop")
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ValueError(f"custom_op: {name} collects arguments; operators have a fixed number of them")
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        parts.append(_argument(name, parameter, hints, next(letters) if name in mutated else ""))
    return f"{op_name or ''}({', '.join(parts)}) -> {_results(hints.get('return', inspect.Signature.empty))}"


def _argument(name: str, parameter: inspect.Parameter, hints: dict[str, Any], alias: str) -> str:
    if name not in hints:
        raise ValueError(f"custom_op: the argument {name} needs an annotation, as in {name}: Tensor")
    kind = _type(hints[name], name)
    if alias:
        if not kind.startswith("Tensor"):
            raise ValueError(f"custom_op: mutates_args names {name}, which is {kind} and no tensor")
        kind = f"Tensor({alias}!){kind.removeprefix('Tensor')}"
    default = parameter.default
    if default is parameter.empty:
        return f"{kind} {name}"
    return f"{kind} {name}={_shown(default, kind)}"


def _shown(default: Any, kind: str) -> str:
    if isinstance(default, str) and kind != "Device":
        return f'"{default}"'
    text = str(list(default) if isinstance(default, tuple) else default)
    return text.rpartition(".")[2] if isinstance(default, ts.dtype) else text


def _type(hint: Any, name: str) -> str:
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        some = frozenset(a for a in args if a is not type(None))
        suffix = "?" if len(some) < len(args) else ""
        if some in _NUMBERS:
            return f"Scalar{suffix}"
        if len(some) == 1 and suffix:
            return f"{_type(next(iter(some)), name)}?"
    if origin in (list, Sequence, tuple) and args and args[0] in (ts.Tensor, int, float):
        return f"{_PLAIN[args[0]]}[]"
    if origin in (list, Sequence) and args and {*typing.get_args(args[0])} == {ts.Tensor, type(None)}:
        return "Tensor?[]"
    raise ValueError(f"custom_op: {name} is annotated {hint}, which operators cannot take or give")


def _results(hint: Any) -> str:
    if hint is inspect.Signature.empty:
        raise ValueError("custom_op: the function needs an annotation of its result, as in -> Tensor (or -> None)")
    if hint is None or hint is type(None):
        return "()"
    if typing.get_origin(hint) is tuple:
        return f"({', '.join(_type(part, 'the result') for part in typing.get_args(hint))})"
    return _type(hint, "the result")
