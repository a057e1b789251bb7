"""Masked reductions and masked tensors beside PyTorch's."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import tesserack as ts
import torch

importlib.import_module("torch.masked")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's own: a prototype
RNG = np.random.default_rng(2)
X = RNG.standard_normal((3, 4))
MASK = np.array([[True, False, True, True], [False, True, False, False], [True, True, True, True]])
NOTHING = np.array([[True, False, True, True], [False] * 4, [True, True, False, True]])

CALLS = {
    "sum": (1,), "prod": (1,), "mean": (1,), "amax": (1,), "amin": (1,), "var": (1,), "std": (1, False),
    "argmax": (1,), "argmin": (1,), "median": (1,), "logsumexp": (1,), "norm": (3, 1), "normalize": (2, 1),
    "softmax": (1,), "log_softmax": (1,), "softmin": (0,), "cumsum": (1,), "cumprod": (0,),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients(name, compare):
    def call(m, x):
        return getattr(m.masked, name)(x, *CALLS[name], mask=m.tensor(MASK.tolist()))

    compare(call, X, order=0 if name.startswith("arg") else 1)


@pytest.mark.parametrize("name", CALLS)
def test_nothing_left(name, compare):
    compare(lambda m, x: getattr(m.masked, name)(x, *CALLS[name], mask=m.tensor(NOTHING.tolist())), X, order=0)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "amax", "amin", "var", "std", "logsumexp", "norm"])
@pytest.mark.parametrize("mask", [None, [True, False, True, True], True])
def test_all_dims_and_broadcast_masks(name, mask, compare):
    extra = (2,) if name == "norm" else ()

    def call(m, x):
        given = None if mask is None else m.tensor(mask)
        f = getattr(m.masked, name)
        return [f(x, *extra, mask=given), f(x.t(), *extra, (0, 1), keepdim=True, mask=None), f(x[0, 0], *extra)]

    if name == "var" or name == "std":
        compare(lambda m, x: call(m, x)[:2], X, order=1)
    else:
        compare(call, X, order=1)


@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "cumsum", "cumprod", "argmax"])
@pytest.mark.parametrize("dtype", ["int64", "int16", "uint8", "float32"])
def test_dtypes(name, dtype):
    def call(m):
        x = m.tensor(np.arange(12).reshape(3, 4).tolist(), dtype=getattr(m, dtype))
        return getattr(m.masked, name)(x, 1, mask=m.tensor(MASK.tolist()))

    a, b = call(ts), call(torch)
    assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1] and a.tolist() == b.tolist()


def test_logaddexp(compare):
    def call(m, x):
        mask = m.tensor(MASK.tolist())
        return m.masked.logaddexp(x, x * 2, input_mask=mask, other_mask=m.ones_like(mask))

    compare(call, X, order=1)


TENSORS = {
    "add": lambda m, t: t + 1,
    "both": lambda m, t: t * t - t,
    "unary": lambda m, t: t.sin().exp(),
    "rows": lambda m, t: t[0],
    "transposed": lambda m, t: t.t(),
    "reshaped": lambda m, t: t.reshape(4, 3),
    "sum": lambda m, t: t.sum(1),
    "mean": lambda m, t: t.mean(),
    "amax": lambda m, t: t.amax(0),
    "joined": lambda m, t: m.cat([t, t]),
    "compared": lambda m, t: t > 0,
}


@pytest.mark.parametrize("name", TENSORS)
def test_masked_tensors(name):
    results = []
    for m in (ts, torch):
        t = m.masked.masked_tensor(m.tensor(X.tolist(), dtype=m.float64), m.tensor(NOTHING.tolist()))
        results.append(TENSORS[name](m, t))
    ours, theirs = results
    assert ts.masked.is_masked_tensor(ours)
    assert ours.get_mask().tolist() == theirs.get_mask().tolist()
    assert repr(ours) == repr(theirs)
    np.testing.assert_allclose(ours.to_tensor(0).numpy(), theirs.to_tensor(0).numpy(), rtol=1e-12)


def test_gradients_stop_at_the_mask():
    t = ts.masked.masked_tensor(ts.tensor([1.0, 2.0, 3.0]), ts.tensor([True, False, True]), requires_grad=True)
    (t * t).sum().get_data().backward()
    assert t.grad.tolist() == [2, 0, 6]
    x = ts.tensor([1.0, 2.0], requires_grad=True)
    ts.masked.as_masked_tensor(x, ts.tensor([False, True])).mean().get_data().backward()
    assert x.grad.tolist() == [0, 1]


REFUSED = {
    "mask of floats": lambda m, x: m.masked.masked_tensor(x, x),
    "mask of fewer dims": lambda m, x: m.masked.masked_tensor(x, x[0] > 0),
    "other mask": lambda m, x: m.masked.masked_tensor(x, x > 0) + m.masked.masked_tensor(x, x < 0),
    "product": lambda m, x: m.masked.masked_tensor(x, x > 0) @ x.t(),
    "mean of integers": lambda m, x: m.masked.mean(x.long()),
    "median of nothing": lambda m, x: m.masked.median(x.long(), 1, mask=x > 1e9),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name, compare_errors):
    compare_errors(REFUSED[name], X)


@pytest.mark.parametrize("call", ["sqrt_", "sin_", "neg_", "clamp_", "nan_to_num_", "add_", "mul_", "__iadd__", "gt_"])
def test_in_place_functions_write_to_the_values_and_keep_the_mask(call):
    seen = []
    for m in (torch, ts):
        x = m.masked.masked_tensor(m.tensor(np.abs(X).tolist()), m.tensor(MASK.tolist()))
        other = m.masked.masked_tensor(m.tensor(X.tolist()), m.tensor(MASK.tolist()))
        args = {"clamp_": (0.1, 0.5), "add_": (other,), "mul_": (other,), "__iadd__": (other,), "gt_": (other,)}
        assert getattr(x, call)(*args.get(call, ())) is x
        seen.append((x.get_data().tolist(), x.get_mask().tolist()))
    np.testing.assert_allclose(np.where(MASK, seen[0][0], 0), np.where(MASK, seen[1][0], 0), rtol=1e-5)
    assert seen[0][1] == seen[1][1]


def test_gradients_of_masked_leaves_are_masked():
    for m in (torch, ts):
        x = m.masked.masked_tensor(m.tensor(X.tolist()), m.tensor(MASK.tolist()), requires_grad=True)
        x.sum().backward()
        assert m.masked.is_masked_tensor(x.grad) and x.grad.get_mask().tolist() == MASK.tolist()
        assert x.grad.to_tensor(0).tolist() == MASK.astype(float).tolist()
        x.grad = None
        assert x.grad is None


def test_in_place_functions_want_one_mask():
    x = ts.masked.masked_tensor(ts.ones(2), ts.tensor([True, False]))
    with pytest.raises(ValueError, match="masks must match"):
        x.add_(ts.masked.masked_tensor(ts.ones(2), ts.tensor([True, True])))
    with pytest.raises(TypeError, match="masked tensor to write to"):
        ts.ones(2).add_(x)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "amax", "amin", "var", "std", "logsumexp", "norm"])
def test_a_dim_named_twice(name):
    extra = (2,) if name == "norm" else ()
    for m in (ts, torch):
        with pytest.raises(RuntimeError, match="appears multiple times"):
            getattr(m.masked, name)(m.ones(2, 3), *extra, dim=(0, 0))
