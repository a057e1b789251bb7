"""Sparse tensors against dense ones, on every device: layouts, operators, gradients, refusals."""

from __future__ import annotations

import numpy as np
import pytest
import tesserack as ts
from sparse_tensors import EVERY, LAYOUTS, array, dense, sparse, uncoalesced, values

# --- layouts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", EVERY, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_to_sparse_and_back(device, layout, dtype):
    x = dense(device, dtype)
    t = sparse(device, layout, dtype)
    assert t.layout is getattr(ts, layout) and t.dtype is dtype and t.shape == x.shape and t.device == x.device
    assert t.is_sparse == (layout == "sparse_coo") and t.is_sparse_csr == (layout == "sparse_csr")
    np.testing.assert_array_equal(array(t), array(x))


@pytest.mark.parametrize("into", LAYOUTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_layout_to_another(device, layout, into):
    blocked = {"blocksize": (1, 2)} if into in ("sparse_bsr", "sparse_bsc") else {}
    t = sparse(device, layout).to_sparse(layout=getattr(ts, into), **blocked)
    assert t.layout is getattr(ts, into)
    np.testing.assert_array_equal(array(t), values())


@pytest.mark.parametrize("layout", ["sparse_csr", "sparse_csc", "sparse_bsr"])
def test_batches_and_dense_dims(device, layout):
    x = dense(device, shape=(2, 4, 6))
    x[1] = x[0] * 2  # as many elements in each
    blocked = {"blocksize": (2, 2)} if layout == "sparse_bsr" else {}
    t = x.to_sparse(layout=getattr(ts, layout), **blocked)
    np.testing.assert_array_equal(array(t), array(x))
    hybrid = dense(device, shape=(4, 6, 3)).to_sparse(layout=getattr(ts, layout), dense_dim=1, **blocked)
    assert hybrid.dense_dim() == 1 and hybrid.values().shape[-1] == 3
    np.testing.assert_array_equal(array(hybrid), values(shape=(4, 6, 3)))


def test_parts(device):
    t = sparse(device)
    assert (t.sparse_dim(), t.dense_dim(), t.is_coalesced()) == (2, 0, True) and t._nnz() == t.values().numel()
    rows, columns = values().nonzero()
    assert t.indices().tolist() == [rows.tolist(), columns.tolist()]
    csr = t.to_sparse_csr()
    assert csr.crow_indices().tolist() == [0, *np.cumsum((values() != 0).sum(1)).tolist()]
    assert csr.col_indices().tolist() == columns.tolist()
    csc = t.to_sparse_csc()
    assert csc.ccol_indices().tolist() == [0, *np.cumsum((values() != 0).sum(0)).tolist()]
    hybrid = dense(device, shape=(4, 6)).to_sparse(1)
    assert (hybrid.sparse_dim(), hybrid.dense_dim()) == (1, 1)
    np.testing.assert_array_equal(array(hybrid), values())


def test_coalescing(device):
    t = uncoalesced(device)
    assert not t.is_coalesced()
    with pytest.raises(RuntimeError, match="uncoalesced"):
        t.indices()
    c = t.coalesce()
    assert c.is_coalesced() and c.coalesce() is c
    assert c.indices().tolist() == [[0, 1, 3], [5, 0, 1]] and c.values().tolist() == [7.0, 4.0, 4.0]
    np.testing.assert_array_equal(array(t), array(c))


def test_sizes_are_inferred_and_checked(device):
    at = ts.tensor([[0, 2], [1, 0]], device=device)
    held = ts.ones(2, 5, device=device)
    assert ts.sparse_coo_tensor(at, held).shape == (3, 2, 5)
    assert ts.sparse_coo_tensor((2, 3), device=device)._nnz() == 0
    for arguments, text in (
        ((at, held, (3, 2)), "number of dimensions"),
        ((at, held[:1], (3, 2, 5)), "same nnz"),
        ((at, held, (3, 2, 4)), "values has incorrect size"),
        ((at - 1, held), "negative index"),
        ((at.to(ts.complex64), held), "int64"),
    ):
        with pytest.raises(RuntimeError, match=text):
            ts.sparse_coo_tensor(*arguments)
    with pytest.raises(RuntimeError, match="size is inconsistent"):
        ts.sparse_coo_tensor(at, held, (2, 2, 5), check_invariants=True)
    with ts.sparse.check_sparse_tensor_invariants(), pytest.raises(RuntimeError, match="is_coalesced"):
        ts.sparse_coo_tensor(at.flip(1), held, (3, 2, 5), is_coalesced=True)
    for crow, col, text in (
        ([1, 1, 2], [0, 1], "== 0"),
        ([0, 1, 3], [0, 1], "== nnz"),
        ([0, 3, 2], [0, 1], "is not"),
        ([0, 1, 2], [0, 9], "is not"),
        ([0, 2, 2], [1, 0], "sorted and distinct"),
    ):
        with pytest.raises(RuntimeError, match=text):
            ts.sparse_csr_tensor(crow, col, [1.0, 2.0], (2, 3), device=device, check_invariants=True)
    with pytest.raises(RuntimeError, match="divisible"):
        dense(device).to_sparse_bsr((3, 3))


def test_columns_outside_are_found_by_the_product(device):
    bad = ts.sparse_csr_tensor([0, 1], [7], [1.0], (1, 3), device=device)
    with pytest.raises(IndexError):
        (bad @ ts.ones(3, 2, device=device)).sum().item()


# --- elementwise -----------------------------------------------------------------------------------------------------

UNARY = (
    *("abs", "neg", "sqrt", "sin", "tan", "sinh", "tanh", "asin", "atan", "asinh", "expm1", "log1p", "erf", "relu"),
    *("square", "ceil", "floor", "round", "trunc", "sign", "sgn", "isnan", "isinf", "signbit", "deg2rad", "frac"),
)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", UNARY)
def test_functions_that_keep_zero(device, name, layout):
    x, t = dense(device) / 4, sparse(device, layout) / 4
    result = getattr(t, name)()
    assert result.layout is t.layout
    np.testing.assert_allclose(array(result), array(getattr(x, name)()), rtol=1e-12)
    if hasattr(t, f"{name}_") and result.dtype is t.dtype:
        written = getattr(t.clone(), f"{name}_")()
        np.testing.assert_allclose(array(written), array(result))


def test_functions_of_uncoalesced_elements(device):
    t = uncoalesced(device)
    np.testing.assert_allclose(array(t.square()), array(t) ** 2)
    np.testing.assert_allclose(array(-t), -array(t))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arithmetic(device, layout):
    a, b, full = sparse(device, layout), sparse(device, layout, seed=1), dense(device, seed=2) + 1
    x, y, z = values(), values(1), values(2) + 1
    for result, expected in (
        (a + b, x + y),
        (a - b, x - y),
        (a.add(b, alpha=3), x + 3 * y),
        (full + a, z + x),
        (full - a, z - x),
        (a * b, x * y),
        (a * full, x * z),
        (full * a, x * z),
        (a * 3, x * 3),
        (2.5 * a, x * 2.5),
        (a / 4, x / 4),
        (a * ts.tensor(2.0, device=device), x * 2),
        (a.pow(2), x**2),
        (a // 1, x // 1),
    ):
        np.testing.assert_allclose(array(result), expected)
    assert (a + b).layout is a.layout and (full + a).layout is ts.strided and (a * full).layout is a.layout


def test_in_place(device):
    a, b = sparse(device), sparse(device, seed=1)
    x, y = values(), values(1)
    total = dense(device, seed=2)
    address = total.data_ptr()
    total += a
    total.sub_(b, alpha=2)
    total.add_(uncoalesced(device))
    np.testing.assert_allclose(array(total), values(2) + x - 2 * y + array(uncoalesced(device)))
    assert total.data_ptr() == address
    t = a.clone()
    before = t._version
    t += b
    t *= 2
    t /= 4
    t.neg_()
    assert t._version > before
    np.testing.assert_allclose(array(t), -(x + y) / 2)
    t.copy_(a)
    np.testing.assert_allclose(array(t), x)
    np.testing.assert_allclose(array(a), x)
    assert t.zero_()._nnz() == 0


def test_dtypes_are_promoted(device):
    a = sparse(device, dtype=ts.int32)
    assert (a * 2.5).dtype is ts.float32 and (a + sparse(device)).dtype is ts.float64
    assert a.sum().dtype is ts.int64 and (a / 2).dtype is ts.float32 and a.sqrt().dtype is ts.float32
    assert a.to(ts.float16).dtype is ts.float16 and a.double().is_sparse


# --- products --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [ts.float32, ts.float64, ts.int64, ts.float16, ts.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_with_dense(device, layout, dtype):
    t, x = sparse(device, layout, dtype), values()
    x = array(t).astype(np.float64)
    right, left = dense(device, dtype, 3, (6, 5)), dense(device, dtype, 4, (3, 4))
    for result, expected in (
        (t @ right, x @ array(right)),
        (ts.mm(t, right), x @ array(right)),
        (ts.sparse.mm(t, right), x @ array(right)),
        (left @ t, array(left) @ x),
        (t @ right[:, 0], x @ array(right)[:, 0]),
        (t.mv(right[:, 1]), x @ array(right)[:, 1]),
        (t.t() @ left.t(), (array(left) @ x).T),
    ):
        assert result.layout is ts.strided and result.dtype is dtype
        np.testing.assert_allclose(array(result), expected, rtol=2e-2 if dtype in (ts.float16, ts.bfloat16) else 1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_of_two_sparse(device, layout):
    a, b = sparse(device, layout), sparse(device, layout, seed=5, shape=(6, 4))
    result = a @ b
    assert result.layout is not ts.strided
    np.testing.assert_allclose(array(result), values() @ values(5, (6, 4)))
    none = sparse(device) * 0
    np.testing.assert_allclose(array(none @ b.to_sparse_coo()), np.zeros((4, 4)))


def test_products_of_uncoalesced_and_of_none(device):
    t, right = uncoalesced(device), dense(device, seed=3, shape=(6, 2))
    np.testing.assert_allclose(array(t @ right), array(t) @ array(right))
    empty = ts.sparse_coo_tensor((3, 6), dtype=ts.float64, device=device)
    np.testing.assert_array_equal(array(empty @ right), np.zeros((3, 2)))
    assert (empty.to_sparse_csr() @ right).shape == (3, 2)


def test_patterns_that_change_are_seen(device):
    """How elements lie is kept with the indices between products."""
    t, right = sparse(device), dense(device, seed=3, shape=(6, 2))
    first = array(t @ right)
    t._indices()[1].copy_((t._indices()[1] + 1) % 6)
    moved = array(t._coalesced_(False) @ right)
    np.testing.assert_allclose(moved, array(t) @ array(right))
    assert not np.array_equal(first, moved)
    csr = sparse(device, "sparse_csr")
    assert array(csr @ right).sum() == first.sum()
    csr.col_indices().copy_(csr.col_indices().flip(0) * 0)
    np.testing.assert_allclose(array(csr @ right)[:, 0], values().sum(1) * array(right)[0, 0])


def test_sums_with_products(device):
    t, right, base = sparse(device), dense(device, seed=3, shape=(6, 5)), dense(device, seed=6, shape=(4, 5))
    expected = 2 * array(base) + 3 * values() @ array(right)
    np.testing.assert_allclose(array(ts.addmm(base, t, right, beta=2, alpha=3)), expected)
    np.testing.assert_allclose(array(ts.sparse.addmm(base, t, right, beta=2, alpha=3)), expected)
    start = base.to_sparse()
    np.testing.assert_allclose(array(ts.sspaddmm(start, t, right, beta=2, alpha=3)), expected)
    for function in (ts.smm, ts.hspmm):
        result = function(t, right)
        assert result.is_sparse
        np.testing.assert_allclose(array(result), values() @ array(right))
    csr = sparse(device, "sparse_csr")
    sampled = ts.sparse.sampled_addmm(csr, base, dense(device, seed=7, shape=(5, 6)), beta=2, alpha=0.5)
    product = array(base) @ values(7, (5, 6))
    np.testing.assert_allclose(array(sampled), np.where(values() != 0, 0.5 * product + 2 * values(), 0))
    weights = dense(device, seed=8, shape=(6, 2)) + 1
    terms = values()[:, :, None] * array(weights)[None]
    there = (values() != 0)[:, :, None]
    for reduce, expected in (
        ("mean", terms.sum(1) / np.maximum(there.sum(1), 1)),
        ("amax", np.where(there.any(1), np.where(there, terms, -np.inf).max(1), 0)),
    ):
        np.testing.assert_allclose(array(ts.sparse.mm(csr, weights, reduce)), expected)
    batch = dense(device, shape=(2, 4, 6)).to_sparse()
    others = dense(device, seed=9, shape=(2, 6, 3))
    np.testing.assert_allclose(array(ts.bmm(batch, others)), values(shape=(2, 4, 6)) @ array(others))
    np.testing.assert_allclose(array(ts.nn.functional.linear(right.t(), csr)), (values() @ array(right)).T)


# --- reductions and shapes -------------------------------------------------------------------------------------------


def test_reductions(device):
    t, x = sparse(device), values()
    assert t.sum().item() == x.sum() and uncoalesced(device).sum().item() == 15.0
    for dims in (0, 1, -1, (0, 1)):
        np.testing.assert_allclose(array(ts.sparse.sum(t, dims)), x.sum(dims))
        np.testing.assert_allclose(array(t.sum(dims)), x.sum(dims))
    assert t.sum(0, keepdim=True).shape == (1, 6)
    hybrid = dense(device, shape=(4, 6, 3)).to_sparse(2)
    for dims in (0, 1, 2, (0, 2), (1, 2)):
        np.testing.assert_allclose(array(ts.sparse.sum(hybrid, dims)), values(shape=(4, 6, 3)).sum(dims))
    np.testing.assert_allclose(t.norm().item(), np.linalg.norm(x))
    np.testing.assert_allclose(array(sparse(device, "sparse_csr").sum(1, keepdim=True)), x.sum(1, keepdims=True))


@pytest.mark.parametrize("logarithm", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_softmax(device, dim, logarithm):
    x = values(shape=(4, 6, 3))
    t = ts.as_tensor(x, device=device).to_sparse(2)
    function = ts.sparse.log_softmax if logarithm else ts.sparse.softmax
    there = np.broadcast_to((x != 0).any(-1, keepdims=True), x.shape)
    powers = np.where(there, np.exp(x), 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = powers / powers.sum(dim, keepdims=True)
        expected = np.where(there, np.log(expected) if logarithm else expected, 0)
    np.testing.assert_allclose(array(function(t, dim)), expected, atol=1e-12)


def test_shapes(device):
    t, x = sparse(device, shape=(3, 4, 5)), values(shape=(3, 4, 5))
    index = ts.tensor([3, 0, 3], device=device)
    for result, expected in (
        (t.transpose(0, 2), x.transpose(2, 1, 0)),
        (t.permute(1, 2, 0), x.transpose(1, 2, 0)),
        (t.unsqueeze(1), x[:, None]),
        (t.unsqueeze(-1), x[..., None]),
        (t[1], x[1]),
        (t[1, 2], x[1, 2]),
        (t[:, -1], x[:, -1]),
        (t.select(2, 3), x[:, :, 3]),
        (t.narrow(1, 1, 2), x[:, 1:3]),
        (t.index_select(1, index), x[:, [3, 0, 3]]),
        (ts.cat([t, t * 2], 1), np.concatenate([x, 2 * x], 1)),
        (ts.stack([t, -t], 1), np.stack([x, -x], 1)),
        (t.unbind(0)[2], x[2]),
    ):
        assert result.is_sparse
        np.testing.assert_array_equal(array(result), expected)
    assert t[1, 2, 3].item() == x[1, 2, 3]
    hybrid = ts.as_tensor(x, device=device).to_sparse(1)
    for result, expected in (
        (hybrid.transpose(1, 2), x.transpose(0, 2, 1)),
        (hybrid.select(1, 2), x[:, 2]),
        (hybrid.index_select(2, index), x[:, :, [3, 0, 3]]),
        (hybrid.unsqueeze(2), x[:, :, None]),
        (ts.cat([hybrid, hybrid], 2), np.concatenate([x, x], 2)),
    ):
        np.testing.assert_array_equal(array(result), expected)
    assert sparse(device, "sparse_csr").t().layout is ts.sparse_csc


def test_resizing(device):
    t = sparse(device)
    t.sparse_resize_((5, 7), 2, 0)
    np.testing.assert_array_equal(array(t)[:4, :6], values())
    with pytest.raises(RuntimeError, match="shrinking"):
        t.sparse_resize_((2, 2), 2, 0)
    assert t.sparse_resize_and_clear_((3, 4, 5), 2, 1)._nnz() == 0 and t.shape == (3, 4, 5)


def test_masks_and_diagonals(device):
    full = dense(device, seed=3) + 1
    for layout in LAYOUTS[:4]:
        mask = sparse(device, layout)
        there = array(mask.sparse_mask(mask)) if "bs" not in layout else None
        masked = full.sparse_mask(mask)
        assert masked.layout is mask.layout
        if there is not None:
            np.testing.assert_array_equal(array(masked), np.where(values() != 0, array(full), 0))
    np.testing.assert_array_equal(array(sparse(device, seed=1).sparse_mask(sparse(device))),
                                  np.where(values() != 0, values(1), 0))  # fmt: skip
    diagonals = ts.arange(1.0, 7.0, device=device).reshape(2, 3)
    made = ts.sparse.spdiags(diagonals, ts.tensor([0, -1], device=device), (3, 3))
    np.testing.assert_array_equal(array(made), [[1, 0, 0], [4, 2, 0], [0, 5, 3]])


# --- gradients -------------------------------------------------------------------------------------------------------

DIFFERENTIABLE = {
    "to_dense": lambda t, y: t.to_dense() * y,
    "unary": lambda t, y: (t * 0.1).sin().to_dense() * y,
    "scaled": lambda t, y: (t * 3 / 2).to_dense() * y,
    "sum_of_two": lambda t, y: (t + t * t).to_dense() * y,
    "times_dense": lambda t, y: (t * y).to_dense(),
    "product": lambda t, y: ts.sparse.mm(t, y.t()),
    "left_product": lambda t, y: y.t() @ t,
    "two_sparse": lambda t, y: ts.sparse.mm(t, t.t()).to_dense(),
    "sparse_sum": lambda t, y: ts.sparse.sum(t, 1).to_dense(),
    "softmax": lambda t, y: ts.sparse.softmax(t, 1).to_dense() * y,
    "transpose": lambda t, y: t.t().to_dense() * y.t(),
    "select": lambda t, y: t[1].to_dense() * y[1],
    "cat": lambda t, y: ts.cat([t, t]).to_dense() * ts.cat([y, y]),
    "norm": lambda t, y: t.norm(),
    "csr": lambda t, y: t.to_sparse_csr() @ y.t(),
    "bsr": lambda t, y: t.to_sparse_bsr((2, 3)).to_dense() * y,
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(device, name):
    """Of values and of dense operands, to the second order."""
    function = DIFFERENTIABLE[name]
    t = sparse(device)
    at = t.indices()

    def of_values(held, y):
        return function(ts.sparse_coo_tensor(at, held, t.shape, is_coalesced=True), y)

    held = t.values().clone().requires_grad_()
    y = (dense(device, seed=2) + 0.5).requires_grad_()
    assert ts.autograd.gradcheck(of_values, (held, y))
    assert ts.autograd.gradgradcheck(of_values, (held, y))


def test_leaves_that_are_sparse(device):
    t = sparse(device).requires_grad_()
    y = dense(device, seed=2, shape=(6, 3))
    ts.sparse.mm(t, y).sum().backward()
    assert t.grad.is_sparse and t.is_leaf
    expected = np.where(values() != 0, array(y).sum(1)[None], 0)
    np.testing.assert_allclose(array(t.grad), expected)
    (t * 2).to_dense().sum().backward()
    np.testing.assert_allclose(array(t.grad), expected + 2 * (values() != 0))
    t.grad = None
    (t @ y).sum().backward()  # as PyTorch's mm, dense
    np.testing.assert_allclose(array(t.grad), np.broadcast_to(array(y).sum(1), (4, 6)))
    held = ts.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    twice = ts.sparse_coo_tensor([[0, 1, 0]], held, (2,))
    assert twice.requires_grad and not twice.is_leaf
    (twice.coalesce().values() * ts.tensor([2.0, 5.0], device=device)).sum().backward()
    assert held.grad.tolist() == [2.0, 5.0, 2.0]
    spread = uncoalesced(device).requires_grad_()
    spread.to_dense().sum().backward()
    np.testing.assert_array_equal(array(spread.grad), array(spread) != 0)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        t.mul_(2)
    assert not t.detach().requires_grad
    inner = (t * 1).mul_(3)
    assert ts.autograd.grad(inner.to_dense().sum(), t)[0].values().tolist() == [3.0] * t._nnz()


# --- refusals, text --------------------------------------------------------------------------------------------------


def test_refusals(device):
    t = sparse(device)
    for call in (lambda: t.exp(), lambda: t.view(24), lambda: t > 0, lambda: t.max(), lambda: t.contiguous()):
        with pytest.raises(NotImplementedError, match=r"sparse_coo.*"):
            call()
    with pytest.raises(NotImplementedError, match="to_dense"):
        t.mean()
    for call, text in (
        (lambda: t + 1, "dense, sparse"),
        (lambda: t + dense(device), "dense, sparse"),
        (lambda: t / t, "Sparse division"),
        (lambda: t.pow(0), "zeroth power"),
        (lambda: dense(device).coalesce(), "but got Strided"),
        (lambda: t.crow_indices(), "crow_indices expected"),
        (lambda: t.data_ptr(), "address"),
        (lambda: t @ ts.ones(2, 2, device=device), "cannot be multiplied"),
        (lambda: dense(device).copy_(t), "copy_"),
        (lambda: t.nbytes, "nbytes"),
        (lambda: ts.cat([t, dense(device)]), "dense tensor"),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()
    for call in (lambda: t.numpy(), lambda: memoryview(t), lambda: np.asarray(t)):
        with pytest.raises((TypeError, BufferError), match=r"to_dense|[sS]parse"):
            call()


def test_text(device):
    t = ts.sparse_coo_tensor([[0, 1], [2, 0]], [1.5, 2.0], (2, 3))
    assert repr(t) == (
        "tensor(indices=tensor([[0, 1],\n                       [2, 0]]),\n       values=tensor([1.5000, 2.0000]),\n"
        "       size=(2, 3), nnz=2, layout=tesserack.sparse_coo)"
    )
    assert "crow_indices=tensor([0, 1, 2])" in repr(t.to_sparse_csr())
    assert "requires_grad=True" in repr(t.requires_grad_()) and "dtype=tesserack.float64" in repr(t.detach().double())


def test_new_of_a_sparse_tensor(device):
    x = ts.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (3,), device=device, dtype=ts.float32)
    made = x.new(x._indices(), x._values() * 3, x.size())
    assert made.layout is ts.sparse_coo and made.dtype == x.dtype and made.device == x.device
    assert made.to_dense().tolist() == [3, 0, 6]
    assert x.new(x._indices(), x._values()).shape == (3,)
