"""cuBLASLt that is not there: C functions by the prototypes of ``cublasLt.h``, which multiply with NumPy.

Everything is read from the addresses, layouts and descriptors that the caller gave, as the library would: a wrong
leading dimension or stride gives a wrong number, or reaches beyond an allocation. Products are queued on the stream.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from simulated_errors import SimulatedError

if TYPE_CHECKING:
    from simulated import Simulated

__all__ = ["CublasLt"]

NOT_INITIALIZED, INVALID_VALUE, NOT_SUPPORTED = 1, 7, 15
_P, _I, _Z = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_ALGORITHM = 64
WORKSPACE = 3 << 20  # of every algorithm that is offered
_STORAGE = {0: np.float32, 1: np.float64, 2: np.float16, 4: np.complex64, 5: np.complex128, 14: np.uint16}
#: Combinations of compute type, scale type and type of the matrices that the library documents, of those used here.
_KNOWN = {(68, 0, 0), (77, 0, 0), (68, 0, 2), (68, 0, 14), (70, 1, 1), (68, 4, 4), (77, 4, 4), (70, 5, 5)}
_ATTRIBUTES = {
    "desc": {3: 4, 4: 4, 7: 4, 8: 8},
    "layout": {5: 4, 6: 8},
    "preference": {1: 8, 3: 4, 5: 4, 6: 4, 7: 4, 8: 4},
}


class Layout(NamedTuple):
    dtype: int
    rows: int
    columns: int
    leading: int
    attributes: dict[int, int]


class Desc(NamedTuple):
    compute: int
    scale: int
    attributes: dict[int, int]


class CublasLt:
    """The functions as attributes, callbacks of C. ``products`` lists what was multiplied, as (compute, epilogue)."""

    def __init__(self, driver: Simulated):
        self._driver = driver
        self._numbers = itertools.count(0x70000, 0x10)
        self.objects: dict[int, Any] = {}
        self.products: list[tuple[int, int]] = []
        self._chosen: dict[bytes, tuple[Any, ...]] = {}
        for name, arguments in _PROTOTYPES.items():
            setattr(self, name, ctypes.CFUNCTYPE(_I, *arguments)(self._guarded(getattr(self, f"_{name[8:]}"))))

    @staticmethod
    def _guarded(function: Any) -> Any:
        def called(*arguments: Any) -> int:
            try:
                return int(function(*arguments) or 0)
            except (KeyError, SimulatedError, AssertionError):
                return INVALID_VALUE

        return called

    def _made(self, out: Any, thing: Any) -> int:
        out[0] = next(self._numbers)
        self.objects[out[0]] = thing
        return 0

    def _Create(self, out: Any) -> int:
        return self._made(out, ("handle", self._driver.getDevice()))

    def _MatmulDescCreate(self, out: Any, compute: int, scale: int) -> int:
        return self._made(out, Desc(compute, scale, {}))

    def _MatrixLayoutCreate(self, out: Any, dtype: int, rows: int, columns: int, leading: int) -> int:
        assert dtype in _STORAGE and leading >= rows > 0 and columns > 0
        return self._made(out, Layout(dtype, rows, columns, leading, {5: 1, 6: 0}))

    def _MatmulPreferenceCreate(self, out: Any) -> int:
        return self._made(out, ("preference", {}))

    def _destroy(self, which: int) -> int:
        del self.objects[which]
        return 0

    _MatmulDescDestroy = _MatrixLayoutDestroy = _MatmulPreferenceDestroy = _destroy

    def _set(self, kind: str, attributes: dict[int, int], name: int, value: int, size: int) -> int:
        assert _ATTRIBUTES[kind][name] == size, "the size tells the attribute's type"
        attributes[name] = int.from_bytes(ctypes.string_at(value, size), "little", signed=name == 6)
        return 0

    def _MatmulDescSetAttribute(self, which: int, name: int, value: int, size: int) -> int:
        return self._set("desc", self.objects[which].attributes, name, value, size)

    def _MatrixLayoutSetAttribute(self, which: int, name: int, value: int, size: int) -> int:
        return self._set("layout", self.objects[which].attributes, name, value, size)

    def _MatmulPreferenceSetAttribute(self, which: int, name: int, value: int, size: int) -> int:
        return self._set("preference", self.objects[which][1], name, value, size)

    def _supported(self, desc: Desc, layouts: list[Layout]) -> bool:
        kind = layouts[0].dtype
        known = (desc.compute, desc.scale, kind) in _KNOWN and all(x.dtype == kind for x in layouts)
        plain = kind in (0, 2, 14)
        return known and (plain or desc.attributes.get(7, 1) == 1)  # epilogues are for real numbers up to 32 bits

    def _MatmulAlgoGetHeuristic(
        self, handle: int, desc: int, a: int, b: int, c: int, d: int, preference: int, asked: int, out: int, found: Any
    ) -> int:
        layouts, wanted = [self.objects[x] for x in (a, b, c, d)], self.objects[preference][1]
        assert asked == 1 and self.objects[handle][0] == "handle"
        if not self._supported(self.objects[desc], layouts) or wanted[1] < WORKSPACE:
            return NOT_SUPPORTED
        number = next(self._numbers).to_bytes(8, "little") * 8
        self._chosen[number] = (desc, a, b, c, d), tuple(wanted.get(k, 256) for k in (5, 6, 7, 8))
        ctypes.memmove(out, number, _ALGORITHM)
        ctypes.memmove(out + _ALGORITHM, WORKSPACE.to_bytes(8, "little") + bytes(4), 12)
        found[0] = 1
        return 0

    def _Matmul(self, handle: int, desc: int, alpha: int, *rest: Any) -> int:
        a, al, b, bl, beta, c, cl, d, dl, algorithm, workspace, size, stream = rest
        driver = self._driver
        if self.objects[handle] != ("handle", driver.getDevice()):
            return NOT_INITIALIZED
        described, alignments = self._chosen[ctypes.string_at(algorithm, _ALGORITHM)]
        assert described == (desc, al, bl, cl, dl), "the algorithm was chosen for another product"
        assert size >= WORKSPACE and driver._find(workspace, size) == driver.getDevice()
        assert all(x % n == 0 for x, n in zip((a, b, c, d), alignments, strict=True))
        description, layouts = self.objects[desc], [self.objects[x] for x in (al, bl, cl, dl)]
        attributes = dict(description.attributes)
        scales = [_number(x, description.scale) for x in (alpha, beta)]
        with driver._lock:
            queue = driver._stream(stream or 0)
            assert queue.device == driver.getDevice()
            for address, layout in zip((a, b, c, d), layouts, strict=True):
                self._reaches(address, layout)
            self.products.append((description.compute, attributes.get(7, 1)))
            ctypes_workspace = (ctypes.c_ubyte * size).from_address(workspace)

            def multiply() -> None:
                ctypes_workspace[0] = ctypes_workspace[size - 1] = 0xEE  # it is the product's meanwhile
                self._compute(description.compute, attributes, scales, (a, b, c, d), layouts)

            queue.put(multiply)
        return 0

    def _reaches(self, address: int, layout: Layout) -> None:
        size = np.dtype(_STORAGE[layout.dtype]).itemsize
        count, step = layout.attributes[5], layout.attributes[6]
        last = (count - 1) * step + (layout.columns - 1) * layout.leading + layout.rows
        assert self._driver._find(address, last * size) == self._driver.getDevice()

    def _compute(
        self, compute: int, attributes: dict[int, int], scales: list[Any], addresses: Any, layouts: list[Layout]
    ) -> None:
        (a, b, c, d), (al, bl, cl, dl) = (
            [_seen(x, layout) for x, layout in zip(addresses, layouts, strict=True)],
            layouts,
        )
        x, y = _wide(a, al.dtype, compute), _wide(b, bl.dtype, compute)
        x = x.swapaxes(1, 2) if attributes.get(3) else x
        y = y.swapaxes(1, 2) if attributes.get(4) else y
        assert x.shape[1:] == (dl.rows, y.shape[1]) and y.shape[2] == dl.columns and x.shape[0] == y.shape[0]
        result = scales[0] * (x @ y)
        if scales[1] != 0:
            result = result + scales[1] * _wide(c, cl.dtype, 68)
        epilogue = attributes.get(7, 1)
        if epilogue & 4:
            vector = Layout(dl.dtype, dl.rows, 1, dl.rows, {5: 1, 6: 0})
            result = result + _wide(_seen(attributes[8], vector), dl.dtype, 68)
        if epilogue & 2:
            result = np.maximum(result, 0)
        d[...] = _narrow(result, dl.dtype)


def _number(address: int, kind: int) -> Any:
    return np.frombuffer(ctypes.string_at(address, np.dtype(_STORAGE[kind]).itemsize), _STORAGE[kind])[0]


def _seen(address: int, layout: Layout) -> Any:
    """The matrices of a layout, (batch, row, column), in their memory."""
    size = np.dtype(_STORAGE[layout.dtype]).itemsize
    count, step = layout.attributes[5], layout.attributes[6]
    last = (count - 1) * step + (layout.columns - 1) * layout.leading + layout.rows
    flat = np.frombuffer((ctypes.c_ubyte * (last * size)).from_address(address), _STORAGE[layout.dtype])
    strides = step * size, size, layout.leading * size
    return np.lib.stride_tricks.as_strided(flat, (count, layout.rows, layout.columns), strides)


def _wide(values: Any, kind: int, compute: int) -> Any:
    """Values as they are multiplied: of tf32, ten bits of the fraction."""
    if kind == 14:
        return (values.astype(np.uint32) << 16).view(np.float32)
    if kind == 2:
        return values.astype(np.float32)
    if compute == 77:
        parts = np.ascontiguousarray(values).view(np.uint32) & np.uint32(0xFFFFE000)
        return parts.view(values.dtype)
    return values


def _narrow(values: Any, kind: int) -> Any:
    if kind != 14:
        return values.astype(_STORAGE[kind])
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


_OUT = ctypes.POINTER(_P)
#: As cublasLt.h declares them: written down a second time, so that a mistake in the backend's own shows.
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_OUT,),
    "cublasLtMatmulDescCreate": (_OUT, _I, _I),
    "cublasLtMatmulDescDestroy": (_P,),
    "cublasLtMatmulDescSetAttribute": (_P, _I, _P, _Z),
    "cublasLtMatrixLayoutCreate": (_OUT, _I, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
    "cublasLtMatrixLayoutDestroy": (_P,),
    "cublasLtMatrixLayoutSetAttribute": (_P, _I, _P, _Z),
    "cublasLtMatmulPreferenceCreate": (_OUT,),
    "cublasLtMatmulPreferenceDestroy": (_P,),
    "cublasLtMatmulPreferenceSetAttribute": (_P, _I, _P, _Z),
    "cublasLtMatmulAlgoGetHeuristic": (_P, _P, _P, _P, _P, _P, _P, _I, _P, ctypes.POINTER(_I)),
    "cublasLtMatmul": (_P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _Z, _P),
}
