"""Gradients checked against finite differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack.autograd._gradcheck_forward import check_batched_forward, check_undefined_tangents, compare_tangents
from tesserack.autograd._gradcheck_values import (
    GradcheckError,
    check_alike,
    close,
    differentiable_outputs,
    evaluate,
    numbers,
    numeric_columns,
    of_parts,
    outputs_of,
    parts_of,
    random_like,
    tables_close,
    wanted_of,
)
from tesserack.autograd._run import grad
from tesserack.autograd.function import Function

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Compare the gradients of ``func`` with central differences, for every input that requires grad.

    Inputs should be float64 or complex128: the differences of float32 are too coarse for the default tolerances.
    Complex numbers count as their two parts.

    Args:
        func: takes the inputs, returns a tensor or a tuple of tensors.
        eps: step of the differences.
        atol, rtol: tolerances.
        raise_exception: raise :class:`GradcheckError` rather than return False.
        nondet_tol: how much two runs of the same backward may differ.
        check_undefined_grad: also run backward with output gradients missing, and forward mode without tangents.
        check_grad_dtypes: also require that gradients have the dtypes of their inputs.
        check_batched_grad: also require that several gradients at once (``is_grads_batched``) are those of one by one.
        check_forward_ad, check_backward_ad: which ways of differentiating are compared.
        check_batched_forward_grad: also require that tangents taken under ``vmap`` are those of one by one; needs
            ``check_forward_ad``.
        fast_mode: compare along one random direction instead of every element.
        masked: whether of sparse inputs the elements that are there count alone, or all (the default).

    ``AssertionError`` where outputs of perturbed inputs differ in shape or dtype.

    >>> import tesserack as ts
    >>> ts.autograd.gradcheck(lambda x: x.exp(), ts.tensor([0.5, 1.0], dtype=ts.float64, requires_grad=True))
    True
    """
    arguments = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if check_batched_forward_grad and not check_forward_ad:
        raise ValueError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if any(_is_sparse(a) and a.requires_grad for a in arguments):
        func, arguments = _of_values(func, arguments, masked)
    try:
        _check_inputs(arguments, eps)
        outputs = differentiable_outputs(func, arguments)
        if not outputs:
            _check_constant(func, arguments, eps)
            return True
        compare = _compare_direction if fast_mode else _compare_jacobians
        for index in range(len(outputs) if check_backward_ad else 0):
            compare(func, arguments, index, eps, atol, rtol, nondet_tol)
        if check_backward_ad:
            _check_proportional(func, arguments)
        if check_forward_ad:
            compare_tangents(func, arguments, len(outputs), eps, atol, rtol)
        if check_forward_ad and check_undefined_grad:
            check_undefined_tangents(func, arguments, atol, rtol)
        if check_batched_forward_grad:
            check_batched_forward(func, arguments, atol, rtol)
        if check_batched_grad and check_backward_ad:
            _check_batched(func, arguments, atol, rtol)
        if check_grad_dtypes and check_backward_ad:
            _check_grad_dtypes(func, arguments)
        if check_undefined_grad and check_backward_ad:
            _check_undefined_grads(func, arguments)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


# --- inputs and outputs --------------------------------------------------------------------------------------------


def _check_inputs(arguments: Sequence[Any], eps: float) -> None:
    wanted = wanted_of(arguments)
    if not wanted:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
        )
    for tensor in wanted:
        if tensor.dtype not in (_native.float64, _native.complex128):
            warnings.warn(
                f"gradcheck: an input is {tensor.dtype}; without float64 the check will likely fail", stacklevel=3
            )
        if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
            raise RuntimeError("gradcheck: an input was expanded, its elements share memory; clone() it first")
    for tensor in wanted:
        if tensor.is_leaf:
            continue
        tensor.retain_grad()


def _is_sparse(x: Any) -> bool:
    return isinstance(x, Tensor) and x.layout is not _native.strided


def _of_values(
    func: Callable[..., Any], arguments: Sequence[Any], masked: bool | None
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function of the values of its sparse arguments, with dense results, and those values.

    ``masked``: the elements that are there; otherwise all, those that are not being zeros.
    """
    made: list[Any] = []
    rebuilt: dict[int, Callable[[Tensor], Tensor]] = {}
    for place, x in enumerate(arguments):
        if not (_is_sparse(x) and x.requires_grad):
            made.append(x)
            continue
        pattern = x.detach() if masked else _filled(x.detach())
        values, rebuilt[place] = _values_of(pattern)
        made.append(values.detach().clone().requires_grad_())

    def of_values(*values: Any) -> Any:
        result = func(*(rebuilt[k](v) if k in rebuilt else v for k, v in enumerate(values)))
        results = [result] if isinstance(result, Tensor) else [*result]
        return tuple(r.to_dense() if _is_sparse(r) else r for r in results)

    return of_values, tuple(made)


def _filled(x: Tensor) -> Tensor:
    """The same with every element there."""
    from tesserack import ones_like

    dense = x.to_dense()
    blocks = tuple(x.values().shape[1:3]) if x.layout in (_native.sparse_bsr, _native.sparse_bsc) else None
    if x.layout is _native.sparse_coo:
        whole = ones_like(dense).to_sparse(x.sparse_dim())
        return whole * 0 + dense.to_sparse(x.sparse_dim()) if dense.numel() else whole
    ones = ones_like(dense).to_sparse(layout=x.layout, blocksize=blocks)
    _, rebuild = _values_of(ones)
    number = (ones.values().new_ones(ones.values().shape).reshape(-1).cumsum(0)).reshape(ones.values().shape)
    places = (rebuild(number).to_dense() - 1).reshape(-1)
    values = dense.new_zeros(dense.numel())
    values[places.long()] = dense.reshape(-1)
    return rebuild(values.reshape(ones.values().shape))


def _values_of(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The values of a sparse tensor, and what makes such a tensor of values."""
    from tesserack import sparse_compressed_tensor, sparse_coo_tensor

    size, layout = x.shape, x.layout
    if layout is _native.sparse_coo:
        whole = x.coalesce()
        return whole.values(), lambda v: sparse_coo_tensor(whole.indices(), v, size, is_coalesced=True)
    by_rows = layout in (_native.sparse_csr, _native.sparse_bsr)
    compressed = x.crow_indices() if by_rows else x.ccol_indices()
    plain = x.col_indices() if by_rows else x.row_indices()
    return x.values(), lambda v: sparse_compressed_tensor(compressed, plain, v, size, layout=layout)


def _check_constant(func: Callable[..., Any], arguments: Sequence[Any], eps: float) -> None:
    """No output requires grad: then none may depend on the inputs."""
    for number, tensor in enumerate(wanted_of(arguments)):
        for output in range(len(outputs_of(func, arguments))):
            for column in numeric_columns(func, arguments, tensor, output, eps, differentiable=False):
                if any(value != 0 for value in column):
                    raise GradcheckError(
                        f"Numerical gradient expected to be zero, but input {number} changes output {output}"
                    )


# --- full Jacobians --------------------------------------------------------------------------------------------------


def _analytic_columns(output: Tensor, wanted: list[Tensor]) -> list[list[list[float]]]:
    """The same by backward: for every input, for every element of it."""
    rows: list[list[list[float]]] = [[] for _ in wanted]
    count, dtype = parts_of(output).numel(), parts_of(output).dtype
    sizes = [parts_of(tensor).numel() for tensor in wanted]
    for index in range(count):
        seed = _native.tensor([float(k == index) for k in range(count)], dtype=dtype, device=output.device)
        grads = grad(output, wanted, of_parts(seed, output), retain_graph=True, allow_unused=True)
        for row, g, size in zip(rows, grads, sizes, strict=True):
            row.append([0.0] * size if g is None else numbers(g))
    return [[[row[k] for row in table] for k in range(size)] for table, size in zip(rows, sizes, strict=True)]


def _compare_jacobians(
    func: Callable[..., Any],
    arguments: Sequence[Any],
    index: int,
    eps: float,
    atol: float,
    rtol: float,
    nondet_tol: float,
) -> None:
    wanted = wanted_of(arguments)
    output = differentiable_outputs(func, arguments)[index]
    analytic, again = _analytic_columns(output, wanted), _analytic_columns(output, wanted)
    for number, tensor in enumerate(wanted):
        numeric = numeric_columns(func, arguments, tensor, index, eps)
        if not tables_close(analytic[number], numeric, atol, rtol):
            raise GradcheckError(
                f"Jacobian mismatch for output {index} with respect to input {number},\n"
                f"numerical:{_native.tensor(numeric, dtype=_native.float64)}\n"
                f"analytical:{_native.tensor(analytic[number], dtype=_native.float64)}\n"
            )
        if not tables_close(analytic[number], again[number], nondet_tol, 0.0):
            raise GradcheckError(_not_reentrant(index, number))


def _not_reentrant(output: int, number: int) -> str:
    return ("Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives "
            "different values, although analytical gradient matches numerical gradient, for output "
            f"{output} and input {number}.")  # fmt: skip


# --- one direction ---------------------------------------------------------------------------------------------------


def _compare_direction(
    func: Callable[..., Any],
    arguments: Sequence[Any],
    index: int,
    eps: float,
    atol: float,
    rtol: float,
    nondet_tol: float,
) -> None:
    wanted = wanted_of(arguments)
    generator = _native.Generator(device=wanted[0].device).manual_seed(0)
    output = differentiable_outputs(func, arguments)[index]
    weights, weight = _unit(random_like(output, generator))
    grads = grad(output, wanted, weights, retain_graph=True, allow_unused=True)
    again = grad(output, wanted, weights, retain_graph=True, allow_unused=True)
    for number, (tensor, g) in enumerate(zip(wanted, grads, strict=True)):
        direction, length = _unit(random_like(tensor, generator))
        analytic = 0.0 if g is None else (parts_of(g) * parts_of(direction)).sum().item()
        numeric = _directional(func, arguments, tensor, direction, weights, index, eps)
        if not close(analytic, numeric, atol * max(1.0, length * weight), rtol):
            raise GradcheckError(
                f"Jacobian mismatch for output {index} with respect to input {number} along a random direction, "
                f"numerical:{numeric} analytical:{analytic}"
            )
        second = again[number]
        if g is not None and second is not None and not tables_close([numbers(g)], [numbers(second)], nondet_tol, 0.0):
            raise GradcheckError(_not_reentrant(index, number))


def _unit(values: Tensor) -> tuple[Tensor, float]:
    """The vector of length one in the direction of ``values``, and the sum of its elements' sizes: an error of each
    element of the Jacobian is seen times the sums of both vectors, as PyTorch's tolerance takes it."""
    parts = parts_of(values)
    length = parts.to(_native.float64).norm().item() or 1.0
    return values / length, parts.abs().sum(dtype=_native.float64).item() / length


def _directional(
    func: Callable[..., Any],
    arguments: Sequence[Any],
    tensor: Tensor,
    direction: Tensor,
    weights: Tensor,
    index: int,
    eps: float,
) -> float:
    # .data: by another counter of versions, so that what else views the same memory may still be used.
    data, original = tensor.data, tensor.detach().clone()
    values = []
    for sign in (1.0, -1.0):
        data.copy_(original + direction * (sign * eps))
        values.append(evaluate(func, arguments, index, True).detach().clone())
    data.copy_(original)
    check_alike(values[0], values[1], eps)
    above, below = ((parts_of(value) * parts_of(weights)).sum().item() for value in values)
    return (above - below) / (2 * eps)  # type: ignore[no-any-return]


# --- several at once and missing ones ------------------------------------------------------------------------------


def _check_batched(func: Callable[..., Any], arguments: Sequence[Any], atol: float, rtol: float) -> None:
    from tesserack import stack

    wanted = wanted_of(arguments)
    for output in differentiable_outputs(func, arguments):
        generator = _native.Generator(device=output.device).manual_seed(2)
        seeds = [random_like(output, generator) for _ in range(2)]
        single = [grad(output, wanted, seed, retain_graph=True, allow_unused=True) for seed in seeds]
        batched = grad(output, wanted, stack(seeds), retain_graph=True, allow_unused=True, is_grads_batched=True)
        for number, (all_of_it, *each) in enumerate(zip(batched, *single, strict=True)):
            if all_of_it is None and all(g is None for g in each):
                continue
            if all_of_it is None or not tables_close(
                [numbers(g) for g in all_of_it], [numbers(g) for g in each], atol, rtol
            ):
                raise GradcheckError(f"Batched gradients of input {number} are not those of one by one")


# --- other properties ----------------------------------------------------------------------------------------------


def _check_proportional(func: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Where the gradients of all outputs are zero, those of the inputs are."""
    from tesserack import zeros_like

    outputs = differentiable_outputs(func, arguments)
    found = grad(outputs, wanted_of(arguments), [zeros_like(y) for y in outputs], allow_unused=True)
    if any(g is not None and any(value != 0 for value in numbers(g)) for g in found):
        raise GradcheckError("backward not multiplied by grad_output")


def _check_grad_dtypes(func: Callable[..., Any], arguments: Sequence[Any]) -> None:
    from tesserack import ones_like

    wanted = wanted_of(arguments)
    outputs = differentiable_outputs(func, arguments)  # anew: the inputs have been moved since
    for g, tensor in zip(
        grad(outputs, wanted, [ones_like(o) for o in outputs], allow_unused=True), wanted, strict=True
    ):
        if g is not None and g.dtype is not tensor.dtype:
            raise GradcheckError(f"Gradient has dtype {g.dtype}, its input {tensor.dtype}")


class _Undefined(Function):
    """Passes a value through; its gradient is missing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        return None


def _check_undefined_grads(func: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Missing output gradients must count as zeros: all of them, and one at a time."""
    count = len(differentiable_outputs(func, arguments))
    missing = [set(range(count)), *([{k} for k in range(count)] if count > 1 else [])]
    for places in missing:
        outputs = differentiable_outputs(func, arguments)
        _check_undefined([_Undefined.apply(y) if k in places else y for k, y in enumerate(outputs)], arguments)


def _check_undefined(outputs: list[Tensor], arguments: Sequence[Any]) -> None:
    from tesserack import zeros_like

    try:
        found = grad(outputs, wanted_of(arguments), [zeros_like(y) for y in outputs], allow_unused=True)
    except RuntimeError as error:
        _warn_of_undefined()
        raise GradcheckError("Expected backward function to handle undefined output grads.") from error
    if any(g is not None and any(value != 0 for value in numbers(g)) for g in found):
        _warn_of_undefined()
        raise GradcheckError("Expected all input grads to be undefined or zero when all output grads are undefined or "
                             "zero.")  # fmt: skip


def _warn_of_undefined() -> None:
    warnings.warn(
        "Backwards compatibility: New undefined gradient support checking feature is enabled by default, but it may "
        "break existing callers of this function. If this is true for you, you can call this function with "
        '"check_undefined_grad=False" to disable the feature',
        stacklevel=5,
    )


# --- second derivatives --------------------------------------------------------------------------------------------


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """:func:`gradcheck` of the gradient itself: second derivatives by ``inputs`` and ``grad_outputs``."""
    arguments = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    seeds = _seeds(func, arguments, gen_non_contig_grad_outputs) if grad_outputs is None else _as_tuple(grad_outputs)
    count = len(arguments)

    def gradient(*values: Any) -> tuple[Tensor, ...]:
        point, weights = values[:count], values[count:]
        outputs = differentiable_outputs(func, point)
        grads = grad(outputs, wanted_of(point), weights, create_graph=True, allow_unused=True)
        return tuple(g for g in grads if g is not None)

    return gradcheck(
        gradient,
        arguments + seeds,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, Tensor) else tuple(value)


def _seeds(func: Callable[..., Any], arguments: Sequence[Any], strided: bool) -> tuple[Tensor, ...]:
    from tesserack import randn, stack

    seeds = []
    for output in differentiable_outputs(func, arguments):
        generator = _native.Generator(device=output.device).manual_seed(1)
        parts = parts_of(output)
        values = randn(parts.shape, dtype=_native.float64, device=output.device, generator=generator)
        seed = of_parts(values.to(parts.dtype), output)
        if strided and seed.dim():
            seed = stack([seed, seed], dim=-1)[..., 0]
        seeds.append(seed.detach().requires_grad_())
    return tuple(seeds)
