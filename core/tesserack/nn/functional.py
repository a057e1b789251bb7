"""The operators of neural networks as functions, with PyTorch's names and argument orders.

Most are the native operators themselves. The wrappers here add what a native signature does not have: ``inplace=``,
``dtype=``, and the ``size_average``/``reduce`` arguments that older programs still pass to losses.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn import (
    _attention,
    _ctc,
    _embedding,
    _grouped_mm,
    _linear_cross_entropy,
    _losses,
    _losses_margin,
    _pooling,
    _random,
    _sampling,
    _scaled_mm,
)
from tesserack.nn._attention import *  # noqa: F403
from tesserack.nn._ctc import *  # noqa: F403
from tesserack.nn._embedding import *  # noqa: F403
from tesserack.nn._grouped_mm import *  # noqa: F403
from tesserack.nn._linear_cross_entropy import *  # noqa: F403
from tesserack.nn._losses import *  # noqa: F403
from tesserack.nn._losses_margin import *  # noqa: F403
from tesserack.nn._pooling import *  # noqa: F403
from tesserack.nn._random import *  # noqa: F403
from tesserack.nn._sampling import *  # noqa: F403
from tesserack.nn._scaled_mm import *  # noqa: F403
from tesserack.nn._shown import use_namespace
from tesserack.nn._sizes import to_tuple
from tesserack.ops.registry import operators, public_functions
from tesserack.ops.results import deliver

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "bilinear",
    "celu",
    "celu_",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_similarity",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "elu_",
    "fold",
    "gelu",
    "glu",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "instance_norm",
    "interpolate",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "linear",
    "local_response_norm",
    "log_softmax",
    "logsigmoid",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "mish",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rms_norm",
    "scaled_dot_product_attention",
    "selu",
    "selu_",
    "sigmoid",
    "silu",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
    "unfold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]
__all__ += _attention.__all__
__all__ += _grouped_mm.__all__
__all__ += _linear_cross_entropy.__all__
__all__ += _losses.__all__
__all__ += _ctc.__all__
__all__ += _embedding.__all__
__all__ += _losses_margin.__all__
__all__ += _pooling.__all__
__all__ += _random.__all__
__all__ += _sampling.__all__
__all__ += _scaled_mm.__all__

linear = ts.linear
conv1d = ts.conv1d
conv2d = ts.conv2d
conv3d = ts.conv3d

gelu = ts.gelu
glu = ts.glu
logsigmoid = ts.logsigmoid
prelu = ts.prelu
sigmoid = ts.sigmoid
softplus = ts.softplus
softsign = ts.softsign
tanh = ts.tanh

layer_norm = ts.layer_norm
batch_norm = ts.batch_norm

celu_ = ts.celu_
elu_ = ts.elu_
hardtanh_ = ts.hardtanh_
leaky_relu_ = ts.leaky_relu_
relu_ = ts.relu_
selu_ = ts.selu_
threshold_ = ts.threshold_

avg_pool2d = ts.avg_pool2d
cosine_similarity = ts.cosine_similarity
one_hot = ts.one_hot
pad = ts.pad

adaptive_avg_pool1d = ts.adaptive_avg_pool1d
avg_pool1d = ts.avg_pool1d
bilinear = ts.bilinear
channel_shuffle = ts.channel_shuffle
conv_transpose1d = ts.conv_transpose1d
conv_transpose2d = ts.conv_transpose2d
conv_transpose3d = ts.conv_transpose3d
dropout1d = ts.dropout1d
dropout2d = ts.dropout2d
dropout3d = ts.dropout3d
hardshrink = ts.hardshrink
instance_norm = ts.instance_norm
local_response_norm = ts.local_response_norm
pairwise_distance = ts.pairwise_distance
pdist = ts.pdist
pixel_shuffle = ts.pixel_shuffle
pixel_unshuffle = ts.pixel_unshuffle
rms_norm = ts.rms_norm
scaled_dot_product_attention = ts.scaled_dot_product_attention
tanhshrink = ts.tanhshrink

use_namespace(globals())

# Not looked up at each call: PyTorch does not call these by the names that programs replace.
_softmax, _log_softmax = ts.softmax, ts.log_softmax
_threshold, _threshold_, _dropout, _dropout_ = ts.threshold, ts.threshold_, ts.dropout, ts.dropout_


@functools.cache
def _own(name: str) -> Any:
    """An operator that only this namespace shows."""
    return public_functions("nn.functional")[name]


# --- activations that may work in place ----------------------------------------------------------------------------


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """``max(input, 0)``."""
    return ts.relu_(input) if inplace else ts.relu(input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """``min(max(input, 0), 6)``."""
    return ts.relu6_(input) if inplace else ts.relu6(input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``input`` where positive, else ``alpha * (exp(input) - 1)``."""
    return ts.elu_(input, alpha) if inplace else ts.elu(input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Scaled elu with the two constants of "Self-Normalizing Neural Networks" (arXiv:1706.02515)."""
    return ts.selu_(input) if inplace else ts.selu(input)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``input`` where positive, else ``alpha * (exp(input / alpha) - 1)``."""
    return ts.celu_(input, alpha) if inplace else ts.celu(input, alpha)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """``input`` where positive, else ``negative_slope * input``."""
    return ts.leaky_relu_(input, negative_slope) if inplace else ts.leaky_relu(input, negative_slope)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """``input`` limited to ``[min_val, max_val]``. ``ValueError`` where ``min_val`` is above ``max_val``."""
    if min_val > max_val:
        raise ValueError(f"hardtanh: min_val cannot be greater than max_val, got {min_val} and {max_val}")
    return ts.hardtanh_(input, min_val, max_val) if inplace else ts.hardtanh(input, min_val, max_val)


def softshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """``input`` moved by ``lambd`` towards zero, and zero nearer to it. ``RuntimeError`` for a negative ``lambd``."""
    if lambd < 0:
        raise RuntimeError(f"softshrink: lambda must be greater or equal to 0, but found to be {lambd}")
    return ts.softshrink(input, lambd) if out is None else ts.softshrink(input, lambd, out=out)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """``input * sigmoid(input)``."""
    return ts.silu_(input) if inplace else ts.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """``input * tanh(softplus(input))``."""
    return ts.mish_(input) if inplace else ts.mish(input)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """``relu6(input + 3) / 6``."""
    return ts.hardsigmoid_(input) if inplace else ts.hardsigmoid(input)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """``input * relu6(input + 3) / 6``."""
    return ts.hardswish_(input) if inplace else ts.hardswish(input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """``input`` where it exceeds ``threshold``, else ``value``."""
    return _threshold_(input, threshold, value) if inplace else _threshold(input, threshold, value)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability ``p`` and scale the rest by ``1 / (1 - p)``; the identity if not training."""
    return _dropout_(input, p, training) if inplace else _dropout(input, p, training)


# --- softmax -------------------------------------------------------------------------------------------------------


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """``exp(input) / exp(input).sum(dim)``, without overflow; computed in ``dtype`` if given.

    >>> import tesserack
    >>> softmax(tesserack.zeros(1, 4), dim=1).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    input = input if dtype is None else input.to(dtype)
    return _softmax(input, _softmax_dim("softmax", input, _stacklevel) if dim is None else dim)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """``softmax(-input)``."""
    return softmax(-input, dim, _stacklevel + 1, dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """``log(softmax(input))``, computed directly; in ``dtype`` if given."""
    input = input if dtype is None else input.to(dtype)
    return _log_softmax(input, _softmax_dim("log_softmax", input, _stacklevel) if dim is None else dim)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A random choice along ``dim`` that has a gradient: softmax of logits with Gumbel noise, over ``tau``.

    With ``hard`` the result is one-hot and its gradient that of the soft choice (arXiv:1611.01144). ``eps`` is unused.

    >>> import tesserack as ts
    >>> gumbel_softmax(ts.zeros(2, 3), hard=True).sum(1).tolist()
    [1.0, 1.0]
    """
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    waiting = ts.empty_like(logits, memory_format=ts.contiguous_format).exponential_()
    noise = -waiting.clamp_(min=ts.finfo(logits.dtype).tiny).log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    chosen = ts.zeros_like(logits).scatter_(dim, soft.argmax(dim, keepdim=True), 1.0)
    return chosen - soft.detach() + soft


def _softmax_dim(name: str, input: Tensor, stacklevel: int) -> int:
    dim = 0 if input.ndim in (0, 1, 3) else 1
    warnings.warn(f"{name}: dim was not given, took dim={dim}; pass it explicitly", stacklevel=stacklevel)
    return dim


def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    """``input / max(norm(input, p, dim), eps)``; written to ``out`` if given.

    >>> import tesserack as ts
    >>> normalize(ts.tensor([[3.0, 4.0]])).tolist() == ts.tensor([[0.6, 0.8]]).tolist()
    True
    """
    result = ts.normalize(input, p, dim, eps)
    return deliver("normalize", result, out)


# --- pooling and embedding -----------------------------------------------------------------------------------------


def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum of each window of (N, C, H, W) or (C, H, W); with ``return_indices`` also its place in the H*W plane."""
    if not return_indices:
        return ts.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode)
    kernel_size = _pair(kernel_size)
    batched = input if input.ndim == 4 else input.unsqueeze(0)
    values, indices = ts.max_pool2d_with_indices(
        batched, kernel_size, _pair(stride) or kernel_size, _pair(padding), _pair(dilation), ceil_mode
    )
    return (values, indices) if input.ndim == 4 else (values.squeeze(0), indices.squeeze(0))


def _pair(value: Any) -> list[int]:
    if value is None:
        return []
    return [value, value] if isinstance(value, int) else list(value)


def max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum of each window of (N, C, L) or (C, L); with ``return_indices`` also its place along the line."""
    pool = ts.max_pool1d_with_indices if return_indices else ts.max_pool1d
    return pool(input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """:func:`max_pool1d` with the places of the maxima; ``return_indices`` changes nothing."""
    return max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, True)  # type: ignore[no-any-return]


def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """:func:`max_pool2d` with the places of the maxima; ``return_indices`` changes nothing."""
    return max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, True)  # type: ignore[no-any-return]


def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """:func:`adaptive_max_pool2d` with the places of the maxima; ``return_indices`` changes nothing."""
    return adaptive_max_pool2d(input, output_size, True)  # type: ignore[no-any-return]


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means over a grid of ``output_size`` windows that cover each plane; None keeps that size of the input."""
    return ts.adaptive_avg_pool2d(input, _plane(input, output_size))


def _plane(input: Tensor, output_size: Any) -> Any:
    if isinstance(output_size, int):
        return output_size
    if input.ndim <= len(output_size):
        raise ValueError(f"Input dimension should be at least {len(output_size) + 1}, got {input.ndim}")
    if len(output_size) != 2:
        raise RuntimeError(f"adaptive pooling: output_size must be 2, got {tuple(output_size)}")
    return [have if want is None else want for have, want in zip(input.shape[-2:], output_size, strict=True)]


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maxima over a grid of ``output_size`` windows that cover each plane of (N, C, H, W) or (C, H, W).

    ``None`` in ``output_size`` keeps that size of the input. ``return_indices`` also returns where, in the H*W plane,
    each maximum was.

    >>> import tesserack as ts
    >>> adaptive_max_pool2d(ts.arange(9.0).reshape(1, 3, 3), 2, return_indices=True)[1].tolist()
    [[[4, 5], [7, 8]]]
    """
    output_size = _plane(input, output_size)
    if return_indices:
        return operators()["adaptive_max_pool2d_with_indices"](input, output_size)
    return ts.adaptive_max_pool2d(input, output_size)


def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Zeros with the maxima ``input`` put back at ``indices``, as :func:`max_pool1d` returned both."""
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Zeros with the maxima ``input`` put back at ``indices``, as :func:`max_pool2d` returned both.

    ``output_size`` chooses among the sizes that pool to the same one; ``ValueError`` if it is further off than that.

    >>> import tesserack as ts
    >>> pooled, indices = max_pool2d(ts.arange(4.0).reshape(1, 2, 2), 2, return_indices=True)
    >>> max_unpool2d(pooled, indices, 2).tolist()
    [[[0.0, 0.0], [0.0, 3.0]]]
    """
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Zeros with the maxima ``input`` put back at ``indices``, as :func:`max_pool3d` returned both."""
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)


def _max_unpool(
    n: int, input: Tensor, indices: Tensor, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> Tensor:
    kernel, pad = to_tuple(kernel_size, n), to_tuple(padding, n)
    step = kernel if stride is None else to_tuple(stride, n)
    for name, given in (("kernel_size", kernel), ("stride", step), ("padding", pad)):
        if len(given) != n:
            raise RuntimeError(f"max_unpool{n}d: expected {name} to be one number or {n}, got {given}")
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(f"max_unpool{n}d: expected an input of {n + 1} or {n + 2} dims, got {tuple(input.shape)}")
    default = [(i - 1) * s + k - 2 * p for i, s, k, p in zip(input.shape[-n:], step, kernel, pad, strict=True)]
    if output_size is not None and len(output_size) not in (n, n + 2):
        raise ValueError(f"max_unpool{n}d: expected output_size of {n} or {n + 2} elements, got {len(output_size)}")
    sizes = default if output_size is None else list(output_size)[-n:]
    if any(abs(size - usual) >= s for size, usual, s in zip(sizes, default, step, strict=True)):
        raise ValueError(f"max_unpool{n}d: expected output_size within a stride of {default}, got {sizes}")
    return operators()["max_unpool"](input, indices, sizes)  # type: ignore[no-any-return]


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Another size of (N, C, *) by interpolation, to ``size`` or by ``scale_factor``.

    ``mode``: "nearest", "nearest-exact", "linear", "bilinear", "bicubic", "lanczos", "trilinear" or "area".
    ``align_corners`` lets the centres of the corners coincide; ``antialias`` filters when shrinking (bilinear, bicubic,
    and lanczos, which needs it).

    >>> import tesserack as ts
    >>> interpolate(ts.tensor([[[1.0, 2.0]]]), scale_factor=2).tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    """
    options = (size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    return _own("interpolate")(input, *options)  # type: ignore[no-any-return]


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """:func:`tesserack.group_norm`; ``ValueError`` for one sample whose groups have one value, which would be zeros.

    >>> import tesserack as ts
    >>> group_norm(ts.tensor([[1.0, 3.0]]), 1).tolist()[0][1] > 0.999
    True
    """
    if input.ndim > 1 and input.numel() == num_groups:
        raise ValueError(
            f"group_norm: Expected more than 1 value per channel when training, got input size {tuple(input.shape)}"
        )
    return ts.group_norm(input, num_groups, weight, bias, eps)


def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The windows of (N, C, H, W) as columns (N, C * window, windows).

    >>> import tesserack as ts
    >>> tuple(unfold(ts.ones(1, 2, 3, 3), 2).shape)
    (1, 8, 4)
    """
    return _own("unfold")(input, kernel_size, dilation, padding, stride)  # type: ignore[no-any-return]


def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Sums columns back into the image they were windows of: the transpose of :func:`unfold`.

    >>> import tesserack as ts
    >>> fold(ts.ones(1, 4, 1), 2, 2).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]]]]
    """
    return _own("fold")(input, output_size, kernel_size, dilation, padding, stride)  # type: ignore[no-any-return]


def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """:func:`interpolate` under its old name."""
    warnings.warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)


def _upsample(old: str, input: Tensor, size: Any, scale_factor: Any, mode: str, **options: Any) -> Tensor:
    warnings.warn(f"`nn.functional.{old}` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=3)
    return interpolate(input, size, scale_factor, mode=mode, **options)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """:func:`interpolate` by the nearest element, under an old name."""
    return _upsample("upsample_nearest", input, size, scale_factor, "nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """:func:`interpolate` by "bilinear" with ``align_corners=True``, under an old name."""
    return _upsample("upsample_bilinear", input, size, scale_factor, "bilinear", align_corners=True)


# Whatever else is declared to stand here. No module's ``__getattr__``: with one, each ``F.name`` takes 8 ns more.
for _name, _operator in public_functions("nn.functional").items():
    globals().setdefault(_name, _operator)
