"""Each body runs on both libraries and returns plain data, which must be the same: names, listings, texts, errors."""

from __future__ import annotations

import collections
import copy
import enum
import operator
import pickle
import typing
from typing import NamedTuple

import pytest
from both_libraries import both, error, leaf, net, nodes


class Pair(NamedTuple):
    x: typing.Any
    y: typing.Any


class Color(enum.Enum):
    RED = 1


Point = collections.namedtuple("Point", ["x", "y"])


@both
def test_nodes_of_a_traced_module(lib, fx):
    traced = fx.symbolic_trace(net(lib))
    traced.graph.lint()
    return nodes(traced.graph), [n for n, _ in traced.named_parameters()], [n for n, _ in traced.named_buffers()]


@both
def test_written_programs(lib, fx):
    return fx.symbolic_trace(net(lib)).code


@both
def test_listed_graphs(lib, fx):
    return [n.format_node() for n in fx.symbolic_trace(net(lib)).graph.nodes], str(fx.symbolic_trace(leaf).graph)


@both
def test_arguments_with_stars(lib, fx):
    def program(a, b=4, *args, c=5, **kwargs):
        return a + b + args[0] + kwargs["k"] + c

    traced = fx.symbolic_trace(program)
    return traced.code, traced(1, 2, 4, 3, k=5), nodes(traced.graph)


@both
def test_star_self_is_refused(lib, fx):
    class Odd(lib.nn.Module):
        def forward(*args):
            return args[1]

    return error(RuntimeError, lambda: fx.symbolic_trace(Odd()))


@both
def test_annotations_and_defaults(lib, fx):
    def program(a: typing.List[int], p: Pair, s: str = "x", n: typing.Optional[float] = None) -> typing.Dict[str, int]:  # noqa: UP006, UP045
        return {"a": a[0]}

    return fx.symbolic_trace(program).code, fx.symbolic_trace(lambda x: x).code


@both
def test_values_in_programs(lib, fx):
    def program(x):
        y = leaf(x, float("inf")), x + float("nan"), x[1:2, ..., None], x.view((2, -1)), x.to(lib.float64)
        return y, Pair(x, 1), [1, 2.5, True, None, "it's", 3 + 4j], {"k": x, 3: slice(1, None, x)}, Color.RED

    traced = fx.symbolic_trace(program)
    text = traced.code
    inf = [line for line in text.splitlines() if "inf" in line or "nan" in line]
    return text, inf


@both
def test_texts_run(lib, fx):
    def program(x, y):
        z = (
            x << 3,
            x >> 1,
            x & y,
            x | y,
            x ^ y,
            ~x,
            x % 3,
            x**2,
            -x,
            abs(x),
            x == y,
            x != y,
            x < y,
            x >= y,
            3 - x,
            2 // y,
        )
        return z, lib.where(x > y, x, y).clamp(min=0), lib.stack([x, y]), x.T.shape

    x, y = lib.tensor([5, 3]), lib.tensor([2, 7])
    traced = fx.symbolic_trace(program)
    return traced.code, traced(x, y)


@both
def test_names_are_taken_once(lib, fx):
    graph = fx.Graph()
    made = [
        graph.create_node("placeholder", n) for n in ("x", "x", "for", "len", "foo_1", "foo", "foo", "a.b", "3d", "x_1")
    ]
    made += [graph.call_function(f, (made[0],)) for f in (lib.relu, lib.relu, operator.neg, len, leaf)]
    made += [
        graph.create_node("call_method", "__getitem__", (made[0], 1)),
        graph.call_module("a.someLayer", (made[0],)),
    ]
    return [n.name for n in made]


@both
def test_inserting(lib, fx):
    graph = fx.symbolic_trace(lambda x: lib.relu(x)).graph
    x, relu, _ = graph.nodes
    with graph.inserting_after(x):
        graph.call_function(lib.neg, (x,))
        graph.call_function(lib.exp, (x,))
    with graph.inserting_before(relu):
        graph.call_function(lib.sin, (x,))
    with graph.inserting_before():
        graph.call_function(lib.rand, (2,))
    with graph.inserting_after():
        graph.call_function(lib.ones, (2,))
    graph.inserting_before(relu)
    graph.call_function(lib.cos, (x,))
    return [n.name for n in graph.nodes], [n.name for n in reversed(graph.nodes)], len(graph.nodes)


@both
def test_order_of_nodes(lib, fx):
    graph = fx.Graph()
    first = graph.placeholder("x")
    for _ in range(60):
        with graph.inserting_after(first):
            graph.call_function(lib.relu, (first,))
    made = [*graph.nodes]
    return [n.name for n in sorted({*made})], made[0] < made[5], made[5] <= made[3], max(made).name


@both
def test_moving(lib, fx):
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    b = graph.call_function(lib.relu, (x,))
    graph.output(b)
    b.prepend(b)
    x.append(y)
    y.append(x)
    b.replace_input_with(x, y)
    b.insert_arg(1, 3)
    b.insert_arg(0, x)
    b.update_kwarg("k", [y])
    b.update_arg(1, 7)
    other = fx.Graph().placeholder("z")
    moved = error(AssertionError, lambda: x.append(other))
    return nodes(graph), [n.name for n in graph.nodes], moved, x.next.name, x.prev.name


@both
def test_erasing(lib, fx):
    graph = fx.symbolic_trace(lambda x: lib.relu(x) + 1).graph
    relu = next(n for n in graph.nodes if n.name == "relu")
    kinds = [error(RuntimeError, lambda: graph.erase_node(relu))]
    kinds.append(error(RuntimeError, lambda: fx.Graph().erase_node(graph.output_node())))
    add = graph.output_node().args[0]
    changed = add.replace_all_uses_with(relu)
    graph.erase_node(add)
    with pytest.warns(UserWarning):
        graph.erase_node(add)
    return kinds, [c.name for c in changed], nodes(graph)


@both
def test_replacing_some_uses_and_meta(lib, fx):
    graph = fx.symbolic_trace(lambda x: (lib.relu(x), lib.exp(x))).graph
    x = next(iter(graph.nodes))
    x.meta["note"] = 1
    with graph.inserting_after(x):
        new = graph.call_function(lib.neg, (x,))
    x.replace_all_uses_with(new, lambda user: user.name == "exp", propagate_meta=True)
    refused = error(AssertionError, lambda: x.replace_all_uses_with(new, propagate_meta=True))
    return nodes(graph), new.meta, refused


@both
def test_dead_code(lib, fx):
    def program(x):
        lib.relu(x)
        x.add_(1)
        lib.rand(2)
        return x

    traced = fx.symbolic_trace(program)
    with traced.graph.inserting_before(traced.graph.output_node()):
        traced.graph.call_function(operator.setitem, (next(iter(traced.graph.nodes)), 0, 1))
    changed = traced.graph.eliminate_dead_code()
    again = traced.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
    return changed, again, [n.name for n in traced.graph.nodes]


@both
def test_impure_modules_stay(lib, fx):
    class Counter(lib.nn.Module):
        _is_impure = True

        def forward(self, x):
            return x

    class Outer(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.counter, self.relu = Counter(), lib.nn.ReLU()

        def forward(self, x):
            self.counter(x)
            self.relu(x)
            return x

    class Leaves(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return True

    root = Outer()
    traced = fx.GraphModule(root, Leaves().trace(root))
    return traced.graph.eliminate_dead_code(), [n.name for n in traced.graph.nodes]


@both
def test_faults_that_lint_finds(lib, fx):
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(lib.relu, (x,))
    graph.output(y)
    x.prepend(y)
    found = [error(RuntimeError, graph.lint)]
    other = fx.Graph()
    for node in fx.symbolic_trace(leaf).graph.nodes:
        other.node_copy(node)
    found.append(error(RuntimeError, other.lint))
    gm = fx.GraphModule(lib.nn.Module(), fx.Graph())
    gm.graph.create_node("call_module", "missing")
    found.append(error(RuntimeError, gm.graph.lint))
    return found


@both
def test_what_nodes_refuse(lib, fx):
    graph = fx.Graph()
    make = [
        lambda: fx.Node(graph, "n", "call_function", "foo", (), {}),
        lambda: fx.Node(graph, "n", "call_method", leaf, (), {}),
        lambda: graph.create_node("call_function", leaf, [1]),
        lambda: fx.Node(graph, "n", "odd", "foo", (), {}),
    ]
    return [error((ValueError, AssertionError), m) for m in make]


@both
def test_copies_of_graphs(lib, fx):
    graph = fx.symbolic_trace(lambda x, y=3: lib.relu(x) + y).graph
    relu = [*graph.nodes][2]
    relu.meta["k"] = [1]
    twin = copy.deepcopy(graph)
    joined = fx.Graph()
    values = {}
    result = joined.graph_copy(graph, values)
    pair = fx.Graph().graph_copy(graph, {}, return_output_node=True)
    joined.output((fx.Proxy(result) * 2).node)
    return nodes(twin), [*twin.nodes][2].meta, nodes(joined), pair[1].name, twin.owning_module is None


@both
def test_pickled_graph_modules(lib, fx):
    model = lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.ReLU())
    traced = fx.symbolic_trace(model)
    loaded = pickle.loads(pickle.dumps(traced))
    loaded.graph.lint()
    x = lib.ones(1, 2)
    return nodes(loaded.graph), loaded.code, bool((loaded(x) == traced(x)).all())


@both
def test_deep_copies_of_modules(lib, fx):
    traced = fx.symbolic_trace(lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.ReLU()).eval())
    traced.meta["note"] = [1]
    twin = copy.deepcopy(traced)
    twin.meta["note"].append(2)
    for node in twin.graph.nodes:
        if node.op == "call_module" and node.target == "1":
            with twin.graph.inserting_after(node):
                new = twin.graph.call_method("neg", (node,))
            node.replace_all_uses_with(new, lambda user, new=new: user is not new)
    twin.recompile()
    x = lib.ones(1, 2)
    return bool((twin(x) == -traced(x)).all()), traced.meta, twin.meta, twin.training, type(twin) is type(traced)


@both
def test_module_from_a_dict(lib, fx):
    graph = fx.Graph()
    a = graph.placeholder("x")
    b = graph.call_module("foo.bar.baz", (a,))
    c = graph.get_attr("zip.zap.zam")
    graph.output(graph.call_function(operator.add, (b, c)))
    gm = fx.GraphModule({"foo.bar.baz": lib.nn.ReLU(), "zip.zap.zam": lib.ones(2)}, graph, "Made")
    missing = error(RuntimeError, lambda: fx.GraphModule({}, graph))
    odd = error(RuntimeError, lambda: fx.GraphModule(3, graph))
    return gm.code, gm(-lib.ones(2)), missing, odd, [n for n, _ in gm.named_buffers()], type(gm).__name__


@both
def test_submodules(lib, fx):
    traced = fx.symbolic_trace(net(lib))
    found = [
        traced.add_submodule("subMod.more.drop", lib.nn.Dropout()),
        traced.add_submodule("subMod.w.x", lib.nn.Dropout()),
        traced.delete_submodule("subMod.nothing"),
        traced.delete_submodule("subMod.w"),
    ]
    names = [n for n, _ in traced.named_modules()]
    traced.delete_all_unused_submodules()
    return found, names, [n for n, _ in traced.named_modules()]


@both
def test_warnings_for_missing_attributes(lib, fx):
    traced = fx.symbolic_trace(net(lib))
    with pytest.warns(UserWarning, match="no underlying reference"):
        traced.graph.get_attr("subMod.none")
    return [n.name for n in [*traced.graph.nodes][-1:]]


@both
def test_code_generators(lib, fx):
    class Listed(fx.graph.CodeGen):
        def gen_fn_def(self, free_vars, maybe_return_annotation):
            return f"def forward(self, args: List[int]){maybe_return_annotation}:\n    {', '.join(free_vars)}, = args"

        def additional_globals(self):
            return [("List", typing.List)]  # noqa: UP006

        def process_inputs(self, *inputs):
            return inputs[0]

        def process_outputs(self, outputs):
            return [outputs]

        def generate_output(self, output_args):
            return f"return [{output_args!r}]"

    traced = fx.symbolic_trace(leaf)
    before = traced(1, 2)
    traced.graph.set_codegen(Listed())
    traced.recompile()
    twin = copy.deepcopy(traced)
    values = traced.graph.process_inputs([1, 2])
    return before, traced.code, traced([1, 2]), twin([3, 4]), fx.Interpreter(traced).run([5, 6]), values


@both
def test_transformed_lines(lib, fx):
    traced = fx.symbolic_trace(leaf)
    with traced.graph.on_generate_code(
        lambda before: lambda body: ["a = a * 10\n", *(before(body) if before else body)]
    ):
        traced.recompile()
        inside = traced(1, 2)
    traced.recompile()
    return inside, traced(1, 2)


@both
def test_boxed_programs(lib, fx):
    traced = fx.symbolic_trace(leaf)
    traced.graph.set_codegen(fx.graph._BoxedCodeGen())
    traced.recompile()
    given = [1, 2]
    return traced(given), given, traced.code
