"""The stream of words: MT19937 (Matsumoto and Nishimura 1998), positioned by a generator's seed and offset."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from tesserack import Generator, _native

__all__ = ["Stream", "in_pieces"]

# An offset holds the words taken, times four as generators want it; above, if a normal number is kept for the next
# draw (see _normal.py), how many words back it was drawn.
_WORD_BITS = 44
_FURTHEST = (1 << 18) - 1
_KEPT = 16
_PIECE = 1 << 15  # numbers whose intermediate results stay in the processor's cache; a multiple of sixteen
_engines: OrderedDict[tuple[int, int], Any] = OrderedDict()


def _engine(seed: int, words: int) -> Any:
    """The bits of the stream of a seed from a position on."""
    engine = _engines.pop((seed, words), None)
    if engine is None:
        engine = np.random.RandomState(seed & 0xFFFF_FFFF)._bit_generator  # seeded as the authors' init_genrand
        engine.random_raw(words, output=False)
    return engine


def in_pieces(n: int, draw: Callable[[int], Any]) -> Any:
    """``draw(n)``, called for a part at a time where it is many: for draws that take as many words for each number."""
    first = draw(min(n, _PIECE))
    if n <= _PIECE:
        return first
    out = np.empty(n, first.dtype)
    out[:_PIECE] = first
    for start in range(_PIECE, n, _PIECE):
        stop = min(n, start + _PIECE)
        out[start:stop] = draw(stop - start)
    return out


class Stream:
    """The words of a generator, for one draw; ``close`` says to it how many were taken."""

    def __init__(self, generator: Generator | None, device: Any) -> None:
        self.generator = _native._default_generator(device) if generator is None else generator
        self.seed, offset = self.generator._position()
        offset >>= 2
        self.words = offset & ((1 << _WORD_BITS) - 1)
        self.back = offset >> _WORD_BITS  # words since the pair that left a normal number; 0 for none
        self._engine = _engine(self.seed, self.words)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        back = self.back if self.back <= _FURTHEST else 0
        _engines[self.seed, self.words] = self._engine
        while len(_engines) > _KEPT:
            _engines.popitem(last=False)
        self.generator._set_position(self.seed, ((back << _WORD_BITS) | self.words) << 2)

    def bits32(self, n: int) -> Any:
        """Words of 32 bits, as uint64."""
        self.words += n
        self.back += n if self.back else 0
        return self._engine.random_raw(n)

    def bits64(self, n: int) -> Any:
        """Words of 64 bits, of two each, the upper half first."""
        pairs = self.bits32(2 * n).reshape(n, 2)
        return (pairs[:, 0] << np.uint64(32)) | pairs[:, 1]

    def doubles(self, n: int) -> Any:
        """Uniform numbers in [0, 1) of 53 bits."""
        return (self.bits64(n) & np.uint64((1 << 53) - 1)) * 2.0**-53

    def double(self) -> float:
        """One of them."""
        high, low = int(self._engine.random_raw()), int(self._engine.random_raw())
        self.words += 2
        self.back += 2 if self.back else 0
        return ((high << 32 | low) & ((1 << 53) - 1)) * 2.0**-53

    def uniforms(self, n: int) -> Any:
        """Uniform numbers in [0, 1) of 24 bits, as float32."""
        return ((self.bits32(n) & np.uint64((1 << 24) - 1)) * 2.0**-24).astype(np.float32)

    def left_over(self) -> Any:
        """The pair of uniform numbers behind the normal number that was kept; None if there is none."""
        if not self.back:
            return None
        pair = _engine(self.seed, self.words - self.back).random_raw(4)
        self.back = 0
        wide = (pair[0::2] << np.uint64(32)) | pair[1::2]
        return (wide & np.uint64((1 << 53) - 1)) * 2.0**-53
