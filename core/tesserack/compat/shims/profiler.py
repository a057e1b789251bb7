"""``torch.profiler``: operators under PyTorch's names for them, and what packages ask before they profile."""

from tesserack.utils import profiler

__all__ = ["kineto_available", "profile"]


class profile(profiler.profile):
    """Tesserack's, whose operators are called ``aten::add``."""

    _namespace = "aten::"


def kineto_available() -> bool:
    """True: kernels are recorded."""
    return True
