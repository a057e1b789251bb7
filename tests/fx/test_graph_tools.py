"""What graphs offer beyond what PyTorch's do, and tools that are compared with nothing: folders, hooks, annotations."""

from __future__ import annotations

import copy
import gc
import importlib
import linecache
import operator
import pickle
import sys
import weakref

import pytest
import tesserack as ts
from tesserack import fx, nn
from tesserack.fx import traceback
from tesserack.fx._lazy_graph_module import (
    _force_skip_lazy_graph_module,
    _LazyGraphModule,
    _use_lazy_graph_module,
)
from tesserack.fx._pytree import tree_flatten_spec
from tesserack.fx.experimental.proxy_tensor import get_isolated_graphmodule, make_fx
from tesserack.fx.experimental.rewriter import RewritingTracer
from tesserack.fx.passes.fake_tensor_prop import FakeTensorProp
from tesserack.fx.passes.graph_transform_observer import GraphTransformObserver
from tesserack.fx.passes.utils.matcher_with_name_node_map_utils import SubgraphMatcherWithNameNodeMap

X = ts.tensor([[1.0, -2.0], [3.0, 4.0]])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.act = nn.Linear(2, 2), nn.Tanh()
        self.register_buffer("shift", ts.ones(2))
        self.scale = nn.Parameter(ts.full((2,), 3.0))

    def forward(self, x):
        return self.act(self.linear(x)) * self.scale + self.shift


def test_a_module_in_a_folder(tmp_path, monkeypatch):
    traced = fx.symbolic_trace(Net())
    with pytest.warns(UserWarning, match="pickled files instead: \\['act'\\]"):
        traced.to_folder(tmp_path / "saved_net", "Saved")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("saved_net")
    try:
        assert ts.equal(module.Saved()(X), traced(X))
    finally:
        sys.modules.pop("saved_net"), sys.modules.pop("saved_net.module")


def test_asserts_may_be_traced():
    class Asserts(fx.Tracer):
        trace_asserts = True

    scope = {}
    exec("def program(x):\n    assert x.shape[0] > 1, 'small'\n    return x", scope)  # not as pytest writes it
    tracer = Asserts()
    graph = tracer.trace(scope["program"])
    traced = fx.GraphModule(tracer.root, graph)
    assert ts.equal(traced(X), X)
    with pytest.raises(AssertionError):
        traced(X[:1])


def test_annotations_and_lines_of_nodes():
    class Lines(fx.Tracer):
        record_stack_traces = True

    def program(x):
        with traceback.annotate({"stage": 1}), traceback.annotate({"part": "a"}):
            x = x + 1
        return annotated(x) - 1

    @traceback.annotate_fn({"stage": 2})
    def annotated(x):
        return x * 2

    graph = Lines().trace(program)
    notes = [node.meta.get("custom") for node in graph.nodes if node.op == "call_function"]
    assert notes == [{"stage": 1, "part": "a"}, {"stage": 2}, None]
    add = next(n for n in graph.nodes if n.name == "add")
    assert "test_graph_tools.py" in add.stack_trace and "x = x + 1" in add.stack_trace
    gm = fx.GraphModule(nn.Module(), graph)
    text = gm.print_readable(print_output=False)
    assert "code: x = x + 1" in text and "Annotation: {'stage': 2}" in text


def test_observed_passes(tmp_path):
    traced = fx.symbolic_trace(lambda x: ts.relu(x))
    relu = [*traced.graph.nodes][1]
    with GraphTransformObserver(traced, "swap", log_url=str(tmp_path)) as seen:
        with traced.graph.inserting_after(relu):
            relu.replace_all_uses_with(traced.graph.call_function(ts.neg, relu.args))
        traced.graph.erase_node(relu)
    assert seen.created_nodes == {"neg"} and seen.erased_nodes == {"relu"}
    count = GraphTransformObserver.get_current_pass_count()
    assert '"neg" [style=filled, fillcolor=yellow]' in (tmp_path / f"pass_{count}_swap_output_graph.dot").read_text()
    (source,) = next(node for node in traced.graph.nodes if node.name == "neg").meta["from_node"]
    assert (source.name, source.pass_name) == ("relu", "swap")
    assert source.print_readable().startswith("(name=relu, pass_name=swap, action=replace+create, graph_id=")


def test_modules_written_on_first_need():
    x = ts.ones(2)
    with _use_lazy_graph_module(True):
        made = [fx.symbolic_trace(lambda x: x.sin()) for _ in range(7)]
        again = make_fx(made[0])(x)
    assert all(isinstance(each, _LazyGraphModule) for each in [*made, again]) and not made[0]._needs_recompile()
    for each in [*made[1:], again]:
        assert each._needs_recompile()
    saved = made[1].forward
    uses = (saved, made[2], lambda x: fx.symbolic_trace(made[3])(x), copy.deepcopy(made[4]))
    assert all(ts.equal(use(x), x.sin()) for use in (*uses, pickle.loads(pickle.dumps(again)), saved))
    assert not any(each._needs_recompile() for each in made[1:4])
    assert "sin" in str(made[5]) and "sin" in made[6].print_readable(print_output=False)
    next(node for node in made[2].graph.nodes if node.op == "call_method").target = "cos"
    assert ts.equal(made[2](x), x.sin())
    made[2].recompile()
    assert made[2]._needs_recompile() and ts.equal(made[2](x), x.cos())
    with _force_skip_lazy_graph_module(), _use_lazy_graph_module(True):
        assert not isinstance(fx.symbolic_trace(made[2]), _LazyGraphModule)


def test_patterns_with_named_nodes():
    pattern = fx.symbolic_trace(lambda x: (ts.relu(x + 1), 0))
    output = pattern.graph.output_node()
    add, relu = (next(n for n in pattern.graph.nodes if n.name == name) for name in ("add", "relu"))
    output.args = ((relu, {"sum": add}),)
    found = SubgraphMatcherWithNameNodeMap(pattern).match(fx.symbolic_trace(lambda y: ts.relu(y + 1) * 2).graph)
    assert [m.name_node_map["sum"].name for m in found] == ["add"]


def test_fake_values_of_nodes():
    traced = fx.symbolic_trace(Net())
    FakeTensorProp(traced).propagate(X)
    assert all(tuple(n.meta["val"].shape) in ((2, 2), (2,)) for n in traced.graph.nodes if n.op != "output")


def test_isolated_graphs_and_decompositions():
    inner = []

    def program(x):
        inner.append(get_isolated_graphmodule(lambda y: y * 2, (x,), {}))
        return x + 1

    outer = make_fx(program)(X)
    assert [n.name for n in outer.graph.nodes if n.op == "call_function"] == ["add"]
    assert ts.equal(inner[0](X), X * 2)


def test_functions_written_in_python_are_steps():
    traced = fx.symbolic_trace(lambda x: ts.einsum("ij->ji", x) + ts.nn.functional.relu(x))
    names = [n.name for n in traced.graph.nodes if n.op == "call_function"]
    assert names == ["einsum", "relu", "add"] and ts.equal(traced(X), X.T + X.relu())


def test_values_that_no_text_spells_run():
    table = {"k": X}
    graph = fx.Graph()
    x = graph.placeholder("x")
    odd = graph.call_function(lambda a, t, key: a + t[key], (x, table, "k"))
    graph.output(graph.call_function(operator.add, (odd, X)))
    assert ts.equal(fx.GraphModule(nn.Module(), graph)(X), 3 * X)


def test_programs_are_let_go_with_their_modules():
    traced = fx.symbolic_trace(lambda x: x + 1)
    file, gone = type(traced)._file, weakref.ref(type(traced).forward)
    assert linecache.getlines(file)
    for _ in range(3):
        traced.recompile()
    assert gone() is None and not linecache.getlines(file)
    last = type(traced)._file
    del traced
    gc.collect()
    assert not linecache.getlines(last)


def test_nothing_stays_patched_after_an_error():
    before = (nn.Module.__call__, ts.nn.functional.relu, vars(nn.Module).get("__getattribute__"))

    def failing(x):
        ts.nn.functional.relu(x)
        raise ValueError("odd")

    with pytest.raises(ValueError, match="odd"):
        fx.symbolic_trace(failing)
    assert (nn.Module.__call__, ts.nn.functional.relu, vars(nn.Module).get("__getattribute__")) == before
    assert not fx.is_fx_tracing()


def test_methods_and_callable_objects_are_traced():
    class Scale:
        factor = 3

        def times(self, x, n=1):
            return x * self.factor * n

        def __call__(self, x):
            return self.times(x)

    assert ts.equal(fx.symbolic_trace(Scale().times)(X), X * 3)
    assert ts.equal(fx.symbolic_trace(Scale())(X), X * 3)
    with pytest.raises(AssertionError, match="written in Python"):
        fx.symbolic_trace(len)


def test_adaptive_pools_are_traced_as_their_steps():
    class Every(fx.Tracer):
        def is_leaf_module(self, m, name):
            return False

    x = ts.rand(2, 2, 6, 6)
    for layer in (ts.nn.AdaptiveAvgPool2d(2), ts.nn.AdaptiveAvgPool2d((None, 2)), ts.nn.AdaptiveMaxPool2d((2, 3))):
        graph = fx.GraphModule(layer, Every().trace(layer))
        assert graph(x).tolist() == layer(x).tolist()
    with pytest.raises(ValueError, match="expected 2 output sizes"):
        ts.nn.AdaptiveAvgPool2d((2, 2, 2))(x)


def test_rewritten_functions_hold_texts_of_several_lines():
    def program(a, b):
        text = """
too
  far left
"""
        assert a == b, text
        return a + b

    tracer = RewritingTracer()
    made = tracer.trace(program)
    graph = fx.GraphModule(tracer.root, made)
    assert graph(3, 3) == 6
    with pytest.raises(AssertionError, match="far left"):
        graph(3, 4)


def test_graphs_say_what_the_program_says_it_returns():
    def program(x) -> ts.Tensor:
        return x + 1

    def nested(x) -> ts.Tensor:
        return x["a"] + 1

    program.__annotations__["return"] = nested.__annotations__["return"] = ts.Tensor
    graph = make_fx(program)(ts.zeros(2))
    assert [*graph.graph.nodes][-1].type is ts.Tensor and ") -> " in graph.code
    assert graph(ts.ones(2)).tolist() == [2, 2]
    assert "->" not in make_fx(nested)({"a": ts.zeros(2)}).code
    assert "->" not in make_fx(lambda x: x + 1)(ts.zeros(2)).code


def test_operators_pickle_by_name():
    """What a call has made of them is not taken along, and could not be found again."""
    aten = ts.fx.experimental._proxy_tracer._ATEN
    make_fx(lambda x: ts.sin(x, out=ts.empty(2)))(ts.ones(2))
    for one in (aten.sin, aten.sin.default, aten.sin.out, aten.add.Tensor):
        assert pickle.loads(pickle.dumps(one)) is one


def test_results_of_several_are_taken_apart_by_place():
    """As graphs take those they are given again as arguments."""
    for value in (ts.max(ts.ones(2, 2), 0), ts.linalg.qr(ts.ones(2, 2))):
        leaves, spec = ts.utils._pytree.tree_flatten(value)
        assert [id(leaf) for leaf in tree_flatten_spec(value, spec)] == [id(leaf) for leaf in leaves]


def test_subclasses_say_how_copies_are_made():
    class Two(fx.GraphModule):
        def __init__(self, root, graph, other):
            super().__init__(root, graph)
            self.other = other

        def _deepcopy_init(self):
            return lambda made, body, graph: Two.__init__(made, body, graph, body.other)

    net = ts.nn.Sequential(ts.nn.Linear(2, 2))
    graph = fx.symbolic_trace(net).graph
    two = Two(net, graph, copy.deepcopy(graph))
    two.meta["kept"] = 1
    again = copy.deepcopy([two, two])
    assert again[0] is again[1] is not two and again[0].meta == {"kept": 1} and type(again[0]).__name__ == "GraphModule"
    assert again[0].other is not two.other and len(again[0].other.nodes) == len(graph.nodes)
    x = ts.ones(1, 2)
    assert again[0](x).equal(two(x)) and again[0].get_submodule("0").weight is not two.get_submodule("0").weight


def test_a_module_that_its_own_meta_holds_is_copied_once():
    traced = fx.symbolic_trace(nn.ReLU())
    traced.meta["itself"] = traced
    made = copy.deepcopy(traced)
    assert made.meta["itself"] is made and made is not traced
    assert made(ts.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]


class Told(fx.PHBase):
    kind = "of a class"

    def __init__(self, tag):
        self.tag, self.name = tag, "another"


def test_what_a_placeholder_tells_leaves_what_its_node_has():
    class Tagging(fx.Tracer):
        def create_node(self, *args, **kwargs):
            node = super().create_node(*args, **kwargs)
            node.tag = "of the tracer"
            return node

    def adds(a, b):
        return a + b

    for tracer, tag in ((fx.Tracer(), "x"), (Tagging(), "of the tracer")):
        graph = tracer.trace(adds, concrete_args={"a": Told("x"), "b": Told("x")})
        given = [node for node in graph.nodes if node.op == "placeholder"]
        assert [(node.name, node.tag, node.kind) for node in given] == [
            ("a_1", tag, "of a class"), ("b_1", tag, "of a class"),
        ]  # fmt: skip
