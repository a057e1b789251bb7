"""``matmul`` and ``linear``: products of strided matrices, batched, with an addend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tesserack.backends import LaunchPlan

from tesserack_kernelgen.dtypes import name_of
from tesserack_kernelgen.layout import merge
from tesserack_kernelgen.templates._by_vector import DEEP, LONG, by_vector
from tesserack_kernelgen.templates._factor import Axis, Factor
from tesserack_kernelgen.templates._product import Addend, Product, plan
from tesserack_kernelgen.templates._registry import template

if TYPE_CHECKING:
    from tesserack_kernelgen.call import Call

__all__ = ["accumulate_dtype", "linear", "matmul"]


def accumulate_dtype(dtype: str) -> str:
    """The dtype in which sums of a dtype are kept.

    >>> accumulate_dtype("float16"), accumulate_dtype("int8")
    ('float32', 'int64')
    """
    if dtype in ("float16", "bfloat16", "float32"):
        return "float32"
    return dtype if dtype in ("float64", "uint64") else "int64"


def _matrix(operand: int, outer: tuple[int, int], inner: tuple[int, int], batch: Sequence[int]) -> Factor:
    """A factor with one stride along each side; sides are given as (size, stride)."""
    near_k = inner[1] == 1 or (outer[1] != 1 and abs(inner[1]) <= abs(outer[1]))
    run = "inner" if (near_k and inner[0] > 1) or outer[0] == 1 else "outer"
    return Factor(operand, Axis(outer[:1], outer[1:]), Axis(inner[:1], inner[1:]), run=run, batch=batch)


@template("matmul")
def matmul(call: Call) -> Any:
    """``out (batch..., m, n) = a (batch..., m, k) @ b (batch..., k, n)``, and a third input added to it."""
    out, (a, b, *rest) = call.outputs[0], call.inputs
    third: Any = rest[0] if rest else None
    d = third.strides if hasattr(third, "strides") else (0,) * len(out.shape)
    m, n, k = out.shape[-2], out.shape[-1], a.shape[-1]
    batch, (za, zb, zc, zd) = merge(out.shape[:-2], a.strides[:-2], b.strides[:-2], out.strides[:-2], d[:-2])
    left = _matrix(0, (m, a.strides[-2]), (k, a.strides[-1]), za)
    right = _matrix(1, (n, b.strides[-1]), (k, b.strides[-2]), zb)
    steps = (out.strides[-2], out.strides[-1])
    added = (d[-2], d[-1])
    if call.device.serial and not batch and third is None and min(m, n) == 1:
        row = m == 1  # whether the vector stands on the left
        matrix, size, vector = (1, n, a.strides[-1]) if row else (0, m, b.strides[-2])
        along = b.strides[-2:][::-1] if row else a.strides[-2:]
        dtype = name_of(out.dtype)
        kept = accumulate_dtype(call.compute or dtype) == dtype
        if kept and LONG <= k <= DEEP and size >= LONG and 1 in along:
            return LaunchPlan([by_vector(call, matrix, (size, k), along, vector, steps[row])])
    if n < 16 <= m:  # as the transposed product, so that the longer side is the one of vectors
        left, right, m, n, steps, added = right, left, n, m, steps[::-1], added[::-1]
    addend = None if third is None else Addend(2, *added, zd)
    compute = accumulate_dtype(call.compute or name_of(out.dtype))
    return plan(call, Product((m, n, k), left, right, steps[0], (0, steps[1]), n, compute, batch, zc, addend))


@template("linear")
def linear(call: Call) -> Any:
    """``out (..., n) = x (..., k) @ weight (n, k) transposed + bias (n)``; x and out are contiguous."""
    out, (_, weight, bias) = call.outputs[0], call.inputs
    n, k = weight.shape
    rows = out.numel // n
    left = _matrix(0, (rows, k), (k, 1), ())
    right = _matrix(1, (n, weight.strides[0]), (k, weight.strides[1]), ())
    compute = accumulate_dtype(name_of(out.dtype))
    if n < 16 <= rows:
        addend = None if bias is None else Addend(2, _step(bias), 0)
        return plan(call, Product((n, rows, k), right, left, 1, (0, n), rows, compute, addend=addend))
    addend = None if bias is None else Addend(2, 0, _step(bias))
    return plan(call, Product((rows, n, k), left, right, n, (0, 1), n, compute, addend=addend))


def _step(bias: Any) -> int:
    return int(bias.strides[0]) if hasattr(bias, "strides") and bias.numel > 1 else 0
