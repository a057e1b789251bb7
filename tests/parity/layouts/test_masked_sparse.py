"""Masked tensors of sparse values, what else they take, and the masks of reductions, beside PyTorch's."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import tesserack as ts
import torch

importlib.import_module("torch.masked")
pytestmark = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of MaskedTensors:UserWarning", "ignore:.*(beta state|invariant checks)"
)

X = np.random.default_rng(5).standard_normal((3, 4)).round(3)
MASK = np.array([[True, False, True, True], [False, True, False, False], [True, True, True, True]])
TO = {"strided": lambda x: x, "coo": lambda x: x.to_sparse().coalesce(), "csr": lambda x: x.to_sparse_csr()}


def made(m, layout, grad=False):
    x, mask = m.tensor(X.tolist()), TO[layout](m.tensor(MASK.tolist()))
    return m.masked.masked_tensor(x if layout == "strided" else x.sparse_mask(mask), mask, requires_grad=grad)


def both(masked):
    """Values where they count, and the mask."""
    data, mask = masked.get_data().detach(), masked.get_mask()
    data, mask = (t if str(t.layout).endswith("strided") else t.to_dense() for t in (data, mask))
    return np.where(mask.numpy(), data.numpy(), 0), mask.numpy()


def same(ours, theirs):
    for a, b in zip(both(ours), both(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert str(ours.layout).split(".")[1] == str(theirs.layout).split(".")[1]


@pytest.mark.parametrize("layout", TO)
@pytest.mark.parametrize("name", ["cos", "sqrt", "neg", "exp", "abs"])
def test_elements_that_are_stored(name, layout):
    with np.errstate(invalid="ignore"):
        same(getattr(made(ts, layout), name)(), getattr(made(torch, layout), name)())


@pytest.mark.parametrize("layout", TO)
def test_two_of_one_mask(layout):
    same(made(ts, layout) * made(ts, layout).exp(), made(torch, layout) * made(torch, layout).exp())


def test_two_of_other_masks_are_refused():
    x = ts.tensor(X.tolist())
    other = ts.tensor(~MASK).to_sparse()
    with pytest.raises(ValueError, match="Input masks must match"):
        made(ts, "coo") + ts.masked.masked_tensor(x.sparse_mask(other), other)


@pytest.mark.parametrize("layout", TO)
@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "mean"])
def test_reductions(name, layout):
    ours, theirs = (getattr(made(m, layout), name)() for m in (ts, torch))
    np.testing.assert_allclose(both(ours)[0], both(theirs)[0], rtol=1e-5)


@pytest.mark.parametrize("change", ["to_sparse", "to_sparse_coo", "to_sparse_csr"])
def test_layouts_there_and_back(change):
    ours, theirs = (getattr(made(m, "strided"), change)() for m in (ts, torch))
    same(ours, theirs)
    same(ours.to_dense(), theirs.to_dense())


@pytest.mark.parametrize("change", ["to_sparse", "to_sparse_csr"])
def test_gradients_go_through_layouts(change):
    leaf = made(ts, "strided", grad=True)
    getattr(leaf, change)().to_dense().sum().backward()
    np.testing.assert_array_equal(leaf.grad.get_data().numpy(), MASK.astype(np.float32))


def test_where_softmax_and_windows():
    def calls(m):
        x, y = made(m, "strided"), made(m, "strided").exp()
        flip = m.masked.masked_tensor(m.tensor(X.tolist()), ~m.tensor(MASK.tolist()))
        choose = m.tensor(MASK.tolist())
        return m.where(choose, x, flip), m.softmax(x, -1), y.unfold(1, 2, 2), m.nextafter(x, y)

    for ours, theirs in zip(calls(ts), calls(torch), strict=True):
        same(ours, theirs)


def test_any_and_contiguous():
    x = ts.tensor([[True, False], [True, True]])
    masked = ts.masked.masked_tensor(x, ts.tensor([[False, True], [True, False]]))
    assert masked.any(1).get_data().tolist() == [False, True]
    assert masked._is_any_true().item() is True
    turned = ts.masked.masked_tensor(x.t(), ts.ones(2, 2, dtype=ts.bool))
    assert not turned.is_contiguous() and turned.contiguous().is_contiguous()
    with pytest.raises(ValueError, match="is_contiguous"):
        made(ts, "coo").is_contiguous()


WRONG = {
    "layouts": lambda m: (m.ones(2, 2).to_sparse(), m.ones(2, 2, dtype=m.bool)),
    "columns": lambda m: (m.ones(2, 2).to_sparse_csc(), m.ones(2, 2, dtype=m.bool).to_sparse_csc()),
    "places": lambda m: (
        m.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 2.0], (2, 2)).coalesce(),
        m.sparse_coo_tensor([[0, 1], [1, 0]], [True, True], (2, 2)).coalesce(),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_refusals(name, compare_errors):
    compare_errors(lambda m: m.masked.masked_tensor(*WRONG[name](m)))


def test_a_history_is_told_of():
    x = ts.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="not recommended to create a MaskedTensor"):
        ts.masked.masked_tensor(x, ts.ones(2, dtype=ts.bool))


@pytest.mark.parametrize("layout", TO)
@pytest.mark.parametrize("given", [(), (1,), (0,), ((0, 1),)])
def test_masks_that_reductions_leave(layout, given):
    """Sparse ones are compared with PyTorch's strided ones: it has few of them."""

    def call(m, layout):
        x, mask = TO[layout](m.tensor(X.tolist())), TO[layout](m.tensor(MASK.tolist()))
        kept = m.masked._input_mask(x, mask=mask)
        left = m.masked._output_mask(m.masked.sum, x, *given, keepdim=layout == "csr", mask=mask)
        return [t if layout == "strided" else t.to_dense() for t in (kept, left)]

    for ours, theirs in zip(call(ts, layout), call(torch, "strided"), strict=True):
        assert ours.reshape(theirs.shape).tolist() == theirs.tolist()


@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "logsumexp", "norm"])
def test_values_beside_the_mask(name):
    def call(m):
        x = m.tensor(X.tolist())
        args = (2,) if name == "norm" else ()
        return m.masked._combine_input_and_mask(getattr(m.masked, name), x, m.tensor(MASK.tolist()), *args).tolist()

    assert call(ts) == call(torch)


@pytest.mark.parametrize("layout", TO)
def test_choosing_by_a_mask(layout):
    def call(m):
        x, mask = TO[layout](m.tensor(X.tolist())), TO[layout](m.tensor(MASK.tolist()))
        made = m.masked._where(mask, x, m.tensor(7.0))
        return (made if layout == "strided" else made.to_dense()).tolist()

    assert call(ts) == call(torch)
