"""Texts of kernels for a device that is not there: templates run, and what they write is kept instead of compiled."""

from __future__ import annotations

import dataclasses

from tesserack_kernelgen.card import Card, Device
from tesserack_kernelgen.dialect import Dialect

__all__ = ["GPU", "Recorder"]

#: A device of many threads, as templates see one.
GPU = Device(
    index=0,
    identity="recorded",
    group=256,
    compute_units=132,
    vector_bytes=16,
    fp64=True,
    serial=False,
    int64_atomics=True,
    fault=bytes(8),
    max_arguments=4096,
    local_bytes=49152,
)


class Recorder(Card):
    """A card that keeps every text it is given, by the text, with the name of the kernel in it."""

    entry = 0

    def __init__(self, dialect: Dialect, device: Device = GPU):
        super().__init__()
        self.dialect, self.sources = dialect, dict[str, str]()
        self._device = device

    def device(self, index: int) -> Device:
        return dataclasses.replace(self._device, index=index)

    def compile(self, device: Device, source: str, name: str) -> int:
        self.sources[source] = name
        return 1
