"""``torch.backends.cpu``."""

from __future__ import annotations

__all__ = ["get_cpu_capability"]


def get_cpu_capability() -> str:
    """The widest instruction set of this machine that kernels may use, as PyTorch spells it."""
    from tesserack.utils.environment import describe

    features = describe()["cpu"]["features"]
    return "AVX512" if "avx512f" in features else "AVX2" if "avx2" in features else "DEFAULT"
