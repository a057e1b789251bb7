"""Jacobians and Hessians of functions of nested tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd._whole import whole_made
from tesserack.func._batched import draws_refused
from tesserack.func._gradients import (
    chosen,
    gradients,
    guarded,
    level,
    outer_gradients,
    outputs_of,
    push_forward,
    released,
    smooth_outputs_of,
    split_aux,
    tensors_of,
    with_tracked,
    writable,
    write_back,
)
from tesserack.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["hessian", "jacfwd", "jacrev"]

Columns = Callable[[Tensor, list[Tensor]], list[Tensor]]


def _by_rows(output: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """One backward pass for each element of the output."""
    rows: list[list[Tensor]] = [[] for _ in inputs]
    for k in range(output.numel()):
        seed = ts.zeros(output.numel(), dtype=output.dtype, device=output.device)
        seed[k] = 1
        for row, found in zip(rows, gradients([output], inputs, [seed.reshape(output.shape)]), strict=True):
            row.append(found)
    return [
        (ts.stack(row) if row else x.new_zeros((0, *x.shape))).reshape((*output.shape, *x.shape))
        for row, x in zip(rows, inputs, strict=True)
    ]


def _by_columns(output: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """One forward product for each element of the inputs."""
    made = []
    for place, x in enumerate(inputs):
        columns = []
        for k in range(x.numel()):
            tangents = [ts.zeros_like(other, memory_format=ts.contiguous_format) for other in inputs]
            tangents[place].view(-1)[k] = 1
            columns.append(push_forward([output], inputs, tangents)[0])
        joined = ts.stack(columns, -1) if columns else output.new_zeros((*output.shape, 0))
        made.append(joined.reshape((*output.shape, *x.shape)))
    return made


def _all_real(name: str, what: str, leaves: list[Any]) -> None:
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and leaf.is_complex():
            raise RuntimeError(
                f"{name}: expected real {what}, got {leaf.dtype} at position {place}; try view_as_real of it, or "
                "autograd.functional.jacobian"
            )


def _jacobian(
    name: str,
    func: Callable[..., Any],
    argnums: int | tuple[int, ...],
    has_aux: bool,
    fill: Columns,
    *,
    draws: bool = True,
) -> Any:
    @whole_made
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        keep = outer_gradients(args, kwargs)
        places, single = chosen(name, args, argnums)
        with level(forward=fill is _by_columns):
            made, inputs = with_tracked(args, places)
            _all_real(name, "arguments", tree_flatten(inputs)[0])
            if fill is _by_columns:  # as for jvp, the function may write to them
                made = [writable(x) if place in places else x for place, x in enumerate(made)]
            with guarded(args, made, kwargs), draws_refused(not draws):
                output, aux = split_aux(name, func(*made, **kwargs), has_aux)
            if fill is _by_columns:
                write_back([args[place] for place in places], [made[place] for place in places])
            outputs = (outputs_of if fill is _by_columns else smooth_outputs_of)(name, output)
            _all_real(name, "outputs", outputs)
            leaves, in_spec = tree_flatten(inputs)
            tensors_of(name, inputs, "the arguments")
            _, out_spec = tree_flatten(output)
            rows = []
            for y in outputs:
                parts = tree_unflatten(fill(y, leaves), in_spec)
                rows.append(parts[0] if single else tuple(parts))
        result = released(tree_unflatten(rows, out_spec), keep)
        return (result, released(aux, keep)) if has_aux else result

    return wrapper


def jacrev(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Any:
    """A function giving the Jacobian (output dims, then input dims): a backward pass for each output element.

    Outputs and the arguments ``argnums`` may be nested; the result has the outputs' structure, each leaf that of the
    arguments. ``chunk_size`` is PyTorch's bound of memory and changes nothing here. ``ValueError`` if it is not
    positive, ``RuntimeError`` for complex arguments and outputs, whose derivatives are not one number.

    >>> import tesserack as ts
    >>> ts.func.jacrev(ts.sin)(ts.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"jacrev: expected chunk_size to be greater than 0, got {chunk_size}")
    return _jacobian("jacrev", func, argnums, has_aux, _by_rows)


def jacfwd(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
) -> Any:
    """The same column by column: a forward product for each input element.

    Random numbers are refused with ``RuntimeError`` under ``randomness="error"``; otherwise all columns see the same.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"jacfwd: expected randomness to be 'error', 'different' or 'same', got {randomness!r}")
    return _jacobian("jacfwd", func, argnums, has_aux, _by_columns, draws=randomness != "error")


def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Any:
    """A function giving the second derivatives of a function.

    >>> import tesserack as ts
    >>> ts.func.hessian(lambda x: (x**3).sum())(ts.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacrev(jacrev(func, argnums), argnums)
