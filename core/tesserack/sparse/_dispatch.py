"""How operators get a sparse form: a function at the dispatch key that tensors with parts bring to a call.

The key stands above autograd, so such a function decides about gradients: most are made of dense operators and of the
two steps of :mod:`tesserack.sparse._parts`, and are differentiated through them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from tesserack import Tensor, _native
from tesserack.autograd.function import Function
from tesserack.sparse._parts import is_sparse, make, parts_of, recorded

__all__ = ["assign", "differentiable", "in_place", "kernel", "layout_name", "refuse", "replace", "sparse_operand"]

Form = TypeVar("Form", bound=Callable[..., Any])


def kernel(*names: str) -> Callable[[Form], Form]:
    """Decorator: the function is what these operators do where an argument is sparse; it takes their arguments."""

    def register(function: Form) -> Form:
        def run(call: Any, *args: Any) -> Any:
            return function(*args)

        for name in names:
            _native._set_kernel(name, "Sparse", run, f"{function.__module__}.{function.__qualname__}")
        return function

    return register


def pass_on(*names: str) -> None:
    """These operators go on to the keys below: what they are made of has sparse forms."""

    def run(call: Any, *args: Any) -> Any:
        return call.redispatch(*args)

    for name in names:
        _native._set_kernel(name, "Sparse", run, __name__)


def in_place(*names: str, reshapes: bool = False) -> Callable[[Form], Form]:
    """Decorator: the function computes what these operators, which write their first argument, leave there; it may
    have another shape where they say so.
    """

    def register(function: Form) -> Form:
        def run(call: Any, self: Tensor, *args: Any) -> Any:
            if not is_sparse(self):
                result = function(self, *args)
                if is_sparse(result):
                    raise RuntimeError(f"{call.op}: the result is sparse and cannot be written to a dense tensor")
                if not _native.can_cast(result.dtype, self.dtype):
                    raise RuntimeError(f"{call.op}: result type {result.dtype} can't be cast to {self.dtype}")
                return self.copy_(result)
            return assign(self, function(self, *args), call.op, reshapes)

        for name in names:
            _native._set_kernel(name, "Sparse", run, f"{function.__module__}.{function.__qualname__}")
        return function

    return register


class _Assign(Function):
    """Replaces what a sparse tensor is made of, and its history by that of the source."""

    _node_name = "CopyBackwards"

    @staticmethod
    def forward(ctx: Any, target: Tensor, source: Tensor) -> Tensor:
        replace(target, source)
        ctx.mark_dirty(target)
        return target

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad


def replace(target: Tensor, source: Tensor) -> None:
    parts = parts_of(source)
    _native._set_sparse(
        target,
        tuple(source.shape),
        parts.layout,
        (*parts.indices, parts.values),
        parts.sparse_dim,
        parts.dense_dim,
        parts.coalesced,
    )


def assign(target: Tensor, source: Tensor, op: str, reshapes: bool = False) -> Tensor:
    """Let a sparse tensor be what another is, in place, as the last step of ``op``."""
    if not is_sparse(source) or source.layout is not target.layout:
        raise RuntimeError(f"{op}: expected a result of layout {target.layout}, got {source.layout}")
    if source.shape != target.shape and not reshapes:
        raise RuntimeError(
            f"{op}: output with shape {tuple(target.shape)} doesn't match the broadcast shape {tuple(source.shape)}"
        )
    if source.dtype is not target.dtype:
        if not _native.can_cast(source.dtype, target.dtype):
            raise RuntimeError(
                f"{op}: result type {source.dtype} can't be cast to the desired output type {target.dtype}"
            )
        source = source.to(target.dtype)
    if recorded(target, source):
        written: Tensor = _Assign.apply(target, source)
        return written
    replace(target, source)
    return target


def differentiable(
    name: str, forward: Callable[..., Tensor], gradient: Callable[..., tuple[Any, ...]], saved: Sequence[str] = ()
) -> Callable[..., Tensor]:
    """``forward`` with a gradient of its own where it is recorded: ``gradient(ctx, grad, *args)``, one per argument.

    ``saved`` names the tensors among the arguments, as ``grad_fn._saved_self`` and its like.
    """

    class Node(Function):
        _node_name = name

        @staticmethod
        def forward(ctx: Any, *args: Any) -> Tensor:
            ctx.others = tuple(None if isinstance(arg, Tensor) else arg for arg in args)
            ctx.which = tuple(isinstance(arg, Tensor) for arg in args)
            ctx.save_for_backward(*(arg for arg in args if isinstance(arg, Tensor)))
            if saved and not hasattr(type(ctx), f"_saved_{saved[0]}"):
                for place, each in enumerate(saved):
                    setattr(type(ctx), f"_saved_{each}", property(partial(_saved_at, place)))
            return forward(*args)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
            saved = iter(ctx.saved_tensors)
            pairs = zip(ctx.which, ctx.others, strict=True)
            args = [next(saved) if tensor else other for tensor, other in pairs]
            return gradient(ctx, grad, *args)

    def run(*args: Any) -> Tensor:
        if recorded(*args):
            result: Tensor = Node.apply(*args)
            return result
        return forward(*args)

    return run


def _saved_at(place: int, ctx: Any) -> Tensor:
    found: Tensor = ctx.saved_tensors[place]
    return found


def layout_name(t: Tensor) -> str:
    """``"sparse_coo"`` of ``tesserack.sparse_coo``."""
    return str(t.layout).rpartition(".")[2]


def refuse(op: str, t: Tensor, instead: str = "try .to_dense()") -> NotImplementedError:
    """The error of an operator without a form for a tensor's layout."""
    return NotImplementedError(
        f"{op}: expected a layout it has a form for, got {layout_name(t)}, shape {tuple(t.shape)}; {instead}"
    )


def sparse_operand(*args: Any) -> Tensor:
    """The first sparse one."""
    found: Tensor = next(arg for arg in args if is_sparse(arg))
    return found


def empty_of(t: Tensor, size: Any = None, dtype: Any = None, device: Any = None) -> Tensor:
    """A sparse tensor without elements, of another's layout."""
    import tesserack as ts

    parts = parts_of(t)
    size = tuple(t.shape) if size is None else tuple(size)
    place = t.device if device is None else device
    kind = dtype or t.dtype
    dense_dim = min(parts.dense_dim, len(size))
    dense = size[len(size) - dense_dim :]
    if parts.layout is _native.sparse_coo:
        indices = ts.zeros((len(size) - dense_dim, 0), dtype=ts.int64, device=place)
        return make(parts.layout, (indices,), ts.zeros((0, *dense), dtype=kind, device=place), size, dense_dim, True)
    compressed, plain = parts.indices
    batch = tuple(compressed.shape[:-1])
    block = tuple(parts.values.shape[plain.dim() : parts.values.dim() - parts.dense_dim])
    extent = size[-1 - dense_dim] if parts.layout in (_native.sparse_csc, _native.sparse_bsc) else size[-2 - dense_dim]
    if block:
        extent //= block[1] if parts.layout is _native.sparse_bsc else block[0]
    return make(
        parts.layout,
        (
            ts.zeros((*batch, extent + 1), dtype=compressed.dtype, device=place),
            ts.zeros((*batch, 0), dtype=plain.dtype, device=place),
        ),
        ts.zeros((*batch, 0, *block, *dense), dtype=kind, device=place),
        size,
        dense_dim,
        True,
    )
