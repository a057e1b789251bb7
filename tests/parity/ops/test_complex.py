"""Complex numbers on both libraries: values, dtypes, gradients, errors and how they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch

RNG = np.random.default_rng(41)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)


A, B, V, M = draw(3, 4), draw(4), draw(5), draw(2, 4, 3)
IMAGE, KERNEL, BIAS = draw(2, 4, 7), draw(6, 2, 3), draw(6)
REAL = RNG.standard_normal((3, 4))

# Calls of both modules `m`, over tensors of the arrays after them.
CALLS: list[tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = [
    (lambda m, a, b: m.add(a, b, alpha=2 - 1j), (A, B)),
    (lambda m, a, b: a * b / (a + 3), (A, B)),
    (lambda m, a, r: a * r + r, (A, REAL)),
    (lambda m, a, r: r - a, (A, REAL)),
    (lambda m, a: 2 / a - 1j * a, (A,)),
    (lambda m, a: a**2 + a**3 + a**-1 + a**0.5 + a**1.5, (A,)),
    (lambda m, a: (1 + 1j) ** a, (A,)),
    (lambda m, a: m.sum(a), (A,)),
    (lambda m, a: m.sum(a, 1), (A,)),
    (lambda m, a: a.mean(0, keepdim=True), (A,)),
    (lambda m, a: a.prod(), (A,)),
    (lambda m, a: a.prod(1), (A,)),
    (lambda m, a: a.cumsum(1), (A,)),
    (lambda m, a: a.cumprod(0), (A,)),
    (lambda m, a: a.var(1), (A,)),
    (lambda m, a: a.std(), (A,)),
    (lambda m, a: m.linalg.vector_norm(a, 2, 1), (A,)),
    (lambda m, a: m.linalg.vector_norm(a, 1), (A,)),
    (lambda m, a: m.linalg.vector_norm(a, 3.5), (A,)),
    (lambda m, a: m.linalg.vector_norm(a, float("inf"), 0), (A,)),
    (lambda m, a: a.norm(), (A,)),
    (lambda m, a, b: a @ b, (A, B)),
    (lambda m, a, c: a @ c, (A, M)),
    (lambda m, a: a @ a.mH, (A,)),
    (lambda m, a: a.H @ a, (A,)),
    (lambda m, c: m.bmm(c, c.adjoint()), (M,)),
    (lambda m, v: m.dot(v, v), (V,)),
    (lambda m, v: m.outer(v, v.conj()), (V,)),
    (lambda m, a, b: m.addmm(a @ a.mH, a, a.mT, beta=0.5j, alpha=2 - 1j), (A, B)),
    (lambda m, a, c: m.einsum("ij,bjk->bik", a, c), (A, M)),
    (lambda m, a, b: m.nn.functional.linear(a, m.stack([b, b * 1j])), (A, B)),
    (lambda m, x, w, b: m.nn.functional.conv1d(x, w, b, stride=2, padding=1, groups=2), (IMAGE, KERNEL, BIAS)),
    (lambda m, x, w: m.nn.functional.conv_transpose1d(x, w.transpose(0, 1)[:, :4].transpose(0, 1)), (IMAGE, KERNEL)),
    (lambda m, a: m.view_as_real(a * 2), (A,)),
    (lambda m, a: m.view_as_complex(m.view_as_real(a) * 2.0), (A,)),
    (lambda m, a: a.real * a.imag, (A,)),
    (lambda m, a: m.polar(a.abs(), a.angle() + 1), (A,)),
    (lambda m, a: m.complex(a.imag, a.real), (A,)),
    (lambda m, a: a.sgn() + a.abs() + a.angle(), (A,)),
    (lambda m, a: m.where(a.real > 0, a, a.conj() * 2), (A,)),
    (lambda m, a: a.masked_fill(a.imag > 0, 1 - 2j), (A,)),
    (lambda m, a: m.cat([a, a.conj()], 1)[:, 2:6].T, (A,)),
    (lambda m, a: a[[2, 0], 1:] * a[1, 1:], (A,)),
    (lambda m, a: a.index_select(1, m.tensor([3, 0])), (A,)),
    (lambda m, a: m.diff(a, dim=1), (A,)),
    (lambda m, a: a.to(m.complex64).to(m.complex128), (A,)),
    (lambda m, r: r.to(m.complex128) * 1j, (REAL,)),
    (lambda m, a: m.nn.functional.pad(a, (1, 2), value=1.5), (A,)),
    (lambda m, a: a.diagonal().sum() + m.trace(a), (A,)),
    (lambda m, a: m.roll(a.flip(1), 1, 0).reshape(2, 6), (A,)),
    (lambda m, a: a.sum(dtype=m.complex64), (A,)),
    (lambda m, a: m.lerp(a, a.conj(), 0.25), (A,)),
    (lambda m, a: a.exp().sinh().tanh(), (A / 4,)),
]


def leaf(m: Any, array: np.ndarray) -> Any:
    return m.tensor(array.tolist(), dtype=m.complex128 if np.iscomplexobj(array) else m.float64, requires_grad=True)


def run(m: Any, call: Callable[..., Any], arrays: tuple[np.ndarray, ...]) -> list[Any]:
    """The result and the gradients of a real loss by it."""
    leaves = [leaf(m, array) for array in arrays]
    result = call(m, *leaves)
    weights = m.arange(1.0, result.numel() + 1, dtype=m.float64).reshape(result.shape).cos()
    loss = (result.real * weights).sum()
    if result.is_complex():
        loss = loss + (result.imag * weights.sin()).sum()
    loss.backward()
    return [result.detach(), *(x.grad for x in leaves)]


@pytest.mark.parametrize("case", range(len(CALLS)))
def test_call(case: int) -> None:
    call, arrays = CALLS[case]
    for ours, theirs in zip(run(ts, call, arrays), run(torch, call, arrays), strict=True):
        if theirs is None:
            assert ours is None or not ours.abs().sum().item()
            continue
        assert str(ours.dtype).rsplit(".", 1)[-1] == str(theirs.dtype).rsplit(".", 1)[-1]
        tolerance = 1e-5 if theirs.dtype is torch.complex64 else 1e-10
        np.testing.assert_allclose(ours.numpy(), theirs.resolve_conj().numpy(), rtol=tolerance, atol=tolerance)


REFUSED: list[Callable[..., Any]] = [
    lambda m, a: a < a,
    lambda m, a: a.max(),
    lambda m, a: a.argmax(),
    lambda m, a: a.sort(),
    lambda m, a: m.floor(a),
    lambda m, a: m.erf(a),
    lambda m, a: m.sign(a),
    lambda m, a: m.relu(a),
    lambda m, a: a.clamp(min=0),
    lambda m, a: a % a,
    lambda m, a: a // a,
    lambda m, a: m.maximum(a, a),
    lambda m, a: m.atan2(a, a),
    lambda m, a: a & a,
    lambda m, a: a.real.mul_(1j),
    lambda m, a: m.imag(a.real),
    lambda m, a: m.ones(2, dtype=m.complex128, requires_grad=True).sum().backward(),
    lambda m, a: float(a[0, 0]),
    lambda m, a: m.add(a.real, a.real, alpha=1j),
    lambda m, a: m.view_as_complex(a.real),
    lambda m, a: a.cummax(0),
    lambda m, a: m.isposinf(a),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refused(case: int) -> None:
    for m in (torch, ts):
        with pytest.raises((RuntimeError, TypeError)):
            REFUSED[case](m, m.tensor(A.tolist(), dtype=m.complex128))


@pytest.mark.parametrize(
    "text",
    [
        "m.tensor([1 + 2j, -3.5j, 0])",
        "m.tensor([[1e-5 + 2e4j, 3 - 1j]])",
        "m.tensor(1 - 1j, dtype=m.complex128)",
        "m.tensor([complex(float('nan'), float('inf'))])",
        "m.tensor([1j]).conj().resolve_conj()",
        "m.full((2,), 1j)",
        "m.ones(2, dtype=m.complex64)",
        "m.zeros(2, 0, dtype=m.complex64)",
        "m.eye(2, dtype=m.complex64) * (1 + 1j)",
    ],
)
def test_written(text: str) -> None:
    ours, theirs = repr(eval(text, {"m": ts})), repr(eval(text, {"m": torch}))
    assert ours.replace("tesserack", "torch") == theirs


def test_result_types() -> None:
    kinds = ("float16", "float32", "float64", "complex64", "complex128", "int64", "bool")
    for kind in kinds:
        for other in (1j, 2.0, 3):
            ours = ts.result_type(ts.ones(2, dtype=getattr(ts, kind)), other)
            theirs = torch.result_type(torch.ones(2, dtype=getattr(torch, kind)), other)
            assert str(ours).rsplit(".", 1)[-1] == str(theirs).rsplit(".", 1)[-1], (kind, other)


def test_in_place_on_parts() -> None:
    def change(m: Any) -> list[Any]:
        z = leaf(m, A)
        y = z * 2
        y.real.mul_(y.imag.detach().clone())
        y[0].imag.fill_(3.0)
        m.view_as_real(y)[1, 2, 0] = 5.0
        part = y.imag
        y.mul_(1j)
        loss = (y * y.conj()).real.sum() + (part * part).sum()
        loss.backward()
        return [y.detach().resolve_conj(), z.grad]

    for ours, theirs in zip(change(ts), change(torch), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12)
