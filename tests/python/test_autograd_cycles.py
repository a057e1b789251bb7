"""Every reference that the tape holds is seen by the garbage collector: cycles through hooks, contexts and metadata."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.autograd import Function
from tesserack.autograd.graph import saved_tensors_hooks


class Marker:
    pass


def ignore(*held: object) -> None:
    pass


def leaf() -> ts.Tensor:
    return ts.ones(2, requires_grad=True)


def hook_of_node(marker: Marker) -> None:
    node: Any = (leaf() * 2).grad_fn
    node.register_hook(lambda a, b: ignore(node, marker))


def prehook_of_node(marker: Marker) -> None:
    node: Any = (leaf() * 2).grad_fn
    node.register_prehook(lambda a: ignore(node, marker))


def metadata_of_node(marker: Marker) -> None:
    node: Any = (leaf() * 2).grad_fn
    node.metadata["me"] = node, marker


def hook_of_result(marker: Marker) -> None:
    y = leaf() * 2
    y.register_hook(lambda g: ignore(y, marker))


def hook_that_holds_what_follows(marker: Marker) -> None:
    y = leaf() * 2
    held: list[Any] = [marker]
    y.register_hook(lambda g: held and None)
    held.append((y * 3).sin())


def hook_of_leaf(marker: Marker) -> None:
    x = leaf()
    x.register_hook(lambda g: ignore(x, marker))
    (x * 2).sum().backward()


def post_accumulate_hook(marker: Marker) -> None:
    x = leaf()
    x.register_post_accumulate_grad_hook(lambda t: ignore(x, marker))
    (x * 2).sum().backward()


def subclass_that_holds_itself(marker: Marker) -> None:
    class Sub(ts.Tensor):
        pass

    y: Any = leaf().as_subclass(Sub) * 2
    y.me, y.marker = y, marker


def saved_and_packed(marker: Marker) -> None:
    held: list[Any] = [marker]
    with saved_tensors_hooks(lambda t: (t, held), lambda packed: packed[0]):
        held.append(leaf().exp())


class Keeps(Function):
    @staticmethod
    def forward(ctx: Any, x: ts.Tensor) -> ts.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: ts.Tensor) -> ts.Tensor:
        return grad


def context_that_holds_its_node(marker: Marker) -> None:
    y = Keeps.apply(leaf())
    y.grad_fn.me, y.grad_fn.marker = y.grad_fn, marker


def context_that_holds_what_follows(marker: Marker) -> None:
    y = Keeps.apply(leaf())
    y.grad_fn.later, y.grad_fn.marker = y.sin().cos(), marker


def full_backward_hooks(marker: Marker) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    for module in model:
        module.register_full_backward_hook(lambda m, a, b: None)
        module.register_full_backward_pre_hook(lambda m, a: None)
    y: Any = model(leaf())
    y.grad_fn.metadata["marker"] = marker
    y.sum().backward(create_graph=True)
    for p in model.parameters():
        p.grad = None


def gradient_with_a_graph(marker: Marker) -> None:
    x: Any = leaf()
    x.marker = marker
    (x**3).sum().backward(create_graph=True)


CYCLES = [
    gradient_with_a_graph,
    hook_of_node,
    prehook_of_node,
    metadata_of_node,
    hook_of_result,
    hook_that_holds_what_follows,
    hook_of_leaf,
    post_accumulate_hook,
    subclass_that_holds_itself,
    saved_and_packed,
    context_that_holds_its_node,
    context_that_holds_what_follows,
    full_backward_hooks,
]


@pytest.mark.parametrize("make", CYCLES, ids=lambda f: f.__name__)
def test_cycle_is_collected(make: Callable[[Marker], None]) -> None:
    marker = Marker()
    make(marker)
    alive = weakref.ref(marker)
    del marker
    gc.collect()
    assert alive() is None


def test_what_is_in_use_is_not_collected() -> None:
    x = leaf()
    seen: list[Any] = []

    def build() -> ts.Tensor:
        y = x * 2
        y.register_hook(lambda g: seen.append((g, y)))
        node: Any = y.grad_fn
        node.register_prehook(lambda grads: seen.append((node, None)))
        node.metadata["kept"] = seen
        with saved_tensors_hooks(lambda t: [t], lambda packed: packed[0]):
            return (y.exp() * 3).sum()

    z = build()
    for _ in range(3):
        gc.collect()
    z.backward()
    assert len(seen) == 2
    assert ts.allclose(x.grad, 6 * ts.exp(2 * ts.ones(2)))


def test_metadata_stays_with_the_node() -> None:
    y = leaf() * 2
    node: Any = y.grad_fn
    node.metadata["a"] = 1
    del node
    assert y.grad_fn is not None and y.grad_fn.metadata["a"] == 1  # type: ignore[attr-defined]
