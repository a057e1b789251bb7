"""Tracing modules into graphs, changing the graphs, and running them."""

from __future__ import annotations

import copy
import operator
import pickle

import pytest
import tesserack as ts
import tesserack.nn.functional as F
from tesserack import fx, nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.seq = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.scale = nn.Parameter(ts.full((4,), 2.0))
        self.register_buffer("shift", ts.ones(4))

    def forward(self, x, factor=3.0, *, flag=None):
        y = F.relu(self.conv(x)).mean((2, 3))
        a, b = self.seq(y).chunk(2, dim=1)
        z = ts.cat([b, a], dim=1) * self.scale + self.shift
        return {"z": z, "rest": (-y[:, 0], y.shape[1] * factor)}


@pytest.fixture
def x():
    return ts.randn(2, 1, 5, 5)


def same(a, b):
    return ts.equal(a["z"], b["z"]) and ts.equal(a["rest"][0], b["rest"][0]) and a["rest"][1] == b["rest"][1]


def test_traced_modules_compute_the_same(x):
    net = Net()
    traced = fx.symbolic_trace(net)
    traced.graph.lint()
    assert same(net(x), traced(x)) and same(net(x, 5.0), traced(x, factor=5.0))
    assert [n for n, _ in traced.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert [n.op for n in traced.graph.nodes if n.op.endswith("module")] == ["call_module"] * 3  # Sequential is opened
    assert "self.conv(x)" in traced.code and type(traced).__name__ == "Net"
    assert traced.graph.output_node().op == "output" and traced.scale is net.scale
    traced(x)["z"].sum().backward()
    assert net.conv.weight.grad is not None


def test_copies_and_pickles_run_on_their_own(x):
    traced = fx.symbolic_trace(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()))
    twin = copy.deepcopy(traced)
    assert ts.equal(twin(x), traced(x))
    with ts.no_grad():
        next(twin.parameters()).add_(1)
    assert not ts.equal(twin(x), traced(x))
    plain = fx.symbolic_trace(nn.Sequential(nn.ReLU(), nn.Flatten()))
    assert ts.equal(pickle.loads(pickle.dumps(plain))(x), plain(x))


def test_graphs_can_be_changed(x):
    traced = fx.symbolic_trace(Net())
    for node in traced.graph.nodes:
        if node.target is F.relu:
            with traced.graph.inserting_after(node):
                new = traced.graph.call_function(ts.sigmoid, node.args)
            node.replace_all_uses_with(new)
            traced.graph.erase_node(node)
    with pytest.raises(RuntimeError, match="still read"):
        traced.graph.erase_node(next(iter(traced.graph.nodes)))
    traced.recompile()
    assert "sigmoid" in traced.code and "relu" not in traced.code
    y = ts.sigmoid(traced.conv(x)).mean((2, 3))
    assert ts.equal(traced(x)["rest"][0], -y[:, 0])


def test_features_come_out_of_the_middle(x):
    traced = fx.symbolic_trace(Net())
    for node in reversed(traced.graph.nodes):
        if node.op == "output":
            traced.graph.erase_node(node)
    mean = next(n for n in traced.graph.nodes if n.target == "mean")
    traced.graph.output(mean)
    assert traced.graph.eliminate_dead_code()
    traced.recompile()
    traced.delete_all_unused_submodules()
    assert traced(x).shape == (2, 4) and [n for n, _ in traced.named_children()] == ["conv"]


def test_interpreters_see_every_node(x):
    net, seen = Net(), []

    class Watch(fx.Interpreter):
        def run_node(self, n):
            seen.append(n.op)
            return super().run_node(n)

    traced = fx.symbolic_trace(net)
    assert same(Watch(traced).run(x, 3.0), net(x)) and seen.count("call_module") == 3
    with pytest.raises(RuntimeError, match="expected an argument"):
        fx.Interpreter(fx.symbolic_trace(lambda a: a + 1)).run()


def test_transformers_write_another_graph():
    class Negate(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(operator.sub if target is operator.add else target, args, kwargs)

    traced = fx.symbolic_trace(lambda a, b: ts.relu(a) + b)
    made = Negate(traced).transform()
    assert made(ts.tensor([2.0]), ts.tensor([5.0])).item() == -3


def test_custom_tracers_and_proxies():
    class Whole(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return True

    net = nn.Sequential(nn.Sequential(nn.ReLU()), nn.ReLU())
    graph = Whole().trace(net)
    assert [n.target for n in graph.nodes if n.op == "call_module"] == ["0", "1"]

    def program(a, b):
        return operator.getitem(a @ b, 0), 2 - a, a.T.contiguous(), F.cross_entropy(a, b), ts.stack([a, b]).sum(dim=0)

    nodes = [*fx.symbolic_trace(program).graph.nodes]
    assert F.cross_entropy in [n.target for n in nodes] and ts.stack in [n.target for n in nodes]
    assert "contiguous" in [n.target for n in nodes] and getattr in [n.target for n in nodes]


@pytest.mark.parametrize(
    "function",
    [lambda a: a if a.sum() > 0 else -a, lambda a: [*a], lambda a: len(a), lambda a: nn.ReLU()(a)],
)
def test_what_depends_on_values_cannot_be_traced(function):
    with pytest.raises((fx.TraceError, NameError)):
        fx.symbolic_trace(function)


def test_concrete_arguments_are_not_traced():
    traced = fx.symbolic_trace(lambda a, double: a * 2 if double else a, {"double": True})
    assert traced(ts.ones(1)).item() == 2


def test_tables_and_texts(capsys):
    graph = fx.symbolic_trace(lambda a: a + 1).graph
    graph.print_tabular()
    printed = capsys.readouterr().out
    assert "placeholder" in printed and "call_function" in printed and "return" in str(graph)


def test_code_reads_as_python():
    def program(x, y=2.0):
        gate = F.relu(x @ x)[0, 1:]
        return -gate + y, ts.cat([gate, x.T[1]], 0), x.clamp(max=float("inf")), F.max_pool2d(x[None], 1)

    traced = fx.symbolic_trace(program)
    lines = [line.strip() for line in traced.code.strip().splitlines()]
    assert lines[0] == "def forward(self, x, y = 2.0):"
    assert (
        "matmul = x @ x" in lines
        and "relu = tesserack.nn.functional.relu(matmul, inplace = False);  matmul = None" in lines
    )
    assert "getitem = relu[(0, slice(1, None, None))];  relu = None" in lines
    assert "add = neg + y;  neg = y = None" in lines and "getattr_1 = x.T" in lines
    assert "clamp = x.clamp(max = inf)" in lines
    pool = next(node for node in traced.graph.nodes if node.name == "max_pool2d")
    assert pool.kwargs["stride"] is None and pool.args[1] == 1
    x = ts.arange(4.0).reshape(2, 2)
    assert all(ts.equal(a, b) for a, b in zip(traced(x), program(x), strict=True))
    assert str(traced.graph).startswith("graph():\n    %x : [num_users=") and "(args = (%x, %x), kwargs = {})" in str(
        traced.graph
    )
