"""The module of an exported program as other passes see it: a graph whose code takes arguments apart and puts results
together."""

from __future__ import annotations

import copy
import inspect
import io
from typing import Any

import pytest
import tesserack as ts
from tesserack import fx, nn
from tesserack.aten.operators import namespace
from tesserack.export import export, load, save
from tesserack.fx.passes.split_utils import split_by_tags
from tesserack.fx.passes.utils.matcher_with_name_node_map_utils import SubgraphMatcherWithNameNodeMap


class Nested(nn.Module):
    def forward(self, x: Any, d: Any, *, k: Any) -> Any:
        return {"out": x + d["a"] * 2 + k, "list": [x, d["b"]]}


X = ts.arange(2.0)
D = {"b": ts.full((2,), 3.0), "a": ts.ones(2)}
K = ts.full((2,), 5.0)


def _module(through_a_file: bool = False) -> Any:
    program = export(Nested(), (X, {"a": D["a"], "b": D["b"]}), {"k": K})
    if through_a_file:
        file = io.BytesIO()
        save(program, file)
        file.seek(0)
        program = load(file)
    return program.module()


def _same(found: Any) -> bool:
    wanted = Nested()(X, D, k=K)
    return found.keys() == wanted.keys() and all(
        ts.equal(a, b) for a, b in zip((found["out"], *found["list"]), (wanted["out"], *wanted["list"]), strict=True)
    )


@pytest.mark.parametrize("through_a_file", [False, True])
def test_graphs_of_it_are_called_as_the_program(through_a_file: bool) -> None:
    module = _module(through_a_file)
    again = fx.GraphModule(module, module.graph)
    for called in (module, again, copy.deepcopy(again), fx.Transformer(module).transform()):
        assert _same(called(X, D, k=K))
    assert _same(fx.Interpreter(module).run(X, {"a": D["a"], "b": D["b"]}, K))
    assert list(inspect.signature(module.forward).parameters) == ["x", "d", "k"]
    assert "tree_flatten_spec(([x, d], {'k':k}), self._in_spec)" in module.code


def test_arguments_without_names_of_their_own() -> None:
    class Sum(nn.Module):
        def forward(self, *xs: Any) -> Any:
            return sum(xs)

    module = export(Sum(), (X, X)).module()
    assert ts.equal(fx.GraphModule(module, module.graph)(X, K), X + K)


def test_parts_of_it_return_what_it_returns() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    module = export(net, (X,)).module()
    for node in module.graph.nodes:
        node.tag = "second" if "relu" in node.name else "first"
    split = split_by_tags(module, ["first", "second"])
    assert ts.equal(split(X), net(X))


def test_patterns_that_return_names() -> None:
    class Pattern(nn.Module):
        def forward(self, x: Any) -> Any:
            doubled = x * 2
            return doubled.relu(), {"doubled": doubled}

    matcher = SubgraphMatcherWithNameNodeMap(export(Pattern(), (X,)).module())
    target = fx.symbolic_trace(lambda x: ts.exp(x))
    assert matcher.match(target.graph) == []
    program = export(nn.Sequential(nn.ReLU()), (X,)).module()
    assert matcher.match(program.graph) == []

    class Program(nn.Module):
        def forward(self, x: Any) -> Any:
            return (x.sin() * 2).relu() + 1

    graph = export(Program(), (X,)).module().graph
    (found,) = matcher.match(graph)
    assert found.name_node_map["doubled"].args[0].name == "sin"


def test_one_number_of_a_schema_stands_for_every_dim() -> None:
    pool = namespace("aten").max_pool2d_with_indices.default
    defaults = {a.name: a.default_value for a in pool._schema.arguments}
    assert defaults["padding"] == [0, 0] and defaults["dilation"] == [1, 1] and defaults["ceil_mode"] is False

    def pattern(x: Any, kernel_size: Any, stride: Any) -> Any:
        return pool(x, kernel_size, stride, padding=[0, 0])

    traced = fx.symbolic_trace(lambda x: pool(x, [2, 2], stride=[2, 2]))
    assert len(fx.subgraph_rewriter.replace_pattern(traced, pattern, pattern)) == 1
