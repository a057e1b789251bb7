"""Custom functions of automatic differentiation: ``autograd.Function``."""

from __future__ import annotations

import gc
import warnings
import weakref

import pytest
import tesserack as ts
from tesserack.autograd import Function, grad, gradcheck, gradgradcheck


def leaf(*values: float) -> ts.Tensor:
    return ts.tensor(values, dtype=ts.float64, requires_grad=True)


class Cube(Function):
    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        (x,) = ctx.saved_tensors
        return 3 * x * x * g


class Mixed(Function):
    """Several inputs and outputs, keeping things on ctx, in the separate style."""

    @staticmethod
    def forward(x, scale, y):  # type: ignore[no-untyped-def]
        return x * scale, (x + y).to(ts.int64), x * y

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        x, ctx.scale, y = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, y, output[2])

    @staticmethod
    def backward(ctx, a, b, c):  # type: ignore[no-untyped-def]
        x, y, _ = ctx.saved_tensors
        assert b.dtype is ts.int64
        return a * ctx.scale + c * y, None, c * x if ctx.needs_input_grad[2] else None


def test_function_gradients_of_both_orders() -> None:
    x = leaf(1, 2)
    assert gradcheck(Cube.apply, x) and gradgradcheck(Cube.apply, x)
    y = leaf(3, 4)
    assert gradcheck(lambda a, b: Mixed.apply(a, 2.5, b)[::2], (x, y))
    assert gradgradcheck(lambda a, b: Mixed.apply(a, 2.5, b)[::2], (x, y))
    node = Cube.apply(x).grad_fn
    assert node.name() == "CubeBackward" and node.saved_tensors[0] is x


def test_function_without_gradient() -> None:
    x = ts.ones(2)
    assert not Cube.apply(x).requires_grad
    with ts.no_grad():
        assert not Cube.apply(leaf(1)).requires_grad
    outputs = Mixed.apply(leaf(1), 2, leaf(2))
    assert [o.requires_grad for o in outputs] == [True, False, True]


def returning(result):  # type: ignore[no-untyped-def]
    class Odd(Function):
        @staticmethod
        def forward(ctx, x, k):  # type: ignore[no-untyped-def]
            return x * k

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            return result(g)

    return Odd


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (lambda g: g, RuntimeError, r"incorrect number of gradients \(expected 2, got 1\)"),
        (lambda g: (g, None, g), RuntimeError, "incorrect number of gradients"),
        (lambda g: (g, g), RuntimeError, "different from None at position 2"),
        (lambda g: (5, None), TypeError, "expected a Tensor or None"),
        (lambda g: (ts.ones(7), None), RuntimeError, "shape"),
        (lambda g: 1 / 0, ZeroDivisionError, "division"),
    ],
)
def test_wrong_backwards(result: object, error: type[Exception], message: str) -> None:
    y = returning(result).apply(leaf(1, 2), 2)
    with pytest.raises(error, match=message):
        y.sum().backward()


def test_trailing_nones_are_allowed() -> None:
    x = leaf(1)
    returning(lambda g: (g, None, None)).apply(x, 2).backward()
    assert x.grad.item() == 1.0


def test_errors_in_forward_come_through() -> None:
    class Fails(Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        Fails.apply(leaf(1))
    assert ts.is_grad_enabled()
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        Cube()
    with pytest.raises(NotImplementedError, match="forward"):
        Function.apply(leaf(1))

    class NoBackward(Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            return x * 2

    with pytest.raises(NotImplementedError, match="backward"):
        NoBackward.apply(leaf(1)).backward()


def test_dirty_inputs() -> None:
    class AddInPlace(Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.mark_dirty(x)
            return x.add_(1)

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            return g * 7

    w = leaf(1)
    x = w * 2
    y = AddInPlace.apply(x)
    assert y is x
    x.backward()
    assert w.grad.item() == 14.0
    with pytest.raises(RuntimeError, match="leaf"):
        AddInPlace.apply(leaf(1))


def test_inputs_returned_as_they_are() -> None:
    class Identity(Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            return x

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            return g * 5

    x = leaf(1)
    y = Identity.apply(x)
    assert y is not x and x.is_leaf and y.data_ptr() == x.data_ptr()
    y.backward()
    assert x.grad.item() == 5.0


def test_views_of_inputs_are_not_written_to() -> None:
    class Flat(Function):
        @staticmethod
        def forward(ctx, x, as_it_is):  # type: ignore[no-untyped-def]
            return x if as_it_is else x.view(-1)

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            return g.reshape(1) * 5, None

    for as_it_is in (True, False):
        base = ts.ones(1, requires_grad=True) * 1
        flat = Flat.apply(base, as_it_is)
        assert flat._is_view() and flat.data_ptr() == base.data_ptr()
        with pytest.raises(RuntimeError, match="custom Function"):
            flat.mul_(2)
        base.mul_(3)
        with pytest.raises(RuntimeError, match="base or another view of its base"):
            flat.sum()
        (grad,) = ts.autograd.grad(Flat.apply(base, as_it_is).sum(), base)
        assert grad.item() == 5.0


def test_materialized_gradients() -> None:
    class Two(Function):
        wanted = True

        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.set_materialize_grads(Two.wanted)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, a, b):  # type: ignore[no-untyped-def]
            Two.seen = b
            return a

    x = leaf(1, 2)
    Two.apply(x)[0].sum().backward()
    assert Two.seen.tolist() == [0.0, 0.0]
    Two.wanted = False
    Two.apply(x)[0].sum().backward()
    assert Two.seen is None


def test_once_differentiable() -> None:
    from tesserack.autograd.function import once_differentiable

    class Once(Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            return 2 * ctx.saved_tensors[0] * g

    x = leaf(3)
    assert grad(Once.apply(x), x)[0].item() == 6.0
    (first,) = grad(Once.apply(x).exp(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.backward()


def test_saved_results_make_no_cycle() -> None:
    class SavesResult(Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            return g * ctx.saved_tensors[0]

    x = leaf(1)
    y = SavesResult.apply(x)
    assert gradgradcheck(SavesResult.apply, x)
    seen = weakref.ref(y)
    gc.disable()
    del y
    gc.enable()
    assert seen() is None


def test_save_for_backward_takes_tensors_only() -> None:
    class Saves(Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(x, None, 5)
            return x * 1

    with pytest.raises(TypeError, match="can only save tensors"):
        Saves.apply(leaf(1))


def test_anomaly_mode_may_let_nan_pass_and_keeps_errors_of_functions() -> None:
    x = leaf(-1)
    with ts.autograd.set_detect_anomaly(True, check_nan=False):
        x.sqrt().backward()
    assert x.grad.isnan().all().item() and ts._native.is_anomaly_check_nan_enabled()
    failing = returning(lambda g: 1 / 0)
    with ts.autograd.set_detect_anomaly(True):
        y = failing.apply(leaf(1), 2)
        for action in ("ignore", "error"):
            with warnings.catch_warnings(), pytest.raises(ZeroDivisionError):
                warnings.simplefilter(action)
                y.backward(retain_graph=True)


def test_a_function_may_bring_a_jvp_and_tangents_are_those_of_backward() -> None:
    class Cube(ts.autograd.Function):
        @staticmethod
        def forward(x):  # type: ignore[no-untyped-def]
            return x * x * x

        @staticmethod
        def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)
            assert ctx.saved_for_forward == inputs

        @staticmethod
        def backward(ctx, grad):  # type: ignore[no-untyped-def]
            return 3 * ctx.saved_tensors[0] ** 2 * grad

        @staticmethod
        def jvp(ctx, tangent):  # type: ignore[no-untyped-def]
            return 3 * ctx.saved_tensors[0] ** 2 * tangent

    _, tangent = ts.func.jvp(Cube.apply, (ts.tensor(2.0),), (ts.tensor(1.0),))
    assert tangent.item() == 12
    with pytest.raises(NotImplementedError, match="jvp"):
        ts.autograd.Function.jvp(None)
