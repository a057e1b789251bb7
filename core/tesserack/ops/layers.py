"""Operators of layers in their positional form, as programs call them at the top level of ``torch``.

They are the functions of ``nn.functional`` with every argument in a row, modes as numbers where PyTorch numbers them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = [
    "adaptive_max_pool1d",
    "affine_grid_generator",
    "alpha_dropout",
    "alpha_dropout_",
    "conv_tbc",
    "convolution",
    "ctc_loss",
    "embedding_bag",
    "embedding_renorm_",
    "feature_alpha_dropout",
    "feature_alpha_dropout_",
    "feature_dropout",
    "feature_dropout_",
    "grid_sampler",
    "grid_sampler_2d",
    "grid_sampler_3d",
    "max_pool3d",
    "native_channel_shuffle",
    "rrelu",
    "rrelu_",
]

REDUCTIONS = ("none", "mean", "sum")  # in the order of ATen's numbers
_INTERPOLATION = ("bilinear", "nearest", "bicubic")
_PADDING = ("zeros", "border", "reflection")


def _named(op: str, what: str, names: Sequence[str], number: int) -> str:
    if not 0 <= number < len(names):
        raise RuntimeError(f"{op}: expected {what} from 0 to {len(names) - 1}, got {number}")
    return names[number]


# --- convolution and pooling ---------------------------------------------------------------------------------------


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """A convolution of (N, C, *) over one to three dims, or its transpose, by every argument.

    >>> import tesserack as ts
    >>> ts.convolution(ts.ones(1, 1, 4), ts.ones(1, 1, 2), None, [1], [0], [1], False, [0], 1).tolist()
    [[[2.0, 2.0, 2.0]]]
    """
    dims = weight.dim() - 2
    if not 1 <= dims <= 3 or input.dim() not in (dims + 1, dims + 2):
        raise RuntimeError(f"convolution: expected 3 to 5 dims, got input of shape {tuple(input.shape)} and weight of "
                           f"shape {tuple(weight.shape)}")  # fmt: skip
    steps, pads, gaps, extra = list(stride), list(padding), list(dilation), list(output_padding)
    if transposed:
        function = getattr(ts.nn.functional, f"conv_transpose{dims}d")
        return function(input, weight, bias, steps, pads, extra, groups, gaps)  # type: ignore[no-any-return]
    return getattr(ts.nn.functional, f"conv{dims}d")(  # type: ignore[no-any-return]
        input, weight, bias, steps, pads, gaps, groups
    )


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """``nn.functional.conv_tbc``: a convolution along time of (time, batch, channels)."""
    return ts.nn.functional.conv_tbc(input, weight, bias, pad)


def max_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Tensor:
    """Maximum of each window of (N, C, D, H, W) or (C, D, H, W)."""
    step = None if stride == () or stride == [] else stride
    return ts.nn.functional.max_pool3d(  # type: ignore[no-any-return]
        input, kernel_size, step, padding, dilation, ceil_mode
    )


def adaptive_max_pool1d(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    """Maxima of ``output_size`` windows that cover each line of (N, C, L) or (C, L), and their places."""
    return ts.nn.functional.adaptive_max_pool1d(input, output_size, True)  # type: ignore[no-any-return]


def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """``nn.functional.channel_shuffle``."""
    return ts.nn.functional.channel_shuffle(input, groups)


# --- sampling ------------------------------------------------------------------------------------------------------


def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """``nn.functional.affine_grid``: places of an affinely mapped grid."""
    return ts.nn.functional.affine_grid(theta, list(size), align_corners)


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """``nn.functional.grid_sample``; modes 0 bilinear, 1 nearest, 2 bicubic, padding 0 zeros, 1 border, 2 reflection.

    >>> import tesserack as ts
    >>> ts.grid_sampler(ts.ones(1, 1, 2, 2), ts.zeros(1, 1, 1, 2), 0, 0, False).item()
    1.0
    """
    mode = _named("grid_sampler", "an interpolation mode", _INTERPOLATION, interpolation_mode)
    padding = _named("grid_sampler", "a padding mode", _PADDING, padding_mode)
    return ts.nn.functional.grid_sample(input, grid, mode, padding, align_corners)


def grid_sampler_2d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """:func:`grid_sampler` of images (N, C, H, W)."""
    if input.dim() != 4:
        raise RuntimeError(f"grid_sampler_2d: expected an input of 4 dims, got {tuple(input.shape)}")
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def grid_sampler_3d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """:func:`grid_sampler` of volumes (N, C, D, H, W)."""
    if input.dim() != 5:
        raise RuntimeError(f"grid_sampler_3d: expected an input of 5 dims, got {tuple(input.shape)}")
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


# --- losses and tables ---------------------------------------------------------------------------------------------


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """``nn.functional.ctc_loss``, not reduced by itself; reduction 0 is none, 1 the mean, 2 the sum."""
    name = _named("ctc_loss", "a reduction", REDUCTIONS, reduction)
    return ts.nn.functional.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, name, zero_infinity)


def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scale the rows of ``input`` (num, dim) at ``indices`` down to ``max_norm`` where they exceed it, in place.

    >>> import tesserack as ts
    >>> ts.embedding_renorm_(ts.tensor([[3.0, 4.0], [3.0, 4.0]]), ts.tensor([1]), 5.0, 1.0)[0].tolist()
    [3.0, 4.0]
    """
    from tesserack.nn._embedding import _renorm_rows

    if input.dim() != 2:
        raise RuntimeError(f"embedding_renorm_: expected a table of 2 dims, got shape {tuple(input.shape)}")
    if indices.dtype not in (ts.int32, ts.int64):
        raise RuntimeError(f"embedding_renorm_: expected int32 or int64 indices, got {indices.dtype}")
    if indices.numel():
        _renorm_rows(input, indices, max_norm, norm_type)
    return input


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``nn.functional.embedding_bag``, mode 0 the sum, 1 the mean, 2 the maximum, of the rows of each bag.

    Also the bag of each index, the number of rows in each bag, and for the maximum the row that each element is of.

    >>> import tesserack as ts
    >>> ts.embedding_bag(ts.eye(3), ts.tensor([0, 2, 1]), ts.tensor([0, 2]))[0].tolist()
    [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    name = _named("embedding_bag", "a mode", ("sum", "mean", "max"), mode)
    found = ts.nn.functional.embedding_bag(
        indices, weight, offsets, None, 2.0, scale_grad_by_freq, name, sparse, per_sample_weights,
        include_last_offset, padding_idx,
    )  # fmt: skip
    starts = offsets[:-1] if include_last_offset else offsets
    bags = ts.searchsorted(starts.contiguous(), ts.arange(indices.numel(), device=indices.device), right=True) - 1
    bags = bags.to(indices.dtype)
    kept = ts.ones_like(indices) if padding_idx is None else (indices != padding_idx).to(indices.dtype)
    if include_last_offset:  # what lies beyond it is in no bag
        kept[int(offsets[-1]) :] = 0
    counts = ts.zeros_like(starts, dtype=indices.dtype).index_add(0, bags, kept)
    return found, bags, counts, counts if mode < 2 else _rows_of(found, weight, indices, bags, kept)


def _rows_of(found: Tensor, weight: Tensor, indices: Tensor, bags: Tensor, kept: Tensor) -> Tensor:
    """The first row of each bag that holds its maximum, of each column; 0 for empty bags."""
    with ts.no_grad():
        hit = (weight[indices] == found[bags]) & (kept != 0).unsqueeze(1)
        place = ts.arange(indices.numel(), device=indices.device).unsqueeze(1).expand(hit.shape)
        none = indices.numel()
        first = ts.full(found.shape, none, dtype=ts.int64, device=indices.device)
        first = first.scatter_reduce(
            0, bags.long().unsqueeze(1).expand(hit.shape), place.masked_fill(~hit, none), "amin"
        )
        padded = ts.cat([indices, indices.new_zeros(1)])
        return padded[first]


# --- random activations --------------------------------------------------------------------------------------------


def _feature_dropout(input: Tensor, p: float, train: bool, inplace: bool) -> Tensor:
    if not 0 <= p <= 1:
        raise RuntimeError(f"feature_dropout: dropout probability has to be between 0 and 1, but got {p}")
    if not train or p == 0 or input.numel() == 0:
        return input
    if input.dim() < 2:
        raise RuntimeError(f"feature_dropout: expected at least 2 dims, got {tuple(input.shape)}")
    shape = (*input.shape[:2], *[1] * (input.dim() - 2))
    kept = (ts.rand(shape, device=input.device) >= p).to(input.dtype)
    factor = kept * 0 if p == 1 else kept / (1 - p)
    return input.mul_(factor) if inplace else input * factor


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Zero whole channels of (N, C, *) with probability ``p``, the others times 1 / (1 - p); ``input`` unless train."""
    return _feature_dropout(input, p, train, False)


def feature_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """:func:`feature_dropout` in place."""
    return _feature_dropout(input, p, train, True)


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """``nn.functional.alpha_dropout``: dropout that keeps mean and variance of selu's outputs."""
    return ts.nn.functional.alpha_dropout(input, p, train)


def alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """:func:`alpha_dropout` in place."""
    return ts.nn.functional.alpha_dropout(input, p, train, True)


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """``nn.functional.feature_alpha_dropout``: of whole channels."""
    return ts.nn.functional.feature_alpha_dropout(input, p, train)


def feature_alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """:func:`feature_alpha_dropout` in place."""
    return ts.nn.functional.feature_alpha_dropout(input, p, train, True)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    generator: Any = None,
) -> Tensor:
    """``nn.functional.rrelu``, its slopes drawn from ``generator`` if given."""
    if generator is None or not training:
        return ts.nn.functional.rrelu(input, lower, upper, training)
    if lower > upper:
        raise RuntimeError(f"rrelu: Lower bound should be less than or equal to the upper bound, got {lower}, {upper}")
    slopes = ts.empty_like(input.detach()).uniform_(lower, upper, generator=generator)
    return ts.where(input <= 0, input * slopes, input)


def rrelu_(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    generator: Any = None,
) -> Tensor:
    """:func:`rrelu` in place."""
    return input.copy_(rrelu(input, lower, upper, training, generator))
