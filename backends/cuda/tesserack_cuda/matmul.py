"""``matmul`` and ``linear`` by cuBLASLt; generated kernels where it has no such product."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tesserack.backends import WORKSPACE, Block, Buffer, Launch, LaunchPlan, Patch
from tesserack_kernelgen import launcher
from tesserack_kernelgen.card import Call
from tesserack_kernelgen.dtypes import name_of
from tesserack_kernelgen.layout import merge
from tesserack_kernelgen.templates import TEMPLATES

from tesserack_cuda.cublaslt import COMPUTE, CONSTANTS, TYPES, Heuristic, Library

if TYPE_CHECKING:
    from tesserack_cuda.backend import CUDA
    from tesserack_cuda.card import CUDACard

__all__ = ["Matrix", "Products", "Side", "lay_out"]

_SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
_ONES = {"float64": struct.pack("d", 1), "complex64": struct.pack("ff", 1, 0), "complex128": struct.pack("dd", 1, 0)}
_DTYPES = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", *_SIZES)
_ALIGNED = 16  # what a plan knows of the addresses: offsets are the same modulo this


@dataclass(frozen=True)
class Matrix:
    """An operand of a product: its number in the call, and (stride of rows, stride of columns) beside those of the
    batch."""

    operand: int
    steps: tuple[int, int]
    batch: Sequence[int]
    offset: int  # in bytes


@dataclass(frozen=True)
class Side:
    """A matrix as cuBLASLt is told it: stored column after column, perhaps to be transposed."""

    transposed: bool
    rows: int
    columns: int
    leading: int


def lay_out(rows: int, columns: int, steps: tuple[int, int]) -> Side | None:
    """How a strided matrix lies for cuBLASLt; None where neither side is dense, or there is nothing.

    >>> lay_out(3, 4, (1, 3))
    Side(transposed=False, rows=3, columns=4, leading=3)
    >>> lay_out(3, 4, (9, 1))
    Side(transposed=True, rows=4, columns=3, leading=9)
    >>> lay_out(3, 4, (8, 2)) is None
    True
    """
    down, right = steps
    if not rows or not columns:  # cuBLASLt has no matrices without elements
        return None
    if (down == 1 or rows == 1) and (columns == 1 or right >= rows):
        return Side(False, rows, columns, right if columns > 1 else rows)
    if (right == 1 or columns == 1) and (rows == 1 or down >= columns):
        return Side(True, columns, rows, down if rows > 1 else columns)
    return None


@dataclass(frozen=True)
class _Product:
    """``d (m, n) = a (m, k) @ b (k, n)``, all as cuBLASLt is told it; ``c`` is added, and the vector ``bias``."""

    dtype: str
    sizes: tuple[int, int, int]
    batch: Sequence[int]
    a: Matrix
    b: Matrix
    d: Matrix
    c: Matrix | None = None
    bias: Matrix | None = None
    relu: bool = False

    def turned(self) -> _Product:
        """The same with rows for columns throughout."""
        m, n, k = self.sizes

        def turn(x: Matrix | None) -> Any:
            return None if x is None else Matrix(x.operand, x.steps[::-1], x.batch, x.offset)

        a, b, c, d, bias = map(turn, (self.a, self.b, self.c, self.d, self.bias))
        return _Product(self.dtype, (n, m, k), self.batch, b, a, d, c, bias, self.relu)


class Products:
    """The two kernels for the devices of a backend. ``install`` registers them in place of the generated ones."""

    def __init__(self, backend: CUDA, card: CUDACard):
        self._backend, self._card = backend, card

    @functools.cached_property
    def library(self) -> Library | None:
        """cuBLASLt, or None where it is not installed."""
        found = self._backend.driver.library("cublasLt")
        return None if found is None else Library(found)

    def install(self) -> None:
        """Register ``matmul`` and ``linear``."""
        self._backend.kernel("matmul", dtypes=_DTYPES, takes=("epilogue",))(self._kernel("matmul", _matmul))
        self._backend.kernel("linear")(self._kernel("linear", _linear))

    def _kernel(self, op: str, read: Callable[..., _Product | None]) -> Callable[..., Any]:
        generated = TEMPLATES[op]

        def planned(call: Call) -> Any:
            dtype = name_of(call.outputs[0].dtype)
            known = self.library is not None and dtype in _SIZES
            product = read(call.outputs[0], call.inputs, call.epilogue) if known else None
            if product is not None and (plan := self._plan(product, call.device.index, call.precision)):
                return plan
            apart = product is not None and product.bias is not None and dtype == "float64"
            if apart or call.epilogue is not None or dtype.startswith("complex"):
                return LaunchPlan(None)  # the core computes it in parts
            return generated(call)

        return self._card.serve(planned)

    def _plan(self, p: _Product, device: int, precision: str) -> LaunchPlan | None:
        """The launch of a product; None where cuBLASLt has none for it."""
        if p.d.steps[0] != 1 or (p.bias is not None and p.bias.steps[0] != 1):
            p = p.turned()
        described = _Described.of(p)
        if described is None or self.library is None:
            return None
        self._backend.on(device)
        with self._backend.relaxed():
            return described.plan(self.library, self._backend, device, precision)


@dataclass(frozen=True)
class _Described:
    """A product whose matrices all lie as cuBLASLt wants them."""

    product: _Product
    sides: tuple[Side, Side, Side, Side]  # of a, b, c and d
    batch: int
    steps: tuple[int, ...]  # of a, b, c and d within the batch
    outer: int  # products one after another,
    outer_steps: tuple[int, ...]  # and the elements between them

    @classmethod
    def of(cls, p: _Product) -> _Described | None:
        m, n, k = p.sizes
        added = p.c or p.d
        a, b, c, d = (
            lay_out(m, k, p.a.steps),
            lay_out(k, n, p.b.steps),
            lay_out(m, n, added.steps),
            lay_out(m, n, p.d.steps),
        )
        if a is None or b is None or c is None or d is None or c.transposed or d.transposed or len(p.batch) > 2:
            return None
        if p.bias is not None and (p.bias.steps[1] != 0 or (m > 1 and p.bias.steps[0] != 1) or any(p.bias.batch)):
            return None
        largest = max(range(len(p.batch)), key=lambda i: p.batch[i], default=0)
        steps: list[tuple[int, ...]] = [tuple(x.batch) for x in (p.a, p.b, added, p.d)]
        if any(step < 0 for one in steps for step in one):
            return None
        inner = tuple(s[largest] for s in steps) if p.batch else (0,) * 4
        rest = 1 - largest
        outer, outer_steps = (p.batch[rest], tuple(s[rest] for s in steps)) if len(p.batch) == 2 else (1, (0,) * 4)
        return cls(p, (a, b, c, d), p.batch[largest] if p.batch else 1, inner, outer, outer_steps)

    def plan(self, library: Library, backend: CUDA, device: int, precision: str) -> LaunchPlan | None:
        """The launch of it on a device; None where the heuristics find no algorithm."""
        p = self.product
        kind, wide = TYPES[p.dtype], p.dtype in ("float64", "complex128")
        scale = kind if wide or p.dtype == "complex64" else TYPES["float32"]
        compute = "float64" if wide else "float32"
        if p.dtype in ("float32", "complex64") and precision != "highest":
            compute = "tf32"
        epilogue = CONSTANTS["CUBLASLT_EPILOGUE_RELU"] * p.relu | CONSTANTS["CUBLASLT_EPILOGUE_BIAS"] * bool(p.bias)
        # Not read before a launch writes the address, but the alignment is.
        bias = 4096 + p.bias.offset % _ALIGNED if p.bias else 0
        a, b = self.sides[:2]
        desc = library.description(COMPUTE[compute], scale, (int(a.transposed), int(b.transposed)), epilogue, bias)
        layouts = tuple(
            library.layout(kind, side.rows, side.columns, side.leading, self.batch, step)
            for side, step in zip(self.sides, self.steps, strict=True)
        )
        most = 32 << 20 if backend.attributes(device)["major"] >= 9 else 8 << 20
        chosen = library.algorithm(device, desc, layouts, most, self._alignments())
        if chosen is None:
            library.release(desc, layouts)
            return None
        return self._launch(library, backend, device, desc, layouts, chosen)

    def _alignments(self) -> tuple[int, ...]:
        size, p = _SIZES[self.product.dtype], self.product
        starts = (x.offset for x in (p.a, p.b, p.c or p.d, p.d))
        return tuple(
            math.gcd(start, step * size, _ALIGNED) for start, step in zip(starts, self.outer_steps, strict=True)
        )

    def _launch(
        self, library: Library, backend: CUDA, device: int, desc: int, layouts: tuple[int, ...], chosen: Heuristic
    ) -> LaunchPlan:
        p, size = self.product, _SIZES[self.product.dtype]
        one = _ONES.get(p.dtype, struct.pack("f", 1))
        kernel = launcher.cublaslt_product(
            matmul=library.matmul,
            set_attribute=library.set_attribute,
            set_context=backend.driver.set_context,
            context=int(backend.driver.driver.ctxGetCurrent()),
            handle=library.handle(device),
            desc=desc,
            layouts=layouts,
            algorithm=bytes(chosen.algorithm),
            alpha=one,
            beta=one if p.c else bytes(len(one)),
            workspace_bytes=chosen.workspace_bytes,
            outer=self.outer,
            outer_steps=tuple(step * size for step in self.outer_steps),
            has_c=p.c is not None,
            has_bias=p.bias is not None,
        )
        used = [x for x in (p.d, p.a, p.b, p.c, p.bias) if x is not None]
        arguments: list[Buffer | Block] = [Buffer(x.operand) for x in used]
        if chosen.workspace_bytes:
            arguments.append(Buffer(WORKSPACE))
        patches = [Patch(8 * k, "offset", x.operand, "q") for k, x in enumerate(used)]
        arguments.append(Block(bytes(8 * len(used)), patches))
        launch = Launch(launcher.address("cublaslt"), kernel, (1, 1, 1), (1, 1, 1), arguments)
        return LaunchPlan([launch], int(chosen.workspace_bytes))


# --- calls as products ------------------------------------------------------------------------------------------------


def _is_relu(program: Any) -> bool:
    """Whether a program is ``max(x, 0)`` of its one input."""
    if program.n_inputs != 1 or tuple(program.constants) != (0.0,) or len(program.instructions) != 1:
        return False
    name, *operands = program.instructions[0]
    return name == "max" and sorted(operands) == [0, 1] and tuple(program.outputs) == (2,)


def _matmul(out: Any, inputs: tuple[Any, ...], epilogue: Any) -> _Product | None:
    """``matmul`` as the contract has it: a, b, perhaps an addend, and what an epilogue reads."""
    a, b, *rest = inputs
    added = rest[0] if rest else None
    if len(rest) > 1 or (epilogue is not None and not _is_relu(epilogue)):
        return None
    if any(x is not None and (not hasattr(x, "strides") or x.dtype != out.dtype) for x in (a, b, added)):
        return None
    others = added.strides if added is not None else (0,) * len(out.shape)
    batch, (of_a, of_b, of_d, of_c) = merge(
        out.shape[:-2], a.strides[:-2], b.strides[:-2], out.strides[:-2], others[:-2]
    )
    kept = [k for k, size in enumerate(batch) if size != 1]

    def matrix(operand: int, x: Any, steps: Sequence[int]) -> Matrix:
        return Matrix(operand, (x.strides[-2], x.strides[-1]), [steps[k] for k in kept], x.byte_offset)

    third = None if added is None else matrix(3, added, of_c)
    is_bias = third is not None and 0 in third.steps and not any(third.batch)
    return _Product(
        name_of(out.dtype),
        (out.shape[-2], out.shape[-1], a.shape[-1]),
        [batch[k] for k in kept],
        matrix(1, a, of_a),
        matrix(2, b, of_b),
        matrix(0, out, of_d),
        None if is_bias else third,
        third if is_bias else None,
        epilogue is not None,
    )


def _linear(out: Any, inputs: tuple[Any, ...], epilogue: Any) -> _Product | None:
    """``linear``: x and out are contiguous; the weight is (n, k), the bias (n)."""
    x, weight, bias = inputs
    n, k = weight.shape
    if not hasattr(weight, "strides") or (bias is not None and not hasattr(bias, "strides")):
        return None
    down, right = weight.strides
    return _Product(
        name_of(out.dtype),
        (out.numel // n, n, k),
        (),
        Matrix(1, (k, 1), (), x.byte_offset),
        Matrix(2, (right, down), (), weight.byte_offset),
        Matrix(0, (n, 1), (), out.byte_offset),
        bias=None if bias is None else Matrix(3, (0, bias.strides[0] if n > 1 else 1), (), bias.byte_offset),
    )
