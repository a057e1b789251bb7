"""``torch.autograd.profiler``: operators under PyTorch's names for them."""

from tesserack.autograd import profiler

from . import kineto_available

__all__ = ["kineto_available", "profile"]


class profile(profiler.profile):
    """Tesserack's, whose operators are called ``aten::add``."""

    _namespace = "aten::"
