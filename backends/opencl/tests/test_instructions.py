"""Every instruction of pointwise programs, for every type of register, beside the reference in NumPy.

One kernel per type computes them all, since compiling is what takes the time.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

cl = pytest.importorskip("pyopencl")
reference = pytest.importorskip("tesserack_reference", reason="the oracle is tesserack-reference")

UNARY = (
    *("copy", "neg", "abs", "sign", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin"),
    *("cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv"),
    *("lgamma", "digamma", "sigmoid", "recip", "floor", "ceil", "trunc", "round", "not"),
)
BINARY = (
    *("add", "sub", "mul", "div", "floordiv", "mod", "fmod", "pow", "max", "min", "atan2", "hypot", "copysign"),
    *("eq", "ne", "lt", "le", "gt", "ge"),
)
INTEGER_UNARY = ("copy", "neg", "abs", "sign", "floor", "bitnot", "not")
INTEGER_BINARY = (
    *("add", "sub", "mul", "div", "floordiv", "mod", "fmod", "pow", "max", "min", "and", "or", "xor", "shl", "shr"),
    *("eq", "ne", "lt", "le", "gt", "ge"),
)
TYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "u64": np.uint64}


def operands(c: str) -> tuple[Any, Any]:
    """Pairs of numbers, special ones included; no divisor of integers is 0."""
    rng = np.random.default_rng(0)
    if c.startswith("f"):
        special = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            2.5,
            -2.5,
            3.5,
            np.inf,
            -np.inf,
            np.nan,
            1e-6,
            0.999,
            -0.999,
            30.25,
            -7.75,
            -1e-30,
        ]
        a = np.concatenate([np.repeat(special, len(special)), rng.normal(size=500), rng.normal(size=500) * 20])
        b = np.concatenate([np.tile(special, len(special)), rng.normal(size=1000)])
    else:
        bits = int(c[1:])
        low, high = (0, 2**64 - 1) if c == "u64" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        special = [v for v in (low, high, -1, 1, 2, 3, -7, 7, bits - 1, bits, 100) if low <= v <= high]
        a = np.array([x for x in [0, *special] for _ in special], TYPES[c])
        b = np.array([y for _ in [0, *special] for y in special], TYPES[c])
    return a.astype(TYPES[c]), b.astype(TYPES[c])


def compute(c: str, a: Any, b: Any, instructions: list[tuple[Any, ...]]) -> Any:
    """Every instruction on OpenCL: rows of results."""
    from tesserack_kernelgen.emit import program_text
    from tesserack_kernelgen.opencl import OPENCL
    from tesserack_opencl.devices import find

    found = find()[0][0]
    program = SimpleNamespace(constants=(), instructions=instructions, outputs=range(2, 2 + len(instructions)))
    lines, values, helpers = program_text(program, ["x", "y"], c, lambda divisor: "")
    stores = "\n".join(f"out[{k} * n + i] = {value};" for k, value in enumerate(values))
    body = f"""{helpers}
__kernel void instructions(__global const {c}* a, __global const {c}* b, __global {c}* out, int n) {{
  const int i = get_global_id(0);
  const {c} x = a[i], y = b[i];
  {chr(10).join(lines)}
  {stores}
}}"""
    kernel = cl.Kernel(cl.Program(found.context, OPENCL.text(body, found.fp64)).build(), "instructions")
    queue, out = cl.CommandQueue(found.context), np.empty((len(instructions), a.size), a.dtype)
    flags = cl.mem_flags.COPY_HOST_PTR
    memory = cl.Buffer(found.context, 0, out.nbytes)
    kernel(
        queue, (a.size,), None, *(cl.Buffer(found.context, flags, hostbuf=x) for x in (a, b)), memory, np.int32(a.size)
    )
    cl.enqueue_copy(queue, out, memory)
    return out


@pytest.mark.parametrize("c", TYPES)
def test_instructions(c: str) -> None:
    a, b = operands(c)
    real = c.startswith("f")
    unary, binary = (UNARY, BINARY) if real else (INTEGER_UNARY, INTEGER_BINARY)
    names = [*unary, *binary]
    found = compute(c, a, b, [(name, 0) for name in unary] + [(name, 0, 1) for name in binary])
    wrong = []
    for name, row in zip(names, found, strict=True):
        given = (a,) if name in unary else (a, b)
        wide = [x.astype(np.float64) for x in given] if c == "f32" and name not in ("copy", "not") else given
        with np.errstate(all="ignore"):
            expected = np.asarray(reference.instruction(name)(*wide)).astype(a.dtype)
        if not real:
            same = row == expected
        else:
            tolerance = {"f32": 3e-5, "f64": 1e-12}[c] * (10 if name in ("digamma", "lgamma", "erfinv") else 1)
            same = np.isclose(row, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
        if not same.all():
            at = int(np.argmin(same))
            wrong.append(f"{name}({', '.join(str(x[at]) for x in given)}) = {row[at]}, expected {expected[at]}")
    assert not wrong, "\n".join(wrong)
