"""Transforms of functions beside PyTorch's, nested ones included."""

from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch
from tesserack import nn

pytestmark = pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")  # PyTorch's own, of its forward mode

RNG = np.random.default_rng(0)
X, Y, M = RNG.standard_normal(4), RNG.standard_normal(4), RNG.standard_normal((3, 4))


def on(m, array):
    return m.tensor(np.asarray(array).tolist(), dtype=m.float64)


def flat(value):
    if isinstance(value, dict):
        return [x for v in value.values() for x in flat(v)]
    if isinstance(value, (tuple, list)):
        return [x for v in value for x in flat(v)]
    return [value]


def poly(m, x):
    return (x**3).sum() + (x * x.flip(0)).sin().sum()


CALLS = {
    "grad": lambda m: m.func.grad(lambda x: poly(m, x))(on(m, X)),
    "grad of two": lambda m: m.func.grad(lambda x, y: (x * y * y).sum(), argnums=(0, 1))(on(m, X), on(m, Y)),
    "grad of the last": lambda m: m.func.grad(lambda x, y: (x * y * y).sum(), argnums=-1)(on(m, X), on(m, Y)),
    "grad of a dict": lambda m: m.func.grad(lambda p: (p["a"] * p["b"]).sum())({"a": on(m, X), "b": on(m, Y)}),
    "grad with aux": lambda m: m.func.grad(lambda x: (poly(m, x), x * 2), has_aux=True)(on(m, X)),
    "value": lambda m: m.func.grad_and_value(lambda x: poly(m, x))(on(m, X)),
    "value with aux": lambda m: m.func.grad_and_value(lambda x: (poly(m, x), x * 2), has_aux=True)(on(m, X)),
    "grad of grad": lambda m: m.func.grad(lambda x: m.func.grad(lambda y: (y**4).sum())(x).sum())(on(m, X)),
    "unused": lambda m: m.func.grad(lambda x, y: y.sum(), argnums=0)(on(m, X), on(m, Y)),
    "vjp": lambda m: m.func.vjp(lambda x, y: (x * y, x.sin()), on(m, X), on(m, Y))[1]((on(m, Y), on(m, X))),
    "vjp's output": lambda m: m.func.vjp(lambda x: x.exp(), on(m, X))[0],
    "jvp": lambda m: m.func.jvp(lambda x, y: x * y.exp(), (on(m, X), on(m, Y)), (on(m, Y), on(m, X))),
    "jvp with aux": lambda m: m.func.jvp(lambda x: (x.exp(), x + 1), (on(m, X),), (on(m, Y),), has_aux=True),
    "linearize": lambda m: m.func.linearize(lambda x: x.exp() * x, on(m, X))[1](on(m, Y)),
    "jacrev": lambda m: m.func.jacrev(lambda x: on(m, M) @ x.sin())(on(m, X)),
    "jacrev of two": lambda m: m.func.jacrev(lambda x, y: (x * y, y.sum()), argnums=(0, 1))(on(m, X), on(m, Y)),
    "jacrev with aux": lambda m: m.func.jacrev(lambda x: (x.exp(), x + 1), has_aux=True)(on(m, X)),
    "jacfwd": lambda m: m.func.jacfwd(lambda x: on(m, M) @ x.sin())(on(m, X)),
    "jacfwd of a dict": lambda m: m.func.jacfwd(lambda x: {"a": x * x.sum(), "b": x[:2].exp()})(on(m, X)),
    "jacrev of a matrix": lambda m: m.func.jacrev(lambda w: (w @ on(m, X)).tanh())(on(m, M)),
    "hessian": lambda m: m.func.hessian(lambda x: poly(m, x))(on(m, X)),
    "jacfwd of jacrev": lambda m: m.func.jacfwd(m.func.jacrev(lambda x: poly(m, x)))(on(m, X)),
    "vmap": lambda m: m.vmap(m.dot)(on(m, M), on(m, M * 2)),
    "vmap one of two": lambda m: m.func.vmap(lambda a, b: a * b, in_dims=(0, None))(on(m, M), on(m, X)),
    "vmap along 1": lambda m: m.func.vmap(lambda a: a.cumsum(0), in_dims=1, out_dims=1)(on(m, M)),
    "vmap out of last": lambda m: m.func.vmap(lambda a: m.outer(a, a), out_dims=-1)(on(m, M)),
    "vmap of vmap": lambda m: m.func.vmap(m.func.vmap(lambda a: a * a))(on(m, M)),
    "vmap of a dict": lambda m: m.func.vmap(lambda p, k: {"s": p["a"] + k}, in_dims=({"a": 0}, None))(
        {"a": on(m, M)}, on(m, 2.0)
    ),
    "vmap of keywords": lambda m: m.func.vmap(lambda a, b: a + b)(on(m, M), b=on(m, M)),
    "gradients by sample": lambda m: m.func.vmap(m.func.grad(lambda w, x: (w * x).sum().sin()), in_dims=(None, 0))(
        on(m, X), on(m, M)
    ),
    "jacobian by vmap": lambda m: m.func.vmap(m.func.jacrev(lambda x: x.sin()))(on(m, M)),
    "grad of vmap": lambda m: m.func.grad(lambda w: m.func.vmap(lambda x: (w * x).sum().exp())(on(m, M)).sum())(
        on(m, X)
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_calls(name):
    mine, theirs = flat(CALLS[name](ts)), flat(CALLS[name](torch))
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        assert not a.requires_grad
        assert tuple(a.shape) == tuple(b.shape)
        np.testing.assert_allclose(np.array(a.tolist()), np.array(b.tolist()), rtol=1e-9, atol=1e-12)


def test_results_are_recorded_for_what_requires_gradients():
    values = []
    for m in (ts, torch):
        x = on(m, X).requires_grad_()
        m.func.grad(lambda v: (v**3).sum())(x).sum().backward()
        values.append(x.grad.tolist())
    np.testing.assert_allclose(*values)


def test_products_of_what_ran_without_gradients_are_recorded():
    values = []
    for m in (ts, torch):
        x = on(m, X).requires_grad_()
        with m.no_grad():
            y, pull = m.func.vjp(lambda v: v**2, x)
            (inside,) = pull(m.ones_like(y))
        (outside,) = pull(m.ones_like(y))
        assert [t.requires_grad for t in (y, inside, outside)] == [False, False, True]
        values.append(m.autograd.grad(outside.sum(), x)[0].tolist())
    np.testing.assert_allclose(*values)


ERRORS = [
    lambda m: m.func.grad(lambda x: x)(m.ones(2)),
    lambda m: m.func.grad(lambda x: x.sum(), argnums=1)(m.ones(2)),
    lambda m: m.func.vmap(lambda x, y: x)(m.ones(2), m.ones(3)),
    lambda m: m.func.vmap(lambda x: x, in_dims=2)(m.ones(2)),
    lambda m: m.func.vmap(lambda x: x, in_dims=None)(m.ones(2)),
    lambda m: m.func.vmap(lambda x: 1)(m.ones(2)),
    lambda m: m.func.vmap(lambda x: x)(3),
    lambda m: m.func.vjp(lambda x: x, m.ones(2))[1](m.ones(3)),
    lambda m: m.func.jvp(lambda x: x, (m.ones(2),), (m.ones(3),)),
    lambda m: m.func.jvp(lambda x: x, m.ones(2), m.ones(2)),
    lambda m: m.func.stack_module_state([]),
]


@pytest.mark.parametrize("call", ERRORS)
def test_errors(call):
    with pytest.raises(Exception) as theirs:
        call(torch)
    with pytest.raises(type(theirs.value)):
        call(ts)


def test_an_ensemble():
    ts.manual_seed(0)
    models = [nn.Linear(3, 2) for _ in range(4)]
    parameters, buffers = ts.func.stack_module_state(models)
    assert buffers == {} and parameters["weight"].is_leaf and parameters["weight"].requires_grad
    x = ts.randn(5, 3)
    with ts.no_grad():
        got = ts.func.vmap(lambda p: ts.func.functional_call(models[0], p, (x,)))(parameters)
        want = ts.stack([model(x) for model in models])
    assert ts.allclose(got, want)


def test_batch_norm_without_running_statistics():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    assert ts.func.replace_all_batch_norm_modules_(net) is net
    net.eval()
    assert net[1].running_mean is None and net(ts.randn(6, 3)).mean(0).abs().max() < 1e-5


def _cube(m):
    calls = []

    class Cube(m.autograd.Function):
        @staticmethod
        def forward(x, k):
            return m.tensor(x.detach().numpy() ** 3 * k)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])
            ctx.k = inputs[1]

        @staticmethod
        def backward(ctx, grad):
            return 3 * ctx.saved_tensors[0] ** 2 * ctx.k * grad, None

        @staticmethod
        def vmap(info, in_dims, x, k):
            calls.append((info.batch_size, info.randomness, type(in_dims), in_dims[1]))
            return Cube.apply(x, k), in_dims[0]

    return Cube, calls


def test_vmap_asks_custom_functions_for_their_rule():
    found = []
    for m in (ts, torch):
        cube, calls = _cube(m)
        x = on(m, M).requires_grad_()
        out = m.func.vmap(lambda row, f=cube: f.apply(row, 2.0), randomness="same")(x)
        out.sum().backward()
        found.append((out.detach().numpy(), x.grad.numpy(), calls))
    assert np.allclose(found[0][0], found[1][0]) and np.allclose(found[0][1], found[1][1])
    assert found[0][2] == found[1][2] == [(3, "same", tuple, None)]


def test_vmap_over_custom_functions_keeps_gradients():
    found = []
    for m in (ts, torch):

        class Square(m.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(x):
                return x * x

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(inputs[0])

            @staticmethod
            def backward(ctx, grad):
                return 2 * ctx.saved_tensors[0] * grad

        x = on(m, M).requires_grad_()
        m.func.vmap(Square.apply)(x).sum().backward()
        found.append(x.grad.numpy())
        assert m.autograd.Function.generate_vmap_rule is False
        for name in ("vmap", "jvp"):
            with pytest.raises(NotImplementedError):
                getattr(m.autograd.Function, name)(None, None)
    assert np.allclose(*found)


RECORDS = {
    "max": lambda m: lambda t: t.max(0), "sort": lambda m: lambda t: t.sort(), "topk": lambda m: lambda t: t.topk(1),
    "aminmax": lambda m: lambda t: t.aminmax(dim=0), "cummax": lambda m: lambda t: t.cummax(0),
    "nanmedian": lambda m: lambda t: t.nanmedian(0), "mode": lambda m: lambda t: t.mode(0),
    "frexp": lambda m: lambda t: m.frexp(t),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
def test_results_with_names_pass_through_transforms(name):
    """Those of max, sort and their like are taken apart as tuples are; what has no gradient has tangents of zero."""
    found = []
    for m in (ts, torch):
        f, x = RECORDS[name](m), on(m, M)
        mapped = m.func.vmap(f)(x)
        pushed = m.func.jvp(f, (x,), (m.ones_like(x),))[1] if name != "frexp" else mapped
        leaves, spec = m.utils._pytree.tree_flatten(f(x))
        again = m.utils._pytree.tree_unflatten(leaves, spec)
        assert type(again) is type(f(x)) and len(leaves) == 2 and isinstance(mapped, tuple)
        found.append([t.numpy() for t in (*mapped, *pushed)])
    for mine, theirs in zip(*found, strict=True):
        assert mine.dtype == theirs.dtype and np.allclose(mine, theirs)


def test_integers_have_no_derivatives():
    for m in (ts, torch):
        whole = m.arange(3)
        for call in (m.func.grad(lambda t: t.double().sum()), m.func.jacrev(lambda t: t * 1.0)):
            with pytest.raises(RuntimeError, match="floating point"):
                call(whole)
        with pytest.raises(ValueError, match="floating point"):
            m.func.jvp(lambda t: t * 1.0, (whole,), (whole,))
        picked = m.func.jvp(lambda t: (t > 0, t.argsort()), (on(m, X),), (on(m, Y),))[1]
        assert [t.dtype for t in picked] == [m.bool, m.int64] and not any(t.any() for t in picked)


@pytest.mark.parametrize("ask", [lambda x: x.item(), float, int, bool, lambda x: x.tolist()], ids=range(5))
def test_numbers_of_entries_are_no_results_of_vmap(ask: Any) -> None:
    for module in (torch, ts):
        with pytest.raises(RuntimeError):
            module.vmap(ask)(module.ones(3))
        with pytest.raises(ValueError):
            module.vmap(lambda x: 1.0)(module.ones(3))


UNDER_TRANSFORMS = {
    "requires_grad_": lambda m, x: x.requires_grad_().sin().sum(),
    "retain_grad": lambda m, x: (lambda y: (y.retain_grad(), y.sum())[1])(x.sin()),
    "jacobian": lambda m, x: m.autograd.functional.jacobian(lambda v: v.sin().sum(), x).sum(),
    "vjp": lambda m, x: m.autograd.functional.vjp(lambda v: v.sin().sum(), x)[0],
    "jvp": lambda m, x: m.autograd.functional.jvp(lambda v: v.sin().sum(), (x,), (m.ones_like(x),))[1],
}


@pytest.mark.parametrize("transform", ["grad", "vmap", "jacrev", "grad_and_value"])
@pytest.mark.parametrize("name", UNDER_TRANSFORMS)
def test_marks_that_a_transform_would_lose_are_refused(compare_program, name, transform):
    def program(m):
        try:
            getattr(m.func, transform)(lambda x: UNDER_TRANSFORMS[name](m, x))(m.ones(3, dtype=m.float64))
        except RuntimeError:
            return "refused"
        return "done"

    compare_program(program)


@pytest.mark.parametrize("transform", ["grad", "jacrev", "hessian", "grad_and_value"])
@pytest.mark.parametrize("inside", [False, True])
def test_hooks_of_saved_tensors_are_refused_under_transforms(compare_program, transform, inside):
    def program(m):
        hooks = m.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)

        def held(x):
            with hooks:
                return x.sin().sum()

        def call():
            return getattr(m.func, transform)(held if inside else lambda x: x.sin().sum())(m.ones(3))

        with pytest.raises(RuntimeError):
            if inside:
                call()
            else:
                with hooks:
                    call()
        return getattr(m.func, transform)(lambda x: x.sin().sum())(m.ones(3))

    compare_program(program)


@pytest.mark.parametrize("primals", [(1.0,), ("a",), (None,), ([1.0],)])
def test_jvp_refuses_what_is_no_tensor_as_pytorch_does(compare_errors, primals):
    compare_errors(lambda m, x: m.func.jvp(m.sin, primals, (x,)), np.ones(2))
    compare_errors(lambda m, x: m.func.jvp(m.sin, (x,), primals), np.ones(2))
