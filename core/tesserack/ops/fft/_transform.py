"""Linear maps of Fourier transforms, on the host or by a card's kernel, each with its adjoint, which is its gradient.

A map is: arguments cut or padded with zeros along ``dims``, transformed without scale, scaled, cut or padded again. Its
``kind`` says between which numbers:

- ``c2c``: complex to complex;
- ``r2f``: real to all of the complex spectrum, adjoint ``f2r``: complex to the real part;
- ``r2c``: real to the first half of the spectrum, adjoint ``h2r``;
- ``c2r``: half a spectrum to real, adjoint ``r2h``.
"""

from __future__ import annotations

import contextlib
import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import tesserack as ts
from tesserack import _native
from tesserack.autograd import Function
from tesserack.autograd._whole import whole
from tesserack.library.whole_operator import is_looked_on, whole_operator
from tesserack.ops.fft import _device, _mkl

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from tesserack import Tensor

__all__ = ["Map", "apply"]

NAME = "tesserack_fft::transform"
_ADJOINT = {"c2c": "c2c", "r2f": "f2r", "f2r": "r2f", "r2c": "h2r", "h2r": "r2c", "c2r": "r2h", "r2h": "c2r"}
_TO_REAL = ("f2r", "h2r", "c2r")


class Map(NamedTuple):
    """``sizes``: of the signal (not of half a spectrum) along ``dims``. ``given`` and ``result``: sizes before cutting
    and padding, and after. ``forward``: the sign of the exponent is minus. ``divisor``: "", or "count" or "root" of
    it, of the points."""

    kind: str
    dims: tuple[int, ...]
    sizes: tuple[int, ...]
    given: tuple[int, ...]
    result: tuple[int, ...]
    forward: bool
    divisor: str

    @property
    def scale(self) -> float:
        count = math.prod(self.sizes)
        return 1.0 if not self.divisor else 1 / count if self.divisor == "count" else 1 / math.sqrt(count)

    def adjoint(self) -> Map:
        return self._replace(kind=_ADJOINT[self.kind], given=self.result, result=self.given, forward=not self.forward)

    @property
    def to_real(self) -> bool:
        return self.kind in _TO_REAL


def _library() -> tuple[ModuleType, dict[str, Any]]:
    try:
        import scipy.fft
    except ImportError:
        pass
    else:
        return scipy.fft, {"workers": ts.get_num_threads()}
    try:
        import numpy.fft
    except ImportError:
        raise RuntimeError("fft: expected SciPy or NumPy, which compute the transforms; install scipy") from None
    return numpy.fft, {}


def _resized(array: Any, dims: tuple[int, ...], sizes: tuple[int, ...]) -> Any:
    """Cut at the end, or padded with zeros there."""
    if all(array.shape[d] == n for d, n in zip(dims, sizes, strict=True)):
        return array
    import numpy as np

    cut, pad = [slice(None)] * array.ndim, [(0, 0)] * array.ndim
    for d, n in zip(dims, sizes, strict=True):
        cut[d] = slice(0, n)
        pad[d] = (0, max(0, n - array.shape[d]))
    array = array[tuple(cut)]
    return np.pad(array, pad) if any(after for _, after in pad) else array


def _fitted(x: Tensor, dims: tuple[int, ...], sizes: tuple[int, ...]) -> Tensor:
    """The same of a tensor."""
    for d, n in zip(dims, sizes, strict=True):
        if n < x.shape[d]:
            x = x.narrow(d, 0, n)
        elif n > x.shape[d]:
            x = ts.cat([x, x.new_zeros((*x.shape[:d], n - x.shape[d], *x.shape[d + 1 :]))], d)
    return x


def _contiguous(array: Any) -> Any:
    import numpy as np

    return np.ascontiguousarray(array)


def _weights(n: int, dtype: Any) -> Any:
    """How often each element of half a spectrum stands in the whole."""
    import numpy as np

    weights = np.full(n // 2 + 1, 2, dtype=dtype)
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    return weights


def _along_last(array: Any, dim: int, weights: Any) -> Any:
    return array * weights.reshape([-1 if d == dim else 1 for d in range(array.ndim)])


def _run(map: Map, x: Any) -> Any:
    """The unscaled transform of an array of the right sizes. The inverse ones are scaled by no ``norm`` either."""
    import numpy as np

    lib, threads = _library()

    def complex_many(array: Any, dims: tuple[int, ...]) -> Any:
        if not dims:
            return array
        if map.forward:
            return lib.fftn(array, axes=dims, **threads)
        return lib.ifftn(array, axes=dims, norm="forward", **threads)

    def half(array: Any, dim: int) -> Any:
        found = lib.rfft(array, axis=dim, **threads)
        return found if map.forward else np.conj(found)

    def whole(array: Any, dim: int, n: int) -> Any:
        return lib.irfft(np.conj(array) if map.forward else array, n, axis=dim, norm="forward", **threads)

    if map.kind in ("c2c", "r2f"):
        return complex_many(x, map.dims)
    if map.kind == "f2r":
        return complex_many(x, map.dims).real
    others, last, n = map.dims[:-1], map.dims[-1], map.sizes[-1]
    weights = _weights(n, x.real.dtype)
    if map.kind == "r2c":
        return complex_many(half(x, last), others)
    if map.kind == "c2r":
        return whole(complex_many(x, others), last, n)
    if map.kind == "h2r":
        return whole(_along_last(complex_many(x, others), last, 1 / weights), last, n)
    return complex_many(_along_last(half(x, last), last, weights), others)


def _half_sizes(map: Map) -> tuple[int, ...]:
    return (*map.sizes[:-1], map.sizes[-1] // 2 + 1)


def _given_sizes(map: Map) -> tuple[int, ...]:
    return _half_sizes(map) if map.kind in ("c2r", "h2r") else map.sizes


def _normalised(map: Map) -> str:
    """What the library calls this scale of one complex transform."""
    if map.divisor == "root":
        return "ortho"
    return "forward" if map.forward == (map.divisor == "count") else "backward"


def _direct(map: Map, array: Any) -> Any:
    """The scaled transform in one call of the library, which most are; None for the others."""
    norm = _normalised(map)
    if not map.dims:
        return None
    lib, threads = _library()
    name = {"c2c": "fft" if map.forward else "ifft", "r2f": "fft" if map.forward else "ifft"}.get(map.kind)
    if map.kind == "r2c" and map.forward:
        name = "rfft"
    elif map.kind == "c2r" and not map.forward:
        name = "irfft"
    if name is None:
        return None
    if len(map.dims) == 1:
        return getattr(lib, name)(array, map.sizes[0], map.dims[0], norm=norm, **threads)
    return getattr(lib, f"{name}n")(array, map.sizes, map.dims, norm=norm, **threads)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.map = _read(inputs[0], inputs[1:])


@whole_operator(
    NAME,
    "(Tensor x, str kind, int[] dims, int[] sizes, int[] given, int[] result, bool forward, str divisor) -> Tensor",
    lambda x, *parts: _outline(_read(x, parts), x),
    (lambda ctx, grad: (apply(ctx.map.adjoint(), grad), *[None] * len(Map._fields)), _setup),
)
def _as_operator(x: Tensor, *parts: Any) -> Tensor:
    return _computed(_read(x, parts), x)


def _compute(map: Map, x: Tensor) -> Tensor:
    found: Tensor = _as_operator(x, *map) if is_looked_on(x) else _computed(map, x)
    return found


def _computed(map: Map, x: Tensor) -> Tensor:
    if not x.numel() or 0 in map.result:
        return _outline(map, x).zero_()
    if _device.is_available(x):
        given = _fitted(x.resolve_conj().resolve_neg(), map.dims, _given_sizes(map))
        with contextlib.suppress(_device.Declined):  # counted below
            return _fitted(_device.compute(map, given), map.dims, map.result).contiguous()
    return _compute_on_host(x, tuple(map))


@functools.partial(whole, computes=True)
def _compute_on_host(x: Tensor, parts: tuple[Any, ...]) -> Tensor:
    """By libraries that are given addresses: whole in graphs, which make arguments anew of plain values."""
    map = Map(*parts)
    sizes = _given_sizes(map)
    if _mkl.is_available():
        made = _mkl.compute(map, _fitted(x.resolve_conj().resolve_neg(), map.dims, sizes))
        if made is not None:
            return _fitted(made, map.dims, map.result)
    _native._note_fallback("fft", x)  # of another device
    array = _resized(x.numpy(force=True), map.dims, sizes)
    found = _direct(map, array)
    if found is None:
        found = _run(map, array)
        if map.divisor:
            found = found * found.real.dtype.type(map.scale)
    found = ts.from_numpy(_contiguous(_resized(found, map.dims, map.result)))
    dtype = x.dtype.to_real() if map.to_real else x.dtype.to_complex()
    return found if found.dtype is dtype and found.device == x.device else found.to(x.device, dtype)


def _read(x: Tensor, parts: Sequence[Any]) -> Map:
    map = Map._make(tuple(part) if isinstance(part, list) else part for part in parts)
    sizes = tuple(x.shape[d] for d in map.dims)
    if sizes != map.given:  # of a graph, which keeps them
        raise RuntimeError(
            f"{NAME}: expected sizes {map.given} along dims {map.dims}, for which the transform was written down, got "
            f"{sizes}; trace or export the program with tensors of that shape"
        )
    return map


def _outline(map: Map, x: Tensor) -> Tensor:
    shape = list(x.shape)
    for d, n in zip(map.dims, map.result, strict=True):
        shape[d] = n
    return ts.empty(shape, dtype=x.dtype.to_real() if map.to_real else x.dtype.to_complex(), device=x.device)


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, map: Map) -> Tensor:
        ctx.map = map
        return _compute(map, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return apply(ctx.map.adjoint(), grad), None


def apply(map: Map, x: Tensor) -> Tensor:
    """The map's result; differentiable to any order."""
    if ts.is_grad_enabled() and x.requires_grad:
        return _Linear.apply(x, map)  # type: ignore[no-any-return]
    return _compute(map, x)
