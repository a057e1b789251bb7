"""Checks of texts, types of tensors in graphs, rules of what a backend takes, storages of buffers, merged times."""

from __future__ import annotations

import operator

import pytest
import tesserack as ts
from tesserack import fx, nn
from tesserack.fx.passes.operator_support import OperatorSupport, OpSupports, any_chain, chain, create_op_support
from tesserack.fx.passes.shape_prop import ShapeProp
from tesserack.fx.tensor_type import Dyn, TensorType, is_consistent, is_more_precise
from tesserack.testing import FileCheck
from tesserack.utils.benchmark import Measurement, TaskSpec

TEXT = "one = f(x)\ntwo = g(one)\nthree = g(two)\n"


@pytest.mark.parametrize(
    "check",
    [
        FileCheck().check("one").check_same("f").check_next("two").check("three"),
        FileCheck().check_count("g(", 2, exactly=True),
        FileCheck().check_not("h(").check("g").check_not("f("),
        FileCheck().check_dag("three").check_dag("one"),
        FileCheck().check_regex(r"t\w+ = g"),
        FileCheck().check("one = f").check_not("three").check_next("two"),
    ],
)
def test_texts_that_are_as_checked(check):
    check.run(TEXT)


@pytest.mark.parametrize(
    "check",
    [
        FileCheck().check("four"),
        FileCheck().check("two").check("one = "),
        FileCheck().check("one").check_same("two ="),
        FileCheck().check("one").check_next("three"),
        FileCheck().check("one").check_next("f"),
        FileCheck().check_count("g(", 3),
        FileCheck().check_count("g(", 1, exactly=True),
        FileCheck().check("one").check_not("two").check("three"),
        FileCheck().check("two").check_not("three"),
        FileCheck().check_dag("three").check_dag("four"),
        FileCheck().check_regex(r"g\d"),
        FileCheck().check_source_highlighted("two"),
    ],
)
def test_texts_that_are_not(check):
    with pytest.raises(RuntimeError, match=r"Expected .*\n"):
        check.run(TEXT)


def test_checks_in_comments():
    FileCheck().run("# CHECK: one\n# CHECK-NEXT: two\n# CHECK-NOT: four\n# CHECK-COUNT-1: three\n", TEXT)
    FileCheck().check_source_highlighted("ab").run("x ab\n  ~~\n")
    with pytest.raises(RuntimeError):
        FileCheck().run("# CHECK-NEXT: three", TEXT)


def test_types_by_sizes():
    assert TensorType((1, 2)) == TensorType[1, 2] != TensorType((1, Dyn)) and TensorType[3] == TensorType((3,))
    assert repr(TensorType((1, Dyn))) == "TensorType[(1, Dyn)]"
    assert is_consistent(TensorType((1, Dyn)), TensorType((Dyn, 2))) and is_consistent(Dyn, int)
    assert not is_consistent(TensorType((1,)), TensorType((2,))) and not is_consistent(TensorType((1,)), TensorType(()))
    assert is_more_precise(TensorType((1, 2)), TensorType((1, Dyn))) and is_more_precise(int, Dyn)
    assert not is_more_precise(TensorType((1, Dyn)), TensorType((1, 2))) and not is_more_precise(Dyn, int)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x).relu() + 1


def test_rules_of_what_is_taken():
    traced = fx.symbolic_trace(Net())
    ShapeProp(traced).propagate(ts.ones(1, 2))
    modules = dict(traced.named_modules())
    linear = f"{nn.Linear.__module__}.Linear"

    def taken(rule):
        return [node.name for node in traced.graph.nodes if rule.is_node_supported(modules, node)]

    every = ["x", "layer", "relu", "add", "output"]
    assert taken(OperatorSupport({linear: None, "relu": None, "_operator.add": None})) == every
    assert taken(OperatorSupport({linear: (((ts.float32,),), {}), "relu": (((ts.float64,),), {})})) == [
        "x",
        "layer",
        "output",
    ]
    named = create_op_support(lambda _, node: node.name == "relu")
    assert taken(named) == ["relu"] and taken(any_chain(named, OperatorSupport())) == ["x", "relu", "output"]
    assert taken(chain(named, OpSupports.decline_if_input_dtype(ts.float32))) == []
    assert taken(OpSupports.decline_if_node_in_names({"add"})) == ["x", "layer", "relu", "output"]


def test_operators_that_write_are_refused_if_asked(monkeypatch):
    def writes(x):
        return ts.add(x, 1, out=x)

    fx.symbolic_trace(writes)
    monkeypatch.setattr(fx.proxy.TracerBase, "check_mutable_operations", True)
    with pytest.raises(RuntimeError, match="mutable operation"):
        fx.symbolic_trace(writes)
    assert fx.symbolic_trace(lambda x: operator.add(ts.add(x, 1), x))(ts.ones(1)).item() == 3


def test_storages_of_buffers(tmp_path):
    storage = ts.storage._typed
    assert storage.ByteStorage.from_buffer(b"abc", count=1, offset=1).tolist() == [98]
    data = b"\0\0\1\0\0\0\0\2"
    assert storage.IntStorage.from_buffer(data, "big").tolist() == [256, 2]
    assert storage.IntStorage.from_buffer(data, byte_order="little", count=1, offset=4).tolist() == [0x0200_0000]
    assert storage.ComplexFloatStorage.from_buffer(b"\x3f\x80\0\0\x40\0\0\0", "big").tolist() == [1 + 2j]
    assert storage.BoolStorage.from_buffer(b"\0\1\2", "native").tolist() == [False, True, True]
    for wrong, error in (
        (lambda: storage.IntStorage.from_buffer(data), RuntimeError),
        (lambda: storage.IntStorage.from_buffer(data[:3], "native"), ValueError),
        (lambda: storage.IntStorage.from_buffer(data, "middle"), ValueError),
        (lambda: storage.IntStorage.from_buffer(data, "native", count=3), ValueError),
        (lambda: storage.IntStorage.from_buffer(data, "native", offset=9), ValueError),
    ):
        with pytest.raises(error, match="from_buffer"):
            wrong()
    (tmp_path / "x").write_bytes(b"\0\0\x80\x3f" * 2)
    assert storage.FloatStorage.from_file(tmp_path / "x", size=2).tolist() == [1, 1]


def test_merged_times():
    one, two = TaskSpec("a"), TaskSpec("b")
    merged = Measurement.merge(
        [Measurement(2, [2.0, 4.0], one), Measurement(1, [1.0], two), Measurement(1, [3.0], one)]
    )
    assert [m.task_spec for m in merged] == [one, two] and merged[0].times == [1, 2, 3] and merged[1].times == [1]
