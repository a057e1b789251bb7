"""The order of hooks, gradients that did not arrive, calls of nodes, and what anomaly mode tells."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.autograd import Function, detect_anomaly
from tesserack.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp


def node_of(t: ts.Tensor) -> Any:
    return t.grad_fn


def test_hooks_of_a_leaf_in_order() -> None:
    log: list[str] = []
    x = ts.tensor(1.0, requires_grad=True)
    y = x.clone()
    accumulate = node_of(y).next_functions[0][0]
    accumulate.register_prehook(lambda grads: log.append("node"))
    accumulate.register_hook(lambda inputs, outputs: log.append(f"after {outputs[0].item():g}"))
    x.register_hook(lambda g: log.append("tensor") or g * 2)  # type: ignore[func-returns-value]
    x.register_post_accumulate_grad_hook(lambda t: log.append(f"accumulated {t.grad.item():g}"))
    y.backward()
    assert log == ["tensor", "node", "accumulated 2", "after 2"]


def test_hooks_of_a_node_in_order() -> None:
    x = ts.tensor(1.0, requires_grad=True)
    y = x.clone()
    node_of(y).register_prehook(lambda grads: (grads[0] + 1,))
    y.register_hook(lambda g: g * 5)
    y.backward()
    assert x.grad.item() == 6


def test_prehooks_of_a_leaf_run_only_where_it_accumulates() -> None:
    def fails(*args: Any) -> None:
        raise AssertionError("called")

    x = ts.tensor(1.0, requires_grad=True)
    y = x.clone()
    node_of(y).next_functions[0][0].register_prehook(fails)
    assert ts.autograd.grad(y, x)[0].item() == 1


def test_hooks_of_outputs_without_a_gradient_get_none() -> None:
    log: list[Any] = []
    x = ts.rand(3, 2, requires_grad=True)
    a, b, _ = x.unbind()
    a.register_hook(lambda g: log.append(g))
    node_of(a).register_prehook(lambda grads: log.append([g is None for g in grads]))
    b.sum().backward()
    assert log == [None, [True, False, True]]
    a, b, _ = x.unbind()
    a.register_hook(lambda g: ts.ones(2))
    with pytest.raises(RuntimeError, match="None gradient"):
        b.sum().backward()


def test_post_accumulate_hooks_return_nothing() -> None:
    x = ts.rand(2, requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda t: t.grad)  # type: ignore[arg-type,return-value]
    with pytest.raises(RuntimeError, match="should return None"):
        x.sum().backward()


def test_full_backward_hooks_once_where_derivatives_are_second() -> None:
    x, calls = ts.rand(3, requires_grad=True), []
    loss = nn.MSELoss()
    loss.register_full_backward_hook(lambda m, a, b: calls.append(1))
    (first,) = ts.autograd.grad(loss(x, ts.rand(3)), x, create_graph=True)
    assert len(calls) == 1
    (second,) = ts.autograd.grad(first.sum(), x)
    assert len(calls) == 1 and ts.allclose(second, ts.full((3,), 2 / 3))


def test_nodes_can_be_called() -> None:
    x = ts.rand(2, requires_grad=True)
    assert ts.equal(node_of(x * 3)(ts.ones(2))[0] if isinstance(node_of(x * 3)(ts.ones(2)), tuple)
                    else node_of(x * 3)(ts.ones(2)), ts.full((2,), 3.0))  # fmt: skip
    a = ts.rand(2, 2, requires_grad=True).unbind()
    assert node_of(a[0])(ts.ones(2), None).tolist() == [[1, 1], [0, 0]]
    with pytest.raises(TypeError, match="expected 1 gradients, got 0"):
        node_of(x * 3)()


def test_backward_beside_vjp_is_refused() -> None:
    class Both(Function):
        @staticmethod
        def forward(ctx: Any, x: ts.Tensor) -> ts.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: ts.Tensor) -> ts.Tensor:
            return grad * 2

        @staticmethod
        def vjp(ctx: Any, grad: ts.Tensor) -> ts.Tensor:
            return grad * 2

    x = ts.rand(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="'backward' and 'vjp'"):
        Both.apply(x).sum().backward()


def test_functional_under_no_grad() -> None:
    x, v = ts.rand(3, requires_grad=True), ts.ones(3)
    with ts.no_grad():
        assert jacobian(lambda t: t.exp(), x, create_graph=True).requires_grad
        assert not jacobian(lambda t: t.exp(), x).requires_grad
        assert hessian(lambda t: t.exp().sum(), x, create_graph=True).requires_grad
        assert vjp(lambda t: t.exp(), x, v, create_graph=True)[1].requires_grad
        assert jvp(lambda t: t.exp(), x, v, create_graph=True)[1].requires_grad
        assert hvp(lambda t: t.exp().sum(), x, v, create_graph=True)[1].requires_grad
        assert vhp(lambda t: t.exp().sum(), x, v, create_graph=True)[1].requires_grad


# --- anomaly mode --------------------------------------------------------------------------------------------------


class GivesNan(Function):
    @staticmethod
    def forward(ctx: Any, x: ts.Tensor) -> ts.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: ts.Tensor) -> ts.Tensor:
        return grad * float("nan")


def texts(caught: list[warnings.WarningMessage]) -> str:
    return "\n".join(str(w.message) for w in caught)


def test_nan_where_the_backward_alone_is_watched() -> None:
    y = GivesNan.apply(ts.rand(2, requires_grad=True)).sum()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        message = "'GivesNanBackward' returned nan values in its 0th output"
        with pytest.raises(RuntimeError, match=message), detect_anomaly():
            y.backward()
    assert "No forward pass information" in texts(caught)


def test_nan_of_complex_gradients() -> None:
    y = GivesNan.apply(ts.rand(2, dtype=ts.complex64, requires_grad=True)).abs().sum()
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="nan values"), detect_anomaly():
        y.backward()


def test_the_calls_that_led_there_are_told() -> None:
    x = ts.rand(2, requires_grad=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="nan values"), detect_anomaly():
            GivesNan.apply(x).sum().backward()
    assert "GivesNan.apply(x)" in texts(caught)


class Through(Function):
    @staticmethod
    def forward(ctx: Any, x: ts.Tensor) -> ts.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: ts.Tensor) -> ts.Tensor:
        return GivesNan.apply(grad)  # type: ignore[no-any-return]


def test_what_induced_a_second_derivative_is_told() -> None:
    x = ts.rand(2, requires_grad=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="nan values"), detect_anomaly():
            y = Through.apply(x)
            w = ts.ones(2, requires_grad=True)
            (first,) = ts.autograd.grad(y, x, w, create_graph=True)
            first.sum().backward()
    assert "Through.apply(x)" in texts(caught) and "Previous calculation was induced by ThroughBackward" in texts(
        caught
    )


def test_metadata_of_anomaly_mode() -> None:
    x = ts.rand(2, requires_grad=True)
    with pytest.warns(UserWarning), detect_anomaly():
        y = x.exp()
        (first,) = ts.autograd.grad(y.sum(), x, create_graph=True)
    assert "".join(node_of(y).metadata["traceback_"]).count("y = x.exp()") == 1
    assert node_of(first).metadata["parent_"] is y.grad_fn
    assert "parent_" not in node_of(y).metadata


# --- runs within runs, and what hooks ask of one -------------------------------------------------------------------


class Descends(Function):
    @staticmethod
    def forward(ctx: Any, x: ts.Tensor) -> ts.Tensor:
        with ts.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.less = ctx.x - 1
        return ctx.less.detach()

    @staticmethod
    def backward(ctx: Any, grad: ts.Tensor) -> ts.Tensor:
        if ctx.less < 0:
            if ctx.x.item() == 0.5:
                raise KeyError("at the bottom")
            return ctx.less
        with ts.enable_grad():
            Descends.apply(ctx.less).sum().backward()
        return grad


def test_backward_within_backward_at_depth() -> None:
    x = ts.tensor(1500.0, requires_grad=True)
    for _ in range(2):
        Descends.apply(x).sum().backward()
    assert x.grad.item() == 2
    with pytest.raises(KeyError, match="at the bottom"):
        Descends.apply(ts.tensor(300.5, requires_grad=True)).sum().backward()


def test_hooks_of_several_tensors_run_when_all_are_there() -> None:
    order: list[Any] = []
    a, other = ts.rand(2, requires_grad=True), ts.rand(2, requires_grad=True)
    b = a * 2
    c = b * 3
    ts.autograd.graph.register_multi_grad_hook((c, b, other), lambda grads: order.append([g is None for g in grads]))
    a.register_hook(lambda g: order.append("a"))
    c.sum().backward()
    assert order == [[False, False, True], "a"]


def test_contexts_are_nodes() -> None:
    seen: list[bool] = []

    class Looks(Function):
        @staticmethod
        def forward(ctx: Any, x: ts.Tensor) -> ts.Tensor:
            seen.append(isinstance(ctx, ts.autograd.graph.Node))
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: ts.Tensor) -> ts.Tensor:
            seen.append(isinstance(ctx, ts.autograd.graph.Node) and isinstance(ctx, ts.autograd.function.FunctionCtx))
            return grad

    Looks.apply(ts.rand(2, requires_grad=True)).sum().backward()
    assert seen == [True, True]
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        legacy = Looks()
    with pytest.raises(RuntimeError, match="Legacy"):
        legacy(ts.rand(2))


def test_callbacks_of_runs_within_runs() -> None:
    engine = ts.autograd.Variable._execution_engine
    log: list[str] = []

    class Inner(Function):
        @staticmethod
        def forward(ctx: Any, x: ts.Tensor) -> ts.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: ts.Tensor) -> ts.Tensor:
            engine.queue_callback(lambda: log.append("inner"))
            return grad

    class Outer(Inner):
        @staticmethod
        def backward(ctx: Any, grad: ts.Tensor) -> ts.Tensor:
            engine.queue_callback(lambda: log.append("outer"))
            with ts.enable_grad():
                Inner.apply(ts.rand(2, requires_grad=True)).sum().backward()
            return grad

    Outer.apply(ts.rand(2, requires_grad=True)).sum().backward()
    assert log == ["inner", "outer"]
    with pytest.raises(RuntimeError, match="during backward"):
        engine.queue_callback(lambda: None)
    assert not ts.autograd.kineto_available()
