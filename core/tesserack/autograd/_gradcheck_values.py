"""What :func:`gradcheck` is made of: outputs, their numbers, differences."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack._tensor.subclass import has_no_memory

__all__ = [
    "GradcheckError",
    "check_alike",
    "close",
    "differentiable_outputs",
    "evaluate",
    "numbers",
    "numeric_columns",
    "of_parts",
    "outputs_of",
    "parts_of",
    "random_like",
    "tables_close",
    "wanted_of",
]


class GradcheckError(RuntimeError):
    """What :func:`gradcheck` and :func:`gradgradcheck` raise."""


def wanted_of(arguments: Sequence[Any]) -> list[Tensor]:
    return [a for a in arguments if isinstance(a, Tensor) and a.requires_grad]


def outputs_of(func: Callable[..., Any], arguments: Sequence[Any]) -> list[Tensor]:
    result = func(*arguments)
    results = [result] if isinstance(result, Tensor) else [*result]
    return [r for r in results if isinstance(r, Tensor)]


def differentiable_outputs(func: Callable[..., Any], arguments: Sequence[Any]) -> list[Tensor]:
    return [output for output in outputs_of(func, arguments) if output.requires_grad]


def parts_of(tensor: Tensor) -> Tensor:
    """Without history, complex numbers as pairs of real ones; shares memory."""
    from tesserack import view_as_real

    tensor = tensor.detach().resolve_conj().resolve_neg()
    return view_as_real(tensor) if tensor.is_complex() else tensor


def of_parts(values: Tensor, like: Tensor) -> Tensor:
    """The tensor whose parts these are."""
    from tesserack import view_as_complex

    shape = parts_of(like).shape
    parts = values.reshape(shape)
    return view_as_complex(parts) if like.is_complex() else parts


def numbers(tensor: Tensor) -> list[float]:
    values = parts_of(tensor).to(_native.float64).reshape(-1)
    if has_no_memory(values):  # of a class that holds them elsewhere, and is asked for each
        return [value.item() for value in values]
    return values.tolist()  # type: ignore[no-any-return]


def evaluate(func: Callable[..., Any], arguments: Sequence[Any], output: int, differentiable: bool) -> Tensor:
    outputs = differentiable_outputs(func, arguments) if differentiable else outputs_of(func, arguments)
    return outputs[output]


def check_alike(above: Tensor, below: Tensor, eps: float) -> None:
    """``AssertionError`` for outputs whose outline depends on the values of inputs."""
    for what, one, other in (("shape", above.shape, below.shape), ("dtype", above.dtype, below.dtype)):
        if one != other:
            raise AssertionError(f"Expected `func` to return outputs with the same {what} when inputs are perturbed by "
                                 f"{eps:g}, but got {one} and {other}.")  # fmt: skip


def numeric_columns(
    func: Callable[..., Any],
    arguments: Sequence[Any],
    tensor: Tensor,
    output: int,
    eps: float,
    differentiable: bool = True,
) -> list[list[float]]:
    """d output / d element, one list for every element of ``tensor``."""
    columns = []
    data = parts_of(tensor.data)  # as another counter of versions sees it: views of the same memory stay usable
    for position in itertools.product(*(range(size) for size in data.shape)):
        original = data[position].item()
        data[position] = original + eps
        above = evaluate(func, arguments, output, differentiable).detach().clone()
        data[position] = original - eps
        below = evaluate(func, arguments, output, differentiable).detach().clone()
        data[position] = original
        check_alike(above, below, eps)
        columns.append([(a - b) / (2 * eps) for a, b in zip(numbers(above), numbers(below), strict=True)])
    return columns


def close(a: float, b: float, atol: float, rtol: float) -> bool:
    return a == b or (a != a and b != b) or abs(a - b) <= atol + rtol * abs(b)


def tables_close(left: list[list[float]], right: list[list[float]], atol: float, rtol: float) -> bool:
    return all(close(a, b, atol, rtol) for x, y in zip(left, right, strict=True) for a, b in zip(x, y, strict=True))


def random_like(tensor: Tensor, generator: Any) -> Tensor:
    from tesserack import rand

    parts = parts_of(tensor)
    values = rand(parts.shape, dtype=_native.float64, generator=generator, device=tensor.device).to(parts.dtype)
    return of_parts(values, tensor)
