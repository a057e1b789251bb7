"""Functions of one element, or of elements in the same place: they run on the values."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor.overrides import DisableTorchFunctionSubclass
from tesserack.nested._dispatch import is_dense, nested_among, plain
from tesserack.nested._handlers import handles, unsupported
from tesserack.nested._padding import from_padded, padded
from tesserack.nested._size import NestedInt
from tesserack.nested._tensor import NestedTensor, wrap, wrap_like
from tesserack.ops.registry import said

# Written in Python, of operators that go element by element.
_PYTHON = ("igamma", "igammac", "logsigmoid", "mvlgamma", "nextafter", "_nextafter")
_SYMBOLS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
_DUNDERS = (
    *("__neg__", "__abs__", "__invert__", "__pos__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"),
    *(f"__{side}{name}__" for name in _SYMBOLS for side in ("", "r")),
)


def _elementwise() -> set[str]:
    """What declarations call so, by the names that functions of Python have."""
    names = said("elementwise")
    return {*names, *(name.removeprefix("special_") for name in names), "expit", "psi", "gammaln", "prelu", *_PYTHON}


_NAMES = _elementwise()
ELEMENTWISE = (*sorted(_NAMES), *_DUNDERS)
IN_PLACE = (
    *(f"{name}_" for name in sorted(_NAMES - {"prelu", "isclose"})),
    *(f"__i{name}__" for name in _SYMBOLS if not name.endswith("shift")),
)


def _refuse_sizes(name: str, args: Any) -> None:
    for value in args:
        if isinstance(value, NestedInt):
            raise RuntimeError(f"NestedTensor {name}: invalid argument {value}; try the lengths of the nested tensor")


def _mismatch(name: str, a: Any, b: Any) -> RuntimeError:
    return RuntimeError(
        f"cannot call binary pointwise function {name} with inputs of shapes {tuple(a.shape)} and {tuple(b.shape)}; "
        "nested tensors go together if they share their offsets"
    )


def matches(nt: NestedTensor, size: Any) -> bool:
    """Whether a shape has the batch and ragged dimensions of a nested tensor, or -1 for them."""
    mine = nt._size[: nt._ragged_idx + 1]
    return len(size) >= len(mine) and all(a == b or b == -1 for a, b in zip(mine, size, strict=False))


def _without_ones(t: Tensor) -> Tensor:
    while t.dim() and t.shape[0] == 1:
        t = t.squeeze(0)
    return t


def aligned(name: str, nt: NestedTensor, other: Tensor) -> Tensor:
    """Another operand in a form that broadcasts to the values of ``nt``."""
    if isinstance(other, NestedTensor):
        if not matches(nt, other._size) or other.dim() != nt.dim():
            raise _mismatch(name, nt, other)
        return other.values()
    if other.dim() > nt.dim():
        raise unsupported(name, f"broadcasting a nested tensor with a dense one of more dims, {other.dim()}")
    small = _without_ones(other)
    if nt.dim() >= small.dim() + 2:
        return small
    if nt.dim() != other.dim() or nt.shape[0] != other.shape[0] or other.shape[nt._ragged_idx] != 1:
        raise _mismatch(name, nt, other)
    return _spread(nt, other)


def _spread(nt: NestedTensor, other: Tensor) -> Tensor:
    """A dense (B, ..., 1, ...) as values: each row as often as the rows of ``nt`` are long."""
    if nt._lengths is not None:
        raise unsupported("broadcasting", "the batch dimension of a dense tensor to rows with gaps")
    sizes = list(other.shape)
    sizes[nt._ragged_idx] = nt._longest()
    return from_padded(other.expand(sizes), nt).values()


@handles("_frexp")
def _several(func: Any, input: NestedTensor) -> Any:
    return tuple(wrap_like(part, input) for part in func(input.values()))


def _operands(name: str, args: Any, kwargs: Any) -> tuple[NestedTensor, list[Any], dict[str, Any]]:
    _refuse_sizes(name, (*args, *kwargs.values()))
    nested = nested_among((*args, *kwargs.values()))[0]

    def change(value: Any) -> Any:
        return aligned(name, nested, value) if isinstance(value, Tensor) and value is not nested else plain(value)

    return nested, [change(a) for a in args], {key: change(a) for key, a in kwargs.items()}


@handles(*ELEMENTWISE)
def elements(func: Any, *args: Any, **kwargs: Any) -> Any:
    nested, changed, options = _operands(func.__name__, args, kwargs)
    return wrap_like(func(*changed, **options), _widest(nested, args, kwargs))


def _widest(nested: NestedTensor, args: Any, kwargs: Any) -> NestedTensor:
    """The operand whose raggedness the result has: all share it, but only one may know its extremes."""
    found = nested_among((*args, *kwargs.values()))
    return next((n for n in found if n._metadata_cache), nested)


@handles("where")
def _where(func: Any, condition: Tensor, input: Any, other: Any) -> Any:
    nested, changed, _ = _operands("where", (condition, input, other), {})
    return wrap_like(func(*changed), nested)


@handles(*IN_PLACE)
def _in_place(func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(input, NestedTensor):
        raise RuntimeError(f"{func.__name__}: expected a nested tensor to write to, got a dense one; try the function "
                           "that makes a new tensor")  # fmt: skip
    _refuse_sizes(func.__name__, (*args, *kwargs.values()))
    others = [aligned(func.__name__, input, a) if isinstance(a, Tensor) else a for a in args]
    options = {k: aligned(func.__name__, input, a) if isinstance(a, Tensor) else a for k, a in kwargs.items()}
    with DisableTorchFunctionSubclass():
        func(input, *others, **options)
    return input


@handles("masked_select")
def _masked_select(func: Any, input: NestedTensor, mask: NestedTensor) -> Any:
    if input.dim() > 2:
        raise RuntimeError(f"masked_select only support 2-D selections currently, got {input.dim()}-D")
    if is_dense(mask) or input._size != mask._size:
        raise RuntimeError(f"Mask with shape {mask.shape} is not compatible with input's shape {input.shape}")
    if input._lengths is not None:
        raise unsupported("masked_select", "the rows have gaps")
    before = ts.nn.functional.pad(mask.values().cumsum(0), (1, 0))
    return wrap(input.values().masked_select(mask.values()), before[input._offsets])


def pads(nt: NestedTensor, value: Any) -> Tensor:
    """The dense tensor as wide as the longest row."""
    if nt._lengths is not None:
        raise unsupported("padding", "the rows have gaps; .contiguous() closes them")
    return padded(nt, value, nt._longest())
