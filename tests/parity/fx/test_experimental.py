"""What lies in ``fx.experimental``, on both libraries."""

from __future__ import annotations

import importlib
import operator

import pytest
from both_libraries import both, net, nodes

torch = importlib.import_module("torch")
pytestmark = pytest.mark.filterwarnings("ignore")
annotate = importlib.import_module("torch.fx.annotate").annotate  # names that PyTorch's rewritten programs need


def module(lib, name):
    return importlib.import_module(f"{lib.__name__}.fx.experimental.{name}")


@both
def test_constants_are_folded(lib, fx):
    class Consts(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = lib.nn.Parameter(lib.full((2,), 3.0))
            self.b = lib.nn.Parameter(lib.full((2,), 4.0))
            self.act = lib.nn.ReLU()

        def forward(self, x, y):
            c = self.a + self.b
            d = c * 2
            return x + c, self.act(d) - y, x + self.a

    fold = module(lib, "const_fold")
    folded = fold.split_const_subgraphs(Consts())
    before = folded.has_folding_been_run
    x, y = lib.ones(2), lib.full((2,), 5.0)
    result = folded(x, y)
    kinds = sorted(n.op for n in folded.graph.nodes if n.op != "get_attr")
    none = fold.split_const_subgraphs(fx.symbolic_trace(lambda x: x + 1))
    skipped = fold.split_const_subgraphs(Consts(), lambda node: node.target is operator.add)
    return (
        before,
        folded.has_folding_been_run,
        result,
        kinds,
        none(3),
        skipped(x, y),
        none.const_subgraph_module is None,
    )


@both
def test_asserts_and_annotations_are_rewritten(lib, fx):
    class Checked(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.act = lib.nn.ReLU()

        def forward(self, x, y: int = 2):
            assert x.shape[0] == y, "msg"
            z = self.act(x)
            return z + y

    tracer = module(lib, "rewriter").RewritingTracer()
    graph = tracer.trace(Checked())
    traced = fx.GraphModule(tracer.root, graph, "gm")
    traced.graph.lint()
    with pytest.raises(AssertionError, match="msg"):
        traced(lib.ones(3))
    return [n.name for n in traced.graph.nodes], traced(lib.ones(2))


@both
def test_products_are_merged(lib, fx):
    class Products(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = lib.nn.Parameter(lib.ones(3, 2))

        def forward(self, x, y):
            return lib.matmul(x, self.w) + 1, lib.matmul(y, self.w)

    merged = module(lib, "merge_matmul").merge_matmul(Products())
    count = sum(n.target is lib.matmul for n in merged.graph.nodes)
    return count, merged(lib.ones(1, 3), lib.ones(2, 3))


@both
def test_arguments_in_one_form(lib, fx):
    normalize = module(lib, "normalize")
    traced = fx.symbolic_trace(lib.nn.Sequential(lib.nn.Linear(2, 2)))
    by_name = normalize.NormalizeArgs(traced).transform()
    functional = normalize.NormalizeArgs(fx.symbolic_trace(lambda x: lib.nn.functional.dropout(x, 0.3))).transform()
    operators = normalize.NormalizeOperators(fx.symbolic_trace(lambda x, y: lib.add(x, lib.mul(x, y)))).transform()
    kept = [sorted(n.kwargs) for g in (by_name, functional) for n in g.graph.nodes if n.op.startswith("call")]
    return kept, [n.target for n in operators.graph.nodes if n.op == "call_function"], operators(2, 3)


@both
def test_sizes_decide_beside_meta_tensors(lib, fx):
    class Sized(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = lib.nn.Tanh()

        def forward(self, x):
            y = self.lin(x)
            if y.shape[1] == 3 and x.dim() == 2:
                y = lib.nn.ReLU()(y)
            return y + y.size(1)

    meta = module(lib, "meta_tracer")
    traced = meta.symbolic_trace(Sized(), meta_args={"x": lib.ones(4, 3, device="meta")})
    return [n.op for n in traced.graph.nodes], tuple(traced(lib.ones(4, 3)).shape)


@both
def test_modules_are_fused(lib, fx):
    optimization = module(lib, "optimization")
    model = lib.nn.Sequential(lib.nn.Conv2d(1, 2, 3), lib.nn.BatchNorm2d(2), lib.nn.ReLU(), lib.nn.Dropout()).eval()
    fused = optimization.fuse(model)
    plain = optimization.remove_dropout(fused)
    x = lib.ones(1, 1, 4, 4)
    close = bool(lib.allclose(plain(x), model(x), atol=1e-5))
    return [n.op for n in plain.graph.nodes], close, nodes(fx.symbolic_trace(net(lib)).graph)[0]


@both
def test_fake_tensors_take_an_environment_of_sizes(lib, fx):
    shapes = module(lib, "symbolic_shapes")
    fake = importlib.import_module(f"{'torch._subclasses' if lib is torch else 'tesserack.aten.fake'}.fake_tensor")
    mode = fake.FakeTensorMode(shape_env=shapes.ShapeEnv(), static_shapes=True)
    with mode:
        x = mode.from_tensor(lib.ones(2, 3)) @ lib.ones(3, 4)
    graph = module(lib, "proxy_tensor").make_fx(lambda a: a + 1, tracing_mode="fake")(lib.ones(3))
    values = [tuple(value.shape) for value in shapes.fx_placeholder_vals(graph)]
    context = shapes.StatelessSymbolicContext([shapes.DimDynamic.DYNAMIC, shapes.DimDynamic.STATIC])
    return tuple(x.shape), values, shapes.fx_placeholder_targets(graph), [d.name for d in context.dynamic_sizes]
