"""``torch.backends.cuda``: the precision of products; other switches can be set and change nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from tesserack.utils import settings as _switches

__all__ = [
    "cuFFTPlanCache",
    "cudnn_sdp_enabled",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "is_built",
    "is_flash_attention_available",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
    "preferred_blas_library",
    "preferred_linalg_library",
    "sdp_kernel",
]


class _Matmul(SimpleNamespace):
    """Precision of products: those of float32 as ``set_float32_matmul_precision`` has it, the rest changes nothing."""

    @property
    def allow_tf32(self) -> bool:
        """Whether products of float32 may be rounded to tf32."""
        return _switches.get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        _switches.set_float32_matmul_precision("high" if value else "highest")

    @property
    def fp32_precision(self) -> str:
        """``"tf32"`` or ``"ieee"``."""
        return "tf32" if self.allow_tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, value: str) -> None:
        if value not in ("tf32", "ieee", "none"):
            raise RuntimeError(f"fp32_precision: expected tf32, ieee or none, got {value!r}")
        self.allow_tf32 = value == "tf32"


matmul = _Matmul(
    allow_fp16_reduced_precision_reduction=True,
    allow_bf16_reduced_precision_reduction=True,
    allow_fp16_accumulation=False,
)
cufft_plan_cache: Any = SimpleNamespace(size=0, max_size=0, clear=lambda: None)
cuFFTPlanCache = type(cufft_plan_cache)


def is_built() -> bool:
    """Whether "cuda" means a device of Tesserack's."""
    from tesserack.compat.shims._card import Card

    return Card("cuda").is_available()


def flash_sdp_enabled() -> bool:
    """What :func:`enable_flash_sdp` set."""
    return _switches.is_attention_permitted("flash")


def enable_flash_sdp(enabled: bool) -> None:
    """Permit this way of computing attention; backends choose for themselves."""
    _switches.permit_attention(flash=enabled)


def math_sdp_enabled() -> bool:
    """What :func:`enable_math_sdp` set."""
    return _switches.is_attention_permitted("math")


def enable_math_sdp(enabled: bool) -> None:
    """Permit this way of computing attention; backends choose for themselves."""
    _switches.permit_attention(math=enabled)


def mem_efficient_sdp_enabled() -> bool:
    """What :func:`enable_mem_efficient_sdp` set."""
    return _switches.is_attention_permitted("mem_efficient")


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Permit this way of computing attention; backends choose for themselves."""
    _switches.permit_attention(mem_efficient=enabled)


def cudnn_sdp_enabled() -> bool:
    """What :func:`enable_cudnn_sdp` set."""
    return _switches.is_attention_permitted("cudnn")


def enable_cudnn_sdp(enabled: bool) -> None:
    """Permit this way of computing attention; backends choose for themselves."""
    _switches.permit_attention(cudnn=enabled)


def is_flash_attention_available() -> bool:
    """Always False."""
    return False


@contextlib.contextmanager
def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> Iterator[None]:
    """A context that permits other ways of computing attention."""
    before = {way: _switches.is_attention_permitted(way) for way in ("flash", "math", "mem_efficient", "cudnn")}
    _switches.permit_attention(
        flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn
    )
    try:
        yield
    finally:
        _switches.permit_attention(**before)


def preferred_linalg_library(backend: Any = None) -> str:
    """``"default"``, whatever is asked for."""
    return "default"


def preferred_blas_library(backend: Any = None) -> str:
    """``"default"``, whatever is asked for."""
    return "default"
