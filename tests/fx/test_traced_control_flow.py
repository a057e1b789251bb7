"""Control flow as nodes: what make_fx makes of cond, while_loop, scan, map and associative_scan, and fake tensors."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack._higher_order_ops import associative_scan, cond, map, scan, while_loop
from tesserack._subclasses import DataDependentOutputException, DynamicOutputShapeException, FakeTensor, FakeTensorMode
from tesserack.fx.experimental.proxy_tensor import make_fx
from tesserack.utils._pytree import tree_leaves


def program(layer: Any, held: ts.Tensor) -> Any:
    """One of every kind, with closures over the program's tensors, a layer's parameters and what was computed."""

    def f(x: Any, y: Any) -> Any:
        z = x * 2
        a = cond(x.sum() > 0, lambda x: (x + z + held, layer(x)), lambda x: (x - y, x * ts.tensor(2.0)), (x,))
        n, b = while_loop(lambda n, b: n < 3, lambda n, b: (n + 1, b * y), (ts.tensor(0), x))
        c, ys = scan(lambda c, t: (c + t[0], {"y": c * t[1] + y}), held, (x, y.expand(x.shape)))
        rows = map(lambda r, q: (r * q).sum(), x, z)
        sums = associative_scan(operator.add, x, 1)
        every = associative_scan(operator.add, x, 0, combine_mode="generic")
        return a, b, c, ys, rows, sums, every, n

    return f


def same(a: Any, b: Any) -> bool:
    return all(ts.allclose(x, y) for x, y in zip(tree_leaves(a), tree_leaves(b), strict=True))


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_every_kind_is_a_node_and_runs(mode: str) -> None:
    f = program(nn.Linear(3, 3), ts.ones(3) * 5)
    x, y = ts.rand(2, 3), ts.rand(3)
    with ts.no_grad():
        graph = make_fx(f, tracing_mode=mode)(x, y)
        names = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
        assert all(names.count(kind) == 1 for kind in ("cond", "while_loop", "scan", "map_impl", "associative_scan"))
        again = make_fx(graph)(x, y)
        for given in (x, -x, ts.rand(2, 3) - 0.5):
            assert same(graph(given, y), f(given, y)) and same(again(given, y), f(given, y))


def test_both_branches_are_held_against_each_other() -> None:
    with ts.no_grad(), pytest.raises(RuntimeError, match="same shape and dtype"):
        make_fx(lambda x: cond(x.sum() > 0, lambda x: x + 1, lambda x: x[:1], (x,)))(ts.ones(3))
    with ts.no_grad(), pytest.raises(RuntimeError, match="same structure"):
        make_fx(lambda x: cond(x.sum() > 0, lambda x: x + 1, lambda x: (x,), (x,)))(ts.ones(3))
    with ts.no_grad(), pytest.raises(RuntimeError, match="write"):
        make_fx(lambda x: cond(x.sum() > 0, lambda x: x.add_(1), lambda x: x, (x,)))(ts.ones(3))
    with ts.no_grad(), pytest.raises(RuntimeError, match="value would be the first one's"):
        make_fx(lambda x: while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x), (0, x)))(ts.ones(3))
    with pytest.raises(RuntimeError, match="no_grad"):
        grown = lambda x: while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x * 2), (ts.tensor(0), x))  # noqa: E731
        make_fx(grown)(ts.ones(3, requires_grad=True))


def flows(w: ts.Tensor) -> dict[str, Any]:
    """Control flow that closes over what requires gradients."""
    return {
        "cond": lambda x: cond(x.sum() > 0, lambda x: (x * w).sin(), lambda x: x * x, (x,)),
        "unread": lambda x: cond(x.sum() > 0, lambda x, y: x * 2, lambda x, y: (y * w).exp(), (x, x * 3)),
        "scan": lambda x: scan(lambda c, t: (c + t * w[0], c * t), x[0], x)[1],
        "map": lambda x: map(lambda t: t * w.sum(), x),
        "associative_scan": lambda x: associative_scan(lambda a, b: a * b, x * w, 0),
    }


@pytest.mark.parametrize("mode", ["real", "fake"])
@pytest.mark.parametrize("name", flows(ts.ones(0)))
def test_gradients_through_control_flow_become_nodes(name: str, mode: str) -> None:
    w = ts.rand(3, requires_grad=True)

    def gradients(x: Any) -> Any:
        found = flows(w)[name](x)
        return ts.autograd.grad((found * found).sum(), (x, w), allow_unused=True)

    graph = make_fx(gradients, tracing_mode=mode)(ts.rand(3, requires_grad=True))
    if name in ("cond", "unread"):
        assert [str(node.target) for node in graph.graph.nodes].count("cond") == 2
    for x in (ts.rand(3), -ts.rand(3)):
        expected = gradients(x.clone().requires_grad_())
        for a, b in zip(expected, graph(x), strict=True):
            assert not b.any() if a is None else ts.allclose(a, b, atol=1e-5)


def test_gradients_become_part_of_the_graph() -> None:
    graph = make_fx(lambda x: ts.autograd.grad((x.sin() * x).sum(), x)[0])(ts.rand(3, requires_grad=True))
    x = ts.rand(3)
    assert ts.allclose(graph(x), x.cos() * x + x.sin())
    node = next(node for node in graph.graph.nodes if node.op == "call_function")
    assert node.meta["val"].shape == (3,) and __file__ in node.meta["stack_trace"]


def test_decompositions() -> None:
    table = {ts.compat.torch.ops.aten.gelu.default: lambda x: x * ts.sigmoid(1.702 * x)}
    graph = make_fx(lambda x: nn.functional.gelu(x) + 1, decomposition_table=table, tracing_mode="fake")(ts.ones(3))
    assert [n.name for n in graph.graph.nodes] == ["x_1", "mul", "sigmoid", "mul_1", "add", "output"]


def test_fake_tensors_have_everything_but_values() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 5))
    mode = FakeTensorMode()
    x = mode.from_tensor(ts.rand(2, 3, 8, 8))
    with mode, ts.no_grad():
        found, made = net(x), ts.arange(4)[1:].to(ts.float64)
        made += 1
    assert isinstance(found, FakeTensor) and found.shape == (2, 5) and found.device == net[0].weight.device
    assert made.shape == (3,) and made.dtype is ts.float64 and net[1].num_batches_tracked.item() == 0
    assert isinstance(x + 1, FakeTensor) and mode.from_tensor(found) is found
    assert "size=(2, 5)" in repr(found)
    for ask in (lambda: found.sum().item(), lambda: bool(found.sum() > 0), lambda: found.tolist()):
        with pytest.raises(DataDependentOutputException):
            ask()
    for ask in (found.nonzero, lambda: found[found > 0], found.unique):
        with pytest.raises(DynamicOutputShapeException):
            ask()
    with pytest.raises(RuntimeError, match="convert all Tensors"), FakeTensorMode(allow_non_fake_inputs=False):
        ts.ones(2).add(net[4].bias)


LAYERS = {
    "gelu": nn.functional.gelu,
    "glu": lambda x: nn.functional.glu(ts.cat([x, x[:1]])),
    "softmax": lambda x: x.softmax(0) * x,
    "layer_norm": lambda x: nn.functional.layer_norm(x, (3,)) * x,
    "cross_entropy": lambda x: nn.functional.cross_entropy(x[None], ts.tensor([1])),
    "attention": lambda x: nn.functional.scaled_dot_product_attention(*(x.view(1, 1, 3, 1),) * 3),
    "power": lambda x: x**3 / 2,
}


@pytest.mark.parametrize("mode", ["real", "fake"])
@pytest.mark.parametrize("name", LAYERS)
def test_what_a_backward_pass_saves_is_no_constant(name: str, mode: str) -> None:
    def gradient(x: Any) -> Any:
        return ts.autograd.grad(LAYERS[name](x).sum(), x)[0]

    graph = make_fx(gradient, tracing_mode=mode)(ts.rand(3, requires_grad=True))
    x = ts.rand(3)
    assert ts.allclose(graph(x), gradient(x.clone().requires_grad_()), atol=1e-6)


@pytest.mark.parametrize("layer", [nn.Dropout1d(0.5), nn.Dropout2d(0.5), nn.Dropout3d(0.5), nn.LocalResponseNorm(2)])
def test_what_layers_draw_and_make_is_seen(layer: nn.Module) -> None:
    x = ts.rand(3, 4, *[5] * {nn.Dropout1d: 1, nn.Dropout3d: 3}.get(type(layer), 2))
    graph = make_fx(layer, tracing_mode="fake")(x)
    assert not [node for node in graph.graph.nodes if node.op == "get_attr"]
    ts.manual_seed(3)
    expected = layer(x)
    ts.manual_seed(3)
    assert ts.allclose(graph(x), expected)
