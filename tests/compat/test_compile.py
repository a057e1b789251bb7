"""``torch.compile`` without a backend: nothing is compiled, and modules carry the names that files expect."""

from __future__ import annotations

import copy
import pickle

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.compiler import OptimizedModule


@pytest.fixture
def pair():
    net = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5))
    return net, ts.compile(net)


def test_a_compiled_module_names_the_original(pair):
    net, compiled = pair
    assert isinstance(compiled, OptimizedModule) and compiled._orig_mod is net
    assert [*compiled.state_dict()] == ["_orig_mod.0.weight", "_orig_mod.0.bias"]
    compiled.load_state_dict({f"_orig_mod.{name}": value for name, value in net.state_dict().items()})
    x = ts.ones(4, 2)
    assert ts.equal(compiled.eval()(x), net(x)) and not net.training
    assert compiled.train() is compiled and net.training and len(compiled) == 2 and compiled


def test_attributes_are_the_original_ones(pair):
    net, compiled = pair
    compiled.extra = 3
    assert net.extra == 3 and compiled.extra == 3 and "extra" in dir(compiled)
    del compiled.extra
    assert not hasattr(net, "extra")
    with pytest.raises(AttributeError, match="nope"):
        _ = compiled.nope


def test_copies_hold_a_copy(pair):
    net, compiled = pair
    for twin in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert type(twin) is OptimizedModule and twin._orig_mod is not net
        assert ts.equal(twin._orig_mod[0].weight, net[0].weight)


def test_hooks_of_either_run(pair):
    net, compiled = pair
    seen = []
    compiled.register_forward_hook(lambda m, i, o: seen.append("outer"))
    net.register_forward_hook(lambda m, i, o: seen.append("inner"))
    compiled(ts.ones(1, 2))
    assert seen == ["inner", "outer"]


def test_the_decorator_gives_functions_back_and_wraps_modules():
    layer = nn.Linear(1, 1)
    assert ts.compile(ts.relu) is ts.relu and ts.compile(dynamic=True)(ts.relu) is ts.relu
    assert ts.compile(mode="max-autotune")(layer)._orig_mod is layer and ts.compile(layer, disable=True) is layer
    assert layer.compile() is None and [*layer.state_dict()] == ["weight", "bias"]


def test_logs_of_no_such_name_are_refused():
    from tesserack.compat.shims._logging import set_logs

    try:
        with pytest.raises(TypeError, match="unexpected keyword argument 'nosuch'"):
            set_logs(nosuch=True)
        for given in (
            {"dynamo": "x"},
            {"dynamo": True},
            {"graph_breaks": 10},
            {"all": "x"},
            {"modules": {"nosuch": 10}},
        ):
            with pytest.raises(ValueError, match=r"Unrecognized log|Expected bool"):
                set_logs(**given)
        set_logs(dynamo=30, recompiles=True, inductor=None, modules={"torch._inductor.scheduler": 10, "json": 30})
    finally:
        set_logs()


def test_programs_bring_their_compilers(program):
    lines = program.run(
        """
        import torch
        from torch import fx, nn
        from torch._dynamo.backends.common import aot_autograd
        from torch._dynamo.backends.registry import register_backend
        from torch._dynamo.testing import CompileCounter
        from torch._functorch.aot_autograd import make_boxed_func
        from torch.fx.experimental.symbolic_shapes import guard_size_oblivious

        torch._logging.set_logs(graph_code=True)
        torch._dynamo.config.cache_size_limit = 16
        counter, seen = CompileCounter(), []

        @torch.compile(backend=counter, dynamic=False)
        def step(x, w):
            return torch.nn.functional.relu(x @ w).sum() + torch.ones(())

        @register_backend
        def fuses(gm: fx.GraphModule, example_inputs):
            for node in gm.graph.nodes:
                if node.target is torch.ops.aten.relu.default:
                    node.target = torch.ops.aten.tanh.default
            gm.graph.lint()
            gm.recompile()
            return gm.forward

        x, w = torch.ones(2, 3), torch.ones(3, 2)
        print(step(x, w).item(), step(x, w).item(), counter.frame_count, counter.op_count)
        net = torch.compile(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), backend="fuses")
        print(torch.equal(net(x), net._orig_mod[0](x).tanh()), "fuses" in torch._dynamo.list_backends())
        print(str(torch._dynamo.explain(lambda x: print(end="") or x)(x)).splitlines()[1])
        print(guard_size_oblivious(x.shape[0] == 2), torch.compiler.is_compiling())
        train = nn.Linear(3, 1)
        both = aot_autograd(fw_compiler=lambda gm, inputs: seen.append(gm) or make_boxed_func(gm.forward))
        train.compile(backend=both)
        train(x).sum().backward()
        print(len(seen), train.weight.grad.tolist())
        """
    )
    assert lines == ["13.0 13.0 1 5", "True True", "Graph Break Count: 1", "True False", "2 [[2.0, 2.0, 2.0]]"]


def test_functions_and_methods_are_exported(program):
    lines = program.run(
        """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 2)

            def forward(self, x):
                return self.fc(x)

            def twice(self, x, scale=2):
                return {"y": self.fc(x) * scale}

        net, x = Net(), torch.ones(2, 3)
        for function, expected in ((net, net(x)), (net.twice, net.twice(x)["y"])):
            module, guards = torch._dynamo.export(function, aten_graph=True)(x)
            found = module(x)
            print(torch.equal(found["y"] if isinstance(found, dict) else found, expected), guards)
        print(torch._dynamo.export(lambda x: x.relu(), -x).graph_module(-x).sum().item())
        try:
            torch._dynamo.export(lambda x: x if x.sum() > 0 else -x)(x)
        except Exception as error:
            print(type(error).__name__)
        """
    )
    assert lines == ["True set()", "True set()", "0.0", "ExportError"]


def test_names_of_the_compiler_that_programs_use(program):
    lines = program.run(
        """
        import torch
        import torch._dynamo

        def step(x):
            return x * 2 + 1

        def count(limit):
            made = []
            torch._dynamo.reset()
            compiled = torch.compile(step, backend=lambda gm, inputs: made.append(1) or gm.forward)
            for n in range(1, limit + 5):
                compiled(torch.ones(n))
            return len(made)

        x = torch.ones(2, 2)
        torch._dynamo.mark_dynamic(x, 0), torch._dynamo.mark_static(x), torch._dynamo.maybe_mark_dynamic(x, 1)
        print(count(8), torch._dynamo.config.recompile_limit)
        with torch._dynamo.config.patch(cache_size_limit=3):
            print(count(8), torch._dynamo.config.recompile_limit)
        torch._dynamo.config.recompile_limit = 2
        print(count(8), torch._dynamo.config.cache_size_limit)
        print(torch.compiler.get_default_backend(), torch.compiler.save_cache_artifacts())
        torch.compiler.set_default_backend("eager")
        print(torch.compiler.get_default_backend(), torch.compiler.nested_compile_region(step) is step)
        print(torch.compiler.skip_guard_on_globals_unsafe([1, 2]))
        with torch._dynamo.error_on_graph_break(True):
            print(torch.compile(torch._dynamo.nonstrict_trace(step))(x).sum().item())
        """
    )
    assert lines == ["8 8", "3 3", "2 2", "inductor None", "eager True", "[True, True]", "12.0"]


NAMES_OF_TORCH = """import torch, torch.nn.functional as F

torch.my_flag = 1.0


def g(x):
    return x * torch.my_flag


def h(x):
    return F.relu(x) + torch.nn.functional.my


F.my = 1.0
fg, fh = torch.compile(g), torch.compile(h)
x = torch.ones(3)
for v in (1.0, 2.0, 3.0):
    torch.my_flag = v
    F.my = v
    for _ in range(4):
        assert fg(x)[0] == v, (v, fg(x))
        assert fh(x)[0] == 1 + v
old = F.relu
F.relu = lambda x: x - 5
for _ in range(3):
    assert fh(x)[0] == -4 + 3.0, fh(x)
F.relu = old
for _ in range(3):
    assert fh(x)[0] == 4
import torch.nn as nn, types
import torch.backends.cudnn as cudnn

nn.switch = True


def k(x):
    return x * 2 if nn.switch else x * 3


fk = torch.compile(k)
for v in (True, False, True):
    nn.switch = v
    for _ in range(3):
        assert fk(x)[0] == (2 if v else 3)
del torch.my_flag
try:
    fg(x)
except AttributeError:
    print("gone")
torch.my_flag = 5.0


def viaargs(m, x):
    return x * m.my_flag


fv = torch.compile(viaargs)
for v in (5.0, 6.0):
    torch.my_flag = v
    for _ in range(4):
        assert fv(torch, x)[0] == v, (v, fv(torch, x))
print("fine")
"""


def test_graphs_see_what_is_set_on_modules_of_torch(program):
    assert program.run(NAMES_OF_TORCH) == ["gone", "fine"]


def test_packages_find_the_parts_of_the_compiler(program):
    lines = program.run(
        """
        import torch
        from torch import nn
        from torch._decomp import core_aten_decompositions, get_decompositions, register_decomposition
        from torch._dynamo.decorators import mark_dynamic
        from torch._dynamo.testing import AotEagerAndRecordGraphs, EagerAndRecordGraphs, rand_strided
        from torch._inductor.compile_fx import compile_fx
        from torch._inductor.utils import fresh_inductor_cache
        from torch.fx.experimental.proxy_tensor import make_fx

        layer, x = nn.Linear(2, 2), torch.ones(1, 2)
        print(isinstance(torch.compile(layer), torch._dynamo.eval_frame.OptimizedModule),
              isinstance(layer, torch._dynamo.eval_frame.OptimizedModule), torch._dynamo.external_utils.is_compiling())
        keeps, both = EagerAndRecordGraphs(), AotEagerAndRecordGraphs()
        torch.compile(layer, backend=keeps)(x)
        torch.compile(layer, backend=both)(x).sum().backward()
        print(len(keeps.graphs), len(both.graphs), len(both.fw_graphs), len(both.bw_graphs))
        with fresh_inductor_cache():
            print(torch.compile(lambda x: x * 2, backend=lambda gm, inputs: compile_fx(gm, inputs))(x).tolist())
        strided = rand_strided((2, 3), (1, 2))
        mark_dynamic(strided, 0)
        print(strided.stride(), torch._dynamo.utils.same([strided], [strided]), torch._dynamo.utils.compile_times())
        own = {}

        @register_decomposition(torch.ops.aten.addmm, own)
        def made_of(bias, a, b, beta=1, alpha=1):
            return a @ b + bias

        graph = make_fx(lambda x: torch.addmm(x, x, torch.ones(2, 2)), decomposition_table=own)(x)
        print(torch.ops.aten.t.default in get_decompositions([torch.ops.aten.t]), len(core_aten_decompositions()) > 0,
              any("addmm" in str(node.target) for node in graph.graph.nodes))
        """
    )
    assert lines == [
        "True False False",
        "1 1 1 1",
        "[[2.0, 2.0]]",
        "(1, 2) True TorchDynamo compilation metrics:",
        "",
        "True True False",
    ]
