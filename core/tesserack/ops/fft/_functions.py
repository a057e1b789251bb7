"""The transforms of ``torch.fft``: what their arguments mean."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tesserack as ts
from tesserack import _native
from tesserack.ops.fft._transform import Map, apply
from tesserack.ops.numpy_names import numpy_names
from tesserack.ops.results import deliver

if TYPE_CHECKING:
    from tesserack import Tensor

Sizes = Sequence[int] | int | None
Dims = Sequence[int] | int | None

__all__ = [
    "fft", "fft2", "fftn", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ihfft", "ihfft2", "ihfftn", "irfft",
    "irfft2", "irfftn", "rfft", "rfft2", "rfftn",
]  # fmt: skip

_LAST_TWO = (-2, -1)


def _divisor(norm: str | None, forward: bool, op: str) -> str:
    """By what of the number of points results are divided."""
    if norm not in (None, "backward", "ortho", "forward"):
        raise RuntimeError(f'{op}: Invalid normalization mode: "{norm}"; expected "backward", "ortho" or "forward"')
    if norm == "ortho":
        return "root"
    return "count" if (norm == "forward") == forward else ""


def _floating(x: Tensor, op: str) -> Tensor:
    if x.dtype in (ts.float16, ts.bfloat16):
        if ts.is_autocast_enabled(x.device.type):
            return x.float()
        raise RuntimeError(
            f"{op}: Unsupported dtype {x.dtype}; expected float32, float64 or a complex dtype, try .float()"
        )
    return x if x.is_floating_point() or x.is_complex() else x.to(ts.get_default_dtype())


def _wrapped(dim: int, ndim: int, op: str) -> int:
    most = max(ndim, 1)
    if not -most <= dim < most:
        raise IndexError(
            f"{op}: Dimension out of range (expected to be in range of [{-most}, {most - 1}], but got {dim})"
        )
    return dim % most


def _whole(n: Any) -> int:
    return n if isinstance(n, int) else int(n)  # what a trace takes for an int stays so


def _places(ndim: int, s: Sizes, dim: Dims, op: str) -> tuple[tuple[int, ...], list[int | None]]:
    """The dims, and the size asked for along each."""
    if isinstance(s, int):
        s = (s,)
    if isinstance(dim, int):
        dim = (dim,)
    if dim is None:
        count = ndim if s is None else len(s)
        if count > ndim:
            raise RuntimeError(f"{op}: Got shape with {count} values but input tensor only has {ndim} dimensions.")
        dims = tuple(range(ndim - count, ndim))
    else:
        dims = tuple(_wrapped(d, ndim, op) for d in dim)
        if len(set(dims)) < len(dims):
            raise RuntimeError(f"{op}: FFT dims must be unique, got {tuple(dim)}")
        if s is not None and len(s) != len(dims):
            raise RuntimeError(
                f"{op}: When given, dim and shape arguments must have the same length, got {dim} and {s}"
            )
    return dims, [None] * len(dims) if s is None else [None if n == -1 else _whole(n) for n in s]


@functools.lru_cache(maxsize=512)
def _map(
    shape: tuple[int, ...], is_complex: bool, s: Sizes, dim: Dims, norm: str | None, op: str, kind: str, forward: bool
) -> Map:
    """What a call asks for, of a tensor of this shape."""
    dims, wanted = _places(len(shape), s, dim, op)
    if kind != "c2c" and not dims:
        raise RuntimeError(f"{op}: must transform at least one axis")
    if not shape and dims:
        raise IndexError(f"{op}: expected a tensor of at least one dimension")
    given = tuple(shape[d] for d in dims)
    sizes = [n if w is None else w for n, w in zip(given, wanted, strict=True)]
    if kind == "c2r" and wanted[-1] is None:
        sizes[-1] = 2 * (given[-1] - 1)
    for n in sizes:
        if n < 1:
            raise RuntimeError(f"{op}: Invalid number of data points ({n}) specified")
    result = list(sizes)
    if kind == "r2c":
        result[-1] = sizes[-1] // 2 + 1
    if kind == "c2c" and not is_complex:
        kind = "r2f"
    return Map(kind, dims, tuple(sizes), given, tuple(result), forward, _divisor(norm, forward, op))


def _transform(
    x: Tensor, s: Sizes, dim: Dims, norm: str | None, op: str, kind: str, forward: bool, out: Tensor | None
) -> Tensor:
    """``kind``: "c2c", "r2c" (half a spectrum) or "c2r" (from half a spectrum)."""
    x = _floating(x, op)
    if kind == "r2c" and x.is_complex():
        raise RuntimeError(f"{op}: Expected a real input tensor, got {x.dtype}")
    if kind == "c2r" and not x.is_complex():
        x = x.to(x.dtype.to_complex())
    s = tuple(s) if isinstance(s, Sequence) else s
    dim = tuple(dim) if isinstance(dim, Sequence) else dim
    shape = tuple(x.shape)
    make = _map.__wrapped__ if _native._is_tracing() else _map  # what a trace knows of sizes holds for itself alone
    found = apply(make(shape, x.is_complex(), s, dim, norm, op, kind, forward), x)
    if out is None:
        return found
    if out.dtype is not found.dtype:
        raise RuntimeError(f"{op}: Expected out tensor to have dtype {found.dtype}, but got {out.dtype} instead")
    return deliver(op, found, out)


def _one(n: int | None) -> Sizes:
    return None if n is None else (n,)


@numpy_names
def fft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The spectrum along ``dim``, of ``n`` points: the input is cut or padded with zeros."""
    return _transform(input, _one(n), (dim,), norm, "fft", "c2c", True, out)


@numpy_names
def ifft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The inverse of ``fft``."""
    return _transform(input, _one(n), (dim,), norm, "ifft", "c2c", False, out)


@numpy_names
def rfft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The first n // 2 + 1 elements of the spectrum of real input: the others are their conjugates."""
    return _transform(input, _one(n), (dim,), norm, "rfft", "r2c", True, out)


@numpy_names
def irfft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The inverse of ``rfft``: a real signal of ``n`` points (2 * (m - 1) unless given)."""
    return _transform(input, _one(n), (dim,), norm, "irfft", "c2r", False, out)


@numpy_names
def hfft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The real spectrum of a Hermitian signal, of which ``input`` is the first half."""
    return _transform(input, _one(n), (dim,), norm, "hfft", "c2r", True, out)


@numpy_names
def ihfft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The inverse of ``hfft``."""
    return _transform(input, _one(n), (dim,), norm, "ihfft", "r2c", False, out)


@numpy_names
def fftn(
    input: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The spectrum along several dims (all, or the last ones of ``s``), of ``s`` points."""
    return _transform(input, s, dim, norm, "fftn", "c2c", True, out)


@numpy_names
def ifftn(
    input: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The inverse of ``fftn``."""
    return _transform(input, s, dim, norm, "ifftn", "c2c", False, out)


@numpy_names
def rfftn(
    input: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The spectrum of real input along several dims, the first half along the last of them."""
    return _transform(input, s, dim, norm, "rfftn", "r2c", True, out)


@numpy_names
def irfftn(
    input: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The inverse of ``rfftn``."""
    return _transform(input, s, dim, norm, "irfftn", "c2r", False, out)


@numpy_names
def hfftn(
    input: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The real spectrum of a signal that is Hermitian along several dims, given the first half along the last."""
    return _transform(input, s, dim, norm, "hfftn", "c2r", True, out)


@numpy_names
def ihfftn(
    input: Tensor, s: Sizes = None, dim: Dims = None, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The inverse of ``hfftn``."""
    return _transform(input, s, dim, norm, "ihfftn", "r2c", False, out)


@numpy_names
def fft2(
    input: Tensor, s: Sizes = None, dim: Dims = _LAST_TWO, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """``fftn`` along two dims."""
    return _transform(input, s, dim, norm, "fft2", "c2c", True, out)


@numpy_names
def ifft2(
    input: Tensor, s: Sizes = None, dim: Dims = _LAST_TWO, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """``ifftn`` along two dims."""
    return _transform(input, s, dim, norm, "ifft2", "c2c", False, out)


@numpy_names
def rfft2(
    input: Tensor, s: Sizes = None, dim: Dims = _LAST_TWO, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """``rfftn`` along two dims."""
    return _transform(input, s, dim, norm, "rfft2", "r2c", True, out)


@numpy_names
def irfft2(
    input: Tensor, s: Sizes = None, dim: Dims = _LAST_TWO, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """``irfftn`` along two dims."""
    return _transform(input, s, dim, norm, "irfft2", "c2r", False, out)


@numpy_names
def hfft2(
    input: Tensor, s: Sizes = None, dim: Dims = _LAST_TWO, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """``hfftn`` along two dims."""
    return _transform(input, s, dim, norm, "hfft2", "c2r", True, out)


@numpy_names
def ihfft2(
    input: Tensor, s: Sizes = None, dim: Dims = _LAST_TWO, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """``ihfftn`` along two dims."""
    return _transform(input, s, dim, norm, "ihfft2", "r2c", False, out)
