"""Layers that are made of others here, by tables that follow from sizes or by values, and whole in ATen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.ops.registry import operators

__all__ = ["LAYERS", "META", "NAMES", "is_whole"]

_MODES = {
    "nearest": "upsample_nearest",
    "nearest-exact": "_upsample_nearest_exact",
    "linear": "upsample_linear",
    "bilinear": "upsample_bilinear",
    "bicubic": "upsample_bicubic",
    "lanczos": "upsample_lanczos",
    "trilinear": "upsample_trilinear",
}
_PADS = {"reflect": "reflection_pad", "replicate": "replication_pad"}
_BAGS = ("sum", "mean", "max")

# What is seen whole, and of which arguments.
_WHOLE: dict[str, Callable[..., bool]] = {
    "interpolate": lambda input, size, scale, mode, *rest: mode in _MODES,
    "pad": lambda input, pad, mode, value: mode in _PADS,
    "adaptive_avg_pool1d": lambda self, size: any(n != 1 for n in size),
    "adaptive_avg_pool2d": lambda self, size: any(n != 1 for n in size),
    "embedding_bag": lambda input, weight, offsets, *rest: offsets is not None,
}


def is_whole(name: str, args: Sequence[Any]) -> bool:
    """Whether a call of a composite operator is one of ATen's."""
    known = _WHOLE.get(name)
    return known is not None and known(*args)


# --- what they are called, and with what ------------------------------------------------------------------------------


def _every(values: Any, count: int) -> Any:
    return [*values] * count if values is not None and len(values) == 1 else values


def _interpolate(
    input: Tensor, size: Any, scale: Any, mode: str, align_corners: Any, recompute: Any, antialias: bool
) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    count = input.ndim - 2
    size, scale = _every(size, count), _every(scale, count)
    if recompute and scale is not None:
        size, scale = [int(n * s) for n, s in zip(input.shape[2:], scale, strict=True)], None
    name = f"{'_' if antialias else ''}{_MODES[mode]}{count}d{'_aa' if antialias else ''}.vec"
    if mode.startswith("nearest"):
        return name, (input, size, scale), {}
    return name, (input, size, bool(align_corners), scale), {}


def _pad(input: Tensor, pad: Any, mode: str, value: Any) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    return f"{_PADS[mode]}{len(pad) // 2}d.default", (input, pad), {}


def _bag(
    input: Tensor, weight: Tensor, offsets: Tensor, mode: str, samples: Any, last: bool, padding_idx: Any
) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    rest = (False, _BAGS.index(mode), False, samples, last, -1 if padding_idx is None else padding_idx)
    return "_embedding_bag.default", (weight, input, offsets, *rest), {}


NAMES: dict[str, Callable[..., tuple[str, tuple[Any, ...], dict[str, Any]]]] = {
    "interpolate": _interpolate,
    "pad": _pad,
    "adaptive_avg_pool1d": lambda self, size: ("adaptive_avg_pool1d.default", (self, size), {}),
    "adaptive_avg_pool2d": lambda self, size: ("_adaptive_avg_pool2d.default", (self, size), {}),
    "embedding_bag": _bag,
}


# --- what they compute ------------------------------------------------------------------------------------------------


def _resized(mode: str, antialias: bool) -> Callable[..., Tensor]:
    def nearest(input: Tensor, output_size: Any, scale_factors: Any = None, *more: Any) -> Tensor:
        scale = scale_factors if isinstance(scale_factors, (list, tuple)) else None
        return operators()["interpolate"](input, output_size, scale, mode)  # type: ignore[no-any-return]

    def smooth(input: Tensor, output_size: Any, align_corners: bool, scale_factors: Any = None, *more: Any) -> Tensor:
        scale = scale_factors if isinstance(scale_factors, (list, tuple)) else None
        return operators()["interpolate"](  # type: ignore[no-any-return]
            input, output_size, scale, mode, align_corners, None, antialias
        )

    return nearest if mode.startswith("nearest") else smooth


def _padded(mode: str) -> Callable[..., Tensor]:
    return lambda self, padding: operators()["pad"](self, padding, mode)


def _embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Tensor, ...]:  # fmt: skip
    skip = None if padding_idx < 0 else padding_idx
    found = operators()["embedding_bag"](
        indices, weight, offsets, _BAGS[mode], per_sample_weights, include_last_offset, skip
    )
    empty = offsets.new_empty(0)
    return found, empty, empty, empty


def _embedding_bag_outline(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Tensor, ...]:  # fmt: skip
    found = weight.new_empty((offsets.numel() - include_last_offset, weight.shape[1]))
    empty = offsets.new_empty(0)
    return found, empty, empty, empty


def _dims(mode: str) -> Sequence[int]:
    return {"linear": (1,), "bilinear": (2,), "bicubic": (2,), "trilinear": (3,)}.get(mode, (1, 2, 3))


LAYERS: dict[str, Callable[..., Any]] = {
    **{f"{name}{d}d": _resized(mode, False) for mode, name in _MODES.items() for d in _dims(mode) if mode != "lanczos"},
    **{f"_{_MODES[mode]}2d_aa": _resized(mode, True) for mode in ("bilinear", "bicubic", "lanczos")},
    **{f"{name}{d}d": _padded(mode) for mode, name in _PADS.items() for d in (1, 2, 3)},
    "_adaptive_avg_pool2d": lambda self, output_size: ts.nn.functional.adaptive_avg_pool2d(self, output_size),
    "_embedding_bag": _embedding_bag,
}
# Rules of those that look at values to compute, for tensors without.
META: dict[str, Callable[..., Any]] = {"_embedding_bag": _embedding_bag_outline}
