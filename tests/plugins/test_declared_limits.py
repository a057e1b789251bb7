"""What a kernel declares it takes is all it is called with: dtypes and layouts, of pointwise programs as of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from bytes_backend import Bytes
from tesserack import _native
from tesserack.backends import Operand

native: Any = _native
FUNCTIONS = {"add": np.add, "mul": np.multiply, "neg": np.negative, "copy": np.positive}


def values(x: Any) -> Any:
    return np.ndarray(x.shape, str(x.dtype)[10:], x.handle, x.byte_offset, x.byte_strides) if is_tensor(x) else x


def is_tensor(x: Any) -> bool:
    return isinstance(x, Operand)


class Strict(Bytes):
    """Its pointwise kernel takes contiguous float32, and notes what it is given."""

    def __init__(self) -> None:
        super().__init__("strict")
        self.seen: list[tuple[str, tuple[int, ...], bool]] = []
        self.kernel("pointwise", dtypes=[ts.float32], layout="contiguous")(self.pointwise)
        self.kernel("copy_cast")(self.copy_cast)

    def pointwise(self, *, program: Any, outputs: Any, inputs: Any) -> None:
        self.seen += [(str(x.dtype), x.shape, x.is_contiguous) for x in (*outputs, *inputs) if is_tensor(x)]
        registers = [*map(values, inputs), *program.constants]
        for name, *operands in program.instructions:
            registers.append(FUNCTIONS[name](*(registers[k] for k in operands)))
        for out, register in zip(outputs, program.outputs, strict=True):
            values(out)[...] = registers[register]

    def copy_cast(self, out: Operand, x: Operand) -> None:
        values(out)[...] = values(x)


@pytest.fixture(scope="module")
def strict() -> Strict:
    backend = Strict()
    native._register_python_backend(backend, __file__)
    return backend


@pytest.fixture
def fallback() -> Iterator[None]:
    ts.backends.reset_fallbacks()
    ts.backends.set_fallback("allow")
    yield
    ts.backends.set_fallback("warn")


@pytest.mark.usefixtures("fallback")
@pytest.mark.parametrize("dtype", [ts.float32, ts.float64, ts.int64], ids=str)
@pytest.mark.parametrize("case", ["contiguous", "transposed", "broadcast", "in place", "number", "slice"])
def test_a_pointwise_kernel_gets_what_it_declares(strict: Strict, dtype: ts.dtype, case: str) -> None:
    x, y = ts.arange(12).reshape(3, 4).to(dtype), (ts.arange(12) * 5).reshape(4, 3).to(dtype)
    strict.seen.clear()

    def compute(a: ts.Tensor, b: ts.Tensor) -> ts.Tensor:
        if case == "contiguous":
            return a + b.reshape(3, 4)
        if case == "transposed":
            return a * b.t()
        if case == "broadcast":
            return a + b[0, :1]
        if case == "in place":
            a.t().mul_(b)
            return a
        if case == "number":
            return a.t() * 3
        a[:, 1:3].add_(b[:3, :2])
        return a

    expected = compute(x.clone(), y)
    assert ts.equal(compute(x.to("strict"), y.to("strict")).cpu(), expected)
    assert all(name == "tesserack.float32" and contiguous for name, _, contiguous in strict.seen)
    assert bool(strict.seen) == (dtype is ts.float32)
    assert ("pointwise" in ts.backends.fallbacks()) == (dtype is not ts.float32)


@pytest.mark.usefixtures("fallback")
def test_contiguous_operands_are_of_one_dimension(strict: Strict) -> None:
    strict.seen.clear()
    x = ts.ones(2, 3, 4).to("strict")
    _ = x.transpose(0, 1) + x.permute(1, 0, 2) * 2
    assert {shape for _, shape, _ in strict.seen} == {(24,)}
