"""Fourier transforms by oneMKL's DFTI, where the `mkl` package is installed: PyTorch's own engine on x86 processors."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tesserack as ts
from tesserack import _native

if TYPE_CHECKING:
    from tesserack import Tensor
    from tesserack.ops.fft._transform import Map

__all__ = ["compute", "is_available"]

# Numbers of mkl_dfti.h.
_COMPLEX, _REAL, _SINGLE, _DOUBLE = 32, 33, 35, 36
_FORWARD_SCALE, _BACKWARD_SCALE, _COUNT, _EVEN_STORAGE, _PLACEMENT = 4, 5, 7, 10, 11
_INPUT_STRIDES, _OUTPUT_STRIDES, _INPUT_DISTANCE, _OUTPUT_DISTANCE = 12, 13, 14, 15
_COMPLEX_COMPLEX, _NOT_INPLACE, _FFT_DOMAIN = 39, 44, 2
_MOST_DIMS = 7

_mirror_spectrum_ = _native._operator_function("_mirror_spectrum_")

_KINDS = {ts.float32: _SINGLE, ts.complex64: _SINGLE, ts.float64: _DOUBLE, ts.complex128: _DOUBLE}
_Layout = tuple[tuple[int, ...], int, int]  # strides along the transformed dims, distance and number of transforms


@functools.cache
def _library() -> Any:
    """The run-time library, or None. ``TESSERACK_FFT=scipy`` turns it off."""
    if os.environ.get("TESSERACK_FFT", "mkl") != "mkl":
        return None
    from importlib import metadata

    try:
        files = metadata.files("mkl") or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name.startswith("libmkl_rt.so"):
            try:
                library = ctypes.CDLL(str(file.locate()))
                # Its threads would wait by spinning, on the processors that ours need next.
                ctypes.CDLL(str(Path(str(file.locate())).with_name("libiomp5.so"))).kmp_set_defaults(b"KMP_BLOCKTIME=0")
            except OSError:
                return None
            library.DftiErrorMessage.restype = ctypes.c_char_p
            return library
    return None


def is_available() -> bool:
    """Whether transforms go through oneMKL."""
    return _library() is not None


def _check(status: int) -> None:
    if status:
        message = _library().DftiErrorMessage(ctypes.c_long(status)).decode()
        raise RuntimeError(f"fft: oneMKL refused the transform: {message}; TESSERACK_FFT=scipy goes another way")


class _Plan:
    """A committed descriptor; threads may compute by one at once."""

    def __init__(
        self, kind: int, real: bool, sizes: tuple[int, ...], given: _Layout, result: _Layout, forward: bool,
        scale: float, threads: int,
    ) -> None:  # fmt: skip
        library = _library()
        library.MKL_Domain_Set_Num_Threads(threads, _FFT_DOMAIN)
        self.handle = ctypes.c_void_p()
        lengths = (ctypes.c_long * len(sizes))(*sizes)
        first = ctypes.c_long(sizes[0]) if len(sizes) == 1 else lengths
        domain, rank = _REAL if real else _COMPLEX, ctypes.c_long(len(sizes))
        _check(library.DftiCreateDescriptor(ctypes.byref(self.handle), kind, domain, rank, first))
        self.free = library.DftiFreeDescriptor
        steps = ctypes.c_long * (len(sizes) + 1)
        for key, value in (
            (_PLACEMENT, ctypes.c_long(_NOT_INPLACE)),
            (_FORWARD_SCALE if forward else _BACKWARD_SCALE, ctypes.c_double(scale)),
            (_INPUT_STRIDES, steps(0, *given[0])),
            (_OUTPUT_STRIDES, steps(0, *result[0])),
            (_COUNT, ctypes.c_long(given[2])),
            (_INPUT_DISTANCE, ctypes.c_long(given[1])),
            (_OUTPUT_DISTANCE, ctypes.c_long(result[1])),
        ):
            _check(library.DftiSetValue(self.handle, key, value))
        if real:
            _check(library.DftiSetValue(self.handle, _EVEN_STORAGE, ctypes.c_long(_COMPLEX_COMPLEX)))
        _check(library.DftiCommitDescriptor(self.handle))
        self.compute = library.DftiComputeForward if forward else library.DftiComputeBackward

    def __call__(self, given: Tensor, result: Tensor) -> None:
        _check(self.compute(self.handle, ctypes.c_void_p(given.data_ptr()), ctypes.c_void_p(result.data_ptr())))

    def __del__(self) -> None:
        if self.handle:
            self.free(ctypes.byref(self.handle))


def _layout(shape: tuple[int, ...], strides: tuple[int, ...], dims: tuple[int, ...]) -> _Layout | None:
    """How the transforms along ``dims`` lie in memory; None where they are not at one distance from each other, or one
    element stands for several, as in what was expanded."""
    if any(step == 0 and n > 1 for step, n in zip(strides, shape, strict=True)):
        return None
    count, distance, ahead = 1, 0, 0
    for d in range(len(shape) - 1, -1, -1):
        if d in dims or shape[d] == 1:
            continue
        if count > 1 and strides[d] != ahead:
            return None
        if count == 1:
            distance = strides[d]
        count *= shape[d]
        ahead = strides[d] * shape[d]
    return tuple(strides[d] for d in dims), distance, count


@functools.lru_cache(maxsize=256)
def _plan(
    shape: tuple[int, ...], strides: tuple[int, ...], dims: tuple[int, ...], sizes: tuple[int, ...],
    result: tuple[int, ...], kind: int, real: bool, forward: bool, scale: float, threads: int,
) -> _Plan | None:  # fmt: skip
    """The plan for a tensor of this shape and these strides, its result laid out in rows; None where none suits."""
    rows = [1] * len(result)
    for d in range(len(result) - 2, -1, -1):
        rows[d] = rows[d + 1] * result[d + 1]
    given, made = _layout(shape, strides, dims), _layout(result, tuple(rows), dims)
    return given and made and _Plan(kind, real, sizes, given, made, forward, scale, threads)


def _transform(
    x: Tensor, dims: tuple[int, ...], sizes: tuple[int, ...], shape: tuple[int, ...], dtype: Any, forward: bool,
    scale: float,
) -> Tensor:  # fmt: skip
    """A transform of ``sizes`` along ``dims`` whose result has ``shape``; the halved dim is the last of ``dims``."""
    real = not (x.dtype.is_complex and dtype.is_complex)
    plan = _plan(tuple(x.shape), x.stride(), dims, sizes, shape, _KINDS[x.dtype], real, forward, scale,
                 ts.get_num_threads())  # fmt: skip
    if plan is None:
        last = tuple(range(-len(dims), 0))
        moved = x.movedim(dims, last).contiguous()
        rest = [n for d, n in enumerate(shape) if d not in dims]
        places = tuple(range(len(rest), len(shape)))
        made = _transform(moved, places, sizes, (*rest, *(shape[d] for d in dims)), dtype, forward, scale)
        return made.movedim(last, dims)
    out = ts.empty(shape, dtype=dtype, device=x.device)
    plan(x, out)
    return out


def _with(shape: Any, dim: int, n: int) -> tuple[int, ...]:
    return (*shape[:dim], n, *shape[dim + 1 :])


def _complex_many(x: Tensor, dims: tuple[int, ...], forward: bool, scale: float) -> Tensor:
    shape = tuple(x.shape)
    return _transform(x, dims, tuple(shape[d] for d in dims), shape, x.dtype, forward, scale) if dims else x


def _half(x: Tensor, dims: tuple[int, ...], forward: bool, scale: float) -> Tensor:
    """Half of the spectrum of real numbers."""
    sizes = tuple(x.shape[d] for d in dims)
    shape = _with(tuple(x.shape), dims[-1], sizes[-1] // 2 + 1)
    found = _transform(x, dims, sizes, shape, x.dtype.to_complex(), True, scale)
    return found if forward else found.conj_physical()


def _mirrored(x: Tensor, dims: tuple[int, ...], forward: bool, scale: float) -> Tensor:
    """The whole spectrum of real numbers: the other half is the first, conjugated, at minus the frequencies."""
    last, n = dims[-1], x.shape[dims[-1]]
    sizes = tuple(x.shape[d] for d in dims)
    whole = _transform(x, dims, sizes, tuple(x.shape), x.dtype.to_complex(), True, scale)
    _mirror_spectrum_(whole, dims, forward)
    if not forward:
        whole.narrow(last, 0, n // 2 + 1).conj_physical_()
    return whole


def _whole(x: Tensor, dims: tuple[int, ...], n: int, forward: bool, scale: float) -> Tensor:
    """Real numbers from half a spectrum. By dims, so that what is not symmetric counts as in NumPy."""
    x = _complex_many(x, dims[:-1], forward, 1.0)
    if forward:
        x = x.conj_physical()
    return _transform(x, dims[-1:], (n,), _with(tuple(x.shape), dims[-1], n), x.dtype.to_real(), False, scale)


def _weights(x: Tensor, dim: int, n: int, inverse: bool) -> Tensor:
    """How often each element of half a spectrum stands in the whole, or one over that, beside ``x``."""
    weights = ts.full((n // 2 + 1,), 0.5 if inverse else 2.0, dtype=x.dtype.to_real(), device=x.device)
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    return weights.reshape([-1 if d == dim else 1 for d in range(x.dim())])


def compute(map: Map, x: Tensor) -> Tensor | None:
    """The scaled transform of a tensor of the right sizes; None where oneMKL does not take it."""
    if _library() is None or x.device.type != "cpu" or x.dtype not in _KINDS or not 1 <= len(map.dims) <= _MOST_DIMS:
        return None
    dims, forward, scale, n = map.dims, map.forward, map.scale, map.sizes[-1]
    if map.kind == "c2c":
        return _complex_many(x, dims, forward, scale)
    if map.kind == "r2f":
        return _mirrored(x, dims, forward, scale)
    if map.kind == "f2r":
        return _complex_many(x, dims, forward, scale).real
    if map.kind == "r2c":
        if forward or len(dims) == 1:
            return _half(x, dims, forward, scale)
        return _complex_many(_half(x, dims[-1:], forward, scale), dims[:-1], forward, 1.0)
    if map.kind == "r2h":
        half = _half(x, dims[-1:], forward, scale)
        return _complex_many(half * _weights(half, dims[-1], n, False), dims[:-1], forward, 1.0)
    if map.kind == "h2r":
        x = _complex_many(x, dims[:-1], forward, 1.0)
        return _whole(x * _weights(x, dims[-1], n, True), dims[-1:], n, forward, scale)
    return _whole(x, dims, n, forward, scale)
