"""func.functionalize in graphs: no writes but to arguments at the end, the same results and writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack.func import functionalize, grad, vmap
from tesserack.fx.experimental.proxy_tensor import make_fx


def through_a_view(x: Any) -> Any:
    x.view(-1).add_(1)
    return x


def by_out(x: Any) -> Any:
    out = ts.empty(x.shape, device=x.device)
    ts.add(x, x, out=out)
    out.view(-1)[:2].mul_(2)
    return out


def several_out(x: Any) -> Any:
    least, most = ts.empty(2, device=x.device), ts.empty(2, device=x.device)
    ts.aminmax(x, dim=1, out=(least, most))
    return least + most


def parts(x: Any) -> Any:
    a, b = x.split(1)
    c = a * 1
    c.diagonal().zero_()
    x[1:].copy_(c)
    return c + b, x.t()


def outline(x: Any) -> Any:
    y = x.clone()
    y.unsqueeze_(0)
    y.mul_(3)
    return y.squeeze(0)


def derivative(x: Any) -> Any:
    return grad(lambda v: v.sin().clone().mul_(2).sum())(x)


FUNCTIONS = [through_a_view, by_out, several_out, parts, outline, derivative]


def writes(graph: Any) -> list[str]:
    return [str(n.target) for n in graph.graph.nodes if n.op == "call_function" and mutable(n)]


def mutable(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
@pytest.mark.parametrize("f", FUNCTIONS)
def test_graphs_do_not_write(f: Callable[..., Any], remove: str, device: ts.device) -> None:
    x = ts.arange(6, dtype=ts.float32, device=device).reshape(2, 3)
    plain, traced, again = x.clone(), x.clone(), x.clone()
    wanted = f(plain)
    graph = make_fx(functionalize(f, remove=remove))(traced)
    assert set(writes(graph)) <= {"aten.copy_.default"}
    assert all(n.args[0].op == "placeholder" for n in graph.graph.nodes if str(n.target) == "aten.copy_.default")
    found = graph(again)
    for one, other in zip(leaves(found), leaves(wanted), strict=True):
        assert one.tolist() == other.tolist()
    assert traced.tolist() == plain.tolist() == again.tolist()


def leaves(tree: Any) -> list[Any]:
    return list(tree) if isinstance(tree, (tuple, list)) else [tree]


def test_nested_arguments_and_no_tensors(device: ts.device) -> None:
    def f(given: dict[str, Any], scale: int = 2) -> dict[str, Any]:
        given["a"].mul_(scale)
        return {"sum": given["a"] + given["b"]}

    def made() -> dict[str, Any]:
        return {"a": ts.ones(2, device=device), "b": ts.ones(2, device=device)}

    graph = make_fx(functionalize(f))(made())
    given = made()
    assert graph(given)["sum"].tolist() == [3.0, 3.0]
    assert given["a"].tolist() == [2.0, 2.0]
    assert writes(graph) == ["aten.copy_.default"]


def test_a_write_to_what_was_captured_is_refused(device: ts.device) -> None:
    held = ts.ones(2, device=device)
    with pytest.raises(RuntimeError, match="captured"):
        make_fx(functionalize(lambda x: held.add_(x)))(ts.ones(2, device=device))
    assert held.tolist() == [1.0, 1.0]


def test_outside_of_graphs_the_function_runs_as_it_is(device: ts.device) -> None:
    x = ts.ones(2, device=device)
    assert functionalize(through_a_view)(x) is x
    assert vmap(functionalize(outline))(ts.ones(3, 2, 2, device=device)).sum().item() == 36
    assert grad(functionalize(lambda v: outline(v).sum()))(x.reshape(1, 2)).tolist() == [[3.0, 3.0]]
    with pytest.raises(RuntimeError, match="remove"):
        functionalize(outline, remove="all")
