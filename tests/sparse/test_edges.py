"""Sparse tensors as numbers, as ``out=``, resized and indexed, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import tesserack as ts
from sparse_tensors import LAYOUTS, array, sparse, uncoalesced, values


def one(device, values):
    at = ts.zeros((1, len(values)), dtype=ts.int64, device=device)
    return ts.sparse_coo_tensor(at, ts.tensor(values, device=device), (1,))


def test_one_element_is_a_number(device):
    assert one(device, [1.0]).item() == 1.0 and float(one(device, [2.5])) == 2.5 and int(one(device, [3])) == 3
    assert one(device, [1.0]).is_nonzero() and not one(device, [0.0]) and not one(device, [-1.0, 1.0])
    assert not ts.sparse_coo_tensor((1,), device=device).is_nonzero()
    assert ts.ones(1, 1, device=device).to_sparse_csr().item() == 1.0
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(sparse(device))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_assignment_is_refused(device, layout):
    t = sparse(device, layout)
    for key, value in ((0, 1.0), ((0, 0), 1.0), (0, ts.ones(6, dtype=t.dtype, device=device))):
        with pytest.raises(TypeError, match="assign"):
            t[key] = value
    with pytest.raises(TypeError, match="assign"):
        t[0] = t[1]
    np.testing.assert_array_equal(array(t), values())


@pytest.mark.parametrize("make", [ts.zeros, ts.empty])
def test_factories_into_a_sparse_out(device, make):
    for options in ({}, {"layout": ts.sparse_coo}, {"dtype": ts.float64}):
        out = uncoalesced(device)
        assert make(3, 4, 5, out=out, **options) is out
        assert out.shape == (3, 4, 5) and (out.sparse_dim(), out._nnz()) == (3, 0) and out.dtype is ts.float64
    with pytest.raises(RuntimeError, match="layout"):
        make(3, out=ts.empty(0, device=device), layout=ts.sparse_coo)
    with pytest.raises(RuntimeError, match="dtype"):
        make(3, out=uncoalesced(device), dtype=ts.float32)
    with pytest.raises(RuntimeError, match="layout"):
        ts.ones(3, out=uncoalesced(device))


def test_resized_values_stay_in_the_order_of_memory(device):
    t = ts.sparse_coo_tensor([[0]], ts.arange(1, 7.0, device=device).reshape(1, 2, 3), (2, 2, 3))
    t.sparse_resize_((2, 2, 4), 1, 2)
    assert t.to_dense()[0].tolist() == [[1, 2, 3, 4], [5, 6, 0, 0]]


def test_saddmm_is_sparse(device):
    x, t, y = sparse(device), sparse(device, seed=1, shape=(4, 3)), ts.ones(6, 3, dtype=ts.float64, device=device)
    result = ts.saddmm(t, x, y, beta=2, alpha=0.5)
    assert result.layout is ts.sparse_coo
    np.testing.assert_allclose(array(result), 2 * array(t) + 0.5 * array(x) @ array(y))


def test_narrow_copy_counts_from_the_front(device):
    t = sparse(device)
    np.testing.assert_array_equal(array(t.narrow_copy(1, 2, 3)), values()[:, 2:5])
    for dim, start, length in ((-1, 0, 1), (10, 0, 1), (0, -1, 1), (0, 3, 2), (0, 1, -1)):
        with pytest.raises(RuntimeError, match="narrow"):
            t.narrow_copy(dim, start, length)


def test_norms_take_no_dtype(device):
    with pytest.raises(ValueError, match="frobenius"):
        sparse(device).norm("fro", dtype=ts.float64)
    with pytest.raises(RuntimeError, match="dtype"):
        sparse(device).norm(0, dtype=ts.float64)


def test_sizes_of_new_tensors_are_sizes(device):
    x = uncoalesced(device)
    assert x.new(ts.Size([2, 3])).layout is ts.sparse_coo and ts.sparse.FloatTensor(2, 3).shape == (2, 3)
    for wrong in ([6], x._values(), x._values().untyped_storage()):
        with pytest.raises(TypeError):
            x.new(wrong)
    for wrong in ([6], (2, 3)):
        with pytest.raises(TypeError, match="sizes"):
            ts.sparse.FloatTensor(wrong)
    with pytest.raises(TypeError, match="layout"):
        x._values().new(x)


@pytest.mark.parametrize("make", [ts.sparse_bsr_tensor, ts.sparse_bsc_tensor])
def test_blocks_of_nothing(device, make):
    t = make([0], [], ts.empty(0, 1, 0), (0, 0), device=device)
    assert t.shape == (0, 0) and t.to_dense().shape == (0, 0)
    with pytest.raises(RuntimeError, match="blocksize"):
        make([0, 0], [], ts.empty(0, 1, 0), (1, 1), device=device)


def test_blocks_of_one_number(device):
    t = sparse(device, "sparse_csr")
    assert t.to_sparse_bsr(2).values().shape[1:] == (2, 2)
    np.testing.assert_array_equal(array(t.to_sparse_bsc(2)), values())


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_one_of_a_batch_keeps_its_layout(device, layout):
    x = ts.tensor([[[1.0, 0], [0, 2]], [[3, 0], [0, 4]]], device=device)
    block = {"blocksize": (1, 1)} if "bs" in layout else {}
    t = x.to_sparse(layout=getattr(ts, layout), **block)
    assert t[1].layout is t.layout
    np.testing.assert_array_equal(array(t[1]), array(x)[1])
    hybrid = ts.tensor(values(shape=(4, 6, 3)), device=device)
    t = hybrid.to_sparse(layout=getattr(ts, layout), dense_dim=1, **block)
    assert t.select(2, 1).layout is t.layout
    np.testing.assert_array_equal(array(t.select(-1, 1)), array(hybrid)[:, :, 1])


@pytest.mark.parametrize("to", ["csr", "csc", "bsr", "bsc"])
@pytest.mark.parametrize("of", ["csr", "csc", "bsr", "bsc"])
def test_conversions_keep_the_dtype_of_compressed_indices(of, to):
    dense = ts.tensor([[1.0, 0.0], [2.0, 3.0]])
    layouts = {name: getattr(ts, f"sparse_{name}") for name in (of, to)}
    blocks = {name: (1, 1) if name.startswith("b") else None for name in (of, to)}
    wide = dense.to_sparse(layout=layouts[of], blocksize=blocks[of])
    heads = "crow_indices" if of in ("csr", "bsr") else "ccol_indices"
    plain = "col_indices" if of in ("csr", "bsr") else "row_indices"
    indices = [getattr(wide, name)().int() for name in (heads, plain)]
    narrow = ts.sparse_compressed_tensor(*indices, wide.values(), (2, 2), layout=layouts[of]).requires_grad_()
    made = narrow.to_sparse(layout=layouts[to], blocksize=blocks[to])
    for name in ("crow_indices", "col_indices") if to in ("csr", "bsr") else ("ccol_indices", "row_indices"):
        assert getattr(made, name)().dtype is ts.int32
    assert made.to_dense().equal(dense)
    made.to_dense().sum().backward()
    assert narrow.grad.to_dense().equal((dense != 0).float())


@pytest.mark.parametrize(
    "name", ["sinh", "ceil", "nan_to_num", "floor", "sqrt", "abs", "tanh", "expm1", "isnan", "signbit"]
)
def test_functions_write_to_a_sparse_out(device, name):
    """Of their own dtype, which integers turn to float32 where the function is none of whole numbers."""
    function, x = getattr(ts, name), ts.tensor([[0, 0.5], [0.25, 0]], device=device)
    want = function(x)
    for layout in ("sparse_coo", "sparse_csr"):
        out = ts.zeros(2, 2, dtype=want.dtype, device=device).to_sparse(layout=getattr(ts, layout))
        assert function(x.to_sparse(layout=getattr(ts, layout)), out=out) is out
        np.testing.assert_array_equal(array(out), want.cpu().numpy())
    with pytest.raises(RuntimeError, match="layout"):
        function(x.to_sparse(), out=ts.zeros(2, 2, dtype=want.dtype, device=device))
    whole = ts.eye(2, dtype=ts.int32, device=device)
    assert function(whole.to_sparse()).dtype is function(whole).dtype
    if function(whole).is_floating_point():
        with pytest.raises(RuntimeError, match="cast"):
            function(whole.to_sparse(), out=whole.to_sparse())
