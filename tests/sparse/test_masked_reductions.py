"""Masked reductions of sparse tensors, and the dtype that elements without sparse dims keep."""

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


def test_types_of_a_name_take_values_of_any_dtype(device):
    places, values = ts.tensor([[0, 1]], device=device), ts.tensor([1, 2], device=device)
    assert ts.sparse.DoubleTensor(places, values, (2,)).dtype is ts.int64
