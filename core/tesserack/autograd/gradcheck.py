"""Gradients checked against finite differences."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack._tensor.subclass import has_no_memory
from tesserack.autograd._run import grad

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """What :func:`gradcheck` and :func:`gradgradcheck` raise."""


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
        check_undefined_grad: also run backward with some output gradients missing.
        check_grad_dtypes: also require that gradients have the dtypes of their inputs.
        check_batched_grad: also require that several gradients at once (``is_grads_batched``) are those of one by one.
        check_forward_ad, check_backward_ad: which ways of differentiating are compared.
        check_batched_forward_grad: needs ``check_forward_ad``, and adds nothing to it: tangents are taken one by one.
        fast_mode: compare along one random direction instead of every element.
        masked: whether of sparse inputs the elements that are there count alone, or all (the default).

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
        outputs = _differentiable_outputs(func, arguments)
        if not outputs:
            _check_constant(func, arguments, eps)
            return True
        compare = _compare_direction if fast_mode else _compare_jacobians
        for index in range(len(outputs) if check_backward_ad else 0):
            compare(func, arguments, index, eps, atol, rtol, nondet_tol)
        for index in range(len(outputs) if check_forward_ad else 0):
            _compare_tangents(func, arguments, index, eps, atol, rtol)
        if check_batched_grad and check_backward_ad:
            _check_batched(func, arguments, atol, rtol)
        if check_grad_dtypes and check_backward_ad:
            _check_grad_dtypes(outputs, arguments)
        if check_undefined_grad and check_backward_ad:
            _check_undefined_grads(func, arguments)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


# --- inputs and outputs --------------------------------------------------------------------------------------------


def _wanted(arguments: Sequence[Any]) -> list[Tensor]:
    return [a for a in arguments if isinstance(a, Tensor) and a.requires_grad]


def _check_inputs(arguments: Sequence[Any], eps: float) -> None:
    wanted = _wanted(arguments)
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


def _outputs(func: Callable[..., Any], arguments: Sequence[Any]) -> list[Tensor]:
    result = func(*arguments)
    results = [result] if isinstance(result, Tensor) else [*result]
    return [r for r in results if isinstance(r, Tensor)]


def _differentiable_outputs(func: Callable[..., Any], arguments: Sequence[Any]) -> list[Tensor]:
    return [output for output in _outputs(func, arguments) if output.requires_grad]


def _check_constant(func: Callable[..., Any], arguments: Sequence[Any], eps: float) -> None:
    """No output requires grad: then none may depend on the inputs."""
    for number, tensor in enumerate(_wanted(arguments)):
        for output in range(len(_outputs(func, arguments))):
            for column in _numeric_columns(func, arguments, tensor, output, eps, differentiable=False):
                if any(value != 0 for value in column):
                    raise GradcheckError(
                        f"Numerical gradient expected to be zero, but input {number} changes output {output}"
                    )


# --- full Jacobians --------------------------------------------------------------------------------------------------


def _parts(tensor: Tensor) -> Tensor:
    """Without history, complex numbers as pairs of real ones; shares memory."""
    from tesserack import view_as_real

    tensor = tensor.detach().resolve_conj().resolve_neg()
    return view_as_real(tensor) if tensor.is_complex() else tensor


def _of_parts(values: Tensor, like: Tensor) -> Tensor:
    """The tensor whose parts these are."""
    from tesserack import view_as_complex

    shape = _parts(like).shape
    parts = values.reshape(shape)
    return view_as_complex(parts) if like.is_complex() else parts


def _flat(tensor: Tensor) -> list[float]:
    values = _parts(tensor).to(_native.float64).reshape(-1)
    if has_no_memory(values):  # of a class that holds them elsewhere, and is asked for each
        return [value.item() for value in values]
    return values.tolist()  # type: ignore[no-any-return]


def _evaluate(func: Callable[..., Any], arguments: Sequence[Any], output: int, differentiable: bool) -> list[float]:
    outputs = _differentiable_outputs(func, arguments) if differentiable else _outputs(func, arguments)
    return _flat(outputs[output])


def _numeric_columns(
    func: Callable[..., Any],
    arguments: Sequence[Any],
    tensor: Tensor,
    output: int,
    eps: float,
    differentiable: bool = True,
) -> list[list[float]]:
    """d output / d element, one list for every element of ``tensor``."""
    columns = []
    data = _parts(tensor)
    for position in itertools.product(*(range(size) for size in data.shape)):
        original = data[position].item()
        data[position] = original + eps
        above = _evaluate(func, arguments, output, differentiable)
        data[position] = original - eps
        below = _evaluate(func, arguments, output, differentiable)
        data[position] = original
        columns.append([(a - b) / (2 * eps) for a, b in zip(above, below, strict=True)])
    return columns


def _analytic_columns(output: Tensor, wanted: list[Tensor]) -> list[list[list[float]]]:
    """The same by backward: for every input, for every element of it."""
    rows: list[list[list[float]]] = [[] for _ in wanted]
    count, dtype = _parts(output).numel(), _parts(output).dtype
    sizes = [_parts(tensor).numel() for tensor in wanted]
    for index in range(count):
        seed = _native.tensor([float(k == index) for k in range(count)], dtype=dtype, device=output.device)
        grads = grad(output, wanted, _of_parts(seed, output), retain_graph=True, allow_unused=True)
        for row, g, size in zip(rows, grads, sizes, strict=True):
            row.append([0.0] * size if g is None else _flat(g))
    return [[[row[k] for row in table] for k in range(size)] for table, size in zip(rows, sizes, strict=True)]


def _close(a: float, b: float, atol: float, rtol: float) -> bool:
    return a == b or (a != a and b != b) or abs(a - b) <= atol + rtol * abs(b)


def _tables_close(left: list[list[float]], right: list[list[float]], atol: float, rtol: float) -> bool:
    return all(_close(a, b, atol, rtol) for x, y in zip(left, right, strict=True) for a, b in zip(x, y, strict=True))


def _compare_jacobians(
    func: Callable[..., Any],
    arguments: Sequence[Any],
    index: int,
    eps: float,
    atol: float,
    rtol: float,
    nondet_tol: float,
) -> None:
    wanted = _wanted(arguments)
    output = _differentiable_outputs(func, arguments)[index]
    analytic, again = _analytic_columns(output, wanted), _analytic_columns(output, wanted)
    for number, tensor in enumerate(wanted):
        numeric = _numeric_columns(func, arguments, tensor, index, eps)
        if not _tables_close(analytic[number], numeric, atol, rtol):
            raise GradcheckError(
                f"Jacobian mismatch for output {index} with respect to input {number},\n"
                f"numerical:{_native.tensor(numeric, dtype=_native.float64)}\n"
                f"analytical:{_native.tensor(analytic[number], dtype=_native.float64)}\n"
            )
        if not _tables_close(analytic[number], again[number], nondet_tol, 0.0):
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                "gives different values, "
                f"although analytical gradient matches numerical gradient, for output {index} and input {number}."
            )


# --- one direction ---------------------------------------------------------------------------------------------------


def _random_like(tensor: Tensor, generator: Any) -> Tensor:
    from tesserack import rand

    parts = _parts(tensor)
    values = rand(parts.shape, dtype=_native.float64, generator=generator, device=tensor.device).to(parts.dtype)
    return _of_parts(values, tensor)


def _compare_direction(
    func: Callable[..., Any],
    arguments: Sequence[Any],
    index: int,
    eps: float,
    atol: float,
    rtol: float,
    nondet_tol: float,
) -> None:
    wanted = _wanted(arguments)
    generator = _native.Generator(device=wanted[0].device).manual_seed(0)
    output = _differentiable_outputs(func, arguments)[index]
    weights = _random_like(output, generator)
    grads = grad(output, wanted, weights, retain_graph=True, allow_unused=True)
    for number, (tensor, g) in enumerate(zip(wanted, grads, strict=True)):
        direction = _random_like(tensor, generator)
        analytic = 0.0 if g is None else (_parts(g) * _parts(direction)).sum().item()
        numeric = _directional(func, arguments, tensor, direction, weights, index, eps)
        scale = max(1.0, float(tensor.numel() * output.numel()) ** 0.5)
        if not _close(analytic, numeric, atol * scale, rtol):
            raise GradcheckError(
                f"Jacobian mismatch for output {index} with respect to input {number} along a random direction, "
                f"numerical:{numeric} analytical:{analytic}"
            )


def _directional(
    func: Callable[..., Any],
    arguments: Sequence[Any],
    tensor: Tensor,
    direction: Tensor,
    weights: Tensor,
    index: int,
    eps: float,
) -> float:
    data, original = tensor.detach(), tensor.detach().clone()
    values = []
    for sign in (1.0, -1.0):
        data.copy_(original + direction * (sign * eps))
        values.append((_parts(_differentiable_outputs(func, arguments)[index]) * _parts(weights)).sum().item())
    data.copy_(original)
    return (values[0] - values[1]) / (2 * eps)  # type: ignore[no-any-return]


# --- forward mode ----------------------------------------------------------------------------------------------------


def _compare_tangents(
    func: Callable[..., Any], arguments: Sequence[Any], index: int, eps: float, atol: float, rtol: float
) -> None:
    """Tangents along every element of every input against differences."""
    for number, tensor in enumerate(_wanted(arguments)):
        numeric = _numeric_columns(func, arguments, tensor, index, eps)
        forward = [_tangent(func, arguments, tensor, k, index) for k in range(_parts(tensor).numel())]
        if not _tables_close(forward, numeric, atol, rtol):
            raise GradcheckError(
                f"Jacobian computed with forward mode mismatch for output {index} with respect to input {number},\n"
                f"numerical:{_native.tensor(numeric, dtype=_native.float64)}\n"
                f"analytical:{_native.tensor(forward, dtype=_native.float64)}\n"
            )


def _tangent(func: Callable[..., Any], arguments: Sequence[Any], tensor: Tensor, k: int, index: int) -> list[float]:
    from tesserack.autograd import forward_ad

    parts = _parts(tensor)
    unit = _native.tensor([float(i == k) for i in range(parts.numel())], dtype=parts.dtype, device=tensor.device)
    with forward_ad.dual_level():
        duals = [_dual(a, _of_parts(unit, a) if a is tensor else None) for a in arguments]
        output = _differentiable_outputs(func, duals)[index]
        found = forward_ad.unpack_dual(output)
        return [0.0] * _parts(output).numel() if found.tangent is None else _flat(found.tangent)


def _dual(argument: Any, tangent: Tensor | None) -> Any:
    """Without history, so that functions with a ``jvp`` of their own use it."""
    from tesserack import zeros_like
    from tesserack.autograd import forward_ad

    if not isinstance(argument, Tensor) or not argument.requires_grad:
        return argument
    return forward_ad.make_dual(argument.detach(), zeros_like(argument) if tangent is None else tangent)


def _check_batched(func: Callable[..., Any], arguments: Sequence[Any], atol: float, rtol: float) -> None:
    from tesserack import stack

    wanted = _wanted(arguments)
    for output in _differentiable_outputs(func, arguments):
        generator = _native.Generator(device=output.device).manual_seed(2)
        seeds = [_random_like(output, generator) for _ in range(2)]
        single = [grad(output, wanted, seed, retain_graph=True, allow_unused=True) for seed in seeds]
        batched = grad(output, wanted, stack(seeds), retain_graph=True, allow_unused=True, is_grads_batched=True)
        for number, (all_of_it, *each) in enumerate(zip(batched, *single, strict=True)):
            if all_of_it is None and all(g is None for g in each):
                continue
            if all_of_it is None or not _tables_close(
                [_flat(g) for g in all_of_it], [_flat(g) for g in each], atol, rtol
            ):
                raise GradcheckError(f"Batched gradients of input {number} are not those of one by one")


# --- other properties ----------------------------------------------------------------------------------------------


def _check_grad_dtypes(outputs: list[Tensor], arguments: Sequence[Any]) -> None:
    from tesserack import ones_like

    wanted = _wanted(arguments)
    for g, tensor in zip(
        grad(outputs, wanted, [ones_like(o) for o in outputs], allow_unused=True), wanted, strict=True
    ):
        if g is not None and g.dtype is not tensor.dtype:
            raise GradcheckError(f"Gradient has dtype {g.dtype}, its input {tensor.dtype}")


def _check_undefined_grads(func: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Missing output gradients must count as zeros."""
    from tesserack import zeros_like

    wanted = _wanted(arguments)
    outputs = _differentiable_outputs(func, arguments)
    if len(outputs) < 2:
        return
    for index, output in enumerate(outputs):
        given = [zeros_like(o) if k == index else None for k, o in enumerate(outputs)]
        roots = [o for o, g in zip(outputs, given, strict=True) if g is not None]
        for number, g in enumerate(grad(roots, wanted, [zeros_like(output)], retain_graph=True, allow_unused=True)):
            if g is not None and any(value != 0 for value in _flat(g)):
                raise GradcheckError(
                    f"Expected gradient of input {number} to be zero when only output {index} has a gradient, of zeros"
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
        outputs = _differentiable_outputs(func, point)
        grads = grad(outputs, _wanted(point), weights, create_graph=True, allow_unused=True)
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
    for output in _differentiable_outputs(func, arguments):
        generator = _native.Generator(device=output.device).manual_seed(1)
        parts = _parts(output)
        values = randn(parts.shape, dtype=_native.float64, device=output.device, generator=generator)
        seed = _of_parts(values.to(parts.dtype), output)
        if strided and seed.dim():
            seed = stack([seed, seed], dim=-1)[..., 0]
        seeds.append(seed.detach().requires_grad_())
    return tuple(seeds)
