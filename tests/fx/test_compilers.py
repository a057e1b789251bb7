"""``compile``: what compilers are given, how they are named, chosen and refused, and those of both directions."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import tesserack as ts
import tesserack.nn.functional as F
from tesserack import compiler, nn
from tesserack.jit._compile.aot import aot_autograd, make_boxed_func
from tesserack.jit._compile.errors import BackendCompilerFailed, InvalidBackend, Unsupported

from tests.fx.compiled import Backend, X, prints, same


def test_errors_of_programs_and_compilers(backend):
    compiled = ts.compile(lambda x: x @ ts.ones(7, 1), backend=backend)
    with pytest.raises(RuntimeError):
        compiled(X)
    with pytest.raises(InvalidBackend, match="Invalid backend: 'nothing'"):
        ts.compile(lambda x: x, backend="nothing")

    def failing(gm, example_inputs):
        raise KeyError("odd")

    with pytest.raises(BackendCompilerFailed, match="backend='failing' raised:\nKeyError") as caught:
        ts.compile(lambda x: x + 1, backend=failing)(X)
    assert isinstance(caught.value.inner_exception, KeyError)
    with pytest.raises(BackendCompilerFailed, match="expected a function"):
        ts.compile(lambda x: x + 1, backend=lambda gm, inputs: 3)(X)
    with pytest.raises(Unsupported, match="print"):
        ts.compile(prints, backend="eager", fullgraph=True)(X)
    with pytest.raises(RuntimeError, match="mode or options"):
        ts.compile(prints, mode="max-autotune", options={})


def test_names_of_compilers(backend):
    compiler.register_backend(backend, "kept_for_a_test")
    assert "kept_for_a_test" in compiler.list_backends() and "eager" not in compiler.list_backends()
    assert {"eager", "aot_eager"} <= set(compiler.list_backends(exclude_tags=()))
    ts.compile(lambda x: x + 1, backend="kept_for_a_test")(X)
    assert len(backend.graphs) == 1
    with pytest.raises(AssertionError, match="duplicate"):
        compiler.register_backend(backend, "kept_for_a_test")


def test_options_and_modes_reach_the_compiler():
    seen = []

    def taking(gm, example_inputs, **options):
        seen.append(options)
        return gm

    ts.compile(lambda x: x + 1, backend=taking, mode="default")(X)
    ts.compile(lambda x: x + 1, backend=taking, options={"a": 1})(X)
    assert seen == [{"mode": "default"}, {"options": {"a": 1}}]


@pytest.mark.parametrize("given, message", [
    ({"mode": "foo"}, "Unrecognized mode=foo"),
    ({"options": {"nosuch": 1}}, "option nosuch"),
    ({"options": {"triton.cudagraph": True}}, "triton.cudagraphs"),
    ({"options": {"max_autotune": "yes"}}, "got str should be bool"),
])  # fmt: skip
def test_what_the_usual_compiler_does_not_take(given, message):
    layer = nn.Linear(2, 2)
    for make in (lambda: ts.compile(prints, **given), lambda: ts.compile(layer, **given),
                 lambda: layer.compile(**given), lambda: ts.compile(prints, disable=True, **given)):  # fmt: skip
        with pytest.raises(RuntimeError, match=message):
            make()


def test_options_of_pytorch_change_nothing():
    options = {"max-autotune": True, "triton.cudagraphs": False, "shape_padding": True, "cpp.simdlen": 8}
    assert same(ts.compile(lambda x: x + 1, options=options)(X), X + 1)
    assert same(ts.compile(lambda x: x + 1, mode="reduce-overhead")(X), X + 1)
    assert callable(ts.compile(lambda x: x + 1, mode="foo", backend="eager"))


@pytest.mark.parametrize("value", [3, "s", [1], X])
def test_what_cannot_be_called_is_not_compiled(value):
    for options in ({}, {"disable": True}):
        with pytest.raises(AssertionError, match="A callable function is expected"):
            ts.compile(value, **options)


def test_stances(backend):
    compiled = ts.compile(lambda x: x + 1, backend=backend)
    with compiler.set_stance("force_eager"):
        compiled(X)
    assert not backend.graphs
    compiled(X)
    with compiler.set_stance("eager_on_recompile"):
        compiled(X[:1])
    with compiler.set_stance("fail_on_recompile"):
        compiled(X)
        with pytest.raises(RuntimeError, match="recompile"):
            compiled(X[:1])
    assert len(backend.graphs) == 1
    other = Backend()
    with compiler.set_stance(force_backend=other):
        compiled(X[:1])
    assert len(other.graphs) == 1

    @compiler.set_stance("force_eager")
    def plain():
        return compiled(ts.ones(3))

    plain()
    assert len(backend.graphs) == 1
    with pytest.raises(RuntimeError, match="invalid"):
        compiler.set_stance("odd")


def test_disabled_functions_trusted_ones_and_forgetting(backend):
    inner = compiler.disable(lambda x: x * 2, reason="it is odd")
    compiled = ts.compile(lambda x: inner(x) + 1, backend=backend)
    assert same(compiled(X), X * 2 + 1) and "it is odd" in compiled._compiled.reasons[0]
    assert compiler.is_compiling() is False
    seen = []

    @compiler.allow_in_graph
    def trusted(x):
        seen.append(compiler.is_compiling())
        return x * 3

    compiled = ts.compile(lambda x: trusted(x), backend=backend)
    compiled(X), compiled(X)
    assert len(backend.graphs) == 1 and seen == [True]
    compiler.reset()
    compiled(X)
    assert len(backend.graphs) == 2


def test_modules_compiled_in_place(backend):
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    expected = net(X)
    net.compile(backend=backend)
    assert same(net(X), expected) and same(net(X), expected) and len(backend.graphs) == 1
    heard = []
    net.register_forward_hook(lambda m, i, o: heard.append(1))
    net(X), net(X)
    assert len(heard) == 2 and [*net.state_dict()] == ["0.weight", "0.bias"]
    for twin in (copy.deepcopy(net[0]), pickle.loads(pickle.dumps(net[0]))):
        assert same(twin(X), net[0](X))
    net[0].compile()
    assert same(net[0](X), F.linear(X, net[0].weight, net[0].bias))


def test_explained_calls():
    found = compiler.explain(lambda x: x.relu() + 1)(X)
    assert (found.graph_count, found.graph_break_count, found.op_count) == (1, 0, 2) and "aten.relu" in str(found)
    found = compiler.explain(prints)(X)
    assert found.graph_count == 0 and "print" in found.break_reasons[0].reason and "Break Reason 1" in str(found)


def test_compilers_of_both_directions():
    graphs = []

    def compiler(gm, example_inputs):
        graphs.append([node.op for node in gm.graph.nodes])
        return make_boxed_func(gm.forward)

    ts.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    twin = copy.deepcopy(net)
    compiled = ts.compile(net, backend=aot_autograd(fw_compiler=compiler))
    for _ in range(2):
        for model in (compiled, twin):
            model(X).square().sum().backward()
        for p, q in zip(net.parameters(), twin.parameters(), strict=True):
            assert ts.allclose(p.grad, q.grad)
    assert len(graphs) == 2 and graphs[0].count("placeholder") == 5 and "get_attr" not in graphs[0]
    with ts.no_grad():
        assert same(compiled(X), twin(X)) and len(graphs) == 3


AOT = {
    "layers": (lambda x: F.gelu(x @ x.T).softmax(-1).square().sum(), [(3, 4)]),
    "dropout": (lambda x: F.dropout(x, 0.5).sum(), [(3, 4)]),
    "two results": (lambda x, y: (x * y, (x.exp() + y).detach(), y.sum(0)), [(3, 4), (4,)]),
    "unused": (lambda x, y: x.sin() + ts.zeros_like(y), [(3, 4), (4,)]),
    "several parts": (lambda x: (x.max(0).values + x.std(0)).logsumexp(0), [(3, 4)]),
    "shared": (lambda x: x.relu() * x.relu() + x.reshape(-1)[:4], [(3, 4)]),
}


@pytest.mark.parametrize("name", AOT)
def test_backward_graphs_take_what_forward_graphs_save(name):
    function, shapes = AOT[name]
    calls, graphs = [], []

    def compiler(gm, example_inputs):
        gm.graph.lint()
        graphs.append(gm)
        return make_boxed_func(lambda *args: calls.append(gm) or gm(*args))

    compiled = ts.compile(function, backend=aot_autograd(fw_compiler=compiler))
    for k in range(3):
        found = []
        for run in (function, compiled):
            ts.manual_seed(k)
            args = [ts.randn(*shape, requires_grad=True) for shape in shapes]
            results = ts.utils._pytree.tree_leaves(run(*args))
            sum((r * r).sum() for r in results if r.requires_grad).backward()
            found.append([*results, *(ts.zeros(()) if x.grad is None else x.grad for x in args), ts.get_rng_state()])
        assert same(*found)
    assert len(graphs) == 2, compiled._compiled.reasons
    assert all(calls.count(gm) >= 2 for gm in graphs)
    first, second = (
        {str(node.target).split(".")[1] for node in gm.graph.nodes if "aten" in str(node.target)} for gm in graphs
    )
    once = {"_softmax", "gelu", "relu", "native_dropout", "logsumexp", "max", "exp", "sin"}
    assert first & once and not first & second & once, (first, second)


def test_gradients_of_gradients_through_a_compiler():
    compiled = ts.compile(lambda x: (x * x * x).sum(), backend=aot_autograd(fw_compiler=lambda gm, _: gm.forward))
    x = X.clone().requires_grad_()
    for _ in range(2):
        (first,) = ts.autograd.grad(compiled(x), x, create_graph=True)
        (second,) = ts.autograd.grad(first.sum(), x)
        assert same(second, 6 * X)


ARRAY = np.arange(4.0, dtype=np.float32)


def test_arrays_among_globals_are_plain_python():
    def function(x):
        return x * ts.as_tensor(ARRAY * 2) + x.sin()

    compiled = ts.compile(function)
    for _ in range(4):
        x = ts.randn(4)
        assert ts.equal(compiled(x), function(x))
    assert "class ndarray" in compiled._compiled.reasons[0]
