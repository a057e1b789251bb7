"""Parts of ``torch.autograd``."""

__all__ = ["kineto_available"]


def kineto_available() -> bool:
    """True: kernels are recorded."""
    return True
