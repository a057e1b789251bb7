"""Sampling images at places computed by a network: spatial transformers (Jaderberg et al., arXiv:1506.02025)."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native, ops
from tesserack.amp._autocast import widened
from tesserack.autograd import Function
from tesserack.nn._kernels import has_kernel

__all__ = ["affine_grid", "grid_sample"]


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The places (N, H, W, 2) or (N, D, H, W, 3) where :func:`grid_sample` is to look, by affine maps ``theta``.

    ``theta`` is (N, 2, 3) for ``size`` (N, C, H, W), (N, 3, 4) for (N, C, D, H, W). With ``align_corners`` -1 and 1
    are the
    centres of the outermost elements, else their outer edges.

    >>> import tesserack as ts
    >>> affine_grid(ts.eye(2, 3).unsqueeze(0), (1, 1, 2, 2), align_corners=True)[0, 0].tolist()
    [[-1.0, -1.0], [1.0, -1.0]]
    """
    if align_corners is None:
        _warn_default("affine_grid")
        align_corners = False
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    dims = len(size) - 2
    if dims not in (2, 3):
        raise NotImplementedError(f"affine_grid: expected a size of 4 or 5 dimensions, got {tuple(size)}")
    if tuple(theta.shape) != (size[0], dims, dims + 1):
        raise ValueError(
            f"affine_grid: expected theta (N, 2, 3) for size (N, C, H, W) or (N, 3, 4) for (N, C, D, H, W), "
            f"got {tuple(theta.shape)} for {tuple(size)}"
        )
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {tuple(size)}")
    spatial = size[2:]
    if align_corners and min(spatial) == 1:
        warnings.warn(
            "affine_grid: align_corners=True has no span along a dim of one element, which is looked at in its centre. "
            "See the documentation of affine_grid for details.",
            stacklevel=2,
        )
    base = ts.ones((*spatial, dims + 1), dtype=theta.dtype, device=theta.device)
    for d, n in enumerate(spatial):
        line = _line(n, align_corners, theta).reshape([-1 if k == d else 1 for k in range(dims)])
        base[..., dims - 1 - d] = line
    places = _native._constants_saved(base.reshape(1, -1, dims + 1) @ theta.mT)
    return places.reshape(size[0], *spatial, dims)  # type: ignore[no-any-return]


def _line(n: int, align_corners: bool, like: Tensor) -> Tensor:
    if n <= 1:
        return ts.zeros(n, dtype=like.dtype, device=like.device)
    line = ts.linspace(-1, 1, n, dtype=like.dtype, device=like.device)
    return line if align_corners else line * (n - 1) / n  # rounded twice, as PyTorch does


def _warn_default(name: str) -> None:
    warnings.warn(
        f"Default {name} behavior has changed to align_corners=False since 1.3.0. Please specify align_corners=True if "
        "the old behavior is desired. See the documentation of grid_sample for details.",
        stacklevel=3,
    )


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Values of ``input`` (N, C, H, W) at the places ``grid`` (N, h, w, 2): (N, C, h, w); blocks likewise.

    Places are (x, y) or (x, y, z) in [-1, 1] over the input; ``align_corners`` as in :func:`affine_grid`. ``mode``:
    "bilinear" (of blocks trilinear), "nearest", "bicubic" (planes only). ``padding_mode`` outside: "zeros", "border",
    "reflection". Raises ``ValueError`` for another mode and ``RuntimeError`` for shapes that do not fit.

    >>> import tesserack as ts
    >>> image = ts.arange(4.0).reshape(1, 1, 2, 2)
    >>> grid_sample(image, ts.zeros(1, 1, 1, 2), align_corners=False).item()
    1.5
    """
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(f"grid_sample: expected mode 'bilinear', 'nearest' or 'bicubic', got {mode!r}")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"grid_sample: expected padding_mode 'zeros', 'border' or 'reflection', got {padding_mode!r}")
    if align_corners is None:
        _warn_default("grid_sample and affine_grid")
        align_corners = False
    input, grid = widened(input), widened(grid)
    _check_grid(input, grid, mode)
    if has_kernel("grid_sample", input):
        return GridSampler.apply(input, grid, mode, padding_mode, align_corners)  # type: ignore[no-any-return]
    return _by_parts(input, grid, mode, padding_mode, align_corners)


_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


class GridSampler(Function):
    """Both directions by kernels of the card; a second derivative goes through the parts."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool) -> Tensor:
        ctx.save_for_backward(input, grid)
        ctx.rest = mode, padding_mode, align_corners
        return ops._grid_sample(  # type: ignore[no-any-return]
            input, grid, _MODES.index(mode), _PADDINGS.index(padding_mode), align_corners
        )

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        input, grid = ctx.saved_tensors
        mode, padding_mode, align_corners = ctx.rest
        if not ts.is_grad_enabled():
            numbers = _MODES.index(mode), _PADDINGS.index(padding_mode), align_corners
            return *ops._grid_sample_backward(grad, input, grid, *numbers), None, None, None
        # Aliases, since a grid that is made from the input would hand its own gradient on to it here.
        input, grid = input.view_as(input), grid.view_as(grid)
        wanted = [t for t, needed in zip((input, grid), ctx.needs_input_grad, strict=False) if needed]
        found = ts.autograd.grad(
            _by_parts(input, grid, *ctx.rest), wanted, grad, create_graph=True, materialize_grads=True
        )
        answers = iter(found)
        return *(next(answers) if needed else None for needed in ctx.needs_input_grad[:2]), None, None, None


def _by_parts(input: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool) -> Tensor:
    """The values, by tensor operations."""
    sizes = input.shape[2:]
    lines = [_unnormalised(grid[..., len(sizes) - 1 - d], n, align_corners) for d, n in enumerate(sizes)]
    if mode == "bicubic":
        return _cubic(input, lines, padding_mode, align_corners)
    lines = [_kept_inside(line, n, padding_mode, align_corners) for line, n in zip(lines, sizes, strict=True)]
    if mode == "nearest":
        return _taken(input, [line.detach().round() for line in lines])
    floors = [line.detach().floor() for line in lines]
    result: Any = 0
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        weight: Any = 1
        for side, line, floor in zip(corner, lines, floors, strict=True):
            weight = weight * (line - floor if side else 1 - (line - floor))
        places = [floor + side for side, floor in zip(corner, floors, strict=True)]
        result = result + _taken(input, places) * weight.unsqueeze(1)
    return result  # type: ignore[no-any-return]


def _check_grid(input: Tensor, grid: Tensor, mode: str) -> None:
    if input.ndim not in (4, 5) or grid.ndim != input.ndim or grid.shape[0] != input.shape[0]:
        raise RuntimeError(
            f"grid_sample(): expected 4D or 5D input and grid of one batch size, got {tuple(input.shape)} and "
            f"{tuple(grid.shape)}"
        )
    if grid.shape[-1] != input.ndim - 2:
        raise RuntimeError(f"grid_sample(): expected grid to have size {input.ndim - 2} in last dimension, "
                           f"got {tuple(grid.shape)}")  # fmt: skip
    if 0 in input.shape[2:]:
        raise RuntimeError(
            f"grid_sample(): expected input to have non-empty spatial dimensions, got {tuple(input.shape)}"
        )
    if mode == "bicubic" and input.ndim != 4:
        raise RuntimeError("grid_sample(): bicubic interpolation only supports 4D input")
    if input.dtype != grid.dtype or input.device != grid.device:
        raise RuntimeError(
            f"grid_sample(): expected input and grid of one dtype on one device, got {input.dtype} on {input.device} "
            f"and {grid.dtype} on {grid.device}"
        )


def _unnormalised(line: Tensor, size: int, align_corners: bool) -> Tensor:
    return (line + 1) / 2 * (size - 1) if align_corners else ((line + 1) * size - 1) / 2


def _kept_inside(line: Tensor, size: int, padding_mode: str, align_corners: bool) -> Tensor:
    """Places as the padding sees them; those of "zeros" may stay outside."""
    if padding_mode == "zeros":
        return line
    if padding_mode == "reflection":
        low, high = (0, 2 * (size - 1)) if align_corners else (-1, 2 * size - 1)
        line = _reflected(line, low / 2, (high - low) / 2)
    return line.clamp(0, size - 1)


def _reflected(line: Tensor, low: float, span: float) -> Tensor:
    if span == 0:
        return ts.zeros_like(line)
    away = (line - low).abs()
    flips = (away.detach() / span).floor()
    rest = away - flips * span
    return ts.where(flips % 2 == 0, rest + low, span - rest + low)


def _taken(input: Tensor, places: list[Tensor]) -> Tensor:
    """Elements at whole places; zero outside."""
    sizes = input.shape[2:]
    inside: Any = True
    flat: Any = 0
    for place, size in zip(places, sizes, strict=True):
        inside = ((place >= 0) & (place <= size - 1)) & inside
        flat = flat * size + place.nan_to_num(-1.0).clamp(0, size - 1).long()
    batch, channels = input.shape[:2]
    rows = flat.reshape(batch, 1, -1).expand(batch, channels, -1)
    values = input.flatten(2).gather(2, rows).reshape(batch, channels, *flat.shape[1:])
    return values * inside.unsqueeze(1).to(values.dtype)  # type: ignore[no-any-return]


def _cubic_weights(t: Tensor) -> list[Tensor]:
    """Of the four neighbours of a place ``t`` after the second, with Keys' kernel of a = -0.75."""
    a = -0.75

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _cubic(input: Tensor, lines: list[Tensor], padding_mode: str, align_corners: bool) -> Tensor:
    floors = [line.detach().floor() for line in lines]
    rows, columns = (_cubic_weights(line - floor) for line, floor in zip(lines, floors, strict=True))
    result: Any = 0
    for i, j in itertools.product(range(4), repeat=2):
        places = [floors[0] + (i - 1), floors[1] + (j - 1)]
        sized = zip(places, input.shape[2:], strict=True)
        places = [_kept_inside(place, n, padding_mode, align_corners).round() for place, n in sized]
        result = result + _taken(input, places) * (rows[i] * columns[j]).unsqueeze(1)
    return result  # type: ignore[no-any-return]
