"""Kernels whose operands end where the process may read no further: one that does is ended by the system.

Run as a program (``python -m tesserack.testing.conformance.guarding.pages NAME ANSWER [KERNEL ...]``) it goes through
:data:`KERNELS`, but for those named, and writes down what it is about to do: who reads too far ends it.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tesserack as ts

__all__ = ["KERNELS"]

_PAGE = mmap.PAGESIZE
_ROOM, _GUARD = 64 * _PAGE, 16 * _PAGE  # what may be read, and what may not on either side
_DTYPES = ("float32", "float64", "float16", "int64", "uint8")
_COUNTS = (1, 3, 17, 257, 1025, 4099)


class _Block:
    """Device memory of which the middle may be touched."""

    def __init__(self, device: Any) -> None:
        self.memory = ts.empty(_ROOM + 2 * _GUARD + _PAGE, dtype=ts.uint8, device=device)
        address = self.memory.data_ptr()
        self.begin = -address % _PAGE + _GUARD
        self.pages = address + self.begin

    def protect(self, on: bool) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        for start in (self.pages - _GUARD, self.pages + _ROOM):
            if libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(_GUARD), 0 if on else 3):
                raise OSError(ctypes.get_errno(), "mprotect")

    def at(self, nbytes: int, end: bool) -> ts.Tensor:
        begin = self.begin + (_ROOM - nbytes if end else 0)
        return self.memory[begin : begin + nbytes]


class Guards:
    """Tensors that end at the last byte that may be read, or begin at the first."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.blocks = [_Block(device) for _ in range(4)]
        self.taken = 0
        for block in self.blocks:
            block.protect(True)

    def close(self) -> None:
        for block in self.blocks:
            block.protect(False)

    def tensor(self, array: Any, step: int = 1, end: bool = True) -> Any:
        """The elements of an array, the last dimension's ``step`` apart; below zero, of a flipped tensor."""
        array = np.asarray(array)
        far = abs(step)
        wide = np.zeros((*array.shape[:-1], max(array.shape[-1] * far, 1)), array.dtype)
        wide[..., ::far] = array[..., :: -1 if step < 0 else 1]
        flat = wide.reshape(-1)[: wide.size - far + 1]  # nothing follows the last element
        memory = self.blocks[self.taken % len(self.blocks)].at(flat.nbytes, end).view(getattr(ts, str(array.dtype)))
        self.taken += 1
        memory.copy_(ts.from_numpy(flat.copy()))
        pitch = wide.shape[-1]
        strides = [pitch * int(np.prod(array.shape[d + 1 : -1])) for d in range(array.ndim - 1)] + [far]
        x = memory.as_strided(array.shape, strides)
        return x[..., ::-1] if step < 0 else x

    def output(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Room for a result that ends there."""
        return self.tensor(np.zeros(shape, dtype))


def _numbers(dtype: str, *shape: int) -> Any:
    return (np.arange(int(np.prod(shape))) * 7919 % 5).astype(dtype).reshape(shape)


Case = tuple[str, Callable[[], Any]]


def _vectors(guards: Guards, call: Callable[[Any], Any], dtypes: tuple[str, ...] = _DTYPES) -> Iterator[Case]:
    """One operand, contiguous, stepped, flipped, at either end."""
    for dtype in dtypes:
        for count in _COUNTS:
            for layout, step, end in (
                ("contiguous", 1, True),
                ("contiguous, from the first byte", 1, False),
                ("stepped", 3, True),
                ("flipped", -1, False),
            ):
                array = _numbers(dtype, count)
                yield (
                    f"{dtype}, {layout}, {count} elements",
                    lambda a=array, s=step, e=end: call(guards.tensor(a, s, e)),  # type: ignore[misc]
                )


def _matrices(guards: Guards, call: Callable[[Any], Any], dtypes: tuple[str, ...] = _DTYPES) -> Iterator[Case]:
    for dtype in dtypes:
        for shape in ((1, 1), (3, 5), (7, 33), (33, 65), (2, 1025)):
            array = _numbers(dtype, *shape)
            what = f"{dtype}, {shape[0]} x {shape[1]}"
            yield f"{what}, contiguous", lambda a=array: call(guards.tensor(a))  # type: ignore[misc]
            yield f"{what}, transposed", lambda a=array: call(guards.tensor(a).t())  # type: ignore[misc]


def _matmul(guards: Guards) -> Iterator[Case]:
    for dtype in ("float32", "float64", "float16"):
        for m, k, n in ((1, 1, 1), (3, 5, 7), (33, 65, 17), (1, 129, 31), (64, 64, 1), (65, 7, 130)):
            a, b = _numbers(dtype, m, k), _numbers(dtype, k, n)
            what = f"{dtype}, {m} x {k} @ {k} x {n}"
            yield f"{what}, contiguous", lambda a=a, b=b: guards.tensor(a) @ guards.tensor(b)  # type: ignore[misc]
            yield (
                f"{what}, transposed",
                lambda a=a, b=b: guards.tensor(a.T.copy()).t() @ guards.tensor(b.T.copy()).t(),  # type: ignore[misc]
            )


def _index(x: Any, guards: Guards) -> Any:
    return guards.tensor(np.arange(len(x) - 1, -1, -1))


def _binary(guards: Guards) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        ts.mul(x, guards.tensor(_numbers(str(x.dtype)[10:], len(x))), out=guards.output((len(x),), str(x.dtype)[10:]))

    return call


def _copied(guards: Guards) -> Callable[[Any], Any]:
    return lambda x: (guards.output(tuple(x.shape), str(x.dtype)[10:]).copy_(x), x.double(), x.bool())


#: The cases of each required kernel that reads tensors.
KERNELS: dict[str, Callable[[Guards], Iterator[Case]]] = {
    "copy_cast": lambda g: _vectors(g, _copied(g)),
    "copy_cast, matrices": lambda g: _matrices(g, lambda x: x.contiguous()),
    "pointwise": lambda g: _vectors(g, lambda x: (x + 1, x == x)),
    "pointwise of two": lambda g: _vectors(g, _binary(g)),
    "pointwise, broadcast": lambda g: _matrices(g, lambda x: x + x[:, :1] * x[:1]),
    "reduce": lambda g: _vectors(g, lambda x: (x.sum(), x.amax(), x.argmin(), x.any())),
    "reduce, rows and columns": lambda g: _matrices(g, lambda x: (x.sum(0), x.sum(1), x.amax(0), x.argmax(1))),
    "scan": lambda g: _vectors(g, lambda x: (x.cumsum(0), x.cummax(0))),
    "matmul": _matmul,
    "gather": lambda g: _vectors(g, lambda x: (x.gather(0, _index(x, g)), x[_index(x, g)])),
    "gather, rows": lambda g: _matrices(g, lambda x: x[_index(x, g)]),
    "scatter": lambda g: _vectors(g, lambda x: ts.zeros_like(x).scatter(0, _index(x, g), x)),
    "scatter, add": lambda g: _vectors(g, lambda x: ts.zeros_like(x).scatter_add(0, _index(x, g), x)),
    "sort": lambda g: _vectors(g, lambda x: x.sort()),
    "sort, rows": lambda g: _matrices(g, lambda x: x.sort(1)),
}


def main(name: str, answer: str, *done: str) -> None:
    """Run all but what is done."""
    ts.backends.set_fallback("allow")
    device = ts.device(name)
    guards = Guards(device)
    supported = set(ts.backends.capabilities(device.type)["dtypes"])
    with open(answer, "a", encoding="utf-8") as file:
        for kernel, cases in KERNELS.items():
            if kernel in done:
                continue
            for what, call in cases(guards):
                if what.split(",")[0] in supported:
                    print(json.dumps({"kernel": kernel, "what": what}), file=file, flush=True)
                    call()
                    ts.synchronize(device)
            print(json.dumps({"kernel": kernel, "what": None}), file=file, flush=True)
    guards.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
