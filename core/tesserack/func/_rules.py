"""The batching rules of operators: one call for all entries. A rule is exact, or raises :class:`Unbatchable`."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.autograd.function import batching
from tesserack.func import _draws
from tesserack.func._aligned import (
    dim_of,
    elementwise,
    many_values,
    padded,
    rank_of,
    refuse,
    sizes_of,
    wrapped,
)
from tesserack.func._batched import Batched, Unbatchable, bottom, is_batched, rewrapped
from tesserack.func._layers import LAYERS
from tesserack.func._matrices import MATRICES, matmul
from tesserack.func._places import PLACES, at_places
from tesserack.ops.registry import operators, said
from tesserack.utils._pytree import tree_map

__all__ = ["by_name", "drawn", "draws", "written"]

# Of one tensor and, right after it, dims or a dim.
_WITH_DIMS = re.compile(r"\(Tensor self, int(\[1\])?\?? dim[ ,=)](?!.*Tensor .*->)[^>]*-> (\(?)Tensor")
_LIKE = {"clone", "detach", "contiguous", "zeros_like", "ones_like", "full_like", "empty_like", "to", "conj"}
# Those that are made of others.
_COMPOSITE_VIEWS = {"chunk", "dsplit", "expand_as", "hsplit", "moveaxis", "movedim", "narrow", "ravel", "reshape_as",
                    "tensor_split", "unflatten", "view_as", "vsplit"}  # fmt: skip
_WRITES = {"copy_", "fill_", "zero_", "masked_fill_", "clamp_", "clip_", "pow_"}


@functools.cache
def _pointwise() -> frozenset[str]:
    found = {r["base"] for r in _native._operators() if r["kind"] == "pointwise" and r["variant"] == "functional"}
    return said("elementwise") | found


@functools.cache
def _with_dims(many: bool) -> frozenset[str]:
    """Operators on one tensor along dims, whose result is one tensor, or along one dim: as their schemas say."""
    records = [r for r in _native._operators() if r["variant"] == "functional" and not r["hidden"]]
    found = ((r["base"], _WITH_DIMS.search(r["schema"])) for r in records)
    return frozenset(base for base, match in found if match and bool(match[1]) is many and not (many and match[2]))


@functools.cache
def _views() -> frozenset[str]:
    """Operators whose results are views of their first argument."""
    found = {r["base"] for r in _native._operators() if r["view"] and r["variant"] == "functional"}
    return frozenset(found) | _COMPOSITE_VIEWS


def by_name(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operator on arguments of which some are batched, all at one level."""
    try:
        return _by_rule(name, args, kwargs)
    except Unbatchable:
        if name not in _views():
            raise
        return _viewed(name, *args, **kwargs)


def _as_template(x: Any) -> Any:
    """What a view takes the shape of."""
    return bottom(x).detach()[(0,) * (bottom(x).ndim - x.ndim)] if is_batched(x) else x


def _viewed(name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    """A view of every entry: where one of the first lies in it, that of another lies in the other."""
    if not is_batched(x):
        like = next(v for v in (*args, *kwargs.values()) if is_batched(v))
        x = Batched(x.expand((like.value.shape[0], *x.shape)), like.level)
    whole, hidden = bottom(x), bottom(x).ndim - x.ndim
    if not all(whole.shape[:hidden]) or whole.layout is not ts.strided or whole.is_conj() or whole.is_neg():
        raise Unbatchable(name)
    first = whole.detach()[(0,) * hidden]
    args, kwargs = tree_map(_as_template, (args, kwargs))
    found = getattr(ts.Tensor, name, operators()[name])(first, *args, **kwargs)

    def spread(view: Any) -> Any:
        if (
            (view.numel() and view._base is not first._base)
            or view.dtype is not x.dtype
            or view.is_conj()
            or view.is_neg()
        ):
            raise Unbatchable(name)
        size, stride = (*whole.shape[:hidden], *view.shape), (*whole.stride()[:hidden], *view.stride())
        start = view.storage_offset() if view.numel() else whole.storage_offset()
        return rewrapped(x, whole.as_strided(size, stride, start))

    return spread(found) if isinstance(found, Tensor) else tuple(map(spread, found))


def _takes(rule: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        inspect.signature(rule).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _by_rule(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    rule = _RULES.get(name)
    if rule is not None:
        try:
            return rule(*args, **kwargs)
        except TypeError:
            if _takes(rule, args, kwargs):
                raise
            raise Unbatchable(name) from None  # arguments by other names than the rule's
    if name in _pointwise():
        return elementwise(name, args, kwargs)
    if not args:
        raise Unbatchable(name)  # all by name
    if name in _with_dims(many=True):
        return _reduced(name, *args, **kwargs)
    if name in _with_dims(many=False):
        return _along(name, *args, **kwargs)
    if name in _LIKE or name in said("cast"):
        x, *rest = args
        if not is_batched(x) or any(isinstance(v, Tensor) for v in (*rest, *kwargs.values())):
            raise Unbatchable(name)
        return Batched(operators()[name](x.value, *rest, **kwargs))
    raise Unbatchable(name)


def draws(func: Any) -> bool:
    """Whether it draws random numbers by its arguments."""
    return getattr(func, "__name__", "") in _draws.drawing()


def drawn(func: Any, name: str, level: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The random numbers of a call for every entry; NotImplemented for what draws none, or draws them one by one."""
    if name not in _draws.drawing() or level > len(batching):
        return NotImplemented
    return _draws.by_draw(func, name, level, args, kwargs)


def written(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Write to the first argument, a batched one, for all entries; False where that takes one call for each."""
    target = args[0]
    if name in _draws.fills() and target.level <= len(batching):
        _draws.fill(func, name, target.level, args, kwargs)
        return True
    if name == "setitem":
        try:
            target, func, args = _item(target, args[1]), Tensor.copy_, (target, args[2])
        except Unbatchable:
            return False
        if not isinstance(args[1], Tensor):
            target.value.fill_(args[1])
            return True
    elif name not in _WRITES and name.removesuffix("_") not in _pointwise():
        return False
    if many_values(name, args, kwargs):
        return False
    others = [x for x in (*args[1:], *kwargs.values()) if isinstance(x, Tensor)]
    if any(x.ndim > target.ndim or (not x.ndim and x.dtype is not target.dtype) for x in others):
        return False
    rest = [padded(x, target.ndim) for x in args[1:]]
    func(target.value, *rest, **{key: padded(x, target.ndim) for key, x in kwargs.items()})
    return True


def _item(x: Any, index: Any) -> Batched:
    index = index if isinstance(index, tuple) else (index,)
    for item in index:
        if not (isinstance(item, (slice, int)) or item is None or item is Ellipsis) or isinstance(item, bool):
            raise Unbatchable("an index that is a tensor or a list")
    return Batched(x.value[(slice(None), *index)]) if is_batched(x) else refuse("an index into what all share")


def _getitem(x: Any, index: Any) -> Batched:
    items = index if isinstance(index, tuple) else (index,)
    return at_places(x, items) if any(isinstance(i, (Tensor, list)) for i in items) else _item(x, index)


def _reduced(name: str, x: Any, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    if not is_batched(x) or isinstance(dim, bool) or any(is_batched(v) for v in args):
        raise Unbatchable(name)
    if not x.ndim or 0 in x.shape:
        raise Unbatchable(f"{name} of entries without dims or elements")
    dims = tuple(range(x.ndim)) if dim is None or dim == () else (dim,) if isinstance(dim, int) else tuple(dim)
    return Batched(operators()[name](x.value, tuple(dim_of(x, d) for d in dims), *args, **kwargs))


def _along(name: str, x: Any, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    if not is_batched(x) or not x.ndim:
        raise Unbatchable(name)
    if dim is None:
        if name not in ("argmax", "argmin") or args or kwargs:
            raise Unbatchable(f"{name} without dim")
        return Batched(operators()[name](x.value.flatten(1), 1))
    return wrapped(operators()[name](x.value, dim_of(x, dim), *args, **kwargs))


def _extreme(name: str, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if isinstance(dim, Tensor):
        return elementwise("maximum" if name == "max" else "minimum", (x, dim), {})
    if dim is None:
        return _reduced("a" + name, x)
    return wrapped(operators()[name](x.value, dim_of(x, dim), keepdim)) if x.ndim else refuse(name)


def _product(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Batched:
    if dim is None:
        return Batched(x.value.flatten(1).prod(1, dtype=dtype)) if x.ndim else refuse("prod")
    return Batched(x.value.prod(dim_of(x, dim), keepdim, dtype=dtype)) if x.ndim else refuse("prod")


def _linear(x: Any, weight: Any, bias: Any = None) -> Batched:
    if is_batched(x) and x.ndim and not is_batched(weight) and not is_batched(bias):
        return Batched(ts.nn.functional.linear(x.value, weight, bias))
    turned: Any = Batched(weight.value.transpose(-1, -2)) if is_batched(weight) else weight.transpose(-1, -2)
    if rank_of(weight) != 2:
        raise Unbatchable("linear by a vector")
    made: Any = matmul(x, turned) if is_batched(x) or is_batched(weight) else ts.matmul(x, turned)
    return made if bias is None else elementwise("add", (made, bias), {})


def _permuted(x: Batched, dims: Any) -> Batched:
    return Batched(x.value.permute((0, *(dim_of(x, d) for d in dims))))


def _reshape(x: Any, *sizes: Any, shape: Any = None) -> Batched:
    sizes = sizes_of(sizes) if shape is None else tuple(shape)
    if not all(isinstance(n, int) for n in sizes) or 0 in x.shape:
        raise Unbatchable("reshape")
    return Batched(x.value.reshape((x.value.shape[0], *sizes)))


def _view(x: Any, *sizes: Any) -> Batched:
    if bottom(x).numel():
        _as_template(x).view(*sizes)  # which raises what it does where an entry cannot be seen so
    return _reshape(x, *sizes)


def _flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Batched:
    return Batched(x.value.flatten(dim_of(x, start_dim), dim_of(x, end_dim))) if x.ndim else refuse("flatten")


def _transpose(x: Any, dim0: int, dim1: int) -> Batched:
    return Batched(x.value.transpose(dim_of(x, dim0), dim_of(x, dim1))) if x.ndim else refuse("transpose")


def _unsqueeze(x: Any, dim: int) -> Batched:
    if not -x.ndim - 1 <= dim <= x.ndim:
        raise Unbatchable("unsqueeze")
    return Batched(x.value.unsqueeze(dim + 1 if dim >= 0 else dim))


def _squeeze(x: Any, *dims: Any, dim: Any = None) -> Batched:
    dims = dims if dim is None else (dim,)
    if len(dims) != 1 or not isinstance(dims[0], int):
        raise Unbatchable("squeeze of several dims")
    return Batched(x.value.squeeze(dim_of(x, dims[0]))) if x.ndim else refuse("squeeze")


def _expand(x: Any, *sizes: Any) -> Batched:
    sizes = sizes_of(sizes)
    return Batched(padded(x, len(sizes)).expand((x.value.shape[0], *sizes)))


def _select(x: Any, dim: int, index: int) -> Batched:
    return Batched(x.value.select(dim_of(x, dim), index)) if isinstance(index, int) and x.ndim else refuse("select")


def _parts(name: str, x: Any, count: Any = None, dim: int = 0) -> tuple[Batched, ...]:
    if not x.ndim:
        raise Unbatchable(name)
    if name == "unbind":
        return tuple(map(Batched, x.value.unbind(dim_of(x, count or 0))))
    return tuple(map(Batched, getattr(x.value, name)(count, dim_of(x, dim))))


def _joined(name: str, tensors: Any, dim: int = 0) -> Batched:
    count = next(x.value.shape[0] for x in tensors if is_batched(x))
    ranks = {rank_of(x) for x in tensors}
    if len(ranks) > 1 or (ranks == {0} and (name == "cat" or len({x.dtype for x in tensors}) > 1)):
        raise Unbatchable(name)
    whole = [x.value if is_batched(x) else x.expand((count, *x.shape)) for x in tensors]
    rank = ranks.pop() + (name == "stack")
    if not -rank <= dim < rank:
        raise Unbatchable(name)
    return Batched(operators()[name](whole, dim % rank + 1))


def _as_strided(x: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Batched:
    """Places count from where an entry begins."""
    if not is_batched(x) or is_batched(x.value):
        raise Unbatchable("as_strided")
    whole, start = x.value, x.value.storage_offset() + (storage_offset or 0)
    return Batched(whole.as_strided((whole.shape[0], *size), (whole.stride(0), *stride), start))


def _where(condition: Any, *args: Any) -> Batched:
    return elementwise("where", (condition, *args), {}) if len(args) == 2 else refuse("where")


_RULES: dict[str, Callable[..., Any]] = {
    "getitem": _getitem,
    "view_as_real": lambda x: Batched(ts.view_as_real(x.value)),
    "view_as_complex": lambda x: Batched(ts.view_as_complex(x.value)) if x.ndim else refuse("view_as_complex"),
    "real": lambda x: Batched(x.value.real),
    "imag": lambda x: Batched(x.value.imag),
    "as_strided": _as_strided,
    "as_strided_copy": lambda *args, **kwargs: Batched(_as_strided(*args, **kwargs).value.clone()),
    "max": functools.partial(_extreme, "max"),
    "min": functools.partial(_extreme, "min"),
    "prod": _product,
    "linear": _linear,
    **LAYERS,
    **MATRICES,
    **PLACES,
    "permute": lambda x, *dims: _permuted(x, sizes_of(dims)),
    "reshape": _reshape,
    "view": _view,
    "flatten": _flatten,
    "transpose": _transpose,
    "t": lambda x: _permuted(x, range(x.ndim - 1, -1, -1)) if x.ndim <= 2 else refuse("t"),
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "expand": _expand,
    "select": _select,
    "where": _where,
    **{name: functools.partial(_parts, name) for name in ("unbind", "chunk", "split")},
    **{name: functools.partial(_joined, name) for name in ("stack", "cat")},
}
