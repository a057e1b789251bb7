"""Products of matrices against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(1)


def rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def tensor(array: Any, device: Any, dtype: Any = None, grad: bool = False) -> ts.Tensor:
    return ts.tensor(np.asarray(array), dtype=dtype, device=device, requires_grad=grad)


def close(got: ts.Tensor, want: Any, tolerance: float = 1e-12) -> None:
    want = np.asarray(want)
    assert tuple(got.shape) == want.shape
    np.testing.assert_allclose(got.double().cpu().numpy(), want, rtol=tolerance, atol=tolerance)


SHAPES = [
    ((4,), (4,)),
    ((4,), (4, 3)),
    ((3, 4), (4,)),
    ((3, 4), (4, 5)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 3)),
    ((2, 3, 4), (2, 4, 5)),
    ((6, 1, 3, 4), (2, 4, 5)),
    ((3, 4), (2, 4, 5)),
    ((1, 3, 4), (5, 4, 2)),
    ((0, 4), (4, 3)),
    ((3, 0), (0, 2)),
    ((2, 0, 4), (4, 3)),
    ((2, 3, 0), (0,)),
    ((0,), (0,)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matmul(device: Any, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = rand(*left), rand(*right)
    for dtype, tolerance in ((ts.float64, 1e-12), (ts.float32, 1e-5), (ts.bfloat16, 6e-2), (ts.float16, 1e-2)):
        got = tensor(a, device, dtype) @ tensor(b, device, dtype)
        assert got.dtype == dtype
        close(got, a @ b, tolerance)
    x, y = tensor(a, device, grad=True), tensor(b, device, grad=True)
    assert gradcheck(ts.matmul, (x, y))
    assert gradgradcheck(ts.matmul, (x, y))


def test_matmul_strides(device: Any) -> None:
    a, b = rand(5, 6), rand(6, 4)
    close(tensor(a.T.copy(), device).t() @ tensor(b, device), a @ b)
    close(tensor(a[:, ::-1].copy(), device).flip(1) @ tensor(b, device), a @ b)
    close(tensor(np.repeat(a, 2, 1), device)[:, ::2] @ tensor(np.repeat(b, 3, 0), device)[::3], a @ b)
    close(tensor(a[:1], device).expand(5, 6) @ tensor(b, device), np.broadcast_to(a[:1], a.shape) @ b)
    batch = rand(3, 2, 4)
    close(tensor(batch, device).transpose(1, 2) @ tensor(batch, device), batch.transpose(0, 2, 1) @ batch)


def test_integers(device: Any) -> None:
    a, b = RNG.integers(-9, 9, (3, 4)), RNG.integers(-9, 9, (4, 2))
    got = tensor(a, device) @ tensor(b, device)
    assert got.dtype == ts.int64
    close(got, a @ b)


def test_named_products(device: Any) -> None:
    a, b, v, w = rand(3, 4), rand(4, 5), rand(4), rand(3)
    t = {name: tensor(value, device) for name, value in (("a", a), ("b", b), ("v", v), ("w", w))}
    close(ts.mm(t["a"], t["b"]), a @ b)
    close(t["a"].mv(t["v"]), a @ v)
    close(ts.dot(t["v"], t["v"]), v @ v)
    close(ts.outer(t["w"], t["v"]), np.outer(w, v))
    close(ts.inner(t["a"], t["v"]), np.inner(a, v))
    close(ts.kron(t["a"], t["b"]), np.kron(a, b))
    close(ts.trace(t["b"]), np.trace(b))
    close(
        ts.tensordot(tensor(rand(2, 3, 4) * 0 + 1, device), tensor(np.ones((3, 4, 2)), device)), np.full((2, 2), 12.0)
    )
    close(ts.linalg.cross(t["a"][:, :3], t["a"][:, 1:]), np.cross(a[:, :3], a[:, 1:]))
    close(ts.cdist(t["a"], t["a"]), np.linalg.norm(a[:, None] - a[None], axis=-1))


def test_addmm_family(device: Any) -> None:
    s, a, b = rand(5), rand(3, 4), rand(4, 5)
    x, y, z = (tensor(v, device, grad=True) for v in (s, a, b))
    close(ts.addmm(x, y, z, beta=0.5, alpha=2).detach(), 0.5 * s + 2 * (a @ b))
    close(ts.addmm(x, y, z).detach(), s + a @ b)
    nan = tensor(np.full(5, np.nan), device)
    close(ts.addmm(nan, y.detach(), z.detach(), beta=0), a @ b)
    assert gradcheck(lambda *t: ts.addmm(*t, beta=0.5, alpha=2), (x, y, z))
    assert gradgradcheck(lambda *t: ts.addmm(*t, beta=0.5, alpha=2), (x, y, z))
    batches = tuple(tensor(v, device, grad=True) for v in (rand(2, 3, 5), rand(2, 3, 4), rand(2, 4, 5)))
    assert gradcheck(ts.baddbmm, batches)
    target = tensor(rand(3, 5), device)
    want = target.cpu().numpy() + a @ b
    assert target.addmm_(y.detach(), z.detach()) is target
    close(target, want)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (0, 4)])
def test_linear(device: Any, shape: tuple[int, ...]) -> None:
    x, w, b = rand(*shape), rand(5, 4), rand(5)
    args = tuple(tensor(v, device, grad=True) for v in (x, w, b))
    close(ts.nn.functional.linear(*args).detach(), x @ w.T + b)
    close(ts.nn.functional.linear(args[0], args[1]).detach(), x @ w.T)
    close(ts.nn.functional.linear(args[0], tensor(w.T.copy(), device).t(), args[2]).detach(), x @ w.T + b)
    assert gradcheck(ts.nn.functional.linear, args)
    assert gradgradcheck(ts.nn.functional.linear, args)
    half = [tensor(v, device, ts.bfloat16) for v in (x, w, b)]
    close(ts.nn.functional.linear(*half), x @ w.T + b, 6e-2)


EQUATIONS = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("ii->i", [(3, 3)]),
    ("ij->", [(3, 4)]),
    ("i,j->ij", [(3,), (4,)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("bn,anm,bm->ba", [(2, 3), (5, 3, 4), (2, 4)]),
    ("ijj->ij", [(2, 3, 3)]),
    ("ba", [(2, 3)]),
    ("ij,jk->ik", [(3, 0), (0, 5)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum(device: Any, equation: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [rand(*s) for s in shapes]
    args = tuple(tensor(a, device, grad=True) for a in arrays)
    close(ts.einsum(equation, *args).detach(), np.einsum(equation, *arrays))
    assert gradcheck(lambda *t: ts.einsum(equation, *t), args)


def test_errors(device: Any) -> None:
    a, b = tensor(rand(3, 4), device), tensor(rand(3, 4), device)
    for call, text in (
        (lambda: a @ b, "cannot be multiplied"),
        (lambda: a @ b.t().float(), "dtype"),
        (lambda: a @ ts.tensor(1.0, dtype=ts.float64, device=device), "at least 1D"),
        (lambda: ts.bmm(a, b), "3D"),
        (lambda: ts.dot(a, b), "1D"),
        (lambda: ts.einsum("ij,jk->ik", a, b), "broadcast"),
        (lambda: ts.einsum("ij,jk", a), "fewer|more"),
        (lambda: ts.einsum("i?", a), "subscript"),
        (lambda: ts.nn.functional.linear(a, b.t()), "multiplied"),
        (lambda: ts.nn.functional.linear(a, b, b), "bias"),
        (lambda: tensor(rand(2, 3, 4), device) @ tensor(rand(3, 4, 5), device), "must match"),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()


def test_einsum_of_too_many_dims_is_refused(device: Any) -> None:
    wide = ts.ones((1,) * 12, device=device)
    with pytest.raises(RuntimeError, match="too many dimensions"):
        ts.einsum("...,...->...", wide, wide)
