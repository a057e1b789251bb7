"""Operators that choose their way over memory by sizes and layouts, at those that choose each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch

Call = Callable[[Any, dict[str, Any]], Any]
IMAGE = (2, 6, 5, 7)


def inputs(m: Any, dtype: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    t = lambda *shape: m.tensor(rng.normal(size=shape)).to(getattr(m, dtype))  # noqa: E731
    i = lambda high, *shape: m.tensor(rng.integers(0, high, shape))  # noqa: E731
    names = {"F": m.nn.functional, "x": t(*IMAGE), "a": t(9, 70), "b": t(9, 70), "row": t(70), "w": t(6), "v": t(6)}
    names |= {"last": t(*IMAGE).to(memory_format=m.channels_last), "table": t(11, 4), "bags": i(11, 5, 3)}
    return names | {"cube": t(4, 5, 6), "planes": t(2, 8, 33, 40), "i": i(4, 300), "k": i(6, 300), "m": m}


CALLS: dict[str, str] = {
    "trapezoid": "m.trapezoid(a)",
    "trapezoid along 0": "m.trapezoid(a, dx=0.5, dim=0)",
    "trapezoid of positions": "m.trapezoid(a, b)",
    "trapezoid of a row of positions": "m.trapezoid(a, row)",
    "trapezoid of two": "m.trapezoid(a[:, :2])",
    "trapezoid of one": "m.trapezoid(a[:, :1])",
    "cumulative trapezoid": "m.cumulative_trapezoid(a, b)",
    "group norm": "F.group_norm(x, 3, w, v)",
    "group norm, one group": "F.group_norm(x, 1)",
    "group norm of a weight": "F.group_norm(x, 2, w)",
    "group norm of rows": "F.group_norm(x[..., 0, 0], 2, w, v)",
    "group norm, channels last": "F.group_norm(last, 2, w, v)",
    "group norm of nothing": "F.group_norm(x[:0], 2, w, v)",
    "bags": "F.embedding_bag(bags, table)",
    "sums of bags": "F.embedding_bag(bags, table, mode='sum')",
    "maxima of bags": "F.embedding_bag(bags, table, mode='max')",
    "bags of padding": "F.embedding_bag(bags, table, mode='sum', padding_idx=2)",
    "nearest, channels last": "F.interpolate(last, scale_factor=2)",
    "bilinear, channels last": "F.interpolate(last, size=(9, 4), mode='bilinear')",
    "bicubic, channels last": "F.interpolate(last, scale_factor=1.5, mode='bicubic', align_corners=True)",
    "a plane's maximum": "F.adaptive_max_pool2d(x, 1)",
    "a plane's maximum, channels last": "F.adaptive_max_pool2d(last, (1, 1))",
    "a plane's maximum without a batch": "F.adaptive_max_pool2d(x[0], 1)",
    "a sum of one number": "a.sum().expand(3, 4).sum(0)",
    "a sum of repeated rows": "a[:1].expand(5, 70).sum(0) + row.expand(2, 3, 70).sum((0, 1))",
    "a maximum of repeated columns": "a[:, :1].expand(9, 8).amax(1)",
    "indexed dims apart": "cube[i, :, k]",
    "indexed dims apart, negative": "cube[i - 4, :, k - 6]",
    "indexed dims apart, transposed": "cube.transpose(0, 2)[k, :, i]",
    "reflected ends": "F.pad(planes, (2, 3, 0, 5), mode='reflect')",
    "repeated ends": "F.pad(planes, (2, 0, 4, 1), mode='replicate')",
    "ends from the other side": "F.pad(planes, (3, 1, 1, 0), mode='circular')",
    "ends cut and repeated": "F.pad(planes, (3, -1, -2, 2), mode='replicate')",
    "repeated ends of lines": "F.pad(planes[0], (4, 5), mode='replicate')",
    "nan_to_num": "m.nan_to_num(a / b.relu())",
    "nan_to_num of values": "m.nan_to_num(a / b.relu(), nan=1.0, posinf=2.0, neginf=-3.0)",
}


def host(t: Any) -> Any:
    return t.detach().double().numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients(name: str, dtype: str) -> None:
    if dtype == "bfloat16" and "bag" in name:
        pytest.skip("PyTorch rounds the sums of bags in its own order")
    results = []
    for m in (ts, torch):
        names = inputs(m, dtype)
        leaves = [t.requires_grad_() for t in names.values() if getattr(t, "dtype", None) == getattr(m, dtype)]
        out = eval(CALLS[name], names)
        weights = m.linspace(-1, 1, max(1, out.numel()), dtype=m.float64)[: out.numel()].to(out.dtype)
        grads = m.autograd.grad((out * weights.reshape(out.shape)).sum(), leaves, allow_unused=True)
        results.append((out, grads))
    (ours, our_grads), (theirs, their_grads) = results
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert ours.stride() == theirs.stride() or ours.numel() < 2
    tolerance = {"float32": 1e-4, "float64": 1e-10, "bfloat16": 0.1}[dtype]
    np.testing.assert_allclose(host(ours), host(theirs), rtol=tolerance, atol=tolerance)
    for got, want in zip(our_grads, their_grads, strict=True):
        assert (got is None) == (want is None)
        if got is not None:
            np.testing.assert_allclose(host(got), host(want), rtol=5 * tolerance, atol=5 * tolerance)


def test_group_norm_is_differentiable_twice() -> None:
    x, w, b = (ts.randn(*s, dtype=ts.float64, requires_grad=True) for s in ((2, 4, 3), (4,), (4,)))
    assert ts.autograd.gradcheck(lambda *t: ts.nn.functional.group_norm(t[0], 2, t[1], t[2]), (x, w, b))
    assert ts.autograd.gradgradcheck(lambda *t: ts.nn.functional.group_norm(t[0], 2, t[1], t[2]), (x, w, b))


def test_a_bias_alone_shifts_groups() -> None:
    """PyTorch's gradient fails here."""
    names = inputs(ts, "float64")
    x, v, group_norm = names["x"].requires_grad_(), names["v"].requires_grad_(), names["F"].group_norm
    alone, beside = group_norm(x, 6, None, v), group_norm(x, 6, ts.ones_like(v), v)
    np.testing.assert_allclose(host(alone), host(beside), rtol=1e-12)
    for got, want in zip(
        ts.autograd.grad(alone.exp().sum(), (x, v)), ts.autograd.grad(beside.exp().sum(), (x, v)), strict=True
    ):
        np.testing.assert_allclose(host(got), host(want), rtol=1e-9)


def test_the_integral_of_nothing_is_zero() -> None:
    assert ts.trapezoid(ts.ones(3, 0)).tolist() == [0.0] * 3


def test_a_position_outside_is_refused_where_dims_lie_apart() -> None:
    cube = ts.zeros(4, 5, 6)
    with pytest.raises(IndexError):
        cube[ts.full((400,), 4), :, ts.zeros(400, dtype=ts.int64)]
    with pytest.raises(IndexError):
        cube[ts.zeros(400, dtype=ts.int64), :, ts.full((400,), -7)]


def test_an_end_that_is_infinite_stays_so() -> None:
    assert ts.trapezoid(ts.tensor([float("inf"), 1.0, 2.0])).item() == float("inf")


def test_integrals_of_integers() -> None:
    y = [[1, 250, 3], [7, 8, 250]]
    for dtype in ("uint8", "int32", "int64"):
        ours, theirs = (m.trapezoid(m.tensor(y).to(getattr(m, dtype))) for m in (ts, torch))
        assert ours.tolist() == [252.0, 136.5] and str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("op", ["unique", "unique_consecutive"])
def test_what_is_asked_of_distinct_elements(op: str, counts: bool, inverse: bool) -> None:
    data = np.random.default_rng(1).integers(0, 4, (3, 50))
    ours, theirs = (getattr(m, op)(m.tensor(data), return_inverse=inverse, return_counts=counts) for m in (ts, torch))
    as_lists = lambda r: [t.tolist() for t in (r if isinstance(r, tuple) else (r,))]  # noqa: E731
    assert as_lists(ours) == as_lists(theirs)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int64"])
def test_nan_to_num_in_place(dtype: str) -> None:
    values = [1.0, float("inf"), -float("inf"), float("nan"), 5.0] if dtype != "int64" else [1, 2, 3, 4, 5]
    for options in ({}, {"nan": 7.0, "posinf": 8.0, "neginf": 9.0}):
        ours, theirs = (m.tensor(values).to(getattr(m, dtype)) for m in (ts, torch))
        before = ours._version
        assert ts.nan_to_num_(ours, **options) is ours
        assert ours._version == before + 1
        assert str(ours.tolist()) == str(torch.nan_to_num_(theirs, **options).tolist())
