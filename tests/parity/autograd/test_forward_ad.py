"""Dual numbers beside PyTorch's."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import tesserack as ts
import torch

importlib.import_module("torch.autograd.forward_ad")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, of torch.jit
RNG = np.random.default_rng(1)
X, V, W = (RNG.standard_normal((3, 4)) for _ in range(3))

FUNCTIONS = {
    "pointwise": lambda m, x: (x.sin() * x).exp(),
    "reduced": lambda m, x: x.softmax(1).log().sum(),
    "matrix": lambda m, x: x @ x.t(),
    "view": lambda m, x: x[1:, ::2].reshape(-1) * 2,
    "selected": lambda m, x: m.where(x > 0, x**3, x),
    "normalised": lambda m, x: m.nn.functional.layer_norm(x, (4,)),
    "written": lambda m, x: x.clone().mul_(x).add_(1),
    "complex": lambda m, x: (m.complex(x, x * 2) ** 2).abs(),
}


def made(m, array):
    return m.tensor(array.tolist(), dtype=m.float64)


def both(call):
    return call(ts), call(torch)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tangents(name):
    def tangent(m):
        ad = m.autograd.forward_ad
        with ad.dual_level():
            x = ad.make_dual(made(m, X), made(m, V))
            return ad.unpack_dual(FUNCTIONS[name](m, x))

    for a, b in zip(*both(tangent), strict=True):
        assert not a.requires_grad
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-12)


def test_two_duals_and_a_plain_tensor():
    def tangents(m):
        ad = m.autograd.forward_ad
        with ad.dual_level():
            x, y = ad.make_dual(made(m, X), made(m, V)), ad.make_dual(made(m, W), made(m, X))
            z = made(m, V)
            none = ad.unpack_dual(z * 2).tangent
            return none, ad.unpack_dual(x * y + z).tangent, ad.unpack_dual(y.cos()).tangent, ad.unpack_dual(x).tangent

    ours, theirs = both(tangents)
    assert ours[0] is theirs[0] is None
    for a, b in zip(ours[1:], theirs[1:], strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)


def test_gradient_of_a_tangent():
    def gradient(m):
        ad = m.autograd.forward_ad
        x = made(m, X).requires_grad_()
        with ad.dual_level():
            (ad.unpack_dual((ad.make_dual(x, made(m, V)) ** 3).sum()).tangent).backward()
        return x.grad

    a, b = both(gradient)
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10)


def test_tangents_end_with_the_level():
    def after(m):
        ad = m.autograd.forward_ad
        with ad.dual_level() as level:
            y = ad.make_dual(made(m, X), made(m, V)) * 2
        return level, ad.unpack_dual(y).tangent

    assert after(ts) == after(torch) == (0, None)


REFUSED = {
    "no level": (False, lambda ad, x: ad.make_dual(x, x)),
    "exit": (False, lambda ad, x: ad.exit_dual_level()),
    "nested": (True, lambda ad, x: ad.enter_dual_level()),
    "shape": (True, lambda ad, x: ad.make_dual(x, x[0])),
    "integers": (True, lambda ad, x: ad.make_dual(x.long(), x)),
    "integer tangent": (True, lambda ad, x: ad.make_dual(x, x.long())),
    "number": (True, lambda ad, x: ad.unpack_dual(3)),
    "other level": (True, lambda ad, x: ad.unpack_dual(ad.make_dual(x, x), level=3)),
    "twice": (True, lambda ad, x: ad.make_dual(ad.make_dual(x, x), x)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    inside, call = REFUSED[name]

    def run(m):
        ad = m.autograd.forward_ad
        if not inside:
            return call(ad, made(m, X))
        with ad.dual_level():
            return call(ad, made(m, X))

    with pytest.raises(Exception) as theirs:
        run(torch)
    with pytest.raises(theirs.type):
        run(ts)
