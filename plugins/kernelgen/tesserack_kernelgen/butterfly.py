"""Small Fourier transforms as straight text, from which long ones are made."""

from __future__ import annotations

import math

__all__ = ["butterfly", "radices"]

_LARGEST = 13


def radices(n: int) -> list[int] | None:
    """The steps that a transform of ``n`` points is made of, None where a prime factor is too large.

    >>> radices(48), radices(35), radices(1), radices(34)
    ([8, 2, 3], [5, 7], [1], None)
    """
    found = []
    for radix in (8, 4, 2, 3, 5, 7, 11, _LARGEST):
        while n % radix == 0:
            found.append(radix)
            n //= radix
    return (found or [1]) if n == 1 else None


class Text:
    """Statements on complex numbers, each a pair of names, of C type ``c`` or of vectors of it."""

    def __init__(self, c: str, vector: str):
        self.c, self.vector = c, vector
        self.lines: list[str] = []

    def number(self, value: float) -> str:
        """A constant as an operand."""
        return f"(({self.vector}){value!r}{'f' if self.c == 'f32' else ''})"

    def keep(self, re: str, im: str) -> tuple[str, str]:
        """Names for two expressions."""
        k = len(self.lines)
        self.lines.append(f"const {self.vector} t{k} = {re}, u{k} = {im};")
        return f"t{k}", f"u{k}"

    def sum(self, a: tuple[str, str], b: tuple[str, str]) -> tuple[str, str]:
        """a + b."""
        return self.keep(f"{a[0]} + {b[0]}", f"{a[1]} + {b[1]}")

    def difference(self, a: tuple[str, str], b: tuple[str, str]) -> tuple[str, str]:
        """a - b."""
        return self.keep(f"{a[0]} - {b[0]}", f"{a[1]} - {b[1]}")

    def turned(self, a: tuple[str, str]) -> tuple[str, str]:
        """-i a."""
        return self.keep(a[1], f"-{a[0]}")

    def times(self, a: tuple[str, str], re: str, im: str) -> tuple[str, str]:
        """a times a number whose parts are operands."""
        return self.keep(f"{a[0]} * {re} - {a[1]} * {im}", f"{a[0]} * {im} + {a[1]} * {re}")


def butterfly(text: Text, x: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The transform of as many points as are given: of one of :func:`radices`."""
    if len(x) == 1:
        return x
    if len(x) in (2, 4, 8):
        return _halves(text, x)
    return _odd(text, x)


def _halves(text: Text, x: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """From the transforms of the even and the odd points."""
    if len(x) == 1:
        return x
    even, odd = _halves(text, x[::2]), _halves(text, x[1::2])
    turned = [_eighth(text, a, k * 8 // len(x)) for k, a in enumerate(odd)]
    pairs = list(zip(even, turned, strict=True))
    return [*(text.sum(a, b) for a, b in pairs), *(text.difference(a, b) for a, b in pairs)]


def _eighth(text: Text, a: tuple[str, str], k: int) -> tuple[str, str]:
    """a exp(-2 pi i k / 8), for k below 4."""
    if k == 0:
        return a
    if k == 2:
        return text.turned(a)
    root = text.number(math.sqrt(0.5))
    both = f"{a[0]} + {a[1]}", f"{a[1]} - {a[0]}"
    re, im = both if k == 1 else (both[1], f"{a[0]} + {a[1]}")
    return text.keep(f"({re}) * {root}", f"({im}) * {root if k == 1 else f'-{root}'}")


def _odd(text: Text, x: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Points k and n - k together, whose factors are conjugates."""
    n, first, half = len(x), x[0], range(1, len(x) // 2 + 1)
    sums = {k: text.sum(x[k], x[n - k]) for k in half}
    rest = {k: text.difference(x[k], x[n - k]) for k in half}
    found = [text.keep(*(" + ".join((first[part], *(sums[k][part] for k in half))) for part in (0, 1)))]
    upper = []
    for j in half:
        angles = {k: 2 * math.pi * (j * k % n) / n for k in half}
        cosines = {k: text.number(math.cos(angle)) for k, angle in angles.items()}
        sines = {k: text.number(math.sin(angle)) for k, angle in angles.items()}
        along = text.keep(*(" + ".join((first[p], *(f"{sums[k][p]} * {cosines[k]}" for k in half))) for p in (0, 1)))
        across = text.keep(*(" + ".join(f"{rest[k][p]} * {sines[k]}" for k in half) for p in (1, 0)))
        found.append(text.keep(f"{along[0]} + {across[0]}", f"{along[1]} - {across[1]}"))
        upper.append(text.keep(f"{along[0]} - {across[0]}", f"{along[1]} + {across[1]}"))
    return [*found, *reversed(upper)]
