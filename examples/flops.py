"""A dispatch key that logs operators and counts floating-point operations, and one that traps NaN.

    python examples/flops.py

Both are registered from outside, as a plugin would: they see every call on its way to a backend, forward and backward.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import tesserack as ts

flops = ts.dispatch.register_key("FlopCounter", after="Autograd")
counts: Counter[str] = Counter()
work: Counter[str] = Counter()


@flops.fallback
def log(call: ts.dispatch.Call, *args: Any) -> Any:
    """Every operator is logged by name."""
    counts[call.op] += 1
    return call.redispatch(*args)


@flops.kernel("mm")
def count_mm(call: ts.dispatch.Call, a: ts.Tensor, b: ts.Tensor) -> Any:
    """Two operations per element of the product and step along the inner dimension."""
    work["mm"] += 2 * a.shape[0] * a.shape[1] * b.shape[1]
    return log(call, a, b)


@flops.kernel("linear")
def count_linear(call: ts.dispatch.Call, x: ts.Tensor, weight: ts.Tensor, bias: ts.Tensor | None) -> Any:
    """A product of all rows with the weight, and the bias."""
    work["linear"] += 2 * x.numel() * weight.shape[0]
    return log(call, x, weight, bias)


trap = ts.dispatch.register_key("NanTrap", before="FlopCounter")


@trap.fallback
def check(call: ts.dispatch.Call, *args: Any) -> Any:
    """Whatever makes a NaN of finite inputs is named."""
    result = call.redispatch(*args)
    if isinstance(result, ts.Tensor) and result.is_floating_point() and bool(result.isnan().any()):
        raise FloatingPointError(f"{call.op} made a NaN of shape {tuple(result.shape)}")
    return result


def main() -> None:
    """Count the work of a small model's training step, then provoke a NaN."""
    ts.manual_seed(0)
    model = ts.nn.Sequential(ts.nn.Linear(64, 128), ts.nn.ReLU(), ts.nn.Linear(128, 10))
    x, y = ts.randn(32, 64), ts.randint(0, 10, (32,))
    with flops.enabled():
        ts.nn.functional.cross_entropy(model(x), y).backward()
    for name, times in counts.most_common(8):
        print(f"{name:28} {times:4} calls {work[name]:12,} operations")
    forward = 2 * 32 * (64 * 128 + 128 * 10)
    print(f"forward: {work['linear']:,} operations, expected {forward:,}")
    with trap.enabled():
        try:
            (ts.zeros(3) * math.inf).sum()
        except FloatingPointError as error:
            print(f"trapped: {error}")


if __name__ == "__main__":
    main()
