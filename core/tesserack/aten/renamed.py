"""Operators that ATen has under another name or with other arguments, as PyTorch shows them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tesserack import Tensor
from tesserack.aten.layers import NAMES
from tesserack.aten.operators import OpOverload, namespace

__all__ = ["RENAMED", "Form"]


class Form(NamedTuple):
    """A call of an operator of ATen; ``pick`` is the result that is meant, where it has several."""

    func: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    pick: int | None = None


def _form(name: str, *args: Any, pick: int | None = None, **kwargs: Any) -> Form:
    packet, _, overload = name.partition(".")
    return Form(getattr(getattr(namespace("aten"), packet), overload or "default"), args, kwargs, pick)


def _softmax(name: str) -> Callable[..., Form]:
    return lambda self, dim, dtype=None: _form(name, self if dtype is None else self.to(dtype), dim, False)


def _softmax_backward(name: str) -> Callable[..., Form]:
    return lambda grad, output, dim: _form(name, grad, output, dim, output.dtype)


def _convolution(
    input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Form:
    zeros = [0] * (input.ndim - 2)
    return _form("convolution", input, weight, bias, stride, padding, dilation, False, zeros, groups)


def _convolution_backward(wanted: int) -> Callable[..., Form]:
    def form(
        grad: Tensor, other: Tensor, sizes: Sequence[int], stride: Any, padding: Any, dilation: Any, groups: int
    ) -> Form:
        absent = other.new_empty(()).expand(*sizes)
        given, weight = (absent, other) if wanted == 0 else (other, absent)
        mask, zeros = [wanted == 0, wanted == 1, False], [0] * (grad.ndim - 2)
        rest = (None, stride, padding, dilation, False, zeros, groups, mask)
        return _form("convolution_backward", grad, given, weight, *rest, pick=wanted)

    return form


def _attention(query: Tensor, key: Tensor, value: Tensor, mask: Any, is_causal: bool, scale: float) -> Form:
    options = {} if mask is None else {"attn_mask": mask}
    if not math.isclose(scale, query.shape[-1] ** -0.5, rel_tol=1e-6):
        options["scale"] = scale
    dropout = (0.0, True) if is_causal else ()
    return _form("_scaled_dot_product_flash_attention_for_cpu", query, key, value, *dropout, **options)


def _sort(self: Tensor, dim: int, descending: bool, stable: bool) -> Form:
    if not stable:
        return _form("sort", self, *((dim, descending) if descending else (dim,) if dim != -1 else ()))
    options = {"dim": dim} if dim != -1 else {}
    return _form("sort.stable", self, stable=True, **options, **({"descending": True} if descending else {}))


def _clamp(self: Tensor, min: Any, max: Any) -> Form:
    of_tensors = isinstance(min, Tensor) or isinstance(max, Tensor)
    return _form("clamp.Tensor" if of_tensors else "clamp", self, min, max)


def _embedding(input: Tensor, weight: Tensor, padding_idx: int | None) -> Form:
    return _form("embedding", weight, input, *(() if padding_idx is None else (padding_idx,)))


def _layer(name: str) -> Callable[..., Form]:
    def form(*args: Any) -> Form:
        full, positional, keywords = NAMES[name](*args)
        return _form(full, *positional, pick=0 if full.startswith("_embedding_bag") else None, **keywords)

    return form


# Those that end in _grad0 are made on first need, as derivatives of pointwise operators.
RENAMED: dict[str, Callable[..., Form]] = {
    **{name: _layer(name) for name in NAMES},
    "softmax": _softmax("_softmax"),
    "log_softmax": _softmax("_log_softmax"),
    "softmax_backward": _softmax_backward("_softmax_backward_data"),
    "log_softmax_backward": _softmax_backward("_log_softmax_backward_data"),
    "convolution": _convolution,
    "convolution_backward_input": _convolution_backward(0),
    "convolution_backward_weight": _convolution_backward(1),
    "native_dropout": lambda input, p: _form("native_dropout", input, p, True),
    "_dropout_apply": lambda self, mask, scale: _form("native_dropout_backward", self, mask, scale),
    "attention_blocks": _attention,
    "sort": _sort,
    "clamp_both": _clamp,
    "embedding": _embedding,
    "prelu_kernel": lambda self, weight: _form("_prelu_kernel", self, weight),
    "cdist_by_differences": lambda x1, x2, p: _form("_cdist_forward", x1, x2, p, 2),
    "cdist_by_products": lambda x1, x2: _form("_cdist_forward", x1, x2, 2.0, 1),
    "swapaxes": lambda self, dim0, dim1: _form("transpose.int", self, dim0, dim1),
    "swapdims": lambda self, dim0, dim1: _form("transpose.int", self, dim0, dim1),
    "square": lambda self: _form("pow.Tensor_Scalar", self, 2),
    "relu6": lambda self: _form("hardtanh", self, 0, 6),
    "_abs_complex": lambda self: _form("abs", self),
    "relu_grad0": lambda grad, result: _form("threshold_backward", grad, result, 0),
    "sigmoid_grad0": lambda grad, result: _form("sigmoid_backward", grad, result),
    "tanh_grad0": lambda grad, result: _form("tanh_backward", grad, result),
}
