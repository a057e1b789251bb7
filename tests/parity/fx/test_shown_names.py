"""How graphs name what they call, and what they remember: the same in both libraries."""

from __future__ import annotations

import copy

import pytest
from both_libraries import both


@both
def test_functions_of_private_modules_have_their_public_names(lib, fx):
    F = lib.nn.functional

    def calls(x):
        table = F.embedding_bag(x, lib.ones(3, 2), mode="sum")
        return F.embedding(x, lib.ones(3, 2)), table

    def asserts(x):
        lib._assert(x.shape[0] == 2, "two rows")
        return x

    concrete = fx.symbolic_trace(lambda x, y: x if y else -x, concrete_args={"y": True})
    absent = fx.symbolic_trace(lambda x, y: -x if y is None else x, concrete_args={"y": None})
    found = [fx.symbolic_trace(calls).code, fx.symbolic_trace(asserts).code, concrete.code, absent.code]
    return found, any(n.target is lib._assert for n in concrete.graph.nodes)


@pytest.mark.parametrize("name", ["add", "relu", "sub", "where", "clamp"])
def test_signatures_of_functions_around_operators(name):
    import tesserack as ts
    from tesserack.fx.operator_schemas import get_signature_for_torch_op

    assert all("input" in s.parameters or "self" in s.parameters or "condition" in s.parameters
               for s in get_signature_for_torch_op(getattr(ts, name)))  # fmt: skip


@both
def test_readable_modules_end_without_blanks(lib, fx):
    class Inner(lib.nn.Module):
        def forward(self, x):
            return x + 1

    class Whole(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = fx.symbolic_trace(Inner())

        def forward(self, x):
            return self.inner(x)

    class Tracer(fx.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, fx.GraphModule)

    whole = Whole()
    return fx.GraphModule(whole, Tracer().trace(whole)).print_readable(print_output=False)


@both
def test_graphs_remember_tracers_of_a_function(lib, fx):
    class Own(fx.Tracer):
        pass

    graph = fx.Graph(tracer_cls=Own)
    graph.output(graph.placeholder("x"))
    module = fx.GraphModule(lib.nn.Module(), graph)
    return copy.deepcopy(graph)._tracer_cls is Own, module._tracer_cls, [n.prev.op for n in graph.nodes]


@both
def test_typenames(lib, fx):
    import operator

    values = [1, int, len, operator.add, fx.Graph, fx.Graph.lint, fx.wrap, fx.symbolic_trace, lib.nn.Linear(1, 1)]
    return [lib.typename(value) for value in values]
