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
    with pytest.raises(RuntimeError, match="but it still had"):
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
    with pytest.raises(RuntimeError, match="Expected positional argument"):
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
    with pytest.raises((fx.TraceError, NameError, RuntimeError)):
        fx.symbolic_trace(function)


def test_concrete_arguments_are_not_traced():
    traced = fx.symbolic_trace(lambda a, double: a * 2 if double else a, {"double": True})
    assert traced(ts.ones(1), True).item() == 2
    with pytest.raises(AssertionError, match="specialized"):
        traced(ts.ones(1), False)


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


def test_shapes_are_noted_at_each_node(x):
    from tesserack.fx.passes.shape_prop import ShapeProp, TensorMetadata

    traced = fx.symbolic_trace(Net())
    assert same(ShapeProp(traced).propagate(x), traced(x))
    metas = {node.name: node.meta for node in traced.graph.nodes}
    assert metas["conv"]["tensor_meta"][:4] == (ts.Size([2, 4, 3, 3]), ts.float32, True, (36, 9, 3, 1))
    assert metas["conv"]["tensor_meta"].memory_format is ts.contiguous_format and metas["conv"]["type"] is ts.Tensor
    assert [type(m) for m in metas["chunk"]["tensor_meta"]] == [TensorMetadata] * 2


def test_patterns_are_replaced_wherever_they_are():
    def program(x, y):
        a = ts.relu(x + y) * 2
        return ts.relu(a + x) + ts.relu(y), ts.relu(a * x)

    traced = fx.symbolic_trace(program)
    matches = fx.replace_pattern(traced, lambda a, b: ts.relu(a + b), lambda a, b: ts.sigmoid(a * b).neg())
    x, y = ts.randn(3), ts.randn(3)
    a = -ts.sigmoid(x * y) * 2
    assert [len(match.nodes_map) for match in matches] == [4, 4] and matches[0].anchor.target is ts.relu
    assert all(
        ts.allclose(p, q) for p, q in zip(traced(x, y), (-ts.sigmoid(a * x) + ts.relu(y), ts.relu(a * x)), strict=True)
    )


def test_a_pattern_of_two_results_and_one_whose_inside_is_read():
    traced = fx.symbolic_trace(lambda x: ts.cat([x.sin(), x.cos()]))
    assert len(fx.replace_pattern(traced, lambda x: (x.sin(), x.cos()), lambda x: (x.cos(), x.sin()))) == 1
    x = ts.randn(3)
    assert ts.equal(traced(x), ts.cat([x.cos(), x.sin()]))

    def shared(x):
        y = x + 1
        return ts.relu(y) * y

    traced = fx.symbolic_trace(shared)
    assert fx.replace_pattern(traced, lambda x: ts.relu(x + 1), lambda x: x) == []
    assert ts.equal(traced(x), shared(x))
    with pytest.raises(AssertionError, match="Placeholder count mismatch"):
        fx.replace_pattern(traced, lambda x: ts.relu(x), lambda x, y: x)


def test_replacements_bring_their_modules():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Linear(3, 3)

        def forward(self, x):
            return self.gain(x)

    part = fx.symbolic_trace(Scaled())
    traced = fx.symbolic_trace(lambda x: ts.relu(x) + 1)
    fx.replace_pattern(traced, lambda x: ts.relu(x), part)
    x = ts.randn(2, 3)
    assert ts.equal(traced(x), part(x) + 1) and [n for n, _ in traced.named_parameters()] == [
        "gain.weight",
        "gain.bias",
    ]


def test_norms_fold_into_what_comes_before_them(x):
    from tesserack.fx.experimental.optimization import fuse, remove_dropout

    net = nn.Sequential(
        nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.Dropout(), nn.Flatten(), nn.Linear(48, 2), nn.BatchNorm1d(2)
    )
    for _ in range(2):
        net(x)
    net.eval()
    folded = fuse(net)
    assert ts.allclose(folded(x), net(x), atol=1e-5) and len([*net.modules()]) == 7
    assert [type(m).__name__ for m in folded.children()] == ["Conv2d", "Dropout", "Flatten", "Linear"]
    assert "Dropout" not in [type(m).__name__ for m in remove_dropout(net).children()]


def test_the_source_says_what_is_returned():
    def typed(x):
        return ts.relu(x)

    typed.__annotations__ = {"x": ts.Tensor, "return": ts.Tensor}
    assert "(self, x : tesserack.Tensor) -> tesserack.Tensor:" in fx.symbolic_trace(typed).code


def test_what_is_computed_from_parameters_is_traced():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(ts.ones(3, 2))

        def forward(self, x):
            return x @ (self.weight.t() * 2) + self.weight.sum()

    traced = fx.symbolic_trace(net := Net())
    assert [node.target for node in traced.graph.nodes if node.op == "get_attr"] == ["weight"]
    traced(ts.ones(1, 2)).sum().backward()
    assert net.weight.grad.tolist() == [[5.0, 5.0]] * 3
    assert "__getattribute__" not in vars(nn.Module)


def test_tracers_know_shapes_of_parameters_and_read_buffers():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(ts.ones(3, 2))
            self.register_buffer("scale", ts.full((1,), 2.0))

        def forward(self, x):
            if self.weight.shape[0] > 2:  # a number, and no traced value
                x = x @ self.weight.t()
            return x * self.scale

    class Reading(fx.Tracer):
        proxy_buffer_attributes = True

    graph = Reading(param_shapes_constant=True).trace(Net())
    assert {node.target for node in graph.nodes if node.op == "get_attr"} == {"weight", "scale"}
    assert fx.GraphModule(Net(), graph)(ts.ones(1, 2)).tolist() == [[4.0, 4.0, 4.0]]
    with pytest.raises(fx.TraceError):
        fx.Tracer().trace(Net())


def test_calls_with_effects_stay():
    calls = []

    @fx.has_side_effect
    def note(x):
        calls.append(1)
        return x

    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(note, (x,))
    graph.call_function(ts.relu, (x,))
    graph.output(x)
    assert graph.eliminate_dead_code() and [n.target for n in graph.nodes if n.op == "call_function"] == [note]
    fx.GraphModule(nn.Module(), graph)(ts.ones(1))
    assert calls == [1]


def test_gradients_within_a_traced_forward() -> None:
    class Energy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(4, 1)

        def forward(self, x: ts.Tensor) -> ts.Tensor:
            x = x.requires_grad_()
            (slope,) = ts.autograd.grad([self.lin(x).sin().sum()], [x], create_graph=True)
            return -ts.autograd.grad(self.lin(x).square().sum(), x, create_graph=True)[0] + slope

    energy, x = Energy(), ts.randn(3, 4)
    traced = fx.symbolic_trace(energy)
    assert [n.target for n in traced.graph.nodes].count(ts.autograd.grad) == 2
    assert ts.equal(traced(x.clone()), energy(x.clone()))
