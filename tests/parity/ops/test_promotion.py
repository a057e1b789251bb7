"""Result dtypes of every pair of dtypes, as tensors, 0-d tensors and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
import torch
from tesserack.testing import cases

BINARY = (
    "add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "maximum", "fmin", "atan2", "hypot",
    "eq", "lt", "ge", "logical_and", "bitwise_and", "bitwise_left_shift", "copysign",
    "heaviside", "xlogy", "float_power",
)  # fmt: skip
OTHERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "where": lambda m, a, b: m.where(m.tensor([True]), a, b),
    "cat": lambda m, a, b: m.cat([a.reshape(-1), b.reshape(-1)]),
    "addcmul": lambda m, a, b: m.addcmul(a, b, b),
    "clamp": lambda m, a, b: m.clamp(a, b),
    "mul_": lambda m, a, b: a.mul_(b),
    "div_": lambda m, a, b: a.div_(b),
    "add out": lambda m, a, b: m.add(a, a, out=b),
    "masked_fill": lambda m, a, b: m.masked_fill(a, m.tensor([True]), b),
    "index_put": lambda m, a, b: m.index_put(a.reshape(1), [m.tensor([0])], b.reshape(1)),
    "result_type": lambda m, a, b: m.empty(0, dtype=m.result_type(a, b)),
    "promote_types": lambda m, a, b: m.empty(0, dtype=m.promote_types(a.dtype, b.dtype)),
    "can_cast": lambda m, a, b: m.tensor(m.can_cast(a.dtype, b.dtype)),
    "lerp": lambda m, a, b: m.lerp(a, b, 0.5),
    "isclose": lambda m, a, b: m.isclose(a, b),
    "mm": lambda m, a, b: a.reshape(1, 1).mm(b.reshape(1, 1)),
    "stack": lambda m, a, b: m.stack([a, b]),
}
NUMBERS = (True, 2, 2.5)


def outcome(call: Callable[[], Any]) -> str:
    """The dtype of a result, or that there is none."""
    try:
        return str(call().dtype).rsplit(".", 1)[-1]
    except (RuntimeError, TypeError, IndexError, NotImplementedError) as error:
        return "refused" if "not implemented for" not in str(error) else "not implemented"


# PyTorch refuses these for what would be lost; elsewhere it refuses some combinations that have an obvious meaning.
STRICT = {"mul_", "div_", "lerp", "add out", "bitwise_and", "bitwise_left_shift", "mm", "index_put"}


def agree(name: str, ours: str, theirs: str, what: str) -> None:
    """What PyTorch computes has the same dtype here; what it refuses so that nothing is lost is refused here."""
    if theirs == "not implemented" or (theirs == "refused" and name not in STRICT):
        return
    assert ours == theirs, f"{what}: {ours}, not {theirs}"


def make(module: Any, dtype: str, dims: int) -> Any:
    return module.ones([1] * dims, dtype=getattr(module, dtype))


@pytest.mark.filterwarnings("ignore:.*resized")
@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("name", [*BINARY, *OTHERS])
def test_tensors(name: str, dtype: str) -> None:
    """Tensors with one dim and with none, of every other dtype."""
    call = OTHERS.get(name) or (lambda m, a, b: getattr(m, name)(a, b))
    for other in cases.DTYPES:
        for dims in ((1, 1), (1, 0), (0, 1), (0, 0)):
            found, expected = (
                outcome(lambda: call(m, make(m, dtype, dims[0]), make(m, other, dims[1])))  # noqa: B023
                for m in (ts, torch)
            )
            agree(name, found, expected, f"{name} of {dtype} and {other}, dims {dims}")


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_numbers(name: str, dtype: str) -> None:
    """Python numbers on either side."""
    for number in NUMBERS:
        for dims in (0, 1):
            for swap in (False, True):

                def call(module: Any) -> Any:
                    operands = (make(module, dtype, dims), number)  # noqa: B023
                    return getattr(module, name)(*(operands[::-1] if swap else operands))  # noqa: B023

                found, expected = outcome(lambda: call(ts)), outcome(lambda: call(torch))
                agree(name, found, expected, f"{name} of {dtype} and {number!r}, dims {dims}, swapped {swap}")
