"""Convolutions and linear layers with the batch normalisation after them folded in, for evaluation."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import tesserack as ts
from tesserack import Tensor
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]

L = TypeVar("L", bound=Module)


def fuse_conv_bn_eval(conv: L, bn: Any, transpose: bool = False) -> L:
    """A copy of ``conv`` that computes ``bn(conv(x))``; both must be in evaluation mode.

    >>> from tesserack import nn, ones
    >>> conv, bn = nn.Conv2d(2, 3, 1).eval(), nn.BatchNorm2d(3).eval()
    >>> x = ones(1, 2, 4, 4)
    >>> bool(fuse_conv_bn_eval(conv, bn)(x).allclose(bn(conv(x)), atol=1e-6))
    True
    """
    _check_eval(conv, bn)
    fused: Any = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused  # type: ignore[no-any-return]


def fuse_linear_bn_eval(linear: L, bn: Any) -> L:
    """A copy of ``linear`` that computes ``bn(linear(x))``; both must be in evaluation mode.

    >>> from tesserack import nn
    >>> fuse_linear_bn_eval(nn.Linear(2, 3).eval(), nn.BatchNorm1d(3).eval())
    Linear(in_features=2, out_features=3, bias=True)
    """
    _check_eval(linear, bn)
    fused: Any = copy.deepcopy(linear)
    if fused.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused  # type: ignore[no-any-return]


def _check_eval(layer: Module, bn: Module) -> None:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of the convolution that computes both; ``transpose`` where the outputs are dim 1 of the
    weight."""
    shape = [1] * conv_w.ndim
    shape[1 if transpose else 0] = -1
    scale = (ts.ones_like(bn_rm) if bn_w is None else bn_w) * ts.rsqrt(bn_rv + bn_eps)
    shift = ts.zeros_like(bn_rm) if bn_b is None else bn_b
    bias = ts.zeros_like(bn_rm) if conv_b is None else conv_b
    weight = (conv_w * scale.reshape(shape)).to(conv_w.dtype)
    fused = ((bias - bn_rm) * scale + shift).to(conv_w.dtype if conv_b is None else conv_b.dtype)
    trained = conv_w.requires_grad, conv_w.requires_grad if conv_b is None else conv_b.requires_grad
    return Parameter(weight.detach(), trained[0]), Parameter(fused.detach(), trained[1])


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of the linear layer that computes both."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
