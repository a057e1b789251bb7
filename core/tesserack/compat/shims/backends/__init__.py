"""``torch.backends``: PyTorch's libraries, none of which is used; their switches can be set and change nothing."""

from __future__ import annotations

from tesserack.compat.shims.backends import (
    cpu,
    cuda,
    cudnn,
    cusparselt,
    kleidiai,
    mha,
    miopen,
    mkl,
    mkldnn,
    mps,
    nnpack,
    openmp,
    opt_einsum,
    python_native,
    quantized,
    xeon,
    xnnpack,
)

__all__ = [
    "cpu",
    "cuda",
    "cudnn",
    "cusparselt",
    "kleidiai",
    "mha",
    "miopen",
    "mkl",
    "mkldnn",
    "mps",
    "nnpack",
    "openmp",
    "opt_einsum",
    "python_native",
    "quantized",
    "xeon",
    "xnnpack",
]

fp32_precision = "none"


def disable_global_flags() -> None:
    """Nothing: the flags are each library's own."""
