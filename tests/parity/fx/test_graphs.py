"""Each body runs on both libraries and returns plain data, which must be the same: names, listings, texts, errors."""

from __future__ import annotations

import collections
import copy
import enum
import importlib
import operator
import pickle
import typing
from typing import NamedTuple

import pytest
from both_libraries import both, error, leaf, net, nodes, refuses


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


@both
def test_nested_arguments(lib, fx):
    cases = [
        (lambda x: x["a"] + sum(x["z"]), {"a": fx.PH, "z": (fx.PH, fx.PH)}, {"a": 1, "z": (2, 3)}),
        (lambda x: x.x + x.y, Point(fx.PH, fx.PH), Point(1, 2)),
        (lambda x: {k: [i + 1 for i in v] for k, v in x.items()}, {"a": (fx.PH,), "b": []}, {"a": (1,), "b": []}),
    ]
    found = []
    for function, shape, value in cases:
        traced = fx.symbolic_trace(function, concrete_args={"x": shape})
        again = fx.symbolic_trace(traced)
        third = fx.symbolic_trace(again, concrete_args={"x": shape})
        found.append((traced(value), again(value), third(value), "tree_flatten_spec" in again.code, nodes(third.graph)))
        found.append([line.strip() for line in traced.code.splitlines() if line.strip()])
    return found


@both
def test_concrete_values(lib, fx):
    def program(x, y, z=None):
        return 2 * x if y else x if z is None else z

    true = fx.symbolic_trace(program, concrete_args={"y": True, "z": None})
    false = fx.symbolic_trace(program, concrete_args={"y": False})
    with pytest.raises(AssertionError):
        true(3, False)
    with pytest.raises(AssertionError):
        true(3, True, 1)
    with pytest.warns(UserWarning):
        called = fx.symbolic_trace(lambda a, f: f(a), concrete_args={"f": lambda v: v * 3})
    return true(3, True), false(3, False, 5), called(2, None), [n.op for n in true.graph.nodes]


@both
def test_attributes_of_placeholders(lib, fx):
    shape = fx._symbolic_trace.PHWithMeta(ph_key="key")
    traced = fx.symbolic_trace(lambda x: x["a"], concrete_args={"x": {"a": shape}})
    return [getattr(n, "ph_key", None) for n in traced.graph.nodes], repr(fx.PH)


@both
def test_interpreters(lib, fx):
    model = net(lib)
    traced, x = fx.symbolic_trace(model), lib.ones(2, 4)
    interpreter = fx.Interpreter(traced)
    result = interpreter.run(x, 2.0)
    left = sorted(n.name for n in interpreter.env)
    env = {n: lib.zeros(2, 3) for n in traced.graph.nodes if n.target == "lin"}
    partial = fx.Interpreter(traced, garbage_collect_values=False)
    other = partial.run(x, 2.0, initial_env=env)
    given = [x, 2.0, None]
    return result, left, other, len(partial.env), fx.Interpreter(traced).boxed_run(given), given


@both
def test_interpreters_tell_the_node(lib, fx):
    traced = fx.symbolic_trace(lambda x: lib.relu(x).view(7))
    with pytest.raises(RuntimeError, match="While executing %view"):
        fx.Interpreter(traced).run(lib.ones(2))
    return error(RuntimeError, lambda: fx.Interpreter(traced).run())


@both
def test_transformers(lib, fx):
    class Swap(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return lib.neg(*args, **kwargs) if target is lib.sigmoid else super().call_function(target, args, kwargs)

        def call_method(self, target, args, kwargs):
            return args[0].sigmoid() if target == "neg" else super().call_method(target, args, kwargs)

    traced = fx.symbolic_trace(lambda x, y=2: (lib.sigmoid(x).neg(), y))
    made = Swap(traced).transform()
    same = fx.Transformer(fx.symbolic_trace(net(lib))).transform()
    return made.code, made(lib.ones(1)), nodes(same.graph)


@both
def test_errors_name_the_line(lib, fx, capsys=None):
    import contextlib
    import io

    class Dot(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = lib.nn.Parameter(lib.ones(5))

        def forward(self, x):
            return (x + 1).undefined()

    traced = fx.symbolic_trace(Dot())
    told = io.StringIO()
    with contextlib.redirect_stderr(told), pytest.raises(AttributeError):
        traced(lib.ones(2))
    text = told.getvalue()
    return (
        "Call using an FX-traced Module, line 6 of the traced Module's generated forward function:" in text,
        "HERE" in text,
    )


@both
def test_control_flow_is_refused(lib, fx):
    found = []
    for function in (
        lambda x: x if x > 0 else -x,
        lambda x: [*x],
        lambda x: leaf(**x),
        lambda x: len(x),
        lambda x: 3 in x,
    ):
        found.append(error((ValueError, RuntimeError, TypeError), lambda f=function: fx.symbolic_trace(f)))
    return found


@both
def test_unpacking(lib, fx):
    def program(x):
        a, (b, c) = x
        return a + b + c

    return fx.symbolic_trace(program)((1, (2, 3))), nodes(fx.symbolic_trace(program).graph)


@both
def test_custom_tracers(lib, fx):
    class Whole(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return True

        def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
            node = super().create_node(kind, target, args, kwargs, name, type_expr)
            node.tag = kind
            return node

        def iter(self, obj):
            return iter([obj[0], obj[1]])

        def to_bool(self, obj):
            return True

        def keys(self, obj):
            return ["b", "a"]

    class Program(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net(lib)

        def forward(self, x):
            return [self.inner(y) for y in x] if x else x, leaf(**x)

    tracer = Whole()
    graph = tracer.trace(Program())
    return nodes(graph), [n.tag for n in graph.nodes], {k: v[0] for k, v in tracer.node_name_to_scope.items()}


@both
def test_stacks_of_modules(lib, fx):
    class Nothing(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return False

    graph = Nothing().trace(lib.nn.Sequential(lib.nn.ReLU(), lib.nn.Sequential(lib.nn.Tanh())))
    return [[*n.meta.get("nn_module_stack", {})] for n in graph.nodes], [n.name for n in graph.nodes]


@both
def test_shapes_of_parameters_as_numbers(lib, fx):
    class Sized(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = lib.nn.Parameter(lib.ones(3, 2))

        def forward(self, x):
            return x + 1 if self.w.shape[0] > 2 and self.w.dim() == 2 and self.w.numel() == 6 else x

    graph = fx.Tracer(param_shapes_constant=True).trace(Sized())
    refused = error(ValueError, lambda: fx.symbolic_trace(Sized()))
    return [n.name for n in graph.nodes], refused


@both
def test_arguments_of_own_classes(lib, fx):
    class Own:
        def __init__(self, x):
            self.x = x

        def __fx_create_arg__(self, tracer):
            return tracer.create_node("call_function", Own, (tracer.create_arg(self.x),), {})

    class Takes(lib.nn.ReLU):
        def forward(self, o):
            return o.x

    class Root(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.takes = Takes()

        def forward(self, x):
            return self.takes(Own(x))

    class Whole(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return True

    graph = Whole().trace(Root())
    refused = [error((NotImplementedError, RuntimeError, NameError), call) for call in (
        lambda: fx.symbolic_trace(lambda x: x + object()),
        lambda: fx.symbolic_trace(lambda x: x + {x: 1}),
        lambda: fx.symbolic_trace(lambda x: x + lib.nn.Parameter(lib.ones(1))),
    )]  # fmt: skip
    return [n.name for n in graph.nodes], refused


@both
def test_classes_that_can_be_proxied(lib, fx):
    class Both(metaclass=fx.ProxyableClassMeta):
        def __init__(self, left, right):
            self.left, self.right = left, right

        def add(self, other):
            return Both(self.left + other.left, self.right + other.right)

    def program(x, y):
        return x.add(Both(y, y)).add(Both(1, 2))

    traced = fx.symbolic_trace(program)
    out = traced(Both(1, 2), 3)
    return [n.op for n in traced.graph.nodes], out.left, out.right


@both
def test_constants_are_kept_once(lib, fx):
    value = lib.tensor(5)
    traced = fx.symbolic_trace(lambda x: x + value + value + lib.ones(1))
    return nodes(traced.graph), [n for n, _ in traced.named_buffers()], traced(lib.ones(1))


@both
def test_annotated_values(lib, fx):
    def program(x):
        return annotate(lib.relu(x), int) + 1

    annotate = importlib.import_module(f"{lib.__name__}.fx.annotate").annotate
    twice = error(RuntimeError, lambda: fx.symbolic_trace(lambda x: annotate(annotate(x + 1, int), int)))
    return fx.symbolic_trace(program).code, annotate(3, int), twice


@both
def test_immutable_collections(lib, fx):
    kinds = fx.immutable_collections
    items, table = kinds.immutable_list([1, 2]), kinds.immutable_dict({"a": 1})
    refused = [refuses(call) for call in (
        lambda: items.append(1), lambda: items.__setitem__(0, 1), lambda: table.update(b=1), lambda: table.pop("a"),
        lambda: items.sort(), lambda: table.__setitem__("a", 2),
    )]  # fmt: skip
    graph = fx.symbolic_trace(lambda x: lib.cat([x, x], dim=0)).graph
    cat = [*graph.nodes][1]
    return (
        refused,
        hash(items) == hash(kinds.immutable_list([1, 2])),
        copy.deepcopy(table),
        pickle.loads(pickle.dumps(items)),
        type(cat.args[0]),
        type(cat.kwargs),
    )


@both
def test_kept_metadata(lib, fx):
    traceback = importlib.import_module(f"{lib.__name__}.fx.traceback")

    class Twice(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(target, args, kwargs) * 2

    traced = fx.symbolic_trace(lambda x: lib.relu(x))
    [*traced.graph.nodes][1].meta.update(stack_trace="here", own=1)
    made = Twice(traced).transform()
    with traceback.preserve_node_meta():
        inside = traceback.has_preserved_node_meta()
    return (
        [(n.name, n.meta.get("stack_trace"), n.meta.get("own")) for n in made.graph.nodes],
        inside,
        traceback.has_preserved_node_meta(),
    )


@both
def test_hooks_for_changes(lib, fx):
    traced, heard = fx.symbolic_trace(lambda x: lib.relu(x)), []
    traced._register_create_node_hook(lambda node: heard.append(("made", node.name)))
    traced._register_erase_node_hook(lambda node: heard.append(("gone", node.name)))
    relu = [*traced.graph.nodes][1]
    with (
        traced._set_replace_hook(lambda old, new, user: heard.append((old.name, new, user.name if user else None))),
        traced.graph.inserting_after(relu),
    ):
        new = traced.graph.call_function(lib.neg, (relu.args[0],))
        relu.replace_all_uses_with(new)
    traced.graph.erase_node(relu)
    return heard


@both
def test_scripted_looks(lib, fx):
    traced = fx.symbolic_trace(lib.nn.Sequential(lib.nn.Linear(2, 2)))
    text = traced.print_readable(print_output=False)
    return str(traced), [line.rstrip() for line in text.rstrip().splitlines()]
