"""jit.trace and trace_module: what a traced program is, and what it does on inputs of its own."""

from __future__ import annotations

import copy
import io
import pickle
import random
import warnings
from typing import NamedTuple

import pytest
import tesserack as ts
from tesserack import jit, nn
from tesserack.nn import functional as F

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.drop, self.fc = nn.Dropout(0.5), nn.Linear(64, 5)

    def forward(self, x):
        y = F.adaptive_avg_pool2d(self.norm(self.conv(x)).relu(), 4)
        return self.fc(self.drop(y.view(y.size(0), -1)))


@pytest.fixture
def net(device):
    return Net().to(device)


def images(device, *shape):
    return ts.randn(*(shape or (2, 3, 8, 8)), device=device)


def test_a_traced_module_computes_as_the_module(net, device):
    traced = jit.trace(net.eval(), images(device))
    assert isinstance(traced, jit.ScriptModule) and traced.original_name == "Net" and not traced.training
    for shape in [(2, 3, 8, 8), (5, 3, 10, 12), (1, 3, 8, 8)]:
        x = images(device, *shape)
        assert traced(x).equal(net(x)) and traced(x=x).equal(net(x))
        with ts.no_grad():
            assert traced(x).equal(net(x))
    assert [n for n, _ in traced.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert list(traced.state_dict()) == list(net.state_dict()) and traced.fc.weight is net.fc.weight
    assert traced.conv(x).equal(net.conv(x))


def test_gradients_reach_parameters_and_inputs_and_an_optimizer_is_seen(net, device):
    traced = jit.trace(net.eval(), images(device))
    optimizer = ts.optim.SGD(traced.parameters(), lr=0.1)
    for _ in range(3):
        x = images(device).requires_grad_()
        again = x.detach().clone().requires_grad_()
        traced(x).square().sum().backward()
        grads = [p.grad.clone() for p in net.parameters()]
        net.zero_grad()
        net(again).square().sum().backward()
        assert all(a.equal(b.grad) for a, b in zip(grads, net.parameters(), strict=True)) and x.grad.equal(again.grad)
        optimizer.step()
        optimizer.zero_grad()
    assert traced(x).equal(net(x))


def test_statistics_of_batch_norm_move_once_per_run(net, device):
    before = copy.deepcopy(net)
    traced = jit.trace(net, images(device), check_trace=False)
    assert net.norm.num_batches_tracked == 1  # the traced run
    net.load_state_dict(before.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jit.TracerWarning)  # of its dropout
        checked = jit.trace(net, images(device))
    assert net.norm.num_batches_tracked == 1  # checks leave no trace
    net.load_state_dict(before.state_dict())
    for program in (traced, checked):
        net.load_state_dict(before.state_dict())
        x = images(device)
        program(x)
        alone = copy.deepcopy(before)
        alone(x)
        assert net.norm.running_mean.equal(alone.norm.running_mean) and net.norm.num_batches_tracked == 1


def test_random_numbers_are_drawn_anew_and_follow_the_seed(device):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jit.TracerWarning)  # which tells of it
        traced = jit.trace(lambda x: F.dropout(x, 0.5) + ts.rand(4, device=device), ts.ones(4, device=device))
    x = ts.ones(4, device=device)
    ts.manual_seed(3)
    first, second = traced(x), traced(x)
    ts.manual_seed(3)
    assert not first.equal(second) and first.equal(F.dropout(x, 0.5) + ts.rand(4, device=device))


def test_sizes_follow_the_inputs(device):
    def program(x, y):
        n, d = x.shape
        half = d // 2
        parts = x.view(n, 2, half).transpose(0, 1).reshape(-1, half)
        return parts[1 : n - 1], ts.zeros(n, d + y.size(-1), device=device), x[:, -1:], x[-1], x.new_ones(x.numel())

    args = ts.randn(4, 6, device=device), ts.randn(3, device=device)
    traced = jit.trace(program, args)
    for n, d in [(4, 6), (7, 10), (3, 2)]:
        args = ts.randn(n, d, device=device), ts.randn(d, device=device)
        assert all(a.equal(b) for a, b in zip(traced(*args), program(*args), strict=True))


def test_sizes_compute_as_ints_do():
    seen = {}

    def program(x):
        n = x.shape[0]
        seen.update(
            type=isinstance(n, int), hash=hash(n), true=n / 2, power=n**2, text=f"{n}", index=[1, 2, 3, 4][n - 1]
        )
        seen.update(minus=-n, reverse=10 - n, mod=10 % n, numpy=list(range(n)), pickled=pickle.loads(pickle.dumps(n)))
        return x * n + (n % 3) - (-n // 2)

    x = ts.arange(4.0)
    traced = jit.trace(program, x, check_trace=False)
    assert seen == {
        "type": True, "hash": 4, "true": 2.0, "power": 16, "text": "4", "index": 4, "minus": -4, "reverse": 6, "mod": 2,
        "numpy": [0, 1, 2, 3], "pickled": 4,
    }  # fmt: skip
    assert traced(x).equal(program(x))


def test_a_decision_on_sizes_warns_where_it_would_come_out_differently():
    def program(x):
        return x * 2 if x.shape[0] > 3 else x

    traced = jit.trace(program, ts.ones(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert traced(ts.ones(5)).tolist() == [2] * 5
    with pytest.warns(jit.TracerWarning, match=r"size\.gt, at .*test_trace\.py:\d+, would have come out differently"):
        assert traced(ts.ones(2)).tolist() == [2] * 2  # the trace's way


def test_values_that_python_reads_warn_with_their_line():
    def program(x):
        if x.sum() > 0:
            return x + 1
        return x * float(x[0])

    with pytest.warns(jit.TracerWarning, match="Converting a tensor to a Python boolean might cause") as caught:
        jit.trace(program, ts.ones(2), check_trace=False)
    (told,) = [w for w in caught if w.category is jit.TracerWarning]
    assert told.filename == __file__ and told.lineno == program.__code__.co_firstlineno + 1
    for read in (float, int, bool, lambda t: t.item(), lambda t: t.tolist(), lambda t: t.numpy()):
        with pytest.warns(jit.TracerWarning, match="Converting a tensor to a"):
            jit.trace(lambda x, read=read: (read(x[0]), x)[1], ts.ones(2), check_trace=False)
    for text, read in (("Iterating over a tensor", lambda t: next(iter(t))), ("Using len to get", len)):
        with pytest.warns(jit.TracerWarning, match=text):
            jit.trace(lambda x, read=read: (read(x), x)[1], ts.ones(2), check_trace=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", jit.TracerWarning)
        jit.trace(lambda x: x * float(ts.tensor(2.0)), ts.ones(2))  # of no traced value


def test_a_program_that_varies_does_not_pass_the_check():
    calls = []

    def grows(x):
        calls.append(1)
        for _ in calls:
            x = x + 1
        return x

    with pytest.raises(jit.TracingCheckError, match=r"(?s)Graphs differed across invocations.*First diverging.*add"):
        jit.trace(grows, ts.ones(2))
    with pytest.raises(jit.TracingCheckError, match="Tensor-valued Constant nodes differed"):
        jit.trace(lambda x: x * ts.tensor([random.random()]), ts.ones(1))

    def branches(x):
        return x + 1 if x.shape[0] == 2 else x - 1

    with pytest.raises(jit.TracingCheckError, match=r"(?s)First diverging.*\n.*- add.*\n.*\+ sub"):
        jit.trace(branches, ts.ones(2), check_inputs=[ts.ones(3)])
    jit.trace(lambda x: x * x.shape[0], ts.ones(2), check_inputs=[ts.ones(3)])
    jit.trace(grows, ts.ones(2), check_trace=False)


class Pair(NamedTuple):
    first: ts.Tensor
    second: ts.Tensor


def test_arguments_and_results_may_be_nested():
    def program(x, pair, by_name):
        return x + pair[0], (pair[1] * by_name["k"], [x])

    one, two = ts.ones(2), ts.full((2,), 2.0)
    traced = jit.trace(program, (one, (one, two), {"k": two}))
    a, (b, (c,)) = traced(two, (two, one), {"k": two})
    assert (a.tolist(), b.tolist(), c.tolist()) == ([4, 4], [2, 2], [2, 2])
    with pytest.raises(RuntimeError, match="laid out as when it was traced"):
        traced(two, two, {"k": two})
    with pytest.raises(RuntimeError, match=r"Encountering a dict at the output.*strict=False"):
        jit.trace(lambda x: {"y": x}, one)
    assert jit.trace(lambda x: {"y": x + 1}, one, strict=False)(two)["y"].tolist() == [3, 3]
    assert jit.trace(lambda x: Pair(x + 1, x), one)(two).first.tolist() == [3, 3]
    for wrong in ((3,), ("text",), (None,)):
        with pytest.raises(RuntimeError, match="cannot be traced as an argument"):
            jit.trace(lambda x: x, wrong)
    with pytest.raises(RuntimeError, match="cannot be traced as a result"):
        jit.trace(lambda x: (x, 3), one)


def test_arguments_by_name():
    class Scaled(nn.Module):
        def forward(self, x, scale, shift=None):
            return x * scale if shift is None else x * scale + shift

    x, two = ts.ones(3), ts.full((3,), 2.0)
    traced = jit.trace(Scaled(), example_kwarg_inputs={"x": x, "scale": two})
    assert traced(x=two, scale=two).tolist() == [4] * 3 and traced(two, two).tolist() == [4] * 3
    mixed = jit.trace(Scaled(), x, example_kwarg_inputs={"shift": x, "scale": two})
    assert mixed(two, scale=two, shift=two).tolist() == [6] * 3 and mixed(two, shift=x, scale=two).tolist() == [5] * 3
    with pytest.raises(RuntimeError, match="expected example_inputs"):
        jit.trace(Scaled())


def test_several_methods_of_a_module(device):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(ts.ones(2))

        def forward(self, x):
            return x * self.weight

        def back(self, x, y):
            return x / self.weight - y

    module = Both().to(device)
    x = ts.ones(2, device=device)
    traced = jit.trace_module(module, {"forward": x, "back": (x, x)})
    with ts.no_grad():
        module.weight.fill_(4.0)
    assert traced(x).tolist() == [4, 4] and traced.back(x, x).tolist() == [-0.75] * 2
    assert "div" in str(traced.back.graph) and "div" not in str(traced.graph)
    assert pickle.loads(pickle.dumps(traced)).back(x, x).tolist() == [-0.75] * 2
    bound = jit.trace(module.forward, x)
    assert isinstance(bound, jit.ScriptModule) and bound(x).tolist() == [4, 4]


def test_a_graph_is_looked_at(net, device):
    traced = jit.trace(net.eval(), images(device))
    kinds = [n.kind() for n in traced.graph.nodes()]
    assert kinds[:3] == ["aten::conv2d", "aten::batch_norm", "aten::relu"] and kinds[-1] == "aten::linear"
    conv = traced.graph.findNode("aten::conv2d")
    assert conv.scopeName() == "conv" and "test_trace.py:" in conv.sourceRange()
    assert [v.debugName() for v in conv.inputs()] == ["x", "conv.weight", "conv.bias"]
    assert conv.output().type()["shape"] == [2, 4, 8, 8] and conv.arguments["padding"] == [1, 1]
    assert [n.kind() for n in conv.parts()] == ["aten::convolution"] and conv.output().uses()[0].kind()
    assert "aten::conv2d" not in [n.kind() for n in traced.inlined_graph.nodes()]
    assert "def forward(x):" in traced.code and "self.fc.weight" in traced.code
    traced.graph.lint()
    function = jit.trace(lambda x: x + 1, ts.ones(1))
    assert (
        isinstance(function, jit.ScriptFunction) and "add" in function.code and str(function.graph_for()).count("add")
    )


def test_values_of_a_graph_tell_what_they_were():
    traced = jit.trace(lambda x: x.reshape(x.shape[0] * 2, -1), ts.ones(2, 4, dtype=ts.int64))
    (given,) = traced.graph.inputs()
    kind = given.type()
    assert (kind.kind(), kind.scalarType(), kind.sizes(), kind.strides()) == ("TensorType", "Long", [2, 4], [4, 1])
    assert kind.dim() == 2 and kind.device() == ts.device("cpu") and not kind.requires_grad()
    count = traced.graph.findNode("size::mul").output()
    assert given.isCompleteTensor() and not count.isCompleteTensor()
    assert count.type() == "int" and count.type().kind() == "IntType"


def test_code_is_given_with_its_constants():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps, self.fc = ts.arange(3.0), nn.Linear(3, 3)

        def forward(self, x):
            return self.fc(x) * self.steps + ts.tensor([1.0, 2.0, 3.0])

    traced = jit.trace(Net(), ts.ones(2, 3))
    code, constants = traced.code_with_constants
    assert code == traced.code and code.count("CONSTANTS.") == len(constants.const_mapping) == 2
    assert code.index("CONSTANTS.c0") < code.index("CONSTANTS.c1")
    assert constants.c0.tolist() == [0, 1, 2] and constants.c1.tolist() == [1, 2, 3]
    with pytest.raises(AttributeError, match="c0, c1, got c2"):
        _ = constants.c2
    code, constants = jit.freeze(traced.eval()).code_with_constants
    assert "self." not in code and all(f"c{k}" in constants.const_mapping for k in range(code.count("CONSTANTS.")))


def test_frozen_programs_hold_their_parameters(net, device):
    traced = jit.trace(net.eval(), images(device))
    frozen, ready = jit.freeze(traced), jit.optimize_for_inference(traced)
    x = images(device, 3, 3, 8, 8)
    expected = net(x)
    with ts.no_grad():
        net.fc.weight.zero_()
    for module in (frozen, ready):
        assert module(x).equal(expected) and not list(module.parameters()) and not module.state_dict()
        with ts.no_grad():
            assert module(x).equal(expected)
            assert module(images(device)).shape == (2, 5)
    assert not traced(x).equal(expected)
    with pytest.raises(RuntimeError, match="eval"):
        jit.freeze(jit.trace(net.train(), images(device)))


def test_constants_are_computed_when_frozen():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(ts.rand(3))

        def forward(self, x):
            return x * (self.weight.exp() + 1) * 1 + ts.tensor([1.0, 2.0, 3.0])

    net = Net().eval()
    frozen = jit.freeze(jit.trace(net, ts.ones(3)))
    assert [n.kind() for n in frozen.graph.nodes()] == ["aten::mul", "aten::add"]
    assert frozen(ts.full((3,), 2.0)).equal(net(ts.full((3,), 2.0)))


def test_what_a_function_finds_is_what_it_is_when_called():
    weight = ts.ones(2, requires_grad=True)
    traced = jit.trace(lambda x: x * weight, ts.ones(2))
    with ts.no_grad():
        weight.fill_(3.0)
    traced(ts.ones(2)).sum().backward()
    assert traced(ts.ones(2)).tolist() == [3, 3] and weight.grad.tolist() == [1, 1]


def test_constants_are_of_the_time_of_tracing_and_each_run_writes_to_its_own():
    def program(x):
        total = ts.tensor([1.0, 1.0])
        total += x
        total[0] = 0
        return total

    traced = jit.trace(program, ts.ones(2))
    assert [traced(ts.ones(2)).tolist() for _ in range(3)] == [[0, 2]] * 3


def test_a_program_may_turn_gradients_off_for_a_part():
    def program(x):
        with ts.no_grad():
            y = x * 3
        return x * y

    traced, x = jit.trace(program, ts.ones(2)), ts.full((2,), 2.0, requires_grad=True)
    traced(x).sum().backward()
    assert x.grad.tolist() == [6, 6]


def test_a_backward_pass_is_part_of_a_trace_and_bound_to_its_sizes():
    weight = ts.tensor([1.0, 2.0, 3.0], requires_grad=True)

    def program(x):
        loss = (x * weight).square().mean()
        (grad,) = ts.autograd.grad(loss, weight)
        return loss, grad

    traced = jit.trace(program, ts.ones(3), check_trace=False)
    x = ts.tensor([2.0, 0.5, 1.0])
    for a, b in zip(traced(x), program(x), strict=True):
        assert a.equal(b)
    with pytest.raises(RuntimeError, match="holds a backward pass, which is for the sizes"):
        traced(ts.ones(1))


def test_is_tracing_tells_the_program():
    seen = []
    jit.trace(lambda x: (seen.append(jit.is_tracing()), x)[1], ts.ones(1), check_trace=False)
    assert seen == [True] and not jit.is_tracing()


def test_an_error_in_the_program_ends_the_trace():
    def program(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        jit.trace(program, ts.ones(1))
    assert not jit.is_tracing() and type(ts.ones(2).shape[0]) is int
    with pytest.raises(RuntimeError, match=r"(?s)mat1 and mat2.*written down at .*test_trace\.py:\d+"):
        jit.trace(lambda x: x @ ts.ones(3, 2), ts.ones(1, 3))(ts.ones(1, 4))


def test_an_error_that_the_program_catches_leaves_nothing():
    def program(x):
        try:
            x @ ts.ones(7, 7)
        except RuntimeError:
            return x + 1
        return x

    traced = jit.trace(program, ts.ones(2))
    assert [n.kind() for n in traced.graph.nodes() if "ones" not in n.kind()] == ["aten::add"]
    assert traced(ts.ones(3)).tolist() == [2, 2, 2]


def test_sizes_of_another_program_are_plain_numbers():
    kept = []
    jit.trace(lambda x: (kept.append(x.shape[0]), x)[1], ts.ones(3), check_trace=False)
    traced = jit.trace(lambda x: x.new_ones(kept[0]) + kept[0], ts.ones(2))
    assert traced(ts.ones(5)).tolist() == [4, 4, 4] and kept[0] + 1 == 4


def test_copies_and_files_need_no_classes(net, device, tmp_path):
    traced = jit.trace(net.eval(), images(device))
    x = images(device, 3, 3, 8, 8)
    assert copy.deepcopy(traced)(x).equal(net(x))
    jit.save(traced, tmp_path / "net.pt")
    traced.save(tmp_path / "again.pt")
    for name in ("net.pt", "again.pt"):
        assert Net.__name__.encode() + b"\n" not in (tmp_path / name).read_bytes()
        loaded = jit.load(tmp_path / name)
        assert loaded(x).equal(net(x)) and loaded.original_name == "Net" and str(loaded.graph) == str(traced.graph)
        with pytest.raises(NotImplementedError, match="Linear was loaded as a part of a traced module"):
            loaded.fc(x)
    file = io.BytesIO()
    jit.save(jit.trace(lambda x: x * ts.tensor(2.0), ts.ones(1)), file)
    file.seek(0)
    assert jit.load(file)(ts.ones(3)).tolist() == [2, 2, 2]


def test_attention_and_recurrent_layers(device):
    for module, args in [
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (ts.randn(2, 5, 8),)),
        (nn.LSTM(4, 6, batch_first=True), (ts.randn(2, 5, 4),)),
        (nn.GRU(4, 6, num_layers=2), (ts.randn(5, 2, 4),)),
        (nn.MultiheadAttention(8, 2), (ts.randn(5, 2, 8), ts.randn(5, 2, 8), ts.randn(5, 2, 8))),
        (nn.Sequential(nn.Embedding(10, 4), nn.LayerNorm(4)), (ts.randint(10, (2, 5)),)),
    ]:
        module = module.eval().to(device)
        args = tuple(a.to(device) for a in args)
        traced = jit.trace(module, args)
        for given in (args, tuple(ts.cat([a, a], 0) for a in args)):
            expected, got = module(*given), traced(*given)
            while isinstance(expected, tuple):
                expected, got = expected[0], got[0]
            assert got.equal(expected), type(module).__name__


class Doubled(ts.autograd.Function):
    """Whose gradient is not that of its forward."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 100


def test_a_function_with_a_gradient_of_its_own_keeps_it():
    def program(x):
        return Doubled.apply(x.sin()) * x.shape[0] + 1

    traced = jit.trace(program, ts.ones(2))
    assert "function.forward(" in str(traced.graph)
    outer = jit.trace(lambda x: traced(x) * 2, ts.ones(2))
    for size in (2, 3, 3, 2):
        x = ts.rand(size, requires_grad=True)
        for got, wanted in ((traced, program), (outer, lambda x: program(x) * 2)):
            assert got(x).equal(wanted(x))
            assert ts.autograd.grad(got(x).sum(), x)[0].equal(ts.autograd.grad(wanted(x).sum(), x)[0])
    with ts.no_grad():
        assert traced(x).equal(program(x))


def test_a_file_holds_what_a_function_computes_and_does_not_pass_it_for_what_it_is_not():
    file = io.BytesIO()
    jit.save(jit.trace(lambda x: Doubled.apply(x) + 1, ts.ones(2)), file)
    file.seek(0)
    loaded = jit.load(file)
    assert loaded(ts.ones(3)).tolist() == [3, 3, 3]
    x = ts.ones(2, requires_grad=True)
    with ts.no_grad():
        assert loaded(x).tolist() == [3, 3]
    with pytest.raises(RuntimeError, match=r"an autograd\.Function, at .*test_trace\.py:\d+, was written down as"):
        loaded(x)


@pytest.mark.parametrize("trains", [True, False])
def test_transforms_and_samples_of_a_grid_have_gradients(trains):
    def program(x, flow):
        h, w = x.shape[2:]
        grid = ts.stack(
            [(ts.arange(w) + flow[:, 0]) * (2.0 / w) - 1, (ts.arange(h)[:, None] + flow[:, 1]) * (2.0 / h) - 1], -1
        )
        return ts.nn.functional.grid_sample(x, grid, align_corners=False)

    traced = jit.trace(program, (ts.rand(1, 2, 4, 5), ts.rand(1, 2, 4, 5)))
    given = [ts.rand(2, 2, 6, 7, requires_grad=trains), ts.rand(2, 2, 6, 7, requires_grad=True)]
    assert traced(*given).equal(program(*given))
    wanted = ts.autograd.grad(program(*given).square().sum(), given[1])[0]
    assert ts.autograd.grad(traced(*given).square().sum(), given[1])[0].equal(wanted)
    layer = ts.nn.Linear(8, 8)
    spectrum = jit.trace(lambda x: ts.fft.rfft(layer(x)).abs(), ts.rand(2, 8))
    spectrum(ts.rand(2, 8)).sum().backward()
    assert layer.weight.grad.abs().sum() > 0


def test_a_traced_program_is_traced_as_a_part_of_another():
    inner = jit.trace(lambda x: x.view(x.shape[0] // 2, -1).sum(0), ts.ones(4))
    outer = jit.trace(lambda x: inner(x * 2) + x.shape[0], ts.ones(4))
    frozen = jit.freeze(jit.trace(nn.Linear(4, 2).eval(), ts.ones(1, 4)))
    with ts.no_grad():
        around = jit.trace(lambda x: frozen(x).flatten(), ts.ones(1, 4))
    for n in (4, 6):
        x = ts.arange(float(n))
        assert outer(x).equal((x * 2).view(n // 2, -1).sum(0) + n)
        assert around(ts.ones(n, 4)).equal(frozen(ts.ones(n, 4)).flatten())


def test_detached_data_stays_without_gradient():
    traced, x = jit.trace(lambda x: x * x.data, ts.ones(2)), ts.full((2,), 3.0, requires_grad=True)
    traced(x).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_a_buffer_that_the_program_replaces_is_the_one_that_the_module_has():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", ts.zeros(1))

        def forward(self, x):
            self.count = self.count + 1
            return x * self.count

    traced = jit.trace(Counts(), ts.ones(1), check_trace=False)
    traced.count.fill_(4.0)
    assert traced(ts.ones(1)).tolist() == [5.0] and traced.state_dict()["count"].tolist() == [4.0]


def test_weights_that_autocast_has_cast_before_are_cast_in_every_run():
    layer = nn.Linear(2, 2)
    x = ts.ones(1, 2)
    with ts.autocast("cpu", dtype=ts.bfloat16):
        layer(x)
        traced = jit.trace(layer, x)
        with ts.no_grad():
            layer.weight.fill_(3.0)
        assert traced(x).dtype == ts.bfloat16
    with ts.autocast("cpu", dtype=ts.bfloat16):
        assert traced(x).equal(layer(x))


def test_a_number_that_equals_a_size_is_none():
    for function in (
        lambda x: x.view(2, x.shape[0] // 2).sum(1),
        lambda x: x.view(x.shape[0] // 2, 2).sum(1),
        lambda x: x.unsqueeze(0).expand(4, x.shape[0]) * 4 + x.shape[0],
    ):
        traced = jit.trace(function, ts.arange(4.0))
        assert traced(ts.arange(6.0)).equal(function(ts.arange(6.0)))


def test_what_is_computed_outside_of_operators_is_told():
    with pytest.warns(jit.TracerWarning, match="NumPy array"):
        jit.trace(lambda x: ts.from_numpy(x.numpy() * 2), ts.randn(3, 4), check_trace=False)


def test_fourier_transforms_are_operators_of_a_trace():
    traced = jit.trace(lambda x: ts.fft.rfft(x).abs(), ts.randn(3, 4))
    x = ts.randn(3, 4)
    assert traced(x).equal(ts.fft.rfft(x).abs())


def test_programs_that_draw_numbers_are_told_of():
    with pytest.warns(ts.jit.TracerWarning) as told:
        ts.jit.trace(lambda x: ts.nn.functional.dropout(x, 0.5, training=True), ts.ones(64))
    texts = [str(one.message) for one in told]
    assert any("does not match" in text for text in texts) and any("nondeterministic" in text for text in texts)


def test_saved_to_bytes_and_counts_of_values():
    traced = ts.jit.trace(lambda x, y: (x @ y.t()).relu(), (ts.ones(2, 3), ts.ones(2, 3)))
    again = ts.jit.load(io.BytesIO(traced.save_to_buffer()))
    assert again(ts.ones(1, 3), ts.ones(4, 3)).tolist() == [[3.0] * 4]
    assert [(node.inputsSize(), node.outputsSize()) for node in traced.graph.nodes()][-1] == (1, 1)
    layer = ts.jit.trace(ts.nn.Linear(3, 1), ts.ones(2, 3))
    assert ts.equal(ts.jit.load(io.BytesIO(layer.save_to_buffer())).weight, layer.weight)
