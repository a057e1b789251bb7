"""Passes on both libraries: what they return and the graphs they leave must be the same."""

from __future__ import annotations

import importlib
import operator

import pytest
import tesserack as ts
import torch
from both_libraries import both, error, leaf, net, nodes


def module(lib, path):
    return importlib.import_module(f"{lib.__name__}.fx.{path}")


def chain(lib):
    def program(a, b, c):
        add = a + b
        relu = lib.relu(add)
        mul = relu * c
        sub = add - 1
        return lib.cat([mul, sub]).sum(), mul

    return lib.fx.symbolic_trace(program)


@both
def test_patterns_are_replaced(lib, fx):
    found = []
    cases = [
        (lambda x: lib.relu(lib.relu(x) + 1), lambda x: lib.relu(x), lambda x: x.abs()),
        (lambda x: lib.sigmoid(x) + lib.sigmoid(x * 2), lambda x: lib.sigmoid(x), lambda x: lib.tanh(lib.neg(x))),
        (
            lambda x, w: lib.cat([w, x]).sum() + lib.cat([w, w]).max(),
            lambda a, b: lib.cat([a, b]),
            lambda a, b: lib.stack([b, a]),
        ),
        (lambda x: lib.exp(x) * 2 + lib.exp(x) * 3, lambda x: lib.exp(x) * 2, lambda x: x - 5),
        (lambda x: (lib.exp(x), lib.exp(x) + 1), lambda x: lib.exp(x), lambda x: lib.neg(x)),
        (lambda x: x[1:2] + x[0], lambda x: x[1:2], lambda x: x[0:1]),
    ]
    for program, pattern, replacement in cases:
        traced = fx.symbolic_trace(program)
        matches = fx.replace_pattern(traced, pattern, replacement)
        traced.graph.lint()
        maps = [{str(k): str(v) for k, v in m.nodes_map.items()} for m in matches]
        found.append((len(matches), maps, nodes(traced.graph)))
    return found


@both
def test_patterns_with_several_results(lib, fx):
    traced = fx.symbolic_trace(lambda x, y: (lib.relu(x) + lib.exp(y)) * lib.relu(y))
    matches = fx.replace_pattern(traced, lambda a, b: (lib.relu(a), lib.exp(b)), lambda a, b: (a + b, a - b))
    return len(matches), nodes(traced.graph)


@both
def test_filters_callbacks_and_literals(lib, fx):
    rewriter = module(lib, "subgraph_rewriter")
    traced = fx.symbolic_trace(lambda x: (x + 1) * (x + 2))
    some = rewriter.replace_pattern_with_filters(
        traced, lambda x: x + 1, lambda x: x - 9, ignore_literals=True,
        match_filters=[lambda match, graph, pattern: match.returning_nodes[0].args[1] == 2],
    )  # fmt: skip
    made = nodes(traced.graph)
    other = fx.symbolic_trace(lambda x: x * 3)
    by_call = rewriter.replace_pattern_with_filters(
        other, lambda x, y: x * y,
        replacement_callback=lambda match, graph, pattern: fx.symbolic_trace(lambda x, y: x + y + y).graph,
    )  # fmt: skip
    return len(some), made, len(by_call), nodes(other.graph), [str(n) for n in by_call[0].replacements]


@both
def test_replacements_with_parts(lib, fx):
    class Scaled(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = lib.nn.Tanh()
            self.register_buffer("shift", lib.ones(1))

        def forward(self, x):
            return self.scale(x) + self.shift

    traced = fx.symbolic_trace(lib.nn.Sequential(lib.nn.ReLU(), lib.nn.Sigmoid()))
    pattern = fx.symbolic_trace(lib.nn.Sequential(lib.nn.ReLU()))
    fx.replace_pattern(traced, pattern, fx.symbolic_trace(Scaled()))
    return nodes(traced.graph), sorted(n for n, _ in traced.named_modules()), traced(lib.ones(1))


@both
def test_what_matchers_refuse(lib, fx):
    matcher = module(lib, "passes.utils.matcher_utils").SubgraphMatcher
    dead = fx.symbolic_trace(lambda x: (lib.relu(x), x)[1])
    return error(ValueError, lambda: matcher(fx.Graph())), error(AssertionError, lambda: matcher(dead.graph))


@both
def test_whole_graphs_compared(lib, fx):
    compare = module(lib, "passes.utils.common").compare_graphs
    graphs = [
        fx.symbolic_trace(f).graph for f in (lambda x: x + 1, lambda y: y + 1, lambda x: x + 2, lambda x, y: x + y)
    ]
    return [[compare(a, b) for b in graphs] for a in graphs]


@both
def test_split_modules(lib, fx):
    split = module(lib, "passes.split_module").split_module
    found = []
    for options in ({}, {"keep_original_order": True}, {"tuple_return": True}, {"partition_affix": "p"},
                    {"keep_original_node_name": True}, {"keep_original_input_name": False}):  # fmt: skip
        for callback in (lambda n: 0 if n.name in ("add", "relu") else 1, lambda n: len(n.name) % 2, lambda n: 0):
            traced = chain(lib)
            try:
                parts = split(traced, traced, callback, **options)
            except RuntimeError as failure:
                found.append(str(failure))
                continue
            inner = {name: nodes(child.graph) for name, child in parts.named_children()}
            values = [lib.tensor([float(k)]) for k in (3, 4, 5)]
            found.append((nodes(parts.graph), inner, parts(*values), parts.meta["partition_names"] == set(inner)))
    return found


@both
def test_split_modules_with_parameters(lib, fx):
    split = module(lib, "passes.split_module").split_module
    names = {}
    order = {}
    traced = fx.symbolic_trace(net(lib))
    parts = split(traced, traced, lambda n: order.setdefault(n, min(len(order) // 5, 2)), names)
    x = lib.ones(2, 4)
    result = parts(x)
    return nodes(parts.graph), names, [n for n, _ in parts.named_parameters()], result["v"], traced(x)["v"]


@both
def test_split_by_tags(lib, fx):
    utils = module(lib, "passes.split_utils")
    traced = chain(lib)
    for node in traced.graph.nodes:
        if node.op.startswith("call"):
            node.tag = "first" if node.name in ("add", "relu", "sub") else "second"
    found = []
    for options in ({}, {"return_tuple": True}):
        parts, names = utils.split_by_tags(traced, ["first", "second"], return_fqn_mapping=True, **options)
        found.append((nodes(parts.graph), {n: nodes(c.graph) for n, c in parts.named_children()}, names))
    return found


@both
def test_proposed_partitions(lib, fx):
    partitioner = module(lib, "passes.infra.partitioner")
    support = module(lib, "passes.operator_support")
    programs = [
        chain(lib),
        fx.symbolic_trace(lambda a, b, c: ((a + b) + lib.relu(a + c), lib.relu(b + c) + (a + 1))),
        fx.symbolic_trace(lambda a: (lib.relu(a + 1) + (a + 2) + 3, lib.relu(a + 4))),
        fx.symbolic_trace(lambda a, b: lib.relu((a + b) + 1) + ((a + b) + (b + 2))),
    ]
    found = []
    for traced in programs:
        for taken in ({operator.add}, {operator.add, operator.sub, operator.mul}, {lib.relu, lib.cat}):
            for options in (
                {},
                {"allows_single_node_partition": True},
                {"skip_horizontal_fusion": True, "allows_single_node_partition": True},
            ):
                rule = support.create_op_support(lambda modules, node, taken=taken: node.target in taken)
                made = partitioner.CapabilityBasedPartitioner(traced, rule, **options).propose_partitions()
                found.append([sorted(n.name for n in partition.nodes) for partition in made])
    return found


@both
def test_fused_partitions(lib, fx):
    partitioner = module(lib, "passes.infra.partitioner")
    support = module(lib, "passes.operator_support")
    traced = chain(lib)
    rule = support.create_op_support(lambda modules, node: node.target in (operator.add, operator.sub, operator.mul))
    fused = partitioner.CapabilityBasedPartitioner(traced, rule, allows_single_node_partition=True).partition_and_fuse()
    values = [lib.tensor([float(k)]) for k in (3, 4, 5)]
    return sorted(n for n, _ in fused.named_children()), sorted(n[:3] for n in nodes(fused.graph)), fused(*values)


@both
def test_bookends_are_left_out(lib, fx):
    partitioner = module(lib, "passes.infra.partitioner")
    support = module(lib, "passes.operator_support")
    traced = fx.symbolic_trace(lambda a: operator.neg(lib.relu(operator.neg(a)) + 1))
    rule = support.create_op_support(lambda modules, node: node.op == "call_function")
    made = partitioner.CapabilityBasedPartitioner(traced, rule, non_compute_ops=["_operator.neg"])
    partitions = made.propose_partitions()
    made.remove_bookend_non_compute_ops(partitions)
    return [sorted(n.name for n in p.nodes) for p in partitions]


@both
def test_fusing_and_orders(lib, fx):
    fuser = module(lib, "passes.utils.fuser_utils")
    common = module(lib, "passes.tools_common")
    traced = chain(lib)
    by_name = {n.name: n for n in traced.graph.nodes}
    order = [n.name for n in fuser.topo_sort([by_name[k] for k in ("mul", "relu", "add", "sub")])]
    valid = [
        fuser.validate_partition([by_name[k] for k in names])
        for names in (("add", "mul"), ("add", "relu"), ("sub", "relu"))
    ]
    made, inputs, outputs = fuser.fuse_as_graphmodule(traced, [by_name["add"], by_name["relu"]], "fused")
    refused = error(AssertionError, lambda: fuser.fuse_as_graphmodule(traced, [by_name["add"], by_name["mul"]], "no"))
    by_name["b"].append(by_name["sub"])
    stable = [n.name for n in common.stable_topological_sort(traced).graph.nodes]
    return order, valid, nodes(made.graph), inputs, outputs, refused, stable


@both
def test_pass_managers(lib, fx):
    infra = module(lib, "passes.infra.pass_manager")
    result = module(lib, "passes.infra.pass_base").PassResult

    def swap(old, new):
        def change(gm):
            modified = False
            for node in gm.graph.nodes:
                if node.target is old:
                    node.target, modified = new, True
            return result(gm, modified)

        return change

    first, second = swap(operator.add, operator.mul), swap(operator.mul, operator.sub)
    manager = infra.PassManager([second, first], [infra.this_before_that_pass_constraint(first, second)], steps=3)
    wrong = infra.PassManager([second, first], [infra.this_before_that_pass_constraint(first, second)])
    both_ways = [infra.this_before_that_pass_constraint(*p) for p in ((first, second), (second, first))]
    failing = infra.PassManager([lambda gm: 3])
    traced = fx.symbolic_trace(leaf)
    outcome = manager(traced)

    def check(gm):
        raise ValueError("no")

    checked = infra.PassManager([first], run_checks_after_each_pass=True)
    checked.add_checks(check)
    kinds = [
        error(RuntimeError, wrong.validate_constraints),
        error(RuntimeError, infra.PassManager([first, second], both_ways).solve_constraints),
        error(Exception, lambda: failing(traced)),
        error(ValueError, lambda: checked(traced)),
        error(TypeError, lambda: checked.add_checks(lambda: None)),
    ]
    wrapped = infra.pass_result_wrapper(lambda gm: None)(traced)
    return outcome.modified, nodes(outcome.graph_module.graph), kinds, wrapped.modified


@both
def test_the_older_pass_manager(lib, fx):
    manager = module(lib, "passes.pass_manager")

    def one(value):
        return value + [1]

    def two(value):
        return value + [2]

    made = manager.PassManager.build_from_passlist([one, two])
    made.add_constraint(manager.this_before_that_pass_constraint(two, one))
    refused = error(RuntimeError, lambda: made([]))
    made.constraints.clear()
    made.replace_pass(two, manager.loop_pass(two, n_iter=2))
    made.add_pass(manager.inplace_wrapper(lambda value: value.append(3)))
    result = made([])
    made.remove_pass(["one"])
    return refused, result, made([]), manager.loop_pass(one, predicate=lambda v: len(v) < 3)([])


@both
def test_common_steps(lib, fx):
    cse = module(lib, "passes.dialect.common.cse_pass")
    aten = (
        lib.ops.aten
        if lib.__name__ == "torch"
        else importlib.import_module("tesserack.aten.operators").namespace("aten")
    )
    programs = [
        lambda x: lib.relu(x) + lib.relu(x),
        lambda x: (x + 1) * (x + 1) + (x + 2.0),
        lambda x: lib.cat([x, x]).sum() - lib.cat([x, x]).sum(),
        lambda x: x.sum(dim=0) + x.sum(dim=0) + x.sum(dim=1),
        lambda x: aten.rand_like(x) + aten.rand_like(x),
        lambda x: x + 1,
    ]
    found = []
    for program in programs:
        result = cse.CSEPass(banned_ops=cse.get_CSE_banned_ops())(fx.symbolic_trace(program))
        found.append((result.modified, nodes(result.graph_module.graph)))
    return found


@both
def test_noted_shapes(lib, fx):
    shape_prop = module(lib, "passes.shape_prop")
    traced = fx.symbolic_trace(net(lib))
    shape_prop.ShapeProp(traced).propagate(lib.ones(2, 4), 2.0)
    found = []
    for node in traced.graph.nodes:
        meta = node.meta.get("tensor_meta")
        if isinstance(meta, shape_prop.TensorMetadata):
            found.append(
                (
                    node.name,
                    tuple(meta.shape),
                    str(meta.dtype),
                    meta.requires_grad,
                    meta.stride,
                    str(meta.memory_format),
                )
            )
    failing = fx.symbolic_trace(lambda x: x.view(7))
    return found, error(RuntimeError, lambda: shape_prop.ShapeProp(failing).propagate(lib.ones(2)))


@both
def test_sizes_of_values(lib, fx):
    manipulation = module(lib, "passes.graph_manipulation")
    traced = fx.symbolic_trace(lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.ReLU()))
    unknown = error(RuntimeError, lambda: manipulation.get_size_of_all_nodes(traced))
    manipulation.get_size_of_all_nodes(traced, [lib.ones(2, 3)])
    sizes = [(n.name, tuple(n.size_bytes)) for n in traced.graph.nodes if n.op != "output"]
    other = fx.symbolic_trace(leaf)
    manipulation.replace_target_nodes_with(other, "call_function", operator.add, "call_function", operator.mul)
    return unknown, sizes, other(3, 4)


@both
def test_annotated_items(lib, fx):
    annotate = module(lib, "passes.annotate_getitem_nodes").annotate_getitem_nodes
    graph = fx.Graph()
    for k, kind in enumerate((tuple[int, str], tuple[int, ...], list[float], None)):
        graph.call_function(operator.getitem, (graph.placeholder(f"x{k}", type_expr=kind), 1))
    annotate(graph)
    return [str(n.type) for n in graph.nodes]


@both
def test_attributes_for_backends(lib, fx):
    fetch = module(lib, "passes.param_fetch")
    traced = fx.symbolic_trace(lib.nn.Sequential(lib.nn.Conv2d(1, 2, 3), lib.nn.ReLU(), lib.nn.BatchNorm2d(2)))
    fetch.lift_lowering_attrs_to_nodes(traced)
    found = [sorted(k for k in n.attrs_for_lowering) for n in traced.graph.nodes if n.op == "call_module"]
    return found, error(RuntimeError, lambda: fetch.extract_attrs_for_lowering(lib.nn.Tanh()))


@both
def test_split_for_a_backend(lib, fx):
    base = module(lib, "passes.splitter_base")
    support = module(lib, "passes.operator_support")

    class Small(lib.nn.Module):
        def forward(self, a):
            b = lib.sin(a)
            c = lib.cos(a)
            d = b + c
            e = lib.sin(d)
            return e, d.size(0) + lib.tanh(e)

    rule = support.OperatorSupport(
        {f"{lib.__name__}.sin": None, "_operator.add": None, "size": None} if lib.__name__ == "tesserack"
        else {"torch.sin": None, "_operator.add": None, "size": None}
    )  # fmt: skip
    found = []
    for options in ({}, {"min_acc_module_size": 2}, {"allow_non_tensor": True}, {"skip_fusion": True}):
        traced = fx.symbolic_trace(Small())
        splitter = base._SplitterBase(traced, (lib.ones(2),), rule, base._SplitterSettingBase(**options))
        parts = splitter.generate_split_results()
        inner = {
            n: sorted(m.name for m in c.graph.nodes if m.op.startswith("call"))
            for n, c in parts.split_module.named_children()
        }
        found.append((inner, parts.split_module(lib.ones(2)), sorted(parts.submodule_inputs)))
    return found


@both
def test_the_smallest_part_that_differs(lib, fx):
    base = module(lib, "passes.net_min_base")

    class Minimizer(base._MinimizerBase):
        def run_a(self, mod, inputs, report_idx=-1):
            return mod(*inputs)

        def run_b(self, mod, inputs, report_idx=-1):
            wrong = any(n.target is lib.exp for n in mod.graph.nodes)
            return lib.fx.node.map_aggregate(mod(*inputs), lambda t: t + int(wrong))

    def compare(a, b, names):
        alike = (
            bool((a == b).all())
            if not isinstance(a, tuple)
            else all(bool((x == y).all()) for x, y in zip(a, b, strict=True))
        )
        return float(alike), alike

    found = []
    for way in ("sequential", "binary", "accumulate", "block"):
        traced = fx.symbolic_trace(lambda x: lib.tanh(lib.exp(lib.sin(x) + 1)))
        settings = base._MinimizerSettingBase(traverse_method=way)
        made = Minimizer(traced, (lib.ones(2),), compare, settings)
        found.append(sorted(n.name for n in made.minimize()))
    wrong = Minimizer(traced, (lib.ones(2),), compare, base._MinimizerSettingBase(traverse_method="odd"))
    return found, error(RuntimeError, wrong.minimize)


@both
def test_normal_arguments(lib, fx):
    schemas = module(lib, "operator_schemas")
    found = [schemas.normalize_function(lib.relu, (1,), {}, normalize_to_only_use_kwargs=True)]
    found.append(schemas.normalize_function(lib.nn.functional.dropout, (1, 0.2), {}, normalize_to_only_use_kwargs=True))
    found.append(schemas.normalize_function(leaf, (1,), {"b": 2}))
    found.append(schemas.normalize_module(lib.nn.Sequential(lib.nn.Linear(1, 1)), "0", (3,), {}, True))
    traced = fx.symbolic_trace(lib.nn.Sequential(lib.nn.Linear(1, 1)))
    linear = [*traced.graph.nodes][1]
    found.append(linear.normalized_arguments(traced, normalize_to_only_use_kwargs=True))
    hints = [schemas.create_type_hint(v) for v in ([int, int], (int, float), [], 3)]
    return [None if f is None else (str(f.args), str(f.kwargs)) for f in found], [str(h) for h in hints]


@both
def test_sources_of_nodes(lib, fx):
    utils = module(lib, "passes.utils.source_matcher_utils")
    traced = fx.symbolic_trace(lambda x, w: lib.relu(lib.mm(x, w) + 1))
    for node in traced.graph.nodes:
        if node.name in ("mm", "add"):
            node.meta["source_fn_stack"] = [("lin", "linear")]
        elif node.name == "relu":
            node.meta["source_fn_stack"] = [("act", "relu")]
    parts = utils.get_source_partitions(traced.graph, ["linear", "relu"])
    first, second = parts["linear"][0], parts["relu"][0]
    connected = [utils.check_subgraphs_connected(first, second), utils.check_subgraphs_connected(second, first)]
    return [(str(p.nodes), sorted(map(str, p.input_nodes)), str(p.output_nodes)) for p in (first, second)], connected


def test_pictures_need_pydot():
    import tesserack as ts
    from tesserack.fx.passes.graph_drawer import FxGraphDrawer

    traced = ts.fx.symbolic_trace(net(ts))
    if importlib.util.find_spec("pydot") is None:
        with pytest.raises(RuntimeError, match="pydot"):
            FxGraphDrawer(traced, "net")
    else:
        assert "subMod" in FxGraphDrawer(traced, "net").get_main_dot_graph().to_string()


REINPLACED = {
    "chain": lambda x: x.clone().add(1).mul(2),
    "through a view": lambda x: x.clone().view(-1).add(1),
    "of an input": lambda x: x.add(1).mul(2),
    "read later": lambda x: (lambda a: (a.add(1), a * 2))(x.clone()),
    "a view read later": lambda x: (lambda a: (a[0], a.add(1)))(x.clone()),
    "returned": lambda x: (lambda a: (a, a.add(1)))(x.clone()),
    "other shape": lambda x: x[:1].clone().add(x),
    "another dtype": lambda x: x.clone().gt(1).add(x),
}


@pytest.mark.parametrize("name", REINPLACED)
def test_steps_write_where_nothing_reads(name):
    f = REINPLACED[name]
    x = ts.arange(6.0).reshape(2, 3)
    mine, theirs = (
        module(lib, "passes.reinplace").reinplace(module(lib, "experimental.proxy_tensor").make_fx(f)(y), y)
        for lib, y in ((ts, x), (torch, torch.arange(6.0).reshape(2, 3)))
    )
    assert [str(n.target) for n in mine.graph.nodes] == [str(n.target) for n in theirs.graph.nodes]
    graph = mine
    assert str(graph(x.clone())) == str(f(x)) and x.tolist() == [[0, 1, 2], [3, 4, 5]]
