"""What exported graphs keep as programs write it, by the operators and arguments that torch.export's have."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import tesserack as ts
import tesserack.export as ours
import torch
import torch.export as theirs
from tesserack.aten.operators import namespace
from tesserack.export.passes import move_to_device_pass

pytestmark = pytest.mark.filterwarnings("ignore")

CASES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda m: m.nn.Linear(8, 2), (2, 4, 8)),
    "conv1d": (lambda m: m.nn.Conv1d(4, 2, 3), (2, 4, 8)),
    "conv2d": (lambda m: m.nn.Conv2d(4, 2, 3, padding=1, stride=2), (2, 4, 8, 8)),
    "conv2d, same": (lambda m: m.nn.Conv2d(4, 2, 3, padding="same", bias=False), (2, 4, 8, 8)),
    "conv_transpose2d": (lambda m: m.nn.ConvTranspose2d(4, 2, 3), (2, 4, 8, 8)),
    "layer_norm": (lambda m: m.nn.LayerNorm(8), (2, 4, 8)),
    "group_norm": (lambda m: m.nn.GroupNorm(2, 4), (2, 4, 8, 8)),
    "instance_norm": (lambda m: m.nn.InstanceNorm2d(4), (2, 4, 8, 8)),
    "rms_norm": (lambda m: m.nn.RMSNorm(8), (2, 4, 8)),
    "batch_norm": (lambda m: m.nn.BatchNorm2d(4).eval(), (2, 4, 8, 8)),
    "dropout": (lambda m: m.nn.Dropout(), (3, 4)),
    "softmax": (lambda m: m.nn.Softmax(-1), (3, 4)),
    "log_softmax": (lambda m: m.nn.LogSoftmax(1), (3, 4)),
    "attention": (lambda m: lambda x: m.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True),
                  (2, 2, 4, 8)),
    "matmul": (lambda m: lambda x: x @ x.t(), (3, 4)),
    "einsum": (lambda m: lambda x: m.einsum("ij,kj->ik", x, x), (3, 4)),
    "max_pool": (lambda m: m.nn.MaxPool2d(2), (2, 4, 8, 8)),
    "average": (lambda m: m.nn.AdaptiveAvgPool2d(1), (2, 4, 8, 8)),
    "prelu": (lambda m: m.nn.PReLU(), (3, 4)),
    "relu6": (lambda m: lambda x: m.nn.functional.relu6(x), (3, 4)),
    "cross_entropy": (lambda m: lambda x: m.nn.functional.cross_entropy(x, m.tensor([0, 1, 2])), (3, 4)),
    "pad": (lambda m: lambda x: m.nn.functional.pad(x, (1, 1)), (3, 4)),
    "pad, reflected": (lambda m: lambda x: m.nn.functional.pad(x, (1, 1), mode="reflect"), (2, 4, 8)),
    "clamp": (lambda m: lambda x: x.clamp(0, 1), (3, 4)),
    "quantile": (lambda m: lambda x: x.quantile(0.5), (3, 4)),
}  # fmt: skip


def module(m: Any, made: Any) -> Any:
    if isinstance(made, m.nn.Module):
        return made

    class Plain(m.nn.Module):
        def forward(self, x):
            return made(x)

    return Plain()


def steps(program: Any) -> list[str]:
    """The calls, arguments by the kinds of what they are, without those of constants."""
    plain = ("lift_fresh_copy", "detach_")

    def show(arg: Any) -> str:
        if isinstance(arg, (list, tuple)):
            return f"[{', '.join(map(show, arg))}]"
        return str(arg) if isinstance(arg, (int, float, str, type(None))) else "value"

    return [
        f"{node.target}{show(node.args)}"
        for node in program.graph.nodes
        if node.op == "call_function" and not any(name in str(node.target) for name in plain)
    ]


@pytest.mark.parametrize("name", CASES)
def test_graphs_have_the_operators_of_the_program(name):
    make, shape = CASES[name]
    mine = ours.export(module(ts, make(ts)), (ts.ones(shape),))
    other = theirs.export(module(torch, make(torch)), (torch.ones(shape),))
    assert steps(mine) == steps(other)
    parts = mine.run_decompositions()
    kept = {"aten.max_pool2d.default", "aten.quantile.scalar"}  # for torch too, or that have no parts
    whole = {*map(str, ours.default_decompositions())} - kept
    assert not whole & {str(node.target) for node in parts.graph.nodes}
    if name != "dropout":
        x = ts.randn(shape)
        assert ts.equal(mine.module()(x), parts.module()(x)) or ts.allclose(mine.module()(x), parts.module()(x))


def test_a_table_says_what_is_taken_apart():
    table = ours.default_decompositions()
    del table[by_name(ts, "linear.default")]
    program = ours.export(ts.nn.Sequential(ts.nn.Linear(4, 2), ts.nn.Softmax(-1)), (ts.ones(3, 4),))
    assert steps(program.run_decompositions(table))[0].startswith("aten.linear.default")
    assert [step.partition("[")[0] for step in steps(program.run_decompositions({}))] == [
        "aten.linear.default",
        "aten.softmax.int",
    ]


class Tied(ts.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = ts.nn.Linear(4, 4), ts.nn.Linear(4, 4)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(self.a(x))


def test_each_name_of_a_tied_weight_has_a_placeholder():
    program = ours.export(Tied(), (ts.ones(3, 4),))
    assert [*program.graph_signature.parameters] == ["a.weight", "a.bias", "b.weight", "b.bias"]
    module = program.module()
    assert module.a.weight is module.b.weight
    assert {*ours.unflatten(program).state_dict()} == {"a.weight", "a.bias", "b.weight", "b.bias"}


def test_nodes_tell_where_they_are_from():
    class Net(ts.nn.Module):
        def __init__(self):
            super().__init__()
            self.l, self.r = ts.nn.Linear(4, 2), ts.nn.Sequential(ts.nn.ReLU())

        def forward(self, x):
            return self.r(self.l(x))

    program = ours.export(Net(), (ts.ones(3, 4),))
    weight, *_, linear, relu, _output = program.graph.nodes
    assert weight.meta["val"].requires_grad and tuple(weight.meta["tensor_meta"].shape) == (2, 4)
    assert linear.meta["torch_fn"] == ("linear_1", "builtin_function_or_method.linear")
    assert [*relu.meta["nn_module_stack"]] == ["L__self__", "L__self__r", "L__self__r.0"]
    assert tuple(relu.meta["tensor_meta"].shape) == (3, 2) and "stack_trace" in relu.meta
    parts = program.run_decompositions()
    assert {n.meta["torch_fn"][0] for n in parts.graph.nodes if n.op == "call_function"} == {"linear_1", "relu_1"}


def test_the_module_of_a_program_is_copied():
    module = ours.export(ts.nn.Linear(4, 2), (ts.ones(3, 4),)).module()
    for made in (copy.deepcopy(module), copy.copy(module)):
        assert ts.equal(made(ts.ones(3, 4)), module(ts.ones(3, 4)))
        with pytest.raises(RuntimeError):
            made(ts.ones(5, 4))


def test_files_keep_the_example(tmp_path):
    program = ours.export(ts.nn.Linear(4, 2), (ts.ones(3, 4),))
    ours.save(program, tmp_path / "p.pt2")
    (given,), named = ours.load(tmp_path / "p.pt2").example_inputs
    assert ts.equal(given, ts.ones(3, 4)) and named == {}


def by_name(m, name):
    packet, _, overload = name.partition(".")
    return getattr(getattr(namespace("aten") if m is ts else m.ops.aten, packet), overload)


CALLS: dict[str, Any] = {
    "embedding.default": lambda m, x: (x, m.tensor([0, 2]), 2, False, False),
    "layer_norm.default": lambda m, x: (x, [4], None, None, 1e-5, False),
    "group_norm.default": lambda m, x: (x, 2, None, None, 1e-5, False),
    "batch_norm.default": lambda m, x: (x, x[0], x[1], x[0], x[1].abs(), False, 0.1, 1e-5, False),
    "instance_norm.default": lambda m, x: (x.reshape(1, 3, 4), None, None, None, None, True, 0.1, 1e-5, False),
    "softmax.int": lambda m, x: (x, -1, m.float64),
    "cross_entropy_loss.default": lambda m, x: (x, m.tensor([0, 1, 2]), None, 2, 1, 0.1),
    "nll_loss_nd.default": lambda m, x: (x, m.tensor([0, 1, 2]), None, 0),
    "l1_loss.default": lambda m, x: (x, x * 2, 2),
    "tensordot.default": lambda m, x: (x, x, [0], [0]),
    "_prelu_kernel.default": lambda m, x: (x, x[:1]),
    "_cdist_forward.default": lambda m, x: (x, x + 1, 1.0, None),
}


@pytest.mark.parametrize("name", CALLS)
def test_operators_take_the_arguments_of_aten(name):
    data = [[1.0, -2.0, 3.0, 0.5], [0.25, 4.0, -1.0, 2.0], [2.0, 0.0, 1.5, -3.0]]
    mine = by_name(ts, name)(*CALLS[name](ts, ts.tensor(data)))
    other = by_name(torch, name)(*CALLS[name](torch, torch.tensor(data)))
    assert tuple(mine.shape) == tuple(other.shape)
    assert ts.allclose(mine.double(), ts.tensor(other.tolist(), dtype=ts.float64), atol=1e-5)
    declared = [[a.name for a in by_name(m, name)._schema.arguments] for m in (ts, torch)]
    assert declared[0] == declared[1]


def test_sizes_are_told_apart_where_the_example_is_all_ones():
    class Branches(ts.nn.Module):
        def forward(self, x):
            return x + 1 if x.shape[0] > 5 else x * 2

    program = ours.export(Branches(), (ts.ones(8, 2),), dynamic_shapes={"x": {0: ours.Dim.AUTO}})
    x = ts.full((8, 2), 3.0)
    assert ts.equal(program.module()(x), x + 1)
    for count in (4, 6):
        x = ts.full((count, 2), 3.0)
        try:
            found = program.module()(x)
        except RuntimeError:
            continue  # it is told that this is no size for the program
        assert ts.equal(found, Branches()(x))


def test_keys_of_an_argument_come_in_any_order():
    class Minus(ts.nn.Module):
        def forward(self, pair):
            return pair["a"][0] - pair["b"]["c"]

    a, b = ts.ones(2), ts.full((2,), 3.0)
    module = ours.export(Minus(), ({"a": [a], "b": {"c": b, "d": 1}},)).module()
    assert module({"b": {"d": 1, "c": b}, "a": [a]}).tolist() == [-2.0, -2.0]
    with pytest.raises(RuntimeError):
        module({"b": {"d": 1, "e": b}, "a": [a]})


@dataclasses.dataclass
class Pair:
    left: ts.Tensor
    right: ts.Tensor


def test_inputs_of_a_dataclass_are_called_by_its_fields():
    class Sum(ts.nn.Module):
        def forward(self, pair):
            return pair.left + pair.right

    ours.register_dataclass(Pair)
    program = ours.export(Sum(), (Pair(ts.ones(2), ts.ones(2)),))
    assert program.graph_signature.user_inputs == ("pair_left", "pair_right")


@dataclasses.dataclass
class Options:
    value: ts.Tensor
    bias: ts.Tensor | None = None


def test_fields_that_are_none_are_no_inputs():
    class Biased(ts.nn.Module):
        def forward(self, options):
            return options.value if options.bias is None else options.value + options.bias

    ours.register_dataclass(Options)
    program = ours.export(Biased(), (Options(ts.ones(2)),))
    assert program.graph_signature.user_inputs == ("options_value",)
    assert program.module()(Options(ts.zeros(2))).tolist() == [0.0, 0.0]
    both = ours.export(Biased(), (Options(ts.ones(2), ts.ones(2)),))
    assert both.graph_signature.user_inputs == ("options_value", "options_bias")


def test_a_draft_says_which_sizes_do_not_vary():
    class Halves(ts.nn.Module):
        def forward(self, x):
            return x + ts.ones(4)

    shapes = {"x": {0: ours.Dim("n")}}
    program = ours.draft_export(Halves(), (ts.ones(4),), dynamic_shapes=shapes)
    assert not program._report.successful() and "n" in program._report.failures[0]
    assert program.module()(ts.ones(4)).tolist() == [2.0] * 4
    assert ours.draft_export(ts.nn.ReLU(), (ts.ones(4),), dynamic_shapes=({0: ours.Dim("n")},))._report.successful()


def test_a_program_moves_to_another_device():
    class Net(ts.nn.Module):
        def __init__(self):
            super().__init__()
            self.l = ts.nn.Linear(4, 2)
            self.register_buffer("b", ts.ones(2))

        def forward(self, x):
            return self.l(x) + self.b + ts.arange(2, device=x.device)

    program = ours.export(Net(), (ts.ones(3, 4),), dynamic_shapes=({0: ours.Dim("n")},))
    moved = move_to_device_pass(program, {"cpu": "meta"})
    assert {str(v.device) for v in moved.state_dict.values()} == {"meta"}
    assert {str(v.device) for v in program.state_dict.values()} == {"cpu"}
    made = next(node for node in moved.graph.nodes if "arange" in str(node.target))
    assert made.kwargs["device"] == ts.device("meta") and str(made.meta["val"].device) == "meta"
    assert moved.module()(ts.ones(5, 4, device="meta")).shape == (5, 2)
    back = move_to_device_pass(program, "cpu").module()
    assert ts.equal(back(ts.ones(3, 4)), program.module()(ts.ones(3, 4)))


def test_the_signature_and_the_table_are_as_torch_has_them():
    class Counts(ts.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", ts.zeros(1))

        def forward(self, x):
            self.n.add_(1)
            return x + self.n

    signature = ours.export(Counts(), (ts.ones(2),)).graph_signature
    assert signature.buffers == ("n",) and dict(signature.buffers_to_mutate) == {"add": "n"}
    with pytest.raises(TypeError):
        signature.buffers_to_mutate["add"] = "m"
    table = ours.default_decompositions()
    assert table.materialize() == table == table.copy() and len(table) > 30
