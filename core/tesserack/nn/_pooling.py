"""Pooling over three dims, over windows drawn at random, and by powers; every window is given by indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.amp._autocast import widened
from tesserack.nn._sizes import to_tuple
from tesserack.ops.registry import operators

__all__ = [
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
    "avg_pool3d",
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_pool3d",
    "max_pool3d_with_indices",
]

Windows = list[list[int]]  # the positions of each window along one dim


def _check_rank(name: str, input: Tensor, dims: int, channels: bool = False) -> None:
    """The batch may be empty; where there is none, the ``channels`` may, too."""
    sizes = input.shape[1 if channels else -dims - 1 :]
    if input.ndim not in (dims + 1, dims + 2) or 0 in sizes:
        raise RuntimeError(
            f"{name}: Expected {dims + 1}D or {dims + 2}D input of non-zero sizes but the batch's, "
            f"got {tuple(input.shape)}"
        )


def _as_laid_out(like: Tensor, result: Tensor) -> Tensor:
    """The result with its channels innermost where those of ``like`` are."""
    layout = {4: ts.channels_last, 5: ts.channels_last_3d}.get(like.ndim)
    if layout is None or like.is_contiguous() or not like.is_contiguous(memory_format=layout):
        return result
    return result.contiguous(memory_format=layout)


def _count(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool, name: str) -> int:
    """How many windows there are; the last one starts inside the input or the left padding."""
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (room + stride - 1 if ceil_mode else room) // stride + 1
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1
    if count < 1:
        raise RuntimeError(
            f"{name}: expected windows that fit into the input; size {size} is too small for kernel {kernel}, "
            f"dilation {dilation}, padding {padding}"
        )
    return count


def _check_options(name: str, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> None:
    if min(kernel) <= 0 or min(stride) <= 0:
        raise RuntimeError(f"{name}: kernel size and stride must be greater than zero, got {kernel} and {stride}")
    if any(not 0 <= 2 * p <= k for p, k in zip(padding, kernel, strict=True)):
        raise RuntimeError(f"{name}: pad should be at most half of effective kernel size, got {padding} for {kernel}")


# --- maxima --------------------------------------------------------------------------------------------------------


def _max_over(input: Tensor, windows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The maximum of every window, rows of positions along each of the last dims, and where it lies in them flat."""
    dims = len(windows)
    lead = tuple(input.shape[:-dims])
    sizes = input.shape[-dims:]
    places = ts.zeros((1, 1), dtype=ts.int64, device=input.device)  # (windows so far, positions in them)
    for table, size in zip(windows, sizes, strict=True):
        places = (places[:, None, :, None] * size + table[None, :, None, :]).reshape(
            places.shape[0] * table.shape[0], places.shape[1] * table.shape[1]
        )
    taken = input.detach().flatten(-dims).index_select(-1, places.reshape(-1)).reshape((*lead, *places.shape))
    where = places.expand((*lead, *places.shape)).gather(-1, taken.argmax(-1, keepdim=True)).squeeze(-1)
    return _at(input, where.reshape((*lead, *(table.shape[0] for table in windows))), dims)


def _at(input: Tensor, where: Tensor, dims: int) -> tuple[Tensor, Tensor]:
    """The elements at places of each flattened block, and the places, which a backward pass asks for again."""
    where = _as_laid_out(input, where)
    values = input.flatten(-dims).gather(-1, where.flatten(-dims)).reshape(where.shape)
    return _as_laid_out(input, values), where


def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """Maximum of each window of (N, C, D, H, W) or (C, D, H, W), and its place in the flattened D*H*W block."""
    name = "max_pool3d"
    _check_rank(name, input, 3)
    kernel, pad, gaps = to_tuple(kernel_size, 3), to_tuple(padding, 3), to_tuple(dilation, 3)
    step = kernel if stride is None else to_tuple(stride, 3) or kernel
    _check_options(name, kernel, step, pad)
    counts = [
        _count(size, k, s, p, d, ceil_mode, name)
        for size, k, s, p, d in zip(input.shape[-3:], kernel, step, pad, gaps, strict=True)
    ]
    # The greatest of each plane's window, then of those along the depth.
    options = list(zip(kernel, step, pad, gaps, strict=True))
    flat: Any = operators()["max_pool2d_with_indices"]
    planes, places = flat(_as_planes(input.detach()), *zip(*options[1:], strict=True), ceil_mode)
    along = [(option, rest) for option, rest in zip(options[0], (1, 1, 0, 1), strict=True)]
    rows = flat(_as_depth(planes, input), *along, ceil_mode)[1]
    depths = rows // max(1, counts[1] * counts[2])
    found = places.flatten(1).gather(1, rows.flatten(1)).reshape(rows.shape)
    where = depths * (input.shape[-2] * input.shape[-1]) + found
    return _at(input, where.reshape((*input.shape[:-3], *counts)), 3)


def _as_planes(input: Tensor) -> Tensor:
    """Blocks as images whose channels are their planes."""
    depth, height, width = input.shape[-3:]
    return input.reshape(math.prod(input.shape[:-3]), depth, height, width)


def _as_depth(planes: Tensor, blocks: Tensor) -> Tensor:
    """Pooled planes as images of one channel, whose rows are the planes."""
    return planes.reshape(planes.shape[0], 1, blocks.shape[-3], planes.shape[-2] * planes.shape[-1])


def max_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum of each window of (N, C, D, H, W) or (C, D, H, W); with ``return_indices`` also its place in the block.

    >>> import tesserack as ts
    >>> max_pool3d(ts.arange(8.0).reshape(1, 2, 2, 2), 2).tolist()
    [[[[7.0]]]]
    """
    given = input if return_indices else widened(input)
    both = max_pool3d_with_indices(given, kernel_size, stride, padding, dilation, ceil_mode)
    return both if return_indices else both[0]


def _adaptive_windows(size: int, count: int, device: ts.device) -> Tensor:
    """The positions of each window: (count, longest). Shorter ones repeat their last, which changes no maximum."""
    number = ts.arange(count, device=device)
    first = (number * size).floor_divide(count)
    last = ((number + 1) * size + count - 1).floor_divide(count) - 1
    longest = size // count if size % count == 0 else size // count + 2
    return ts.minimum(first.unsqueeze(1) + ts.arange(longest, device=device), last.unsqueeze(1))


def _adaptive_sizes(input: Tensor, output_size: Any, dims: int) -> list[int]:
    wanted = (output_size,) * dims if output_size is None or isinstance(output_size, int) else tuple(output_size)
    if dims > 1 and len(wanted) >= input.ndim:
        raise ValueError(f"Input dimension should be at least {len(wanted) + 1}, got {input.ndim}")
    if len(wanted) != dims:
        raise RuntimeError(f"adaptive pooling: output_size must be {dims}, got {wanted}")
    if any(n is not None and n < 0 for n in wanted):
        raise RuntimeError(
            f"adaptive pooling: elements of output_size must be greater than or equal to 0, got {wanted}"
        )
    if any(n is not None and n >= 2**31 for n in wanted):
        raise RuntimeError(f"adaptive pooling: elements of output_size must be less than 2**31, got {wanted}")
    return [have if want is None else want for have, want in zip(input.shape[-dims:], wanted, strict=True)]


def _adaptive_max(name: str, input: Tensor, output_size: Any, dims: int) -> tuple[Tensor, Tensor]:
    sizes = _adaptive_sizes(input, output_size, dims)
    _check_rank(name, input, dims, channels=True)
    _check_floating(name, input)
    input = widened(input) if dims == 3 else input
    if min(sizes) == 0 or input.numel() == 0:
        return _none(input, sizes), input.new_empty((*input.shape[:-dims], *sizes), dtype=ts.int64)
    pairs = zip(input.shape[-dims:], sizes, strict=True)
    return _max_over(input, [_adaptive_windows(have, n, input.device) for have, n in pairs])


def _check_floating(name: str, input: Tensor) -> None:
    if not input.is_floating_point():
        raise NotImplementedError(f'{name}: "{name}" not implemented for {input.dtype}; expected a floating input')


def _none(input: Tensor, sizes: Sequence[int]) -> Tensor:
    """A result without elements that is part of the graph."""
    return input.flatten()[:0].reshape((*input.shape[: -len(sizes)], *sizes))


def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """Maxima of ``output_size`` windows that cover each line of (N, C, L) or (C, L), and where they were."""
    return _adaptive_max("adaptive_max_pool1d", input, output_size, 1)


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maxima of ``output_size`` windows that cover each line; with ``return_indices`` also where they were.

    >>> import tesserack as ts
    >>> adaptive_max_pool1d(ts.arange(4.0).reshape(1, 4), 2).tolist()
    [[1.0, 3.0]]
    """
    if return_indices:
        return _adaptive_max("adaptive_max_pool1d", input, output_size, 1)
    _check_rank("adaptive_max_pool1d", input, 1, channels=True)
    (size,) = _adaptive_sizes(input, output_size, 1)
    length = input.shape[-1]
    _check_floating("adaptive_max_pool1d", input)
    if size and input.numel() and length % size == 0:
        return operators()["max_pool1d"](input, length // size)
    return ts.adaptive_max_pool2d(input.unsqueeze(-2), (1, size)).squeeze(-2)


def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """Maxima over a grid of windows that cover each block of (N, C, D, H, W), and where they were."""
    return _adaptive_max("adaptive_max_pool3d", input, output_size, 3)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maxima over a grid of ``output_size`` windows that cover each block; None keeps that size of the input.

    >>> import tesserack as ts
    >>> adaptive_max_pool3d(ts.arange(8.0).reshape(1, 2, 2, 2), (1, 1, 2)).tolist()
    [[[[6.0, 7.0]]]]
    """
    both = _adaptive_max("adaptive_max_pool3d", input, output_size, 3)
    return both if return_indices else both[0]


def _fractional(
    name: str, input: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Tensor | None, dims: int
) -> tuple[Tensor, Tensor]:
    if input.ndim not in (dims + 1, dims + 2):
        raise RuntimeError(f"{name}: expected a {dims + 1}D or {dims + 2}D input, got {tuple(input.shape)}")
    if (output_size is None) == (output_ratio is None):
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    input = widened(input)
    kernel = _numbers_for(name, "kernel_size", kernel_size, dims)
    sizes = input.shape[-dims:]
    if output_size is None:
        ratio = (output_ratio,) * dims if isinstance(output_ratio, (int, float)) else tuple(output_ratio)
        output_size = [int(size * share) for size, share in zip(sizes, ratio, strict=True)]
    wanted = _numbers_for(name, "output_size", output_size, dims)
    if 0 in input.shape[-dims - 1 :]:
        raise RuntimeError(f"{name}: Expected input of non-zero sizes but the batch's, got {tuple(input.shape)}")
    for n, k, size, side in zip(wanted, kernel, sizes, ("time", "height", "width")[-dims:], strict=True):
        if n + k - 1 > size or n < 0 or k < 1:
            raise RuntimeError(
                f"{name}: expected windows that fit; {k} of kernel_size {kernel} for {n} outputs is too large relative "
                f"to input {side} {size}"
            )
    if 0 in wanted:
        return _none(input, wanted), input.new_empty((*input.shape[:-dims], *wanted), dtype=ts.int64)
    planes = input.reshape((math.prod(input.shape[:-dims]), *sizes))
    batch, channels = 1 if input.ndim == dims + 1 else input.shape[0], input.shape[-dims - 1]
    if samples is None:
        samples = ts.rand(batch, channels, dims, dtype=input.dtype, device=input.device)
    _check_samples(name, input, samples, (batch, channels, dims))
    drawn = samples[:batch].reshape(batch * channels, dims).double()
    drawn = drawn.flip(1) if dims == 2 else drawn  # of planes the width is drawn first
    places = ts.zeros((planes.shape[0], 1, 1), dtype=ts.int64, device=input.device)
    for d in range(dims):
        starts = _fractional_starts(drawn[:, d : d + 1], sizes[d], wanted[d], kernel[d])
        rows = starts.unsqueeze(-1) + ts.arange(kernel[d], device=input.device)
        places = (places[:, :, None, :, None] * sizes[d] + rows[:, None, :, None, :]).reshape(
            planes.shape[0], places.shape[1] * wanted[d], places.shape[2] * kernel[d]
        )
    taken = planes.detach().flatten(1).gather(1, places.flatten(1)).reshape(places.shape)
    where = places.gather(-1, taken.argmax(-1, keepdim=True)).squeeze(-1)
    return _at(input, where.reshape((*input.shape[:-dims], *wanted)), dims)


def _numbers_for(name: str, what: str, given: Any, dims: int) -> tuple[int, ...]:
    numbers = to_tuple(given, dims)
    if len(numbers) != dims:
        raise RuntimeError(f"{name}: {what} must either be a single int, or {dims} of them, got {given}")
    return numbers


def _check_samples(name: str, input: Tensor, samples: Tensor, want: tuple[int, int, int]) -> None:
    """Numbers in [0, 1) of the input's dtype: (N or more, C, dims)."""
    fits = samples.ndim == 3 and samples.shape[0] >= want[0] and tuple(samples.shape[1:]) == want[1:]
    if not fits or samples.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}: expected _random_samples of shape {want} and dtype {input.dtype}, got "
            f"{tuple(samples.shape)} of {samples.dtype}"
        )


def _fractional_starts(drawn: Tensor, size: int, count: int, kernel: int) -> Tensor:
    """Where the windows of every plane begin: steps of two lengths in an order that ``drawn`` decides."""
    last = ts.full_like(drawn, size - kernel).long()
    if count == 1:
        return last
    alpha = (size - kernel) / (count - 1)
    steps = ts.arange(count - 1, dtype=drawn.dtype, device=drawn.device)
    starts = ((steps + drawn) * alpha).long() - (drawn * alpha).long()
    return ts.cat([starts, last], dim=1)


def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """:func:`fractional_max_pool2d` with the places of the maxima."""
    name = "fractional_max_pool2d"
    return _fractional(name, input, kernel_size, output_size, output_ratio, _random_samples, 2)


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Maxima of windows whose steps are drawn at random, to ``output_size`` or the fraction ``output_ratio`` of the
    input.

    From Graham, arXiv:1412.6071. Takes (N, C, H, W) or (C, H, W).

    >>> import tesserack as ts
    >>> tuple(fractional_max_pool2d(ts.ones(1, 3, 8, 8), 2, output_ratio=0.5).shape)
    (1, 3, 4, 4)
    """
    both = fractional_max_pool2d_with_indices(
        input, kernel_size, output_size, output_ratio, _random_samples=_random_samples
    )
    return both if return_indices else both[0]


def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """:func:`fractional_max_pool3d` with the places of the maxima."""
    name = "fractional_max_pool3d"
    return _fractional(name, input, kernel_size, output_size, output_ratio, _random_samples, 3)


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """:func:`fractional_max_pool2d` of (N, C, D, H, W) or (C, D, H, W)."""
    both = fractional_max_pool3d_with_indices(
        input, kernel_size, output_size, output_ratio, _random_samples=_random_samples
    )
    return both if return_indices else both[0]


# --- means: sums over boxes are sums along each dim ------------------------------------------------------------------


def _sums(input: Tensor, windows: Sequence[Windows]) -> Tensor:
    """The sum of every window, by one product with a matrix of zeros and ones for each dim."""
    dims = len(windows)
    for d, table in enumerate(windows):
        at = input.ndim - dims + d
        size = input.shape[at]
        member = ts.tensor([[float(i in set(row)) for row in table] for i in range(size)], device=input.device)
        input = (input.movedim(at, -1) @ member.to(input.dtype)).movedim(-1, at)
    return input.contiguous()


def avg_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean of each window of (N, C, D, H, W) or (C, D, H, W).

    ``count_include_pad`` lets padding zeros count in the mean; ``divisor_override`` divides by that number instead.

    >>> import tesserack as ts
    >>> avg_pool3d(ts.arange(8.0).reshape(1, 2, 2, 2), 2).tolist()
    [[[[3.5]]]]
    """
    name = "avg_pool3d"
    _check_rank(name, input, 3)
    input = widened(input)
    if divisor_override == 0:
        raise RuntimeError(f"{name}: divisor must be not zero")
    kernel, pad = to_tuple(kernel_size, 3), to_tuple(padding, 3)
    step = kernel if stride is None else to_tuple(stride, 3) or kernel
    _check_options(name, kernel, step, pad)
    if not input.is_floating_point():  # integers are divided as integers, as in PyTorch
        windows, counts = [], []
        for size, k, s, p in zip(input.shape[-3:], kernel, step, pad, strict=True):
            starts = [i * s - p for i in range(_count(size, k, s, p, 1, ceil_mode, name))]
            windows.append([list(range(max(0, at), min(at + k, size))) for at in starts])
            inside = [len(row) for row in windows[-1]]
            counts.append([min(at + k, size + p) - at for at in starts] if count_include_pad else inside)
        total = _sums(input, windows)
        return _divided_whole(total, counts, divisor_override)
    sizes = [
        _count(size, k, s, p, 1, ceil_mode, name)
        for size, k, s, p in zip(input.shape[-3:], kernel, step, pad, strict=True)
    ]
    # The mean of each plane's window, then of those along the depth; sums where another divisor is wanted.
    divisor = None if divisor_override is None else 1
    rest = ceil_mode, count_include_pad, divisor
    planes: Tensor = operators()["avg_pool2d"](_as_planes(input), kernel[1:], step[1:], pad[1:], *rest)
    result: Tensor = operators()["avg_pool2d"](
        _as_depth(planes, input), (kernel[0], 1), (step[0], 1), (pad[0], 0), *rest
    )
    result = _as_laid_out(input, result.reshape(*input.shape[:-3], *sizes))
    return result if divisor_override is None else result / divisor_override


def _divided_whole(total: Tensor, counts: list[list[int]], divisor: int | None) -> Tensor:
    d, h, w = (ts.tensor(row, dtype=total.dtype, device=total.device) for row in counts)
    by = d[:, None, None] * h[:, None] * w if divisor is None else divisor
    return ts.div(total, by, rounding_mode="trunc")


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Means over a grid of ``output_size`` windows that cover each block; None keeps that size of the input.

    >>> import tesserack as ts
    >>> adaptive_avg_pool3d(ts.arange(8.0).reshape(1, 2, 2, 2), 1).tolist()
    [[[[3.5]]]]
    """
    sizes = _adaptive_sizes(input, output_size, 3)
    _check_rank("adaptive_avg_pool3d", input, 3, channels=True)
    _check_floating("adaptive_avg_pool3d", input)
    input = widened(input)
    if min(sizes) == 0 or input.numel() == 0:
        return _none(input, sizes)
    if sizes[1] * sizes[2] >= 2**31:
        raise RuntimeError(f"adaptive_avg_pool3d: expected planes of less than 2**31 elements, got {sizes}")
    planes: Tensor = operators()["adaptive_avg_pool2d"](_as_planes(input), sizes[1:])
    result: Tensor = operators()["adaptive_avg_pool2d"](_as_depth(planes, input), (sizes[0], sizes[1] * sizes[2]))
    return _as_laid_out(input, result.reshape(*input.shape[:-3], *sizes))


# --- powers --------------------------------------------------------------------------------------------------------


def _power_mean(mean: Tensor, count: int, norm_type: float) -> Tensor:
    return (ts.sign(mean) * ts.relu(ts.abs(mean))).mul(count).pow(1.0 / norm_type)


def _plain(name: str, dims: int) -> Any:
    """The pooling of a number of dims: an operator, or of three what is made of it here."""
    return globals()[f"{name}3d"] if dims == 3 else operators()[f"{name}{dims}d"]


def _lp_pool(dims: int, input: Tensor, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Tensor:
    """Of an infinite power the greatest magnitude, or the least where that is negative."""
    kernel = to_tuple(kernel_size, dims)
    step = kernel if stride is None else stride
    if isinstance(norm_type, float) and math.isinf(norm_type):
        sign = math.copysign(1.0, norm_type)
        extremes: Tensor = _plain("max_pool", dims)(input.abs() * sign, kernel, step, 0, 1, ceil_mode)
        return extremes if sign > 0 else -extremes
    mean: Tensor = _plain("avg_pool", dims)(input.pow(norm_type), kernel, step, 0, ceil_mode)
    return _power_mean(mean, math.prod(kernel), norm_type)


def lp_pool1d(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """The ``norm_type``-th root of the sum of that power of each window of (N, C, L) or (C, L).

    >>> import tesserack as ts
    >>> lp_pool1d(ts.tensor([[3.0, 4.0]]), 2, 2).tolist()
    [[5.0]]
    """
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """:func:`lp_pool1d` of planes (N, C, H, W) or (C, H, W)."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """:func:`lp_pool1d` of blocks (N, C, D, H, W) or (C, D, H, W)."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)
