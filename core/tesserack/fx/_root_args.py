"""The parameters of what is traced, as placeholders: nested ones leaf by leaf."""

from __future__ import annotations

import inspect
import warnings
from types import CodeType, FunctionType
from typing import Any

from tesserack.fx._codegen import PyTreeCodeGen, PyTreeInfo
from tesserack.fx._compatibility import compatibility
from tesserack.fx._naming import shown_function
from tesserack.fx.node import base_types
from tesserack.utils import _pytree as pytree

__all__ = ["PH", "PHBase", "PHWithMeta", "create_args", "returned_type"]

_STARRED = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


@compatibility(is_backward_compatible=True)
class PHBase:
    """What a concrete argument may be to say: trace it."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


@compatibility(is_backward_compatible=False)
class PHWithMeta(PHBase):
    """One that hands its attributes to the placeholder's node."""

    def __init__(self, ph_key: str | None = None) -> None:
        self.ph_key = ph_key


def _assert_is_none(value: Any, message: str) -> None:
    """``AssertionError`` unless an argument is None, as it was when it was traced."""
    assert value is None, message


_assert_is_none.__module__ = "tesserack.fx._symbolic_trace"  # where PyTorch has it, as written programs say


def _taking_stars_whole(function: FunctionType, count: int) -> FunctionType:
    """The function with ``*args`` and ``**kwargs`` as plain parameters, which a proxy each can be given for."""
    code: CodeType = function.__code__
    plain = code.replace(co_flags=code.co_flags & ~_STARRED, co_argcount=count, co_posonlyargcount=0,
                         co_kwonlyargcount=0)  # fmt: skip
    made = FunctionType(plain, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    made.__dict__.update({k: v for k, v in function.__dict__.items() if k != "__wrapped__"})
    made.__annotations__ = function.__annotations__
    return made


def create_args(tracer: Any, root_fn: Any, is_module: bool, concrete: Any) -> tuple[Any, list[Any]]:
    """What is to be called, and with what: the root, and a proxy for each argument that is not given."""
    analysed = inspect.unwrap(root_fn)
    code: CodeType = analysed.__code__
    total = code.co_argcount + code.co_kwonlyargcount
    if is_module and not total:
        raise RuntimeError("``self`` argument cannot be part of *args expansion!")
    signature = inspect.signature(analysed)
    args: list[Any] = [tracer.root] if is_module else []
    if isinstance(concrete, tuple) and concrete and code.co_flags & _STARRED and total == 1:
        return root_fn, args + [_numbered(tracer, k, value) for k, value in enumerate(concrete)]
    names = [*code.co_varnames]
    plain = names[len(args) : total]
    if isinstance(concrete, tuple):
        if len(plain) != len(concrete):
            raise RuntimeError(f"Tracing expected {len(plain)} arguments but got {len(concrete)} concrete arguments")
        concrete = dict(zip(plain, concrete, strict=True))
    annotations = {} if _is_ours(analysed) else getattr(analysed, "__annotations__", {})
    args += [_argument(tracer, name, signature, annotations, concrete or {}) for name in plain]
    starred = iter(names[total:])
    for flag, stars in ((inspect.CO_VARARGS, "*"), (inspect.CO_VARKEYWORDS, "**")):
        if code.co_flags & flag:
            args.append(_argument(tracer, stars + next(starred), signature, annotations, concrete or {}))
    if code.co_kwonlyargcount or code.co_flags & _STARRED:
        root_fn = _taking_stars_whole(root_fn, len(args))
    return _flat(tracer, root_fn, args, names[:total])


def _is_ours(function: Any) -> bool:
    """Whether a function is this package's, whose annotations say nothing to a program."""
    return str(function.__module__ or "").partition(".")[0] in ("tesserack", "torch")


def returned_type(function: Any) -> Any:
    """What a function is annotated to return; None for those of this package."""
    plain = inspect.unwrap(function)
    return None if _is_ours(plain) else getattr(plain, "__annotations__", {}).get("return")


def _numbered(tracer: Any, number: int, value: Any) -> Any:
    made = tracer.create_proxy("placeholder", f"input_{number}", (), {})
    _hand_over(value, made)
    return made


def _hand_over(value: Any, proxy: Any) -> None:
    if isinstance(value, PHBase) and value is not PH:
        for name in dir(value):
            attribute = None if name.startswith("__") else getattr(value, name)
            # What the node has is its own: its name, or what a tracer has given it.
            if not (name.startswith("__") or callable(attribute) or hasattr(proxy.node, name)):
                setattr(proxy.node, name, attribute)


def _argument(
    tracer: Any, name: str, signature: inspect.Signature, annotations: dict[str, Any], concrete: dict[str, Any]
) -> Any:
    parameter = None if name[0] == "*" else signature.parameters[name]
    absent = parameter is None or parameter.default is parameter.empty
    default = () if absent or parameter is None else (parameter.default,)
    if name not in concrete:
        return tracer.create_proxy("placeholder", name, default, {}, type_expr=annotations.get(name))
    count = [0]

    def leaf(value: Any) -> Any:
        count[0] += 1
        made = tracer.create_proxy("placeholder", f"{name}_{count[0]}", default, {})
        if isinstance(value, PHBase):
            _hand_over(value, made)
            return made
        _specialize(tracer, made, name, value)
        return value

    return pytree.tree_map(leaf, concrete[name])


def _specialize(tracer: Any, made: Any, name: str, value: Any) -> None:
    """Have the program refuse another value than the one that it was traced with."""
    from tesserack._native import Tensor

    told = f"{name} has been specialized to have value {value} but got another value"
    if value is None:
        tracer.create_proxy("call_function", _assert_is_none, (made, told), {})
    elif type(value) is bool or (type(value) in base_types and not isinstance(value, Tensor)):
        tracer.create_proxy("call_function", shown_function("_assert"), (made == value, told), {})
    else:
        warnings.warn(
            f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is up to the "
            "user to make sure that your inputs match the inputs you specialized the function with.",
            stacklevel=2,
        )


def _flat(tracer: Any, root_fn: Any, args: list[Any], names: list[str]) -> tuple[Any, list[Any]]:
    """A function of the leaves, if there are nested arguments."""
    leaves, spec = pytree.tree_flatten(tuple(args))
    if all(child.type is None for child in spec.children_specs):
        return root_fn, args
    codegen = tracer.graph._codegen = PyTreeCodeGen(PyTreeInfo(names, spec, None))

    def flattened(*given: Any) -> Any:
        result, out_spec = pytree.tree_flatten(root_fn(*pytree.tree_unflatten([*given], spec)))
        codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
        return result

    return flattened, leaves
