"""Products of matrices that are stored in few bits, with the scales that say what the bits stand for."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native

__all__ = ["ScalingType", "SwizzleType", "scaled_mm"]


_product: Any = _native._operator_function("_scaled_matmul")


class ScalingType(enum.IntEnum):
    """What one scale belongs to: all of a matrix, a row, or a block of rows by columns."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(enum.IntEnum):
    """How the scales lie: row by row, or in tiles of 128 x 4 as tensor cores read them."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


_BLOCKS = {
    ScalingType.BlockWise1x16: (1, 16),
    ScalingType.BlockWise1x32: (1, 32),
    ScalingType.BlockWise1x128: (1, 128),
    ScalingType.BlockWise128x128: (128, 128),
}


def _list(value: Any) -> list[Any]:
    return [*value] if isinstance(value, (list, tuple)) else [value]


def _columns(matrix: Tensor) -> int:
    return matrix.shape[1] * matrix.dtype._values


def _in_rows(scale: Tensor, rows: int, columns: int) -> Tensor:
    """Scales of tiles of 128 x 4, as ``SWIZZLE_32_4_4`` has them, row by row."""
    down, across = -(-rows // 128), -(-columns // 4)
    if scale.numel() != down * across * 512:
        raise ValueError(
            f"scaled_mm: expected {down * across * 512} swizzled scales for {rows} x {columns}, got {scale.numel()}"
        )
    bits = scale.contiguous().view(ts.uint8) if scale.dtype.itemsize == 1 else scale.contiguous()
    tiles = bits.reshape(down * across, 32, 4, 4).transpose(1, 2).reshape(down, across, 128, 4)
    laid = tiles.permute(0, 2, 1, 3).reshape(down * 128, across * 4)[:rows, :columns].contiguous()
    return laid.view(scale.dtype) if scale.dtype.itemsize == 1 else laid


def _scales(
    name: str, matrix: Tensor, given: Any, recipe: Any, swizzle: Any
) -> tuple[Tensor, list[int], Tensor | None]:
    """Of a matrix whose rows are multiplied: the scales as a matrix, what one belongs to, a factor of all."""
    scales, recipes = _list(given), [ScalingType(int(r)) for r in _list(recipe)]
    swizzles = [SwizzleType(int(s)) for s in _list(swizzle or 0)]
    if not all(isinstance(scale, Tensor) for scale in scales):
        raise TypeError(f"scaled_mm: expected scales of {name} as tensors, got {[type(s).__name__ for s in scales]}")
    if len(scales) != len(recipes) or len(scales) not in (1, 2):
        raise ValueError(f"scaled_mm: expected one scale of {name} for each recipe, got {len(scales)}, {len(recipes)}")
    factor = None
    if len(scales) == 2:
        if recipes[1] is not ScalingType.TensorWise or scales[1].numel() != 1:
            raise ValueError(f"scaled_mm: expected the second scale of {name} to be one number, TensorWise")
        factor = scales[1].float().reshape(())
    rows, columns = matrix.shape[0], _columns(matrix)
    down, across = _BLOCKS.get(recipes[0], (rows if recipes[0] is ScalingType.TensorWise else 1, columns))
    block = [max(down, 1), max(across, 1)]
    shape = -(-rows // block[0]), -(-columns // block[1])
    scale = scales[0] if scales[0].dtype.itemsize == 1 else scales[0].float()
    if swizzles[0] is SwizzleType.SWIZZLE_32_4_4:
        return _in_rows(scale, *shape), block, factor
    if scale.numel() != shape[0] * shape[1] or (scale.ndim == 2 and 1 not in shape and scale.shape != shape):
        raise ValueError(
            f"scaled_mm: expected scales of {name} of {shape}, for {recipes[0].name} of a matrix of {rows} x {columns}"
            f", got {tuple(scale.shape)}"
        )
    return scale.reshape(shape), block, factor


def scaled_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Tensor | list[Tensor],
    scale_recipe_a: Any,
    scale_b: Tensor | list[Tensor],
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Tensor | None = None,
    output_dtype: _native.dtype | None = _native.bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """``mat_a`` (m, k) times ``mat_b`` (k, n), each times its scales, accumulated in float32.

    They are of float8, float6, float4, int4 or uint4, with two values along k to an element where the dtype ends in
    ``_x2``.

    A recipe says what one scale belongs to (:class:`ScalingType`): the scale of a matrix is one number, one for each of
    its m (n) rows (columns), or one for each block; those of ``mat_b`` lie (n, k), as of its transpose. MX: float8,
    float6 or float4 with scales of float8_e8m0fnu for ``BlockWise1x32``. NVFP4: float4 with float8_e4m3fn for
    ``BlockWise1x16`` and a float32 number, as lists of two. ``output_dtype`` is float32, bfloat16 or float16 (None:
    bfloat16); ``use_fast_accum`` changes nothing. ``ValueError`` for scales that do not fit.

    >>> import tesserack as ts
    >>> a = ts.eye(16).to(ts.float8_e4m3fn)
    >>> two = ts.tensor(2.0)
    >>> recipe = ScalingType.TensorWise
    >>> scaled_mm(a, a.t(), two, recipe, two, recipe, output_dtype=ts.float32)[0, :2].tolist()
    [4.0, 0.0]
    """
    if contraction_dim and [d % 2 for d in contraction_dim] != [1, 0]:
        raise ValueError(f"scaled_mm: expected contraction_dim (1, 0), got {tuple(contraction_dim)}")
    for name, matrix in (("mat_a", mat_a), ("mat_b", mat_b)):
        if matrix.ndim != 2:
            raise ValueError(f"scaled_mm: expected {name} to be a matrix, got {tuple(matrix.shape)}")
    dtype = output_dtype or ts.bfloat16
    if dtype not in (ts.float32, ts.bfloat16, ts.float16):
        raise ValueError(f"scaled_mm: expected a result of float32, bfloat16 or float16, got {dtype}")
    if bias is not None and bias.shape != mat_b.shape[1:]:
        raise ValueError(f"scaled_mm: expected a bias of {tuple(mat_b.shape[1:])}, got {tuple(bias.shape)}")
    other = mat_b.t()
    rows_a, block_a, factor_a = _scales("mat_a", mat_a, scale_a, scale_recipe_a, swizzle_a)
    rows_b, block_b, factor_b = _scales("mat_b", other, scale_b, scale_recipe_b, swizzle_b)
    factors = [f for f in (factor_a, factor_b) if f is not None]
    exact = bool(factors) or bias is not None
    product: Tensor = _product(mat_a, other, rows_a, rows_b, block_a, block_b, ts.float32 if exact else dtype)
    for factor in factors:
        product = product * factor
    return (product if bias is None else product + bias.float()).to(dtype)
