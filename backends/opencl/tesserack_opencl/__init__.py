"""The opencl backend of Tesserack. The entry point ``opencl`` of the group ``tesserack.backends`` is ``backend``."""

from __future__ import annotations

from tesserack_opencl.backend import OpenCL
from tesserack_opencl.card import OpenCLCard

__all__ = ["backend", "card"]

backend = OpenCL()
card = OpenCLCard(backend)
card.install(backend)
