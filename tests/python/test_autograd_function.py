"""Custom functions of automatic differentiation: ``autograd.Function``."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import pytest
import tesserack as ts
from tesserack.autograd import Function, grad, gradcheck, gradgradcheck
from tesserack.utils.checkpoint import checkpoint


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
    cubed = Cube.apply(x)
    node = cubed.grad_fn
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


def test_a_view_written_to_is_the_only_result() -> None:
    class AddInPlace(Function):
        @staticmethod
        def forward(ctx, x, several):  # type: ignore[no-untyped-def]
            ctx.mark_dirty(x)
            x.add_(1)
            return (x, x * 2) if several else x

        @staticmethod
        def backward(ctx, g, h=0):  # type: ignore[no-untyped-def]
            return g + 2 * h, None

    for of_view in (False, True):
        w = ts.ones(2, requires_grad=True)
        base = w * 2
        x = base[:1] if of_view else base
        if of_view:
            with pytest.raises(RuntimeError, match="cannot return more than one Tensor"):
                AddInPlace.apply(x, True)
        else:
            y, z = AddInPlace.apply(x, True)
            (y + z).sum().backward()
            assert w.grad.tolist() == [6.0, 6.0]
    w = ts.ones(2, requires_grad=True)
    base = w * 2
    AddInPlace.apply(base[:1], False)
    base.sum().backward()
    assert w.grad.tolist() == [2.0, 2.0]


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
    # Forward mode goes by the derivative of backward: there is none, which is not a tangent of zeros.
    with pytest.raises(RuntimeError, match="once_differentiable"):
        ts.func.jvp(Once.apply, (x.detach(),), (ts.ones_like(x),))


def test_functions_tell_the_class_of_their_nodes() -> None:
    class Passing(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    assert type(Passing.apply(ts.ones(1, requires_grad=True)).grad_fn) is Passing._backward_cls


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


class _Noted(ts.autograd.Function):
    seen = None

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.k, _Noted.seen = 5, weakref.ref(ctx)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        ctx.ran = ctx is _Noted.seen()
        return grad * ctx.k


class TestTheContextIsTheNode:
    """As in PyTorch: one object, which lives as long as the graph and does not keep it."""

    def test_one_object(self):
        x = ts.ones(2, requires_grad=True)
        y = _Noted.apply(x)
        ctx = _Noted.seen()
        assert ctx is y.grad_fn and ctx is y.sum().grad_fn.next_functions[0][0]
        assert type(ctx).__name__ == "_NotedBackward" == ctx.name()
        assert isinstance(ctx, ts.autograd.graph.Node) and isinstance(ctx, ts.autograd.function.FunctionCtx)
        assert ctx.k == y.grad_fn.k == 5 and ctx.saved_tensors[0] is x
        y.grad_fn.note = "here"
        assert ctx.note == "here" and ctx.next_functions[0][0].variable is x
        ctx.metadata["a"] = 1
        assert y.grad_fn.metadata == {"a": 1} and ctx(ts.ones(2)).tolist() == [5, 5]

    def test_hooks_and_backward(self):
        x = ts.ones(2, requires_grad=True)
        y = _Noted.apply(x)
        heard = []
        y.grad_fn.register_hook(lambda into, out: heard.append((into[0].tolist(), out[0].tolist())))
        y.sum().backward()
        assert x.grad.tolist() == [5, 5] and heard == [([5, 5], [1, 1])] and y.grad_fn.ran is True
        edge = ts.autograd.graph.get_gradient_edge(_Noted.apply(x))  # which keeps the graph
        assert ts.autograd.grad(edge, x, ts.ones(2))[0].tolist() == [5, 5]

    def test_it_goes_with_the_graph(self):
        x = ts.ones(2, requires_grad=True)
        y = _Noted.apply(x)
        kept = y.grad_fn
        del y
        assert not hasattr(kept, "next_functions") and kept.k == 5
        with pytest.raises(RuntimeError, match="gone"):
            _ = kept.saved_tensors
        with pytest.raises(RuntimeError, match="freed"):
            kept(ts.ones(2))
        del kept
        assert _Noted.seen() is None

    def test_a_context_that_holds_itself_is_collected(self):
        x = ts.ones(2, requires_grad=True)
        y = _Noted.apply(x)
        y.grad_fn.me, y.grad_fn.result = y.grad_fn, y
        del y
        gc.collect()
        assert _Noted.seen() is None


def test_setup_context_is_given_arguments_that_were_left_out():
    class Power(ts.autograd.Function):
        @staticmethod
        def forward(x, exponent=3):
            return x.detach() ** exponent

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.exponent = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * ctx.exponent * x ** (ctx.exponent - 1), None

    x = ts.tensor([2.0], requires_grad=True)
    Power.apply(x).sum().backward()
    assert x.grad.tolist() == [12.0]


class Named(ts.Tensor):
    pass


class _Handed(ts.autograd.Function):
    """An input as it is, a view of it, and what is computed."""

    @staticmethod
    def forward(ctx, x):
        return x, x.view(-1), x * 2

    @staticmethod
    def backward(ctx, same, flat, twice):
        return same + flat.view(same.shape) + twice * 2


@pytest.mark.parametrize("wanted", [False, True])
def test_results_of_functions_keep_the_class_of_inputs(wanted, device):
    x = ts.ones(2, 3, device=device, requires_grad=wanted)
    given = x.as_subclass(Named)
    results = _Handed.apply(given)
    assert [type(y) for y in results] == [Named] * 3 and results[0] is not given
    assert results[0].data_ptr() == given.data_ptr()
    assert all(y.requires_grad is wanted for y in results)
    if wanted:
        sum(y.sum() for y in results).backward()
        assert x.grad.tolist() == [[4.0] * 3] * 2
        with pytest.raises(RuntimeError, match="view"):
            _Handed.apply(x.as_subclass(Named))[0].add_(1)
    assert type(_Handed.apply(ts.nn.Parameter(x.detach()))[0]) is ts.Tensor


def test_an_input_that_is_saved_and_handed_through_is_saved_as_the_input() -> None:
    class Cubed(ts.autograd.Function):
        """Hands x through, with the gradient of its cube."""

        @staticmethod
        def forward(ctx: Any, x: ts.Tensor) -> ts.Tensor:
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: ts.Tensor) -> ts.Tensor:
            (x,) = ctx.saved_tensors
            assert x.requires_grad and x.is_leaf
            return 3 * x**2 * g

    x = ts.tensor([2.0], requires_grad=True)
    (first,) = ts.autograd.grad(Cubed.apply(x), x, create_graph=True)
    (second,) = ts.autograd.grad(first, x)
    assert first.item() == 12 and second.item() == 12  # 6 x, not 6 x times the rule of the function once more
    Cubed.apply(x).backward()


def test_saved_results_have_their_history_where_nothing_is_recorded() -> None:
    seen: list[tuple[bool, Any]] = []

    class Exp(ts.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: ts.Tensor) -> ts.Tensor:
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, g: ts.Tensor) -> ts.Tensor:
            (y,) = ctx.saved_tensors
            seen.append((y.requires_grad, y.grad_fn))
            return y * g

    y = Exp.apply(ts.zeros(2, requires_grad=True))
    y.sum().backward()
    assert seen == [(True, y.grad_fn)]


def test_the_older_checkpoints_hand_inputs_through() -> None:
    x, other = ts.ones(3, requires_grad=True), ts.ones(3)
    out = checkpoint(lambda a, b: (a, b, None, 5), x, other, use_reentrant=True)
    assert out[0].requires_grad and out[2:] == (None, 5)
    (out[0] * 2).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0] * 3
