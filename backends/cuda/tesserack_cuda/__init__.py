"""The cuda backend of Tesserack. The entry point ``cuda`` of the group ``tesserack.backends`` is ``backend``."""

from __future__ import annotations

from tesserack_cuda.backend import CUDA
from tesserack_cuda.card import CUDACard
from tesserack_cuda.namespace import namespace

__all__ = ["backend", "card"]

backend = CUDA()
card = CUDACard(backend)
card.install(backend)
backend.namespace = namespace(backend)
