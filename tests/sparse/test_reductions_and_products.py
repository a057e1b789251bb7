"""Masked reductions of sparse tensors, gradients of products, sizes of csr matrices, and dtypes that are kept."""

import math

import pytest
import tesserack as ts
from tesserack import masked

VALUES = [[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]]
MASK = [[True, False, True], [True, True, False]]
ALONG_ROWS = {"sum": [1, 7], "prod": [0, 12], "amax": [1, 4], "amin": [0, 3], "mean": [0.5, 3.5]}


@pytest.mark.parametrize("layout", [ts.sparse_coo, ts.sparse_csr])
@pytest.mark.parametrize("sparse_mask", [False, True])
@pytest.mark.parametrize("name", list(ALONG_ROWS))
def test_reductions_of_sparse_tensors_count_what_the_mask_takes(name, sparse_mask, layout, device):
    x = ts.tensor(VALUES, device=device).to_sparse(layout=layout)
    mask = ts.tensor(MASK, device=device)
    mask = mask.to_sparse(layout=layout) if sparse_mask else mask
    got = getattr(masked, name)(x, 1, keepdim=True, mask=mask)
    assert got.layout is layout and got.to_dense().flatten().tolist() == ALONG_ROWS[name]


def test_a_row_that_the_mask_leaves_out_has_no_element(device):
    x, mask = ts.tensor(VALUES, device=device).to_sparse(), ts.tensor([[True], [False]], device=device)
    got = masked.amax(x, 1, mask=mask)
    assert got._nnz() == 1 and got.to_dense().tolist() == [2.0, 0.0]
    assert masked.amax(x.to_dense(), 1, mask=mask).tolist() == [2.0, -math.inf]


def test_without_a_mask_only_sums_are_defined(device):
    x = ts.tensor(VALUES, device=device).to_sparse()
    assert masked.sum(x, ()).to_dense() == 10
    with pytest.raises(ValueError, match="mask"):
        masked.prod(x, 0)


def test_masked_sums_of_sparse_tensors_have_gradients(device):
    x = ts.tensor(VALUES, device=device).to_sparse().requires_grad_()
    masked.sum(x, 1, mask=ts.tensor(MASK, device=device)).to_dense().sum().backward()
    assert x.grad.to_dense().tolist() == [[1, 0, 0], [1, 1, 0]]


@pytest.mark.parametrize("dtype", [ts.int8, ts.uint8, ts.int32, ts.bool])
def test_elements_without_sparse_dims_keep_their_dtype(dtype, device):
    assert ts.zeros((), dtype=dtype, layout=ts.sparse_coo, device=device).to_dense().dtype is dtype
    assert ts.ones(2, dtype=dtype, device=device).to_sparse().select(0, 1).dtype is dtype


def test_sums_of_sparse_integers_have_the_wider_dtype(device):
    a, b = (ts.tensor([n], dtype=dtype, device=device).to_sparse() for n, dtype in ((5, ts.int8), (7, ts.uint8)))
    for result, wanted in ((a - b, -2), (b - a, 2), (a + b, 12), (a * b, 35)):
        assert result.dtype is ts.int16 and result.to_dense().tolist() == [wanted]


@pytest.mark.parametrize("layout", [ts.sparse_coo, ts.sparse_csr])
@pytest.mark.parametrize("dtype", [ts.uint8, ts.int16, ts.bool])
def test_sums_along_dims_of_integers_do_not_wrap(device, layout, dtype):
    x = ts.full((3, 400), 100, device=device).to(dtype).to_sparse(layout=layout)
    for dim, wanted in ((1, [[40000]] * 3), ((0, 1), [[120000]])):
        found = ts.sum(x, dim, keepdim=True)
        found = found.to_dense() if found.layout is not ts.strided else found
        assert found.dtype is ts.int64
        assert found.tolist() == ([[n // 100 for n in row] for row in wanted] if dtype is ts.bool else wanted)


def test_types_of_a_name_take_values_of_any_dtype(device):
    places, values = ts.tensor([[0, 1]], device=device), ts.tensor([1, 2], device=device)
    assert ts.sparse.DoubleTensor(places, values, (2,)).dtype is ts.int64


@pytest.mark.parametrize("layout", [ts.sparse_coo, ts.sparse_csr])
@pytest.mark.parametrize("dense_other", [False, True])
def test_gradients_of_products_reach_places_without_elements(dense_other, layout, device):
    x = ts.tensor([[1.0, 0, 0], [0, 2, 0]], device=device).to_sparse(layout=layout).requires_grad_()
    other = ts.tensor([[3.0, 4, 0], [0, 0, 5]], device=device)
    y = other if dense_other else other.to_sparse(layout=layout)
    y.requires_grad_()
    (x * y).backward(ts.ones(2, 3, device=device).to_sparse(layout=layout))
    assert x.grad.layout is layout and x.grad.to_dense().tolist() == other.tolist()
    assert y.grad.layout is y.layout and y.grad.to_dense().tolist() == x.to_dense().tolist()


def test_csr_matrices_are_resized_with_their_batch(device):
    x = ts.ones(2, 2, 3, device=device).to_sparse_csr()
    assert x.resize_(2, 4, 5).shape == (2, 4, 5) and x._nnz() == 6
    assert x.crow_indices().tolist() == [[0, 3, 6, 6, 6]] * 2
    assert x.resize_(2, 1, 5)._nnz() == 5 and x.resize_(1, 5).values().tolist() == [1.0] * 5
    with pytest.raises(RuntimeError, match="smaller"):
        x.resize_(1, 4)
    with pytest.raises(RuntimeError, match="batched"):
        x.resize_(4)


def test_random_numbers_take_a_compressed_pattern(device):
    x = ts.eye(3, device=device).to_sparse_csr()
    got = ts.randn_like(x)
    assert got.crow_indices().tolist() == x.crow_indices().tolist() and got.values().count_nonzero() == 3


def test_parts_are_validated_by_name(device):
    counts, places, values = ts.tensor([0, 1, 2], device=device), ts.tensor([0, 1], device=device), ts.ones(2)
    ts._validate_sparse_csr_tensor_args(counts, places, values.to(device), (2, 2))
    ts._validate_sparse_coo_tensor_args(ts.stack([places, places]), values.to(device), (2, 2))
    with pytest.raises(RuntimeError):
        ts._validate_sparse_compressed_tensor_args(counts, places + 5, values.to(device), (2, 2), ts.sparse_csr)


@pytest.mark.parametrize("layout", [ts.sparse_csr, ts.sparse_bsr])
@pytest.mark.filterwarnings("ignore:.*triangular_solve is deprecated")
def test_triangular_equations_of_compressed_matrices(layout, device):
    a = ts.tensor([[2.0, 1.0], [0.0, 4.0]], device=device)
    b = ts.tensor([[3.0], [4.0]], device=device)
    sparse = a.to_sparse(layout=layout, **({"blocksize": (1, 1)} if layout is ts.sparse_bsr else {}))
    solved = ts.triangular_solve(b, sparse)
    assert solved.solution.tolist() == [[1.0], [1.0]] and solved.cloned_coefficient.numel() == 0
    out = ts.empty(2, 1, device=device), ts.empty(0, device=device)
    ts.triangular_solve(b, sparse, transpose=True, out=out)
    ts.testing.assert_close(out[0], ts.linalg.solve(a.T, b))
    empty = ts.zeros(2, 2, device=device).to_sparse_csr()
    assert ts.triangular_solve(b, empty).solution.isnan().all()


@pytest.mark.parametrize("hybrid", [1, 2])
@pytest.mark.parametrize("empty", [False, True])
def test_products_broadcast_dense_dims_of_hybrid_tensors(hybrid, empty, device):
    x = ts.zeros(2, 3, 4, device=device)
    if not empty:
        x[0, 1, 2], x[1, 0, 3] = 2.0, 3.0
    y = ts.arange(1.0, 7.0, device=device).reshape(2, 3, 1)
    for a, b in ((x, y), (y, x)):
        got = a.to_sparse(hybrid) * b.to_sparse(hybrid)
        assert got.sparse_dim() == hybrid and got.shape == (2, 3, 4)
        assert got.to_dense().tolist() == (a * b).tolist()


def test_products_with_sparse_numbers(device):
    x, two = ts.tensor(VALUES, device=device).to_sparse(), ts.tensor(2.0, device=device).to_sparse()
    assert (x * two).to_dense().tolist() == (two * x).to_dense().tolist() == [[2.0, 4.0, 0.0], [6.0, 8.0, 0.0]]
    with pytest.raises(RuntimeError, match="one shape"):
        x * ts.ones(1, 3, device=device).to_sparse()
