"""Operators of ATen that the registry has under another name or with other arguments, or not at all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.aten.layers import LAYERS
from tesserack.aten.private import PRIVATE
from tesserack.aten.signatures import SIGNATURES
from tesserack.ops.copies import as_strided_scatter
from tesserack.ops.registry import operators

__all__ = ["FUNCTIONS"]

# As every function of PyTorch's that makes tensors takes them; none means anything here.
_IGNORED = ("layout", "pin_memory")


def _to_copy(self: Tensor, **options: Any) -> Tensor:
    return operators()["_to_copy"](self, **{k: v for k, v in options.items() if k not in _IGNORED})  # type: ignore[no-any-return]


def _convolution(
    input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Tensor:  # fmt: skip
    if not transposed:
        return operators()["convolution"](input, weight, bias, stride, padding, dilation, groups)  # type: ignore[no-any-return]
    name = f"conv_transpose{input.ndim - 2}d"
    return operators()[name](input, weight, bias, stride, padding, output_padding, groups, dilation)  # type: ignore[no-any-return]


def _convolution_backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, output_mask: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    with ts.enable_grad():
        leaves = [
            x.detach().requires_grad_(bool(wanted)) for x, wanted in zip((input, weight), output_mask, strict=False)
        ]
        out = _convolution(leaves[0], leaves[1], None, stride, padding, dilation, transposed, output_padding, groups)
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        found = iter(ts.autograd.grad(out, wanted, grad_output) if wanted else ())
    bias = grad_output.sum([0, *range(2, grad_output.ndim)]) if output_mask[2] else None
    of_input, of_weight = (next(found) if leaf.requires_grad else None for leaf in leaves)
    return of_input, of_weight, bias


def _softmax_of(name: str) -> Callable[..., Tensor]:
    def softmax(self: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
        return operators()[name](self, dim)  # type: ignore[no-any-return]

    return softmax


def _softmax_backward_of(name: str) -> Callable[..., Tensor]:
    def backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
        return operators()[name](grad_output, output, dim).to(input_dtype)  # type: ignore[no-any-return]

    return backward


def _native_dropout(input: Tensor, p: float, train: bool | None = True) -> tuple[Tensor, Tensor]:
    if train is False or p == 0:
        return input.clone(), ts.ones_like(input, dtype=ts.bool)
    return operators()["native_dropout"](input, p)  # type: ignore[no-any-return]


def _flash_attention(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if dropout_p:
        raise RuntimeError(
            f"aten._scaled_dot_product_flash_attention_for_cpu: expected dropout_p 0, got {dropout_p}; it has no "
            "dropout, in PyTorch neither: call scaled_dot_product_attention"
        )
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return operators()["attention_blocks"](query, key, value, attn_mask, is_causal, scale)  # type: ignore[no-any-return]


def _threshold_backward(grad_output: Tensor, self: Tensor, threshold: float) -> Tensor:
    return ts.where(self <= threshold, ts.zeros_like(grad_output), grad_output)


def _sigmoid_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    return grad_output * ((1 - output) * output).conj()


def _tanh_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    return grad_output * (1 - output * output).conj()


def _gelu_backward(grad_output: Tensor, self: Tensor, *, approximate: str = "none") -> Tensor:
    with ts.enable_grad():
        leaf = self.detach().requires_grad_()
        return ts.autograd.grad(operators()["gelu"](leaf, approximate=approximate), leaf, grad_output)[0]


def _embedding_dense_backward(
    grad_output: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    rows = grad_output.reshape(-1, grad_output.shape[-1])
    places = indices.reshape(-1)
    if scale_grad_by_freq:
        rows = rows / ts.bincount(places, minlength=num_weights)[places].unsqueeze(1)
    rows = rows * (places != padding_idx).unsqueeze(1)
    return rows.new_zeros((num_weights, rows.shape[1])).index_add(0, places, rows)


def _native_group_norm(
    input: Tensor, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows = input.reshape(N, group, -1)
    mean, rstd = rows.mean(-1), (rows.var(-1, correction=0) + eps).rsqrt()
    return operators()["group_norm"](input, group, weight, bias, eps), mean, rstd


def _batch_norm_functional(
    input: Tensor, weight: Any, bias: Any, running_mean: Tensor, running_var: Tensor, training: bool, momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    statistics = running_mean.clone(), running_var.clone()
    found = operators()["native_batch_norm"](input, weight, bias, *statistics, training, momentum, eps)
    return (*found, *statistics)


def _copied(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    return src.to(dtype=self.dtype, device=self.device, copy=True).expand(self.shape)


def _pinned(self: Tensor, device: Any = None) -> Tensor:
    return self.pin_memory()


def _assert_scalar(condition: Any, message: str) -> None:
    if not condition:
        raise RuntimeError(message)
    if watch := sys.modules.get("tesserack.fx.export._watch"):  # a graph that has it is traced again
        watch.stated()


def _in_range(size: Any, *, min: Any = None, max: Any = None) -> None:
    if (min is not None and size < min) or (max is not None and size > max):
        raise RuntimeError(f"Invalid value range for {size} between [{min}, {max}]")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **LAYERS,
    **PRIVATE,
    **SIGNATURES,
    "_to_copy": _to_copy,
    "_assert_scalar": _assert_scalar,
    "sym_constrain_range": _in_range,
    "sym_constrain_range_for_size": _in_range,
    "lift_fresh": lambda self: self,
    "lift_fresh_copy": lambda self: self.clone(),
    "lift": lambda self: self,
    "_reshape_alias": lambda self, size, stride: self.as_strided(size, stride),
    "_pin_memory": _pinned,
    "convolution": _convolution,
    "_convolution": lambda *args: _convolution(*args[:9]),
    "convolution_backward": _convolution_backward,
    "_softmax": _softmax_of("softmax"),
    "_log_softmax": _softmax_of("log_softmax"),
    "_softmax_backward_data": _softmax_backward_of("softmax_backward"),
    "_log_softmax_backward_data": _softmax_backward_of("log_softmax_backward"),
    "native_dropout": _native_dropout,
    "native_dropout_backward": lambda grad_output, mask, scale: operators()["_dropout_apply"](grad_output, mask, scale),
    "_scaled_dot_product_flash_attention_for_cpu": _flash_attention,
    "threshold_backward": _threshold_backward,
    "sigmoid_backward": _sigmoid_backward,
    "tanh_backward": _tanh_backward,
    "gelu_backward": _gelu_backward,
    "embedding_dense_backward": _embedding_dense_backward,
    "native_group_norm": _native_group_norm,
    "_native_batch_norm_legit_functional": _batch_norm_functional,
    "_native_batch_norm_legit_no_training": lambda input, weight, bias, mean, var, momentum, eps: operators()[
        "native_batch_norm"
    ](input, weight, bias, mean, var, False, momentum, eps),
    "as_strided_scatter": as_strided_scatter,
    "copy": _copied,
    "fill": lambda self, value: ts.empty_like(self).fill_(value),
    "zero": lambda self: ts.zeros_like(self),
    "sym_size": lambda self, dim: int(self.size(dim)),
    "sym_numel": lambda self: int(self.numel()),
    "sym_stride": lambda self, dim: int(self.stride(dim)),
}
