"""Elementwise operators: functions that keep zero, arithmetic with sparse, dense and plain numbers."""

from __future__ import annotations

import re
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.ops.registry import said
from tesserack.sparse._convert import _dense, to_coo
from tesserack.sparse._dispatch import assign, differentiable, empty_of, in_place, kernel, layout_name, refuse
from tesserack.sparse._out import write_out
from tesserack.sparse._parts import (
    COO,
    _same_pattern,
    build,
    coalesce,
    is_sparse,
    like,
    parts_of,
    recorded,
    values_at,
    values_of,
)

__all__: list[str] = []


def _register_unary(name: str, linear: bool) -> None:
    # Nothing stays pending for the values: they are read in many places.
    function = _native._operator_function("conj_physical" if name == "conj" else name)

    def forward(self: Tensor, *args: Any) -> Tensor:
        t = self if linear or parts_of(self).layout is not COO else coalesce(self)
        options = dict(zip(_options_of(name), args, strict=True))
        return like(t, function(values_of(t), **options))

    forward.__name__ = forward.__qualname__ = name
    kernel(name)(forward)
    base, _, overload = name.partition(".")
    written = f"{base}_.{overload}" if overload else f"{base}_"
    if written in _KNOWN:

        def write(self: Tensor, *args: Any) -> Tensor:
            if not linear and is_sparse(self) and self.layout is COO and not parts_of(self).coalesced:
                raise RuntimeError(f"{written}: requires coalesced input, got one that may hold several elements in "
                                   "one place; try .coalesce()")  # fmt: skip
            return forward(self, *args)

        in_place(written)(write)


def _options_of(name: str) -> tuple[str, ...]:
    return {"nan_to_num": ("nan", "posinf", "neginf"), "round.decimals": ("decimals",)}.get(name, ())


_KNOWN = {record["name"] for record in _native._operators()}


def _register_all() -> None:
    """What declarations call linear, or zero at zero: what the latter do to the sum of elements in one place is not the
    sum of what they do to each."""
    for name in (*sorted(said("zero")), "round.decimals"):
        _register_unary(name, False)
    for name in sorted(said("linear")):
        _register_unary(name, True)


# --- sums ------------------------------------------------------------------------------------------------------------


def _check_same_size(op: str, self: Any, other: Any) -> None:
    sizes = [list(t.shape) if isinstance(t, Tensor) else [] for t in (self, other)]
    if sizes[0] != sizes[1]:
        raise RuntimeError(
            f"{op}: expected 'self' and 'other' to have same size, but self has size {sizes[0]} while other has size "
            f"{sizes[1]} (FYI: op2-sparse addition does not currently support broadcasting)"
        )


def _scaled(values: Tensor, alpha: Any) -> Tensor:
    return values if alpha == 1 else values * alpha


def _add_to_dense(self: Tensor, other: Tensor, alpha: Any) -> Tensor:
    if parts_of(other).layout is not COO:
        return self + _scaled(_dense(other), alpha)
    parts = parts_of(other)
    dtype = ts.result_type(self, other)
    values = _scaled(parts.values, alpha).to(dtype)
    return _accumulate(self.to(dtype, copy=True), parts.indices[0], values)


def _accumulate(dense: Tensor, indices: Tensor, values: Tensor) -> Tensor:
    """Adds rows (n, *dense) to a dense tensor at coordinates (d, n), in place."""
    if indices.shape[0] == 0:
        return dense.add_(values.sum(0))
    if indices.shape[0] == 1 and dense.dtype is not ts.bool:
        return dense.index_add_(0, indices[0], values)
    return dense.index_put_(tuple(indices.unbind(0)), values, accumulate=True)


def _add_to_dense_gradient(ctx: Any, grad: Tensor, self: Tensor, other: Tensor, alpha: Any) -> tuple[Any, ...]:
    return grad, _scaled(grad, alpha), None


_dense_plus_sparse = differentiable("AddBackward0", _add_to_dense, _add_to_dense_gradient)


def _add_coo(self: Tensor, other: Tensor, alpha: Any) -> Tensor:
    a, b = parts_of(self), parts_of(other)
    if (a.sparse_dim, a.dense_dim) != (b.sparse_dim, b.dense_dim):
        if not values_of(other).shape[0] and not recorded(other):  # nothing is added, wherever it would lie
            return like(self, values_of(self).to(ts.result_type(self, other)), a.coalesced)
        if not values_of(self).shape[0] and not recorded(self):
            return like(other, _scaled(values_of(other), alpha).to(ts.result_type(self, other)), b.coalesced)
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same number of sparse dimensions, but got {a.sparse_dim} and "
            f"{b.sparse_dim}"
        )
    mine, others = values_of(self), _scaled(values_of(other), alpha)
    if _same_pattern(a, b):
        return like(self, mine + others, a.coalesced or b.coalesced)
    dtype = ts.result_type(self, other)
    joined = build(
        COO,
        (ts.cat([a.indices[0], b.indices[0]], 1),),
        ts.cat([mine.to(dtype), others.to(dtype)]),
        self.shape,
        a.dense_dim,
    )
    return coalesce(joined) if a.coalesced and b.coalesced else joined


def _add_compressed(self: Tensor, other: Tensor, alpha: Any) -> Tensor:
    from tesserack.sparse._convert import _block_of, to_layout

    a, b = parts_of(self), parts_of(other)
    if _same_pattern(a, b):
        return like(self, values_of(self) + _scaled(values_of(other), alpha))
    if a.indices[0].dim() > 1 or (b.layout is not COO and b.indices[0].dim() > 1):
        raise refuse("add", self, "batches of compressed matrices of other patterns: try .to_dense()")
    total = _add_coo(coalesce(to_coo(self)), coalesce(to_coo(other)), alpha)
    return to_layout(total, a.layout, _block_of(self))


def _add(op: str, self: Any, other: Any, alpha: Any) -> Tensor:
    sparse, others = is_sparse(self), is_sparse(other)
    if sparse and not others and self.layout is COO:
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    _check_same_size("add", self, other)
    if not sparse:
        return _dense_plus_sparse(self, other, alpha)
    if not others:
        return _dense_plus_sparse(_scaled(other, alpha), self, 1)
    if self.layout is COO and other.layout is COO:
        return _add_coo(self, other, alpha)
    if self.layout is COO:
        raise RuntimeError(f"{op}: expected two tensors of one layout, got {layout_name(self)} and "
                           f"{layout_name(other)}")  # fmt: skip
    return _add_compressed(self, other, alpha)


@kernel("add")
def add(self: Any, other: Any, alpha: Any = 1) -> Tensor:
    return _add("add", self, other, alpha)


def _promoted(self: Any, other: Any) -> Any:
    """In the dtype of the result, where its negative is what it should be: an unsigned one's may not be."""
    dtype = ts.result_type(self, other)
    return other.to(dtype) if isinstance(other, Tensor) and other.dtype is not dtype else other


@kernel("sub", "subtract")
def sub(self: Any, other: Any, alpha: Any = 1) -> Tensor:
    if (isinstance(other, Tensor) and other.dtype is ts.bool) or (isinstance(self, Tensor) and self.dtype is ts.bool):
        raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported.")
    return _add("sub", self, _promoted(self, other), -alpha)


def _add_in_place(self: Tensor, other: Any, alpha: Any, op: str) -> Tensor:
    if is_sparse(self):
        return assign(self, _add("add", self, other, alpha), op)
    _check_same_size("add", self, other)
    parts = parts_of(other)
    if recorded(self, other) or parts.layout is not COO or self.dtype is not other.dtype:
        return self.add_(to_coo(other).to_dense() if parts.layout is not COO else _dense(other), alpha=alpha)
    return _accumulate(self, parts.indices[0], _scaled(parts.values, alpha))


@kernel("add_")
def add_(self: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    return _add_in_place(self, other, alpha, "add_")


@kernel("sub_", "subtract_")
def sub_(self: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    return _add_in_place(self, _promoted(self, other) if is_sparse(self) else other, -alpha, "sub_")


# --- products --------------------------------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return not isinstance(value, Tensor) or (value.dim() == 0 and not is_sparse(value))


def _multiply(self: Any, other: Any) -> Tensor:
    if not is_sparse(self):
        self, other = other, self
    if _is_number(other):
        return like(self, values_of(self) * other)
    return _product(self, other)


def _multiply_tensors(self: Tensor, other: Tensor) -> Tensor:
    if not is_sparse(other):
        return _multiply_by_dense(self, other)
    if self.shape != other.shape:
        if other.dim() == 0:
            return like(self, values_of(self) * other.to_dense())
        if self.dim() == 0:
            return like(other, values_of(other) * self.to_dense())
        if self.dim() != other.dim() or not _same_but_for_dense_dims(self, other):
            raise RuntimeError(
                f"mul(sparse, sparse): Expected both tensors to have one shape, but for dense dims that broadcast, got "
                f"{list(self.shape)} and {list(other.shape)}"
            )
    return _multiply_sparse(self, other)


def _same_but_for_dense_dims(self: Tensor, other: Tensor) -> bool:
    if self.layout is not COO or other.layout is not COO:
        return False
    count = parts_of(self).sparse_dim
    return count == parts_of(other).sparse_dim and self.shape[:count] == other.shape[:count]


def _multiply_gradient(ctx: Any, grad: Tensor, self: Tensor, other: Tensor) -> tuple[Any, ...]:
    """As PyTorch's, which is not only where a sparse factor has elements."""
    pairs = zip(ctx.needs_input_grad, (self, other), (other, self), strict=True)
    return tuple(_gradient_as(grad * rest.conj(), factor) if asked else None for asked, factor, rest in pairs)


def _gradient_as(grad: Tensor, factor: Tensor) -> Tensor:
    """A gradient in the layout and shape of a factor."""
    from tesserack.sparse._convert import _block_of, _from_dense, to_layout

    if not is_sparse(factor):
        return (grad.to_dense() if is_sparse(grad) else grad).sum_to_size(factor.shape)
    if grad.shape != factor.shape:
        grad = (grad.to_dense() if is_sparse(grad) else grad).sum_to_size(factor.shape)
    if grad.layout is factor.layout:
        return grad
    if factor.layout is not COO:
        return to_layout(grad, factor.layout, _block_of(factor))
    return to_coo(grad) if is_sparse(grad) else _from_dense(grad, parts_of(factor).sparse_dim)


_product = differentiable("MulBackward0", lambda a, b: _multiply_tensors(a, b), _multiply_gradient, ("self", "other"))


def _multiply_by_dense(self: Tensor, other: Tensor) -> Tensor:
    shape = ts.broadcast_shapes(tuple(self.shape), tuple(other.shape))
    if tuple(shape) != tuple(self.shape):
        if self.layout is not COO:
            raise RuntimeError(
                f"mul: expected a dense tensor that broadcasts to the sparse one's shape {tuple(self.shape)}, got "
                f"{tuple(other.shape)}; try .to_sparse_coo()"
            )
        from tesserack.sparse._shape import broadcast

        self = broadcast(self, shape)
    return like(self, values_of(self) * values_at(other.expand(self.shape), self))


def _multiply_sparse(self: Tensor, other: Tensor) -> Tensor:
    from tesserack.sparse._convert import _block_of, to_layout

    if self.layout is not COO or other.layout is not COO:
        if _same_pattern(parts_of(self), parts_of(other)):
            return like(self, values_of(self) * values_of(other))
        product = _multiply_sparse(to_coo(self), to_coo(other))
        return product if self.layout is COO else to_layout(product, self.layout, _block_of(self))
    a, b = coalesce(self), coalesce(other)
    parts = parts_of(a)
    if parts.sparse_dim != parts_of(b).sparse_dim:
        raise RuntimeError(
            f"mul: expected tensors of as many sparse dims, got {parts.sparse_dim} and {parts_of(b).sparse_dim}"
        )
    if self is other or (parts.indices[0] is parts_of(b).indices[0] and a.shape == b.shape):
        return like(a, values_of(a) * values_of(b))
    from tesserack.sparse._parts import flat_positions

    size = a.shape[: parts.sparse_dim]
    shape = (*size, *ts.broadcast_shapes(a.shape[parts.sparse_dim :], b.shape[parts.sparse_dim :]))
    mine = flat_positions(parts.indices[0], size)
    theirs = flat_positions(parts_of(b).indices[0], size)
    if not mine.numel() or not theirs.numel():
        return empty_of(a, shape, ts.result_type(a, b))
    at = ts.searchsorted(theirs.contiguous(), mine.contiguous()).clamp(max=theirs.numel() - 1)
    common = (theirs.index_select(0, at) == mine).nonzero().reshape(-1)
    product = values_of(a).index_select(0, common) * values_of(b).index_select(0, at.index_select(0, common))
    return build(COO, (parts.indices[0].index_select(1, common),), product, shape, parts.dense_dim, True)


@kernel("mul", "multiply")
def mul(self: Any, other: Any) -> Tensor:
    return _multiply(self, other)


@in_place("mul_", "multiply_")
def mul_(self: Tensor, other: Any) -> Tensor:
    return _dense(_multiply(self, other)) if not is_sparse(self) else _multiply(self, other)


# --- quotients and powers --------------------------------------------------------------------------------------------


def _divide(self: Any, other: Any, rounding_mode: str | None = None) -> Tensor:
    if not is_sparse(self) or not _is_number(other):
        shape = list(other.shape) if isinstance(other, Tensor) else []
        raise RuntimeError(
            f"Sparse division requires a scalar or zero-dim dense tensor divisor (got shape {shape} for divisor)"
        )
    t = self if rounding_mode is None or self.layout is not COO else coalesce(self)
    return like(t, values_of(t).div(other, rounding_mode=rounding_mode))


@kernel("div", "divide", "true_divide", "div.mode", "divide.mode")
def div(self: Any, other: Any, rounding_mode: str | None = None) -> Tensor:
    return _divide(self, other, rounding_mode)


@in_place("div_", "divide_", "true_divide_", "div_.mode", "divide_.mode")
def div_(self: Any, other: Any, rounding_mode: str | None = None) -> Tensor:
    return _divide(self, other, rounding_mode)


@kernel("floor_divide")
def floor_divide(self: Any, other: Any) -> Tensor:
    return _divide(self, other, "floor")


@in_place("floor_divide_")
def floor_divide_(self: Any, other: Any) -> Tensor:
    return _divide(self, other, "floor")


def _power(self: Any, exponent: Any) -> Tensor:
    if isinstance(exponent, Tensor) or not is_sparse(self):
        raise refuse("pow", self if is_sparse(self) else exponent, "only tensor ** number keeps zeros")
    if not isinstance(exponent, complex) and exponent == 0:
        raise RuntimeError("pow: cannot raise to zeroth power on sparse tensor; it would make the result dense")
    if not isinstance(exponent, complex) and exponent < 0:
        raise RuntimeError(f"pow: expected a positive exponent of a sparse tensor, got {exponent}")
    t = coalesce(self) if self.layout is COO else self
    return like(t, values_of(t) ** exponent)


@kernel("pow")
def pow(self: Any, exponent: Any) -> Tensor:
    return _power(self, exponent)


@in_place("pow_")
def pow_(self: Any, exponent: Any) -> Tensor:
    return _power(self, exponent)


@kernel("float_power")
def float_power(self: Any, exponent: Any) -> Tensor:
    wide = ts.complex128 if is_sparse(self) and self.is_complex() else ts.float64
    return _power(self.to(wide), exponent)


@kernel("dropout")
def dropout(self: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if training and p:
        raise refuse("dropout", self, "use it on .values()")
    return self


@kernel("any")
def any(self: Tensor) -> Tensor:
    return coalesce(to_coo(self)).values().any()


# --- gradients of pointwise operators --------------------------------------------------------------------------------


def _otherwise(call: Any, *args: Any) -> Any:
    """Operators without a kernel here. Those derived as a pointwise operator's gradient, ``mul_grad0(grad, other)``,
    are zero where the gradient is: dense operands matter in its places alone.
    """
    if call.op in _WRITES_OUT:
        return write_out(call.op, *args)
    grad: Any = args[0] if args else None
    if not _DERIVED.search(call.op) or not is_sparse(grad):
        t = next(t for arg in args for t in (arg if isinstance(arg, list) else [arg]) if is_sparse(t))
        raise refuse(call.op, t)
    t = coalesce(grad) if grad.layout is COO else grad
    operands = []
    for arg in args[1:]:
        shared = isinstance(arg, Tensor) and arg.dim() > 0
        operands.append(values_at(arg if is_sparse(arg) else arg.expand(t.shape), t) if shared else arg)
    result: Tensor = _native._operator_function(call.op)(values_of(t), *operands)
    return like(t, result)


_DERIVED = re.compile(r"_grad\d+$")
_WRITES_OUT = {record["name"] for record in _native._operators() if record["variant"] == "out"}
_register_all()
_native._set_kernel(None, "Sparse", _otherwise, f"{__name__}._otherwise")
