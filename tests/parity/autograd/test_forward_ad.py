"""Dual numbers beside PyTorch's."""

from __future__ import annotations

import importlib
import weakref

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


LAYOUTS = {
    "alike": lambda m, x, v: (x, v),
    "transposed": lambda m, x, v: (x.t().contiguous().t(), v),
    "both": lambda m, x, v: (x.t(), v.t()),
    "expanded": lambda m, x, v: (x, v[:1, :1].expand(3, 4)),
    "column": lambda m, x, v: (x[:, 1], v[:, 0].clone()),
    "part": lambda m, x, v: (x.reshape(-1)[:4], v[0].clone()),
    "one row": lambda m, x, v: (x[:1].clone(), v[:1].clone().t().contiguous().t()),
    "conjugate": lambda m, x, v: (m.complex(x, v).conj(), m.complex(v, x)),
    "empty": lambda m, x, v: (x[:0], v[:0].clone()),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_tangents_lie_as_their_primals(compare_program, name):
    def program(m):
        primal, tangent = LAYOUTS[name](m, made(m, X), made(m, V))
        with m.autograd.forward_ad.dual_level():
            dual = m.autograd.forward_ad.make_dual(primal, tangent)
            kept = m.autograd.forward_ad.unpack_dual(dual).tangent
            room = kept.untyped_storage().nbytes() if kept.numel() else 0
            return [kept is tangent, kept.stride(), kept.storage_offset(), room, kept.is_conj(), kept.resolve_conj()]

    compare_program(program)


def custom(m, forward, jvp):
    """A custom function by its forward and its jvp, both functions of the context and a tensor."""

    class Custom(m.autograd.Function):
        @staticmethod
        def backward(ctx, grad):
            return grad

    Custom.forward, Custom.jvp = staticmethod(forward), staticmethod(jvp)
    return Custom


def written(ctx, x):
    ctx.mark_dirty(x)
    return x.mul_(2)


def saving(ctx, x):
    ctx.save_for_backward(x)
    return x * 2


RULES = {
    "view": (lambda ctx, x: x[:2], lambda ctx, t: t[:2]),
    "copy for a view": (lambda ctx, x: x[:2], lambda ctx, t: t[:2].clone()),
    "another view": (lambda ctx, x: x[:2], lambda ctx, t: t[:2].clone().view(2, 4)),
    "itself for an input": (lambda ctx, x: x, lambda ctx, t: t),
    "view for an input": (lambda ctx, x: x, lambda ctx, t: t.view_as(t)),
    "written": (written, lambda ctx, t: t.mul_(2)),
    "not written": (written, lambda ctx, t: t * 2),
    "nothing saved for it": (saving, lambda ctx, t: t * (2 + len(ctx.saved_tensors))),
}


@pytest.mark.parametrize("name", RULES)
def test_a_jvp_follows_what_its_forward_does(compare_program, name):
    def program(m):
        ad = m.autograd.forward_ad
        with ad.dual_level():
            x = ad.make_dual(made(m, X), made(m, V))
            if "written" in name:
                x = x.clone()
            try:
                y = custom(m, *RULES[name]).apply(x)
            except RuntimeError:
                return "refused"
            return [y is x, ad.unpack_dual(y).tangent.detach()]

    compare_program(program)


def test_what_has_no_rule_at_all_is_refused(compare_program):
    def program(m):
        class Bare(m.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

        with m.autograd.forward_ad.dual_level():
            dual = m.autograd.forward_ad.make_dual(made(m, X), made(m, V))
            with pytest.raises(NotImplementedError):
                Bare.apply(dual)
        return Bare.apply(made(m, X))

    compare_program(program)


def test_writing_to_the_primal_keeps_the_tangent(compare_program):
    def program(m):
        x, v = made(m, X), made(m, V)
        with m.autograd.forward_ad.dual_level():
            dual = m.autograd.forward_ad.make_dual(x, v)
            x.add_(1)
            return m.autograd.forward_ad.unpack_dual(dual).tangent is v

    compare_program(program)


WRITTEN = {
    "scaled": lambda m, dual, plain: dual.mul_(2),
    "twice": lambda m, dual, plain: dual.mul_(2).add_(dual * 3),
    "a part": lambda m, dual, plain: dual[1].mul_(plain[0]),
    "copied": lambda m, dual, plain: dual.copy_(plain),
    "indexed": lambda m, dual, plain: dual.index_fill_(0, m.tensor([0]), 0.0),
    "after use": lambda m, dual, plain: dual.mul_((dual * dual).detach()),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_writing_to_a_dual_writes_to_its_tangent(compare_program, name):
    def program(m):
        ad = m.autograd.forward_ad
        x, v, plain = made(m, X), made(m, V), made(m, W)
        with ad.dual_level():
            dual = ad.make_dual(x, v)
            before = dual.sin()
            WRITTEN[name](m, dual, plain)
            kept = ad.unpack_dual(dual).tangent is v
            after = dual.exp()
            results = [v.clone(), ad.unpack_dual(before).tangent, ad.unpack_dual(after).tangent]
            ad.unpack_dual(dual).tangent.mul_(3)
            results += [v.clone(), ad.unpack_dual(dual * plain).tangent]
            dual.mul_(plain)
        return [kept, x, v, *results]

    compare_program(program)


def test_a_tangent_is_freed_with_what_was_computed_of_its_dual():
    def alive(m):
        ad = m.autograd.forward_ad
        with ad.dual_level():
            tangent = made(m, V)
            seen = weakref.ref(tangent)
            dual = ad.make_dual(made(m, X), tangent)
            del tangent
            held = seen() is not None
            del dual
            return held, seen() is None

    assert alive(ts) == alive(torch) == (True, True)


def test_the_incomplete_gamma_function_has_tangents_by_its_second_argument_alone():
    a, x, v = (made(ts, array).exp() for array in (X, W, V))
    for function in (ts.special.gammainc, ts.special.gammaincc):
        y = x.clone().requires_grad_()
        (gradient,) = ts.autograd.grad(function(a, y).sum(), y)
        with ts.autograd.forward_ad.dual_level():
            dual = ts.autograd.forward_ad.make_dual(x, v)
            tangent = ts.autograd.forward_ad.unpack_dual(function(a, dual)).tangent
            with pytest.raises(NotImplementedError):
                function(dual, x)
        np.testing.assert_allclose(tangent.numpy(), (gradient * v).numpy(), rtol=1e-12)


def test_duals_are_made_in_inference_mode():
    def kept(m):
        ad = m.autograd.forward_ad
        with m.inference_mode(), ad.dual_level():
            tangent = made(m, V)
            dual = ad.make_dual(made(m, X), tangent)
            return ad.unpack_dual(dual).tangent is not None

    assert kept(ts) is kept(torch) is False
