"""Parts of ``torch.autograd``."""

from tesserack.utils.profiler._record import _active

__all__ = ["kineto_available"]


def kineto_available() -> bool:
    """True: kernels are recorded."""
    return True


def _profiler_enabled() -> bool:
    """Whether a profiler is on."""
    return bool(_active)
