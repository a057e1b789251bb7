"""Decompositions: that they decompose, with batches, empty and strided matrices; gradients; errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.aten.fake import FakeTensorMode
from tesserack.autograd.gradcheck import gradcheck, gradgradcheck

SHAPES = [(3, 3), (4, 2), (2, 4), (2, 3, 2), (3, 2, 2, 2), (0, 3), (3, 0), (0, 2, 2)]
SQUARE = [(3, 3), (2, 4, 4), (1, 1), (0, 0), (0, 3, 3)]


pytestmark = pytest.mark.usefixtures("needs_lapack")


def matrix(device: ts.device, *shape: int, dtype: ts.dtype = ts.float64, seed: int = 0) -> ts.Tensor:
    values = np.random.default_rng(seed).standard_normal(shape)
    return ts.tensor(values, dtype=dtype, device=device)


def close(a: ts.Tensor, b: ts.Tensor, tolerance: float = 1e-10) -> None:
    ts.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def definite(a: ts.Tensor) -> ts.Tensor:
    return a @ a.mT + 2 * ts.eye(a.shape[-1], dtype=a.dtype, device=a.device)


def strided(a: ts.Tensor) -> ts.Tensor:
    """The same values, in every second row of a larger matrix by columns."""
    wide = ts.zeros(*a.shape[:-2], 2 * a.shape[-1], a.shape[-2], dtype=a.dtype, device=a.device)
    wide[..., ::2, :] = a.mT
    return wide[..., ::2, :].mT


@pytest.mark.parametrize("dtype", [ts.float64, ts.float32])
@pytest.mark.parametrize("shape", SHAPES)
def test_factors_multiply_to_the_matrix(shape: tuple[int, ...], dtype: ts.dtype, device: ts.device) -> None:
    tolerance = 1e-10 if dtype is ts.float64 else 1e-4
    a = matrix(device, *shape, dtype=dtype)
    for given in (a, strided(a)):
        q, r = ts.linalg.qr(given)
        close(q @ r, a, tolerance)
        close(q.mT @ q, ts.eye(q.shape[-1], dtype=dtype, device=device).expand(*q.shape[:-2], -1, -1), tolerance)
        q, r = ts.linalg.qr(given, "complete")
        assert q.shape[-1] == q.shape[-2] == shape[-2]
        close(q @ r, a, tolerance)
        u, s, vh = ts.linalg.svd(given, full_matrices=False)
        close((u * s.unsqueeze(-2)) @ vh, a, tolerance)
        u, s, vh = ts.linalg.svd(given)
        assert u.shape[-1] == shape[-2]
        assert vh.shape[-2] == shape[-1]
        k = s.shape[-1]
        close((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a, tolerance)
        p, lower, upper = ts.linalg.lu(given)
        close(p @ lower @ upper, a, tolerance)


@pytest.mark.parametrize("shape", SQUARE)
def test_square_factors(shape: tuple[int, ...], device: ts.device) -> None:
    a = matrix(device, *shape)
    spd, symmetric = definite(a), a + a.mT
    lower = ts.linalg.cholesky(strided(spd))
    close(lower @ lower.mT, spd)
    upper = ts.linalg.cholesky(spd, upper=True)
    close(upper.mT @ upper, spd)
    w, v = ts.linalg.eigh(strided(symmetric))
    close((v * w.unsqueeze(-2)) @ v.mT, symmetric)
    close(ts.linalg.eigvalsh(symmetric, "U"), w)
    b = matrix(device, *shape[:-1], 2, seed=1)
    close(spd @ ts.cholesky_solve(b, lower), b)
    close(spd @ ts.cholesky_inverse(lower), ts.eye(shape[-1], dtype=ts.float64, device=device).expand(*shape), 1e-9)
    close(symmetric @ ts.linalg.ldl_solve(*ts.linalg.ldl_factor(symmetric), b), b, 1e-8)
    close(a @ ts.linalg.lu_solve(*ts.linalg.lu_factor(a), b), b, 1e-9)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("shape", [(12, 12), (3, 9, 9)])
def test_inverse_of_a_factor(shape: tuple[int, ...], upper: bool, device: ts.device) -> None:
    """Large enough to be inverted as a whole."""
    spd = definite(matrix(device, *shape))
    factor = ts.linalg.cholesky(spd, upper=upper)
    inverse = ts.cholesky_inverse(factor, upper)
    close(inverse, ts.linalg.inv(spd), 1e-9)
    close(inverse, inverse.mT.contiguous(), 1e-12)
    close(
        ts.cholesky_solve(ts.eye(shape[-1], dtype=ts.float64, device=device).expand(*shape), factor, upper),
        inverse,
        1e-9,
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("upper", [False, True])
def test_no_inverse_of_a_factor_with_a_zero_on_its_diagonal(dtype: str, upper: bool, device: ts.device) -> None:
    """An error that names the element, and the factor of a batch; in every form. NaN is passed on."""
    good = (3 * ts.eye(9, dtype=getattr(ts, dtype))).to(device)
    bad = good.clone()
    bad[4, 4] = bad[6, 6] = 0
    batch = ts.stack([good, bad, bad])
    forms = (
        lambda t: ts.cholesky_inverse(t, upper),
        lambda t: t.cholesky_inverse(upper=upper),
        lambda t: ts.cholesky_inverse(t, upper, out=ts.empty_like(t)),
        lambda t: ts.cholesky_inverse(t.clone().requires_grad_(), upper),
    )
    for form in forms:
        with pytest.raises(ts.linalg.LinAlgError, match="diagonal element 5 is zero"):
            form(bad)
        with pytest.raises(ts.linalg.LinAlgError, match=r"Batch element 1.*diagonal element 5 is zero"):
            form(batch)
        with pytest.raises(ts.linalg.LinAlgError, match="diagonal element"):
            form(ts.zeros_like(batch))
        close(form(good).detach(), good / 27, 1e-6)
    bad[4, 4] = bad[6, 6] = float("nan")
    assert ts.cholesky_inverse(bad, upper).isnan().any()
    assert ts.cholesky_inverse(bad[:0, :0]).shape == (0, 0)


@pytest.mark.parametrize("upper", [False, True])
def test_gradient_of_the_inverse_of_a_factor(upper: bool, device: ts.device) -> None:
    """Both orders, both ways, and entry by entry."""
    for dtype in (ts.float64, ts.complex128):
        a = ts.randn(2, 3, 3, dtype=dtype)
        factor = ts.linalg.cholesky(a @ a.mH + 3 * ts.eye(3, dtype=dtype), upper=upper).to(device).requires_grad_()

        def inverse(f: ts.Tensor) -> ts.Tensor:
            return ts.cholesky_inverse(f.triu() if upper else f.tril(), upper)

        assert ts.autograd.gradcheck(inverse, factor, check_forward_ad=True, check_batched_grad=True)
        assert ts.autograd.gradgradcheck(inverse, factor)
        close(ts.vmap(inverse)(factor.detach()), inverse(factor.detach()), 1e-12)


def test_solving(device: ts.device) -> None:
    a, b = matrix(device, 2, 4, 4), matrix(device, 4, 3, seed=1)
    left, right = a.numpy(force=True), b.numpy(force=True)
    for given in (a, strided(a)):
        np.testing.assert_allclose(ts.linalg.solve(given, b).numpy(force=True), np.linalg.solve(left, right))
        np.testing.assert_allclose(ts.linalg.inv(given).numpy(force=True), np.linalg.inv(left))
        close(ts.linalg.solve(given, b.T, left=False) @ a, b.T.expand(2, 3, 4))
        for upper in (True, False):
            part = a.triu() if upper else a.tril()
            close(part @ ts.linalg.solve_triangular(given, b, upper=upper), b.expand(2, 4, 3), 1e-7)
    close(a @ ts.linalg.solve_ex(a, b).result, b.expand(2, 4, 3))
    for p in (None, 1, -1, 2, -2, float("inf"), float("-inf"), "fro", "nuc"):
        np.testing.assert_allclose(ts.linalg.cond(a, p).numpy(force=True), np.linalg.cond(left, p))
    inverse = ts.linalg.tensorinv(matrix(device, 4, 6, 8, 3))
    np.testing.assert_allclose(
        inverse.numpy(force=True),
        np.linalg.tensorinv(matrix(device, 4, 6, 8, 3).numpy(force=True)),
        rtol=1e-6,
        atol=1e-9,
    )


def test_general_eigenvalues(device: ts.device) -> None:
    values = np.random.default_rng(3).standard_normal((4, 5, 5))
    w, v = ts.linalg.eig(ts.tensor(values, device=device))
    vectors, numbers = v.numpy(force=True), w.numpy(force=True)
    np.testing.assert_allclose(values @ vectors, vectors * numbers[..., None, :], rtol=1e-9, atol=1e-9)
    found = np.sort_complex(ts.linalg.eigvals(ts.tensor(values, device=device)).numpy(force=True))
    np.testing.assert_allclose(found, np.sort_complex(np.linalg.eigvals(values)), rtol=1e-9)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_factors(dtype: str, device: ts.device) -> None:
    random = np.random.default_rng(5)
    a = (random.standard_normal((2, 4, 4)) + 1j * random.standard_normal((2, 4, 4))).astype(dtype)
    b = (random.standard_normal((2, 4, 2)) + 1j * random.standard_normal((2, 4, 2))).astype(dtype)
    tolerance = 1e-3 if dtype == "complex64" else 1e-9

    def check(found: ts.Tensor, expected: Any) -> None:
        np.testing.assert_allclose(found.numpy(force=True), expected, rtol=tolerance, atol=tolerance)

    check(ts.linalg.solve(ts.tensor(a, device=device), ts.tensor(b, device=device)), np.linalg.solve(a, b))
    check(ts.linalg.inv(ts.tensor(a, device=device)), np.linalg.inv(a))
    check(ts.linalg.svdvals(ts.tensor(a, device=device)), np.linalg.svd(a, compute_uv=False))
    hermitian = a @ a.conj().swapaxes(-1, -2) + 2 * np.eye(4, dtype=dtype)
    check(ts.linalg.eigvalsh(ts.tensor(hermitian, device=device)), np.linalg.eigvalsh(hermitian))


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 2)])
def test_least_squares(shape: tuple[int, ...], driver: str, device: ts.device) -> None:
    a, b = matrix(device, *shape), matrix(device, *shape[:-1], 2, seed=1)
    x, residuals, rank, _ = ts.linalg.lstsq(a, b, driver=driver)
    close(x, ts.linalg.pinv(a) @ b)
    if shape[-2] > shape[-1] and driver != "gelsy":
        close(residuals, ((a @ x - b) ** 2).sum(-2))
    assert driver == "gels" or rank.eq(min(shape[-2:])).all()


def lower_part(a: ts.Tensor) -> ts.Tensor:
    return a.tril() + a.tril(-1).mT


GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "inv": (ts.linalg.inv, ((2, 3, 3),)),
    "solve": (ts.linalg.solve, ((2, 3, 3), (3, 2))),
    "solve of vectors": (ts.linalg.solve, ((2, 3, 3), (2, 3))),
    "solve from the right": (lambda a, b: ts.linalg.solve(a, b, left=False), ((3, 3), (2, 3))),
    "triangular": (lambda a, b: ts.linalg.solve_triangular(a, b, upper=True), ((3, 3), (2, 3, 2))),
    "triangular right": (
        lambda a, b: ts.linalg.solve_triangular(a, b, upper=False, left=False, unitriangular=True),
        ((3, 3), (2, 3)),
    ),
    "tensorinv": (ts.linalg.tensorinv, ((2, 3, 6),)),
    "tensorsolve": (lambda a, b: ts.linalg.tensorsolve(a, b, (1,)), ((2, 4, 2), (2, 2))),
    "cond": (lambda a: [ts.linalg.cond(a), ts.linalg.cond(a, "fro")], ((3, 3),)),
    "pinv": (ts.linalg.pinv, ((2, 3, 2),)),
    "cholesky": (lambda a: ts.linalg.cholesky(definite(a)), ((3, 3),)),
    "cholesky upper": (lambda a: ts.linalg.cholesky(definite(a), upper=True), ((2, 2, 2),)),
    "cholesky_solve": (lambda a, b: ts.cholesky_solve(b, a.tril()), ((3, 3), (3, 2))),
    "cholesky_solve upper": (lambda a, b: ts.cholesky_solve(b, a.triu(), True), ((3, 3), (3, 2))),
    "qr": (ts.linalg.qr, ((4, 3),)),
    "qr wide": (ts.linalg.qr, ((2, 4),)),
    "lu": (lambda a: ts.linalg.lu(a)[1:], ((3, 3),)),
    "lu tall": (lambda a: ts.linalg.lu(a)[1:], ((4, 2),)),
    "lu wide": (lambda a: ts.linalg.lu(a)[1:], ((2, 4),)),
    "lu_solve": (lambda a, b: ts.linalg.lu_solve(*ts.linalg.lu_factor(a), b, adjoint=True), ((3, 3), (3, 2))),
    "eigh values": (lambda a: ts.linalg.eigvalsh(lower_part(a)), ((3, 3),)),
    "eigh vectors": (lambda a: ts.linalg.eigh(lower_part(a))[1] ** 2, ((3, 3),)),
    "svd": (lambda a: [t**2 for t in ts.linalg.svd(a, full_matrices=False)], ((3, 2),)),
    "svd wide": (lambda a: [t**2 for t in ts.linalg.svd(a, full_matrices=False)], ((2, 3),)),
    "lstsq": (lambda a, b: ts.linalg.lstsq(a, b, driver="gelsd")[:2], ((4, 2), (4, 3))),
    "householder_product": (ts.linalg.householder_product, ((4, 3), (2,))),
    "ormqr": (lambda a, t, x: ts.ormqr(a, t, x, False, True), ((4, 2), (2,), (3, 4))),
    "matrix_norm nuc": (lambda a: ts.linalg.matrix_norm(a, "nuc"), ((2, 3, 2),)),
    "matrix_norm 2": (lambda a: ts.linalg.matrix_norm(a, 2), ((3, 3),)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str, device: ts.device) -> None:
    function, shapes = GRADIENTS[name]
    inputs = [matrix(device, *s, seed=k + 2).requires_grad_() for k, s in enumerate(shapes)]
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs)


def test_gradient_of_a_singular_determinant(device: ts.device) -> None:
    a = ts.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=ts.float64, device=device, requires_grad=True)
    (gradient,) = ts.autograd.grad(ts.linalg.det(a), a)
    close(gradient, ts.tensor([[4.0, -2.0], [-2.0, 1.0]], dtype=ts.float64, device=device))


ERRORS: dict[str, tuple[Callable[[ts.Tensor], Any], str]] = {
    "inv": (ts.linalg.inv, "linalg.inv: .*diagonal element 2 is zero"),
    "solve": (lambda a: ts.linalg.solve(a, a), "linalg.solve: The solver failed"),
    "cholesky": (lambda a: ts.linalg.cholesky(-a), "linalg.cholesky: .*order 1 is not positive-definite"),
    "lu_factor": (ts.linalg.lu_factor, r"linalg.lu_factor: U\[2,2\] is zero"),
    "svd": (lambda a: ts.linalg.svd(a * float("nan")), "linalg.svd: .*non-finite"),
    "eigh": (lambda a: ts.linalg.eigh(a * float("inf")), "linalg.eigh: .*non-finite"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_matrices(name: str, device: ts.device) -> None:
    call, message = ERRORS[name]
    a = ts.tensor([[1.0, 2.0], [2.0, 4.0]], device=device)
    with pytest.raises(ts.linalg.LinAlgError, match=message):
        call(a)
    with pytest.raises(RuntimeError, match=r"Batch element 1"):
        ts.linalg.inv(ts.stack([ts.eye(2, device=device), a]))


def test_errors_of_arguments(device: ts.device) -> None:
    a = ts.ones(2, 3, device=device)
    with pytest.raises(RuntimeError, match="batches of square matrices"):
        ts.linalg.inv(a)
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        ts.linalg.svd(a[0])
    with pytest.raises(RuntimeError, match="floating point"):
        ts.linalg.inv(ts.ones(2, 2, dtype=ts.int64, device=device))
    with pytest.raises(RuntimeError, match="Low precision"):
        ts.linalg.inv(ts.ones(2, 2, dtype=ts.float16, device=device))
    pivots = ts.tensor([1, 7], dtype=ts.int32, device=device)
    with pytest.raises(RuntimeError, match="pivots"):
        ts.linalg.lu_solve(ts.eye(2, device=device), pivots, ts.ones(2, 1, device=device))
    with pytest.raises(RuntimeError, match="pivots"):
        ts.linalg.ldl_solve(ts.eye(2, device=device), -pivots, ts.ones(2, 1, device=device))


def test_out(device: ts.device) -> None:
    a = matrix(device, 3, 3)
    out = ts.empty(3, 3, dtype=ts.float64, device=device)
    assert ts.linalg.inv(a, out=out) is out
    close(out @ a, ts.eye(3, dtype=ts.float64, device=device))
    w, v = ts.empty(0, dtype=ts.float64, device=device), ts.empty(0, dtype=ts.float64, device=device)
    ts.linalg.eigh(a + a.mT, out=(w, v))
    close((v * w) @ v.mT, a + a.mT)


@pytest.mark.parametrize("dtype", [ts.float64, ts.float32])
@pytest.mark.parametrize("n", [1, 8, 16, 17])
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_of_many_small_matrices(n: int, upper: bool, dtype: ts.dtype, device: ts.device) -> None:
    a = definite(matrix(device, 37, n, n))
    factor = ts.linalg.cholesky(a.to(dtype), upper=upper).double()
    rebuilt = factor.mT @ factor if upper else factor @ factor.mT
    close(rebuilt, a, 1e-10 if dtype is ts.float64 else 1e-4)
    # Of some that are not positive definite the others do not take notice, and info says where each went wrong.
    a[5, n - 1, n - 1] = -1.0
    a[36, 0, 0] = -1.0
    mixed, info = ts.linalg.cholesky_ex(a.to(dtype), upper=upper)
    assert {k: int(v) for k, v in enumerate(info.tolist()) if v} == {5: n, 36: 1}
    sound = [k for k in range(37) if k not in (5, 36)]
    close(mixed.double()[sound], factor[sound], 1e-10 if dtype is ts.float64 else 1e-4)


@pytest.mark.parametrize("order", ["nuc", "fro", 1, -1, float("inf")])
def test_condition_of_singular_matrices(order: Any, device: Any) -> None:
    a = ts.stack([ts.eye(3, device=device), ts.diag(ts.tensor([1.0, 1.0, 0.0], device=device))])
    found = ts.linalg.cond(a, order).tolist()
    assert found[1] == float("inf") and found[0] == pytest.approx({"nuc": 9, "fro": 3}.get(order, 1), rel=1e-5)


# --- batches of small matrices, which cards factor many at a time: what stands beside what must not matter

LIMITS = {"float32": 1e-6, "float64": 2e-15}


def awkward(count: int, m: int, n: int, dtype: str) -> ts.Tensor:
    """Zeros, zero columns and rows, very small and very large matrices beside ordinary ones."""
    a = ts.randn(count, m, n, dtype=getattr(ts, dtype))
    far = 1e25 if dtype == "float32" else 1e200
    a[1], a[2, :, 0], a[3, 0] = 0, 0, 0
    a[4], a[5] = a[4] / far, a[5] * far
    a[6, 1:] = a[6, :1]
    return a


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m, n", [(1, 1), (3, 3), (8, 8), (16, 16), (16, 5), (5, 16), (4, 1), (1, 4), (17, 3)])
def test_qr_of_many(device: str, m: int, n: int, dtype: str) -> None:
    for count in (8, 37):
        a = awkward(count, m, n, dtype)
        q, r = ts.linalg.qr(a.to(device))
        exact, qn, rn = (t.cpu().numpy().astype(np.float64) for t in (a, q, r))
        size = np.abs(exact).max((1, 2), keepdims=True)
        assert (np.abs(qn @ rn - exact) <= LIMITS[dtype] * m * size).all()
        assert np.abs(qn.swapaxes(1, 2) @ qn - np.eye(min(m, n))).max() < LIMITS[dtype] * m
        assert not np.tril(rn, -1).any()
        alone = [ts.linalg.qr(one.to(device)) for one in a[[0, 4, 5, 7]]]  # signs and all
        for i, (_, one) in zip((0, 4, 5, 7), alone, strict=True):
            assert (np.abs(one.cpu().numpy() - rn[i]) <= 10 * LIMITS[dtype] * m * size[i]).all()


def test_one_that_is_no_number_leaves_the_others(device: str) -> None:
    a = ts.randn(20, 4, 4)
    a[2, 1, 1] = float("nan")
    a[3, 0, 2] = float("inf")
    _, r = ts.linalg.qr(a.to(device))
    bad = r.isnan().any(2).any(1).cpu()
    assert bad[2] and not bad[[0, 1, *range(4, 20)]].any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 16, 17])
def test_lu_of_many(device: str, n: int, dtype: str) -> None:
    for count in (8, 37):
        a = awkward(count, n, n, dtype)
        a[6] = ts.eye(n).flip(0)  # all rows are exchanged
        b = ts.randn(count, n, 3, dtype=a.dtype)
        lu, pivots, info = ts.linalg.lu_factor_ex(a.to(device))
        rows, lower, upper = (t.cpu().numpy().astype(np.float64) for t in ts.lu_unpack(lu, pivots))
        exact = a.numpy().astype(np.float64)
        size = np.abs(exact).max((1, 2), keepdims=True)
        assert (np.abs(rows @ lower @ upper - exact) <= LIMITS[dtype] * n * size).all()
        assert np.abs(lower).max() <= 1
        singular = {1, 2, 3}
        assert {i for i in range(count) if info.tolist()[i] != 0} == singular
        assert info[1].item() == 1 and info[2].item() == 1
        for i in range(1, 6):  # as alone, where LAPACK says the pivot that is zero
            _, its_pivots, its_info = ts.linalg.lu_factor_ex(a[i].to(device))
            assert its_info.item() == info[i].item() and its_pivots.tolist() == pivots[i].tolist()
        right = [i for i in range(count) if i not in singular and i not in (4, 5)]
        x = ts.linalg.solve(a[right].to(device), b[right].to(device)).cpu().numpy().astype(np.float64)
        left = exact[right] @ x - b[right].numpy()
        assert (np.abs(left) <= 20 * LIMITS[dtype] * n * size[right] * np.abs(x).max((1, 2), keepdims=True)).all()
        assert np.allclose(ts.linalg.det(a.to(device)).cpu().numpy()[right], np.linalg.det(exact[right]), rtol=1e-3)


def test_one_that_is_no_number_leaves_the_others_lu(device: str) -> None:
    a = ts.randn(20, 4, 4)
    a[2, 1, 1], a[3, 0, 2], a[4, 3, 3] = float("nan"), float("inf"), float("nan")
    lu, _, info = ts.linalg.lu_factor_ex(a.to(device))
    bad = (~lu.isfinite()).any(2).any(1).cpu()
    assert bad[[2, 3, 4]].all() and not bad[[0, 1, *range(5, 20)]].any() and not info[[0, 1, *range(5, 20)]].any()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("m, n", [(40, 5), (90, 60), (400, 130), (300, 200), (6, 4)])
def test_least_squares_of_tall_matrices(device: str, m: int, n: int, dtype: str) -> None:
    """By ordered columns, of full and of lower rank, and where squares leave the range of numbers."""
    a, b = (ts.randn(m, k, dtype=getattr(ts, dtype)) for k in (n, 2))
    limit = 1e-10 if dtype == "float64" else 1e-3
    for scale in (1.0, 1e30, 1e-30):
        found = ts.linalg.lstsq((a * scale).to(device), b.to(device), driver="gelsy")
        expected = np.linalg.lstsq(a.numpy().astype(complex), b.numpy().astype(complex), rcond=None)[0] / scale
        assert found.rank.item() == n
        assert np.abs(found.solution.cpu().numpy() - expected).max() <= limit * np.abs(expected).max()
    a[:, -1] = a[:, 0] * 2
    found = ts.linalg.lstsq(a.to(device), b.to(device), rcond=1e-5, driver="gelsy")
    assert found.rank.item() == n - 1
    expected = np.linalg.lstsq(a.numpy().astype(complex), b.numpy().astype(complex), rcond=1e-5)[0]
    assert np.abs(found.solution.cpu().numpy() - expected).max() <= limit * np.abs(expected).max()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("upper", [False, True])
def test_solving_with_many_factors(device: str, upper: bool, dtype: str) -> None:
    for n in (1, 2, 7, 16, 17):
        a = ts.randn(19, n, n, dtype=getattr(ts, dtype))
        s = a @ a.mT + n * ts.eye(n, dtype=a.dtype)
        factor = ts.linalg.cholesky(s.to(device), upper=upper)
        inverse = ts.cholesky_inverse(factor, upper=upper).cpu()
        assert (inverse @ s - ts.eye(n, dtype=a.dtype)).abs().max() < 30 * LIMITS[dtype]
        b = ts.randn(19, n, 3, dtype=a.dtype)
        x = ts.cholesky_solve(b.to(device), factor, upper=upper).cpu()
        assert (s @ x - b).abs().max() < 60 * LIMITS[dtype]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_inverse_by_halves(device: ts.device, dtype: str, upper: bool) -> None:
    """Of sizes that are halved evenly and not, alone and in a batch, and of what the other triangle holds nothing."""
    kind = getattr(ts, dtype)
    for sizes in ((8,), (17,), (33,), (100,), (2, 40)):
        n = sizes[-1]
        x = ts.randn(*sizes, n, dtype=kind)
        a = x @ x.mH + n * ts.eye(n, dtype=kind)
        factor = ts.linalg.cholesky(a, upper=upper).to(device)
        filled = factor + 7 * (ts.ones(n, n, device=device).tril(-1) if upper else ts.ones(n, n, device=device).triu(1))
        for given in (factor, filled):
            found = ts.cholesky_inverse(given, upper=upper).cpu()
            product = found @ a - ts.eye(n, dtype=kind)
            assert product.abs().max().item() < (1e-5 if dtype in ("float32", "complex64") else 1e-13)
            assert ts.allclose(found, found.mH, atol=1e-6)


@pytest.mark.parametrize("dtype", [ts.float32, ts.float64, ts.complex64, ts.complex128])
@pytest.mark.parametrize("n", [7, 8, 33, 65, 130])
def test_solving_by_halves(n: int, dtype: ts.dtype, device: ts.device) -> None:
    """Inverses and solutions of sizes that are cut once, unevenly and several times; each side, turned and not."""
    tolerance = 1e-3 if dtype in (ts.float32, ts.complex64) else 1e-10
    a = matrix(device, 2, n, n, dtype=dtype) + 2 * n**0.5 * ts.eye(n, dtype=dtype, device=device)
    if dtype.is_complex:
        a = a + 1j * matrix(device, 2, n, n, dtype=dtype, seed=3)
    close(ts.linalg.inv(a) @ a, ts.eye(n, dtype=dtype, device=device).expand(2, n, n), tolerance)
    lu, pivots = ts.linalg.lu_factor(a)
    for columns in (1, 7, 8, n + 5):
        b = matrix(device, 2, n, columns, dtype=dtype, seed=columns)
        close(a @ ts.linalg.solve(a, b), b, tolerance)
        close(ts.linalg.solve(a, b.mT, left=False) @ a, b.mT, tolerance)
        close(a.mH @ ts.linalg.lu_solve(lu, pivots, b, adjoint=True), b, tolerance)
        for upper in (False, True):
            triangle = (a.triu() if upper else a.tril()) + n * ts.eye(n, dtype=dtype, device=device)
            close(triangle @ ts.linalg.solve_triangular(triangle, b, upper=upper), b, tolerance)
            close(ts.linalg.solve_triangular(triangle, b.mT, upper=upper, left=False) @ triangle, b.mT, tolerance)
            alone = triangle / n + (1 - triangle / n).diagonal(dim1=-2, dim2=-1).diag_embed()
            x = ts.linalg.solve_triangular(triangle / n, b, upper=upper, unitriangular=True)
            close(alone @ x, b, tolerance)


PHASES = {
    "svd": lambda a: ts.linalg.svd(a)[0],
    "svd, right": lambda a: ts.linalg.svd(a)[2],
    "eigh": lambda a: ts.linalg.eigh(a)[1],
    "eig": lambda a: ts.linalg.eig(a)[1],
}


@pytest.mark.parametrize("op", PHASES)
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_a_loss_that_differs_with_the_phase_of_vectors_has_no_gradient(op, scale):
    values = np.random.default_rng(2).standard_normal((2, 2, 3, 3))
    for dtype in (ts.complex64, ts.complex128):
        a = ts.tensor(values[0] + 1j * values[1]).to(dtype).requires_grad_()
        with pytest.raises(RuntimeError, match=r"backward: .* ill-defined"):
            (PHASES[op](a).sum().abs() * scale).backward()
        (PHASES[op](a).abs().sum() * scale).backward()
        assert a.grad.isfinite().all()
    real = ts.tensor(values[0] + values[0].swapaxes(-1, -2)).requires_grad_()
    PHASES[op](real).sum().abs().backward()
    with FakeTensorMode():  # shapes alone tell nothing
        outline = ts.zeros(3, 3, dtype=ts.complex64, requires_grad=True)
        PHASES[op](outline).sum().abs().backward()
        assert outline.grad.shape == (3, 3)


# --- low rank factors and extreme eigenvalues, of dense and of sparse matrices


def of_rank(rows: int, columns: int, rank: int) -> ts.Tensor:
    draw = ts.Generator().manual_seed(3)
    left, right = (ts.randn(n, rank, dtype=ts.float64, generator=draw) for n in (rows, columns))
    return left @ right.mT


def laid(a: ts.Tensor, sparse: bool) -> ts.Tensor:
    return a.to_sparse() if sparse else a


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(17, 9), (9, 17)])
def test_low_rank_factors(rows, columns, sparse):
    a = of_rank(rows, columns, 3)
    mean = a.mean(-2, keepdim=True)
    for found, expected in (
        (ts.svd_lowrank(laid(a, sparse), 5), a),
        (ts.svd_lowrank(laid(a, sparse), 5, M=mean), a - mean),
        (ts.pca_lowrank(laid(a, sparse), 5), a - mean),
        (ts.pca_lowrank(laid(a, sparse), 5, center=False), a),
    ):
        np.testing.assert_allclose((found.U * found.S) @ found.V.mH, expected, atol=1e-9)
        np.testing.assert_allclose(found.S, np.linalg.svd(expected)[1][:5], atol=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("largest", [False, True])
def test_extreme_eigenvalues(sparse, largest):
    a = of_rank(20, 20, 20)
    a = ts.where(a.abs() > 3, a, 0.0)
    a = a + a.mT + ts.diag(ts.arange(20.0, dtype=ts.float64))
    values, vectors = ts.lobpcg(laid(a, sparse), k=2, largest=largest, tol=1e-9)
    expected = np.linalg.eigvalsh(a)
    np.testing.assert_allclose(values, expected[::-1][:2] if largest else expected[:2], rtol=1e-6)
    np.testing.assert_allclose(a @ vectors, vectors * values, atol=1e-4)


def test_a_tracker_sees_each_round_and_may_end_it():
    a, seen = of_rank(20, 20, 20), []
    a = a @ a.mT

    def follow(state):
        seen.append((state.ivars["istep"], state.X.shape, state.E.shape, state.R.shape))
        state.bvars["force_stop"] = len(seen) == 3

    ts.lobpcg(a, k=2, tol=0.0, tracker=follow)
    assert seen == [(j, (20, 2), (2,), (20, 2)) for j in range(3)]
