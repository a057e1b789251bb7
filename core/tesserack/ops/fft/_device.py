"""Fourier transforms by the kernel of a card, ``fft_rows``, where it has one.

A kernel transforms rows whose length has no prime factor above 13. Of others, a transform is a convolution (Bluestein):
with j k = (j^2 + k^2 - (k - j)^2) / 2, its sums are those of a product of spectra whose length is a power of two.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import tesserack as ts
from tesserack import _native
from tesserack.backends import _place
from tesserack.ops.registry import operators

if TYPE_CHECKING:
    from tesserack import Tensor
    from tesserack.ops.fft._transform import Map

__all__ = ["Declined", "compute", "is_available"]

_COMPLEX, _TO_HALF, _FROM_HALF = range(3)
_LARGEST_FACTOR = 13
_DTYPES = (ts.float32, ts.float64, ts.complex64, ts.complex128)
_MOST_BYTES = 64 << 20  # of tables kept on devices


class Declined(Exception):
    """The card's kernel does not take this transform."""


def is_available(x: Tensor) -> bool:
    """Whether the card of a tensor transforms it."""
    return x.dtype in _DTYPES and _native._has_kernel(x.device.type, "fft_rows")


@functools.lru_cache(maxsize=256)
def _is_smooth(n: int) -> bool:
    for factor in range(2, _LARGEST_FACTOR + 1):
        while n % factor == 0:
            n //= factor
    return n == 1


def _on_circle(k: Any, n: int) -> Any:
    """exp(-pi i k / n)."""
    import numpy as np

    return np.exp(-1j * np.pi / n * ((k + n) % (2 * n) - n))


def _uploaded(numbers: Any, device: str, real: Any) -> Tensor:
    """Complex numbers as pairs, on a device."""
    with ts.inference_mode(False):
        return ts.view_as_real(ts.from_numpy(numbers)).to(real).to(device)


class _Tables:
    """What was uploaded before, the last used, by what it was made from."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, tuple[Tensor, ...]] = OrderedDict()

    def get(self, make: Any, n: int, device: str, real: Any) -> tuple[Tensor, ...]:
        key = make, n, device, real
        with self._lock:
            if (found := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return found
        made = tuple(_uploaded(numbers, device, real) for numbers in make(n))
        with self._lock:
            self._kept[key] = made
            while self._kept and sum(t.nbytes for held in self._kept.values() for t in held) > _MOST_BYTES:
                self._kept.popitem(last=False)
        return made

    def forget(self) -> None:
        """Devices that are recovered have nothing of before."""
        with self._lock:
            self._kept.clear()


_tables = _Tables()
_place.when_recovered.append(_tables.forget)


def _roots(n: int) -> tuple[Any]:
    """exp(-2 pi i k / n) for k below n."""
    import numpy as np

    return (_on_circle(2 * np.arange(n), n),)


def _chirp(n: int) -> tuple[Any, Any]:
    """exp(-pi i j^2 / n), and the spectrum of its conjugate, which is even, at the length of the convolution."""
    import numpy as np

    length = 1 << (2 * n - 2).bit_length()
    chirp = _on_circle(np.arange(n) ** 2, n)
    filled = np.zeros(length, dtype=complex)
    filled[:n] = chirp.conj()
    filled[length - n + 1 :] = filled[1:n][::-1]
    return chirp, np.fft.fft(filled)


def _launch(x: Tensor, n: int, kind: int, inverse: bool, scale: float) -> Tensor:
    if kind != _TO_HALF:
        x = ts.view_as_real(x)
    (roots,) = _tables.get(_roots, n, str(x.device), x.dtype)
    try:
        found: Tensor = operators()["_fft_rows"](x, roots, kind, inverse, scale)
    except NotImplementedError as error:
        raise Declined from error
    return found if kind == _FROM_HALF else ts.view_as_complex(found)


def _bluestein(x: Tensor, n: int, inverse: bool, scale: float) -> Tensor:
    """Complex rows of any length."""
    made = _tables.get(_chirp, n, str(x.device), x.dtype.to_real())
    chirp, spectrum = map(ts.view_as_complex, made)
    if inverse:
        return _bluestein(x.conj(), n, False, scale).conj().resolve_conj()
    length = spectrum.numel()
    turned = x.resolve_conj() * chirp
    filled = ts.cat([turned, turned.new_zeros((*x.shape[:-1], length - n))], -1)
    product = _launch(filled, length, _COMPLEX, False, 1.0) * spectrum
    found: Tensor = _launch(product, length, _COMPLEX, True, scale / length)[..., :n] * chirp
    return found


def _rows(x: Tensor, n: int, kind: int, inverse: bool, scale: float) -> Tensor:
    """Rows of any length, contiguous."""
    if _is_smooth(n):
        return _launch(x, n, kind, inverse, scale)
    if kind == _COMPLEX:
        return _bluestein(x, n, inverse, scale)
    if kind == _TO_HALF:
        return _bluestein(x.to(x.dtype.to_complex()), n, inverse, scale)[..., : n // 2 + 1]
    pairs = ts.view_as_real(x).clone()
    pairs[..., :: n // 2 if n % 2 == 0 else n, 1] = 0  # of what is its own mirror
    x = ts.view_as_complex(pairs)
    whole = ts.cat([x, x[..., 1 : (n + 1) // 2].flip(-1).conj()], -1)
    return _bluestein(whole, n, inverse, scale).real


def _along(x: Tensor, dim: int, n: int, kind: int, inverse: bool, scale: float) -> Tensor:
    return _rows(x.movedim(dim, -1).contiguous(), n, kind, inverse, scale).movedim(-1, dim)


def _weighted(x: Tensor, dim: int, n: int, inverted: bool) -> Tensor:
    """Times (or by) how often each element of half a spectrum stands in the whole."""
    inner = slice(1, n // 2 if n % 2 == 0 else n // 2 + 1)
    pairs = ts.view_as_real(x.contiguous()).movedim(dim, 0).clone()
    pairs[inner] *= 0.5 if inverted else 2.0
    return ts.view_as_complex(pairs.movedim(0, dim).contiguous())


def compute(map: Map, x: Tensor) -> Tensor:
    """The scaled transform of a tensor of the right sizes."""
    scale, inverse = map.scale, not map.forward
    if not map.dims:
        x = x * scale
        return x.real if map.kind == "f2r" else x.to(x.dtype.to_complex())

    def many(x: Tensor, dims: tuple[int, ...], sizes: tuple[int, ...], scale: float) -> Tensor:
        for dim, n in zip(dims, sizes, strict=True):
            x, scale = _along(x, dim, n, _COMPLEX, inverse, scale), 1.0
        return x

    if map.kind in ("c2c", "r2f", "f2r"):
        found = many(x if x.is_complex() else x.to(x.dtype.to_complex()), map.dims, map.sizes, scale)
        return (found.real if map.kind == "f2r" else found).contiguous()
    *others, last = map.dims
    *sizes, n = map.sizes
    rest = tuple(others), tuple(sizes), 1.0
    if map.kind in ("r2c", "r2h"):
        found = _along(x, last, n, _TO_HALF, inverse, scale)
        return many(_weighted(found, last, n, False) if map.kind == "r2h" else found, *rest).contiguous()
    found = many(x, *rest)
    if map.kind == "h2r":
        found = _weighted(found, last, n, True)
    return _along(found, last, n, _FROM_HALF, inverse, scale).contiguous()
