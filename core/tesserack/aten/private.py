"""Operators of ATen's own use that programs and packages take nevertheless, ``torch._scaled_mm`` first among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["PRIVATE"]

_CASTS = ("Byte", "uint8"), ("Char", "int8"), ("Double", "float64"), ("Float", "float32"), ("Half", "float16"), (
    "Int", "int32"), ("Long", "int64"), ("Short", "int16")  # fmt: skip
_WIDE = ("float32", "bfloat16", "float16")


def _block(scale: Tensor, rows: int, columns: int) -> tuple[Any, Any]:
    """The recipe that a scale's shape and dtype tell, and how it lies, of a matrix whose rows are multiplied."""
    from tesserack.nn._scaled_mm import ScalingType, SwizzleType

    if scale.dtype is ts.float8_e8m0fnu:
        return ScalingType.BlockWise1x32, SwizzleType.SWIZZLE_32_4_4
    if scale.dtype is ts.float8_e4m3fn:
        return ScalingType.BlockWise1x16, SwizzleType.SWIZZLE_32_4_4
    down, across = -(-rows // 128), -(-columns // 128)
    if scale.numel() == 1:
        recipe = ScalingType.TensorWise
    elif scale.shape == (rows, 1):
        recipe = ScalingType.RowWise
    elif scale.shape == (rows, across):
        recipe = ScalingType.BlockWise1x128
    elif scale.shape == (down, across):
        recipe = ScalingType.BlockWise128x128
    else:
        raise ValueError(
            f"_scaled_mm: expected one scale, one for each of {rows} rows, or {(rows, across)} or {(down, across)} of "
            f"blocks, got {tuple(scale.shape)}"
        )
    return recipe, SwizzleType.NO_SWIZZLE


def _scaled_mm(
    self: Tensor, mat2: Tensor, scale_a: Any, scale_b: Any, bias: Tensor | None = None,
    scale_result: Tensor | None = None, out_dtype: Any = None, use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """As PyTorch's on processors, where ``scale_result`` changes nothing."""
    from tesserack.nn._scaled_mm import scaled_mm

    if self.ndim != 2 or mat2.ndim != 2:
        raise ValueError(f"_scaled_mm: expected matrices, got {tuple(self.shape)} and {tuple(mat2.shape)}")
    if not isinstance(scale_a, Tensor) or not isinstance(scale_b, Tensor):
        got = type(scale_a).__name__, type(scale_b).__name__
        raise TypeError(f"_scaled_mm: expected scales as tensors, got {got[0]} and {got[1]}; try torch.tensor(2.0)")
    dtype = out_dtype or self.dtype
    values = self.dtype._values
    recipe_a, swizzle_a = _block(scale_a, self.shape[0], self.shape[1] * values)
    other = scale_b if scale_b.dtype.itemsize == 1 or scale_b.ndim != 2 else scale_b.t()
    recipe_b, swizzle_b = _block(other, mat2.shape[1], mat2.shape[0] * values)
    wide = dtype if dtype in [getattr(ts, name) for name in _WIDE] else ts.float32
    found = scaled_mm(self, mat2, scale_a, recipe_a, other, recipe_b, swizzle_a, swizzle_b, bias, wide)
    return found.to(dtype)


def _fused_dropout(self: Tensor, p: float, generator: Any = None) -> tuple[Tensor, Tensor]:
    """``p`` is how many are kept, unlike everywhere else."""
    kept = ts.empty_like(self).bernoulli_(p, generator=generator)
    return self * kept / p, kept.to(ts.uint8)


def _weight_norm_interface(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    norm = ts.norm_except_dim(v, 2, dim)
    return v * (g / norm), norm


def _fused_rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    dims = tuple(range(-len(normalized_shape), 0))
    wide = input.float() if input.dtype.itemsize == 2 else input
    rstd = (wide.square().mean(dims, keepdim=True) + (ts.finfo(input.dtype).eps if eps is None else eps)).rsqrt()
    return ts.nn.functional.rms_norm(input, [*normalized_shape], weight, eps), rstd


def _lu_with_info(self: Tensor, pivot: bool = True, check_errors: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    found = ts.linalg.lu_factor_ex(self, pivot=pivot, check_errors=check_errors)
    return found[0], found[1], found[2]


def _cast(dtype: str) -> Callable[..., Tensor]:
    return lambda self, non_blocking=False: self.to(getattr(ts, dtype))


def _index_put_impl_(
    self: Tensor, indices: Any, values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    return self.index_put_(tuple(indices), values, accumulate)


def _places(indices: Sequence[Tensor | None]) -> tuple[Any, ...]:
    return tuple(slice(None) if index is None else index for index in indices)


PRIVATE: dict[str, Callable[..., Any]] = {
    "_scaled_mm": _scaled_mm,
    "_stack": lambda tensors, dim=0: ts.stack(tensors, dim),
    "_euclidean_dist": lambda x1, x2: ts.cdist(x1, x2),
    "_is_all_true": lambda self: self.all(),
    "_is_any_true": lambda self: self.any(),
    "_unsafe_index": lambda self, indices: self[_places(indices)],
    "_unsafe_index_put": lambda self, indices, values, accumulate=False: self.index_put(indices, values, accumulate),
    "_index_put_impl_": _index_put_impl_,
    "_conj_physical": lambda self: self.conj_physical(),
    "_conj_copy": lambda self: self.conj_physical(),
    "_neg_view_copy": lambda self: -self,
    "_fused_dropout": _fused_dropout,
    "_masked_scale": lambda self, mask, scale: self * mask.to(self.dtype) * scale,
    "_logcumsumexp": lambda self, dim: ts.logcumsumexp(self, dim),
    "_lu_with_info": _lu_with_info,
    "_adaptive_avg_pool3d": lambda self, output_size: ts.nn.functional.adaptive_avg_pool3d(self, output_size),
    "_weight_norm_interface": _weight_norm_interface,
    "_resize_output_": lambda self, size, device=None: self.resize_(size),
    "_foreach_clone": lambda self, memory_format=ts.preserve_format: [
        x.clone(memory_format=memory_format) for x in self
    ],
    "_to_cpu": lambda tensors: [x.cpu() for x in tensors],
    "_add_relu": lambda self, other, alpha=1: ts.add(self, other, alpha=alpha).relu(),
    "_add_relu_": lambda self, other, alpha=1: self.add_(other, alpha=alpha).relu_(),
    "_fused_rms_norm": _fused_rms_norm,
    **{f"_cast_{name}": _cast(dtype) for name, dtype in _CASTS},
}  # fmt: skip
