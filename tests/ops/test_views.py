"""View operators against NumPy: values, sharing of memory, gradients, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck

X = np.arange(24.0).reshape(2, 3, 4)
M = np.arange(12.0).reshape(3, 4)

# name -> (input, the operator, NumPy's answer)
Case = tuple[np.ndarray, Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]
CASES: dict[str, Case] = {
    "view": (X, lambda t: t.view(6, -1), lambda a: a.reshape(6, 4)),
    "view_tuple": (X, lambda t: t.view((4, 6)), lambda a: a.reshape(4, 6)),
    "view_0d": (X[:1, :1, 0], lambda t: t.view([]), lambda a: a.reshape(())),
    "reshape": (X, lambda t: t.reshape(4, 6), lambda a: a.reshape(4, 6)),
    "reshape_strided": (X, lambda t: t.transpose(0, 2).reshape(-1), lambda a: a.transpose(2, 1, 0).reshape(-1)),
    "flatten": (X, lambda t: t.flatten(1), lambda a: a.reshape(2, 12)),
    "flatten_0d": (np.array(3.0), lambda t: t.flatten(), lambda a: a.reshape(1)),
    "unflatten": (X, lambda t: t.unflatten(2, (2, -1)), lambda a: a.reshape(2, 3, 2, 2)),
    "ravel": (X, lambda t: t.ravel(), lambda a: a.ravel()),
    "transpose": (X, lambda t: t.transpose(0, -1), lambda a: a.swapaxes(0, 2)),
    "swapaxes": (X, lambda t: t.swapaxes(1, 2), lambda a: a.swapaxes(1, 2)),
    "t": (M, lambda t: t.t(), lambda a: a.T),
    "mT": (X, lambda t: t.mT, lambda a: a.swapaxes(1, 2)),
    "T": (M, lambda t: t.T, lambda a: a.T),
    "adjoint": (X, lambda t: t.adjoint(), lambda a: a.swapaxes(1, 2)),
    "mT_0d": (np.array(3.0), lambda t: t.mT, lambda a: a),
    "mH_0d": (np.array(3.0), lambda t: t.mH, lambda a: a),
    "adjoint_0d": (np.array(3.0), lambda t: t.adjoint(), lambda a: a),
    "permute": (X, lambda t: t.permute(2, 0, -2), lambda a: a.transpose(2, 0, 1)),
    "movedim": (X, lambda t: t.movedim(0, -1), lambda a: np.moveaxis(a, 0, -1)),
    "movedim_list": (X, lambda t: t.movedim((0, 1), (2, 0)), lambda a: np.moveaxis(a, (0, 1), (2, 0))),
    "expand": (M[:1], lambda t: t.expand(2, 3, -1), lambda a: np.broadcast_to(a, (2, 3, 4))),
    "broadcast_to": (M[:1], lambda t: t.broadcast_to(5, 4), lambda a: np.broadcast_to(a, (5, 4))),
    "squeeze": (X[:1, :, :1], lambda t: t.squeeze(), lambda a: a.squeeze()),
    "squeeze_dim": (X[:1, :, :1], lambda t: t.squeeze(-1), lambda a: a.squeeze(-1)),
    "squeeze_dims": (X[:1, :, :1], lambda t: t.squeeze((0, 1)), lambda a: a.squeeze(0)),
    "unsqueeze": (M, lambda t: t.unsqueeze(-1), lambda a: a[..., None]),
    "select": (X, lambda t: t.select(1, -1), lambda a: a[:, -1]),
    "narrow": (X, lambda t: t.narrow(2, 1, 2), lambda a: a[:, :, 1:3]),
    "narrow_negative": (X, lambda t: t.narrow(2, -3, 2), lambda a: a[:, :, 1:3]),
    "slice_step": (X, lambda t: t[:, :, 1::2], lambda a: a[:, :, 1::2]),
    "slice_clamped": (M, lambda t: t[-100:100, 3:1], lambda a: a[-100:100, 3:1]),
    "diagonal": (M, lambda t: t.diagonal(1), lambda a: a.diagonal(1)),
    "diagonal_below": (X, lambda t: t.diagonal(-1, 1, 2), lambda a: a.diagonal(-1, 1, 2)),
    "diagonal_outside": (M, lambda t: t.diagonal(10), lambda a: a.diagonal(10)),
    "unfold": (M, lambda t: t.unfold(1, 2, 1), lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, 1)),
    "unfold_step": (M, lambda t: t.unfold(0, 2, 1), lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, 0)),
    "as_strided": (M, lambda t: t.as_strided((2, 2), (4, 1), 1), lambda a: a[:2, 1:3]),
    "as_strided_overlap": (
        M,
        lambda t: t.as_strided((3, 3), (2, 1)),
        lambda a: np.stack([a.ravel()[2 * i : 2 * i + 3] for i in range(3)]),
    ),
    "hsplit": (M, lambda t: t.hsplit(2)[1], lambda a: a[:, 2:]),
    "unbind": (X, lambda t: t.unbind(1)[2], lambda a: a[:, 2]),
    "split": (X, lambda t: t.split(2, 1)[1], lambda a: a[:, 2:]),
    "split_sizes": (M, lambda t: t.split([1, 3], -1)[1], lambda a: a[:, 1:]),
    "chunk": (M, lambda t: t.chunk(3, 1)[1], lambda a: a[:, 2:]),
    "tensor_split": (M, lambda t: t.tensor_split(3, 1)[0], lambda a: a[:, :2]),
    "tensor_split_at": (M, lambda t: t.tensor_split((1, 2), 1)[2], lambda a: a[:, 2:]),
}


@pytest.mark.parametrize("name", CASES)
def test_values(device: str, name: str) -> None:
    array, view, expected = CASES[name]
    out = view(ts.tensor(array, device=device))
    assert tuple(out.shape) == expected(array).shape
    np.testing.assert_array_equal(out.cpu().numpy(), expected(array))


@pytest.mark.parametrize("name", [n for n in CASES if n != "reshape_strided"])
def test_writes_reach_the_base(device: str, name: str) -> None:
    array, view, expected = CASES[name]
    if name in {"expand", "broadcast_to", "unfold", "unfold_step", "as_strided_overlap"}:
        pytest.skip("several elements of this view share a place: writing is refused")
    base, want = ts.tensor(array, device=device), array.copy()
    view(base).fill_(-1)
    expected(want.view())  # a view in NumPy as well: the same places are written
    places = expected(np.arange(array.size).reshape(array.shape))
    want.reshape(-1)[places.reshape(-1)] = -1
    np.testing.assert_array_equal(base.cpu().numpy(), want)


@pytest.mark.parametrize("name", CASES)
def test_gradients(device: str, name: str) -> None:
    array, view, _ = CASES[name]
    x = ts.tensor(array, device=device, requires_grad=True)
    assert gradcheck(lambda t: view(t) * view(t), (x,))
    assert gradgradcheck(lambda t: view(t) * view(t) * view(t), (x,))


def test_gradient_of_all_parts_at_once(device: str) -> None:
    for parts in (
        lambda t: t.unbind(0),
        lambda t: t.split(2, 1),
        lambda t: t.chunk(2, 1),
        lambda t: t.split([1, 3], 1),
    ):
        x = ts.tensor(M, device=device, requires_grad=True)
        loss = sum(
            ((k + 1) * part.sum() for k, part in enumerate(parts(x))), ts.zeros((), device=device, dtype=ts.float64)
        )
        loss.backward()
        want = np.zeros_like(M)
        for k, places in enumerate(parts(ts.arange(12, device=device).reshape(3, 4))):
            want.reshape(-1)[places.cpu().numpy()] = k + 1
        np.testing.assert_array_equal(x.grad.cpu().numpy(), want)


def test_unused_part_has_zero_gradient(device: str) -> None:
    x = ts.tensor(M, device=device, requires_grad=True)
    x.unbind(0)[1].sum().backward()
    np.testing.assert_array_equal(x.grad.cpu().numpy(), np.array([[0.0] * 4, [1.0] * 4, [0.0] * 4]))


def test_views_of_nothing(device: str) -> None:
    x = ts.zeros(0, 3, device=device)
    assert x.view(3, 0).shape == (3, 0)
    assert x.t().shape == (3, 0)
    assert x.expand(2, 0, 3).shape == (2, 0, 3)
    assert x.split(2)[0].shape == (0, 3)
    assert len(x.unbind(0)) == 0
    assert x.diagonal().shape == (0,)
    assert x.unfold(1, 2, 1).shape == (0, 2, 2)


def test_views_of_a_flipped_tensor(device: str) -> None:
    # A slice with a negative step is the one view with negative strides.
    x, a = ts.tensor(X, device=device)[:, ::-1], X[:, ::-1]
    np.testing.assert_array_equal(x.transpose(1, 2).cpu().numpy(), a.transpose(0, 2, 1))
    np.testing.assert_array_equal(x.reshape(6, 4).cpu().numpy(), a.reshape(6, 4))
    np.testing.assert_array_equal(x.unbind(1)[0].cpu().numpy(), a[:, 0])
    np.testing.assert_array_equal(x[:, 1:, ::3].cpu().numpy(), a[:, 1:, ::3])
    np.testing.assert_array_equal(x.unfold(1, 2, 1).cpu().numpy(), np.lib.stride_tricks.sliding_window_view(a, 2, 1))


def test_view_as_another_dtype(device: str) -> None:
    x = ts.tensor(np.array([[1.0, -2.0], [0.5, 3.0]], dtype=np.float32), device=device)
    assert x.view(ts.int32).cpu().numpy().tolist() == x.cpu().numpy().view(np.int32).tolist()
    assert x.view(ts.int16).shape == (2, 4)
    assert x.view(ts.float64).cpu().numpy().tolist() == x.cpu().numpy().view(np.float64).tolist()
    with pytest.raises(RuntimeError, match=r"stride\(-1\) must be 1"):
        x.t().view(ts.int16)
    with pytest.raises(RuntimeError, match="divisible by 2"):
        x[:, :1].contiguous().view(ts.float64)
    with pytest.raises(RuntimeError, match="cannot be 0"):
        ts.zeros((), device=device).view(ts.int16)


def test_meshgrid_and_broadcast_tensors(device: str) -> None:
    a, b = np.arange(3.0), np.arange(2.0)
    for indexing in ("ij", "xy"):
        got = ts.meshgrid(ts.tensor(a, device=device), ts.tensor(b, device=device), indexing=indexing)
        for g, want in zip(got, np.meshgrid(a, b, indexing=indexing), strict=True):
            np.testing.assert_array_equal(g.cpu().numpy(), want)
    x, y = ts.broadcast_tensors(ts.zeros(3, 1, device=device), ts.zeros(2, device=device))
    assert x.shape == y.shape == (3, 2)


def test_atleast(device: str) -> None:
    s, v, m = ts.tensor(1.0, device=device), ts.zeros(3, device=device), ts.zeros(2, 3, device=device)
    assert [ts.atleast_1d(t).shape for t in (s, v, m)] == [(1,), (3,), (2, 3)]
    assert [ts.atleast_2d(t).shape for t in (s, v, m)] == [(1, 1), (1, 3), (2, 3)]
    assert [ts.atleast_3d(t).shape for t in (s, v, m)] == [(1, 1, 1), (1, 3, 1), (2, 3, 1)]


def test_detach_shares_data_and_drops_history(device: str) -> None:
    x = ts.ones(3, device=device, requires_grad=True)
    d = x.detach()
    assert not d.requires_grad
    d.fill_(7)
    assert x.detach().cpu().numpy().tolist() == [7, 7, 7]


ERRORS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "view_size": (lambda t: t.view(5), RuntimeError, "invalid for input of size 24"),
    "view_two_unknown": (lambda t: t.view(-1, -1), RuntimeError, "only one dimension can be inferred"),
    "view_strides": (lambda t: t.transpose(0, 2).view(-1), RuntimeError, "Use .reshape"),
    "view_negative": (lambda t: t.view(-2, -12), RuntimeError, "invalid shape dimension"),
    "view_overflow": (lambda t: t.view(2**62, 4), RuntimeError, "invalid for input"),
    "transpose": (lambda t: t.transpose(0, 3), IndexError, "Dimension out of range"),
    "t": (lambda t: t.t(), RuntimeError, "<= 2 dimensions"),
    "permute_count": (lambda t: t.permute(0, 1), RuntimeError, "number of dimensions"),
    "permute_twice": (lambda t: t.permute(0, 0, 1), RuntimeError, "multiple times"),
    "expand": (lambda t: t.expand(4, 3, 4), RuntimeError, "must match the existing size"),
    "expand_fewer": (lambda t: t.expand(4), RuntimeError, "must be greater or equal"),
    "expand_leading": (lambda t: t.expand(-1, 2, 3, 4), RuntimeError, "leading, non-existing"),
    "select": (lambda t: t.select(0, 2), IndexError, "out of bounds"),
    "select_0d": (lambda t: t.sum().select(0, 0), IndexError, "0-dim"),
    "narrow_length": (lambda t: t.narrow(0, 1, 2), RuntimeError, "exceeds dimension size"),
    "narrow_start": (lambda t: t.narrow(0, 3, 0), IndexError, "start out of range"),
    "narrow_negative": (lambda t: t.narrow(0, 0, -1), RuntimeError, "non-negative"),
    "narrow_huge": (lambda t: t.narrow(0, 1, 2**63 - 1), RuntimeError, "exceeds dimension size"),
    "diagonal": (lambda t: t.diagonal(0, 1, 1), RuntimeError, "identical"),
    "diag_embed_huge": (lambda t: t.diag_embed(2**63 - 1), RuntimeError, "too large"),
    "diagflat_lowest": (lambda t: t.diagflat(-(2**63)), RuntimeError, "too large"),
    "unfold_size": (lambda t: t.unfold(0, 3, 1), RuntimeError, "maximum size"),
    "unfold_step": (lambda t: t.unfold(0, 1, 0), RuntimeError, "must be > 0"),
    "as_strided": (lambda t: t.as_strided((5, 5), (5, 1)), RuntimeError, "out of bounds"),
    "as_strided_offset": (lambda t: t.as_strided((1,), (1,), 24), RuntimeError, "out of bounds"),
    "as_strided_huge": (lambda t: t.as_strided((2**40, 2**40), (2**40, 1)), RuntimeError, "tensor|out of bounds"),
    "as_strided_negative": (lambda t: t.as_strided((2,), (-1,), 3), RuntimeError, "Negative strides"),
    "as_strided_lengths": (lambda t: t.as_strided((2, 2), (1,)), RuntimeError, "mismatch in length"),
    "split_sizes": (lambda t: t.split([1, 3], 1)[0], RuntimeError, "sum exactly to 3"),
    "split_zero": (lambda t: t.split(0), RuntimeError, "can only be 0"),
    "chunk": (lambda t: t.chunk(0), RuntimeError, "greater than 0"),
    "unflatten": (lambda t: t.unflatten(1, (2, 2)), RuntimeError, "invalid for input of size 3"),
    "movedim": (lambda t: t.movedim((0, 1), (0,)), RuntimeError, "same number of dims"),
    "flatten": (lambda t: t.flatten(2, 1), RuntimeError, "start_dim cannot come after"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(device: str, name: str) -> None:
    call, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        call(ts.tensor(X, device=device))


def test_in_place_forms_change_the_tensor_itself(device: str) -> None:
    x = ts.tensor(M, device=device)
    assert x.t_() is x and x.shape == (4, 3)
    assert x.unsqueeze_(0).shape == (1, 4, 3)
    assert x.squeeze_(0).transpose_(0, 1).shape == (3, 4)
    np.testing.assert_array_equal(x.cpu().numpy(), M)
    w = ts.tensor(M, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        w.t_()
    y = w * 2
    (y.t_() * ts.tensor(M.T.copy(), device=device)).sum().backward()
    np.testing.assert_array_equal(w.grad.cpu().numpy(), 2 * M)


def test_backward_operators_check_their_operands(device: str) -> None:
    """They are reachable by name, so a wrong gradient is an error like any other."""
    g = ts.zeros(0, dtype=ts.float64, device=device)
    with pytest.raises(RuntimeError, match="expected a gradient of sizes"):
        ts.ops.slice_backward(g, [2, 3], 0, 0, 1, 1)
    with pytest.raises(RuntimeError, match="expected a gradient of sizes"):
        ts.ops.select_backward(g, [2, 3], 0, 0)
    with pytest.raises(RuntimeError, match="expected a gradient of sizes"):
        ts.ops.diagonal_backward(g, [2, 3], 0, 0, 1)
    with pytest.raises(RuntimeError, match="expected a gradient of sizes"):
        ts.ops.unfold_backward(g, [2, 3], 0, 1, 1)


SLICES = {
    "4:": (24, (6, 1)), "3:2": (18, (6, 1)), "9:": (24, (6, 1)), "1:1:2": (6, (12, 1)), "2:3:2": (12, (12, 1)),
    ":, 5:6:4": (5, (6, 4)), ":, 2:3": (2, (6, 1)),
}  # fmt: skip


@pytest.mark.parametrize("key", SLICES)
def test_slices_of_few_elements_lie_where_they_say(key, device):
    view = eval(f"x[{key}]", {"x": ts.zeros(4, 6, device=device)})
    assert (view.storage_offset(), view.stride()) == SLICES[key]


@pytest.mark.parametrize("view", [lambda t: t[..., 1 :: 2**63 - 1], lambda t: t.as_strided((2, 1), (2, 2**62))])
def test_strides_of_one_position_can_be_counted_in_bytes(view, device):
    x = view(ts.tensor(X[:, :2, 0], device=device))
    assert x.tolist() == x.clone().tolist() == x.unsqueeze(1).expand(2, 3, 1)[:, 0].tolist()
    assert x.diagonal().stride()[0] > 0
