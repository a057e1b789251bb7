"""Canaries: memory around an output that no kernel may touch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tesserack as ts

__all__ = ["MARGIN", "Guarded", "Slack", "report"]

MARGIN = 64  # bytes on either side, a multiple of the size of every dtype


class Guarded:
    """A tensor to write to, in the middle of a larger one whose other bytes are known.

    ``gaps``: every other element along the last dimension is a canary too.

    >>> guarded = Guarded((3,), ts.float32, "cpu")
    >>> guarded.tensor.fill_(1.0).sum().item(), guarded.damage()
    (3.0, None)
    """

    def __init__(self, shape: tuple[int, ...], dtype: ts.dtype, device: Any, gaps: bool = False) -> None:
        self.itemsize = dtype.itemsize
        step = 2 if gaps and shape else 1
        wide = (*shape[:-1], shape[-1] * step) if shape else ()
        count = int(np.prod(wide, dtype=np.int64)) * self.itemsize
        bytes_of = np.arange(count + 2 * MARGIN, dtype=np.int64)
        self.pattern = (bytes_of * 37 % 251 + 2).astype(np.uint8)  # never 0 or 1: those a kernel may well write
        self.free = np.zeros(self.pattern.shape, bool)  # what may be written
        inside = self.free[MARGIN : MARGIN + count].reshape(-1, step, self.itemsize)
        inside[:, 0] = True
        self.memory = ts.from_numpy(self.pattern.copy()).to(device)
        whole = self.memory[MARGIN : MARGIN + count].view(dtype).reshape(wide)
        self.tensor: ts.Tensor = whole[..., ::step] if step > 1 else whole

    def damage(self) -> str | None:
        """Where a canary is gone, in words for the author of the kernel; None if all are there."""
        wrong = (self.memory.cpu().numpy() != self.pattern) & ~self.free
        if not wrong.any():
            return None
        places = np.flatnonzero(wrong) - MARGIN
        end = len(self.pattern) - 2 * MARGIN
        if places[0] < 0:
            return f"wrote {-int(places[0])} bytes before the output"
        if places[-1] >= end:
            past = int(places[-1]) - end + 1
            return f"wrote past the end of the output: up to {past} bytes ({-(-past // self.itemsize)} elements)"
        return f"wrote into the gaps of a strided output, first at its byte {int(places[0])}"


class Slack:
    """Canaries behind temporaries, which no caller sees: the core keeps freed blocks by powers of two and hands them
    out again, so that the bytes beyond ``used`` of a block filled beforehand are still there afterwards.

    Blind, not wrong, where the backend allocates by itself and gives other blocks.
    """

    _BLOCKS = 24

    def __init__(self, used: int, device: Any) -> None:
        self.used, self.device = used, device
        self.whole = 1 << (used - 1).bit_length()
        self.fill = ts.from_numpy((np.arange(self.whole) * 37 % 251 + 2).astype(np.uint8))
        blocks = [self.fill.to(device) for _ in range(self._BLOCKS)]
        self.known = {block.data_ptr() for block in blocks}

    def damage(self) -> str | None:
        """As :meth:`Guarded.damage`."""
        again = [ts.empty(self.whole, dtype=ts.uint8, device=self.device) for _ in range(self._BLOCKS)]
        wanted = self.fill.numpy()[self.used :]
        for block in again:
            found = block.cpu().numpy()[self.used :]
            if block.data_ptr() in self.known and (found != wanted).any():
                past = int(np.flatnonzero(found != wanted)[-1]) + 1
                return f"wrote past the end of the output: up to {past} bytes behind {self.used} bytes of results"
        return None


def report(made: list[Guarded], subject: str, case: str, device: str) -> None:
    """Fail if any canary is gone."""
    for guarded in made:
        damage = guarded.damage()
        if damage:
            shape = tuple(guarded.tensor.shape)
            pytest.fail(f"{subject} on {device}: {damage}; output {shape} of a call with {case}", pytrace=False)
