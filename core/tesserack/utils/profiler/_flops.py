"""How many floating-point operations calls of operators are, by their arguments and results."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

__all__ = ["POINTWISE", "PRODUCTS"]


def _matmul(args: Any, result: Any) -> int:
    return int(2 * result.numel() * args[0].shape[-1])


def _turned(args: Any, result: Any) -> int:
    return int(2 * result.numel() * args[0].shape[-2 if args[2] else -1])


def _linear_weight(args: Any, result: Any) -> int:
    return int(2 * args[0].numel() * args[1].shape[-1])


def _addmm(args: Any, result: Any) -> int:
    return int(2 * result.numel() * args[1].shape[-1])


def _conv(args: Any, result: Any) -> int:
    return int(2 * result.numel() * math.prod(args[1].shape[1:]))


def _conv_input(args: Any, result: Any) -> int:
    return int(2 * args[0].numel() * math.prod(args[1].shape[1:]))


def _conv_weight(args: Any, result: Any) -> int:
    return int(2 * args[0].numel() * math.prod(result.shape[1:]))


def _attention(args: Any, result: Any) -> int:
    query, key, value = args[:3]
    pairs = query.numel() // query.shape[-1] * key.shape[-2]
    return int(2 * pairs * (query.shape[-1] + value.shape[-1]))


def _attention_backward(args: Any, result: Any) -> int:
    grad, query, key = args[:3]  # the scores again, three products of their size for q, k and v, and that with grad
    pairs = query.numel() // query.shape[-1] * key.shape[-2]
    return int(2 * pairs * (3 * query.shape[-1] + 2 * grad.shape[-1]))


def _recurrent(weights: int, data: int = 0, times: int = 1) -> Callable[[Any, Any], int]:
    """For a layer's steps: every row of the data with both matrices, which begin at argument ``weights``."""

    def rule(args: Any, result: Any) -> int:
        rows = args[data].numel() // args[data].shape[-1]
        return int(2 * times * rows * (args[weights].numel() + args[weights + 1].numel()))

    return rule


# Products by operator; what these are made of is not counted again.
PRODUCTS: dict[str, Callable[[Any, Any], int]] = {
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "linear", "linear_backward_input"), _matmul),
    "_matmul_turned": _turned,
    "linear_backward_weight": _linear_weight,
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _addmm),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), _conv),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _conv_input),
    "convolution_backward_input": _conv_input,
    "convolution_backward_weight": _conv_weight,
    "scaled_dot_product_attention": _attention,
    "attention_blocks_backward": _attention_backward,
    **dict.fromkeys(("_rnn_layer", "_gru_layer"), _recurrent(2)),
    **dict.fromkeys(("_rnn_layer_backward", "_gru_layer_backward"), _recurrent(4, 2, times=2)),
    "_lstm_layer": _recurrent(3),
    "_lstm_layer_backward": _recurrent(6, 3, times=2),
}


def _elements(args: Any, result: Any) -> int:
    return int(result.numel())


# What PyTorch's profiler counts beside products.
POINTWISE: dict[str, Callable[[Any, Any], int]] = dict.fromkeys(("add", "mul"), _elements)
