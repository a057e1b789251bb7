"""What nodes keep for backward: the very tensor, hooks on one of them, writes to what is kept, and modes left on."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts
from tesserack.autograd import Function
from tesserack.autograd.graph import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    increment_version,
    saved_tensors_hooks,
)


def leaf(n: int = 3) -> ts.Tensor:
    return ts.rand(n, requires_grad=True)


def node_of(t: ts.Tensor) -> Any:
    return t.grad_fn


def test_the_very_tensor_is_saved() -> None:
    x = leaf()
    y = node_of(x * x)
    assert y._saved_self is x and y._saved_other is x
    assert y._raw_saved_self.data is x and y._raw_saved_self.unpack() is x
    assert y._raw_saved_self.unpack_hook is None
    assert "_raw_saved_self" in dir(y)


def test_hooks_of_one_saved_tensor() -> None:
    x = leaf()
    y = x * x
    node_of(y)._raw_saved_self.register_hooks(lambda t: 2 * t, lambda t: t)
    assert ts.equal(node_of(y)._saved_self, 2 * x) and node_of(y)._saved_other is x
    y.sum().backward()
    assert ts.allclose(x.grad, 3 * x)


def test_hooks_of_a_saved_result() -> None:
    x = leaf()
    y = x.exp()
    node_of(y)._raw_saved_result.register_hooks(lambda t: t, lambda t: t)
    assert node_of(y)._saved_result.grad_fn is y.grad_fn
    y.sum().backward()
    assert ts.allclose(x.grad, y)


def test_hooks_of_a_custom_functions_saved_tensor() -> None:
    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: ts.Tensor) -> ts.Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: ts.Tensor) -> ts.Tensor:
            return grad * ctx.saved_tensors[0]

    x = ts.ones(2, requires_grad=True)
    y = Product.apply(x)
    y.grad_fn._raw_saved_tensors[0].register_hooks(lambda t: t * 2, lambda t: t * 3)
    y.sum().backward()
    assert x.grad.tolist() == [6, 6]


def test_refusals_of_hooks() -> None:
    def doubles(t: ts.Tensor) -> ts.Tensor:
        return t.mul_(2)

    x = leaf()
    y = x * x
    raw = node_of(y)._raw_saved_self
    with pytest.raises(TypeError):
        raw.register_hooks(lambda t: t)
    with pytest.raises(TypeError):
        raw.register_hooks(1, 2)
    with pytest.raises(RuntimeError, match="modifying its input in place"):
        node_of(x.clone() * 2 * x)._raw_saved_self.register_hooks(doubles, lambda t: t)
    raw.register_hooks(lambda t: t, lambda t: 1)
    with pytest.raises(RuntimeError, match="already been set"):
        raw.register_hooks(lambda t: t, lambda t: t)
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="None is forbidden"):
        node_of(x * ts.ones(3))._raw_saved_self.register_hooks(lambda t: t, lambda t: t)
    z = x * x
    raw = node_of(z)._raw_saved_self
    z.sum().backward()
    with pytest.raises(RuntimeError, match="freed"):
        raw.register_hooks(lambda t: t, lambda t: t)


def test_what_is_packed_is_told() -> None:
    def pack(t: ts.Tensor) -> tuple[ts.Tensor]:
        return (t.clone(),)

    def unpack(packed: tuple[ts.Tensor]) -> ts.Tensor:
        return packed[0]

    with saved_tensors_hooks(pack, unpack):
        y = leaf().exp()
    assert isinstance(node_of(y)._raw_saved_result.data, tuple)
    assert node_of(y)._raw_saved_result.unpack_hook is unpack


def test_disabling_hooks_where_some_are_on() -> None:
    hooks, disabled = saved_tensors_hooks(lambda t: t, lambda t: t), disable_saved_tensors_hooks("not now")
    with hooks, pytest.raises(RuntimeError, match="not now"):
        disabled.__enter__()
    with disable_saved_tensors_hooks("not now"), pytest.raises(RuntimeError, match="not now"):
        hooks.__enter__()


@pytest.mark.parametrize("where", ["function", "hook"])
def test_hooks_entered_within_a_backward_end_with_it(where: str) -> None:
    packed: list[ts.Tensor] = []

    def enter(*args: Any) -> None:
        saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t).__enter__()  # type: ignore[func-returns-value]

    class Enters(Function):
        @staticmethod
        def forward(ctx: Any, x: ts.Tensor) -> ts.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: ts.Tensor) -> ts.Tensor:
            enter()
            return grad

    x = leaf()
    if where == "function":
        y = Enters.apply(x)
    else:
        y = x * 2
        y.register_hook(enter)
    y.sum().backward()
    before = len(packed)
    assert (x * x).requires_grad
    assert len(packed) == before


def test_a_grad_mode_entered_within_a_backward_ends_with_it() -> None:
    x = leaf()
    y = x * 2
    y.register_hook(lambda g: ts.autograd.no_grad().__enter__())
    y.sum().backward(create_graph=True)
    assert x.grad.grad_fn is None or ts.is_grad_enabled()
    assert ts.is_grad_enabled()


# --- writes to what is kept ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        lambda b: b.sin_(),
        lambda b: b.view(-1).mul_(2),
        lambda b: ts.sin(ts.ones(3), out=b.detach()),
        lambda b: b.__setitem__(0, 5.0),
        lambda b: ts._foreach_mul_([b.detach()], 2.0),
    ],
    ids=["method", "view", "out", "item", "foreach"],
)
def test_saved_tensors_may_be_written_to(write: Any) -> None:
    x = leaf()
    with allow_mutation_on_saved_tensors() as context:
        b = x.clone()
        y = (b**2 + b.exp()).sum()
        assert len(context.cloned) == 0
        write(b)
        assert len(context.cloned) >= 1
        y.backward()
    assert ts.allclose(x.grad, 2 * x + x.exp())


def test_saved_but_not_any_more_is_not_copied() -> None:
    with allow_mutation_on_saved_tensors() as context:
        b = leaf().clone()
        y = b**2
        del y
        b.sin_()
        assert len(context.cloned) == 0


def test_second_derivatives_of_what_was_written_to() -> None:
    x = leaf()
    with allow_mutation_on_saved_tensors():
        b = x.clone()
        y = (b**3).sum()
        b.zero_()
        (first,) = ts.autograd.grad(y, x, create_graph=True)
        (second,) = ts.autograd.grad(first.sum(), x)
    assert ts.allclose(first, 3 * x**2) and ts.allclose(second, 6 * x)


def test_mutation_contexts_do_not_nest_and_end() -> None:
    with allow_mutation_on_saved_tensors():
        y = leaf().pow(2).sum()
        with pytest.raises(RuntimeError, match="cannot be nested"), allow_mutation_on_saved_tensors():
            pass
    with pytest.raises(AssertionError, match="outside of the 'allow_mutation_on_saved_tensors' context"):
        y.backward()


def test_saved_tensors_of_a_context_after_a_retained_backward() -> None:
    contexts: list[Any] = []

    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: ts.Tensor) -> ts.Tensor:
            ctx.save_for_backward(x)
            contexts.append(ctx)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: ts.Tensor) -> ts.Tensor:
            return grad * 2 * ctx.saved_tensors[0]

    x = leaf()
    y = Square.apply(x)
    y.sum().backward(retain_graph=True)
    assert contexts[0].saved_tensors[0] is x and y.grad_fn.saved_tensors[0] is x
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.grad_fn.saved_tensors


def test_increment_version_of_inference_tensors() -> None:
    """They have none, which is no error."""
    with ts.inference_mode():
        x = ts.ones(2)
        increment_version(x)
    increment_version(x)


@pytest.mark.parametrize("tensor_exponent", [False, True])
def test_in_place_functions_of_python_under_gradients(tensor_exponent: bool) -> None:
    x = ts.tensor([1.5, 2.0], dtype=ts.float64, requires_grad=True)
    x.clone().float_power_(ts.full((2,), 3.0, dtype=ts.float64) if tensor_exponent else 3.0).sum().backward()
    assert ts.allclose(x.grad, 3 * x.detach() ** 2)
    y = ts.tensor([3.0, 4.0], dtype=ts.float64, requires_grad=True)
    y.clone().mvlgamma_(2).sum().backward()
    z = y.detach().requires_grad_()
    ts.mvlgamma(z, 2).sum().backward()
    assert ts.allclose(y.grad, z.grad)


def test_handles_of_hooks_are_of_one_kind() -> None:
    x = ts.ones(2, requires_grad=True)
    handles = [x.register_hook(lambda grad: grad), ts.nn.Linear(2, 2).register_forward_hook(lambda *_: None)]
    assert all(isinstance(handle, ts.utils.hooks.RemovableHandle) for handle in handles)
    assert not isinstance(x, ts.utils.hooks.RemovableHandle)
