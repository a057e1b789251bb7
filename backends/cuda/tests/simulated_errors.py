"""Errors of the simulated driver, with CUDA's numbers."""

from __future__ import annotations

__all__ = ["INVALID_HANDLE", "INVALID_VALUE", "NOT_READY", "OUT_OF_MEMORY", "SimulatedError"]

INVALID_VALUE, OUT_OF_MEMORY, INVALID_HANDLE, NOT_READY = 1, 2, 400, 600


class SimulatedError(RuntimeError):
    """As CUDARuntimeError is."""

    def __init__(self, status: int, text: str):
        super().__init__(f"simulated error {status}: {text}")
        self.status = status
