"""Gradients of convolutions by input and by weight, as functions of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn import functional

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _by(convolution: Callable[..., Tensor], which: int, given: list[Any], grad: Tensor, options: Any) -> Tensor:
    """The gradient of a convolution by its input (0) or weight (1), of which the size is given."""
    size = tuple(given[which])
    # The convolution is linear in it: any values do.
    given[which] = ts.zeros(size, dtype=grad.dtype, device=grad.device).requires_grad_()
    with ts.enable_grad():
        result = convolution(given[0], given[1], None, *options)
        recorded = ts.is_grad_enabled() and (grad.requires_grad or given[1 - which].requires_grad)
        return ts.autograd.grad(result, given[which], grad, create_graph=recorded)[0]


def _make(dims: int, which: int) -> Callable[..., Tensor]:
    convolution = getattr(functional, f"conv{dims}d")

    def by_input(
        input_size: Sequence[int],
        weight: Tensor,
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        return _by(convolution, 0, [input_size, weight], grad_output, (stride, padding, dilation, groups))

    def by_weight(
        input: Tensor,
        weight_size: Sequence[int],
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        return _by(convolution, 1, [input, weight_size], grad_output, (stride, padding, dilation, groups))

    made: Callable[..., Tensor] = by_weight if which else by_input
    made.__name__ = made.__qualname__ = f"conv{dims}d_{'weight' if which else 'input'}"
    made.__doc__ = (
        f"The gradient of :func:`~tesserack.nn.functional.conv{dims}d` by its {'weight' if which else 'input'}, of the "
        "size given, where ``grad_output`` arrives. RuntimeError for shapes that do not fit."
    )
    return made


conv1d_input, conv1d_weight = _make(1, 0), _make(1, 1)
conv2d_input, conv2d_weight = _make(2, 0), _make(2, 1)
conv3d_input, conv3d_weight = _make(3, 0), _make(3, 1)
