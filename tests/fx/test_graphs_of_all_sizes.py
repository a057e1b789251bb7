"""``make_fx(tracing_mode="symbolic")``: a graph for other sizes than those of the example."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tesserack as ts
from tesserack.fx.experimental.proxy_tensor import make_fx
from tesserack.nn import functional as F

grad = ts.autograd.grad
Sizes = tuple[tuple[int, ...], ...]


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def check(f: Callable[..., Any], example: Sizes, *others: Sizes, wanted: bool = False) -> Any:
    """The graph of the example gives what the function gives at other sizes."""
    graph = make_fx(f, tracing_mode="symbolic")(*(ts.randn(*s).requires_grad_(wanted) for s in example))
    for sizes in (example, *others):
        args = [ts.randn(*s).requires_grad_(wanted) for s in sizes]
        found, expected = graph(*args), f(*args)
        for one, other in zip(found, expected, strict=True) if wanted else ((found, expected),):
            assert one.shape == other.shape and ts.allclose(one, other, atol=1e-5), sizes
    return graph


# What is computed of sizes, with an example and others.
PROGRAMS: dict[str, tuple[Callable[..., Any], Sizes, list[Sizes]]] = {
    "numbers": (lambda x: x * x.shape[0] + x.shape[0] // 2, ((5,),), [((n,),) for n in range(2, 40)]),
    "remainders": (
        lambda x: x[: x.shape[0] // 3].sum() / (x.shape[0] % 4 + 1), ((5,),), [((n,),) for n in range(3, 40)],
    ),
    "a root": (lambda x: x * x.shape[-1] ** -0.5 + math.sqrt(x.shape[0]), ((5, 3),), [((7, 2),), ((4, 9),)]),
    "shapes": (lambda x: x.reshape(x.shape[0] * x.shape[1]).cumsum(0), ((4, 4),), [((6, 5),), ((2, 3),)]),
    "factories": (lambda x: ts.arange(x.shape[0]).float() @ x + ts.full((x.shape[1],), 2.0), ((5, 3),), [((7, 2),)]),
    "squares alone": (lambda x: ts.linalg.inv(x + 10 * ts.eye(x.shape[0])), ((4, 4),), [((6, 6),), ((3, 3),)]),
    "multiples alone": (lambda x: x.view(-1, 2).sum(0), ((3, 4),), [((5, 6),), ((2, 8),)]),
    "sizes of two": (lambda x, y: x + y.sum(), ((4, 4), (4,)), [((6, 5), (6,))]),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), ((2, 3, 4, 8),), [((3, 2, 5, 6),)]),
    "layers": (
        lambda x, w, b: F.layer_norm(F.linear(x, w, b), b.shape).softmax(-1), ((3, 5), (4, 5), (4,)),
        [((7, 6), (3, 6), (3,))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_of_the_example_are_not_held(name: str) -> None:
    f, example, others = PROGRAMS[name]
    check(f, example, *others)


# Whose gradients are taken within.
GRADIENTS: dict[str, tuple[Callable[..., Any], Sizes, list[Sizes]]] = {
    "broadcast": (lambda x, y: x * y, ((2, 3, 5), (5,)), [((3, 4, 6), (6,))]),
    "mean": (lambda x: x.mean(1) ** 2, ((3, 5),), [((4, 6),)]),
    "std": (lambda x: x.std(1) + x.var(1), ((3, 4),), [((5, 6),)]),
    "maximum": (lambda x: x.max(1).values, ((3, 4),), [((5, 6),)]),
    "product": (lambda x: x.prod(1), ((3, 4),), [((5, 6),)]),
    "norm": (lambda x: x.norm(dim=1), ((3, 4),), [((5, 6),)]),
    "slices": (lambda x: x[1:, :-1] ** 2, ((3, 4),), [((5, 6),)]),
    "cat": (lambda x, y: ts.cat([x, y]) ** 2, ((3, 4), (2, 4)), [((5, 6), (3, 6))]),
    "repeat": (lambda x: x.repeat(2, 3) ** 2, ((3, 4),), [((5, 6),)]),
    "unfold": (lambda x: x.unfold(0, 2, 1) ** 2, ((4,),), [((6,),)]),
    "products": (lambda x, y: x @ y, ((2, 3, 4), (4, 5)), [((3, 5, 6), (6, 2))]),
    "linear": (lambda x, w, b: F.linear(x, w, b) ** 2, ((3, 5), (4, 5), (4,)), [((7, 6), (3, 6), (3,))]),
    "layer norm": (lambda x, w: F.layer_norm(x, w.shape, w) ** 2, ((3, 5), (5,)), [((4, 6), (6,))]),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True) ** 3, ((4, 3, 5),), [((6, 2, 7),)]),
    "pooling": (lambda x: F.avg_pool2d(x, 2) + F.max_pool2d(x, 2), ((2, 3, 4, 4),), [((3, 2, 6, 8),)]),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), ((2, 3, 4, 5),), [((3, 2, 5, 6),)]),
    "cross entropy": (lambda x: F.cross_entropy(x, ts.zeros(x.shape[0]).long()), ((3, 4),), [((5, 6),)]),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_follow_sizes(name: str) -> None:
    f, example, others = GRADIENTS[name]
    check(lambda *args: grad(f(*args).sum(), args), example, *others, wanted=True)


def test_what_a_size_decides_is_held_and_told() -> None:
    def branches(x: Any) -> Any:
        return x + 1 if x.shape[0] > 10 else x - 1

    with pytest.warns(UserWarning, match=r"make_fx: the graph holds for s0=5 alone: the program does aten\.sub"):
        graph = make_fx(branches, tracing_mode="symbolic")(ts.ones(5, 2))
    assert graph(ts.ones(5, 7)).tolist() == [[0.0] * 7] * 5

    table = [[0.0] * n for n in range(200)]
    with pytest.warns(UserWarning, match="s0=3 alone: .*"):
        graph = make_fx(lambda x: x + ts.tensor(table[min(x.shape[0], 199)]), tracing_mode="symbolic")(ts.ones(3))
    assert graph(ts.ones(3)).tolist() == [1.0] * 3


def test_kernels_stay_as_large_as_they_are() -> None:
    with pytest.warns(UserWarning, match="make_fx: the graph holds for s5=3, s6=3 alone"):
        graph = make_fx(F.conv2d, tracing_mode="symbolic")(ts.ones(2, 4, 6, 6), ts.ones(3, 4, 3, 3))
    x, w = ts.randn(5, 2, 8, 7), ts.randn(6, 2, 3, 3)
    assert ts.allclose(graph(x, w), F.conv2d(x, w), atol=1e-5)


def test_tensors_that_the_function_holds_are_no_steps() -> None:
    held = ts.ones(1)
    graph = make_fx(lambda x: x * held + ts.zeros(x.shape[0]), tracing_mode="symbolic")(ts.ones(3))
    held.fill_(4)
    assert graph(ts.ones(5)).tolist() == [4.0] * 5


def test_nested_arguments_and_numbers() -> None:
    def f(given: Any, more: int) -> Any:
        return {"sum": given["a"] + given["b"][0] * more, "size": given["a"].shape[0]}

    graph = make_fx(f, tracing_mode="symbolic")({"a": ts.ones(3), "b": [ts.ones(3)]}, 2)
    assert graph({"a": ts.ones(5), "b": [ts.ones(5)]}, 2)["sum"].tolist() == [3.0] * 5


def test_numbers_in_graphs_are_plain() -> None:
    graph = make_fx(lambda x: x.expand(2, 1, x.shape[2]) + x.shape[0], tracing_mode="symbolic")(ts.ones(1, 1, 4))
    numbers = [a for node in graph.graph.nodes for a in ts.utils._pytree.tree_leaves(node.args) if isinstance(a, int)]
    assert numbers and {type(n) for n in numbers} == {int}
    assert graph(ts.ones(1, 1, 6)).shape == (2, 1, 6)


def test_whole_numbers_that_are_given() -> None:
    graph = make_fx(lambda x, n: x * n + n // 2, tracing_mode="symbolic")(ts.ones(3), 12)
    assert graph(ts.ones(5), 7).tolist() == [10.0] * 5
    loop = make_fx(lambda x, n: [x + k for k in range(n)], tracing_mode="symbolic")(ts.ones(3), 4)
    assert [y.tolist() for y in loop(ts.ones(2), 4)] == [[1.0 + k] * 2 for k in range(4)]
    along = make_fx(lambda x, d: x.sum(d), tracing_mode="symbolic")(ts.ones(2, 3, 4), 2)
    assert along(ts.ones(5, 6, 7), 2).tolist() == [[7.0] * 6] * 5


def test_sizes_that_a_function_takes_a_few_of() -> None:
    graph = make_fx(lambda x: ts.full((10 - x.shape[0],), x.shape[0]), tracing_mode="symbolic")(ts.ones(2))
    assert graph(ts.ones(5)).tolist() == [5] * 5
