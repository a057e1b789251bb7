"""Forward mode: writes after an operator that saved its operand or result, the duals themselves, jvp of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack.autograd import Function, gradcheck
from tesserack.autograd.forward_ad import dual_level, make_dual, unpack_dual
from tesserack.nn import functional as F

Map = Callable[[ts.Tensor], ts.Tensor]


def writes_to_the_operand(x: ts.Tensor) -> ts.Tensor:
    x = x.clone()
    y = x.sin()
    x.mul_(2)
    return y * x


def writes_through_a_view(x: ts.Tensor) -> ts.Tensor:
    x = x.clone()
    y = x.exp()
    x.view(-1)[1:].add_(1)
    return y * x


CASES: list[tuple[Map, Map]] = [
    (lambda x: x.clone().exp_().mul_(2), lambda x: 2 * x.exp()),
    (lambda x: x.clone().sigmoid_().mul_(3), lambda x: 3 * x.sigmoid()),
    (lambda x: x.clone().sqrt_().add_(x), lambda x: x.sqrt() + x),
    (lambda x: (x * 2).relu_().mul_(x), lambda x: (x * 2).relu() * x),
    (lambda x: x.clone().softmax(0).mul_(2), lambda x: 2 * x.softmax(0)),
    (writes_to_the_operand, lambda x: x.sin() * x * 2),
    (writes_through_a_view, lambda x: x.exp() * (x + ts.tensor([0.0, 1.0, 1.0], dtype=x.dtype))),
]


@pytest.mark.parametrize(("written", "plain"), CASES)
def test_writes_after_saving(written: Map, plain: Map) -> None:
    x, v = ts.rand(3, dtype=ts.float64) + 0.5, ts.rand(3, dtype=ts.float64)
    (jacobian,) = (ts.func.jacrev(plain)(x),)
    assert ts.allclose(ts.func.jvp(written, (x,), (v,))[1], jacobian @ v)
    assert ts.allclose(ts.func.jacfwd(written)(x), jacobian)
    assert ts.allclose(ts.func.linearize(written, x)[1](v), jacobian @ v)
    with dual_level():
        assert ts.allclose(unpack_dual(written(make_dual(x, v))).tangent, jacobian @ v)


def test_writes_to_duals_and_to_other_tensors() -> None:
    x, v, c = ts.rand(3), ts.ones(3), ts.rand(3)
    with dual_level():
        dual = make_dual(x.clone(), v)
        y, z, before = dual * c, dual.sin(), c.clone()
        c.add_(1)
        dual.mul_(2)
        assert ts.allclose(unpack_dual(y).tangent, before)
        assert ts.allclose(unpack_dual(z).tangent, x.cos())
        assert unpack_dual(dual).tangent.tolist() == [2, 2, 2]


def test_a_dual_gives_the_very_tangent() -> None:
    x, v = ts.rand(2), ts.rand(2)
    with dual_level():
        dual = make_dual(x, v)
        primal, tangent = unpack_dual(dual)
        assert tangent is v and primal.data_ptr() == x.data_ptr()
        assert "tangent=" in repr(dual) and "tangent=" in repr(dual * 2) and "tangent=" not in repr(primal)
        with pytest.raises(RuntimeError, match="already has a forward gradient"):
            make_dual(dual, v)
        with pytest.raises(RuntimeError, match="Nested"), dual_level():
            pass
        dual.eq_(dual)
        assert not unpack_dual(dual).tangent.any()
    assert unpack_dual(dual).tangent is None


def test_no_grad_keeps_recorded_tangents() -> None:
    """Beside parity/autograd/test_tangents_under_no_grad.py: nothing goes backward from there."""
    x = ts.rand(2, requires_grad=True)
    with dual_level():
        dual = make_dual(x, ts.ones(2))
        with ts.no_grad():
            y = dual.exp()
        assert ts.equal(unpack_dual(y).tangent, x.exp()) and not unpack_dual(y).tangent.requires_grad
        with pytest.raises(RuntimeError, match="does not require grad"):
            y.backward(ts.ones(2))
        (y * dual).sum().backward()
    assert ts.equal(x.grad, x.exp())


class OnlyJvp(Function):
    @staticmethod
    def forward(ctx: Any, x: ts.Tensor) -> ts.Tensor:
        ctx.save_for_forward(x)
        return x * x

    @staticmethod
    def jvp(ctx: Any, tangent: ts.Tensor) -> ts.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * tangent


class WrongJvp(OnlyJvp):
    @staticmethod
    def jvp(ctx: Any, tangent: ts.Tensor) -> ts.Tensor:
        return 3 * tangent


class TangentOfNone(Function):
    @staticmethod
    def forward(ctx: Any, x: ts.Tensor) -> tuple[ts.Tensor, ts.Tensor]:
        place = x.argmax()
        ctx.mark_non_differentiable(place)
        return place, x + 1

    @staticmethod
    def jvp(ctx: Any, tangent: ts.Tensor) -> Any:
        return tangent, tangent


def test_functions_with_jvp_alone() -> None:
    x = ts.rand(3, dtype=ts.float64, requires_grad=True)
    with dual_level():
        dual = make_dual(x.detach(), ts.ones(3, dtype=ts.float64))
        assert ts.allclose(unpack_dual(OnlyJvp.apply(dual) * 2).tangent, 4 * x.detach())
        with pytest.raises(RuntimeError, match="not differentiable"):
            TangentOfNone.apply(dual)
    assert gradcheck(OnlyJvp.apply, x, check_forward_ad=True, check_backward_ad=False)
    assert not gradcheck(WrongJvp.apply, x, check_forward_ad=True, check_backward_ad=False, raise_exception=False)


def test_a_transform_does_not_let_captured_tensors_be_written() -> None:
    captured, x = ts.zeros(3), ts.rand(3)

    def writes(t: ts.Tensor) -> ts.Tensor:
        captured.add_(1)
        return (t * t).sum()

    def writes_a_view(t: ts.Tensor) -> ts.Tensor:
        captured[1:].copy_(t[1:].detach())
        return (t * t).sum()

    for function in (writes, writes_a_view):
        for call in (
            lambda f: ts.func.grad(f)(x),
            lambda f: ts.func.vjp(f, x),
            lambda f: ts.func.jvp(f, (x,), (x,)),
            lambda f: ts.func.jacrev(f)(x),
            lambda f: ts.func.linearize(f, x),
        ):
            with pytest.raises(RuntimeError, match="mutate a captured Tensor"):
                call(function)
    assert not captured.any()
    captured.add_(1)  # and afterwards it may


def test_a_transform_lets_own_tensors_be_written() -> None:
    def own(t: ts.Tensor) -> ts.Tensor:
        buffer = ts.zeros(3)
        buffer[0] = 2.0
        made = ts.tensor([1.0, 2.0, 3.0])
        made.add_(1)
        return (t * t + buffer + made.mul_(t)).sum()

    x = ts.rand(3)
    assert ts.allclose(ts.func.grad(own)(x), 2 * x + ts.tensor([2.0, 3.0, 4.0]))


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_gradcheck_of_sparse_inputs(layout: str) -> None:
    dense = ts.tensor([[0.0, 1.0], [2.0, 0.0]], dtype=ts.float64)
    x = (dense.to_sparse() if layout == "coo" else dense.to_sparse_csr()).requires_grad_()
    eye = ts.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=ts.float64)
    assert gradcheck(lambda t: ts.sparse.mm(t, eye), (x,), masked=True)
    assert gradcheck(lambda t: t.to_dense() ** 2, (x,), masked=True)
    assert gradcheck(lambda t: t.to_dense(), (x,), masked=False)


OPERATORS: dict[str, Map] = {
    "exp": ts.exp, "sqrt": ts.sqrt, "rsqrt": ts.rsqrt, "reciprocal": ts.reciprocal, "tanh": ts.tanh,
    "sigmoid": ts.sigmoid, "tan": ts.tan, "expm1": ts.expm1, "exp2": ts.exp2, "softplus": F.softplus, "elu": F.elu,
    "selu": F.selu, "celu": F.celu, "silu": F.silu, "gelu": F.gelu, "mish": F.mish, "logit": lambda x: ts.logit(x / 3),
    "pow": lambda x: x**3, "prod": lambda x: x.prod(), "norm": lambda x: x.norm(), "cumprod": lambda x: x.cumprod(0),
    "softmax": lambda x: x.softmax(0), "log_softmax": lambda x: x.log_softmax(0), "logsumexp": lambda x: x.logsumexp(0),
    "layer_norm": lambda x: F.layer_norm(x, (4,)), "std": lambda x: x.std(), "matmul": lambda x: x.outer(x) @ x,
    "inverse": lambda x: (x.outer(x) + 3 * ts.eye(4, dtype=x.dtype)).inverse(),
    "cholesky": lambda x: ts.linalg.cholesky(x.outer(x) + 3 * ts.eye(4, dtype=x.dtype)),
    "batch_norm": lambda x: F.batch_norm(x.reshape(2, 2), None, None, training=True),
    "exp_": lambda x: x.clone().exp_(), "sigmoid_": lambda x: x.clone().sigmoid_(),
    "tanh_": lambda x: x.clone().tanh_(), "sqrt_": lambda x: x.clone().sqrt_(),
    "elu_": lambda x: F.elu(x.clone(), inplace=True),
    "of a part": lambda x: x.clone()[1:].exp_(),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_tangents_of_gradients(name: str) -> None:
    """Of operators whose gradient uses what they saved, results that are written to included."""
    generator = ts.Generator().manual_seed(3)
    x, v = (ts.rand(4, dtype=ts.float64, generator=generator) + 0.5 for _ in range(2))
    result = OPERATORS[name](x)
    weights = ts.rand(result.shape, dtype=ts.float64, generator=generator)

    def gradient(x: ts.Tensor) -> ts.Tensor:
        return ts.func.grad(lambda x: (OPERATORS[name](x) * weights).sum())(x)

    expected = ts.func.jacrev(gradient)(x) @ v
    found = [ts.func.jvp(gradient, (x,), (v,))[1], ts.func.jacfwd(gradient)(x) @ v]
    with dual_level():
        dual = make_dual(x.clone().requires_grad_(), v)
        (recorded,) = ts.autograd.grad((OPERATORS[name](dual) * weights).sum(), dual, create_graph=True)
        found.append(unpack_dual(recorded).tangent)
    for tangent in found:
        ts.testing.assert_close(tangent, expected)


OF_ITSELF = {
    "mul": (lambda a: a.mul_(a), lambda x: 2 * x),
    "div": (lambda a: a.div_(a), lambda x: 0 * x),
    "addcmul": (lambda a: a.addcmul_(a, a), lambda x: 1 + 2 * x),
    "atan2": (lambda a: a.atan2_(a), lambda x: 0 * x),
    "pow": (lambda a: a.pow_(a), lambda x: x**x * (1 + x.log())),
    "twice": (lambda a: a.mul_(a).mul_(a), lambda x: 4 * x**3),
    "result": (lambda a: a.sin_().mul_(a), lambda x: (2 * x).sin()),
}


@pytest.mark.parametrize("name", OF_ITSELF)
def test_in_place_by_itself(name):
    function, derivative = OF_ITSELF[name]
    x = ts.tensor([0.5, 1.5, 2.0], dtype=ts.float64)
    _, tangent = ts.func.jvp(lambda x: function(x * 1), (x,), (ts.ones_like(x),))
    ts.testing.assert_close(tangent, derivative(x))


def test_a_view_in_place_by_itself():
    def function(x):
        a = x * 1
        a[1:].mul_(a[1:])
        return a

    x = ts.tensor([0.5, 1.5, 2.0])
    _, tangent = ts.func.jvp(function, (x,), (ts.ones(3),))
    assert tangent.tolist() == [1, 3, 4]


@pytest.mark.parametrize("argnums", [0, -1, (0, 1)])
def test_a_jacobian_by_columns_of_what_writes_to_its_argument(argnums):
    """As for jvp, and the caller sees what was written."""

    def f(x, y):
        x.mul_(y)
        return y.add_(x).sin()

    def plain(x, y):
        return (y + x * y).sin()

    x, y = ts.tensor([1.0, 2.0]), ts.tensor([0.5, 3.0])
    want = ts.func.jacrev(plain, argnums)(x, y)
    got = ts.func.jacfwd(f, argnums)(x, y)
    for a, b in zip(want, got, strict=True):
        ts.testing.assert_close(a, b)
    assert x.tolist() == [0.5, 6.0] and y.tolist() == [1.0, 9.0]
    twice = ts.func.jacfwd(ts.func.jacfwd(lambda v: v.exp_().mul_(v)))(ts.zeros(2))
    ts.testing.assert_close(twice, ts.func.jacrev(ts.func.jacrev(lambda v: (2 * v).exp()))(ts.zeros(2)))
