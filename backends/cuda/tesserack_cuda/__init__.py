"""The cuda backend of Tesserack. The entry point ``cuda`` of the group ``tesserack.backends`` is ``backend``."""

from __future__ import annotations

import ctypes

from tesserack_cuda.backend import CUDA
from tesserack_cuda.card import CUDACard
from tesserack_cuda.communicator import NCCL
from tesserack_cuda.communicator_table import table
from tesserack_cuda.convolution import Convolutions
from tesserack_cuda.matmul import Products
from tesserack_cuda.namespace import namespace

__all__ = ["backend", "card", "set_up"]


def set_up(made: CUDA) -> CUDACard:
    """Give a backend its kernels and what ``tesserack.<name>`` has of its own."""
    found = CUDACard(made)
    found.install(made)
    Products(made, found).install()
    Convolutions(made, found).install()
    made.namespace = namespace(made)
    made.communicator = table(NCCL(made))
    made.communicator_table = ctypes.addressof(made.communicator)
    return found


backend = CUDA()
card = set_up(backend)
