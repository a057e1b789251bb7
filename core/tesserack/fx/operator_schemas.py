"""Signatures of operators, and arguments put in the order of a signature."""

from __future__ import annotations

import functools
import inspect
import numbers
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import _native, nn
from tesserack._native import Operator
from tesserack.aten.operators import OpOverload, OpOverloadPacket
from tesserack.aten.schema import Argument, FunctionSchema, parse
from tesserack.fx._compatibility import compatibility
from tesserack.fx._naming import path_from_package, shown_package

__all__ = ["ArgsKwargsPair", "check_for_mutable_operation", "create_type_hint", "get_signature_for_torch_op",
           "normalize_function", "normalize_module", "type_matches"]  # fmt: skip

_TYPES: dict[str, Any] = {
    "Tensor": ts.Tensor, "Operand": ts.Tensor, "bool": bool, "int": int, "float": float, "str": str,
    "Scalar": numbers.Number, "ScalarType": int, "Device": ts.device, "MemoryFormat": type(ts.contiguous_format),
    "Generator": ts.Generator, "Layout": type(ts.strided),
}  # fmt: skip


class ArgsKwargsPair(NamedTuple):
    """Positional and keyword arguments."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _torchscript_type_to_python_type(ts_type: Any) -> Any:
    """The annotation that a type of TorchScript's, as ``torch._C._jit_try_infer_type`` gives it, is in Python."""
    return ts_type.annotation


# --- signatures ------------------------------------------------------------------------------------------------------


def _annotation(kind: str) -> Any:
    """A type of a schema as Python's."""
    if kind.endswith("?"):
        inner = _annotation(kind[:-1])
        return typing.Optional[inner]  # noqa: UP045
    if kind.endswith("]"):
        name = kind[: kind.rindex("[")]
        item: Any = _annotation(name)
        return typing.List[item]  # noqa: UP006
    return _TYPES.get(kind.partition("(")[0], Any)


def _parameter(argument: Argument, first: bool) -> inspect.Parameter:
    name = "input" if argument.name == "self" and first else argument.name
    kind = inspect.Parameter.KEYWORD_ONLY if argument.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
    default = argument.default_value if argument.has_default else inspect.Parameter.empty
    return inspect.Parameter(name, kind, default=default, annotation=_annotation(argument.type))


def _signature(schema: FunctionSchema) -> inspect.Signature:
    parameters = [_parameter(argument, k == 0) for k, argument in enumerate(schema.arguments)]
    kinds = [_annotation(result.type) for result in schema.returns]
    returned = kinds[0] if len(kinds) == 1 else tuple(kinds)
    return inspect.Signature(parameters, return_annotation=returned)


@functools.cache
def _records() -> dict[str, list[FunctionSchema]]:
    found: dict[str, list[FunctionSchema]] = {}
    for record in _native._operators():
        base, _, overload = record["name"].partition(".")
        found.setdefault(record["python_name"], []).append(parse(f"aten::{base}", overload, record["schema"]))
    return found


def _schemas(op: Any) -> list[FunctionSchema] | None:
    if isinstance(op, OpOverload):
        return [op._schema]
    if isinstance(op, OpOverloadPacket):
        return [getattr(op, name)._schema for name in op.overloads()]
    if isinstance(op, Operator):
        return _records().get(op.__name__)
    # One that is a function around the operator, such as ``add`` with its numbers.
    name = op.__name__ if isinstance(op, types.FunctionType) else ""
    public = name and path_from_package(op, name) == f"{shown_package()}.{name}"
    return _records().get(name) if public else None


@compatibility(is_backward_compatible=False)
def get_signature_for_torch_op(op: Callable[..., Any], return_schemas: bool = False) -> Any:
    """The signatures of an operator's overloads, and their schemas if asked; None for what is none.

    >>> import tesserack as ts
    >>> [*get_signature_for_torch_op(ts.relu)[0].parameters]
    ['input']
    """
    schemas = _schemas(op)
    signatures = None if schemas is None else [_signature(schema) for schema in schemas]
    return (signatures, schemas) if return_schemas else signatures


@compatibility(is_backward_compatible=False)
def check_for_mutable_operation(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``RuntimeError`` where the only overload that fits writes to what it is given."""
    signatures, schemas = get_signature_for_torch_op(target, return_schemas=True)
    if not signatures or not any(schema.is_mutable for schema in schemas):
        return
    fitting = [schema for signature, schema in zip(signatures, schemas, strict=True) if _binds(signature, args, kwargs)]
    if fitting and all(schema.is_mutable for schema in fitting):
        raise RuntimeError(
            f"Tried to trace mutable operation {fitting[0]}. FX only supports functional code, so operations that "
            "mutate operands in-place (e.g. via `out` arguments) are not supported"
        )


def _binds(signature: inspect.Signature, args: Any, kwargs: Any) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


# --- types -----------------------------------------------------------------------------------------------------------


@compatibility(is_backward_compatible=False)
def create_type_hint(x: Any) -> Any:
    """The type of a list or tuple of types: of what all its items are."""
    if not isinstance(x, (list, tuple)):
        return x
    wrap: Any = (lambda kind: list[kind]) if isinstance(x, list) else lambda kind: tuple[kind, ...]  # type: ignore[valid-type]
    if not x:
        return wrap(Any)
    for base in x:
        if all(inspect.isclass(item) and inspect.isclass(base) and issubclass(item, base) for item in x):
            return wrap(base)
    return wrap(Any)


@compatibility(is_backward_compatible=False)
def type_matches(signature_type: Any, argument_type: Any) -> bool:
    """Whether an argument of a type fits a parameter of another.

    >>> type_matches(typing.Optional[int], int), type_matches(typing.List[int], float)
    (True, False)
    """
    if signature_type is argument_type:
        return True
    origin, inner = typing.get_origin(signature_type), typing.get_args(signature_type)
    if origin in (typing.Union, types.UnionType):
        return any(type_matches(part, argument_type) for part in inner)
    if origin is list:
        return _list_matches(inner[0], argument_type)
    if signature_type is int and argument_type is ts.dtype:
        return True
    if signature_type is numbers.Number and argument_type in (int, float):
        return True
    return (
        inspect.isclass(argument_type) and inspect.isclass(signature_type) and issubclass(argument_type, signature_type)
    )


def _list_matches(item: Any, argument_type: Any) -> bool:
    if argument_type is int and item is int:
        return True
    if not inspect.isclass(item) or typing.get_origin(argument_type) not in (list, tuple):
        return False
    kinds = [kind for kind in typing.get_args(argument_type) if kind is not ...]
    return all(inspect.isclass(kind) and issubclass(kind, item) for kind in kinds)


# --- normal forms ----------------------------------------------------------------------------------------------------


def _normalized(signature: inspect.Signature, args: Any, kwargs: Any, only_kwargs: bool) -> ArgsKwargsPair | None:
    """Arguments bound to a signature, with defaults; None where it takes any number of them."""
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if any(p.kind not in plain for p in signature.parameters.values()):
        return None
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    by_place = 0 if only_kwargs else len(args)
    names = [*signature.parameters]
    return ArgsKwargsPair(
        tuple(bound.arguments[name] for name in names[:by_place]),
        {name: bound.arguments[name] for name in names[by_place:]},
    )


@compatibility(is_backward_compatible=False)
def normalize_function(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: tuple[Any, ...] | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of a call by the function's signature, with defaults; None where that is not known.

    ``RuntimeError`` where several overloads fit: types of the arguments then tell which is meant.

    >>> import tesserack as ts
    >>> normalize_function(ts.relu, (1,), normalize_to_only_use_kwargs=True)
    ArgsKwargsPair(args=(), kwargs={'input': 1})
    """
    kwargs = kwargs or {}
    signatures, schemas = get_signature_for_torch_op(target, return_schemas=True)
    if signatures is None:
        if isinstance(target, types.BuiltinFunctionType) and not hasattr(target, "__text_signature__"):
            return None
        try:
            signature = inspect.signature(inspect.unwrap(target))
        except ValueError:
            return None
        return _normalized(signature, args, kwargs, normalize_to_only_use_kwargs)
    pairs = zip(signatures, schemas, strict=True)
    fitting = [(signature, schema) for signature, schema in pairs if _binds(signature, args, kwargs)]
    if len(fitting) > 1 and (arg_types is not None or kwarg_types is not None):
        fitting = [pair for pair in fitting if _types_match(pair[0], arg_types or (), kwarg_types or {})][:1]
    elif len({str(signature) for signature, _ in fitting}) > 1:
        listed = "\n".join(str(signature) for signature, _ in fitting)
        raise RuntimeError(
            f"Tried to normalize arguments to {ts.typename(target)} but the schema match was ambiguous! Please provide "
            f"argument types to the normalize_arguments() call. Available schemas:\n{listed}"
        )
    return _normalized(fitting[0][0], args, kwargs, normalize_to_only_use_kwargs) if fitting else None


def _normalize_function_or_error(target: Any, args: Any, kwargs: Any = None, *rest: Any, **options: Any) -> Any:
    found = normalize_function(target, args, kwargs, *rest, **options)
    if found is None:
        raise RuntimeError(f"Failed to normalize function {target} with args {args} and kwargs {kwargs}")
    return found


def _types_match(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return all(type_matches(signature.parameters[name].annotation, kind) for name, kind in bound.arguments.items())


@compatibility(is_backward_compatible=False)
def normalize_module(
    root: Any,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of a call of a layer of ``nn``, by its ``forward``; None for other modules."""
    try:
        module = root.get_submodule(target)
    except AttributeError as error:
        raise RuntimeError(
            f"Tried to normalize node with target {target} but root did not have that target!"
        ) from error
    if getattr(nn, type(module).__name__, None) is not type(module):
        return None
    return _normalized(inspect.signature(module.forward), args, kwargs or {}, normalize_to_only_use_kwargs)
