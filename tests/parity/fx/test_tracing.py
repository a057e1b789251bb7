"""Tracing, interpreting and what goes on around graphs: each body on both libraries, which must give the same."""

from __future__ import annotations

import collections
import copy
import enum
import importlib
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
