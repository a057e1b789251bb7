"""The opencl backend of Tesserack. The entry point ``opencl`` of the group ``tesserack.backends`` is ``backend``."""

from __future__ import annotations

from tesserack_opencl.backend import OpenCL
from tesserack_opencl.card import OpenCLCard

__all__ = ["backend", "card"]

backend = OpenCL()
card = OpenCLCard(backend)
card.install(backend)


def kernel_statistics() -> dict[str, float]:
    """Kernels compiled and loaded from disk since the process began, the seconds that took, plans, launches."""
    return card.statistics.to_dict()


backend.namespace = {"kernel_statistics": kernel_statistics}
