"""Embeddings with sparse gradients, the optimizers that take them, and sparse tensors in files, on every device."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import tesserack as ts
from sparse_tensors import LAYOUTS, array, dense, sparse, values

# --- embeddings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index_dtype", [ts.int32, ts.int64], ids=str)
def test_gradients_of_embeddings(device, index_dtype):
    rows = ts.tensor([[1, 3], [1, 0]], device=device, dtype=index_dtype)

    def gradient(**options):
        weight = dense(device, shape=(5, 3)).requires_grad_()
        table = ts.nn.functional.embedding(rows, weight, **options)
        (table * ts.arange(12.0, device=device, dtype=ts.float64).reshape(2, 2, 3)).sum().backward()
        return weight.grad

    for options in ({}, {"padding_idx": 0}):
        found = gradient(sparse=True, **options)
        assert found.is_sparse and found.sparse_dim() == 1 and found.dense_dim() == 1
        np.testing.assert_array_equal(array(found), array(gradient(**options)))
    by_freq = array(gradient(scale_grad_by_freq=True))
    np.testing.assert_array_equal(by_freq[1], array(gradient())[1] / 2)
    for mode in ("sum", "mean"):
        grads = []
        for flag in (False, True):
            bag = ts.nn.EmbeddingBag(5, 3, mode=mode, sparse=flag, padding_idx=3, dtype=ts.float64)
            bag.weight.data = dense(device, shape=(5, 3))
            result = bag(rows.reshape(-1), ts.tensor([0, 3], device=device))
            (result * ts.arange(6.0, device=device, dtype=ts.float64).reshape(2, 3)).sum().backward()
            grads.append(bag.weight.grad)
        assert grads[1].is_sparse
        np.testing.assert_allclose(array(grads[1]), array(grads[0]))


def test_dense_and_sparse_gradients_add_up(device):
    at = ts.tensor([1], device=device)
    for order in ((False, True), (True, False)):
        weight = ts.ones(3, 2, device=device, requires_grad=True)
        for flag in order:
            ts.nn.functional.embedding(at, weight, sparse=flag).sum().backward()
        assert weight.grad.layout is ts.strided and weight.grad.tolist() == [[0, 0], [2, 2], [0, 0]]
    weight = ts.ones(3, 2, device=device, requires_grad=True)
    total = ts.nn.functional.embedding(at, weight * 2, sparse=True) + ts.nn.functional.embedding(
        at, weight, sparse=True
    )
    total.sum().backward()
    assert weight.grad.is_sparse and array(weight.grad).tolist() == [[0, 0], [3, 3], [0, 0]]


# --- optimizers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda o, p: o.SGD(p, lr=0.1),
        lambda o, p: o.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda o, p: o.SGD(p, lr=0.1, momentum=0.9, dampening=0.2, maximize=True),
        lambda o, p: o.Adagrad(p, lr=0.1, lr_decay=0.01),
    ],
)
def test_steps_as_with_dense_gradients(device, make):
    weights = []
    for flag in (False, True):
        weight = ts.nn.Parameter(dense(device, shape=(5, 3)))
        opt = make(ts.optim, [weight])
        for step in range(3):
            opt.zero_grad()
            at = ts.tensor([step, 2, 2], device=device)
            ts.nn.functional.embedding(at, weight, sparse=flag).square().sum().backward()
            opt.step()
        weights.append(array(weight))
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-12)


def test_optimizers_that_refuse(device):
    for name in ("Adam", "AdamW", "RMSprop", "Adadelta", "NAdam"):
        weight = ts.nn.Parameter(ts.ones(3, 2, device=device))
        opt = getattr(ts.optim, name)([weight])
        ts.nn.functional.embedding(ts.tensor([1], device=device), weight, sparse=True).sum().backward()
        with pytest.raises(RuntimeError, match="sparse gradients"):
            opt.step()
    weight = ts.nn.Parameter(ts.ones(3, 2, device=device))
    opt = ts.optim.SparseAdam([weight])
    weight.sum().backward()
    with pytest.raises(RuntimeError, match="dense gradients"):
        opt.step()


# --- copies, files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_copies_and_files(device, layout, tmp_path):
    t = sparse(device, layout).requires_grad_()
    for other in (pickle.loads(pickle.dumps(t)), copy.deepcopy(t), t.detach().clone(), copy.copy(t)):
        assert other.layout is t.layout and other._nnz() == t._nnz() and other.device == t.device
        np.testing.assert_array_equal(array(other), values())
    assert pickle.loads(pickle.dumps(t)).requires_grad
    for form in ("safetensors", "torch"):
        file = io.BytesIO()
        ts.save({"t": t.detach(), "n": 1}, file, format=form)
        file.seek(0)
        read = ts.load(file)["t"]
        assert read.layout is t.layout
        np.testing.assert_array_equal(array(read), values())


def test_moves(device):
    t = sparse(device)
    assert t.to(device) is t and t.to("cpu").device.type == "cpu" and t.cpu().to(device).device == t.device
    np.testing.assert_array_equal(array(t.cpu().to(device)), values())
