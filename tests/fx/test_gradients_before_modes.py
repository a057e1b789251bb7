"""Gradients that a mode of ``__torch_dispatch__`` looks on at, which go by the parts that it sees, are the same."""

from __future__ import annotations

import pytest
import tesserack as ts
from tesserack.aten.modes import TorchDispatchMode
from tesserack.fx.experimental.proxy_tensor import make_fx
from tesserack.ops.registry import operators, said


class Looking(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


NAMES = sorted(
    name for name in said("elementwise") if name in operators() and not name.startswith("_") and not name.endswith("_")
)
DTYPES = [ts.float64, ts.complex128]


def operands(count: int, dtype: ts.dtype) -> list[ts.Tensor]:
    draw = ts.Generator().manual_seed(5)
    return [(ts.rand(4, dtype=dtype, generator=draw) * 0.5 + 0.25).requires_grad_() for _ in range(count)]


def gradients(function, given):
    out = function(*given)
    out = out[0] if isinstance(out, tuple) else out
    if not out.requires_grad:
        return None
    loss = (ts.view_as_real(out) if out.is_complex() else out).pow(2).mul(ts.arange(1.0, 5.0).double().view(
        -1, *[1] * out.is_complex()) if out.ndim else 1.0).sum()  # fmt: skip
    return ts.autograd.grad(loss, given, allow_unused=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pointwise_gradients(dtype):
    compared = set()
    for name in NAMES:
        for count in (1, 2, 3):
            given = operands(count, dtype)
            try:
                expected = gradients(operators()[name], given)
            except (RuntimeError, TypeError, ValueError, NotImplementedError):
                continue  # takes other numbers of operands, or no complex ones
            if expected is None:
                continue
            with Looking():
                found = gradients(operators()[name], given)
            for a, b in zip(found, expected, strict=True):
                assert (a is None) == (b is None), name
                if a is not None:
                    ts.testing.assert_close(a, b, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}")
            compared.add(name)
    assert {"mul", "div", "exp", "sqrt", "log", "sin", "cos", "add", "sub"} <= compared
    assert len(compared) > (60 if dtype.is_floating_point else 25)


@pytest.mark.parametrize("alpha", [2, 1 + 2j])
def test_factors_of_complex_sums(alpha):
    a, b = operands(2, ts.complex128)
    for function in (ts.add, ts.sub):
        expected = gradients(lambda a, b, f=function: f(a, b, alpha=alpha), [a, b])
        with Looking():
            found = gradients(lambda a, b, f=function: f(a, b, alpha=alpha), [a, b])
        ts.testing.assert_close(found, expected)


def test_a_graph_of_a_complex_gradient():
    def step(x):
        return ts.func.grad(lambda x: ((x * (1 + 2j)).exp() / (x + 3)).abs().sum())(x)

    x = ts.randn(3, dtype=ts.complex128)
    ts.testing.assert_close(make_fx(step)(x)(x * 2), step(x * 2))


CONJUGATED = {
    "product": lambda x: x.conj() * 2,
    "matmul": lambda x: x.conj() @ x,
    "resolved": lambda x: ts.view_as_real(x.conj().resolve_conj()),
    "negative": lambda x: x.conj().imag * 2,
    "written": lambda x: x.clone().conj().mul_(2) + x,
    "copied": lambda x: ts.empty_like(x).copy_(x.conj()),
    "list": lambda x: ts.cat([x.conj(), x]),
}


NOT_FAKE = {"resolved", "negative"}


@pytest.mark.parametrize("mode", ["real", "fake"])
@pytest.mark.parametrize("name", CONJUGATED)
def test_graphs_of_pending_conjugates(request, name, mode):
    if mode == "fake" and name in NOT_FAKE:
        reason = "a fake tensor does not say that it is conjugate"
        request.applymarker(pytest.mark.xfail(raises=RuntimeError, strict=True, reason=reason))
    function, x = CONJUGATED[name], ts.randn(3, dtype=ts.complex64)
    ts.testing.assert_close(make_fx(function, tracing_mode=mode)(x)(x * 2), function(x * 2))
