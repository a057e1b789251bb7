"""Tangents checked against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack.autograd._gradcheck_values import (
    GradcheckError,
    differentiable_outputs,
    numbers,
    numeric_columns,
    of_parts,
    outputs_of,
    parts_of,
    random_like,
    tables_close,
    wanted_of,
)

__all__ = ["check_batched_forward", "check_undefined_tangents", "compare_tangents"]


def compare_tangents(
    func: Callable[..., Any], arguments: Sequence[Any], count: int, eps: float, atol: float, rtol: float
) -> None:
    """Tangents along every element of every input against differences."""
    for number, tensor in enumerate(wanted_of(arguments)):
        forward = [_tangents(func, arguments, tensor, k) for k in range(parts_of(tensor).numel())]
        for index in range(count):
            found = [along[index] for along in forward]
            numeric = numeric_columns(func, arguments, tensor, index, eps)
            if not tables_close(found, numeric, atol, rtol):
                raise GradcheckError(
                    f"Jacobian computed with forward mode mismatch for output {index} with respect to input {number},\n"
                    f"numerical:{_native.tensor(numeric, dtype=_native.float64)}\n"
                    f"analytical:{_native.tensor(found, dtype=_native.float64)}\n"
                )


def _tangents(func: Callable[..., Any], arguments: Sequence[Any], tensor: Tensor, k: int) -> list[list[float]]:
    """Of each output, along element ``k`` of an input."""
    from tesserack.autograd import forward_ad

    parts = parts_of(tensor)
    unit = _native.tensor([float(i == k) for i in range(parts.numel())], dtype=parts.dtype, device=tensor.device)
    with forward_ad.dual_level():
        duals = [_dual(a, of_parts(unit, a) if a is tensor else None) for a in arguments]
        return [[0.0] * parts_of(y).numel() if t is None else numbers(t) for y, t in _unpacked(func, duals)]


def _unpacked(func: Callable[..., Any], duals: Sequence[Any]) -> list[tuple[Tensor, Tensor | None]]:
    """Outputs that depend on duals, and their tangents."""
    from tesserack.autograd import forward_ad

    return [(y, forward_ad.unpack_dual(y).tangent) for y in differentiable_outputs(func, duals)]


def check_undefined_tangents(func: Callable[..., Any], arguments: Sequence[Any], atol: float, rtol: float) -> None:
    """A missing tangent must count as zeros."""
    from tesserack.autograd import forward_ad

    wanted = wanted_of(arguments)
    generator = _native.Generator(device=wanted[0].device).manual_seed(3)
    given = [random_like(tensor, generator) for tensor in wanted]
    for number, tensor in enumerate(wanted):
        with forward_ad.dual_level():
            duals = [_dual(a, _tangent_of(a, wanted, given)) for a in arguments]
            place = next(k for k, a in enumerate(arguments) if a is tensor)
            duals[place] = _dual(tensor, None)
            zeros = [t for _, t in _unpacked(func, duals)]
            duals[place] = _plain(tensor)
            outputs = [y for y in outputs_of(func, duals) if y.is_floating_point() or y.is_complex()]
            missing = [forward_ad.unpack_dual(y).tangent for y in outputs]
            for index, (one, other) in enumerate(zip(zeros, missing, strict=False)):
                if one is None or other is None or tables_close([numbers(one)], [numbers(other)], atol, rtol):
                    continue
                raise GradcheckError(f"Mismatch in tangent values for output with index: {index} when input: {number} "
                                     "has an undefined tangent value.")  # fmt: skip


def _plain(tensor: Tensor) -> Tensor:
    """Without a tangent, yet what gradients are taken by where the function takes some."""
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _tangent_of(argument: Any, wanted: list[Tensor], given: list[Tensor]) -> Tensor | None:
    return next((t for w, t in zip(wanted, given, strict=True) if w is argument), None)


def check_batched_forward(func: Callable[..., Any], arguments: Sequence[Any], atol: float, rtol: float) -> None:
    """Tangents of several directions at once must be those of one by one."""
    from tesserack import stack, zeros_like
    from tesserack.autograd import forward_ad
    from tesserack.func._vmap import vmap

    wanted = wanted_of(arguments)
    generator = _native.Generator(device=wanted[0].device).manual_seed(4)
    for number, tensor in enumerate(wanted):

        def along(tangent: Tensor, tensor: Tensor = tensor) -> tuple[Tensor, ...]:
            with forward_ad.dual_level():
                plain = [_plain(a) if isinstance(a, Tensor) else a for a in arguments]
                place = next(k for k, a in enumerate(arguments) if a is tensor)
                plain[place] = forward_ad.make_dual(tensor.detach(), tangent)
                found = [forward_ad.unpack_dual(y) for y in outputs_of(func, plain)]
                return tuple(zeros_like(y) if t is None else t for y, t in found)

        seeds = [random_like(tensor, generator) for _ in range(2)]
        single = [along(seed) for seed in seeds]
        try:
            batched = vmap(along)(stack(seeds))
        except RuntimeError as error:
            raise GradcheckError(f"While computing batched gradients, got: {error}") from error
        for index, (all_of_it, *each) in enumerate(zip(batched, *single, strict=True)):
            if not tables_close([numbers(t) for t in all_of_it], [numbers(t) for t in each], atol, rtol):
                raise GradcheckError(
                    f"Batched tangents of output {index} by input {number} are not those of one by one"
                )


def _dual(argument: Any, tangent: Tensor | None) -> Any:
    """Without history, so that functions with a ``jvp`` of their own use it."""
    from tesserack import zeros_like
    from tesserack.autograd import forward_ad

    if not isinstance(argument, Tensor) or not argument.requires_grad:
        return argument
    return forward_ad.make_dual(argument.detach(), zeros_like(argument) if tangent is None else tangent)
